//! Mediators: what stands before an object while it is replaced, or arbitrated.
//!
//! Problem: an object must be found without callers at one moment, with its hot path as it is, and nobody may wait longer
//! than that takes. Idea: the mediator takes the object's place in its slots, and the headers of the object's
//! representatives are suspended, so that every call misses and meets the mediator. That counts the calls which it lets
//! pass; the count and the phase are one word, so whether a call is counted before the object is quiet, or parks, is
//! decided by one change of it.
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | `PHASE` | phase | what becomes of a call, see [`Phase`] |
//! | `DOOMED` | doomed | the object was destroyed: whoever swaps it ends it |
//! | `COUNT` | count | calls that were let pass and are not over; wide enough for every thread of a machine |
//! | `TOTAL` | total | calls that were ever let pass, modulo its width: the carry falls off the top |
//!
//! - I1. In `Transfer` the count is zero and stays so; and no call holds a representative of the old object, once the swap
//!   has looked for holds there ([`Mediator::try_transfer`]).
//! - I2. `DOOMED` and the phase are one word, so a destroyer and the mediator's owner agree on who ends what. A destroyer
//!   ends the object that serves: the new one if it finds `Complete`, else the old one; and then the owner cannot get to
//!   `Complete` any more. The owner ends the other one.
//! - I3. A mediator has one owner: whoever put it into the first slot. An arbitration has none once it is in `Arbitrate`;
//!   whoever gets it out of that phase is its owner, and so is who finds it in that phase and takes it out of the slot by a
//!   tag. The owner frees it, a grace period after it gave way in every slot.
//!
//! Source: K42's mediator (CO-34 to CO-40), for which the phase and the count of a processor are words of their own.
//! PITFALLS of that: a thread that is tracked elsewhere enters between two looks; so one word, and an exchange of it.

use squall_machine::park::Seen;
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use std::ptr::NonNull;

use super::kill::move_away;
use super::object::{Ground, Object, for_each_header, is_held};
use super::sites;
use super::slot::{exchange_first, exchange_rest, mediator_word, object_word};
use crate::class::Class;
use crate::id::Id;

/// What becomes of a call that meets the mediator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Phase {
    /// It is counted and passed to the old object.
    Forward,
    /// It parks, unless its thread is in a call for which some swap waits: then as `Forward`.
    Block,
    /// It parks.
    Transfer,
    /// It goes to the new object.
    Complete,
    /// It goes to the old object.
    RolledBack,
    /// It goes to the old object by way of a function of the user's.
    Arbitrate,
    /// It parks: another mediator is about to take this one's place.
    Relieved,
}

impl Phase {
    const ALL: [Phase; 7] = [
        Phase::Forward,
        Phase::Block,
        Phase::Transfer,
        Phase::Complete,
        Phase::RolledBack,
        Phase::Arbitrate,
        Phase::Relieved,
    ];
}

const PHASE: u64 = 7;
const DOOMED: u64 = 1 << 3;
const COUNT_ONE: u64 = 1 << 4;
const COUNT: u64 = (1 << 32) - COUNT_ONE;
const TOTAL_ONE: u64 = 1 << 32;
const TOTAL: u64 = u64::MAX << 32;

const _: () = assert!(PHASE | DOOMED | COUNT | TOTAL == u64::MAX && COUNT & TOTAL == 0);
const _: () = assert!((PHASE | DOOMED) & COUNT == 0 && Phase::ALL.len() <= PHASE as usize + 1);

/// See the module. What the floor above adds follows it in memory.
#[repr(C, align(8))]
#[derive(Debug)]
pub(crate) struct Mediator {
    // Written by calls that pass, and by the swap.
    word: AtomicU64,
    // Never written after it is put before the object.
    pub(crate) id: Id,
    pub(crate) old: NonNull<Object>,
    /// The object that takes the old one's place; none for an arbitration.
    pub(crate) new: Option<NonNull<Object>>,
}

/// What a call does that met a mediator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Admission {
    /// It is counted: it calls the old object, and ends by [`leave`].
    Counted,
    /// It waits until the phase is another one.
    Parked,
    /// It calls this object, as if that were in the slot.
    To(NonNull<Object>),
    /// It calls the old object by way of the user's function.
    Arbitrated,
    /// It errs: the object was destroyed.
    Doomed,
}

impl Mediator {
    /// A mediator before `old`, which has this id; of a swap, if there is a `new` one.
    pub(crate) fn new(id: Id, old: NonNull<Object>, new: Option<NonNull<Object>>, phase: Phase) -> Mediator {
        Mediator { word: AtomicU64::new(phase as u64), id, old, new }
    }

