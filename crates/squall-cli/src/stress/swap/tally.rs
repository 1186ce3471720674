//! What the threads did, counted by each for itself: a shared counter would be a fence where one must not be.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use squall::swap::SwapReport;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Calls,
    Nested,
    Blocking,
    Rests,
    Audits,
    Panics,
    Stale,
    Refused,
    Asked,
    Swapped,
    TimedOutForward,
    TimedOutBlock,
    TimedOutTransfer,
    Cancelled,
    Failed,
    Panicked,
    Destroyed,
    Busy,
    NoFormat,
    RefusedThere,
    Undisturbed,
    UndisturbedTimedOut,
    Patient,
    Forwarded,
    Blocked,
    Upgrades,
    Upgraded,
    Attached,
    CreatedInside,
    Created,
    DestroyedAll,
    DestroyedSwapping,
    Duels,
    Discards,
}

const NAMES: [(What, &str); COUNT] = [
    (What::Calls, "calls"),
    (What::Nested, "of these inside others"),
    (What::Blocking, "of these blocking"),
    (What::Rests, "calls that slept"),
    (What::Audits, "exact comparisons"),
    (What::Panics, "calls that panicked"),
    (What::Stale, "stale calls that erred"),
    (What::Refused, "calls refused by arbiters"),
    (What::Asked, "swaps asked for"),
    (What::Swapped, "swapped"),
    (What::TimedOutForward, "timed out in forward"),
    (What::TimedOutBlock, "timed out in block"),
    (What::TimedOutTransfer, "timed out in transfer"),
    (What::Cancelled, "cancelled"),
    (What::Failed, "transfers that failed"),
    (What::Panicked, "transfers that panicked"),
    (What::Destroyed, "destroyed meanwhile"),
    (What::Busy, "busy"),
    (What::NoFormat, "without common format"),
    (What::RefusedThere, "swaps refused where asked"),
    (What::Undisturbed, "undisturbed swaps"),
    (What::UndisturbedTimedOut, "of these timed out"),
    (What::Patient, "with all the time there is"),
    (What::Forwarded, "calls forwarded"),
    (What::Blocked, "calls blocked"),
    (What::Upgrades, "factories upgraded"),
    (What::Upgraded, "objects so swapped"),
    (What::Attached, "arbiters attached"),
    (What::CreatedInside, "objects of methods"),
    (What::Created, "objects created"),
    (What::DestroyedAll, "objects destroyed"),
    (What::DestroyedSwapping, "of these in a swap"),
    (What::Duels, "destroyed and called"),
    (What::Discards, "tables discarded"),
];
const COUNT: usize = 34;

/// Times that are noted, in this order: the longest of each.
const TIMES: [&str; 6] = [
    "longest pause, us",
    "longest forward, us",
    "longest block, us",
    "longest transfer, us",
    "longest swap, us",
    "beyond the bound, us",
];

thread_local! {
    static MINE: [Cell<u64>; COUNT] = const { [const { Cell::new(0) }; COUNT] };
}

/// What all threads did that have handed in.
pub(super) struct Tally {
    counts: [AtomicU64; COUNT],
    longest_us: [AtomicU64; TIMES.len()],
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { counts: [const { AtomicU64::new(0) }; COUNT], longest_us: Default::default() }
    }
}

/// One more of these, by the calling thread.
pub(super) fn count(what: What) {
    count_many(what, 1);
}

pub(super) fn count_many(what: What, more: u64) {
    MINE.with(|mine| mine[what as usize].set(mine[what as usize].get() + more));
}

impl Tally {
    /// Takes over what the calling thread has counted.
    pub(super) fn hand_in(&self) {
        MINE.with(|mine| {
            for (all, mine) in self.counts.iter().zip(mine) {
                all.fetch_add(mine.take(), Ordering::Relaxed);
            }
        });
    }

    /// How long a swap took, and those that it held up.
    pub(super) fn note(&self, report: &SwapReport, drain: Duration) {
        count_many(What::Forwarded, report.forwarded);
        count_many(What::Blocked, report.blocked);
        // What the scheduler adds to the bound of the phase.
        let beyond = report.block.saturating_sub(drain);
        let times =
            [report.longest_pause, report.forward, report.block, report.transfer, report.total(), beyond];
        for (longest, time) in self.longest_us.iter().zip(times) {
            longest.fetch_max(time.as_micros() as u64, Ordering::Relaxed);
        }
    }

    pub(super) fn of(&self, what: What) -> u64 {
        self.counts[what as usize].load(Ordering::Relaxed)
    }

    pub(super) fn lines(&self, elapsed: Duration) -> Vec<(&'static str, u64)> {
        let rate = |what| (self.of(what) as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
        let mut lines: Vec<_> = NAMES.iter().map(|(what, name)| (*name, self.of(*what))).collect();
        lines
            .extend(TIMES.iter().zip(&self.longest_us).map(|(name, us)| (*name, us.load(Ordering::Relaxed))));
        lines.extend([("calls per second", rate(What::Calls)), ("swaps per second", rate(What::Swapped))]);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_its_place() {
        assert!(NAMES.iter().enumerate().all(|(index, (what, _))| *what as usize == index));
    }
}
