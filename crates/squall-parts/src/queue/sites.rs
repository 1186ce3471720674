//! The sites of the queue's argument. Each model twin weakens one.

use squall_sys::sync::weaken::Site;

/// Release of a removal's count. Partner: [`REMOVED`].
pub(super) const COUNT: Site = Site(150);
/// Acquire of the counts of removals. Partner: [`COUNT`].
pub(super) const REMOVED: Site = Site(151);
/// Not an ordering: removals are read before arrivals (`queue/I4`).
pub(super) const BEFORE: Site = Site(152);
/// Not an ordering: a call looks at the state under the lock of a heap (`queue/I2`).
pub(super) const STATE: Site = Site(153);
/// Not an ordering: a change of the state locks all heaps (`queue/I2`).
pub(super) const ALL: Site = Site(154);
/// Release of a finished element. Partner: [`FINISHED`].
pub(super) const FINISH: Site = Site(155);
/// Acquire of the counts of finished elements. Partner: [`FINISH`].
pub(super) const FINISHED: Site = Site(156);
/// The fence between two clients that finish the last elements.
pub(super) const LAST: Site = Site(157);
/// The fence of a waiter that announces itself. Partner: [`LOOK`].
pub(super) const ANNOUNCE: Site = Site(158);
/// The fence between an arrival, an end or a close and the look for waiters. Partner: [`ANNOUNCE`].
pub(super) const LOOK: Site = Site(159);
/// Not an ordering: a waiter looks again after it has queued (`wait/I1`).
pub(super) const RECHECK: Site = Site(160);
/// Not an ordering: a waiter that leaves with a wake-up passes it on (`wait/I2`).
pub(super) const PASS: Site = Site(161);
/// Not an ordering: a finished element makes its client look for the end (`wait/I3`).
pub(super) const END: Site = Site(162);
/// Not an ordering: both heaps are locked while an element moves (`queue/I1`).
pub(super) const MOVE: Site = Site(164);
/// Release of a closed state. Partner: [`CLOSED`].
pub(super) const CLOSE: Site = Site(165);
/// Acquire of a waiter that looks whether the queue was closed. Partner: [`CLOSE`].
pub(super) const CLOSED: Site = Site(166);
