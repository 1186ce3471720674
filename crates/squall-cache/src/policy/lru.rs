//! Sampled LRU: of the entries that were drawn, the one with the oldest mark leaves.

use squall_core::Owned;
use squall_core::swap::{Replacement, State, StateFormats};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Candidate, Eviction, Expected, Mark, Now, Turn, Verdict};

/// Epochs in which the cache is filled once.
const EPOCHS: u64 = 32;

struct Lru {
    entries: AtomicU64,
}

/// Makes a policy that evicts the entry that was unused for longest, of about five that are drawn. It refuses
/// no entry.
///
/// ```
/// use squall::cache::{Cache, policy};
///
/// let cache: Cache<u64, u64> = Cache::builder().max_capacity(100).eviction_policy(policy::lru()).build();
/// (0..200).for_each(|n| cache.insert(n, n));
/// assert_eq!(cache.get(&199), Some(199));
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn lru() -> Owned<dyn Eviction> {
    squall_core::swappable(Lru { entries: AtomicU64::new(0) })
}

/// Makes a policy like [`lru`], for [`Cache::swap_policy`](crate::Cache::swap_policy).
pub fn new_lru() -> Replacement<dyn Eviction> {
    Replacement::swappable(Lru { entries: AtomicU64::new(0) })
}

impl State for Lru {
    fn formats(formats: &mut StateFormats<'_, Lru>) {
        formats.export(|lru| Ok(Expected { entries: lru.entries.load(Ordering::Relaxed) })).import(
            |lru, Expected { entries }| {
                lru.resize(entries);
                Ok(())
            },
        );
    }
}

impl Eviction for Lru {
    fn resize(&self, entries: u64) {
        self.entries.store(entries, Ordering::Relaxed);
    }

    fn epoch_length(&self) -> u64 {
        (self.entries.load(Ordering::Relaxed) / EPOCHS).max(1)
    }

    fn begin_epoch(&self) -> Turn {
        Turn::default()
    }

    fn arrived(&self, _: u64, now: Now) -> Mark {
        Mark::new(now, 0)
    }

    fn choose(&self, _: Option<Candidate>, drawn: &[Candidate], now: Now) -> Verdict {
        let oldest = drawn.iter().enumerate().max_by_key(|(_, drawn)| drawn.mark.age(now));
        oldest.map_or(Verdict::Refuse, |(index, _)| Verdict::Evict(index))
    }
}
