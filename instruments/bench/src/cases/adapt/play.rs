//! Threads that call while what they do changes, and what it took of them.
//!
//! - I1. A batch of calls counts for the step in which it began. A batch is some microseconds long, a step some milliseconds.
//! - I2. Time is the processor time of the whole process: the callers' own, and what the policy's thread and the reclaimer took
//!   for them. What another process runs is not in it; nor is the time for which a thread sleeps, or waits for a processor.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, SystemTime};

use crate::cases::swap::crew::crew;
use crate::gate::Gate;
use crate::harness::process_cpu_ns;
use crate::ours_adapt::policy_cpu_ns;

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// The first thread adds, the others have nothing to do.
    OneAdds,
    /// The last one adds.
    LastAdds,
    /// All add.
    AllAdd,
    /// All ask for the sum, but for one call in a hundred, which adds.
    MostlyTotal,
    /// All add to one of many, mostly to a few of them.
    Many,
}

impl Load {
    /// The thread that adds, if it is one alone.
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

/// A span in which the threads do one thing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) load: Load,
    /// That of which it is a piece.
    pub(super) part: usize,
    /// Whether the policy has had the time that it may take.
    pub(super) steady: bool,
    pub(super) length: Duration,
}

/// One thread's way to call.
pub(super) trait Caller {
    /// Calls a few times. Returns how often, and how many of these added one.
    fn batch(&mut self, load: Load) -> (u64, u64);
}

/// What the policies' thread takes in the steady ones of these steps: milliseconds in a second.
pub(super) fn policy_ms_per_s<'a>(steps: impl Iterator<Item = (&'a Step, &'a Stepped)>) -> f64 {
    let steady = steps.filter(|(step, _)| step.steady);
    let (ns, seconds) = steady.fold((0.0, 0.0), |(ns, seconds), (step, stepped)| {
        (ns + stepped.policy_ns as f64, seconds + step.length.as_secs_f64())
    });
    if seconds > 0.0 { ns / 1e6 / seconds } else { 0.0 }
}

/// What came of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stepped {
    pub(super) began: SystemTime,
    pub(super) calls: u64,
    pub(super) cpu_ns: u64,
    /// That part of it which the policies' thread took.
    pub(super) policy_ns: u64,
}

/// What came of all.
pub(super) struct Played {
    pub(super) steps: Vec<Stepped>,
    pub(super) added: u64,
}

struct Stage {
    /// The number of the step.
    now: AtomicUsize,
    /// Held while it is changed.
    change: Mutex<()>,
    changed: Condvar,
}

impl Stage {
    fn change_to(&self, step: usize) {
        let guard = self.change.lock().expect("nobody panics holding it");
        // Relaxed: the number is all there is to see.
        self.now.store(step, Ordering::Relaxed);
        drop(guard);
        self.changed.notify_all();
    }

    /// Sleeps while it is this step.
    fn sleep_through(&self, step: usize) {
        let guard = self.change.lock().expect("nobody panics holding it");
        let is_on = |_: &mut ()| self.now.load(Ordering::Relaxed) == step;
        drop(self.changed.wait_while(guard, is_on).expect("nobody panics holding it"));
    }
}

/// Has so many threads do the steps one after the other. `caller` makes a thread's way to call, in that thread, and what it
/// does to be ready; then all begin together.
pub(super) fn play<C: Caller>(threads: usize, steps: &[Step], caller: impl Fn(usize) -> C + Sync) -> Played {
    let stage = Stage { now: AtomicUsize::new(0), change: Mutex::new(()), changed: Condvar::new() };
    let begin = Gate::new(threads + 1);
    let body = |thread: usize, _: &Gate| {
        let mut caller = caller(thread);
        let (mut calls, mut added) = (vec![0; steps.len()], 0);
        begin.wait();
        loop {
            // Relaxed: the number is all there is to see.
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
    fn each_step_has_the_calls_that_were_made_in_it_by_those_who_call() {
        let step = |load| Step { load, part: 0, steady: true, length: Duration::from_millis(20) };
        let steps = [step(Load::OneAdds), step(Load::AllAdd), step(Load::MostlyTotal)];
        let played = play(3, &steps, Noting);
        assert_eq!(played.steps.len(), 3);
        assert!(played.steps.iter().all(|step| step.calls.is_multiple_of(10)), "{:?}", played.steps);
        assert_eq!(played.added, played.steps[1].calls);
    }

    #[test]
    fn the_last_of_one_thread_is_the_first() {
        assert!(Load::LastAdds.is_for(0, 1) && Load::OneAdds.is_for(0, 1));
        assert!(!Load::LastAdds.is_for(0, 2) && Load::AllAdd.is_for(0, 2));
    }
}
