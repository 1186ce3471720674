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
