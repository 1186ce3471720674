//! The sites of the concurrency argument that the weakened model tests switch off one by one.

use squall_sys::sync::weaken::Site;

/// The Acquire of a thread that takes a lock (lock/I1).
pub(crate) const ACQUIRE: Site = Site(0);
/// The Release of a thread that gives a lock back (lock/I1).
pub(crate) const RELEASE: Site = Site(1);
/// Not an ordering: a slab is taken out of its list before it is given back (heap/I3).
pub(crate) const TAKEN_OUT: Site = Site(2);
/// Not an ordering: the drain of a VP closes its magazines first (drain/I1).
pub(crate) const CLOSE: Site = Site(3);
/// Not an ordering: the kernel then restarts the sequences in flight (drain/I1).
pub(crate) const RESTART: Site = Site(4);
/// Not an ordering: the kernel restarts them once more before the magazines open (drain/I2).
pub(crate) const AGAIN: Site = Site(5);
/// Not an ordering: the map has the heap of a unit before any thread can have a block of the unit (heap/I4).
pub(crate) const DIRECT: Site = Site(6);
/// Not an ordering: units that go to the system are not free meanwhile (page_pool/I4).
pub(crate) const LEAVING: Site = Site(7);
/// Not an ordering: a sequence reads its VP after it began (magazine/I1).
#[cfg(all(test, loom))]
pub(crate) const ASKED_WITHIN: Site = Site(8);
/// Not an ordering: a batch is sorted by home before its blocks are sent there (remote_free/I1).
pub(crate) const BY_HOME: Site = Site(9);
/// Not an ordering: one thread at a time makes a segment usable (growth/I1).
pub(crate) const GROWS_ALONE: Site = Site(10);
/// Not an ordering: a spare slab is taken out of the spares before it is given back (heap/I3).
pub(crate) const SPARE_TAKEN_OUT: Site = Site(11);
