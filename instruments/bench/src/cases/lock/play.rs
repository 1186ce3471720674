//! Threads that contend for one lock while their number and their load change.
//!
//! - I1. An acquisition counts for the step in which it ended. Each thread publishes its count after each
//!   acquisition, and the conductor reads all counts when a step begins and ends. So the end of a step is
//!   exact, even if the lock is unfair.
//! - I2. The word under the lock equals the counted acquisitions. Otherwise two threads were inside at once.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::waits::Waits;
use super::work::{Turns, work};
use crate::cases::swap::crew::crew;
use crate::gate::Gate;
use crate::rivals::locks::Exclusive;

/// One acquisition in this many is timed: a power of two.
const CLOCKED_ONE_IN: u64 = 16;
/// Acquisitions between two checks of the step, if the section is empty.
const FREE_BATCH: u64 = 512;
/// A reading of all counts that takes longer is repeated a few times at most: the reading thread was
/// preempted.
const READING_MAX: Duration = Duration::from_micros(20);
const READINGS_MAX: u32 = 20;

/// The loop of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// The first `threads` threads take part.
    pub(super) threads: usize,
    /// Work with the lock held.
    pub(super) inside: Turns,
    /// Work between two acquisitions.
    pub(super) outside: Turns,
}

/// A span of one load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) load: Load,
    pub(super) length: Duration,
}

/// Result of a step.
#[derive(Clone)]
pub(super) struct Stepped {
    pub(super) wall_ns: f64,
    /// Acquisitions of each thread that took part.
    pub(super) served: Vec<u64>,
    /// Waits of the timed acquisitions.
    pub(super) waits: Waits,
}

/// State shared by all threads.
struct Stage {
    /// The number of the step.
    now: CachePadded<AtomicUsize>,
    /// Held while the step is changed.
    change: Mutex<()>,
    changed: Condvar,
    /// Acquisitions so far, of each thread.
    served: Vec<CachePadded<AtomicU64>>,
}

impl Stage {
    fn new(threads: usize) -> Stage {
        Stage {
            now: CachePadded::new(AtomicUsize::new(0)),
            change: Mutex::new(()),
            changed: Condvar::new(),
            served: (0..threads).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
        }
    }

    #[inline(always)]
    fn is_on(&self, step: usize) -> bool {
        // Relaxed: the number publishes no other data.
        self.now.load(Ordering::Relaxed) == step
    }

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
        let is_on = |_: &mut ()| self.is_on(step);
        drop(self.changed.wait_while(guard, is_on).expect("a thread panicked under the lock"));
    }

    fn read(&self) -> (Instant, Vec<u64>) {
        let mut readings = 0;
        loop {
            let at = Instant::now();
            // Relaxed: the counts are independent, and all are read again after the threads have ended.
            let served = self.served.iter().map(|count| count.load(Ordering::Relaxed)).collect();
            readings += 1;
            if at.elapsed() <= READING_MAX || readings == READINGS_MAX {
                return (at, served);
            }
        }
    }
}

/// Has threads play the steps one after the other, with one lock.
pub(super) fn play<L: Exclusive>(lock: &L, steps: &[Step]) -> Result<Vec<Stepped>, String> {
    let threads = steps.iter().map(|step| step.load.threads).max().unwrap_or(0);
    let stage = Stage::new(threads);
    let begin = Gate::new(threads + 1);
    let before = lock.with(|word| *word);
    let body = |thread: usize, _: &Gate| {
        let mut waits: Vec<Waits> = steps.iter().map(|_| Waits::new()).collect();
        let mut sum = 0;
        let mut served = 0;
        begin.wait();
        loop {
            // Relaxed: the number publishes no other data.
            let now = stage.now.load(Ordering::Relaxed);
            let Some(step) = steps.get(now) else { return (waits, sum) };
            if thread >= step.load.threads {
                stage.sleep_through(now);
            } else if step.load.inside.is_none() {
                served = free(lock, &stage, now, thread, served);
            } else {
                let since = served;
                served = fight(lock, step.load, &mut waits[now], (&stage, now, thread), served);
                sum += served - since;
            }
        }
    };
    let conduct = || {
        begin.wait();
        conduct(&stage, steps)
    };
    let (all, mut stepped) = crew(threads, body, conduct);
    for (waits, _) in &all {
        stepped.iter_mut().zip(waits).for_each(|(step, waits)| step.waits.merge(waits));
    }
    let (counted, sum) =
        (lock.with(|word| *word).wrapping_sub(before), all.iter().map(|(_, sum)| sum).sum::<u64>());
    if counted == sum { Ok(stepped) } else { Err(format!("{counted} counted in {sum} sections")) }
}

