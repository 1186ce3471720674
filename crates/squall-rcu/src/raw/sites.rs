//! The fences and orderings that the proof in `README.md` beside this file names. A model build can weaken each, and the model tests
//! must then fail (see `squall_sys::sync::weaken`).

use squall_sys::sync::weaken::Site;

/// Reader: between "I am inside" and the reads of the operation. Partner: [`START_FENCE`].
pub(crate) const ENTER_FENCE: Site = Site(0);
/// Collector: between what was unlinked before and the scan. Partner: [`ENTER_FENCE`].
pub(crate) const START_FENCE: Site = Site(1);
/// Reader: the store that ends an operation. Partner: [`SCAN_ACQUIRE`].
pub(crate) const LEAVE_RELEASE: Site = Site(2);
/// Collector: the loads that find an operation over. Partner: [`LEAVE_RELEASE`].
pub(crate) const SCAN_ACQUIRE: Site = Site(3);
/// Reader: between the store that ends an operation and the look at `attention`. Partner: [`SLEEP_FENCE`].
pub(crate) const LEAVE_FENCE: Site = Site(4);
/// Collector: between the request for attention and the last look before sleeping. Partner: [`LEAVE_FENCE`].
pub(crate) const SLEEP_FENCE: Site = Site(5);
/// Whoever sets a marker: between what it unlinked and the number it reads. Partner: [`START_FENCE`].
pub(crate) const MARK_FENCE: Site = Site(6);
/// Collector: the store that says a grace period is over. Partner: [`ELAPSED_ACQUIRE`].
pub(crate) const FINISH_RELEASE: Site = Site(7);
/// Whoever checks a marker: the load that finds it elapsed. Partner: [`FINISH_RELEASE`].
pub(crate) const ELAPSED_ACQUIRE: Site = Site(8);
/// Collector: giving up the driver's role. Partner: [`DRIVE_ACQUIRE`].
pub(crate) const DRIVE_RELEASE: Site = Site(9);
/// Collector: taking the driver's role. Partner: [`DRIVE_RELEASE`].
pub(crate) const DRIVE_ACQUIRE: Site = Site(10);
/// Owner of deferred calls: between "I am at my list" and the look at "someone takes it". Partner: [`TAKE_FENCE`].
pub(crate) const OWNER_FENCE: Site = Site(11);
/// Taker of deferred calls: between "I take it" and the look at "the owner is at it". Partner: [`OWNER_FENCE`].
pub(crate) const TAKE_FENCE: Site = Site(12);
/// Owner of deferred calls: leaving its list. Partner: the acquire of the taker.
pub(crate) const OWNER_RELEASE: Site = Site(13);
/// Taker of deferred calls: handing the list back. Partner: the acquire of the owner.
pub(crate) const TAKE_RELEASE: Site = Site(14);
/// A new chunk of records is published. Partner: the acquire of the scan.
pub(crate) const CHUNK_RELEASE: Site = Site(15);
/// Whoever defers: between what is pending now and the look at the reclaimer's flag. Partner: [`REST_FENCE`].
pub(crate) const ANNOUNCE_FENCE: Site = Site(16);
/// The reclaimer: between clearing its flag and the last look at what is pending. Partner: [`ANNOUNCE_FENCE`].
pub(crate) const REST_FENCE: Site = Site(17);
