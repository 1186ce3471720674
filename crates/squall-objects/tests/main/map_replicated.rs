//! The replicated form of a map: all checks of concurrent maps, and its copies. Runs on a virtual machine
//! of 32 VPs, where each thread is on the VP that a test gives it.

use crate::common::{VPS, alone, on};
use crate::maps::{Form, Maps, swap_to};
use squall_core::{Handle, info_of};
use squall_history::maps::{Counted, Ledger, Load, Maker, checks};
use squall_history::rng::Rng;
use squall_machine::ClusterSize;
use squall_objects::map::{self, Compute, Computed, Map, MapExt, OwnedMap};
use std::hash::RandomState;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

fn settle() {
    squall_rcu::barrier().unwrap();
}

/// Recorded histories, linearizability per key, and the tests from the suites of other maps.
#[test]
fn a_replicated_map_passes_every_check() {
    let _alone = alone();
    let maker = Maps(Form::Replicated, RandomState::new());
    let load = Load { many: 500, rounds: 40, one_order: false, ..Load::default() };
    every_check(&maker, &load);
}

fn every_check<M: Maker>(maker: &M, load: &Load) {
    for check in checks::<M>() {
        // At rest there are copies: see the test of drops below.
        if check.name != "drops::counted" {
            (check.run)(maker, load)
                .unwrap_or_else(|what| panic!("{}, seed {}: {what}", check.name, load.seed));
        }
    }
}

/// Returns the address of the value that a read finds.
fn place(map: &OwnedMap<u64, Box<u64>>, vp: u32) -> usize {
    on(vp, || map.with(&1, |value| std::ptr::from_ref(&**value).addr()).unwrap())
}

#[test]
fn hu_16_a_cluster_that_reads_a_key_has_a_copy_of_its_own_until_the_key_changes() {
    let _alone = alone();
    let map: OwnedMap<u64, Box<u64>> = map::replicated(ClusterSize::Node);
    map.set(1, Box::new(10));
    // The first read of each cluster finds the original, and copies it.
    let original = place(&map, 0);
    assert_eq!(place(&map, 20), original);
    let (near, far) = (place(&map, 0), place(&map, 20));
    assert!(near != original && far != original && near != far);
    assert_eq!((place(&map, 15), place(&map, 31)), (near, far), "one for each node");
    assert_eq!(info_of(Handle::id(map.handle())).unwrap().reps.len(), 2);
    // A change of another key leaves the copies alone. In the same stripe it removes only its own.
    map.set(2, Box::new(0));
    assert_eq!((place(&map, 0), place(&map, 20)), (near, far));
    assert!(on(9, || map.update(&1, |value| Box::new(**value + 1))));
    for vp in 0..VPS {
        assert_eq!(on(vp, || map.get_cloned(&1)), Some(Box::new(11)));
    }
    assert!(map.delete(&1));
    assert!((0..VPS).all(|vp| on(vp, || !map.contains_key(&1))));
}

#[test]
fn copies_and_values_are_dropped_once_each_and_room_is_given_up() {
    let _alone = alone();
    let ledger = Ledger::new();
    let map: OwnedMap<u64, Counted> = map::replicated(ClusterSize::Core);
    thread::scope(|scope| {
        for id in 0..4 {
            let (map, ledger) = (&map, &ledger);
            scope.spawn(move || {
                on(id * 8, || {
                    let mut rng = Rng::new(7, u64::from(id));
                    for _ in 0..3_000 {
                        let key = rng.below(16);
                        match rng.below(8) {
                            0 => _ = map.set(key, Counted::new(ledger, key)),
                            1 => _ = map.delete(&key),
                            2 => _ = map.update(&key, |_| Counted::new(ledger, key)),
                            3 => drop(map.get_or_insert_with(key, || Counted::new(ledger, key))),
                            _ => _ = map.with(&key, |value| assert_eq!(value.number(), key)),
                        }
                    }
                });
            });
        }
    });
    (0..16).for_each(|key| _ = map.set(key, Counted::new(&ledger, key)));
    settle();
    assert_eq!(ledger.alive(), 16, "a change takes all copies out");
    for vp in [0, 8, 16] {
        on(vp, || (0..16).for_each(|key| _ = map.with(&key, |_| ())));
    }
    settle();
    assert_eq!(ledger.alive(), 64, "three clusters have copies");
    map.shrink_to_fit();
    settle();
    assert_eq!((ledger.alive(), map.len()), (16, 16));
    on(3, || (0..16).for_each(|key| _ = map.with(&key, |_| ())));
    drop(map);
    while ledger.alive() > 0 {
        settle();
    }
    let (born, died) = ledger.counts();
    assert!(born == died && !ledger.is_wrong());
}

