//! The trial of a library by a torture: who has accused it, whether the run goes on, and the gate where all threads stop
//! together before their next step.
//!
//! - I1. The first accusation is the one that counts: it ends the run, and what comes after it may be its consequence.
//! - I2. A run that ends is not paused: nobody is left at the gate. A pause that begins meanwhile is ended by who began
//!   it (the crew alone begins pauses).
//!
//! A thread that passes the gate loads two words that nobody writes meanwhile, and stores none: a gate that was a fence
//! would hide a missing one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;

use super::lock;

#[derive(Default)]
pub(crate) struct Trial {
    accusation: Mutex<Option<String>>,
    stopped: AtomicBool,
    /// What says whether all pause is `pause`; this is where to look before taking that lock.
    paused: AtomicBool,
    pause: Mutex<bool>,
    resumed: Condvar,
}

impl Trial {
    /// Ends the run with this accusation, if it is the first (I1).
    pub(crate) fn accuse(&self, what: String) {
        let thread = thread::current();
        let name = thread.name().unwrap_or("without a name");
        lock(&self.accusation).get_or_insert_with(|| format!("thread {name}: {what}"));
        self.stop();
    }

    pub(crate) fn accusation(&self) -> Option<String> {
        lock(&self.accusation).clone()
    }

    /// Ends the run, and a pause.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.set_paused(false);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Stutter: all threads stop before their next step, outside every operation, and go on together.
    pub(crate) fn set_paused(&self, paused: bool) {
        *lock(&self.pause) = paused;
        self.paused.store(paused, Ordering::Relaxed);
        self.resumed.notify_all();
    }

    /// Waits while all pause. Returns whether the run goes on.
    pub(crate) fn gate(&self) -> bool {
        if self.paused.load(Ordering::Relaxed) {
            let paused = lock(&self.pause);
            let paused = self.resumed.wait_while(paused, |paused| *paused);
            drop(paused.unwrap_or_else(|poison| poison.into_inner()));
        }
        !self.is_stopped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_accusation_counts_and_names_its_thread() {
        let trial = Trial::default();
        assert!(trial.gate() && trial.accusation().is_none());
        thread::scope(|scope| {
            let accuser = thread::Builder::new().name("accuser".to_owned());
            accuser
                .spawn_scoped(scope, || trial.accuse("one".to_owned()))
                .expect("a thread")
                .join()
                .expect("it ends");
        });
        trial.accuse("two".to_owned());
        assert_eq!(trial.accusation().as_deref(), Some("thread accuser: one"));
        assert!(trial.is_stopped() && !trial.gate());
    }

    #[test]
    fn who_waits_at_the_gate_goes_on_with_the_others_and_ends_with_the_run() {
        let trial = Trial::default();
        for (end, goes_on) in [(false, true), (true, false)] {
            trial.set_paused(true);
            let passed = AtomicBool::new(false);
            thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    let goes_on = trial.gate();
                    passed.store(true, Ordering::Relaxed);
                    goes_on
                });
                (0..100).for_each(|_| thread::yield_now());
                assert!(!passed.load(Ordering::Relaxed), "the gate is closed");
                if end {
                    trial.stop()
                } else {
                    trial.set_paused(false)
                }
                assert_eq!(waits.join().expect("it does not panic"), goes_on);
            });
        }
    }
}
