//! The sites of the table's proofs: orderings and steps that model tests weaken one by one.

use squall_sys::sync::weaken::Site;

/// The acquire load of a bucket's state by a probe (bucket/I2).
pub(crate) const PROBE: Site = Site(0);
/// The release store that publishes an entry (bucket/I2).
pub(crate) const PUBLISH: Site = Site(1);
/// The acquire load of a slot (bucket/I3).
pub(crate) const LOAD: Site = Site(2);
/// A step: the probe checks the version again (bucket/I3).
pub(crate) const VERSION: Site = Site(3);
/// A step: a home that has moved keeps its occupied bits (bucket/I4).
pub(crate) const KEEP_BITS: Site = Site(4);
/// The release store of the mark `MOVED` (bucket/I4).
pub(crate) const MOVE: Site = Site(5);
/// A step: a writer checks under the lock whether the home has moved (raw/I2).
pub(crate) const CHECK_MOVED: Site = Site(6);
/// A step: a writer checks under the lock whether the entry it found is still there (raw/I2).
pub(crate) const CHECK_UNCHANGED: Site = Site(7);
/// The acquire load of a slot's key (bucket/I3).
pub(crate) const LOAD_KEY: Site = Site(8);
/// A step: a reader of a pointer checks whether its slot is still occupied (bucket/I3).
pub(crate) const OCCUPIED: Site = Site(9);
/// A step: a chain is skipped only when all its buckets are empty (bucket/I6).
pub(crate) const CHAIN_EMPTY: Site = Site(10);
/// A step: a thread that wants to give a slab a next one checks whether another thread has claimed that
/// (raw/I1).
pub(crate) const CLAIM: Site = Site(11);
/// A step: a thread checks under a home's lock whether the home has moved, before it moves it (resize/I3).
pub(crate) const MOVE_ONCE: Site = Site(12);
/// The release addition of a batch to the number of moved homes (resize/I3).
pub(crate) const COUNT_MOVED: Site = Site(13);
/// A step: the next slab becomes the current one only when all homes have moved (raw/I1).
pub(crate) const ALL_MOVED: Site = Site(14);
