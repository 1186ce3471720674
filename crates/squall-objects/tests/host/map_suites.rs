//! Multi-threaded tests from the suites of other maps, in new words and for this interface.
//!
//! They run on each form, on a map with a limit, and on a map that is swapped between forms meanwhile. Each
//! test is named after its suite and the tests that it repeats.
//!
//! Single-threaded tests of those suites are included only if they concern hashes, growth or drops;
//! `map.rs` compares the rest with `std`'s map. Tests of guards, pins and views are left out: this
//! interface lends no reference beyond a closure.

use crate::maps::{FORMS, Form, Hashing, NEW, swap_to};
use crate::touchy::{Touchy, ends};
use squall_core::Handle;
use squall_history::rng::Rng;
use squall_objects::map::{self, Compute, Map, MapExt, MapLimit, OwnedMap};
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

type Co<S = RandomState> = Handle<dyn Map<u64, u64, S>>;

const THREADS: u64 = 4;

/// Sets the flag when it is dropped, by a panic too.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a check on each kind of map, with this hasher.
fn on_each_with<S: Hashing>(hasher: S, check: impl Fn(Co<S>)) {
    for form in FORMS {
        check(form.make(hasher.clone()).handle());
    }
    check(map::limited(Form::Shared.make(hasher.clone()), MapLimit::entries(1 << 20)).handle());
    let map: OwnedMap<u64, u64, S> = Form::Locked.make(hasher);
    let (handle, over) = (map.handle(), AtomicBool::new(false));
    thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            for form in NEW.into_iter().cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                swap_to(handle, form);
                thread::yield_now();
            }
        });
        check(handle);
    });
}

fn on_each(check: impl Fn(Co)) {
    on_each_with(RandomState::new(), check);
}

/// Runs this many threads, which start together. Returns their results.
fn at_once<R: Send>(threads: u64, act: impl Fn(u64) -> R + Sync) -> Vec<R> {
    let barrier = Barrier::new(threads as usize);
    let run = |thread| {
        barrier.wait();
        act(thread)
    };
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Returns the keys, each this many times, in a thread's own random order.
fn shuffled(keys: u64, times: u64, seed: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..times).flat_map(|_| 0..keys).collect();
    let mut rng = Rng::new(seed, 7);
    for last in (1..all.len()).rev() {
        all.swap(last, rng.below(last as u64 + 1) as usize);
    }
    all
}

fn chunk(thread: u64, size: u64) -> std::ops::Range<u64> {
    thread * size..(thread + 1) * size
}

// --- papaya, tests/stress.rs and tests/basic.rs ---

#[test]
fn papaya_insert_stress_insert_overwrite_stress() {
    on_each(|map| {
        let fresh = at_once(THREADS, |thread| {
            let keys = shuffled(256, 2, thread);
            keys.into_iter().filter(|key| map.insert(*key, thread * 1000 + key).is_none()).count()
        });
        assert_eq!(fresh.iter().sum::<usize>(), 256, "each key was new once");
        assert!((0..256).all(|key| map.get(&key).is_some_and(|value| value % 1000 == key)));
        assert_eq!((map.len(), map.count()), (256, 256));
    });
}

#[test]
fn papaya_update_stress_update_or_insert_stress_mixed_entry_stress() {
    on_each(|map| {
        at_once(THREADS, |thread| {
            for key in shuffled(64, 16, thread) {
                match (thread + key) % 3 {
                    0 => _ = map.compute(key, |value| Compute::Put(value.map_or(1, |value| value + 1))),
                    1 => {
                        // If the key is absent, it gets a zero first, so that the addition is an operation
                        // of its own.
                        map.entry(key).or_insert(0);
                        assert!(map.update(&key, |value| value + 1));
                    }
                    _ => {
                        while !map.update(&key, |value| value + 1) {
                            if map.try_insert(key, 1).is_ok() {
                                break;
                            }
                        }
                    }
                }
            }
        });
        assert!((0..64).all(|key| map.get(&key) == Some(16 * THREADS)), "an addition was lost or made twice");
    });
}

