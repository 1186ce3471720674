//! Mediation: attaches a mediator to an object, answers the calls that meet it, and removes it.
//!
//! `mediator.rs` states the invariants.

use squall_machine::park::Seen;
use squall_sys::pause;
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
    /// Begins the transfer if no call is counted and no call holds the old object (`mediator/I1`).
    ///
    /// # Safety
    /// The owner of the mediator calls this in `Block`. The old object is valid, and not closed.
    pub(crate) unsafe fn try_transfer(&self, platform: &impl Platform) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        if word & COUNT != 0 || Mediator::phase_in(word) != Phase::Block {
            return false;
        }
        // Check before the exchange, so that it seldom has to be undone.
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
        // A thread that takes a hold is counted meanwhile. So every hold there will ever be exists now.
        // SAFETY: the caller's promise.
        if !sites::HOLDS_OF_SWAP.is_weak() && unsafe { self.is_held() } {
            // Relaxed: as in `block`. Only this thread changes the phase, and calls only wait.
            self.word.fetch_sub(Phase::Transfer as u64 - Phase::Block as u64, Ordering::Relaxed);
            // A thread that would pass in `Block` may have begun to wait meanwhile, and it may be the one
            // with the hold.
            if !sites::BACK_TO_BLOCK.is_weak() {
                platform.sleepers(self.id.slot()).signal(u32::MAX);
            }
            return false;
        }
        true
    }
}

/// The result of attaching a mediator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Attach {
    /// The mediator is attached.
    Attached,
    /// The first slot has another occupant, so the mediator was not attached.
    Occupied,
    /// The object was destroyed while the mediator was attached, or about to be. The caller frees the
    /// mediator.
    Doomed,
}

/// Attaches `mediator` to its old object. Every call that begins from here on meets it. Earlier calls may
/// still be in the object, uncounted, until their operations end.
///
/// # Safety
/// The caller is within an operation that found the old object in its slot. It has entered that object's gate
/// as owner (`Gate::enter_as_owner`), for as long as the mediator has an owner. The mediator is built, in
/// `Forward`, and is freed as `mediator/I3` says.
pub(crate) unsafe fn attach(platform: &impl Platform, mediator: NonNull<Mediator>) -> Attach {
    // SAFETY: the mediator is the caller's own, and the old object is valid.
    let (this, class) = unsafe { (mediator.as_ref(), mediator.as_ref().class()) };
    let (from, to) = (object_word(this.old), mediator_word(mediator));
    if cfg!(test) {
        pause::point("attach");
    }
    if !exchange_first(platform, this.id, from, to) {
        return Attach::Occupied;
    }
    exchange_rest(platform, this.id, class.interfaces, from, to);
    // SAFETY: the old object is valid.
    unsafe { this.old.as_ref() }.gate.suspend(this.new.is_some());
    if !sites::SUSPEND_HEADERS.is_weak() {
        for_each_header(this.old, class, |header| header.suspend());
    }
    // The owner of a swap continues by itself. Other threads may take over an arbitration from here on.
    if this.new.is_none() && !this.change(Some(Phase::Forward), Phase::Arbitrate) {
        return Attach::Doomed;
    }
    Attach::Attached
}

/// Replaces the mediator of an arbitration by that of a swap of the same object. The caller then owns `from`.
///
/// # Safety
/// The conditions of [`attach`] hold, except that the operation found `from` in the slot instead of the
/// object.
pub(crate) unsafe fn relieve(
    platform: &impl Platform,
    from: NonNull<Mediator>,
    to: NonNull<Mediator>,
) -> Attach {
    // SAFETY: the caller's promise.
    let (before, this, class) = unsafe { (from.as_ref(), to.as_ref(), to.as_ref().class()) };
    if !before.change(Some(Phase::Arbitrate), Phase::Replaced) {
        return Attach::Occupied;
    }
    let (out, into) = (mediator_word(from), mediator_word(to));
    // SAFETY: the old object is valid.
    unsafe { this.old.as_ref() }.gate.suspend(true);
    let attached = exchange_first(platform, this.id, out, into);
    exchange_rest(platform, this.id, class.interfaces, out, into);
    // Wake the calls that met the previous mediator.
    platform.sleepers(this.id.slot()).signal(u32::MAX);
    if attached { Attach::Attached } else { Attach::Doomed }
}

