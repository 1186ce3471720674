//! The orderings that the proof in `README.md` beside this file names, and the steps whose order or presence it needs. A
//! model build can weaken each, and the model tests must then fail (see `squall_sys::sync::weaken`).
//!
//! The numbers begin where those of the floors below end, since the models run over the grace periods of `squall-rcu`.

use squall_sys::sync::weaken::Site;

/// A miss asks whether its object lives, after it has published a representative. Partner: [`KILL`].
pub(crate) const CONFIRM: Site = Site(36);
/// A miss leaves the gate. Partner: [`KILL`], and the other misses.
pub(crate) const LEAVE: Site = Site(37);
/// The destroyer shuts the gate. Partner: [`CONFIRM`], [`LEAVE`].
pub(crate) const KILL: Site = Site(38);
/// A call lets its hold go. Partner: [`WAIT_HOLDS`], [`LOOK_HOLDS`], and the other releases.
pub(crate) const RELEASE: Site = Site(39);
/// Memory quiet asks for the holds. Partner: [`RELEASE`].
pub(crate) const WAIT_HOLDS: Site = Site(40);
/// One of those that memory quiet waited for is done. Partner: itself.
pub(crate) const HELD: Site = Site(41);
/// An entry is stored in a table. Partner: [`ENTRY_LOAD`].
pub(crate) const ENTRY_STORE: Site = Site(42);
/// A call loads an entry. Partner: [`ENTRY_STORE`].
pub(crate) const ENTRY_LOAD: Site = Site(43);
/// A representative is published. Partner: [`REP_LOAD`].
pub(crate) const REP_STORE: Site = Site(44);
/// A representative is looked for. Partner: [`REP_STORE`].
pub(crate) const REP_LOAD: Site = Site(45);
/// An object is published in its slot. Partner: [`SLOT_LOAD`].
pub(crate) const SLOT_STORE: Site = Site(46);
/// A well-known slot forgets its occupant. Partner: [`SLOT_LOAD`].
pub(crate) const SLOT_VACATE: Site = Site(47);
/// A miss looks for its object. Partner: [`SLOT_STORE`], [`SLOT_VACATE`].
pub(crate) const SLOT_LOAD: Site = Site(48);
/// The words of a large translation set are made. Partner: [`WORDS_LOAD`].
pub(crate) const WORDS_STORE: Site = Site(49);
/// The words of a large translation set are looked for. Partner: [`WORDS_STORE`].
pub(crate) const WORDS_LOAD: Site = Site(50);
/// A representative whose VP is not here is left for that VP. Partner: [`DROP_TAKE`].
pub(crate) const DROP_PUSH: Site = Site(51);
/// Somebody takes the representatives left for a VP. Partner: [`DROP_PUSH`].
pub(crate) const DROP_TAKE: Site = Site(52);
/// A miss begins to publish. Partner: [`THAW`].
pub(crate) const PUBLISH: Site = Site(53);
/// A miss has published. Partner: [`SETTLED`].
pub(crate) const PUBLISHED: Site = Site(54);
/// A gather finds that nobody publishes any more. Partner: [`PUBLISHED`].
pub(crate) const SETTLED: Site = Site(55);
/// A gather lets membership go. Partner: [`PUBLISH`].
pub(crate) const THAW: Site = Site(56);
/// A keeper of a representative's block lets it go. Partner: itself.
pub(crate) const LET_GO: Site = Site(57);
/// Memory quiet looks whether there is any hold. Partner: [`RELEASE`].
pub(crate) const LOOK_HOLDS: Site = Site(58);

/// A link to the root is given back. Partner: itself.
pub(crate) const LINKS: Site = Site(63);
/// The destroyer leaves its class in the slot. Partner: [`SLOT_LOAD`].
pub(crate) const SLOT_RETIRE: Site = Site(35);
/// The slot says that this object's id is free. Partner: [`SLOT_LOAD`].
pub(crate) const SLOT_OVER: Site = Site(31);

/// Not an ordering: a late miss asks whether the object lives before it activates its representative.
pub(crate) const ASK_BEFORE_ACTIVE: Site = Site(59);
/// Not an ordering: the table entries are cleared when the gate is drained.
pub(crate) const CLEAR_ENTRIES: Site = Site(60);
/// Not an ordering: the slots are retired before the gate is shut, not after.
pub(crate) const RETIRE_FIRST: Site = Site(61);
/// Not an ordering: a slot that is used again has the next generation.
pub(crate) const NEXT_GENERATION: Site = Site(62);

/// A mediator is put before an object. Partner: [`CONFIRM`].
pub(crate) const SUSPEND: Site = Site(64);
/// No mediator stands before an object any more. Partner: [`CONFIRM`].
pub(crate) const RESUME: Site = Site(65);
/// A call that a mediator has counted is over. Partner: [`TRANSFER`].
pub(crate) const UNCOUNT: Site = Site(66);
/// The mediator finds that no call is counted. Partner: [`UNCOUNT`].
pub(crate) const TRANSFER: Site = Site(67);
/// The mediator has decided which object serves from now on. Partner: [`ADMIT`].
pub(crate) const DECIDE: Site = Site(68);
/// Not an ordering: the first slot is the last one to which an object returns.
pub(crate) const FIRST_SLOT_LAST: Site = Site(83);
/// A call asks the mediator what to do. Partner: [`DECIDE`].
pub(crate) const ADMIT: Site = Site(69);

/// Not an ordering: headers are suspended when the mediator has come.
pub(crate) const SUSPEND_HEADERS: Site = Site(71);
/// Not an ordering: a swap looks for holds when no call is counted any more.
pub(crate) const HOLDS_OF_SWAP: Site = Site(72);
/// Not an ordering: a thread that a swap waits for passes where others park.
pub(crate) const PASS: Site = Site(74);
/// Not an ordering: the entries of the old object are cleared before it is freed.
pub(crate) const MOVE_AWAY: Site = Site(75);
/// Not an ordering: whoever parks is woken when the swap is decided.
pub(crate) const RELEASE_PARKED: Site = Site(76);
/// Not an ordering: who waits for the last counted call is told.
pub(crate) const LAST_COUNTED: Site = Site(77);
/// The destroyer takes what is in a first slot out of it. Partner: [`SLOT_STORE`].
pub(crate) const SLOT_TAKE: Site = Site(78);
/// Not an ordering: who resumes an object asks whether it lives before each header is made active.
pub(crate) const ASK_BEFORE_RESUME: Site = Site(79);
/// Not an ordering: whoever parked in a transfer that could not be is woken.
pub(crate) const BACK_TO_BLOCK: Site = Site(80);
/// Not an ordering: that a header is active and does not lend the first thing is one look.
pub(crate) const OTHER_AT_ONCE: Site = Site(89);
