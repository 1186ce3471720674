//! Threads that use one map while their load changes, and the time that they take.
//!
//! - I1. A batch of operations counts for the step in which it began. A batch takes some microseconds, a step
//!   some milliseconds.
//! - I2. A step's time is the processor time of the whole process, the engine and the reclaimer included. If
//!   each thread has its own processor, time asleep with work left is added: a thread that waits for a lock
//!   loses that time too.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::keys::Key;
use super::hand::{Deck, Hand, Load};
use crate::cases::swap::crew::{crew, fit, run_queue_us};
use crate::gate::Gate;
use crate::harness::process_cpu_ns;
use crate::ours_adapt::policy_cpu_ns;
use crate::rivals::maps::Mapping;
use crate::uncounted::thread_cpu_ns;

/// A span with one load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) load: Load,
    /// Whether it belongs to the phase, and not to the load before.
    pub(super) of_phase: bool,
    /// Whether it is timed.
    pub(super) timed: bool,
    /// Length, for loads without an end of their own.
    pub(super) length: Duration,
}

/// Result of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stepped {
    pub(super) began: SystemTime,
    pub(super) calls: u64,
    pub(super) ns: f64,
    /// Processor time of the engine's thread in the step, and the step's length.
    pub(super) policy_ns: u64,
    pub(super) length: Duration,
}

#[derive(Default)]
struct Now {
    step: usize,
    /// Threads without remaining work in the step.
    done: usize,
}

#[derive(Default)]
struct Stage {
    /// The number of the step, checked between batches.
    step: AtomicUsize,
    now: Mutex<Now>,
    changed: Condvar,
}

impl Stage {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().expect("a thread panicked under the lock")
    }

    fn change_to(&self, step: usize) {
        let mut now = self.now();
        *now = Now { step, done: 0 };
        // Relaxed: the number publishes no other data.
        self.step.store(step, Ordering::Relaxed);
        drop(now);
        self.changed.notify_all();
    }

    /// Sleeps until `step` is over. `is_done` first reports that the thread has no work left.
    fn sleep_through(&self, step: usize, is_done: bool) {
        let mut now = self.now();
        if is_done && now.step == step {
            now.done += 1;
            self.changed.notify_all();
        }
        drop(self.changed.wait_while(now, |now| now.step == step).expect("a thread panicked under the lock"));
    }

    fn await_done(&self, threads: usize) {
        drop(
            self.changed
                .wait_while(self.now(), |now| now.done < threads)
                .expect("a thread panicked under the lock"),
        );
    }
}

/// Measures the sleep of the calling thread.
struct Sleep {
    began: Instant,
    busy_ns: f64,
}

impl Sleep {
    fn busy_ns() -> f64 {
        thread_cpu_ns() as f64 + run_queue_us() * 1e3
    }

    fn begin() -> Sleep {
        Sleep { began: Instant::now(), busy_ns: Sleep::busy_ns() }
    }

    fn ns(&self) -> f64 {
        (self.began.elapsed().as_nanos() as f64 - (Sleep::busy_ns() - self.busy_ns)).max(0.0)
    }
}

/// Work of a thread in a step.
#[derive(Clone, Copy, Default)]
struct Did {
    calls: u64,
    slept_ns: f64,
}

/// Has each hand play the steps one after the other.
pub(super) fn play<K: Key, M: Mapping<K>>(
    map: &M,
    deck: &Deck<K>,
    hands: &mut Vec<Hand>,
    steps: &[Step],
) -> Vec<Stepped> {
    let threads = hands.len();
    let (stage, begin) = (Stage::default(), Gate::new(threads + 1));
    let places: Vec<Mutex<Option<Hand>>> = hands.drain(..).map(|hand| Mutex::new(Some(hand))).collect();
    let body = |thread: usize, _: &Gate| {
        let mut hand = places[thread]
            .lock()
            .expect("a thread panicked under the lock")
            .take()
            .expect("the hand of a thread was taken twice");
        let mut did = vec![Did::default(); steps.len()];
        begin.wait();
        loop {
            // Relaxed: the number publishes no other data.
            let number = stage.step.load(Ordering::Relaxed);
            let Some(Step { load, .. }) = steps.get(number) else { return (hand, did) };
            if !load.is_for(thread) {
                stage.sleep_through(number, true);
                continue;
            }
            let sleep = Sleep::begin();
            let mut is_done = false;
            while !is_done && stage.step.load(Ordering::Relaxed) == number {
                let calls = hand.batch(*load, map, deck);
                did[number].calls += calls;
                is_done = calls == 0;
            }
            did[number].slept_ns = sleep.ns();
            stage.sleep_through(number, is_done);
        }
    };
    let conduct = || {
        begin.wait();
        let mut seen = Vec::with_capacity(steps.len());
        for (number, step) in steps.iter().enumerate() {
            let (began, clock) = (SystemTime::now(), Instant::now());
            let (cpu_ns, policy_ns) = (process_cpu_ns(), policy_cpu_ns());
            if number > 0 {
                stage.change_to(number);
            }
            if step.load.ends() {
                stage.await_done(threads)
            } else {
                std::thread::sleep(step.length)
            }
            let ns = (process_cpu_ns() - cpu_ns) as f64;
            let policy_ns = policy_cpu_ns() - policy_ns;
            seen.push(Stepped { began, calls: 0, ns, policy_ns, length: clock.elapsed() });
        }
        stage.change_to(steps.len());
        seen
    };
    let (all, mut seen) = crew(threads, body, conduct);
    for (hand, did) in all {
        hands.push(hand);
        for (stepped, did) in seen.iter_mut().zip(did) {
            stepped.calls += did.calls;
            stepped.ns += if fit(threads) { did.slept_ns } else { 0.0 };
        }
    }
    seen
}
