//! Waiting at a slot: a while awake, then asleep.
//!
//! Problem: a partner on another processor answers in a tenth of the time that a wake-up takes, but a partner
//! on this processor cannot run while this thread spins.
//! Idea: each side writes where it runs. Spin only for a partner elsewhere, and no longer than about one
//! wake-up takes. That costs at most twice the best choice.
//! Source: Gamsa et al. 1999, fn. 17 (TO-20): the caller of a remote call spins before it sleeps.

use squall_machine::park::time_left;
use squall_sys::affinity;
use squall_sys::futex;
use squall_sys::sync::atomic::AtomicU32;
use squall_sys::sync::{hint, thread};
use std::time::{Duration, Instant};

use crate::slot::Sleep;

/// The kernel's way to sleep on a word of shared memory.
pub(crate) struct Kernel;

impl Sleep for Kernel {
    fn sleep(&self, word: &AtomicU32, expected: u32, limit: Option<Duration>) {
        futex::wait_shared(word, expected, limit);
    }

    fn wake(&self, word: &AtomicU32) {
        futex::wake_shared(word, 1);
    }
}

/// Default time to spin for a partner on another processor: about the time of a wake-up there.
pub const SPIN: Duration = Duration::from_micros(50);

/// The time that `partner` is worth spinning for, if it last ran on this processor.
pub fn spin_for(partner: Option<usize>, spin: Duration) -> Duration {
    match partner {
        Some(processor) if processor != affinity::current_cpu() => spin,
        _ => Duration::ZERO,
    }
}

/// Looks until `found` returns true, or `time` passes. Returns whether it was found.
pub fn spin(time: Duration, mut found: impl FnMut() -> bool) -> bool {
    if found() {
        return true;
    }
    if time.is_zero() {
        return false;
    }
    let start = Instant::now();
    loop {
        for _ in 0..32 {
            hint::spin_loop();
            if found() {
                return true;
            }
        }
        if start.elapsed() >= time {
            return false;
        }
    }
}

/// Pauses between attempts: the first one of a millisecond, and each further one twice as long, up to the
/// longest.
pub(crate) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    pub(crate) fn up_to(longest: Duration) -> Pauses {
        Pauses { next: Duration::from_millis(1), longest }
    }

    /// Sleeps for the next pause, or until `deadline`.
    pub(crate) fn sleep(&mut self, deadline: Option<Instant>) {
        thread::sleep(time_left(deadline).map_or(self.next, |left| left.min(self.next)));
        self.next = (self.next * 2).min(self.longest);
    }
}
