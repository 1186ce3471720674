#![deny(unsafe_code)]
//! The stresses of `squall stress`: programs that try to break a promise of the library for a given time.
//!
//! - I1. Every random choice of a stress comes from its seed (`Run::rng`). The command printed with a
//!   violation makes the same choices again. The scheduler's choices are not covered, so a replay may need
//!   several runs.
//! - I2. A stress ends at the first violation. Its error states the promise and the observation.
//!
//! Most stresses share a `skeleton`: it starts, moves, pauses and ends the threads, and checks the process
//! at the end. Each stress supplies its world, the actions of its threads and its checks.

mod adapt;
mod alloc;
mod bags;
mod cache;
mod calls;
mod dhash;
pub mod fleets;
mod fork;
mod locks;
mod maps;
mod objects;
mod pager;
mod percpu;
pub mod pools;
mod queue;
mod rcu;
mod rng;
mod run;
mod ship;
mod skeleton;
mod swap;
mod tokens;
mod violations;

use std::time::{SystemTime, UNIX_EPOCH};

pub use calls::{COMMAND as CALLS_CHILD, child as calls_child};
use rng::Rng;
pub use run::{Report, Run, Stress, Violation};

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
    dhash::STRESS,
    fork::STRESS,
    bags::STRESS,
    queue::STRESS,
    pager::STRESS,
    cache::STRESS,
    calls::STRESS,
    fleets::STRESS,
    #[cfg(feature = "net")]
    fleets::hosts::STRESS,
    pools::STRESS,
    #[cfg(feature = "net")]
    pools::ON_HOSTS_STRESS,
    ship::STRESS,
];

/// Returns the command that makes the same choices again, with the settings in force.
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_stress_runs_clean_for_a_moment() {
        for stress in STRESSES {
            let run = Run::new(1, 3, false, Duration::from_millis(200));
            if let Err(Violation(violation)) = (stress.run)(&run) {
                panic!("{}: {violation}", stress.name);
            }
        }
    }

    #[test]
    fn the_replay_command_contains_seed_and_threads() {
        let command = replay("percpu", 5, 42, 7, false);
        assert!(command.ends_with("squall stress percpu --seconds 5 --seed 42 --threads 7"), "{command}");
        assert!(replay("objects", 5, 42, 7, true).ends_with("--threads 7 --real"));
    }
}
