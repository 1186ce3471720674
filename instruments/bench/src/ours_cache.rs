//! Subjects `squall` and `squall-lru` of the case `cache`.

use squall::cache::{Cache, policy};

use crate::rivals::caches::{BoundedCache, CommonHasher, SingleFlight};

type Words = Cache<u64, u64, CommonHasher>;

/// `squall`: the default policy.
pub(crate) struct Frequency(Words);

/// `squall-lru`: the policy [`policy::lru`].
pub(crate) struct SampledLru(Words);

/// Implements the interface of the caches for a wrapper of Squall's cache.
macro_rules! bounded {
    ($cache:ident, $policy:path) => {
        impl BoundedCache for $cache {
            fn new(capacity: usize) -> $cache {
                let builder = Cache::builder().max_capacity(capacity as u64).eviction_policy($policy());
                $cache(builder.build_with_hasher(CommonHasher::default()))
            }

            #[inline(always)]
            fn get(&self, key: u64) -> Option<u64> {
                self.0.get(&key)
            }

            #[inline(always)]
            fn insert(&self, key: u64, value: u64) {
                self.0.insert(key, value);
            }

            fn len(&self) -> usize {
                self.0.entry_count() as usize
            }

            fn settle(&self) {
                squall_rcu::barrier().expect("the grace period failed");
            }
        }

        impl SingleFlight for $cache {
            #[inline(always)]
            fn get_with(&self, key: u64, load: impl FnOnce() -> u64) -> u64 {
                self.0.get_with(key, load)
            }
        }
    };
}

bounded!(Frequency, policy::frequency);
bounded!(SampledLru, policy::lru);
