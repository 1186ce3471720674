//! The rows of the comparison: who keeps the statistics, the laps, and their check.

use std::time::Duration;

use squall::Id;

use super::race::Lap;
use super::stats::Totals;
use crate::output::Failure;

/// The keeper of the statistics in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeper {
    Nobody,
    Mutex,
    Atomic,
    Shared,
    Distributed,
    Adaptive,
}

pub(super) const KEEPERS: [(Keeper, &str); 6] = [
    (Keeper::Nobody, "none: reading only"),
    (Keeper::Mutex, "Arc<dyn>, a Mutex"),
    (Keeper::Atomic, "Arc<dyn>, atomics"),
    (Keeper::Shared, "Squall, shared"),
    (Keeper::Distributed, "Squall, distributed"),
    (Keeper::Adaptive, "Squall, adaptive"),
];

/// Figures about an object at the end of a lap.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Anatomy {
    pub(super) misses: u64,
    pub(super) reps: usize,
    pub(super) bytes: usize,
}

impl Anatomy {
    /// Adds the figures of a live object.
    pub(super) fn plus(self, id: Id) -> Result<Anatomy, Failure> {
        let info = squall::info_of(id)
            .ok_or_else(|| Failure::new(format!("object {id} is alive but has no information")))?;
        Ok(Anatomy {
            misses: self.misses + info.misses,
            reps: self.reps + info.reps.len(),
            bytes: self.bytes + info.bytes,
        })
    }
}

/// All laps of one row.
pub(super) struct Row {
    pub(super) keeper: Keeper,
    pub(super) name: &'static str,
    pub(super) laps: Vec<Lap>,
    pub(super) anatomy: Option<Anatomy>,
    pub(super) by_thread: Vec<Totals>,
    /// Description of the first difference in a lap, if any.
    pub(super) wrong: Option<String>,
}

impl Row {
    /// Returns the median of the laps.
    pub(super) fn time(&self) -> Duration {
        let mut times: Vec<Duration> = self.laps.iter().map(|lap| lap.time).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }

    pub(super) fn calls(&self) -> u64 {
        self.laps.last().map_or(0, |lap| lap.calls)
    }

    /// Returns the calls of all threads per second.
    pub(super) fn calls_per_second(&self) -> f64 {
        self.calls() as f64 / self.time().as_secs_f64().max(1e-9)
    }

    /// Compares the kept totals with the truth (`count/I1`).
    pub(super) fn judge(&mut self, lap: &Lap, totals: &Totals, by_thread: &[Totals], truth: &Totals) {
        let calls = truth.words + truth.lines + truth.files;
        let sum = by_thread.iter().fold(Totals::default(), Totals::plus);
        if totals != truth {
            self.wrong.get_or_insert(format!("the totals are {totals:?}, not {truth:?}"));
        } else if sum != *truth {
            self.wrong.get_or_insert(format!("the sum over the threads is {sum:?}, not {truth:?}"));
        } else if lap.calls != calls {
            self.wrong.get_or_insert(format!("{} calls were made, not {calls}", lap.calls));
        }
    }
}
