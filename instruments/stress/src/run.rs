//! The common vocabulary of all stresses: a run, its report, its violation, and helpers that every stress
//! uses.

use std::any::Any;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub(crate) use crate::rng::Rng;

/// A stress, as the command line knows it.
pub struct Stress {
    /// The name on the command line.
    pub name: &'static str,
    /// One line for people: the promise under test.
    pub about: &'static str,
    /// Runs the stress until `Run::is_over` or the first violation.
    pub run: fn(&Run) -> Result<Report, Violation>,
    /// Returns the default number of threads. The argument says whether the run uses the real machine.
    pub threads: fn(bool) -> usize,
}

/// Returns twice the number of processors plus one: one thread each, as many to preempt them, and one more.
pub(crate) fn threads_beyond_processors(_real: bool) -> usize {
    2 * squall_bench::env::processors().len() + 1
}

/// The parameters of one run.
pub struct Run {
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    /// Use the real machine, even if the stress would simulate a virtual one.
    pub(crate) real: bool,
    end: Instant,
}

impl Run {
    /// Creates a run that ends after `duration`.
    pub fn new(seed: u64, threads: usize, real: bool, duration: Duration) -> Run {
        Run { seed, threads, real, end: Instant::now() + duration }
    }

    /// Returns whether the time is up.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Returns the random numbers of a stream. A stream is a thread's index or another fixed number.
    pub(crate) fn rng(&self, stream: u64) -> Rng {
        Rng::new(self.seed, stream)
    }
}

/// Names and counts of the work done, in printing order.
pub struct Report(pub Vec<(&'static str, u64)>);

/// A broken promise: the promise and the observation that contradicts it.
#[derive(Debug)]
pub struct Violation(pub String);

/// Locks a mutex and ignores poison: a planned panic leaves the guarded value consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Serializes the stresses in a process, because most of them compare counts of the whole process at their
/// end.
pub(crate) fn exclusive() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    lock(&RUNNING)
}

/// Leaks a value, and keeps it reachable for leak checkers. Deferred calls and stuck threads may outlive
/// their run.
pub(crate) fn leak<T: Any + Sync>(value: T) -> &'static T {
    static LEAKED: Mutex<Vec<&'static (dyn Any + Sync)>> = Mutex::new(Vec::new());
    let value: &'static T = Box::leak(Box::new(value));
    lock(&LEAKED).push(value);
    value
}
