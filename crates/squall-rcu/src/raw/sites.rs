//! The fences and orderings that the proof in `README.md` beside this file names.
//!
//! A model build can weaken each of them, and the model tests must then fail (see
//! `squall_sys::sync::weaken`).

use squall_sys::sync::weaken::Site;

/// Reader: between the store that opens an operation and the reads inside it. Partner: [`START_FENCE`].
pub(crate) const ENTER_FENCE: Site = Site(0);
/// Driver: between the unlinking that happened before and the scan. Partner: [`ENTER_FENCE`].
pub(crate) const START_FENCE: Site = Site(1);
/// Reader: the store that ends an operation. Partner: [`SCAN_ACQUIRE`].
pub(crate) const LEAVE_RELEASE: Site = Site(2);
/// Driver: the loads that find an operation over. Partner: [`LEAVE_RELEASE`].
pub(crate) const SCAN_ACQUIRE: Site = Site(3);
/// Reader: between the store that ends an operation and the load of `attention`. Partner: [`SLEEP_FENCE`].
pub(crate) const LEAVE_FENCE: Site = Site(4);
/// Driver: between the request for attention and the last check before sleeping. Partner: [`LEAVE_FENCE`].
pub(crate) const SLEEP_FENCE: Site = Site(5);
/// Thread that sets a marker: between its unlinking and its load of the sequence. Partner: [`START_FENCE`].
pub(crate) const MARK_FENCE: Site = Site(6);
/// Driver: the store that ends a grace period. Partner: [`ELAPSED_ACQUIRE`].
pub(crate) const FINISH_RELEASE: Site = Site(7);
/// Thread that checks a marker: the load that finds it elapsed. Partner: [`FINISH_RELEASE`].
pub(crate) const ELAPSED_ACQUIRE: Site = Site(8);
/// Driver: the store that gives up the driver's role. Partner: [`DRIVE_ACQUIRE`].
pub(crate) const DRIVE_RELEASE: Site = Site(9);
/// Driver: the exchange that takes the driver's role. Partner: [`DRIVE_RELEASE`].
pub(crate) const DRIVE_ACQUIRE: Site = Site(10);
/// Owner of deferred calls: between its store of `busy` and its load of `taken`. Partner: [`TAKE_FENCE`].
pub(crate) const OWNER_FENCE: Site = Site(11);
/// Taker of deferred calls: between its store of `taken` and its load of `busy`. Partner: [`OWNER_FENCE`].
pub(crate) const TAKE_FENCE: Site = Site(12);
/// Owner of deferred calls: the store that leaves its list. Partner: the acquire of the taker.
pub(crate) const OWNER_RELEASE: Site = Site(13);
/// Taker of deferred calls: the store that hands the list back. Partner: the acquire of the owner.
pub(crate) const TAKE_RELEASE: Site = Site(14);
/// Registering thread: the store that publishes a new chunk of records. Partner: the acquire of the scan.
pub(crate) const CHUNK_RELEASE: Site = Site(15);
/// Thread that defers: between making a call pending and its load of the reclaimer's flag. Partner:
/// [`REST_FENCE`].
pub(crate) const ANNOUNCE_FENCE: Site = Site(16);
/// Reclaimer: between clearing its flag and its last look for pending calls. Partner: [`ANNOUNCE_FENCE`].
pub(crate) const REST_FENCE: Site = Site(17);
/// Reader: the store that opens an operation. Releases the operations that ended before. Partner:
/// [`SCAN_ACQUIRE`].
pub(crate) const ENTER_RELEASE: Site = Site(26);
/// Registering thread: the store that takes over a record. Releases the operations of earlier owners.
/// Partner: [`SCAN_ACQUIRE`].
pub(crate) const ADOPT_RELEASE: Site = Site(27);
/// Driver: the store that begins a grace period. Releases the verdicts before. Partner: [`ELAPSED_ACQUIRE`].
pub(crate) const START_RELEASE: Site = Site(28);
/// Reclaimer: the exchange that begins a turn. Partner: the release of the thread that allowed it.
pub(crate) const TURN_ACQUIRE: Site = Site(18);
/// Reclaimer: the exchange that ends a turn. Partner: the acquire of the thread that forbids it.
pub(crate) const TURN_RELEASE: Site = Site(19);
/// Thread that runs at a stop of a tour: the exchange that enters the stop.
pub(crate) const TOUR_ENTER: Site = Site(107);
/// Thread that ran at a stop of a tour: the subtraction that ends the run. Partner: [`TOUR_OVER`].
pub(crate) const TOUR_END: Site = Site(108);
/// Guide of a tour: the load that finds the tour over. Partner: [`TOUR_END`].
pub(crate) const TOUR_OVER: Site = Site(109);
/// Not an ordering: a task looks for the outcome and leaves its waker under one lock.
pub(crate) const LEAVE_WAKER_LOCKED: Site = Site(29);
