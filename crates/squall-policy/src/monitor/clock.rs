//! The monitor's clock: nanoseconds since somebody first looked at it.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// When somebody first looked, on both clocks.
static BEGAN: OnceLock<(Instant, SystemTime)> = OnceLock::new();

fn began() -> &'static (Instant, SystemTime) {
    BEGAN.get_or_init(|| (Instant::now(), SystemTime::now()))
}

/// Nanoseconds on the clock of records and windows, which never goes back and began when it was first looked at.
///
/// # Cost
/// One look at the system's monotonic clock: tens of nanoseconds.
pub fn now_ns() -> u64 {
    u64::try_from(began().0.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The time of day at `ns` of this clock, by what the system's clock was when this one began.
pub(super) fn time_of_day(ns: u64) -> SystemTime {
    began().1 + Duration::from_nanos(ns)
}
