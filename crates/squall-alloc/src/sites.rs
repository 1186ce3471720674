//! The sites of the arguments, which model tests weaken one by one.

use squall_sync::weaken::Site;

/// The acquire of whoever takes a lock (lock/I1).
pub(crate) const ACQUIRE: Site = Site(0);
/// The release of whoever gives a lock back (lock/I1).
pub(crate) const RELEASE: Site = Site(1);
/// Not an ordering: whether a slab is given back under its heap's lock (heap/I3).
pub(crate) const UNDER_LOCK: Site = Site(2);
/// Not an ordering: whether who empties a VP's magazines closes them first (drain/I1).
pub(crate) const CLOSE: Site = Site(3);
/// Not an ordering: whether the kernel is then asked to restart the sequences in flight (drain/I1).
pub(crate) const RESTART: Site = Site(4);
/// Not an ordering: whether it is asked once more before they are opened again (drain/I2).
pub(crate) const AGAIN: Site = Site(5);