#[test]
fn papaya_insert_remove_stress_remove_stress_remove_mixed_stress() {
    on_each(|map| {
        let balance = at_once(THREADS, |thread| {
            let (mut puts, mut takes) = (0_i64, 0_i64);
            for key in shuffled(64, 16, thread) {
                if (thread + key) % 2 == 0 {
                    puts += i64::from(map.insert(key, key).is_none());
                } else {
                    takes += i64::from(map.remove(&key).inspect(|value| assert_eq!(*value, key)).is_some());
                }
            }
            puts - takes
        });
        let left = map.count() as i64;
        assert_eq!(
            (balance.iter().sum::<i64>(), map.len() as i64),
            (left, left),
            "put in as often as taken out"
        );
    });
}

#[test]
fn papaya_remove_update_or_insert_stress() {
    on_each(|map| {
        // Half of the threads add one. The others remove each value they find, and count the removed sum.
        let told = at_once(THREADS, |thread| {
            let keys = shuffled(64, 32, thread).into_iter();
            if thread % 2 == 0 {
                keys.map(|key| _ = map.compute(key, |value| Compute::Put(value.map_or(1, |value| value + 1))))
                    .count() as u64
            } else {
                keys.filter_map(|key| map.remove(&key)).sum()
            }
        });
        let (added, gone) = (told[0] + told[2], told[1] + told[3]);
        assert_eq!(map.fold(gone, |sum, _, value| sum + value), added, "each addition went once or is there");
    });
}

#[test]
fn papaya_remove_if_update_or_insert_stress_conditional_remove_update_or_insert_stress() {
    on_each(|map| {
        // Half of the threads add one. The others remove values above three, and count the removed sum.
        let told = at_once(THREADS, |thread| {
            let mut sum = 0;
            for key in shuffled(32, 64, thread) {
                if thread % 2 == 0 {
                    sum += 1;
                    let _ = map.compute(key, |value| Compute::Put(value.map_or(1, |value| value + 1)));
                } else {
                    let mut seen = 0;
                    let gone = map.remove_if(&key, |value| {
                        seen = *value;
                        *value > 3
                    });
                    if gone {
                        assert!(seen > 3);
                        sum += seen;
                    }
                }
            }
            sum
        });
        let added: u64 = told.iter().step_by(2).sum();
        let gone: u64 = told.iter().skip(1).step_by(2).sum();
        assert_eq!(map.fold(gone, |sum, _, value| sum + value), added);
    });
}

#[test]
fn papaya_insert_remove_chunk_stress_mixed_chunk_stress_contains_key_stress() {
    on_each(|map| {
        at_once(THREADS, |thread| {
            let mine = chunk(thread, 128);
            for round in 0..6 {
                mine.clone().for_each(|key| assert_eq!(map.insert(key, round), None));
                mine.clone().for_each(|key| assert!(map.contains_key(&key)));
                mine.clone().for_each(|key| assert!(map.update(&key, |value| value + 100)));
                let mut seen = HashSet::new();
                map.for_each(|key, value| {
                    assert!(*value < 200, "somebody's value");
                    if mine.contains(key) {
                        assert!(seen.insert(*key), "seen twice");
                    }
                });
                assert_eq!(seen.len(), 128, "a present key was not visited");
                mine.clone().for_each(|key| assert_eq!(map.remove(&key), Some(round + 100)));
                mine.clone().for_each(|key| assert!(!map.contains_key(&key)));
            }
        });
        assert!(map.is_empty());
    });
}

#[test]
fn papaya_retain_stress_clear_stress() {
    on_each(|map| {
        at_once(THREADS, |thread| {
            for round in 0..8 {
                match (thread + round) % 4 {
                    0 => map.retain(|key, _| key % 2 == 0),
                    1 => map.clear(),
                    _ => (0..128).for_each(|key| _ = map.insert(key, key)),
                }
            }
        });
        map.for_each(|key, value| assert_eq!(key, value));
        map.clear();
        assert!(map.is_empty() && map.iter().next().is_none());
    });
}

#[test]
fn papaya_concurrent_resize_and_get() {
    on_each(|map| {
        (0..1024).for_each(|key| _ = map.set(key, key));
        at_once(3, |thread| match thread {
            0 => (11..15).for_each(|power| map.reserve(1 << power)),
            1 => (0..4).for_each(|_| map.shrink_to_fit()),
            _ => (0..8).for_each(|_| (0..1024).for_each(|key| assert_eq!(map.get(&key), Some(key)))),
        });
    });
}

