//! The sites of the protocol of inboxes. Each model twin weakens one.

use squall_sys::sync::weaken::Site;

/// Release of a queued call. Partner: [`TAKE`].
pub(super) const QUEUE: Site = Site(210);
/// Acquire of a queued call, by a server or a sender that cancels. Partner: [`QUEUE`].
pub(super) const TAKE: Site = Site(211);
/// Release of a result. Partner: [`RESULT`].
pub(super) const DONE: Site = Site(212);
/// Acquire of a result. Partner: [`DONE`].
pub(super) const RESULT: Site = Site(213);
/// Release of an empty slot. Partner: [`CLAIM`].
pub(super) const FREE: Site = Site(214);
/// Acquire of an empty slot. Partner: [`FREE`].
pub(super) const CLAIM: Site = Site(215);
/// Not an ordering: a server that finds a watcher takes its waker (`inbox/I4`).
pub(super) const WATCHED: Site = Site(216);
/// Not an ordering: a watcher leaves its waker before it looks for the result (`inbox/I4`).
pub(super) const WATCH: Site = Site(217);
/// Not an ordering: a server frees the slot of a call without an owner (`inbox/I3`).
pub(super) const DETACHED: Site = Site(218);
/// Not an ordering: a thread looks into the inbox under the lock before it sleeps (`staff/I1`).
pub(super) const LOOK: Site = Site(219);
/// Not an ordering: a thread that waits for a call lets another one serve (`staff/I2`).
pub(super) const WAITS: Site = Site(220);
/// Acquire and Release of an arrival. Partner: itself, at the last arrival, and [`OVER`].
pub(super) const ARRIVE: Site = Site(221);
/// Acquire of the end of a round. Partner: [`ARRIVE`].
pub(super) const OVER: Site = Site(222);
/// Not an ordering: a waiter leaves its waker before it looks (`tally/I2`).
pub(super) const LEAVE: Site = Site(223);
/// Release of a call that runs again. Partner: [`TAKE`].
pub(super) const AGAIN: Site = Site(241);
/// Not an ordering: a thread that waits, and for which no other one can serve, serves itself (`staff/I3`).
pub(super) const SERVES: Site = Site(242);
/// Not an ordering: a sender waits for the outcome of the start that it depends on (`staff/I5`).
pub(super) const OUTCOME: Site = Site(246);
/// Not an ordering: a thread that could not be started is no longer counted (`staff/I5`).
pub(super) const FAILED: Site = Site(247);
