//! Mediators: a mediator stands in front of an object while it is replaced or arbitrated.
//!
//! Problem: a swap must find the object without callers at one moment. The fast path must stay as it is, and
//! callers may wait only for that moment.
//!
//! Idea: the mediator takes the object's place in its slots, and the headers of the object's representatives
//! are suspended. So every call misses and meets the mediator, which counts the calls that it admits. The
//! count and the phase are one word. So one change decides whether a call is counted before the object is
//! quiet, or waits.
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | `PHASE` | phase | the treatment of calls, see [`Phase`] |
//! | `DOOMED` | doomed | the object was destroyed: the owner of the mediator ends the swap |
//! | `COUNT` | count | admitted calls that are not over; wide enough for every thread of a machine |
//! | `TOTAL` | total | admitted calls so far, modulo its width: the carry falls off the top |
//!
//! - I1. In `Transfer` the count is zero and stays zero. No call holds a representative of the old object,
//!   once the swap has looked for holds there ([`Mediator::try_transfer`]).
//! - I2. `DOOMED` and the phase are in one word, so a destroyer and the mediator's owner agree which object
//!   each of them ends. A destroyer ends the object that serves: the new one if it finds `Complete`,
//!   otherwise the old one. In the second case the owner can no longer reach `Complete`. The owner ends the
//!   other object.
//! - I3. A mediator has one owner: the thread that put it into the first slot. An arbitration has no owner
//!   once it is in `Arbitrate`. The thread that changes that phase becomes its owner. A thread that replaces
//!   it in the slot by a tag in that phase also becomes its owner. The owner frees the mediator, a grace
//!   period after every slot has another occupant.
//!
//! Source: Appavoo 2005, *Clustered Objects*, §6.2 (CO-34 to CO-40). K42's mediator has separate words for
//! the phase and the count of each processor. There, a thread that another processor counts can enter between
//! two loads. Here phase and count are one word, changed by an exchange.

use squall_sys::sync::atomic::{AtomicU64, Ordering};
use std::ptr::NonNull;

use super::object::{Object, for_each_header, is_held};
use super::sites;
use crate::protocol::class::Class;
use crate::protocol::id::Id;

/// The treatment of a call that meets the mediator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Phase {
    /// The call is counted and passed to the old object.
    Forward,
    /// The call waits. If some swap waits for a call of its thread, it is treated as in `Forward`.
    Block,
    /// The call waits.
    Transfer,
    /// The call goes to the new object.
    Complete,
    /// The call goes to the old object.
    RolledBack,
    /// The call goes to the old object through a user's function.
    Arbitrate,
    /// The call waits: another mediator is about to take this one's place.
    Replaced,
}

impl Phase {
    const ALL: [Phase; 7] = [
        Phase::Forward,
        Phase::Block,
        Phase::Transfer,
        Phase::Complete,
        Phase::RolledBack,
        Phase::Arbitrate,
        Phase::Replaced,
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

/// A mediator. See the module. The data of the upper wings follow it in memory.
#[repr(C, align(8))]
#[derive(Debug)]
pub(crate) struct Mediator {
    // Written by admitted calls, and by the swap.
    pub(super) word: AtomicU64,
    // Never written after the mediator is attached.
    pub(crate) id: Id,
    pub(crate) old: NonNull<Object>,
    /// The replacement of the old object; absent in an arbitration.
    pub(crate) new: Option<NonNull<Object>>,
}

/// The mediator's answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Admission {
    /// The call is counted: it calls the old object, and ends with [`leave`](super::mediation::leave).
    Counted,
    /// The call waits until the phase changes.
    Parked,
    /// The call uses this object, as if it were in the slot.
    To(NonNull<Object>),
    /// The call goes to the old object through the user's function.
    Arbitrated,
    /// The call fails: the object was destroyed.
    Doomed,
}

impl Mediator {
    /// Creates a mediator in front of `old`, which has this id. With a `new` object it belongs to a swap.
    pub(crate) fn new(id: Id, old: NonNull<Object>, new: Option<NonNull<Object>>, phase: Phase) -> Mediator {
        Mediator { word: AtomicU64::new(phase as u64), id, old, new }
    }

    pub(super) fn phase_in(word: u64) -> Phase {
        Phase::ALL[(word & PHASE) as usize]
    }

    /// The current phase.
    pub(crate) fn phase(&self) -> Phase {
        Mediator::phase_in(self.word.load(Ordering::Relaxed))
    }