/// A hasher with the same hash for all keys.
#[derive(Clone)]
struct Constant(u64);

impl BuildHasher for Constant {
    type Hasher = Fixed;
    fn build_hasher(&self) -> Fixed {
        Fixed(self.0)
    }
}

struct Fixed(u64);

impl Hasher for Fixed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn papaya_flurry_test_zero_hasher_test_max_hasher_one_bucket() {
    for hash in [0, u64::MAX] {
        on_each_with(Constant(hash), |map| {
            at_once(2, |thread| {
                let mine = chunk(thread, 100);
                mine.clone().for_each(|key| assert_eq!(map.insert(key, key), None));
                mine.clone().for_each(|key| assert_eq!(map.get(&key), Some(key)));
                mine.filter(|key| key % 2 == 0).for_each(|key| assert_eq!(map.remove(&key), Some(key)));
            });
            assert_eq!((map.len(), map.count()), (100, 100));
        });
    }
}

// --- libcuckoo's stress test, as flurry and papaya have it ---

#[test]
fn cuckoo_stress_test() {
    on_each(|map| {
        // The keys are dealt to the threads, so each thread knows the values of its own keys.
        at_once(THREADS, |thread| {
            let (mut rng, mut mine) = (Rng::new(3, thread), std::collections::HashMap::new());
            for _ in 0..2_000 {
                let key = rng.below(64) * THREADS + thread;
                let value = rng.below(1 << 30);
                match rng.below(5) {
                    0 => assert_eq!(map.insert(key, value), mine.insert(key, value)),
                    1 => assert_eq!(map.remove(&key), mine.remove(&key)),
                    2 => {
                        let updated = map.update(&key, |old| old ^ value);
                        assert_eq!(updated, mine.get_mut(&key).map(|old| *old ^= value).is_some());
                    }
                    3 => {
                        let there = map.get_or_insert_with(key, || value);
                        assert_eq!(there, *mine.entry(key).or_insert(value));
                    }
                    _ => assert_eq!(map.get(&key), mine.get(&key).copied()),
                }
            }
            mine.iter().for_each(|(key, value)| assert_eq!(map.get(key), Some(*value)));
        });
    });
}

// --- flurry, tests/jdk, tests/jsr166, tests/regressions.rs and tests/basic.rs ---

#[test]
fn flurry_jdk_concurrent_associate() {
    on_each(|map| {
        // All threads insert the same keys, in different orders, and again by a function. Each key must be
        // there once.
        for round in 0..2 {
            at_once(THREADS, |thread| {
                for key in shuffled(1024, 1, thread + round) {
                    if (key + round) % 2 == 0 {
                        map.set(key, key);
                    } else {
                        assert_eq!(map.get_or_insert_with(key, || key), key);
                    }
                }
            });
            assert_eq!((map.len(), map.count()), (1024, 1024));
            let values: HashSet<u64> = map.values().collect();
            assert_eq!(values, (0..1024).collect());
        }
    });
}

#[test]
fn flurry_jdk_concurrent_contains_key() {
    on_each(|map| {
        (0..2048).for_each(|key| _ = map.set(key, 0));
        at_once(THREADS, |thread| {
            for key in shuffled(2048, 1, thread) {
                assert!(map.contains_key(&key) && !map.contains_key(&(key + 2048)));
            }
        });
    });
}

#[test]
fn flurry_jdk_map_check_everything() {
    const SIZE: u64 = 512;
    on_each(|map| {
        // Absent and present keys alternate, through growth, removal of every second key, removal of all,
        // and once more.
        at_once(2, |thread| {
            let keys: Vec<u64> = shuffled(SIZE, 1, thread).into_iter().map(|key| key * 2 + thread).collect();
            let there = |at: usize| map.get(&keys[at]);
            assert!((0..keys.len()).all(|at| there(at).is_none()));
            keys.iter().for_each(|key| assert_eq!(map.insert(*key, !key), None));
            keys.iter().for_each(|key| assert_eq!(map.insert(*key, *key), Some(!key)));
            assert!((0..keys.len()).all(|at| there(at) == Some(keys[at])));
            keys.iter().step_by(2).for_each(|key| assert!(map.delete(key)));
            keys.iter().step_by(2).for_each(|key| assert!(!map.delete(key)));
            keys.iter().step_by(2).for_each(|key| assert_eq!(map.try_insert(*key, *key), Ok(())));
            assert!((0..keys.len()).all(|at| there(at) == Some(keys[at])));
        });
        assert_eq!(map.len() as u64, 2 * SIZE);
        let keys: HashSet<u64> = map.keys().collect();
        assert_eq!(keys.len() as u64, 2 * SIZE);
        at_once(2, |thread| (0..2 * SIZE).for_each(|key| _ = (key % 2 == thread).then(|| map.delete(&key))));
        assert!(map.is_empty());
    });
}

