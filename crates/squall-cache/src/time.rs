//! The clock of a cache, and the times of its entries.
//!
//! The clock is the system's monotonic one: a change of the system's date does not move it. It stands while
//! the system is suspended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The end of an entry that never expires.
const NEVER: u64 = u64::MAX;

/// Decides how long each entry lives. All methods return the time from now until the entry expires, or `None`
/// if it has no time of its own. The cache's times to live and to idle still apply.
///
/// The thread that inserts or reads calls the methods, perhaps within an operation or under the lock of a
/// load. They must be short, and must not use the cache.
///
/// ```
/// use squall::cache::{Cache, Expiry};
/// use std::time::Duration;
///
/// /// The value of a lease is its time.
/// struct Lease;
///
/// impl Expiry<u64, Duration> for Lease {
///     fn expire_after_create(&self, _: &u64, lease: &Duration) -> Option<Duration> {
///         Some(*lease)
///     }
///
///     fn expire_after_update(&self, _: &u64, lease: &Duration, _: Option<Duration>) -> Option<Duration> {
///         Some(*lease)
///     }
/// }
///
/// let leases: Cache<u64, Duration> = Cache::builder().max_capacity(100).expire_after(Lease).build();
/// leases.insert(1, Duration::ZERO);
/// leases.insert(2, Duration::from_secs(3600));
/// assert_eq!((leases.contains_key(&1), leases.contains_key(&2)), (false, true));
/// ```
pub trait Expiry<K, V>: Send + Sync {
    /// Called when an absent or expired key is inserted. By default, the entry has no time of its own.
    fn expire_after_create(&self, key: &K, value: &V) -> Option<Duration> {
        let _ = (key, value);
        None
    }

    /// Called when the value of an entry is replaced. `left` is the rest of the time that these methods gave
    /// the old value. By default, the new value gets that rest.
    fn expire_after_update(&self, key: &K, value: &V, left: Option<Duration>) -> Option<Duration> {
        let _ = (key, value);
        left
    }

    /// Called at each hit, within the lookup. `left` is the rest of the time that these methods gave the
    /// value. By default, it stays.
    fn expire_after_read(&self, key: &K, value: &V, left: Option<Duration>) -> Option<Duration> {
        let _ = (key, value);
        left
    }
}

/// A clock that a program moves itself, for tests of programs with times. A clone is the same clock.
///
/// ```
/// use squall::cache::{Cache, ManualClock};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let minute = Duration::from_secs(60);
/// let pages: Cache<u64, u64> = Cache::builder().time_to_live(minute).clock(clock.clone()).build();
/// pages.insert(1, 2);
/// assert_eq!(pages.get(&1), Some(2));
/// clock.advance(minute);
/// assert_eq!(pages.get(&1), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Returns a clock at the time 0.
    pub fn new() -> ManualClock {
        ManualClock::default()
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let advanced = |now: u64| Some(now.saturating_add(nanoseconds(by)));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advanced);
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Clock {
    System(Instant),
    Manual(ManualClock),
}

impl Clock {
    /// Returns the nanoseconds since the cache was made.
    pub(crate) fn now(&self) -> u64 {
        match self {
            Clock::System(start) => nanoseconds(start.elapsed()),
            Clock::Manual(clock) => clock.0.load(Ordering::Relaxed),
        }
        // Entries that never end live at the end of the clock too.
        .min(NEVER - 1)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER)
}

/// The rules for the times of entries.
pub(crate) struct Times<K, V> {
    pub(crate) clock: Clock,
    to_live: Option<u64>,
    to_idle: Option<u64>,
    expiry: Option<Arc<dyn Expiry<K, V>>>,
}

impl<K, V> Times<K, V> {
    pub(crate) fn new(
        clock: Clock,
        to_live: Option<Duration>,
        to_idle: Option<Duration>,
        expiry: Option<Arc<dyn Expiry<K, V>>>,
    ) -> Times<K, V> {
        Times { clock, to_live: to_live.map(nanoseconds), to_idle: to_idle.map(nanoseconds), expiry }
    }

    pub(crate) fn limits(&self) -> (Option<Duration>, Option<Duration>) {
        (self.to_live.map(Duration::from_nanos), self.to_idle.map(Duration::from_nanos))
    }

    /// Returns the ends of an entry that is written now. `before` is the own end of the value that it
    /// replaces.
    pub(crate) fn written(&self, now: u64, key: &K, value: &V, before: Option<u64>) -> Ends {
        let after = |time: u64| now.saturating_add(time);
        let own = self.expiry.as_ref().and_then(|expiry| match before {
            Some(end) => expiry.expire_after_update(key, value, left(now, end)),
            None => expiry.expire_after_create(key, value),
        });
        let live = self.to_live.map_or(NEVER, after);
        let own = own.map_or(NEVER, |time| after(nanoseconds(time)));
        Ends { soft: self.to_idle.map_or(NEVER, after).min(own).min(live), hard: live, own }
    }

    /// Returns the new ends of an entry that is read now, if they change. The idle time changes them by a
    /// sixty-fourth of it at least.
    #[inline]
    pub(crate) fn read(&self, now: u64, key: &K, value: &V, ends: Ends) -> Option<Ends> {
        if self.to_idle.is_none() && self.expiry.is_none() {
            return None;
        }
        self.read_slowly(now, key, value, ends)
    }

    #[cold]
    fn read_slowly(&self, now: u64, key: &K, value: &V, ends: Ends) -> Option<Ends> {
        let before = left(now, ends.own);
        let after =
            self.expiry.as_ref().map_or(before, |expiry| expiry.expire_after_read(key, value, before));
        let is_moved = after != before;
        let own = if is_moved {
            after.map_or(NEVER, |time| now.saturating_add(nanoseconds(time)))
        } else {
            ends.own
        };
        let idle = self.to_idle.map_or(NEVER, |idle| now.saturating_add(idle));
        let soft = idle.min(own).min(ends.hard);
        let is_later = soft.abs_diff(ends.soft) > self.to_idle.map_or(0, |idle| idle / 64);
        (is_moved || is_later).then_some(Ends { soft, hard: ends.hard, own })
    }
}

/// The times after which an entry is absent.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    /// The earliest of all its times. Moved by hits.
    pub(crate) soft: u64,
    /// The end of its time to live. Not moved by hits.
    pub(crate) hard: u64,
    /// The end that [`Expiry`] gave it. Moved by hits.
    pub(crate) own: u64,
}

impl Ends {
    pub(crate) const NEVER: Ends = Ends { soft: NEVER, hard: NEVER, own: NEVER };
}

fn left(now: u64, end: u64) -> Option<Duration> {
    (end != NEVER).then(|| Duration::from_nanos(end.saturating_sub(now)))
}
