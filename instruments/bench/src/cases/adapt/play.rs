//! Threads that call while their load changes, and the processor time that they take.
//!
//! - I1. A batch of calls counts for the step in which it began. A batch takes some microseconds, a step some
//!   milliseconds.
//! - I2. Time is the processor time of the whole process: the callers' own, and that of the engine's thread
//!   and the reclaimer on their behalf. It excludes other processes, and time in which a thread sleeps or
//!   waits for a processor.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, SystemTime};

use crate::cases::swap::crew::crew;
use crate::gate::Gate;
use crate::harness::process_cpu_ns;
use crate::ours_adapt::policy_cpu_ns;

/// Load of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// The first thread adds, the others sleep.
    OneAdds,
    /// The last thread adds, the others sleep.
    LastAdds,
    /// All add.
    AllAdd,
    /// All ask for the sum, except that one call in a hundred adds.
    MostlyTotal,
    /// All add to one of many counters, mostly to a few of them.
    Many,
}

impl Load {
    /// The thread that adds, if only one does.
    pub(super) fn alone(self, threads: usize) -> Option<usize> {
        match self {
            Load::OneAdds => Some(0),
            Load::LastAdds => Some(threads - 1),
            _ => None,
        }
    }

    pub(super) fn is_for(self, thread: usize, threads: usize) -> bool {
        self.alone(threads).is_none_or(|alone| alone == thread)
    }
}

/// A span with one load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) load: Load,
    /// The part that contains the step.
    pub(super) part: usize,
    /// Whether the time allowed to the policy has passed.
    pub(super) steady: bool,
    pub(super) length: Duration,
}

/// One thread's way to call.
pub(super) trait Caller {
    /// Makes a batch of calls. Returns their number, and the number of those that added one.
    fn batch(&mut self, load: Load) -> (u64, u64);
}

/// Processor time of the engine's thread in the steady ones of these steps, in milliseconds per second.
pub(super) fn policy_ms_per_s<'a>(steps: impl Iterator<Item = (&'a Step, &'a Stepped)>) -> f64 {
    let steady = steps.filter(|(step, _)| step.steady);
    let (ns, seconds) = steady.fold((0.0, 0.0), |(ns, seconds), (step, stepped)| {
        (ns + stepped.policy_ns as f64, seconds + step.length.as_secs_f64())
    });
    if seconds > 0.0 { ns / 1e6 / seconds } else { 0.0 }
}

/// Result of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stepped {
    pub(super) began: SystemTime,
    pub(super) calls: u64,
    pub(super) cpu_ns: u64,
    /// Processor time of the engine's thread in the step.
    pub(super) policy_ns: u64,
}

/// Result of all steps.
pub(super) struct Played {
    pub(super) steps: Vec<Stepped>,
    pub(super) added: u64,
}

struct Stage {
    /// The number of the step.
    now: AtomicUsize,
    /// Held while the step is changed.
    change: Mutex<()>,
    changed: Condvar,
}

impl Stage {
    fn change_to(&self, step: usize) {
        let guard = self.change.lock().expect("a thread panicked under the lock");
        // Relaxed: the number publishes no other data.
        self.now.store(step, Ordering::Relaxed);
        drop(guard);
        self.changed.notify_all();
    }

    /// Sleeps until `step` is over.
    fn sleep_through(&self, step: usize) {
        let guard = self.change.lock().expect("a thread panicked under the lock");
        let is_on = |_: &mut ()| self.now.load(Ordering::Relaxed) == step;
        drop(self.changed.wait_while(guard, is_on).expect("a thread panicked under the lock"));
    }
}

/// Has `threads` threads play the steps one after the other. `caller` makes a thread's caller, on that
/// thread, and prepares it; then all begin together.
pub(super) fn play<C: Caller>(threads: usize, steps: &[Step], caller: impl Fn(usize) -> C + Sync) -> Played {
    let stage = Stage { now: AtomicUsize::new(0), change: Mutex::new(()), changed: Condvar::new() };
    let begin = Gate::new(threads + 1);
    let body = |thread: usize, _: &Gate| {
        let mut caller = caller(thread);
        let (mut calls, mut added) = (vec![0; steps.len()], 0);
        begin.wait();
        loop {
            // Relaxed: the number publishes no other data.
            let now = stage.now.load(Ordering::Relaxed);
            let Some(step) = steps.get(now) else { return (calls, added) };
            if step.load.is_for(thread, threads) {
                let (called, added_now) = caller.batch(step.load);
                calls[now] += called;
                added += added_now;
            } else {
                stage.sleep_through(now);
            }
        }
    };
    let conduct = || {
        begin.wait();
        let mut seen = Vec::with_capacity(steps.len());
        for (number, step) in steps.iter().enumerate() {
            let (began, cpu_ns, policy_ns) = (SystemTime::now(), process_cpu_ns(), policy_cpu_ns());
            if number > 0 {
                stage.change_to(number);
            }
            std::thread::sleep(step.length);
            let (cpu_ns, policy_ns) = (process_cpu_ns() - cpu_ns, policy_cpu_ns() - policy_ns);
            seen.push(Stepped { began, calls: 0, cpu_ns, policy_ns });
        }
        stage.change_to(steps.len());
        seen
    };
    let (all, mut steps) = crew(threads, body, conduct);
    for (calls, _) in &all {
        for (step, calls) in steps.iter_mut().zip(calls) {
            step.calls += calls;
        }
    }
    Played { steps, added: all.iter().map(|(_, added)| added).sum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Noting(usize);

    impl Caller for Noting {
        fn batch(&mut self, load: Load) -> (u64, u64) {
            assert!(load != Load::OneAdds || self.0 == 0);
            (10, u64::from(load == Load::AllAdd) * 10)
        }
    }

    #[test]
    fn each_step_counts_the_calls_of_its_callers() {
        let step = |load| Step { load, part: 0, steady: true, length: Duration::from_millis(20) };
        let steps = [step(Load::OneAdds), step(Load::AllAdd), step(Load::MostlyTotal)];
        let played = play(3, &steps, Noting);
        assert_eq!(played.steps.len(), 3);
        assert!(played.steps.iter().all(|step| step.calls.is_multiple_of(10)), "{:?}", played.steps);
        assert_eq!(played.added, played.steps[1].calls);
    }

    #[test]
    fn a_single_thread_is_first_and_last() {
        assert!(Load::LastAdds.is_for(0, 1) && Load::OneAdds.is_for(0, 1));
        assert!(!Load::LastAdds.is_for(0, 2) && Load::AllAdd.is_for(0, 2));
    }
}
