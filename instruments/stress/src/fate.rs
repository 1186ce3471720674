//! What the callers of an object know of its end, and a door before it that can be closed.
//!
//! - I1. An error that a destruction caused comes after `begin_end`; a call that was made after `mark_gone` must err.
//! - I2. While the door is closed nobody is behind it: who goes in says so before, and looks then whether it is closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::trial::Trial;

/// Whether an object is to end, and has ended.
#[derive(Default)]
pub(crate) struct Fate {
    ending: AtomicBool,
    gone: AtomicBool,
}

impl Fate {
    pub(crate) fn is_ending(&self) -> bool {
        // Acquire: pairs with the release in `begin_end`.
        self.ending.load(Ordering::Acquire)
    }

    /// Its destruction is about to be asked for.
    pub(crate) fn begin_end(&self) {
        // Release: pairs with the acquire in `is_ending`: an error that the destruction caused comes after it.
        self.ending.store(true, Ordering::Release);
    }

    pub(crate) fn is_gone(&self) -> bool {
        // Acquire: pairs with the release in `mark_gone`.
        self.gone.load(Ordering::Acquire)
    }

    /// Its destruction has returned.
    pub(crate) fn mark_gone(&self) {
        // Release: pairs with the acquire in `is_gone`.
        self.gone.store(true, Ordering::Release);
    }
}

/// Of one lane, on lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Inside(AtomicBool);

/// The door, with a lane for each thread that goes through it.
pub(crate) struct Door {
    lanes: Box<[Inside]>,
    closed: AtomicBool,
}

impl Door {
    pub(crate) fn new(lanes: usize) -> Door {
        Door { lanes: (0..lanes).map(|_| Inside::default()).collect(), closed: AtomicBool::new(false) }
    }

    /// Does something behind the door, unless it is closed (I2).
    pub(crate) fn pass(&self, lane: usize, f: impl FnOnce()) {
        let Inside(inside) = &self.lanes[lane];
        // SeqCst: pairs with `close`, which stores and loads the two words in the other order: one of the two sees it.
        inside.store(true, Ordering::SeqCst);
        if !self.closed.load(Ordering::SeqCst) {
            f();
        }
        // Release: pairs with the acquire in `close`.
        inside.store(false, Ordering::Release);
    }

    /// Closes it and waits until nobody is inside; false if the run ends meanwhile.
    pub(crate) fn close(&self, trial: &Trial) -> bool {
        // SeqCst: pairs with `pass`.
        self.closed.store(true, Ordering::SeqCst);
        // Acquire among them: pairs with the release at the end of `pass`.
        while self.lanes.iter().any(|Inside(inside)| inside.load(Ordering::SeqCst)) {
            if trial.is_stopped() {
                return false;
            }
            thread::yield_now();
        }
        true
    }

    pub(crate) fn open(&self) {
        // SeqCst: as in `close`; who passes from here on may.
        self.closed.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_passes_a_closed_door() {
        let (door, trial) = (Door::new(2), Trial::default());
        let passes = |lane| {
            let mut passed = false;
            door.pass(lane, || passed = true);
            passed
        };
        assert!(passes(0) && door.close(&trial) && !passes(0) && !passes(1));
        door.open();
        assert!(passes(1));
        // Who is inside is waited for, until the run ends.
        door.pass(0, || {
            trial.stop();
            assert!(!door.close(&trial));
        });
    }
}
