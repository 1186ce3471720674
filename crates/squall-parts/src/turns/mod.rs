//! Turns: one thread at a time does something for a key, and the others wait.
//!
//! Problem: several threads find that an entry is absent, and each constructs its value. If that is dear, one
//! of them should construct it while the others wait. Idea: a thread takes the turn of the key. Turns are
//! few, so a short list under a mutex holds them. The lists are spread over stripes.
//!
//! - I1. A key has at most one turn at any time.
//! - I2. Each end of a turn wakes the threads that wait in its stripe.
//!
//! Cost: one mutex, and its stripe's line is written twice. No memory stays when a turn has ended.

#[cfg(all(test, any(loom, squall_model)))]
mod model;

use squall_sys::padded::CachePadded;
use squall_sys::sync::thread::{self, ThreadId};
use squall_sys::sync::weaken::Site;
use squall_sys::sync::{Condvar, Mutex, MutexGuard};

/// A step: the end of a turn wakes the waiting threads.
const WAKE: Site = Site(52);
/// A step: a thread looks for the key's turn again after it was woken.
const LOOK_AGAIN: Site = Site(53);

const STRIPES: usize = if cfg!(loom) { 1 } else { 64 };

/// The turns that threads have at the moment.
///
/// # Example
/// ```
/// use squall::parts::turns::Turns;
///
/// let turns = Turns::new();
/// let turn = turns.take(7).expect("this thread has no turn yet");
/// assert!(turns.take(7).is_none(), "this thread has the turn");
/// assert!(turns.take(8).is_some());
/// drop(turn);
/// assert!(turns.take(7).is_some());
/// ```
pub struct Turns {
    stripes: Box<[CachePadded<Stripe>]>,
}

struct Stripe {
    taken: Mutex<Vec<(u64, ThreadId)>>,
    ended: Condvar,
}

impl Stripe {
    fn lock(&self) -> MutexGuard<'_, Vec<(u64, ThreadId)>> {
        self.taken.lock().expect("a thread panicked while it changed a list of turns")
    }
}

impl Turns {
    /// Makes an empty set of turns.
    pub fn new() -> Turns {
        let stripe = || CachePadded::new(Stripe { taken: Mutex::new(Vec::new()), ended: Condvar::new() });
        Turns { stripes: std::iter::repeat_with(stripe).take(STRIPES).collect() }
    }

    /// Takes the turn of this key, after the turns of other threads. Returns an empty option if the calling
    /// thread has the turn already.
    ///
    /// `key` is a hash of all that identifies the key.
    ///
    /// # Panics
    /// In the child of a fork: the thread that has the turn may not exist there.
    pub fn take(&self, key: u64) -> Option<Turn<'_>> {
        let (stripe, me) = (&*self.stripes[key as usize % self.stripes.len()], thread::current().id());
        assert!(
            !squall_sys::fork::forked(),
            "a thread cannot take its turn: this is the child of a fork, which may only exec"
        );
        let mut taken = stripe.lock();
        while let Some((_, thread)) = taken.iter().find(|(there, _)| *there == key) {
            if *thread == me {
                return None;
            }
            taken = stripe.ended.wait(taken).expect("a thread panicked while it changed a list of turns");
            if LOOK_AGAIN.is_weak() {
                break;
            }
        }
        taken.push((key, me));
        Some(Turn { stripe, key })
    }
}

impl Default for Turns {
    fn default() -> Turns {
        Turns::new()
    }
}

impl std::fmt::Debug for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

/// The turn of a key, which ends when this is dropped.
#[must_use = "the turn ends when this is dropped"]
pub struct Turn<'a> {
    stripe: &'a Stripe,
    key: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if squall_sys::fork::forked() {
            return;
        }
        let mut taken = self.stripe.lock();
        taken.retain(|(key, _)| *key != self.key);
        if taken.is_empty() {
            *taken = Vec::new();
        }
        if !WAKE.is_weak() {
            self.stripe.ended.notify_all();
        }
    }
}

impl std::fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}
