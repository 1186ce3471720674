//! The statistics of a cache, as counters of Squall.

use squall_core::{Handle, Owned};
use squall_objects::counter::{self, Counter};

/// Counts of a cache since it was made: see [`Cache::statistics`](crate::Cache::statistics).
///
/// The counts are read one after another, so those of operations in progress may differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Lookups that found their key: `get`, `with`, and the methods that load.
    pub hits: u64,
    /// Such lookups of an absent or expired key.
    pub misses: u64,
    /// Values that loaders returned.
    pub loads: u64,
    /// Loaders that failed or panicked, or were dropped.
    pub failed_loads: u64,
    /// Entries that left to make room, and expired ones that such an eviction found. Expired entries that
    /// leave otherwise do not count.
    pub evictions: u64,
    /// Entries that were refused for lack of room. One that exceeds the whole bound does not count.
    pub refusals: u64,
}

impl Statistics {
    /// Returns the share of lookups that found their key, from 0 to 1; 0 without a lookup.
    pub fn hit_ratio(&self) -> f64 {
        let all = self.hits + self.misses;
        if all == 0 { 0.0 } else { self.hits as f64 / all as f64 }
    }
}

/// The counters behind [`Statistics`]. Each processor adds to words of its own.
pub(crate) struct Counters {
    hits: Owned<dyn Counter>,
    misses: Owned<dyn Counter>,
    loads: Owned<dyn Counter>,
    failed_loads: Owned<dyn Counter>,
    evictions: Owned<dyn Counter>,
    refusals: Owned<dyn Counter>,
}

impl Counters {
    pub(crate) fn new(name: Option<&str>) -> Counters {
        let made = |counted: &str| {
            let counter = counter::distributed();
            if let Some(name) = name {
                let _ = squall_core::set_name(Handle::id(counter.handle()), format!("{name}.{counted}"));
            }
            counter
        };
        Counters {
            hits: made("hits"),
            misses: made("misses"),
            loads: made("loads"),
            failed_loads: made("failed-loads"),
            evictions: made("evictions"),
            refusals: made("refusals"),
        }
    }

    #[inline]
    pub(crate) fn looked_up(&self, is_hit: bool) {
        if is_hit { self.hits.inc() } else { self.misses.inc() }
    }

    pub(crate) fn loaded(&self, is_done: bool) {
        if is_done { self.loads.inc() } else { self.failed_loads.inc() }
    }

    pub(crate) fn evicted(&self) {
        self.evictions.inc();
    }

    pub(crate) fn refused(&self) {
        self.refusals.inc();
    }

    pub(crate) fn read(&self) -> Statistics {
        let total = |counter: &Owned<dyn Counter>| counter.total();
        Statistics {
            hits: total(&self.hits),
            misses: total(&self.misses),
            loads: total(&self.loads),
            failed_loads: total(&self.failed_loads),
            evictions: total(&self.evictions),
            refusals: total(&self.refusals),
        }
    }
}
