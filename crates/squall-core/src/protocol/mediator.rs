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

use squall_sys::sync::atomic::{AtomicU64, Ordering};
use std::ptr::NonNull;

use super::object::{Object, for_each_header, is_held};
use super::sites;
use crate::protocol::class::Class;
use crate::protocol::id::Id;

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

pub(super) const PHASE: u64 = 7;
const DOOMED: u64 = 1 << 3;
const COUNT_ONE: u64 = 1 << 4;
pub(super) const COUNT: u64 = (1 << 32) - COUNT_ONE;
const TOTAL_ONE: u64 = 1 << 32;
const TOTAL: u64 = u64::MAX << 32;

const _: () = assert!(PHASE | DOOMED | COUNT | TOTAL == u64::MAX && COUNT & TOTAL == 0);
const _: () = assert!((PHASE | DOOMED) & COUNT == 0 && Phase::ALL.len() <= PHASE as usize + 1);

/// See the module. What the floor above adds follows it in memory.
#[repr(C, align(8))]
#[derive(Debug)]
pub(crate) struct Mediator {
    // Written by calls that pass, and by the swap.
    pub(super) word: AtomicU64,
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

    pub(super) fn phase_in(word: u64) -> Phase {
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
    pub(super) fn admit(&self, passes: impl Fn() -> bool) -> Admission {
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
    pub(super) fn leave(&self) -> bool {
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
    pub(super) fn change(&self, from: Option<Phase>, to: Phase) -> bool {
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
