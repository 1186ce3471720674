//! The orderings that the proof in `README.md` beside this file names. A model build can weaken each, and the model
//! tests must then fail (see `squall_sync::weaken`).

use squall_sync::weaken::Site;

/// A miss asks whether its object lives, after it has published a representative. Partner: [`KILL`].
pub(crate) const CONFIRM: Site = Site(0);
/// A miss leaves the gate. Partner: [`KILL`], and the other misses.
pub(crate) const LEAVE: Site = Site(1);
/// The destroyer shuts the gate. Partner: [`CONFIRM`], [`LEAVE`].
pub(crate) const KILL: Site = Site(2);
/// A call lets its hold go. Partner: [`WAIT_HOLDS`].
pub(crate) const RELEASE: Site = Site(3);
/// Memory quiet asks for the holds. Partner: [`RELEASE`].
pub(crate) const WAIT_HOLDS: Site = Site(4);
/// An entry is stored in a table. Partner: [`ENTRY_LOAD`].
pub(crate) const ENTRY_STORE: Site = Site(5);
/// A call loads an entry. Partner: [`ENTRY_STORE`].
pub(crate) const ENTRY_LOAD: Site = Site(6);
/// A representative is published. Partner: [`REP_LOAD`].
pub(crate) const REP_STORE: Site = Site(7);
/// A representative is looked for. Partner: [`REP_STORE`].
pub(crate) const REP_LOAD: Site = Site(8);
/// An object is published in its slot. Partner: [`SLOT_LOAD`].
pub(crate) const SLOT_STORE: Site = Site(9);
/// A miss looks for its object. Partner: [`SLOT_STORE`].
pub(crate) const SLOT_LOAD: Site = Site(10);
/// The last that memory quiet waited for goes on. Partner: itself.
pub(crate) const HELD: Site = Site(11);
/// Not an ordering: a late miss activates its representative without asking whether the object lives.
pub(crate) const ASK_BEFORE_ACTIVE: Site = Site(12);
/// Not an ordering: the table entries are left as they are when the gate is drained.
pub(crate) const CLEAR_ENTRIES: Site = Site(13);
/// Not an ordering: the slot keeps its generation when it is used again.
pub(crate) const NEXT_GENERATION: Site = Site(14);
/// A representative whose VP is not here is left for that VP. Partner: [`BURY_TAKE`].
pub(crate) const BURY_PUSH: Site = Site(15);
/// Somebody takes the representatives left for a VP. Partner: [`BURY_PUSH`].
pub(crate) const BURY_TAKE: Site = Site(16);
/// A miss waits while membership is frozen, or publishes. Partner: [`FREEZE`].
pub(crate) const PUBLISH: Site = Site(17);
/// Membership is frozen. Partner: [`PUBLISH`].
pub(crate) const FREEZE: Site = Site(18);
