//! The sites of the arguments, which model tests weaken one by one. None is an ordering: those are the locks' and the tables', but
//! for the fence of who empties, which a model could not miss: the stand-ins for the tables are behind locks.

use squall_sys::sync::weaken::Site;

/// Whether who has locked a replica asks whether its element is full still (raw/I3).
pub(crate) const AGAIN: Site = Site(20);
/// Whether who finds that an element is being filled waits for that (raw/I4).
pub(crate) const WAIT: Site = Site(21);
/// Whether a replica is made under the lock of its element (raw/I3).
pub(crate) const UNDER: Site = Site(22);
/// Whether an element is gone before it is taken out of the tables (raw/I5).
pub(crate) const FIRST: Site = Site(23);
/// Whether all replicas are locked when the element is emptied (raw/I3).
pub(crate) const ALL: Site = Site(24);
/// Whether the verdict is the master's, and not that of the local table (raw/I1).
pub(crate) const VERDICT: Site = Site(25);
