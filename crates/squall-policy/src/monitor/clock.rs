//! Clock of the monitor: nanoseconds since its first use.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// Time of the first use, on both clocks.
static BEGAN: OnceLock<(Instant, SystemTime)> = OnceLock::new();

fn began() -> &'static (Instant, SystemTime) {
    BEGAN.get_or_init(|| (Instant::now(), SystemTime::now()))
}

/// Returns the time on the clock of records and windows, in nanoseconds since its first use. It never goes
/// back.
///
/// # Cost
/// One read of the system's monotonic clock: tens of nanoseconds.
///
/// ```
/// use squall::policy::monitor::now_ns;
///
/// let before = now_ns();
/// assert!(now_ns() >= before);
/// ```
pub fn now_ns() -> u64 {
    u64::try_from(began().0.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Converts a time of this clock to the time of day. Uses the system clock's value at the first use of this
/// clock.
pub(super) fn time_of_day(ns: u64) -> SystemTime {
    began().1 + Duration::from_nanos(ns)
}