    fn phase_in(word: u64) -> Phase {
        Phase::ALL[(word & PHASE) as usize]
    }

    /// The phase now.
    pub(crate) fn phase(&self) -> Phase {
        Mediator::phase_in(self.word.load(Ordering::Relaxed))
    }

    /// The class of the old object.
    ///
    /// # Safety
    /// The old object is valid: within an operation in which this was found in a slot.
    pub(crate) unsafe fn class(&self) -> &'static Class {
        // SAFETY: the caller's promise.
        unsafe { self.old.as_ref() }.class
    }

    /// What a call does. `passes` says whether its thread is in a call for which some swap waits; it is asked in `Block`
    /// alone.
    fn admit(&self, passes: impl Fn() -> bool) -> Admission {
        // Acquire: pairs with the release in `change`: who is sent to an object sees the state that was moved to it.
        let mut word = self.word.load(sites::ADMIT.order(Ordering::Acquire));
        loop {
            if word & DOOMED != 0 {
                return Admission::Doomed;
            }
            match (Mediator::phase_in(word), self.new) {
                (Phase::Forward, _) => {}
                (Phase::Block, _) if !sites::PASS.is_weak() && passes() => {}
                (Phase::Block | Phase::Transfer | Phase::Relieved, _) => return Admission::Parked,
                (Phase::Complete, Some(new)) => return Admission::To(new),
                (Phase::Complete | Phase::RolledBack, _) => return Admission::To(self.old),
                (Phase::Arbitrate, _) => return Admission::Arbitrated,
            }
            let next = word.wrapping_add(COUNT_ONE).wrapping_add(TOTAL_ONE);
            // Relaxed: it only counts. Acquire on failure: as the first load.
            let order = sites::ADMIT.order(Ordering::Acquire);
            match self.word.compare_exchange_weak(word, next, Ordering::Relaxed, order) {
                Ok(_) => return Admission::Counted,
                Err(now) => word = now,
            }
        }
    }

    /// A counted call is over. Returns whether somebody waits to hear that it was the last.
    #[must_use]
    fn leave(&self) -> bool {
        // Release: pairs with the acquire in `try_transfer`: whoever moves the state sees what the call did.
        let before = self.word.fetch_sub(COUNT_ONE, sites::UNCOUNT.order(Ordering::Release));
        debug_assert!(before & COUNT != 0, "a call left a mediator that had not counted it");
        before & COUNT == COUNT_ONE
            && Mediator::phase_in(before) == Phase::Block
            && !sites::LAST_COUNTED.is_weak()
    }

    /// From here on new calls park: the grace period has passed, so that all calls in the old object are counted, or hold it.
    pub(crate) fn block(&self) {
        // Relaxed: whether a call is counted or parks is all there is to know.
        self.word.fetch_add(Phase::Block as u64 - Phase::Forward as u64, Ordering::Relaxed);
    }

    /// Begins the transfer if no call is counted and none holds the old object (I1).
    ///
    /// # Safety
    /// In `Block`, by whoever swaps; the old object is valid, and not closed.
    pub(crate) unsafe fn try_transfer(&self, ground: &impl Ground) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        if word & COUNT != 0 || Mediator::phase_in(word) != Phase::Block {
            return false;
        }
        // A look before, so that it seldom has to go back.
        // SAFETY: the caller's promise.
        if unsafe { self.is_held() } {
            return false;
        }
        let next = (word & !PHASE) | Phase::Transfer as u64;
        // Acquire: pairs with the release in `leave`.
        let order = sites::TRANSFER.order(Ordering::Acquire);
        if self.word.compare_exchange(word, next, order, Ordering::Relaxed).is_err() {
            return false;
        }
        // Those who take a hold are counted meanwhile, so there are all that ever will be.
        // SAFETY: the caller's promise.
        if !sites::HOLDS_OF_SWAP.is_weak() && unsafe { self.is_held() } {
            // Relaxed: as in `block`. Nobody else changes the phase, and calls only park.
            self.word.fetch_sub(Phase::Transfer as u64 - Phase::Block as u64, Ordering::Relaxed);
            // A thread that would have passed may have parked meanwhile, and be the one that holds the object.
            if !sites::BACK_TO_BLOCK.is_weak() {
                ground.sleepers(self.id.slot()).signal(u32::MAX);
            }
            return false;
        }
        true
    }

    /// Whether a call holds the old object.
    ///
    /// # Safety
    /// It is valid, and not closed.
    pub(crate) unsafe fn is_held(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { is_held(self.old, self.class()) }
    }

    /// Asks the last holds to tell, or not any more.
    ///
    /// # Safety
    /// As of [`Mediator::is_held`].
    pub(crate) unsafe fn notify(&self, whether: bool) {
        // SAFETY: the caller's promise.
        for_each_header(self.old, unsafe { self.class() }, |header| header.notify(whether));
    }

    /// Goes to another phase, from this one if it is said. Returns whether it does: not if the object was destroyed (I2).
    fn change(&self, from: Option<Phase>, to: Phase) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & DOOMED != 0 || from.is_some_and(|from| Mediator::phase_in(word) != from) {
                return false;
            }
            let next = (word & !PHASE) | to as u64;
            // Release: pairs with the acquire in `admit`.
            let order = sites::DECIDE.order(Ordering::Release);
            match self.word.compare_exchange_weak(word, next, order, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// The object was destroyed: its slots are its destroyer's, who calls this. Returns the phase, which says whom it ends (I2).
    pub(crate) fn condemn(&self) -> Phase {
        // Relaxed: which of the two objects serves is all there is to know; the gate of that one does the rest.
        let before = self.word.fetch_or(DOOMED, Ordering::Relaxed);
        Mediator::phase_in(before)
    }

    /// Whether it was.
    pub(crate) fn is_doomed(&self) -> bool {
        self.word.load(Ordering::Relaxed) & DOOMED != 0
    }

    /// Calls that were let pass so far, modulo 2^32.
    pub(crate) fn total(&self) -> u64 {
        (self.word.load(Ordering::Relaxed) & TOTAL) / TOTAL_ONE
    }

    /// For a model: as [`Header::freed`](super::header::Header::freed).
    #[cfg(all(test, loom))]
    pub(crate) fn freed(&mut self) {
        self.word.with_mut(|_| ());
    }
}

