//! The sites of the arguments, which model tests weaken one by one.

use squall_sys::sync::weaken::Site;

/// The acquire of a look at a bucket's state (bucket/I2).
pub(crate) const LOOK: Site = Site(0);
/// The release that shows an entry (bucket/I2).
pub(crate) const PUBLISH: Site = Site(1);
/// The acquire of a load of a slot (bucket/I3).
pub(crate) const LOAD: Site = Site(2);
/// Not an ordering: whether the version is looked at again (bucket/I3).
pub(crate) const VERSION: Site = Site(3);
/// Not an ordering: whether a home that has moved keeps the bits of its slots (bucket/I4).
pub(crate) const KEPT: Site = Site(4);
/// The release of the mark that a home has moved (bucket/I4).
pub(crate) const MOVE: Site = Site(5);
/// Not an ordering: whether a writer asks, under the lock, whether the home has moved (raw/I2).
pub(crate) const ASK: Site = Site(6);
/// Not an ordering: whether who is about to change what it found looks whether that is still there (raw/I2).
pub(crate) const STILL: Site = Site(7);
/// The acquire of a load of a slot's key (bucket/I3).
pub(crate) const LOAD_KEY: Site = Site(8);
/// Not an ordering: whether a reader of a pointer looks whether its slot is occupied still (bucket/I3).
pub(crate) const OCCUPIED: Site = Site(9);
/// Not an ordering: whether a chain is passed over only when none of its buckets has an entry (bucket/I6).
pub(crate) const EMPTY: Site = Site(10);
/// Not an ordering: whether who would give a slab a next one asks whether somebody else is about to (raw/I1).
pub(crate) const TAKEN: Site = Site(11);
