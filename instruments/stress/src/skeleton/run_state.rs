//! The state of a run that its threads watch: the first violation, whether the run is over, and whether it is
//! paused.
//!
//! - I1. The first violation counts and ends the run. Later ones may be its consequences.
//! - I2. A run that ends is not paused: no thread stays at a checkpoint. Only the supervisor begins pauses.
//!   If a run ends while the supervisor begins a pause, the supervisor ends that pause.
//!
//! A thread that passes a checkpoint loads two words that are rarely written, and stores none. A checkpoint
//! with a fence would hide a missing one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;

use crate::run::lock;

#[derive(Default)]
pub(crate) struct RunState {
    violation: Mutex<Option<String>>,
    stopped: AtomicBool,
    /// A hint to check before taking the lock of `pause`, which decides.
    paused: AtomicBool,
    pause: Mutex<bool>,
    resumed: Condvar,
}

impl RunState {
    /// Records a violation if it is the first, and ends the run (I1).
    pub(crate) fn fail(&self, what: String) {
        let thread = thread::current();
        let name = thread.name().unwrap_or("without a name");
        lock(&self.violation).get_or_insert_with(|| format!("thread {name}: {what}"));
        self.stop();
    }

    pub(crate) fn violation(&self) -> Option<String> {
        lock(&self.violation).clone()
    }

    /// Ends the run and a pause.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.set_paused(false);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Stops all threads at their next checkpoint, outside every operation, or lets them continue together.
    pub(crate) fn set_paused(&self, paused: bool) {
        *lock(&self.pause) = paused;
        self.paused.store(paused, Ordering::Relaxed);
        self.resumed.notify_all();
    }

    /// Waits while the run is paused. Returns whether the run goes on.
    pub(crate) fn checkpoint(&self) -> bool {
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
    fn the_first_violation_counts_and_names_its_thread() {
        let run_state = RunState::default();
        assert!(run_state.checkpoint() && run_state.violation().is_none());
        thread::scope(|scope| {
            let finder = thread::Builder::new().name("finder".to_owned());
            finder
                .spawn_scoped(scope, || run_state.fail("one".to_owned()))
                .expect("a thread")
                .join()
                .expect("no panic");
        });
        run_state.fail("two".to_owned());
        assert_eq!(run_state.violation().as_deref(), Some("thread finder: one"));
        assert!(run_state.is_stopped() && !run_state.checkpoint());
    }

    #[test]
    fn a_thread_at_a_checkpoint_continues_after_the_pause_and_ends_with_the_run() {
        let run_state = RunState::default();
        for (end, goes_on) in [(false, true), (true, false)] {
            run_state.set_paused(true);
            let passed = AtomicBool::new(false);
            thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    let goes_on = run_state.checkpoint();
                    passed.store(true, Ordering::Relaxed);
                    goes_on
                });
                (0..100).for_each(|_| thread::yield_now());
                assert!(!passed.load(Ordering::Relaxed), "the run is paused");
                if end {
                    run_state.stop()
                } else {
                    run_state.set_paused(false)
                }
                assert_eq!(waits.join().expect("no panic"), goes_on);
            });
        }
    }
}
