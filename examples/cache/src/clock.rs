//! The time in whole seconds since 1970, from a clock that never goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A clock.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// The system's date when it was made, and what has passed since then.
    Running { date: u64, since: Instant },
    /// What its hand says.
    Set(Arc<AtomicU64>),
}

/// Moves a clock that does not run.
#[derive(Clone, Debug)]
pub struct Hand(Arc<AtomicU64>);

impl Clock {
    /// The system's. Who sets its date later does not change what this one says.
    pub fn system() -> Clock {
        let date = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
        Clock(Kind::Running { date, since: Instant::now() })
    }

    /// One that stands still but for its hand.
    pub fn by_hand(now: u64) -> (Clock, Hand) {
        let time = Arc::new(AtomicU64::new(now));
        (Clock(Kind::Set(time.clone())), Hand(time))
    }

    /// Seconds since 1970.
    pub fn now(&self) -> u64 {
        match &self.0 {
            Kind::Running { date, since } => date + since.elapsed().as_secs(),
            // Relaxed: the time is all there is to see.
            Kind::Set(time) => time.load(Ordering::Relaxed),
        }
    }
}

impl Hand {
    /// So many seconds pass.
    pub fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}