/// Inserts random keys, most of them present already, while the table grows.
#[test]
fn flurry_issue_90() {
    on_each(|map| {
        let fresh = at_once(2, |thread| {
            let mut rng = Rng::new(90, thread);
            (0..5_000).filter(|_| map.try_insert(rng.below(1000), thread).is_ok()).count()
        });
        assert_eq!(fresh.iter().sum::<usize>(), map.len());
    });
}

// --- flurry and papaya, current_kv_dropped and drop_value; scc, insert_drop, put_drop and reclaim ---

#[test]
fn papaya_current_kv_dropped_flurry_drop_value_scc_insert_drop_reclaim() {
    #[derive(Clone)]
    struct Counted {
        _one: Arc<AtomicUsize>,
    }
    impl Counted {
        fn new(alive: &Arc<AtomicUsize>) -> Counted {
            Counted { _one: alive.clone() }
        }
    }
    // Each value holds one count of the `Arc`. The count left at the end is this one.
    let alive = Arc::new(AtomicUsize::new(0));
    type Make = fn() -> OwnedMap<u64, Counted>;
    let makes: [Make; 4] = [
        map::shared,
        map::locked,
        || map::partitioned(3, |key| key as usize),
        || map::replicated(squall_machine::ClusterSize::Cpu),
    ];
    for make in makes {
        let map = make();
        at_once(THREADS, |thread| {
            for key in shuffled(64, 8, thread) {
                match key % 3 {
                    0 => drop(map.insert(key, Counted::new(&alive))),
                    1 => _ = map.set(key, Counted::new(&alive)),
                    _ => drop(map.get_or_insert_with(key, || Counted::new(&alive))),
                }
                if key % 5 == thread {
                    drop(map.remove(&key));
                }
                drop(map.get_cloned(&key));
            }
        });
        let entries = map.len();
        squall_core::Owned::destroy(map.into_owned()).wait().unwrap();
        assert!(entries > 0);
        let began = Instant::now();
        while Arc::strong_count(&alive) > 1 {
            assert!(began.elapsed() < Duration::from_secs(300), "a value is left");
            squall_rcu::barrier().unwrap();
            thread::yield_now();
        }
        assert_eq!(Arc::strong_count(&alive), 1, "a value was dropped twice");
    }
}

// --- scc, src/tests/unit_tests.rs ---

#[test]
fn scc_insert_retain_insert_prune_insert_read_remove() {
    const SIZE: u64 = 128;
    on_each(|map| {
        for _ in 0..4 {
            at_once(THREADS, |thread| {
                let mine = chunk(thread, SIZE);
                mine.clone().for_each(|key| assert_eq!(map.try_insert(key, key), Ok(())));
                mine.clone().for_each(|key| assert_eq!(map.try_insert(key, 0), Err((key, 0))));
                let seen = map.keys().filter(|key| mine.contains(key)).count();
                assert_eq!(seen as u64, SIZE);
                map.retain(|key, _| !mine.contains(key));
                assert!(!map.keys().any(|key| mine.contains(&key)));
                mine.clone()
                    .for_each(|key| assert_eq!((map.contains_key(&key), map.delete(&key)), (false, false)));
            });
            assert!(map.is_empty());
        }
    });
}

