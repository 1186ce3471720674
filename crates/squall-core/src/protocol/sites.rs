//! The sites: the orderings that the proof in `README.md` names, and the steps that it needs in their order
//! or at all.
//!
//! A model build can weaken each site, and the model tests must then fail (see `squall_sys::sync::weaken`).
//! The numbers begin after those of the lower crates, since the models run over the grace periods of
//! `squall-rcu`.

use squall_sys::sync::weaken::Site;

/// A miss asks whether its object lives, after it published a representative. Partner: [`KILL`].
pub(crate) const CONFIRM: Site = Site(36);
/// A miss leaves the gate. Partner: [`KILL`], and the other misses.
pub(crate) const LEAVE: Site = Site(37);
/// The destroyer shuts the gate. Partner: [`CONFIRM`], [`LEAVE`].
pub(crate) const KILL: Site = Site(38);
/// A call releases its hold. Partner: [`WAIT_HOLDS`], [`LOOK_HOLDS`], and the other releases.
pub(crate) const RELEASE: Site = Site(39);
/// Memory quiet asks the holds to report. Partner: [`RELEASE`].
pub(crate) const WAIT_HOLDS: Site = Site(40);
/// One hold or drop that memory quiet waited for is done. Partner: itself.
pub(crate) const HELD: Site = Site(41);
/// A miss stores an entry in a table. Partner: [`ENTRY_LOAD`].
pub(crate) const ENTRY_STORE: Site = Site(42);
/// A call loads an entry. Partner: [`ENTRY_STORE`].
pub(crate) const ENTRY_LOAD: Site = Site(43);
/// A miss publishes a representative. Partner: [`REP_LOAD`].
pub(crate) const REP_STORE: Site = Site(44);
/// A thread looks for a representative. Partner: [`REP_STORE`].
pub(crate) const REP_LOAD: Site = Site(45);
/// A creator publishes an object in its slot. Partner: [`SLOT_LOAD`].
pub(crate) const SLOT_STORE: Site = Site(46);
/// A well-known slot becomes vacant. Partner: [`SLOT_LOAD`].
pub(crate) const SLOT_VACATE: Site = Site(47);
/// A miss looks for its object. Partner: [`SLOT_STORE`], [`SLOT_VACATE`].
pub(crate) const SLOT_LOAD: Site = Site(48);
/// The words of a large translation set are made. Partner: [`WORDS_LOAD`].
pub(crate) const WORDS_STORE: Site = Site(49);
/// The words of a large translation set are read. Partner: [`WORDS_STORE`].
pub(crate) const WORDS_LOAD: Site = Site(50);
/// A representative is put into the drop queue of its VP. Partner: [`DROP_TAKE`].
pub(crate) const DROP_PUSH: Site = Site(51);
/// A thread takes all representatives of a drop queue. Partner: [`DROP_PUSH`].
pub(crate) const DROP_TAKE: Site = Site(52);
/// A miss begins to publish. Partner: [`THAW`].
pub(crate) const PUBLISH: Site = Site(53);
/// A miss ends its publication. Partner: [`SETTLED`].
pub(crate) const PUBLISHED: Site = Site(54);
/// A gather finds that no miss is publishing. Partner: [`PUBLISHED`].
pub(crate) const SETTLED: Site = Site(55);
/// A gather ends its freeze. Partner: [`PUBLISH`].
pub(crate) const THAW: Site = Site(56);
/// A keeper of a representative's block gives it up. Partner: itself.
pub(crate) const LET_GO: Site = Site(57);
/// Memory quiet checks whether there are holds. Partner: [`RELEASE`].
pub(crate) const LOOK_HOLDS: Site = Site(58);

/// A link to the root is given back. Partner: itself.
pub(crate) const LINKS: Site = Site(63);
/// The destroyer stores its class in a slot. Partner: [`SLOT_LOAD`].
pub(crate) const SLOT_RETIRE: Site = Site(35);
/// The slot says that this object's id is free. Partner: [`SLOT_LOAD`].
pub(crate) const SLOT_OVER: Site = Site(31);

/// Not an ordering: a late miss asks whether the object lives before it activates its representative.
pub(crate) const ASK_BEFORE_ACTIVE: Site = Site(59);
/// Not an ordering: the thread that drains the gate clears the table entries.
pub(crate) const CLEAR_ENTRIES: Site = Site(60);
/// Not an ordering: the slots are tagged before the gate is shut, not after.
pub(crate) const RETIRE_FIRST: Site = Site(61);
/// Not an ordering: a slot that is used again has the next generation.
pub(crate) const NEXT_GENERATION: Site = Site(62);

/// A mediator is put in front of an object. Partner: [`CONFIRM`].
pub(crate) const SUSPEND: Site = Site(64);
/// The mediator in front of an object is removed. Partner: [`CONFIRM`].
pub(crate) const RESUME: Site = Site(65);
/// The end of a call that a mediator has counted. Partner: [`TRANSFER`].
pub(crate) const UNCOUNT: Site = Site(66);
/// The swap finds that no call is counted. Partner: [`UNCOUNT`].
pub(crate) const TRANSFER: Site = Site(67);
/// The swap decides which object serves from now on. Partner: [`ADMIT`].
pub(crate) const DECIDE: Site = Site(68);
/// Not an ordering: an object returns to its first slot last.
pub(crate) const FIRST_SLOT_LAST: Site = Site(83);
/// A call asks the mediator for an answer. Partner: [`DECIDE`].
pub(crate) const ADMIT: Site = Site(69);

/// Not an ordering: headers are suspended after the mediator is attached.
pub(crate) const SUSPEND_HEADERS: Site = Site(71);
/// Not an ordering: a swap looks for holds once no call is counted.
pub(crate) const HOLDS_OF_SWAP: Site = Site(72);
/// Not an ordering: a thread that a swap waits for passes where other threads wait.
pub(crate) const PASS: Site = Site(74);
/// Not an ordering: the entries of the old object are cleared before it is freed.
pub(crate) const MOVE_AWAY: Site = Site(75);
/// Not an ordering: the waiters are woken when the swap is decided.
pub(crate) const RELEASE_PARKED: Site = Site(76);
/// Not an ordering: the last counted call wakes the swap that waits for it.
pub(crate) const LAST_COUNTED: Site = Site(77);
/// The destroyer takes the occupant out of a first slot. Partner: [`SLOT_STORE`].
pub(crate) const SLOT_TAKE: Site = Site(78);
/// Not an ordering: a thread that resumes an object asks whether it lives before it activates each header.
pub(crate) const ASK_BEFORE_RESUME: Site = Site(79);
/// Not an ordering: calls that began to wait during a failed transfer are woken.
pub(crate) const BACK_TO_BLOCK: Site = Site(80);
/// Not an ordering: a view is written before its representative is published. In the shipped code the order
/// follows from `Block::fill`, so only the models have this site.
#[cfg(all(test, any(loom, squall_model)))]
pub(crate) const VIEW_FIRST: Site = Site(89);