/// Answers a call that met this mediator. An error means that the call waits at [`Platform::sleepers`], with
/// the value that it saw there.
pub(crate) fn ask(
    platform: &impl Platform,
    mediator: &Mediator,
    passes: impl Fn() -> bool,
) -> Result<Admission, Seen> {
    match mediator.admit(&passes) {
        Admission::Parked => {}
        other => return Ok(other),
    }
    // Ask again after this: the thread that lets the waiters go signals later (`park/I1`).
    let seen = platform.sleepers(mediator.id.slot()).prepare();
    match mediator.admit(&passes) {
        Admission::Parked => Err(seen),
        other => Ok(other),
    }
}

/// Ends a call that the mediator counted. The caller is within the operation that found the mediator.
pub(crate) fn leave(platform: &impl Platform, mediator: &Mediator) {
    let slot = mediator.id.slot();
    if mediator.leave() {
        platform.sleepers(slot).signal(u32::MAX);
    }
}

/// The result of ending a mediation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Settled {
    /// The winner serves, or served before it was destroyed; the caller ends the other object. `attached`
    /// says whether the first slot has the next mediator or, if there is no next mediator, the winner. If
    /// not, the caller frees the next mediator after a grace period.
    Decided { attached: bool },
    /// The object was destroyed: the caller ends the new object.
    Doomed,
}

/// Ends a swap and lets the waiters go. From now on the new object serves, or the old one again. `next`, if
/// given, is an arbitrating mediator in front of it.
///
/// # Safety
/// The mediator's owner calls this within an operation, with `Complete` only in `Transfer`. Both objects are
/// valid. The new one has the mediator's id, and is suspended. `next` names the winner as its old object, is
/// built, and is freed as `mediator/I3` says.
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
            // SAFETY: the caller has entered its gate as owner, and calls this once.
            unsafe { move_away(this.old) };
            new
        }
        _ => this.old,
    };
    // SAFETY: the caller's promise.
    let attached = unsafe {
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
    Settled::Decided { attached }
}

/// Removes an arbitrating mediator from its object. Returns whether the caller owns the mediator now, and
/// must free it after a grace period.
///
/// # Safety
/// The caller is within an operation that found the mediator in a slot.
pub(crate) unsafe fn detach(platform: &impl Platform, mediator: NonNull<Mediator>) -> bool {
    // SAFETY: the caller's promise.
    let this = unsafe { mediator.as_ref() };
    let mine = this.change(Some(Phase::Arbitrate), Phase::RolledBack);
    if mine {
        // SAFETY: the caller's promise: its old object is valid, and suspended.
        unsafe { install(platform, mediator, this.old) };
    }
    mine
}

/// Replaces `mediator` by `object`, which then answers calls directly. Returns whether the object is in the
/// slot. Returns false if the object was destroyed after the phase of the mediator was set.
///
/// # Safety
/// The mediator's owner calls this within an operation. The mediator's phase says that `object` serves. The
/// object has the mediator's id, is valid, and is suspended.
unsafe fn install(platform: &impl Platform, mediator: NonNull<Mediator>, object: NonNull<Object>) -> bool {
    // SAFETY: the caller's promise.
    let (id, class) = unsafe { (mediator.as_ref().id, object.as_ref().class) };
    let (from, to) = (mediator_word(mediator), object_word(object));
    // The first slot comes last: until then no other thread attaches a mediator to the object (`slot/I1`).
    if sites::FIRST_SLOT_LAST.is_weak() {
        exchange_first(platform, id, from, to);
    }
    exchange_rest(platform, id, class.interfaces, from, to);
    // SAFETY: valid within this operation, even if it is destroyed meanwhile.
    let gate = unsafe { &object.as_ref().gate };
    gate.resume();
    for_each_header(object, class, |header| {
        // Ask the gate first, as a miss does (`gate/I3`). A header that was added after its destroyer's walk
        // is not poisoned, and must not be activated.
        if sites::ASK_BEFORE_RESUME.is_weak() || gate.confirm() {
            header.resume(id.offset(header.index()).bits());
        }
    });
    exchange_first(platform, id, from, to)
}

/// Replaces `from` by `to` in the first slot of an object with this id (`slot/I1`). Returns whether it did.
pub(crate) fn exchange_first(platform: &impl Platform, id: Id, from: *mut (), to: *mut ()) -> bool {
    platform.slot(id.slot()).exchange(from, to)
}

/// Replaces `from` by `to` in the slots of an object with this id, except the first.
pub(crate) fn exchange_rest(platform: &impl Platform, id: Id, interfaces: u32, from: *mut (), to: *mut ()) {
    // Fails where a slot has a tag, which stays (`slot/I1`).
    (1..interfaces).for_each(|index| _ = platform.slot(id.slot() + index).exchange(from, to));
}
