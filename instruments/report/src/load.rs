//! Foreign load: time that other programs took from the processors.

use std::fs;
use std::time::Instant;

use rustix::param::clock_ticks_per_second;

/// Measures the foreign load from its creation on.
pub(crate) struct Watch {
    began: Instant,
    all: f64,
    own: f64,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch { began: Instant::now(), all: busy_seconds(), own: own_seconds() }
    }

    /// Part of all processors' time that others took, from 0 to 1.
    pub(crate) fn foreign(&self) -> f64 {
        let processors = squall_bench::env::processors().len() as f64;
        let taken = (busy_seconds() - self.all) - (own_seconds() - self.own);
        (taken / (self.began.elapsed().as_secs_f64() * processors)).clamp(0.0, 1.0)
    }
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / clock_ticks_per_second() as f64
}

/// Busy time of all processors, and time that a hypervisor kept from them.
fn busy_seconds() -> f64 {
    busy_ticks(&fs::read_to_string("/proc/stat").unwrap_or_default()).map_or(0.0, seconds)
}

/// Processor time of this process and of its children that have ended.
fn own_seconds() -> f64 {
    own_ticks(&fs::read_to_string("/proc/self/stat").unwrap_or_default()).map_or(0.0, seconds)
}

/// `cpu user nice system idle iowait irq softirq steal …`
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let at = |index: usize| ticks.get(index).copied();
    Some(at(0)? + at(1)? + at(2)? + at(5)? + at(6)? + at(7).unwrap_or(0))
}

/// Fields 14 to 17: user and system time of the process, then of its children. The name in field 2 may
/// contain spaces and parentheses.
fn own_ticks(stat: &str) -> Option<u64> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().skip(11).take(4).map(|word| word.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_from_the_kernel_s_texts() {
        assert_eq!(busy_ticks("cpu  100 20 30 4000 50 6 7 8 0 0\ncpu0 1 1 1 1\n"), Some(171));
        assert_eq!(busy_ticks("intr 5\n"), None);
        let stat = "77 (a ) b) S 1 77 77 0 -1 4194560 100 200 0 0 11 22 33 44 20 0 1 0 5 6 7";
        assert_eq!(own_ticks(stat), Some(110));
        assert_eq!(own_ticks(""), None);
    }
}
