//! What the threads did.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use squall::swap::SwapReport;

pub(super) use counts::{What, count, count_many};

/// What is counted.
mod counts {
    super::super::super::tally::tally! {
        Calls = "calls",
        Nested = "of these inside others",
        Blocking = "of these blocking",
        Rests = "calls that slept",
        Audits = "exact comparisons",
        Panics = "calls that panicked",
        Stale = "stale calls that erred",
        Refused = "calls refused by arbiters",
        Asked = "swaps asked for",
        Swapped = "swapped",
        TimedOutForward = "timed out in forward",
        TimedOutBlock = "timed out in block",
        TimedOutTransfer = "timed out in transfer",
        Cancelled = "cancelled",
        Failed = "transfers that failed",
        Panicked = "transfers that panicked",
        Destroyed = "destroyed meanwhile",
        Busy = "busy",
        NoFormat = "without common format",
        RefusedThere = "swaps refused where asked",
        Undisturbed = "undisturbed swaps",
        UndisturbedTimedOut = "of these timed out",
        Patient = "with all the time there is",
        Forwarded = "calls forwarded",
        Blocked = "calls blocked",
        Upgrades = "factories upgraded",
        Upgraded = "objects so swapped",
        Attached = "arbiters attached",
        CreatedInside = "objects of methods",
        Created = "objects created",
        DestroyedAll = "objects destroyed",
        DestroyedSwapping = "of these in a swap",
        Duels = "destroyed and called",
        Discards = "tables discarded",
    }
}

/// Times that are noted, in this order: the longest of each.
const TIMES: [&str; 6] = [
    "longest pause, us",
    "longest forward, us",
    "longest block, us",
    "longest transfer, us",
    "longest swap, us",
    "beyond the bound, us",
];

/// What all threads did that have handed in, and the longest times.
#[derive(Default)]
pub(super) struct Tally {
    counts: counts::Tally,
    longest_us: [AtomicU64; TIMES.len()],
}

impl Tally {
    /// Takes over what the calling thread has counted.
    pub(super) fn hand_in(&self) {
        self.counts.hand_in();
    }

    pub(super) fn of(&self, what: What) -> u64 {
        self.counts.of(what)
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

    pub(super) fn lines(&self, elapsed: Duration) -> Vec<(&'static str, u64)> {
        let rate = |what| (self.of(what) as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
        let mut lines = self.counts.lines();
        lines
            .extend(TIMES.iter().zip(&self.longest_us).map(|(name, us)| (*name, us.load(Ordering::Relaxed))));
        lines.extend([("calls per second", rate(What::Calls)), ("swaps per second", rate(What::Swapped))]);
        lines
    }
}
