//! Work of a known length that touches no memory.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Number of timed runs. The shortest counts as undisturbed. Each run has `RUN_TURNS` turns of the loop and
/// takes some ten microseconds.
const RUNS: u32 = 200;
const RUN_TURNS: u64 = 10_000;
/// Assumed nanoseconds per turn if no clock may be read.
const NOMINAL_TURN_NS: f64 = 1.5;

/// A number of turns of the loop of [`work`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turns(u64);

impl Turns {
    pub(super) const NONE: Turns = Turns(0);

    /// The number of turns that lasts `length` on this machine undisturbed, measured once per process.
    pub(super) fn lasting(length: Duration) -> Turns {
        static TURN_NS: OnceLock<f64> = OnceLock::new();
        Turns::of(length, *TURN_NS.get_or_init(shortest_turn_ns))
    }

    /// About as many turns, fixed for all machines.
    pub(super) fn nominal(length: Duration) -> Turns {
        Turns::of(length, NOMINAL_TURN_NS)
    }

    fn of(length: Duration, turn_ns: f64) -> Turns {
        Turns((length.as_nanos() as f64 / turn_ns).round() as u64)
    }

    pub(super) fn is_none(self) -> bool {
        self == Turns::NONE
    }
}

fn shortest_turn_ns() -> f64 {
    let run = |_| {
        let began = Instant::now();
        work(Turns(RUN_TURNS));
        began.elapsed().as_nanos() as f64 / RUN_TURNS as f64
    };
    (0..RUNS).map(run).fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE)
}

/// A chain of multiplications, each of which needs the one before.
#[inline(always)]
pub(super) fn work(turns: Turns) {
    let mut x = black_box(0x9E37_79B9_7F4A_7C15_u64);
    for _ in 0..turns.0 {
        x = (x ^ x >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
    black_box(x);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_work_has_more_turns_and_empty_work_has_zero() {
        let (short, long) = (Duration::from_nanos(50), Duration::from_micros(20));
        assert!(Turns::lasting(short).0 < Turns::lasting(long).0);
        assert!(Turns::nominal(short).0 < Turns::nominal(long).0);
        assert!(Turns::nominal(Duration::ZERO).is_none());
    }
}
