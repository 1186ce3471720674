//! Mediation: puts a mediator before an object, sends calls by way of it, and takes it away again.
//!
//! The invariants are those of `mediator.rs`.

use squall_machine::park::Seen;
use squall_sys::sync::atomic::Ordering;
use std::ptr::NonNull;

use super::id::Id;
use super::mediator::{Admission, COUNT, Mediator, PHASE, Phase};
use super::object::{Object, for_each_header};
use super::platform::Platform;
use super::sites;
use super::slot::{mediator_word, object_word};
use super::teardown::move_away;

impl Mediator {
    /// Begins the transfer if no call is counted and none holds the old object (`mediator/I1`).
    ///
    /// # Safety
    /// In `Block`, by whoever swaps; the old object is valid, and not closed.
    pub(crate) unsafe fn try_transfer(&self, platform: &impl Platform) -> bool {
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
                platform.sleepers(self.id.slot()).signal(u32::MAX);
            }
            return false;
        }
        true
    }
}

/// What putting a mediator somewhere led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Attach {
    /// It is there.
    Attached,
    /// It is not: something else is in the first slot.
    Occupied,
    /// It was there, or about to be, when the object was destroyed: the caller frees the mediator.
    Doomed,
}

/// Puts `mediator` before its old object. From here on every call that begins meets it; those that began before may still be
/// in the object, uncounted, until their operations end.
///
/// # Safety
/// Within an operation in which the old object was found in its slot, by whoever keeps that ([`Gate::enter_as_owner`]), which lasts
/// as long as the mediator has an owner. The mediator is built, in `Forward`, and freed as `mediator/I3` says.
///
/// [`Gate::enter_as_owner`]: super::gate::Gate::enter_as_owner
pub(crate) unsafe fn attach(platform: &impl Platform, mediator: NonNull<Mediator>) -> Attach {
    // SAFETY: the caller's own; the old object is valid.
    let (this, class) = unsafe { (mediator.as_ref(), mediator.as_ref().class()) };
    let (from, to) = (object_word(this.old), mediator_word(mediator));
    if !exchange_first(platform, this.id, from, to) {
        return Attach::Occupied;
    }
    exchange_rest(platform, this.id, class.interfaces, from, to);
    // SAFETY: valid.
    unsafe { this.old.as_ref() }.gate.suspend(this.new.is_some());
    if !sites::SUSPEND_HEADERS.is_weak() {
        for_each_header(this.old, class, |header| header.suspend());
    }
    // A swap goes on by itself; others may have to do with an arbitration from here on.
    if this.new.is_none() && !this.change(Some(Phase::Forward), Phase::Arbitrate) {
        return Attach::Doomed;
    }
    Attach::Attached
}

/// Puts the mediator of a swap in the place of one that arbitrates the same object, which is the caller's then.
///
/// # Safety
/// As of [`attach`], but that `from` was found.
pub(crate) unsafe fn relieve(
    platform: &impl Platform,
    from: NonNull<Mediator>,
    to: NonNull<Mediator>,
) -> Attach {
    // SAFETY: the caller's promise.
    let (before, this, class) = unsafe { (from.as_ref(), to.as_ref(), to.as_ref().class()) };
    if !before.change(Some(Phase::Arbitrate), Phase::Relieved) {
        return Attach::Occupied;
    }
    let (out, into) = (mediator_word(from), mediator_word(to));
    // SAFETY: valid.
    unsafe { this.old.as_ref() }.gate.suspend(true);
    let there = exchange_first(platform, this.id, out, into);
    exchange_rest(platform, this.id, class.interfaces, out, into);
    // Those who met the one before.
    platform.sleepers(this.id.slot()).signal(u32::MAX);
    if there { Attach::Attached } else { Attach::Doomed }
}

/// Says what a call does that has met this mediator; or that it parks, at [`Platform::sleepers`], with what it has seen there.
pub(crate) fn ask(
    platform: &impl Platform,
    mediator: &Mediator,
    passes: impl Fn() -> bool,
) -> Result<Admission, Seen> {
    match mediator.admit(&passes) {
        Admission::Parked => {}
        other => return Ok(other),
    }
    // Asked again after this: who lets the parked go signals later (`park/I1`).
    let seen = platform.sleepers(mediator.id.slot()).prepare();
    match mediator.admit(&passes) {
        Admission::Parked => Err(seen),
        other => Ok(other),
    }
}

/// A call is over that the mediator has counted. Within the operation in which it was found.
pub(crate) fn leave(platform: &impl Platform, mediator: &Mediator) {
    let slot = mediator.id.slot();
    if mediator.leave() {
        platform.sleepers(slot).signal(u32::MAX);
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
/// the mediator's id, and is suspended. `next` is before the winner, built, and freed as `mediator/I3` says.
pub(crate) unsafe fn settle(
    platform: &impl Platform,
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
            None => install(platform, mediator, winner),
            Some(next) => {
                winner.as_ref().gate.end_swap();
                let (from, to) = (mediator_word(mediator), mediator_word(next));
                exchange_rest(platform, this.id, winner.as_ref().class.interfaces, from, to);
                exchange_first(platform, this.id, from, to)
            }
        }
    };
    if !sites::RELEASE_PARKED.is_weak() {
        platform.sleepers(this.id.slot()).signal(u32::MAX);
    }
    Settled::Decided { there }
}

/// Takes an arbitrating mediator away from before its object. Returns whether the caller is its owner now, and frees it
/// after a grace period.
///
/// # Safety
/// Within an operation in which it was found in a slot.
pub(crate) unsafe fn detach(platform: &impl Platform, mediator: NonNull<Mediator>) -> bool {
    // SAFETY: the caller's promise.
    let this = unsafe { mediator.as_ref() };
    let mine = this.change(Some(Phase::Arbitrate), Phase::RolledBack);
    if mine {
        // SAFETY: passed on: its old object is valid, and suspended.
        unsafe { install(platform, mediator, this.old) };
    }
    mine
}

/// Puts `object` in the place of `mediator`, and lets it answer by itself. Returns whether it is there; not if it was
/// destroyed since the mediator's phase says that it serves.
///
/// # Safety
/// Within an operation, by the mediator's owner, whose phase says so. The object has the mediator's id, is valid, and
/// suspended.
unsafe fn install(platform: &impl Platform, mediator: NonNull<Mediator>, object: NonNull<Object>) -> bool {
    // SAFETY: the caller's promise.
    let (id, class) = unsafe { (mediator.as_ref().id, object.as_ref().class) };
    let (from, to) = (mediator_word(mediator), object_word(object));
    // The first slot comes last: until then nobody else puts a mediator before it (`slot/I1`).
    if sites::FIRST_SLOT_LAST.is_weak() {
        exchange_first(platform, id, from, to);
    }
    exchange_rest(platform, id, class.interfaces, from, to);
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
    exchange_first(platform, id, from, to)
}

/// Puts `to` in the place of `from` in the first slot of an object with this id (`slot/I1`). Returns whether it is there.
pub(crate) fn exchange_first(platform: &impl Platform, id: Id, from: *mut (), to: *mut ()) -> bool {
    platform.slot(id.slot()).exchange(from, to)
}

/// The same, in the other slots.
pub(crate) fn exchange_rest(platform: &impl Platform, id: Id, interfaces: u32, from: *mut (), to: *mut ()) {
    // Fails where a tag is, and stays (`slot/I1`).
    (1..interfaces).for_each(|index| _ = platform.slot(id.slot() + index).exchange(from, to));
}