#[test]
fn it_takes_the_entries_over_as_they_are_and_gives_them_back() {
    let _alone = alone();
    let map: OwnedMap<u64, Box<u64>> = map::shared();
    map.set(1, Box::new(10));
    let original = place(&map, 0);
    for (form, there) in
        [(Form::Replicated, true), (Form::Shared, true), (Form::Replicated, true), (Form::Locked, false)]
    {
        // The types of `swap_to` are those of the checks.
        let new = match form {
            Form::Replicated => map::new_replicated(ClusterSize::Cache),
            Form::Shared => map::new_shared(),
            _ => map::new_locked(),
        };
        squall_core::swap::swap(map.handle(), new).unwrap();
        assert_eq!(place(&map, 0) == original, there, "{form:?}");
        assert_eq!(on(17, || map.get_cloned(&1)), Some(Box::new(10)));
    }
}

/// The values of each key rise. A thread that saw one, in any cluster and form, sees no earlier one.
#[test]
fn no_thread_sees_an_older_value_than_another_saw_before() {
    let _alone = alone();
    const KEYS: usize = 3;
    let map: OwnedMap<u64, u64> = Form::Replicated.make(RandomState::new());
    let handle = map.handle();
    (0..KEYS as u64).for_each(|key| _ = handle.set(key, 0));
    let latest: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for id in 0..3 {
            let (latest, over) = (&latest, &over);
            scope.spawn(move || {
                let mut rng = Rng::new(11, id);
                while !over.load(Ordering::Relaxed) {
                    let (key, vp) = (rng.below(KEYS as u64), rng.below(u64::from(VPS)) as u32);
                    let known = latest[key as usize].load(Ordering::SeqCst);
                    let seen = on(vp, || handle.get(&key)).unwrap();
                    assert!(seen >= known, "{seen} after {known}");
                    latest[key as usize].fetch_max(seen, Ordering::SeqCst);
                }
            });
        }
        for round in 0..400 {
            for key in 0..KEYS as u64 {
                assert!(on(round % VPS, || handle.update(&key, |value| value + 1)));
            }
            if round % 20 == 19 {
                swap_to(handle, if round % 40 == 19 { Form::Shared } else { Form::Replicated });
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!((0..KEYS as u64).all(|key| handle.get(&key) == Some(400)));
}

#[test]
fn a_closure_may_use_the_map_and_change_any_key() {
    let _alone = alone();
    let map: OwnedMap<u64, u64> = map::replicated(ClusterSize::Cpu);
    let handle = map.handle();
    (0..200).for_each(|key| _ = handle.set(key, key));
    // Some of these keys are in the stripe of the first.
    let mut asked = 0;
    assert!(handle.update(&0, |value| {
        asked += 1;
        (1..200).for_each(|key| _ = handle.update(&key, |value| value + 1));
        assert_eq!(handle.get(&7), Some(8));
        value + 100
    }));
    assert_eq!((asked, handle.get(&0), handle.get(&199)), (1, Some(100), Some(200)));
    // A panic leaves the key unchanged, and free to be copied.
    assert!(catch_unwind(AssertUnwindSafe(|| handle.compute(0, |_| panic!("in a closure")))).is_err());
    assert_eq!(handle.compute(0, |_| Compute::Keep), Computed::Kept);
    assert_eq!((handle.get(&0), handle.get(&0)), (Some(100), Some(100)));
    handle.retain(|key, _| key % 2 == 0);
    assert_eq!((handle.len(), handle.get(&7), handle.get(&8)), (100, None, Some(9)));
}

/// A key and a value that panics after a number of calls of `eq`, `hash` or `clone`.
#[derive(Debug)]
struct Touchy(u64);

thread_local! {
    /// Number of calls that still succeed.
    static PATIENCE: std::cell::Cell<u32> = const { std::cell::Cell::new(u32::MAX) };
}

fn asked() {
    let left = PATIENCE.get();
    PATIENCE.set(left.wrapping_sub(1));
    assert!(left != 0, "as asked");
}

impl Clone for Touchy {
    fn clone(&self) -> Touchy {
        asked();
        Touchy(self.0)
    }
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Touchy) -> bool {
        asked();
        self.0 == other.0
    }
}

impl Eq for Touchy {}

impl std::hash::Hash for Touchy {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        asked();
        self.0.hash(state);
    }
}

