//! The sites of the arguments, which model tests weaken one by one.

use squall_sys::sync::weaken::Site;

/// The acquire of whoever takes a lock (lock/I1).
pub(crate) const ACQUIRE: Site = Site(0);
/// The release of whoever gives a lock back (lock/I1).
pub(crate) const RELEASE: Site = Site(1);
/// Not an ordering: whether a slab is taken out of its list before it is given back (heap/I3).
pub(crate) const TAKEN_OUT: Site = Site(2);
/// Not an ordering: whether who empties a VP's magazines closes them first (drain/I1).
pub(crate) const CLOSE: Site = Site(3);
/// Not an ordering: whether the kernel is then asked to restart the sequences in flight (drain/I1).
pub(crate) const RESTART: Site = Site(4);
/// Not an ordering: whether it is asked once more before they are opened again (drain/I2).
pub(crate) const AGAIN: Site = Site(5);
/// Not an ordering: whether units lead to their heap before anybody can have a block of them (heap/I4).
pub(crate) const DIRECT: Site = Site(6);
/// Not an ordering: whether units that go to the system are nobody's meanwhile (units/I4).
pub(crate) const LEAVING: Site = Site(7);
/// Not an ordering: whether a sequence asks for its VP after it began (magazine/I1).
#[cfg(all(test, loom))]
pub(crate) const ASKED_WITHIN: Site = Site(8);
/// Not an ordering: whether blocks that are sent home are sorted by their homes (home/I1).
pub(crate) const BY_HOME: Site = Site(9);
/// Not an ordering: whether one thread at a time makes a segment usable (growth/I1).
pub(crate) const GROWS_ALONE: Site = Site(10);
/// Not an ordering: whether a spare slab is taken out of the spares before it is given back (heap/I3).
pub(crate) const SPARE_TAKEN_OUT: Site = Site(11);
