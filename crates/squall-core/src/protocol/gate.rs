//! The miss gate of an object: misses enter it together; destruction shuts and drains it.
//!
//! Problem: a miss that found the root must publish its representative and its table entry, or neither,
//! before destruction clears them. No miss may begin afterwards. Waiting for the misses would make `destroy`
//! block.
//!
//! Idea: one word has the number of misses in flight and the mark of death. One change makes that word dead
//! with zero in flight, and tells the thread that made it. That thread continues the destruction: the
//! destroyer, or the last miss that leaves.
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | `DEAD` | dead | no miss enters any more |
//! | `SUSPENDED` | suspended | a mediator stands in front of the object: no representative is activated |
//! | `SWAPPING` | swapping | that mediator belongs to a swap |
//! | `MOVED` | moved | the id belongs to another object now, and is not freed with this one |
//! | `FLIGHT` | in flight | misses inside; wide enough for every thread of a machine |
//! | `TOTAL` | misses | misses so far, modulo its width: the carry falls off the top |
//!
//! - I1. `DEAD` is set once and stays.
//! - I2. Among all calls of [`Gate::kill`], [`Gate::move_away`] and [`Gate::leave`] on an object, exactly one
//!   returns [`DrainStatus::Drained`]. It makes the last change of `FLIGHT`.
//! - I3. Only [`Gate::confirm`] allows a miss to activate the representative that it published. It does so if
//!   the miss asks before the death and before the object was suspended, or after it was resumed. The next
//!   thread that kills, suspends or resumes sees everything the miss did before it asked. All of these change
//!   one word, so they have one order.
//!
//! Progress: entering is lock-free, the rest is wait-free.
//!
//! Cost: a miss makes two changes to the word.
//!
//! Source: Appavoo 2005, *Clustered Objects*, §5.4.1 and §6.2: K42's miss gate (CO-08). Here it is a request
//! counter, as in §5.4.1, and the exclusive side of §6.2 never waits.

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

/// The miss gate of an object. See the module.
#[derive(Debug)]
pub(crate) struct Gate(AtomicU64);

/// The result of shutting the gate, or of leaving it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum DrainStatus {
    /// The gate is dead and empty: the caller continues the destruction (I2).
    Drained,
    /// Another thread will continue, or the object lives.
    Pending,
    /// The gate was dead already (`kill` only).
    AlreadyDead,
}

impl Gate {
    /// Creates an open gate.
    pub(crate) fn new() -> Gate {
        Gate(AtomicU64::new(0))
    }

    /// Creates the gate of a replacement object: a mediator stands in front of it from the start.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn suspended() -> Gate {
        Gate(AtomicU64::new(SUSPENDED))
    }

    /// Enters for a miss. Returns false if the object is dead.
    pub(crate) fn enter(&self) -> bool {
        self.try_add(FLIGHT_ONE + TOTAL_ONE)
    }

    /// Enters as the owner of a mediator. This counts no miss, but delays reclamation of the object as a miss
    /// does. Returns false if the object is dead.
    pub(crate) fn enter_as_owner(&self) -> bool {
        self.try_add(FLIGHT_ONE)
    }

    #[inline(always)]
    fn try_add(&self, what: u64) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & DEAD == 0 {
            let next = word.wrapping_add(what);
            // Relaxed: it only counts. Later misses find the representatives of earlier ones through their
            // own acquires.
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Returns whether this miss, which is inside the gate, may activate the representative that it published
    /// (I3).
    pub(crate) fn confirm(&self) -> bool {
        // Release: pairs with the acquire in `kill`, `suspend` and `resume`. If those come later, they see
        // the published representative. If they came before, the word itself tells this miss.
        self.0.fetch_add(0, sites::CONFIRM.order(Ordering::Release)) & (DEAD | SUSPENDED) == 0
    }

    /// Marks that a mediator was put in front of the object, by a swap or by an arbitration.
    pub(crate) fn suspend(&self, swapping: bool) {
        let bits = if swapping { SUSPENDED | SWAPPING } else { SUSPENDED };
        // Acquire: pairs with the release in `confirm`, so that the walk that follows finds the published
        // representatives.
        self.0.fetch_or(bits, sites::SUSPEND.order(Ordering::Acquire));
    }

    /// Marks that the mediator no longer belongs to a swap.
    pub(crate) fn end_swap(&self) {
        self.0.fetch_and(!SWAPPING, Ordering::Relaxed);
    }

    /// Marks that no mediator stands in front of the object any more.
    pub(crate) fn resume(&self) {
        // Acquire: pairs with the release in `confirm`, as in `suspend`.
        self.0.fetch_and(!(SUSPENDED | SWAPPING), sites::RESUME.order(Ordering::Acquire));
    }

    /// Returns whether the mediator of a swap stands in front of the object.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn is_swapping(&self) -> bool {
        // Relaxed: asked in `Block`, so in an operation that began after the grace period that followed the
        // store.
        self.0.load(Ordering::Relaxed) & SWAPPING != 0
    }

    /// Shuts the gate for good, for an object that lost its id to another one or never had one.
    pub(crate) fn move_away(&self) -> DrainStatus {
        self.shut(DEAD | MOVED)
    }

    /// Returns whether the object's id belongs to another object. Called by the thread that ends the object,
    /// and by the last miss.
    pub(crate) fn has_moved(&self) -> bool {
        self.0.load(Ordering::Relaxed) & MOVED != 0
    }

    /// Leaves the gate.
    pub(crate) fn leave(&self) -> DrainStatus {
        // AcqRel: pairs with itself and with `kill`: the thread that drains the gate sees everything that the
        // misses did inside, and everything that the destroyer did before.
        let before = self.0.fetch_sub(FLIGHT_ONE, sites::LEAVE.order(Ordering::AcqRel));
        debug_assert!(before & FLIGHT != 0, "a miss left the gate without having entered");
        if before & DEAD != 0 && before & FLIGHT == FLIGHT_ONE {
            DrainStatus::Drained
        } else {
            DrainStatus::Pending
        }
    }

    /// Shuts the gate for good.
    pub(crate) fn kill(&self) -> DrainStatus {
        self.shut(DEAD)
    }

    #[inline(always)]
    fn shut(&self, bits: u64) -> DrainStatus {
        // AcqRel: pairs with `confirm` and `leave`. It acquires from both, and releases to the last `leave`.
        let before = self.0.fetch_or(bits, sites::KILL.order(Ordering::AcqRel));
        match (before & DEAD != 0, before & FLIGHT) {
            (true, _) => DrainStatus::AlreadyDead,
            (false, 0) => DrainStatus::Drained,
            (false, _) => DrainStatus::Pending,
        }
    }

    /// For a model: marks the memory as freed, like [`Header::freed`](super::header::Header::freed).
    #[cfg(all(test, loom))]
    pub(crate) fn freed(&mut self) {
        self.0.with_mut(|_| ());
    }

    /// Returns whether the gate was shut.
    pub(crate) fn is_dead(&self) -> bool {
        self.0.load(Ordering::Relaxed) & DEAD != 0
    }

    /// The number of misses so far, modulo 2^32.
    pub(crate) fn misses(&self) -> u64 {
        (self.0.load(Ordering::Relaxed) & TOTAL) / TOTAL_ONE
    }
}