#[test]
fn a_panic_in_eq_hash_or_clone_leaves_a_consistent_map() {
    let _alone = alone();
    type Act = fn(&OwnedMap<Touchy, Touchy>);
    let acts: [Act; 8] = [
        |map| _ = map.get_cloned(&Touchy(1)),
        |map| _ = map.insert(Touchy(1), Touchy(11)),
        |map| _ = map.set(Touchy(1), Touchy(12)),
        |map| _ = map.update(&Touchy(1), |value| Touchy(value.0 + 1)),
        |map| _ = map.compute(Touchy(1), |_| Compute::Put(Touchy(13))),
        |map| _ = map.try_insert(Touchy(2), Touchy(20)),
        |map| _ = map.remove(&Touchy(1)),
        |map| map.retain(|key, _| key.0 != 1),
    ];
    for (at, act) in acts.into_iter().enumerate() {
        for patience in 0.. {
            let map: OwnedMap<Touchy, Touchy> = map::replicated(ClusterSize::Node);
            map.set(Touchy(1), Touchy(10));
            map.set(Touchy(3), Touchy(30));
            // The far node has a copy of each key, and the near one has a copy of the other key alone.
            (0..2).for_each(|_| {
                on(20, || [1, 3].map(|key| _ = map.get_cloned(&Touchy(key))).into_iter().for_each(drop))
            });
            on(0, || (0..2).for_each(|_| _ = map.get_cloned(&Touchy(3))));
            PATIENCE.set(patience);
            let ended = catch_unwind(AssertUnwindSafe(|| on(0, || act(&map))));
            PATIENCE.set(u32::MAX);
            let seen: Vec<_> =
                [0, 20, 0, 20].map(|vp| on(vp, || map.get_cloned(&Touchy(1)).map(|value| value.0))).into();
            assert!(seen.windows(2).all(|two| two[0] == two[1]), "act {at}, {patience}: {seen:?}");
            // The key is used and changed as before, and copied again.
            assert!([0, 20].into_iter().all(|vp| on(vp, || map.get_cloned(&Touchy(3))) == Some(Touchy(30))));
            for value in 40..43 {
                on(20, || _ = map.set(Touchy(1), Touchy(value)));
                assert!(
                    [0, 20, 0, 20]
                        .into_iter()
                        .all(|vp| on(vp, || map.get_cloned(&Touchy(1))) == Some(Touchy(value)))
                );
            }
            let place = || on(20, || map.with(&Touchy(1), |value| std::ptr::from_ref(value).addr()));
            assert_ne!(on(0, || map.with(&Touchy(1), |value| std::ptr::from_ref(value).addr())), place());
            if ended.is_ok() {
                assert!(patience > 0, "act {at} makes no call");
                break;
            }
        }
    }
}