/// What putting a mediator somewhere led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Put {
    /// It is there.
    There,
    /// It is not: something else is in the first slot.
    Not,
    /// It was there, or about to be, when the object was destroyed: the caller frees the mediator.
    Doomed,
}

/// Puts `mediator` before its old object. From here on every call that begins meets it; those that began before may still be
/// in the object, uncounted, until their operations end.
///
/// # Safety
/// Within an operation in which the old object was found in its slot, by whoever keeps that ([`Gate::keep`]), which lasts
/// as long as the mediator has an owner. The mediator is built, in `Forward`, and freed as I3 says.
///
/// [`Gate::keep`]: super::gate::Gate::keep
pub(crate) unsafe fn attach(ground: &impl Ground, mediator: NonNull<Mediator>) -> Put {
    // SAFETY: the caller's own; the old object is valid.
    let (this, class) = unsafe { (mediator.as_ref(), mediator.as_ref().class()) };
    let (from, to) = (object_word(this.old), mediator_word(mediator));
    if !exchange_first(ground, this.id, from, to) {
        return Put::Not;
    }
    exchange_rest(ground, this.id, class.interfaces, from, to);
    // SAFETY: valid.
    unsafe { this.old.as_ref() }.gate.suspend(this.new.is_some());
    if !sites::SUSPEND_HEADERS.is_weak() {
        for_each_header(this.old, class, |header| header.suspend());
    }
    // A swap goes on by itself; others may have to do with an arbitration from here on.
    if this.new.is_none() && !this.change(Some(Phase::Forward), Phase::Arbitrate) {
        return Put::Doomed;
    }
    Put::There
}

/// Puts the mediator of a swap in the place of one that arbitrates the same object, which is the caller's then.
///
/// # Safety
/// As of [`attach`], but that `from` was found.
pub(crate) unsafe fn relieve(ground: &impl Ground, from: NonNull<Mediator>, to: NonNull<Mediator>) -> Put {
    // SAFETY: the caller's promise.
    let (before, this, class) = unsafe { (from.as_ref(), to.as_ref(), to.as_ref().class()) };
    if !before.change(Some(Phase::Arbitrate), Phase::Relieved) {
        return Put::Not;
    }
    let (out, into) = (mediator_word(from), mediator_word(to));
    // SAFETY: valid.
    unsafe { this.old.as_ref() }.gate.suspend(true);
    let there = exchange_first(ground, this.id, out, into);
    exchange_rest(ground, this.id, class.interfaces, out, into);
    // Those who met the one before.
    ground.sleepers(this.id.slot()).signal(u32::MAX);
    if there { Put::There } else { Put::Doomed }
}

