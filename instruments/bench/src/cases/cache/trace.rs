//! Traces: rows of requests, for comparisons of hit ratios.
//!
//! The requests of a trace are equal in each run. Keys are numbers; those below [`KEYS`] have ranks, in a
//! random order.

use std::ops::Range;

use super::draw::{Random, Zipf};

/// Keys with ranks.
pub(super) const KEYS: u32 = if cfg!(test) { 2_000 } else { 1_000_000 };
/// Requests of a trace.
const REQUESTS: usize = 5 * KEYS as usize;
/// Requests at the beginning of a trace that do not count.
const WARM_UP: usize = KEYS as usize;
/// One request in so many is for a new key, in `trace-scan`.
const SCANNED: u64 = 10;

/// A row of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Trace {
    /// Keys by Zipf's law with this exponent.
    Zipf(f64),
    /// `Zipf(0.9)`, mixed with keys that are requested once.
    Scan,
    /// A tenth more keys than the capacity, in turn.
    Loop,
    /// `Zipf(0.9)`. All keys get other ranks after half of the requests.
    Shift,
}

/// Requests that are counted together: the prefix of their figures, and their places in the trace.
pub(super) type Window = (&'static str, Range<usize>);

impl Trace {
    /// All traces, with the names of their variants.
    pub(super) const ALL: [(&'static str, Trace); 7] = [
        ("trace-zipf08", Trace::Zipf(0.8)),
        ("trace-zipf09", Trace::Zipf(0.9)),
        ("trace-zipf10", Trace::Zipf(1.0)),
        ("trace-zipf11", Trace::Zipf(1.1)),
        ("trace-scan", Trace::Scan),
        ("trace-loop", Trace::Loop),
        ("trace-shift", Trace::Shift),
    ];

    /// The requests, for a cache of this capacity.
    pub(super) fn requests(self, capacity: usize) -> Vec<u32> {
        let mut random = Random::new(3);
        let mut ranked = |exponent: f64| {
            let (zipf, keys) = (Zipf::new(KEYS, exponent), random.shuffled(KEYS));
            (zipf, keys)
        };
        match self {
            Trace::Zipf(exponent) => {
                let (zipf, keys) = ranked(exponent);
                (0..REQUESTS).map(|_| keys[zipf.rank(&mut random) as usize]).collect()
            }
            Trace::Scan => {
                let ((zipf, keys), mut new) = (ranked(0.9), KEYS..);
                let mut request = || match random.below(SCANNED) {
                    0 => new.next().expect("a trace has fewer requests than there are numbers"),
                    _ => keys[zipf.rank(&mut random) as usize],
                };
                (0..REQUESTS).map(|_| request()).collect()
            }
            Trace::Loop => {
                let keys = (capacity + capacity / 10) as u32;
                (0..keys).cycle().take(REQUESTS).collect()
            }
            Trace::Shift => {
                let ((zipf, before), after) = (ranked(0.9), random.shuffled(KEYS));
                let keys = |at| if at < REQUESTS / 2 { &before } else { &after };
                (0..REQUESTS).map(|at| keys(at)[zipf.rank(&mut random) as usize]).collect()
            }
        }
    }

    /// The windows: all requests after the warm-up, or a tenth just after a shift and a fifth at the end.
    pub(super) fn windows(self) -> Vec<Window> {
        let half = REQUESTS / 2;
        match self {
            Trace::Shift => vec![
                ("just_after_", half..half + REQUESTS / 10),
                ("long_after_", REQUESTS - REQUESTS / 5..REQUESTS),
            ],
            _ => vec![("", WARM_UP..REQUESTS)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_repeatable_and_full() {
        for (name, trace) in Trace::ALL {
            let requests = trace.requests(100);
            assert_eq!(requests, trace.requests(100), "{name}");
            assert_eq!(requests.len(), REQUESTS);
            assert!(trace.windows().iter().all(|(_, window)| window.end <= REQUESTS && !window.is_empty()));
        }
    }

    #[test]
    fn a_scanned_key_is_requested_once() {
        let mut new: Vec<u32> = Trace::Scan.requests(100);
        new.retain(|key| *key >= KEYS);
        assert!(new.is_sorted_by(|a, b| a < b));
        assert!(new.len().abs_diff(REQUESTS / 10) < REQUESTS / 100, "{}", new.len());
    }

    #[test]
    fn a_shift_changes_the_most_frequent_key() {
        let most_frequent = |requests: &[u32]| {
            let mut seen = vec![0; KEYS as usize];
            requests.iter().for_each(|key| seen[*key as usize] += 1);
            (0..KEYS as usize).max_by_key(|key| seen[*key])
        };
        let requests = Trace::Shift.requests(100);
        let (before, after) = requests.split_at(REQUESTS / 2);
        assert_ne!(most_frequent(before), most_frequent(after));
    }
}
