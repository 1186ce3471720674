//! The sites of the argument of budgets. Each model twin weakens one. They are no orderings: the sum is a
//! number alone, and the place of the entries orders their memory.

use squall_sys::sync::weaken::Site;

/// A taking fits (`budget/I1`).
pub(super) const FITS: Site = Site(225);
/// A taking is one step (`budget/I1`).
pub(super) const TAKE_WHOLE: Site = Site(226);
/// A claim is one step (`budget/I2`).
pub(super) const CLAIM_ONCE: Site = Site(227);
/// A change of the other bits keeps a claim (`budget/I3`).
pub(super) const KEEP_CLAIM: Site = Site(228);
/// A share that is dropped gives its part back (`budget/I1`).
pub(super) const GIVE_BACK: Site = Site(229);
/// In the models: a thread takes before it adds an entry (`budget/I4`).
#[cfg(all(test, any(loom, squall_model)))]
pub(super) const TAKE_FIRST: Site = Site(230);
/// In the models: a thread gives back after it has removed an entry (`budget/I4`).
#[cfg(all(test, any(loom, squall_model)))]
pub(super) const GIVE_LAST: Site = Site(231);
/// In the models: a thread claims an entry before it counts on its cost for the next one (`budget/I5`).
#[cfg(all(test, any(loom, squall_model)))]
pub(super) const CLAIM_OLD: Site = Site(232);
/// In the models: an entry that was claimed for another one leaves if that one is refused (`budget/I5`).
#[cfg(all(test, any(loom, squall_model)))]
pub(super) const TAKE_OUT_OLD: Site = Site(233);