const SIZES: [ClusterSize; 5] =
    [ClusterSize::Core, ClusterSize::Machine, ClusterSize::Node, ClusterSize::Cpu, ClusterSize::Cache];

fn reps(map: &OwnedMap<u64, u64>) -> usize {
    info_of(Handle::id(map.handle())).unwrap().reps.len()
}

#[test]
fn x_30_the_size_of_a_maps_clusters_is_changed_and_the_entries_stay() {
    let _alone = alone();
    let partitioned = map::partitioned::<u64, u64>(5, |key| key as usize);
    for map in [map::replicated(ClusterSize::Cpu), partitioned] {
        (0..100).for_each(|key| _ = map.set(key, 0));
        for (round, size) in (0..).zip(SIZES) {
            (0..VPS).for_each(|vp| on(vp, || assert!((0..100).all(|key| map.get(&key) == Some(round)))));
            map.set_cluster_size(size).unwrap();
            assert_eq!(map.cluster_size(), size);
            (0..VPS).for_each(|vp| on(vp, || assert!((0..100).all(|key| map.get(&key) == Some(round)))));
            assert_eq!(reps(&map), squall_machine::machine().clusters(size).len(), "{size}");
            (0..100).for_each(|key| assert!(on(key as u32 % VPS, || map.update(&key, |old| old + 1))));
        }
        assert_eq!(map.len(), 100);
    }
    // The number of parts and the home of each key stay the same.
    let map = map::partitioned::<u64, u64>(3, |key| (key >> 4) as usize);
    map.set_cluster_size(ClusterSize::Node).unwrap();
    (0..48).for_each(|key| _ = map.set(key, key));
    assert_eq!((map.len(), map.iter().count()), (48, 48));
}

/// Writers add, and readers see no earlier value, while the size of the clusters changes all the time.
#[test]
fn x_30_the_size_is_changed_while_the_map_is_used_and_nothing_is_lost_or_seen_twice() {
    let _alone = alone();
    const KEYS: u64 = 8;
    const ROUNDS: u64 = 2_000;
    const SWAPS: u64 = 50;
    let partitioned = map::partitioned::<u64, u64>(3, |key| key as usize);
    for map in [map::replicated(ClusterSize::Cpu), partitioned] {
        let handle = map.handle();
        (0..KEYS).for_each(|key| _ = handle.set(key, 0));
        let told: Vec<_> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
        let write = |writer: u64| {
            let mut done = 0;
            while done < ROUNDS || swaps.load(Ordering::Relaxed) < SWAPS {
                assert!(handle.update(&((done + writer) % KEYS), |old| old + 1));
                done += 1;
            }
            done
        };
        let (write, mut updates) = (&write, 0);
        thread::scope(|scope| {
            for reader in 0..2_u32 {
                let (told, stop) = (&told, &stop);
                scope.spawn(move || {
                    for at in (reader..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                        let key = u64::from(at) % KEYS;
                        on(at * 5 % VPS, || {
                            let told = &told[key as usize];
                            let known = told.load(Ordering::Acquire);
                            let seen = handle.get(&key).expect("it is there always");
                            assert!(seen >= known, "{seen} was read after somebody had seen {known}");
                            told.fetch_max(seen, Ordering::AcqRel);
                        });
                    }
                });
            }
            scope.spawn(|| {
                for size in SIZES.into_iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                    // A swap that ran into its timeout leaves everything unchanged.
                    swaps.fetch_add(u64::from(handle.set_cluster_size(size).is_ok()), Ordering::Relaxed);
                }
            });
            let writers: Vec<_> = (0..2_u64)
                .map(|writer| scope.spawn(move || on(writer as u32 * 11, || write(writer))))
                .collect();
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            stop.store(true, Ordering::Relaxed);
            updates = ended.into_iter().map(|ended| ended.unwrap()).sum::<u64>();
        });
        assert_eq!(handle.fold(0, |sum, _, value| sum + value), updates, "an update was lost or made twice");
        assert_eq!(handle.len() as u64, KEYS);
    }
}
