//! Policies, and their swaps.

use squall_cache::Cache;
use squall_cache::policy::{self, Candidate, Eviction, Mark, Now, Turn, Verdict};
use squall_core::swap::{Replacement, Swap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// Evicts the largest weight.
struct Largest;

impl Eviction for Largest {
    fn resize(&self, _: u64) {}

    fn epoch_length(&self) -> u64 {
        1
    }

    fn begin_epoch(&self) -> Turn {
        Turn::default()
    }

    fn arrived(&self, _: u64, now: Now) -> Mark {
        Mark::new(now, 0)
    }

    fn choose(&self, newcomer: Option<Candidate>, drawn: &[Candidate], _: Now) -> Verdict {
        let largest = drawn.iter().enumerate().max_by_key(|(_, drawn)| drawn.weight).unwrap();
        if newcomer.is_some_and(|newcomer| newcomer.weight > largest.1.weight) {
            Verdict::Refuse
        } else {
            Verdict::Evict(largest.0)
        }
    }
}

#[test]
fn a_policy_of_the_program_decides() {
    let cache: Cache<u64, u64> = Cache::builder()
        .max_capacity(100)
        .weigher(|_, weight: &u64| *weight as u32)
        .eviction_policy(squall_core::shared(Largest))
        .record_statistics()
        .build();
    (0..10).for_each(|n| cache.insert(n, 10));
    cache.insert(50, 90);
    assert_eq!((cache.get(&50), cache.entry_count(), cache.statistics().refusals), (None, 10, 1));
    cache.insert(51, 3);
    assert_eq!((cache.get(&51), cache.entry_count(), cache.statistics().evictions), (Some(3), 10, 1));
}

/// Ends the threads of a test when dropped, also when an assertion fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_policy_is_swapped_while_threads_use_the_cache() {
    let cache: Cache<u64, u64> = Cache::new(200);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..3 {
            let (cache, stop) = (&cache, &stop);
            scope.spawn(move || {
                let mut n = worker;
                while !stop.load(Relaxed) {
                    n = (n * 13 + 7) % 1009;
                    assert_eq!(cache.get_with(n, || n * 2), n * 2);
                }
            });
        }
        let _end = End(&stop);
        for round in 0..30 {
            let next = match round % 3 {
                0 => policy::new_lru(),
                1 => policy::new_frequency(),
                _ => Replacement::shared(Largest),
            };
            cache.swap_policy(next).unwrap();
        }
    });
    assert!(cache.entry_count() <= 200);
}

#[test]
fn lru_keeps_the_entries_in_use() {
    let cache: Cache<u64, u64> = Cache::builder().max_capacity(1000).eviction_policy(policy::lru()).build();
    (0..1000).for_each(|n| cache.insert(n, n));
    for n in 1000..4000 {
        for hot in 0..10 {
            assert_eq!(cache.get(&hot), Some(hot), "before {n}");
        }
        cache.insert(n, n);
    }
}

#[test]
fn a_policy_that_admits_all_keeps_each_new_key() {
    let cache: Cache<u64, u64> =
        Cache::builder().max_capacity(100).eviction_policy(policy::frequency_admitting_all()).build();
    for _ in 0..20 {
        (0..100).for_each(|key| _ = cache.get_with(key, || key));
    }
    for key in 1000..2000 {
        cache.insert(key, key);
        assert_eq!(cache.get(&key), Some(key));
        assert!(cache.entry_count() <= 100);
    }
}

#[test]
fn a_policy_tells_its_successor_the_size_of_the_cache() {
    let policy = policy::lru();
    policy.resize(64_000);
    let length = policy.epoch_length();
    assert!(length > 1000);
    for new in [policy::new_frequency, policy::new_lru, policy::new_frequency_admitting_all] {
        Swap::new(policy.handle()).run(new()).unwrap();
        // An epoch is a thirty-second or a sixteenth of the cache.
        assert!((length / 4..=length * 4).contains(&policy.epoch_length()), "{}", policy.epoch_length());
    }
}

#[test]
fn a_replacement_is_a_use() {
    let cache: Cache<u64, u64> = Cache::builder().max_capacity(100).eviction_policy(policy::lru()).build();
    for n in 0..5000 {
        cache.insert(1000 + n, n);
        cache.insert(1, n);
        assert_eq!(cache.get(&(1000 + n)), Some(n));
        assert!(cache.contains_key(&1), "after {n} insertions");
    }
}
