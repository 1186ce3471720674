//! A clock in whole seconds since 1970 that never goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A clock: the system's, or one that a test moves.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// The system's date at creation, and the time since then.
    Running { date: u64, since: Instant },
    /// The time that a [`Hand`] sets.
    Set(Arc<AtomicU64>),
}

/// Moves a clock that does not run.
#[derive(Clone, Debug)]
pub struct Hand(Arc<AtomicU64>);

impl Clock {
    /// Returns a clock that runs from the system's date. Later changes of that date have no effect.
    pub fn system() -> Clock {
        let date = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
        Clock(Kind::Running { date, since: Instant::now() })
    }

    /// Returns a clock that stands still, and the hand that moves it.
    pub fn by_hand(now: u64) -> (Clock, Hand) {
        let time = Arc::new(AtomicU64::new(now));
        (Clock(Kind::Set(time.clone())), Hand(time))
    }

    /// Returns the seconds since 1970.
    pub fn now(&self) -> u64 {
        match &self.0 {
            Kind::Running { date, since } => date + since.elapsed().as_secs(),
            // Relaxed: the time is the only shared data.
            Kind::Set(time) => time.load(Ordering::Relaxed),
        }
    }
}

impl Hand {
    /// Moves the clock forward by this many seconds.
    pub fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}
