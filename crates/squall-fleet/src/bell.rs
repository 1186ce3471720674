//! The bell of a mailbox: which of its quiet lanes have messages, and whether the receiver sleeps.
//!
//! Problem: a receiver with thousands of lanes must find the few that have messages. It sleeps if all are
//! empty, and the next message wakes it.
//!
//! Idea: a bit for each lane, in words, and a first word with a bit for each of these. The receiver's sleep
//! is a bit of the first word too, so a ring and a sleep cannot miss each other.
//!
//! - I1. A ring sets the bit of its lane, and then that of its word in the first word. It sets both even if
//!   they are set already: the thread that has set the first one may be stopped before it sets the second.
//! - I2. The receiver sets `SLEEPING` in the first word only if all other bits are 0, in one step, after it
//!   has left its waker. A ring that finds it wakes the receiver.
//! - I3. A sleep that is cancelled clears `SLEEPING` alone. The rings stay for the next look.
//!
//! Progress: a ring is wait-free, but for the wake-up of a receiver.
//! Cost: a ring changes two words that other senders change. Only the first message in a quiet lane rings.

use crate::sites;
use crate::waiters::wake;
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use squall_sys::sync::{Mutex, MutexGuard, lock};
use std::task::Waker;

/// Bits of a word.
const BITS: usize = if cfg!(loom) { 2 } else { 64 };
/// Words beside the first one.
const WORDS: usize = if cfg!(loom) { 2 } else { 63 };
const SLEEPING: u64 = 1 << 63;

/// The most lanes that a bell can tell apart.
pub(crate) const LANES_MAX: usize = BITS * WORDS;

pub(crate) struct Bell {
    first: CachePadded<AtomicU64>,
    words: Box<[AtomicU64]>,
    sleeper: Mutex<Option<Waker>>,
}

impl Bell {
    pub(crate) fn new() -> Bell {
        let words = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        Bell { first: CachePadded::new(AtomicU64::new(0)), words, sleeper: Mutex::new(None) }
    }

    fn sleeper(&self) -> MutexGuard<'_, Option<Waker>> {
        lock(&self.sleeper, "the waker of a mailbox")
    }

    /// Tells the receiver to look into a lane.
    #[cold]
    pub(crate) fn ring(&self, lane: usize) {
        // Relaxed: ordered by the next step.
        self.words[lane / BITS].fetch_or(1 << (lane % BITS), Ordering::Relaxed);
        // Release: pairs with the Acquire of `answer`, which looks for the bit above.
        let order = sites::RING.order(Ordering::Release);
        if self.first.fetch_or(1 << (lane / BITS), order) & SLEEPING != 0 {
            self.wake();
        }
    }

    /// Wakes the receiver, if it sleeps.
    pub(crate) fn wake(&self) {
        // Of several rings, one wakes. Relaxed: the lock orders the waker.
        if self.first.fetch_and(!SLEEPING, Ordering::Relaxed) & SLEEPING != 0 {
            let waker = self.sleeper().take();
            waker.into_iter().for_each(wake);
        }
    }

    /// Returns whether a lane rang since the last answer.
    #[inline]
    pub(crate) fn has_rung(&self) -> bool {
        // Relaxed: a hint. Before it sleeps, the receiver looks in the same step (I2).
        self.first.load(Ordering::Relaxed) & !SLEEPING != 0
    }

    /// Takes all rings, and calls `look` with each lane that rang. The receiver does not sleep any more.
    pub(crate) fn answer(&self, mut look: impl FnMut(usize)) {
        // Acquire: pairs with the Release of `ring`.
        let mut first = self.first.swap(0, sites::LOOK.order(Ordering::Acquire)) & !SLEEPING;
        while first != 0 {
            let word = first.trailing_zeros() as usize;
            first &= first - 1;
            // Relaxed: ordered by the first word. Acquire is not needed for the messages: the receiver reads
            // their headers anew.
            let mut lanes = self.words[word].swap(0, Ordering::Relaxed);
            while lanes != 0 {
                look(word * BITS + lanes.trailing_zeros() as usize);
                lanes &= lanes - 1;
            }
        }
    }

    /// Announces that the receiver sleeps, until `waker` is called. Returns false if a lane rang: the
    /// receiver must look first.
    pub(crate) fn sleep(&self, waker: &Waker) -> bool {
        let mut new = Some(waker.clone());
        std::mem::swap(&mut *self.sleeper(), &mut new);
        drop(new);
        if sites::SLEEP.is_weak() {
            self.first.fetch_or(SLEEPING, Ordering::Relaxed);
            return true;
        }
        // Relaxed: the waker is handed over by its lock.
        let sleeps = self.first.compare_exchange(0, SLEEPING, Ordering::Relaxed, Ordering::Relaxed);
        let sleeps = sleeps.is_ok() || sleeps == Err(SLEEPING);
        if !sleeps {
            let unused = self.sleeper().take();
            drop(unused);
        }
        sleeps
    }

    /// Ends a sleep that no ring ended.
    pub(crate) fn awake(&self) {
        let kept = if sites::KEEP_RINGS.is_weak() { 0 } else { !SLEEPING };
        // Relaxed: the rings stay, and their look is ordered in `answer` (I3).
        self.first.fetch_and(kept, Ordering::Relaxed);
        let waker = self.sleeper().take();
        drop(waker);
    }
}