/// Says what a call does that has met this mediator; or that it parks, at [`Ground::sleepers`], with what it has seen there.
pub(crate) fn ask(
    ground: &impl Ground,
    mediator: &Mediator,
    passes: impl Fn() -> bool,
) -> Result<Admission, Seen> {
    match mediator.admit(&passes) {
        Admission::Parked => {}
        other => return Ok(other),
    }
    // Asked again after this: who lets the parked go signals later (`park/I1`).
    let seen = ground.sleepers(mediator.id.slot()).prepare();
    match mediator.admit(&passes) {
        Admission::Parked => Err(seen),
        other => Ok(other),
    }
}

/// A call is over that the mediator has counted. Within the operation in which it was found.
pub(crate) fn leave(ground: &impl Ground, mediator: &Mediator) {
    let slot = mediator.id.slot();
    if mediator.leave() {
        ground.sleepers(slot).signal(u32::MAX);
    }
}

/// What became of a mediation's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Settled {
    /// The winner serves, or did before it was destroyed; the other one is the caller's to end. Says whether the arbitrating
    /// mediator is before it: if not, the caller frees that after a grace period.
    Decided { there: bool },
    /// The object was destroyed: the new one is the caller's to end.
    Doomed,
}

/// Ends a swap: the new object serves from now on, or the old one again; by itself, or with `next` before it, which
/// arbitrates. Lets the parked go.
///
/// # Safety
/// Within an operation, by the mediator's owner; `Complete` in `Transfer` only. Both objects are valid; the new one has
/// the mediator's id, and is suspended. `next` is before the winner, built, and freed as I3 says.
pub(crate) unsafe fn settle(
    ground: &impl Ground,
    mediator: NonNull<Mediator>,
    phase: Phase,
    next: Option<NonNull<Mediator>>,
) -> Settled {
    // SAFETY: the caller's promise.
    let this = unsafe { mediator.as_ref() };
    if !this.change(None, phase) {
        return Settled::Doomed;
    }
    let winner = match (phase, this.new) {
        (Phase::Complete, Some(new)) => {
            // SAFETY: the caller keeps it; once.
            unsafe { move_away(this.old) };
            new
        }
        _ => this.old,
    };
    // SAFETY: the caller's promise.
    let there = unsafe {
        match next {
            None => install(ground, mediator, winner),
            Some(next) => {
                winner.as_ref().gate.end_swap();
                let (from, to) = (mediator_word(mediator), mediator_word(next));
                exchange_rest(ground, this.id, winner.as_ref().class.interfaces, from, to);
                exchange_first(ground, this.id, from, to)
            }
        }
    };
    if !sites::RELEASE_PARKED.is_weak() {
        ground.sleepers(this.id.slot()).signal(u32::MAX);
    }
    Settled::Decided { there }
}

/// Takes an arbitrating mediator away from before its object. Returns whether the caller is its owner now, and frees it
/// after a grace period.
///
/// # Safety
/// Within an operation in which it was found in a slot.
pub(crate) unsafe fn detach(ground: &impl Ground, mediator: NonNull<Mediator>) -> bool {
    // SAFETY: the caller's promise.
    let this = unsafe { mediator.as_ref() };
    let mine = this.change(Some(Phase::Arbitrate), Phase::RolledBack);
    if mine {
        // SAFETY: passed on: its old object is valid, and suspended.
        unsafe { install(ground, mediator, this.old) };
    }
    mine
}

/// Puts `object` in the place of `mediator`, and lets it answer by itself. Returns whether it is there; not if it was
/// destroyed since the mediator's phase says that it serves.
///
/// # Safety
/// Within an operation, by the mediator's owner, whose phase says so. The object has the mediator's id, is valid, and
/// suspended.
unsafe fn install(ground: &impl Ground, mediator: NonNull<Mediator>, object: NonNull<Object>) -> bool {
    // SAFETY: the caller's promise.
    let (id, class) = unsafe { (mediator.as_ref().id, object.as_ref().class) };
    let (from, to) = (mediator_word(mediator), object_word(object));
    // The first slot comes last: until then nobody else puts a mediator before it (`slot/I1`).
    if sites::FIRST_SLOT_LAST.is_weak() {
        exchange_first(ground, id, from, to);
    }
    exchange_rest(ground, id, class.interfaces, from, to);
    // SAFETY: valid within this operation, even if it is destroyed meanwhile.
    let gate = unsafe { &object.as_ref().gate };
    gate.resume();
    for_each_header(object, class, |header| {
        // As a miss does (`gate/I3`), and for its reason: a header that its destroyer has not poisoned, because it came later,
        // must not be made active.
        if sites::ASK_BEFORE_RESUME.is_weak() || gate.confirm() {
            header.resume(id.offset(header.index()).bits());
        }
    });
    exchange_first(ground, id, from, to)
}
