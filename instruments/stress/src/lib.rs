#![deny(unsafe_code)]
//! `squall stress`: programs that try to break a promise for as long as they are told to.
//!
//! - I1. Every random choice of a stress comes from its seed (`Run::rng`), so that the command printed at a violation
//!   makes the same choices again. The scheduler's choices are not in it: a replay may need several runs.
//! - I2. A stress ends at the first violation, with an error that says what was promised and what was seen.

mod adapt;
mod alloc;
mod ballast;
mod breaks;
mod crew;
mod delay;
mod fate;
mod life;
mod locks;
mod maps;
mod objects;
mod percpu;
mod places;
mod planned;
mod post;
mod rcu;
mod rng;
mod settle;
mod swap;
mod tally;
mod trial;

use std::any::Any;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) use rng::Rng;

/// All stresses.
pub const STRESSES: &[Stress] = &[
    percpu::STRESS,
    percpu::DOWNGRADE,
    rcu::STRESS,
    objects::STRESS,
    swap::STRESS,
    swap::memory::STRESS,
    adapt::STRESS,
    locks::STRESS,
    alloc::STRESS,
    maps::STRESS,
];

/// One stress.
pub struct Stress {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line for people: what is promised and tried.
    pub about: &'static str,
    /// Runs it until `Run::is_over` or the first violation.
    pub run: fn(&Run) -> Result<Report, Violation>,
    /// How many threads it runs with unless told; with `true` on the real machine.
    pub threads: fn(bool) -> usize,
}

/// A thread for each processor, and as many and one to disturb them.
fn threads_beyond_processors(_real: bool) -> usize {
    2 * squall_bench::env::processors().len() + 1
}

/// What a stress is asked to do.
pub struct Run {
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    /// On the real machine, where a stress would otherwise make it a virtual one.
    pub(crate) real: bool,
    end: Instant,
}

impl Run {
    /// Creates a run that ends after `duration`.
    pub fn new(seed: u64, threads: usize, real: bool, duration: Duration) -> Run {
        Run { seed, threads, real, end: Instant::now() + duration }
    }

    /// Whether the time is up.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// The random numbers of stream `stream` (a thread's index, or any other fixed number).
    pub(crate) fn rng(&self, stream: u64) -> Rng {
        Rng::new(self.seed, stream)
    }
}

/// What a stress did: names and counts, printed in this order.
pub struct Report(pub Vec<(&'static str, u64)>);

/// A broken promise.
#[derive(Debug)]
pub struct Violation(pub String);

/// A lock that nobody panics under on purpose; what it guards is whole in any case.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Only one at a time of those stresses that compare, at their end, counts of the whole process.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    lock(&RUNNING)
}

/// Makes a value live for ever, in sight of leak checkers: deferred calls, and threads that stand still, may
/// outlive their run.
pub(crate) fn leak<T: Any + Sync>(value: T) -> &'static T {
    static LEAKED: Mutex<Vec<&'static (dyn Any + Sync)>> = Mutex::new(Vec::new());
    let value: &'static T = Box::leak(Box::new(value));
    lock(&LEAKED).push(value);
    value
}

/// The command that makes the same choices again, with the settings that were in force.
pub fn replay(name: &str, seconds: u64, seed: u64, threads: usize, real: bool) -> String {
    let mut command = String::new();
    for key in [
        "SQUALL_RSEQ",
        "SQUALL_MEMBARRIER",
        "SQUALL_TOPOLOGY",
        "SQUALL_RECLAIMER",
        "SQUALL_ADAPT",
        "SQUALL_STRESS_BREAK",
        "GLIBC_TUNABLES",
    ] {
        if let Ok(value) = std::env::var(key) {
            command += &format!("{key}={value} ");
        }
    }
    let real = if real { " --real" } else { "" };
    command + &format!("squall stress {name} --seconds {seconds} --seed {seed} --threads {threads}{real}")
}

/// Draws a seed from the clock and the process id.
pub fn draw_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    Rng::new(now, u64::from(std::process::id())).next() >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stress_runs_clean_for_a_moment() {
        let _alone = alone();
        for stress in STRESSES {
            let run = Run::new(1, 3, false, Duration::from_millis(200));
            if let Err(Violation(what)) = (stress.run)(&run) {
                panic!("{}: {what}", stress.name);
            }
        }
    }

    #[test]
    fn the_replay_command_carries_seed_and_threads() {
        let command = replay("percpu", 5, 42, 7, false);
        assert!(command.ends_with("squall stress percpu --seconds 5 --seed 42 --threads 7"), "{command}");
        assert!(replay("objects", 5, 42, 7, true).ends_with("--threads 7 --real"));
    }
}
