//! Foreign load: time that other programs took from the processors.

use std::fs;
use std::time::Instant;

use squall_bench::{TICK_NS, busy_ticks, env};

/// Measures the foreign load from its creation on.
pub(crate) struct Watch {
    processors: Vec<usize>,
    began: Instant,
    foreign_ticks: u64,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        let processors = env::processors();
        Watch { foreign_ticks: foreign_ticks(&processors), processors, began: Instant::now() }
    }

    /// Part of the processors' time that others took, from 0 to 1.
    pub(crate) fn foreign(&self) -> f64 {
        let taken = foreign_ticks(&self.processors).saturating_sub(self.foreign_ticks) as f64 * TICK_NS;
        let all = self.began.elapsed().as_nanos() as f64 * self.processors.len() as f64;
        (taken / all).clamp(0.0, 1.0)
    }
}

/// Ticks in which the processors were busy or stolen, without those of this process and of its ended
/// children.
fn foreign_ticks(processors: &[usize]) -> u64 {
    let own = own_ticks(&fs::read_to_string("/proc/self/stat").unwrap_or_default());
    busy_ticks(processors).zip(own).map_or(0, |(busy, own)| busy.saturating_sub(own))
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
    fn own_ticks_are_read_from_the_kernel_s_text() {
        let stat = "77 (a ) b) S 1 77 77 0 -1 4194560 100 200 0 0 11 22 33 44 20 0 1 0 5 6 7";
        assert_eq!(own_ticks(stat), Some(110));
        assert_eq!(own_ticks(""), None);
    }
}
