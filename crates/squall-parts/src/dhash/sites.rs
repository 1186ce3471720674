//! The sites of the proof: steps that model tests leave out one by one.
//!
//! No ordering is among them: the locks and the tables bring their own. The fence of the emptying thread
//! cannot be tested, since the models' tables are behind locks.

use squall_sys::sync::weaken::Site;

/// A thread that has locked a replica checks whether its element is still full (raw/I3).
pub(crate) const RECHECK: Site = Site(20);
/// A thread that finds an element being filled waits for it (raw/I4).
pub(crate) const WAIT: Site = Site(21);
/// A replica is made under the lock of its element (raw/I3).
pub(crate) const CREATE_LOCKED: Site = Site(22);
/// An element is marked gone before it is removed from the tables (raw/I5).
pub(crate) const MARK_FIRST: Site = Site(23);
/// All replicas are locked while the element is emptied (raw/I3).
pub(crate) const LOCK_ALL: Site = Site(24);
/// The verdict is the master's, and not that of the local table (raw/I1).
pub(crate) const VERDICT: Site = Site(25);
/// A waiter registers and then checks the element again (fill/I2).
pub(crate) const CHECK_AGAIN: Site = Site(26);
/// A thread that fills an element checks under its lock that it is not gone (raw/I1).
pub(crate) const CHECK_REVOKED: Site = Site(27);
/// A thread that marks an element gone unfilled checks under its lock that it is not full (raw/I1).
pub(crate) const CHECK_FILLED: Site = Site(28);
/// A thread that ends a fill wakes the waiters (fill/I1).
pub(crate) const WAKE: Site = Site(29);
/// An error is stored before the element is marked gone (fill/I4).
pub(crate) const ERROR_FIRST: Site = Site(30);
