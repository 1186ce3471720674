//! The longest times of all swaps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use squall::swap::SwapReport;

use super::counts::{Stat, count_many};

/// The recorded times, in order.
const NAMES: [&str; 6] = [
    "longest pause, us",
    "longest forward, us",
    "longest block, us",
    "longest transfer, us",
    "longest swap, us",
    "beyond the bound, us",
];

#[derive(Default)]
pub(super) struct SwapTimes([AtomicU64; NAMES.len()]);

impl SwapTimes {
    /// Records the times of a swap and counts the calls that it delayed. `drain` is the bound of its block
    /// phase.
    pub(super) fn record(&self, report: &SwapReport, drain: Duration) {
        count_many(Stat::Forwarded, report.forwarded);
        count_many(Stat::Blocked, report.blocked);
        // The delay that the scheduler adds to the bound.
        let beyond = report.block.saturating_sub(drain);
        let times =
            [report.longest_pause, report.forward, report.block, report.transfer, report.total(), beyond];
        for (longest, time) in self.0.iter().zip(times) {
            longest.fetch_max(time.as_micros() as u64, Ordering::Relaxed);
        }
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.iter().zip(&self.0).map(|(name, us)| (*name, us.load(Ordering::Relaxed)))
    }
}
