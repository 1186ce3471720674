//! Collects the observations of many swaps and turns them into metrics.

use std::time::Duration;

use crate::harness::quantile;
use crate::report::HISTOGRAM;
use crate::work::replace::Replaced;

/// Observations of many swaps.
#[derive(Default)]
pub(in crate::cases) struct Swaps {
    /// Durations of the successful swaps, by the requesting thread's clock.
    pub(in crate::cases) us: Vec<f64>,
    phases_us: [Vec<f64>; 6],
    pub(in crate::cases) pauses_us: Vec<f64>,
    pub(in crate::cases) forwarded: u64,
    pub(in crate::cases) blocked: u64,
    pub(in crate::cases) bytes_moved: usize,
    pub(in crate::cases) failed: u64,
}

/// The last one covers the time outside a report: making the new object and retiring the old one.
const PHASES: [&str; 6] = ["attach", "forward", "block", "transfer", "complete", "beyond"];

pub(in crate::cases) fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

impl Swaps {
    pub(in crate::cases) fn note(&mut self, took: Duration, replaced: &Replaced) {
        if !replaced.done {
            self.failed += 1;
            return;
        }
        self.us.push(us(took));
        if let Some(report) = &replaced.report {
            let beyond = took.saturating_sub(report.total());
            let phases =
                [report.attach, report.forward, report.block, report.transfer, report.complete, beyond];
            for (all, phase) in self.phases_us.iter_mut().zip(phases) {
                all.push(us(phase));
            }
            self.pauses_us.extend(report.pauses.iter().copied().map(us));
            self.forwarded += report.forwarded;
            self.blocked += report.blocked;
            self.bytes_moved = report.bytes;
        }
    }

    pub(in crate::cases) fn add(&mut self, other: Swaps) {
        self.us.extend(other.us);
        for (all, more) in self.phases_us.iter_mut().zip(other.phases_us) {
            all.extend(more);
        }
        self.pauses_us.extend(other.pauses_us);
        self.forwarded += other.forwarded;
        self.blocked += other.blocked;
        self.bytes_moved = self.bytes_moved.max(other.bytes_moved);
        self.failed += other.failed;
    }

    /// The durations of each phase.
    pub(in crate::cases) fn phases(&self) -> impl Iterator<Item = (&'static str, &Vec<f64>)> {
        PHASES.into_iter().zip(&self.phases_us)
    }
}

/// Metrics under construction.
#[derive(Default)]
pub(in crate::cases) struct Figures {
    pub(in crate::cases) all: Vec<(String, f64)>,
}

impl Figures {
    pub(in crate::cases) fn one(&mut self, name: &str, value: f64) {
        self.all.push((name.to_owned(), value));
    }

    /// Adds a quantile; zero without values, as when no call waited.
    pub(in crate::cases) fn quantile(&mut self, name: &str, values: &[f64], q: f64) {
        self.one(name, if values.is_empty() { 0.0 } else { quantile(values, q) });
    }

    /// Adds the median and the tail of a duration.
    pub(in crate::cases) fn times(&mut self, name: &str, values_us: &[f64]) {
        self.quantile(&format!("{name}_p50_us"), values_us, 0.5);
        self.quantile(&format!("{name}_p99_us"), values_us, 0.99);
    }

    /// Counts values in bins, one for each power of two. A bin has the values below its power and not below
    /// the previous power. Only the bins from the first to the last used one are printed.
    pub(in crate::cases) fn histogram(&mut self, name: &str, values_us: &[f64]) {
        let mut counts = [0u64; BINS];
        for &value in values_us {
            counts[bin(value)] += 1;
        }
        let Some(first) = counts.iter().position(|&count| count > 0) else { return };
        let last = counts.iter().rposition(|&count| count > 0).unwrap_or(first);
        for (bin, &count) in counts.iter().enumerate().take(last + 1).skip(first) {
            self.one(&format!("{name}{HISTOGRAM}{}", 1u64 << bin), count as f64);
        }
    }
}

/// Number of bins. The last one holds all longer values, from nine minutes on.
const BINS: usize = 30;

fn bin(value_us: f64) -> usize {
    // The number of bits of the whole part: 0 is below 1, 1 below 2, 2 and 3 below 4.
    let whole = value_us.max(0.0) as u64;
    ((u64::BITS - whole.leading_zeros()) as usize).min(BINS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_end_at_powers_of_two() {
        assert_eq!([0.0, 0.9, 1.0, 1.9, 2.0, 3.9, 4.0].map(bin), [0, 0, 1, 1, 2, 2, 3]);
        assert_eq!(bin(f64::MAX), BINS - 1);
    }

    #[test]
    fn a_histogram_goes_from_its_first_bin_to_its_last() {
        let mut figures = Figures::default();
        figures.histogram("busy", &[3.0, 2.0, 9.0]);
        figures.histogram("pause", &[]);
        let expected = [("busy_hist_us_lt_4", 2.0), ("busy_hist_us_lt_8", 0.0), ("busy_hist_us_lt_16", 1.0)];
        assert_eq!(figures.all, expected.map(|(name, value)| (name.to_owned(), value)));
    }

    #[test]
    fn quantiles_without_values_are_zero() {
        let mut figures = Figures::default();
        figures.quantile("pause_max_us", &[], 1.0);
        figures.times("idle", &[1.0, 3.0]);
        assert_eq!(figures.all[0].1, 0.0);
        assert_eq!(figures.all[1], ("idle_p50_us".to_owned(), 2.0));
    }
}
