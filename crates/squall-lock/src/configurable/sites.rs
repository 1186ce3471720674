//! The orderings and steps of the argument in `raw.rs`. Each model twin weakens one.

use squall_sys::sync::weaken::Site;

/// Acquire of a thread that takes the free lock. Partner: [`RELEASE`].
pub(crate) const ACQUIRE: Site = Site(80);
/// Release of a thread that frees the lock. Partner: [`ACQUIRE`].
pub(crate) const RELEASE: Site = Site(81);
/// Release of giving the lock to a registered waiter. Partner: [`GRANT_ACQUIRE`].
pub(crate) const GRANT_RELEASE: Site = Site(82);
/// Acquire of a registered waiter that finds it was given the lock. Partner: [`GRANT_RELEASE`].
pub(crate) const GRANT_ACQUIRE: Site = Site(83);
/// Step: a thread that is about to sleep checks, under the lock of the queue, that the lock is still held
/// (W2).
pub(crate) const LAST_LOOK: Site = Site(84);
/// Step: a counted waiter does not leave while the lock is free (W3).
pub(crate) const DUTY: Site = Site(85);
/// Step: a thread that registers checks once more whether the lock is free (W2).
pub(crate) const REGISTERED_LOOK: Site = Site(86);
/// Step: a registered waiter that times out checks whether it was given the lock meanwhile (W4).
pub(crate) const LATE_GRANT: Site = Site(87);
/// Step: a change of attributes wakes the sleepers (W5).
pub(crate) const CHANGE_WAKES: Site = Site(88);
/// Step: a thread that is about to sleep checks whether it was cancelled (W6).
pub(crate) const CANCEL_LOOK: Site = Site(90);
/// Step: a thread that is about to sleep checks whether the attributes it waits by are still current (W5).
pub(crate) const CHANGE_LOOK: Site = Site(91);