/// Two halves of a value always change together. A reader must never see them apart.
#[test]
fn scc_read_write_update_get_upsert_peek_remove() {
    on_each(|map| {
        let (whole, over) = (|half: u64| half << 32 | half, AtomicU64::new(0));
        at_once(THREADS, |thread| {
            for round in 0..1_000 {
                let key = round % 8;
                match thread {
                    0 => _ = map.set(key, whole(round)),
                    1 => {
                        _ = map.compute(key, |value| match value {
                            Some(value) if round % 5 == 0 => {
                                assert_eq!(value >> 32, value & 0xffff_ffff);
                                Compute::Remove
                            }
                            Some(value) => Compute::Put(whole((value & 0xffff_ffff) + 1)),
                            None => Compute::Put(whole(0)),
                        })
                    }
                    _ => {
                        let halves = map.with(&key, |value| (value >> 32, value & 0xffff_ffff));
                        assert!(halves.is_none_or(|(one, other)| one == other), "{halves:?}");
                        over.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        assert_eq!(over.load(Ordering::Relaxed), 2_000);
    });
}

#[test]
fn scc_string_key_dashmap_test_more_complex_values_test_different_hashers() {
    type Make = fn() -> OwnedMap<String, Vec<u64>>;
    let make: [Make; 3] = [map::shared, map::locked, || map::replicated(squall_machine::ClusterSize::Cpu)];
    for make in make {
        let map = make();
        at_once(2, |thread| {
            for number in chunk(thread, 200) {
                assert_eq!(map.insert(number.to_string(), vec![number]), None);
                assert!(map.update(number.to_string().as_str(), |old| [&old[..], &[thread]].concat()));
                assert_eq!(map.get_cloned(&*number.to_string()), Some(vec![number, thread]));
            }
        });
        assert_eq!((map.len(), map.remove("7")), (400, Some(vec![7, 0])));
    }
}

// --- dashmap, src/lib.rs and src/iter.rs ---

#[test]
#[cfg_attr(any(squall_asan, squall_tsan), ignore = "the sanitizer ends a process that asks for so much")]
fn dashmap_test_try_reserve_test_try_reserve_errors_iter_count() {
    on_each(|map| {
        (0..50).for_each(|key| _ = map.set(key, key));
        assert!(map.try_reserve(10) && !map.try_reserve(usize::MAX / 2));
        assert_eq!((map.iter().count(), map.keys().count(), map.len()), (50, 50, 50));
        assert!((0..50).all(|key| map.get(&key) == Some(key)));
    });
}

// --- not in those suites: a hash that panics ---

#[test]
fn a_hash_that_panics_leaves_every_form_usable_and_loses_nothing() {
    type Touched = Handle<dyn Map<Touchy, u64, RandomState>>;
    let make: [fn() -> OwnedMap<Touchy, u64>; 4] =
        [map::shared, map::locked, map::adaptive, || map::replicated(squall_machine::ClusterSize::Cpu)];
    let acts: [fn(Touched, u64); 9] = [
        |map, key| _ = map.set(Touchy(key), key),
        |map, key| _ = map.insert(Touchy(key), key),
        |map, key| _ = map.try_insert(Touchy(key), key),
        |map, key| _ = map.get_or_insert_with(Touchy(key), || key),
        |map, key| _ = map.compute(Touchy(key), |_| Compute::Put(key)),
        |map, key| _ = map.update(&Touchy(key % 10), |value| *value),
        |map, key| _ = map.get(&Touchy(key)),
        |map, _| _ = map.try_reserve(100),
        |map, _| map.shrink_to_fit(),
    ];
    for make in make {
        for (number, act) in acts.into_iter().enumerate() {
            let map = make();
            (0..10).for_each(|key| _ = map.set(Touchy(key), key));
            let mut failed = 0;
            // Through growth and beyond: for each key, at each of its hashes.
            for key in 10..80 {
                failed += (0..).take_while(|hashes| !ends(*hashes, || act(map.handle(), key))).count();
                // No thread waits for a lock that was never released.
                thread::scope(|scope| _ = scope.spawn(|| map.set(Touchy(1_000), 1_000)));
                for old in 0..10 {
                    assert_eq!(map.get(&Touchy(old)), Some(old), "act {number}");
                }
                let there = (10..=key).filter(|key| map.get(&Touchy(*key)) == Some(*key)).count();
                assert_eq!(there, if number < 5 { key as usize - 9 } else { 0 }, "act {number}");
                assert_eq!((map.len(), map.iter().count()), (there + 11, there + 11), "act {number}");
            }
            assert!(failed > 0 || number > 6, "act {number} hashes");
        }
    }
}
