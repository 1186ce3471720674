//! The sites of the proofs in `raw.rs`, `watch.rs`, `places.rs`, `keyed.rs` and `directory.rs`: orderings and
//! steps that model tests weaken one by one.

use squall_sys::sync::weaken::Site;

/// The acquire load of a reader that finds a value in its word. Pairs with [`FILL`] and [`ATTACH`].
pub(crate) const FIND: Site = Site(110);
/// The acquire load of a reader that reads the master's word. Pairs with [`COMMIT`].
pub(crate) const READ_MASTER: Site = Site(111);
/// The release store of the new value into the master's word. Pairs with [`READ_MASTER`].
pub(crate) const COMMIT: Site = Site(112);
/// The release store by which an update fills a word. Pairs with [`FIND`].
pub(crate) const FILL: Site = Site(113);
/// The release store by which a reader fills its word. Pairs with [`FIND`].
pub(crate) const ATTACH: Site = Site(114);
/// The fence at the end of an update. Pairs with itself, in an update of another master, and with [`WATCH`].
pub(crate) const UPDATE: Site = Site(115);
/// A step: the words are emptied before the master gets the new value.
pub(crate) const EMPTY_FIRST: Site = Site(116);
/// A step: a reader fills its word under the master's lock.
pub(crate) const ATTACH_LOCKED: Site = Site(117);
/// Release and acquire of a holder that drops its reference. Pairs with itself.
pub(crate) const RELEASE: Site = Site(118);
/// The fence of a waiter, between registering its waker and checking for the change. Pairs with [`WAKE`] and
/// [`UPDATE`].
pub(crate) const WATCH: Site = Site(119);
/// The fence of a waking thread, between its change and its check for waiters. Pairs with [`WATCH`].
pub(crate) const WAKE: Site = Site(120);
/// A step: a reader that fills its word notes it under the master's lock.
pub(crate) const NOTE_LOCKED: Site = Site(121);
/// The fence of a thread that has made an entry, between that and its check whether the object has ended.
/// Pairs with [`END`].
pub(crate) const CONFIRM: Site = Site(122);
/// The fence of a thread that ends an object, between that and its load of the places. Pairs with
/// [`CONFIRM`].
pub(crate) const END: Site = Site(123);
/// A step: a change is announced before its copies are removed.
pub(crate) const ANNOUNCE_FIRST: Site = Site(92);
/// A step: the places are loaded after the announcement.
pub(crate) const PLACES_AFTER: Site = Site(93);
/// A step: a copy is stored only while no change of its stripe is announced.
pub(crate) const NO_CHANGE_NOW: Site = Site(94);
/// A step: a copy is stored only if no change of its stripe has ended since its value was read.
pub(crate) const NO_CHANGE_SINCE: Site = Site(95);
/// A step: a copy is stored under the stripe's lock.
pub(crate) const COPY_LOCKED: Site = Site(96);
/// A step: a recall takes the copy away from each place.
pub(crate) const RECALL_ALL: Site = Site(81);
/// A step: a recall clears the places after it has taken the copies away.
pub(crate) const CLEAR_LAST: Site = Site(82);
/// A step, in the models' copies: the object's latch is held until the copy is published.
#[cfg(all(test, any(loom, squall_model)))]
pub(crate) const HOLD_OBJECT: Site = Site(83);
/// A step, in the models' copies: the copy is latched until it is published.
#[cfg(all(test, any(loom, squall_model)))]
pub(crate) const HOLD_COPY: Site = Site(84);
/// A step, in the models' writes: a copy is taken away under its latch.
#[cfg(all(test, any(loom, squall_model)))]
pub(crate) const WAIT_FOR_READERS: Site = Site(85);
/// A step, in the models' changes: the copies are removed before the source changes.
#[cfg(all(test, any(loom, squall_model)))]
pub(crate) const TAKE_FIRST: Site = Site(97);
/// A step, in the models' lookups: each lookup loads the word that its place has now.
#[cfg(all(test, any(loom, squall_model)))]
pub(crate) const RELOAD_WORD: Site = Site(98);
/// A step, in the models' places: changes can reach a place's word before a value is stored in it.
#[cfg(all(test, any(loom, squall_model)))]
pub(crate) const PLACE_FIRST: Site = Site(99);
