//! The replicated form of a map: every check of a concurrent map, and its copies, on a virtual machine of 32 VPs where each thread is on the
//! VP that a test gives it.
#![cfg(not(miri))]

mod map_common;

use map_common::{Form, Maps, swap_to};
use squall_core::{CoRef, info_of};
use squall_history::maps::{Counted, Ledger, Load, Maker, checks};
use squall_history::rng::Rng;
use squall_machine::{ClusterSize, Machine, Vp};
use squall_objects::map::{self, Compute, Computed, Entries, Map};
use std::hash::RandomState;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// The machine of every test here: two nodes of two caches of four cores of two threads.
fn begin() {
    static MADE: Once = Once::new();
    let topology = "nodes:2,caches:2,cores:4,threads:2";
    MADE.call_once(|| _ = Machine::set_virtual(topology.parse().unwrap()).unwrap());
}

const VPS: u32 = 32;

fn on<T>(vp: u32, f: impl FnOnce() -> T) -> T {
    Vp::with_vp(Vp::new(vp), f).unwrap()
}

fn settle() {
    squall_rcu::barrier().unwrap();
}

/// Recorded histories, linearizability of each key among them, and what the test suites of other maps check.
#[test]
fn a_replicated_map_passes_every_check() {
    begin();
    let maker = Maps(Form::Replicated, RandomState::new());
    let load = Load { many: 500, rounds: 40, one_order: false, ..Load::default() };
    every_check(&maker, &load);
}

fn every_check<M: Maker>(maker: &M, load: &Load) {
    for check in checks::<M>() {
        // There are copies at rest: see the test of drops below.
        if check.name != "drops::counted" {
            (check.run)(maker, load)
                .unwrap_or_else(|what| panic!("{}, seed {}: {what}", check.name, load.seed));
        }
    }
}

/// Where the value is that a read finds.
fn place(map: &Map<u64, Box<u64>>, vp: u32) -> usize {
    on(vp, || map.read(&1, |value| std::ptr::from_ref(&**value).addr()).unwrap())
}

#[test]
fn hu_16_a_cluster_that_reads_a_key_has_a_copy_of_its_own_until_the_key_changes() {
    begin();
    let map: Map<u64, Box<u64>> = map::replicated(ClusterSize::Node);
    map.set(1, Box::new(10));
    // The first look of each cluster finds the original, and copies it.
    let original = place(&map, 0);
    assert_eq!(place(&map, 20), original);
    let (near, far) = (place(&map, 0), place(&map, 20));
    assert!(near != original && far != original && near != far);
    assert_eq!((place(&map, 15), place(&map, 31)), (near, far), "one for each node");
    assert_eq!(info_of(CoRef::id(map.co())).unwrap().reps.len(), 2);
    // Another key's change leaves them alone, unless it is in the same stripe, where it takes out its own only.
    map.set(2, Box::new(0));
    assert_eq!((place(&map, 0), place(&map, 20)), (near, far));
    assert!(on(9, || map.update(&1, |value| Box::new(**value + 1))));
    for vp in 0..VPS {
        assert_eq!(on(vp, || map.get(&1)), Some(Box::new(11)));
    }
    assert!(map.discard(&1));
    assert!((0..VPS).all(|vp| on(vp, || !map.contains_key(&1))));
}

#[test]
fn copies_and_values_are_dropped_once_each_and_room_is_given_up() {
    begin();
    let ledger = Ledger::new();
    let map: Map<u64, Counted> = map::replicated(ClusterSize::Core);
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
                            1 => _ = map.discard(&key),
                            2 => _ = map.update(&key, |_| Counted::new(ledger, key)),
                            3 => drop(map.get_or_insert_with(key, || Counted::new(ledger, key))),
                            _ => _ = map.read(&key, |value| assert_eq!(value.number(), key)),
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
        on(vp, || (0..16).for_each(|key| _ = map.read(&key, |_| ())));
    }
    settle();
    assert_eq!(ledger.alive(), 64, "three clusters have copies");
    map.shrink_to_fit();
    settle();
    assert_eq!((ledger.alive(), map.len()), (16, 16));
    on(3, || (0..16).for_each(|key| _ = map.read(&key, |_| ())));
    drop(map);
    while ledger.alive() > 0 {
        settle();
    }
    let (born, died) = ledger.counts();
    assert!(born == died && !ledger.is_wrong());
}

#[test]
fn it_takes_the_entries_over_as_they_are_and_gives_them_back() {
    begin();
    let map: Map<u64, Box<u64>> = map::central();
    map.set(1, Box::new(10));
    let original = place(&map, 0);
    for (form, there) in
        [(Form::Replicated, true), (Form::Central, true), (Form::Replicated, true), (Form::Locked, false)]
    {
        // The types of `swap_to` are the checks'.
        let new = match form {
            Form::Replicated => map::new_replicated(ClusterSize::Cache),
            Form::Central => map::new_central(),
            _ => map::new_locked(),
        };
        squall_core::swap::swap(map.co(), new).unwrap();
        assert_eq!(place(&map, 0) == original, there, "{form:?}");
        assert_eq!(on(17, || map.get(&1)), Some(Box::new(10)));
    }
}

/// Values of each key rise; whoever saw one, in any cluster and in any form, sees no earlier one.
#[test]
fn nobody_sees_an_earlier_value_than_anybody_did_before_across_swaps_too() {
    begin();
    const KEYS: usize = 3;
    let map: Map<u64, u64> = Form::Replicated.make(RandomState::new());
    let co = map.co();
    (0..KEYS as u64).for_each(|key| _ = co.set(key, 0));
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
                    let seen = on(vp, || co.get(&key)).unwrap();
                    assert!(seen >= known, "{seen} after {known}");
                    latest[key as usize].fetch_max(seen, Ordering::SeqCst);
                }
            });
        }
        for round in 0..400 {
            for key in 0..KEYS as u64 {
                assert!(on(round % VPS, || co.update(&key, |value| value + 1)));
            }
            if round % 20 == 19 {
                swap_to(co, if round % 40 == 19 { Form::Central } else { Form::Replicated });
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!((0..KEYS as u64).all(|key| co.get(&key) == Some(400)));
}

#[test]
fn a_closure_may_use_the_map_and_change_any_key() {
    begin();
    let map: Map<u64, u64> = map::replicated(ClusterSize::Cpu);
    let co = map.co();
    (0..200).for_each(|key| _ = co.set(key, key));
    // Some of them are in the stripe of the first.
    let mut asked = 0;
    assert!(co.update(&0, |value| {
        asked += 1;
        (1..200).for_each(|key| _ = co.update(&key, |value| value + 1));
        assert_eq!(co.get(&7), Some(8));
        value + 100
    }));
    assert_eq!((asked, co.get(&0), co.get(&199)), (1, Some(100), Some(200)));
    // One that panics leaves the key as it was, and free to be copied.
    assert!(catch_unwind(AssertUnwindSafe(|| co.compute(0, |_| panic!("in a closure")))).is_err());
    assert_eq!(co.compute(0, |_| Compute::Keep), Computed::Kept);
    assert_eq!((co.get(&0), co.get(&0)), (Some(100), Some(100)));
    co.retain(|key, _| key % 2 == 0);
    assert_eq!((co.len(), co.get(&7), co.get(&8)), (100, None, Some(9)));
}
