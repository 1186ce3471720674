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
//! | `SUSPENDED` | suspended | a mediator stands before the object: no representative is made active |
//! | `SWAPPING` | swapping | that mediator is a swap's |
//! | `MOVED` | moved | its id is another object's now, and is not freed with it |
//! | `FLIGHT` | in flight | misses inside; wide enough for every thread of a machine |
//! | `TOTAL` | misses | misses that ever entered, modulo its width: the carry falls off the top |
//!
//! - I1. `DEAD` is set once and stays.
//! - I2. Exactly one call of all [`Gate::kill`] and [`Gate::leave`] of an object returns [`DrainStatus::Drained`], and it is
//!   the last change of `FLIGHT`.
//! - I3. A miss that may activate what it published, by [`Gate::confirm`], asked before the death and before the object was
//!   suspended, or after it was resumed; and everything it did before is seen by whoever kills, suspends or resumes next.
//!   All of these are changes of one word, so they are in one order.
//!
//! Progress: entering is lock-free, the rest wait-free. Cost: a miss makes two changes to the word. Source: K42's miss
//! gate (CO-08); it is a request counter here, as in §5.4.1, and the exclusive side of §6.2 never waits.

use squall_sys::sync::atomic::{AtomicU64, Ordering};

use super::sites;

const DEAD: u64 = 1;
const SUSPENDED: u64 = 1 << 1;
const MOVED: u64 = 1 << 2;
const SWAPPING: u64 = 1 << 3;
const FLIGHT_ONE: u64 = 1 << 4;
const FLIGHT: u64 = (1 << 32) - FLIGHT_ONE;
const TOTAL_ONE: u64 = 1 << 32;
const TOTAL: u64 = u64::MAX << 32;

const _: () =
    assert!(DEAD | SUSPENDED | MOVED | SWAPPING | FLIGHT | TOTAL == u64::MAX && FLIGHT & TOTAL == 0);
const _: () = assert!((DEAD | SUSPENDED | MOVED | SWAPPING) & FLIGHT == 0);

/// See the module.
#[derive(Debug)]
pub(crate) struct Gate(AtomicU64);

/// What shutting the gate, or leaving it, led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum DrainStatus {
    /// Dead, and nobody inside: the caller goes on with the destruction (I2).
    Drained,
    /// Somebody else will.
    Pending,
    /// It was dead already (`kill` only).
    AlreadyDead,
}

impl Gate {
    /// An open gate.
    pub(crate) fn new() -> Gate {
        Gate(AtomicU64::new(0))
    }

    /// The gate of an object that is to take another one's place: a mediator stands before it from the start.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn suspended() -> Gate {
        Gate(AtomicU64::new(SUSPENDED))
    }

    /// Enters, unless the object is dead.
    pub(crate) fn enter(&self) -> bool {
        self.try_add(FLIGHT_ONE + TOTAL_ONE)
    }

    /// Enters as a mediator's owner: no miss, but what keeps the object from being reclaimed as one does. Not if it is dead.
    pub(crate) fn enter_as_owner(&self) -> bool {
        self.try_add(FLIGHT_ONE)
    }

    #[inline(always)]
    fn try_add(&self, what: u64) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & DEAD == 0 {
            let next = word.wrapping_add(what);
            // Relaxed: it only counts. What earlier misses published is found by the acquires of those who look for it.
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Whether the object may answer by what this miss, which is inside, has published (I3).
    pub(crate) fn confirm(&self) -> bool {
        // Release: pairs with the acquire in `kill`, `suspend` and `resume`. Before it: they see what this miss published.
        // After it: the word itself tells this miss.
        self.0.fetch_add(0, sites::CONFIRM.order(Ordering::Release)) & (DEAD | SUSPENDED) == 0
    }

    /// A mediator stands before the object, for a swap or not.
    pub(crate) fn suspend(&self, swapping: bool) {
        let bits = if swapping { SUSPENDED | SWAPPING } else { SUSPENDED };
        // Acquire: pairs with the release in `confirm`, so that the walk that follows finds what was published.
        self.0.fetch_or(bits, sites::SUSPEND.order(Ordering::Acquire));
    }

    /// The mediator before it is not a swap's any more.
    pub(crate) fn end_swap(&self) {
        self.0.fetch_and(!SWAPPING, Ordering::Relaxed);
    }

    /// No mediator stands before it any more.
    pub(crate) fn resume(&self) {
        // Acquire: as `suspend`.
        self.0.fetch_and(!(SUSPENDED | SWAPPING), sites::RESUME.order(Ordering::Acquire));
    }

    /// Whether the mediator of a swap stands before it.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn is_swapping(&self) -> bool {
        // Relaxed: asked in `Block`, so in an operation that began after the grace period that followed the setting.
        self.0.load(Ordering::Relaxed) & SWAPPING != 0
    }

    /// Shuts it for good, of an object that has lost its id to another one, or never got it.
    pub(crate) fn move_away(&self) -> DrainStatus {
        self.shut(DEAD | MOVED)
    }

    /// Whether its id is not its own. For whoever ends it, and the last miss.
    pub(crate) fn has_moved(&self) -> bool {
        self.0.load(Ordering::Relaxed) & MOVED != 0
    }

    /// Leaves.
    pub(crate) fn leave(&self) -> DrainStatus {
        // AcqRel: pairs with itself and with `kill`: whoever drains the gate sees what every miss did inside, and what the
        // destroyer did before.
        let before = self.0.fetch_sub(FLIGHT_ONE, sites::LEAVE.order(Ordering::AcqRel));
        debug_assert!(before & FLIGHT != 0, "a miss left that had not entered");
        if before & DEAD != 0 && before & FLIGHT == FLIGHT_ONE {
            DrainStatus::Drained
        } else {
            DrainStatus::Pending
        }
    }

    /// Shuts it for good.
    pub(crate) fn kill(&self) -> DrainStatus {
        self.shut(DEAD)
    }

    #[inline(always)]
    fn shut(&self, bits: u64) -> DrainStatus {
        // AcqRel: pairs with `confirm` and `leave`, from which it acquires, and releases to the last `leave`.
        let before = self.0.fetch_or(bits, sites::KILL.order(Ordering::AcqRel));
        match (before & DEAD != 0, before & FLIGHT) {
            (true, _) => DrainStatus::AlreadyDead,
            (false, 0) => DrainStatus::Drained,
            (false, _) => DrainStatus::Pending,
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
