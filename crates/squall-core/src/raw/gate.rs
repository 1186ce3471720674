//! The miss gate of an object: entered by misses together, drained and shut for good by its destruction.
//!
//! Problem: a miss that found the root must have made its representative and its table entry known, or nothing, before
//! destruction takes stock; and no miss may begin after that. Waiting for the misses would make `destroy` block.
//! Idea: the number of misses in flight and the mark of death are one word. Whoever finds "dead, and none in flight"
//! by the very change that made it so continues the destruction: the destroyer, or the last miss to leave.
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | `DEAD` | dead | no miss enters any more |
//! | `FLIGHT` | in flight | misses inside; wide enough for every thread of a machine |
//! | `TOTAL` | misses | misses that ever entered, modulo its width: the carry falls off the top |
//!
//! - I1. `DEAD` is set once and stays.
//! - I2. Exactly one call of all [`Gate::kill`] and [`Gate::leave`] of an object returns [`Shut::Drained`], and it is
//!   the last change of `FLIGHT`.
//! - I3. A miss that found itself alive by [`Gate::confirm`] did so before the death, and everything it did before is
//!   seen by the destroyer; one that did not is told so. All three are changes of one word, so they are in one order.
//!
//! Progress: entering is lock-free, the rest wait-free. Cost: a miss makes two changes to the word. Source: K42's miss
//! gate (CO-08); it is a request counter here, as in §5.4.1, and the exclusive side of §6.2 never waits.

use squall_sync::atomic::{AtomicU64, Ordering};

use super::sites;

const DEAD: u64 = 1;
const FLIGHT_ONE: u64 = 1 << 1;
const FLIGHT: u64 = (1 << 32) - FLIGHT_ONE;
const TOTAL_ONE: u64 = 1 << 32;
const TOTAL: u64 = u64::MAX << 32;

const _: () = assert!(DEAD | FLIGHT | TOTAL == u64::MAX && DEAD & FLIGHT == 0 && FLIGHT & TOTAL == 0);

/// See the module.
#[derive(Debug)]
pub(crate) struct Gate(AtomicU64);

/// What shutting the gate, or leaving it, led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Shut {
    /// Dead, and nobody inside: the caller goes on with the destruction (I2).
    Drained,
    /// Somebody else will.
    NotYet,
    /// It was dead already (`kill` only).
    Already,
}

impl Gate {
    /// An open gate.
    pub(crate) fn new() -> Gate {
        Gate(AtomicU64::new(0))
    }

    /// Enters, unless the object is dead.
    pub(crate) fn enter(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & DEAD == 0 {
            let next = word.wrapping_add(FLIGHT_ONE).wrapping_add(TOTAL_ONE);
            // Relaxed: it only counts. What earlier misses published is found by the acquires of those who look for it.
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Whether the object still lives; for a miss inside (I3).
    pub(crate) fn confirm(&self) -> bool {
        // Release: pairs with the acquire in `kill`. Before it: the destroyer sees what this miss published. After it:
        // the word itself tells this miss.
        self.0.fetch_add(0, sites::CONFIRM.order(Ordering::Release)) & DEAD == 0
    }

    /// Leaves.
    pub(crate) fn leave(&self) -> Shut {
        // AcqRel: pairs with itself and with `kill`: whoever drains the gate sees what every miss did inside, and what the
        // destroyer did before.
        let before = self.0.fetch_sub(FLIGHT_ONE, sites::LEAVE.order(Ordering::AcqRel));
        debug_assert!(before & FLIGHT != 0, "a miss left that had not entered");
        if before & DEAD != 0 && before & FLIGHT == FLIGHT_ONE { Shut::Drained } else { Shut::NotYet }
    }

    /// Shuts it for good.
    pub(crate) fn kill(&self) -> Shut {
        // AcqRel: pairs with `confirm` and `leave`, from which it acquires, and releases to the last `leave`.
        let before = self.0.fetch_or(DEAD, sites::KILL.order(Ordering::AcqRel));
        match (before & DEAD != 0, before & FLIGHT) {
            (true, _) => Shut::Already,
            (false, 0) => Shut::Drained,
            (false, _) => Shut::NotYet,
        }
    }

    /// For a model: as [`Header::freed`](super::header::Header::freed).
    #[cfg(all(test, loom))]
    pub(crate) fn freed(&mut self) {
        self.0.with_mut(|_| ());
    }

    /// Whether it was shut.
    pub(crate) fn is_dead(&self) -> bool {
        self.0.load(Ordering::Relaxed) & DEAD != 0
    }

    /// Misses that ever entered, modulo 2^32.
    pub(crate) fn misses(&self) -> u64 {
        (self.0.load(Ordering::Relaxed) & TOTAL) / TOTAL_ONE
    }
}