fn conduct(stage: &Stage, steps: &[Step]) -> Vec<Stepped> {
    let mut before = stage.read();
    let mut stepped = Vec::with_capacity(steps.len());
    for (number, step) in steps.iter().enumerate() {
        std::thread::sleep(step.length);
        let after = stage.read();
        stage.change_to(number + 1);
        let served = before.1.iter().zip(&after.1).map(|(before, after)| after - before);
        stepped.push(Stepped {
            wall_ns: (after.0 - before.0).as_nanos() as f64,
            served: served.take(step.load.threads).collect(),
            waits: Waits::new(),
        });
        before = after;
    }
    stepped
}

/// Takes and releases the lock until the step is over. Returns the thread's count.
#[inline(never)]
fn free<L: Exclusive>(lock: &L, stage: &Stage, now: usize, thread: usize, mut served: u64) -> u64 {
    while stage.is_on(now) {
        acquire_and_release(lock, FREE_BATCH);
        served += FREE_BATCH;
        // Relaxed: I1 needs no more than the count.
        stage.served[thread].store(served, Ordering::Relaxed);
    }
    served
}

/// Takes and releases the lock `count` times.
#[inline(always)]
pub(super) fn acquire_and_release<L: Exclusive>(lock: &L, count: u64) {
    for _ in 0..count {
        std::hint::black_box(lock).with(|word| {
            std::hint::black_box(word);
        });
    }
}

/// Works inside and outside until the step is over. Returns the thread's count.
#[inline(never)]
fn fight<L: Exclusive>(
    lock: &L,
    load: Load,
    waits: &mut Waits,
    (stage, now, thread): (&Stage, usize, usize),
    mut served: u64,
) -> u64 {
    while stage.is_on(now) {
        if served.is_multiple_of(CLOCKED_ONE_IN) {
            let began = Instant::now();
            let waited = lock.with(|word| {
                let waited = began.elapsed();
                section(word, load.inside);
                waited
            });
            waits.add(waited);
        } else {
            lock.with(|word| section(word, load.inside));
        }
        served += 1;
        // Relaxed: I1 needs no more than the count.
        stage.served[thread].store(served, Ordering::Relaxed);
        work(load.outside);
    }
    served
}

/// Work done with the lock held.
#[inline(always)]
pub(super) fn section(word: &mut u64, inside: Turns) {
    let before = *word;
    work(inside);
    *word = before.wrapping_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> [Step; 3] {
        let load = |threads| Load {
            threads,
            inside: Turns::nominal(Duration::from_nanos(200)),
            outside: Turns::NONE,
        };
        let step = |load| Step { load, length: Duration::from_millis(20) };
        [step(load(1)), step(load(3)), step(Load { inside: Turns::NONE, ..load(1) })]
    }

    #[test]
    fn each_step_counts_the_work_of_its_threads() {
        let stepped = play(&std::sync::Mutex::new(0), &steps()).expect("std's lock excludes");
        assert_eq!(stepped.iter().map(|step| step.served.len()).collect::<Vec<_>>(), [1, 3, 1]);
        assert!(stepped.iter().all(|step| step.served.iter().sum::<u64>() > 0));
        // The step without work is not timed.
        let clocked = stepped.iter().map(|step| step.waits.quantile_ns(0.5).is_some());
        assert_eq!(clocked.collect::<Vec<_>>(), [true, true, false]);
    }

    /// A lock that excludes no thread: each section reads the word and writes one more.
    struct Open(AtomicU64);

    impl Exclusive for Open {
        fn new() -> Self {
            Open(AtomicU64::new(0))
        }

        fn with<R>(&self, section: impl FnOnce(&mut u64) -> R) -> R {
            let mut word = self.0.load(Ordering::Relaxed);
            std::thread::yield_now();
            let result = section(&mut word);
            std::thread::yield_now();
            self.0.store(word, Ordering::Relaxed);
            result
        }
    }

    #[test]
    fn a_lock_without_exclusion_fails_the_check() {
        assert!(play(&Open::new(), &steps()).is_err());
    }
}
