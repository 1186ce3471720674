//! The sites of the protocols of mailboxes. Each model twin weakens one.

use squall_sys::sync::weaken::Site;

/// Release of a message. Partner: [`RECEIVE`].
pub(crate) const SEND: Site = Site(1);
/// Acquire of a message. Partner: [`SEND`].
pub(crate) const RECEIVE: Site = Site(2);
/// Release of room. Partner: [`ROOM`].
pub(crate) const FREE: Site = Site(3);
/// Acquire of room. Partners: [`FREE`] and [`ROOM_SEEN`].
pub(crate) const ROOM: Site = Site(4);
/// Release of room to other senders. Partner: [`ROOM`].
pub(crate) const ROOM_SEEN: Site = Site(5);
/// Not an ordering: the receiver clears the words of a message (`lane/I3`).
pub(crate) const CLEAR: Site = Site(6);
/// Not an ordering: a sender that wakes a quiet lane rings (`lane/I4`).
pub(crate) const QUIET: Site = Site(7);
/// Not an ordering: a lane becomes quiet only if it is empty (`lane/I4`).
pub(crate) const EMPTY: Site = Site(8);
/// Release of a ring of the bell. Partner: [`LOOK`].
pub(crate) const RING: Site = Site(9);
/// Acquire of the rings of the bell. Partner: [`RING`].
pub(crate) const LOOK: Site = Site(10);
/// Not an ordering: the receiver sleeps only if no bell rang (`bell/I2`).
pub(crate) const SLEEP: Site = Site(11);
/// Not an ordering: a waiter for room says so only while the lane is full (`lane/I5`).
pub(crate) const WANTED: Site = Site(12);
/// Not an ordering: the receiver tells the senders that wait for room (`lane/I5`).
pub(crate) const TELL: Site = Site(13);
/// Not an ordering: a task leaves its waker under the lock under which it found no result (`handover/I1`).
pub(crate) const LEFT: Site = Site(24);
/// Release of a wake-up of a task. Partner: the Acquire before the task's step (`tasks/I1`).
pub(crate) const TASK_WOKEN: Site = Site(14);
/// Not an ordering: a task is taken out of the queue before its step, not after it (`tasks/I1`).
pub(crate) const TASK_RUNS: Site = Site(15);
/// Not an ordering: a dispatcher sleeps only while no task can run (`tasks/I2`).
pub(crate) const TASKS_EMPTY: Site = Site(16);
/// Not an ordering: a dispatcher looks at the wish before it sleeps (`tasks/I4`).
pub(crate) const WISH: Site = Site(17);
/// Not an ordering: the end of a lane wakes the waits for room (`lane/I6`).
pub(crate) const CLOSE_TELLS: Site = Site(18);
/// Not an ordering: a wait for room begins only while the lane is open (`lane/I6`).
pub(crate) const WAIT_OPEN: Site = Site(19);
/// Not an ordering: room wakes all waits, because a cancelled one does not pass it on (`waiters/I3`).
pub(crate) const WAKE_ALL: Site = Site(20);
/// Not an ordering: the end of a sleep keeps the rings (`bell/I3`).
pub(crate) const KEEP_RINGS: Site = Site(21);
/// Not an ordering: the end of a lane ends no later grant of its capability (`post/I4`).
pub(crate) const OWN_GRANT: Site = Site(22);
/// Release of a message of a link. Partner: [`LINK_RECEIVE`].
pub(crate) const LINK_SEND: Site = Site(40);
/// Acquire of a message of a link. Partner: [`LINK_SEND`].
pub(crate) const LINK_RECEIVE: Site = Site(41);
/// Release of room in a link. Partner: [`LINK_ROOM`].
pub(crate) const LINK_FREE: Site = Site(42);
/// Acquire of room in a link. Partner: [`LINK_FREE`].
pub(crate) const LINK_ROOM: Site = Site(43);
/// Not an ordering: a side marks the other side's word before it sleeps (`ring/I4`).
pub(crate) const LINK_MARK: Site = Site(44);
/// The fence of a thread before it sleeps. Partner: [`VIGIL_WAKE`].
pub(crate) const VIGIL_SLEEP: Site = Site(45);
/// The fence of the thread that ends a link. Partner: [`VIGIL_SLEEP`].
pub(crate) const VIGIL_WAKE: Site = Site(46);
/// Not an ordering: the receiver of a link reads whether the peer has ended before it looks (`joint/I2`).
pub(crate) const LINK_LAST: Site = Site(47);
/// Not an ordering: the pump of a transport leaves its waker under the lock under which it found no frame
/// (`host/backlog/I2`).
pub(crate) const BACKLOG_LEFT: Site = Site(48);
/// Not an ordering: no thread writes to a link while the pump sends a frame (`host/backlog/I1`).
pub(crate) const BACKLOG_PUMPS: Site = Site(49);
/// Not an ordering: a link of a dispatcher becomes quiet only after it has left its waker (`links/I1`).
pub(crate) const LINK_QUIET: Site = Site(60);
/// Not an ordering: a new link is in the list before its ring (`links/I3`).
pub(crate) const LINK_FRESH: Site = Site(61);
