//! The orderings and steps that the argument in `raw.rs` and `watch.rs` names, each of which a model test weakens.

use squall_sys::sync::weaken::Site;

/// The acquire of a reader that finds a value in a word. Partners: [`FILL`], [`ATTACH`].
pub(crate) const FIND: Site = Site(110);
/// The acquire of a reader that asks the master. Partner: [`COMMIT`].
pub(crate) const ASK: Site = Site(111);
/// The release by which the master has the new value. Partner: [`ASK`].
pub(crate) const COMMIT: Site = Site(112);
/// The release by which a word is given the new value. Partner: [`FIND`].
pub(crate) const FILL: Site = Site(113);
/// The release by which a reader gives its word the value. Partner: [`FIND`].
pub(crate) const ATTACH: Site = Site(114);
/// The fence at the end of an update. Partners: itself, of an update elsewhere; [`WATCH`].
pub(crate) const UPDATE: Site = Site(115);
/// Not an ordering: the words are emptied before the master has the new value.
pub(crate) const EMPTY_FIRST: Site = Site(116);
/// Not an ordering: a reader gives its word a value under the master's lock.
pub(crate) const ATTACH_LOCKED: Site = Site(117);
/// Release and acquire of a keeper that lets go. Partner: itself.
pub(crate) const LET_GO: Site = Site(118);
/// The fence of who begins to watch, between that and its look at the version. Partner: [`WAKE`].
pub(crate) const WATCH: Site = Site(119);
/// The fence of who wakes, between what it has changed and its look for watchers. Partner: [`WATCH`].
pub(crate) const WAKE: Site = Site(120);
/// Not an ordering: who gives a word a value notes that under the master's lock.
pub(crate) const NOTE_LOCKED: Site = Site(121);
/// The fence of who has made an entry, between that and its look whether the thing is gone. Partner: [`END`].
pub(crate) const CONFIRM: Site = Site(122);
/// The fence of who ends something, between that and its look for places. Partner: [`CONFIRM`].
pub(crate) const END: Site = Site(123);
/// Not an ordering: a change is announced before its copies are taken out.
pub(crate) const ANNOUNCE_FIRST: Site = Site(92);
/// Not an ordering: the places are asked for after the announcement.
pub(crate) const PLACES_AFTER: Site = Site(93);
/// Not an ordering: a copy is put in while nobody is announced.
pub(crate) const NOBODY_NOW: Site = Site(94);
/// Not an ordering: a copy is put in only if nobody's change has ended since its value was read.
pub(crate) const NOBODY_SINCE: Site = Site(95);
/// Not an ordering: a copy is put in under the stripe's lock.
pub(crate) const COPY_LOCKED: Site = Site(96);
/// Not an ordering: the copies are taken out before the truth changes. In the models, which change it.
#[cfg(all(test, any(loom, squall_model)))]
pub(crate) const TAKE_FIRST: Site = Site(97);
/// Not an ordering: each lookup is lent what its place keeps anew. In the models, which lend it.
#[cfg(all(test, any(loom, squall_model)))]
pub(crate) const LEND_ANEW: Site = Site(98);
/// Not an ordering: what a place keeps can be found by changes before anything is put into it. In the models, which put it there.
#[cfg(all(test, any(loom, squall_model)))]
pub(crate) const PLACE_FIRST: Site = Site(99);