    /// The class of the old object.
    ///
    /// # Safety
    /// The old object is valid: the caller is within an operation that found this mediator in a slot.
    pub(crate) unsafe fn class(&self) -> &'static Class {
        // SAFETY: the caller's promise.
        unsafe { self.old.as_ref() }.class
    }

    /// Answers a call. `passes` returns whether some swap waits for a call of this thread; it is called only
    /// in `Block`.
    pub(super) fn admit(&self, passes: impl Fn() -> bool) -> Admission {
        // Acquire: pairs with the release in `change`: a call that is sent to an object sees the state that
        // was moved to it.
        let mut word = self.word.load(sites::ADMIT.order(Ordering::Acquire));
        loop {
            if word & DOOMED != 0 {
                return Admission::Doomed;
            }
            match (Mediator::phase_in(word), self.new) {
                (Phase::Forward, _) => {}
                (Phase::Block, _) if !sites::PASS.is_weak() && passes() => {}
                (Phase::Block | Phase::Transfer | Phase::Replaced, _) => return Admission::Parked,
                (Phase::Complete, Some(new)) => return Admission::To(new),
                (Phase::Complete | Phase::RolledBack, _) => return Admission::To(self.old),
                (Phase::Arbitrate, _) => return Admission::Arbitrated,
            }
            let next = word.wrapping_add(COUNT_ONE).wrapping_add(TOTAL_ONE);
            // Relaxed: it only counts. Acquire on failure, as in the first load.
            let order = sites::ADMIT.order(Ordering::Acquire);
            match self.word.compare_exchange_weak(word, next, Ordering::Relaxed, order) {
                Ok(_) => return Admission::Counted,
                Err(now) => word = now,
            }
        }
    }

    /// Ends a counted call. Returns whether a swap waits for it as the last one.
    #[must_use]
    pub(super) fn leave(&self) -> bool {
        // Release: pairs with the acquire in `try_transfer`: the thread that moves the state sees the call's
        // work.
        let before = self.word.fetch_sub(COUNT_ONE, sites::UNCOUNT.order(Ordering::Release));
        debug_assert!(before & COUNT != 0, "a call left a mediator that had not counted it");
        before & COUNT == COUNT_ONE
            && Mediator::phase_in(before) == Phase::Block
            && !sites::LAST_COUNTED.is_weak()
    }

    /// Makes new calls wait. The grace period has passed, so every call in the old object is counted or holds
    /// it.
    pub(crate) fn block(&self) {
        // Relaxed: only the choice between counting and waiting matters.
        self.word.fetch_add(Phase::Block as u64 - Phase::Forward as u64, Ordering::Relaxed);
    }

    /// Returns whether a call holds the old object.
    ///
    /// # Safety
    /// The old object is valid, and not closed.
    pub(crate) unsafe fn is_held(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { is_held(self.old, self.class()) }
    }

    /// Asks the last holds to signal the swap, or no longer to do so.
    ///
    /// # Safety
    /// The old object is valid, and not closed.
    pub(crate) unsafe fn notify(&self, whether: bool) {
        // SAFETY: the caller's promise.
        for_each_header(self.old, unsafe { self.class() }, |header| header.notify(whether));
    }

    /// Changes the phase to `to`, only from `from` if that is given. Returns false if the object was
    /// destroyed (I2), or if the phase was another one.
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

    /// Marks the object as destroyed. Called by the destroyer, which owns the slots. Returns the phase, which
    /// says which object the destroyer ends (I2).
    pub(crate) fn condemn(&self) -> Phase {
        // Relaxed: only the choice of the serving object matters; the gate of that object does the rest.
        let before = self.word.fetch_or(DOOMED, Ordering::Relaxed);
        Mediator::phase_in(before)
    }

    /// Returns whether the object was destroyed.
    pub(crate) fn is_doomed(&self) -> bool {
        self.word.load(Ordering::Relaxed) & DOOMED != 0
    }

    /// Admitted calls so far, modulo 2^32.
    pub(crate) fn total(&self) -> u64 {
        (self.word.load(Ordering::Relaxed) & TOTAL) / TOTAL_ONE
    }

    /// For a model: marks the memory as freed, like [`Header::freed`](super::header::Header::freed).
    #[cfg(all(test, loom))]
    pub(crate) fn freed(&mut self) {
        self.word.with_mut(|_| ());
    }
}
