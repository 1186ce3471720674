//! Maps with a limit, in each form, at rest and while the form changes. The limit holds at each moment, and
//! the final count equals the entries.

use crate::maps::{FORMS, Form, NEW, swap_to};
use squall_core::Handle;
use squall_objects::map::{self, Compute, Computed, Map, MapExt, MapLimit, OwnedMap, ResizeError};
use std::hash::RandomState;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

type Co = Handle<dyn Map<u64, u64, RandomState>>;

fn made(form: Form, limit: MapLimit<u64>) -> (OwnedMap<u64, u64>, Co) {
    let inner = form.make::<u64, _>(RandomState::new());
    let within = inner.handle();
    (map::limited(inner, limit), within)
}

fn taken(map: &OwnedMap<u64, u64>) -> u64 {
    map.budget().expect("it has a limit").taken()
}

/// Returns the message of a panic.
fn panic_of(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("it panics");
    panic.downcast_ref::<String>().cloned().expect("with a text")
}

#[test]
fn a_new_key_beyond_the_limit_is_refused_by_an_error_that_names_the_map_and_the_limit() {
    for form in FORMS {
        let (map, _) = made(form, MapLimit::entries(3));
        assert!((0..3).all(|key| map.set_or_full(key, key) == Ok(false)), "{form:?}");
        let full = map.set_or_full(7, 70).unwrap_err();
        let id = Handle::id(map.handle());
        assert_eq!((full.back, full.id, full.exhausted.limit), ((7, 70), id, 3));
        let text = format!(
            "map {id} is full: 1 more requested, 3 of 3 entries in use; remove entries or raise the limit"
        );
        assert_eq!(full.to_string(), text);
        assert!(map.compute_or_full(7, |_| Compute::Put(1)).is_err());
        // These methods have no way to return the error.
        let refused: [&dyn Fn(); 7] = [
            &|| _ = map.set(7, 1),
            &|| _ = map.insert(7, 1),
            &|| _ = map.try_insert(7, 1),
            &|| _ = map.get_or_insert_with(7, || 1),
            &|| _ = map.compute(7, |_| Compute::Put(1)),
            &|| _ = map.entry(7).or_insert(1),
            &|| (&map).extend([(7, 1)]),
        ];
        refused.iter().for_each(|act| assert_eq!(panic_of(act), text, "{form:?}"));
        assert!(!map.contains_key(&7) && taken(&map) == 3 && map.len() == 3);
        // A present key is found and changed as before.
        assert_eq!((map.insert(1, 11), map.set(1, 12), map.set_or_full(1, 13)), (Some(1), true, Ok(true)));
        assert_eq!((map.try_insert(1, 1), map.get_or_insert_with(1, || 1)), (Err((1, 1)), 13));
        assert!(map.update(&1, |old| old + 1) && map.get(&1) == Some(14));
        assert_eq!(map.compute(1, |_| Compute::Put(15)), Computed::Updated);
        assert_eq!(map.compute_if_present(&9, |_| Compute::Remove), Computed::Kept);
        assert_eq!((taken(&map), map.compute(0, |_| Compute::Remove)), (3, Computed::Removed));
        assert_eq!((map.set_or_full(7, 70), map.remove(&7), map.delete(&7)), (Ok(false), Some(70), false));
        assert_eq!((taken(&map), map.iter().count(), map.fold(0, |sum, _, value| sum + value)), (2, 2, 17));
        map.retain(|key, _| *key == 2);
        assert_eq!(taken(&map), 1);
        map.budget().unwrap().set_limit(1);
        assert!(
            map.set_or_full(5, 5).is_err() && map.remove_if(&2, |_| true) && map.set_or_full(5, 5).is_ok()
        );
        map.clear();
        assert_eq!((taken(&map), map.is_empty()), (0, true), "{form:?}");
        assert!(map.try_reserve(10) && map.capacity() > 0);
        map.shrink_to_fit();
    }
}

#[test]
fn the_weight_of_values_is_limited_with_the_present_ones() {
    for form in FORMS {
        let inner = form.make::<u64, _>(RandomState::new());
        (0..5).for_each(|key| _ = inner.set(key, 10));
        let map = map::limited(inner, MapLimit::weight(60, "bytes", |value: &u64| *value));
        assert_eq!((taken(&map), map.set_or_full(5, 10)), (50, Ok(false)));
        let full = map.set_or_full(0, 11).unwrap_err();
        assert_eq!((full.back, full.unit, full.exhausted.wanted), ((0, 11), "bytes", 1), "{form:?}");
        assert!(panic_of(|| _ = map.update(&0, |old| old + 1)).contains("60 of 60 bytes"));
        assert_eq!((map.get(&0), map.set_or_full(0, 3), taken(&map)), (Some(10), Ok(true), 53));
        assert_eq!((map.insert(1, 17), map.insert(9, 0), taken(&map)), (Some(10), None, 60));
        assert!(map.set_or_full(1, 17).is_ok(), "no heavier");
        assert_eq!((map.get_or_insert_with(6, || 0), map.try_insert(8, 0), taken(&map)), (0, Ok(()), 60));
        assert!(map.delete(&1) && taken(&map) == 43);
        map.clear();
        assert_eq!(taken(&map), 0);
    }
}

#[test]
fn a_closure_a_weight_or_a_clone_that_panics_leaves_the_count_right() {
    #[derive(Debug)]
    struct Fragile(u64);
    static FRAGILE: AtomicBool = AtomicBool::new(false);
    impl Clone for Fragile {
        fn clone(&self) -> Fragile {
            assert!(!FRAGILE.load(Ordering::Relaxed), "as asked");
            Fragile(self.0)
        }
    }
    for make in [map::shared::<u64, Fragile>, map::locked] {
        let weigh = |value: &Fragile| {
            assert!(value.0 < 1000, "as asked");
            value.0
        };
        let map = map::limited(make(), MapLimit::weight(100, "units", weigh));
        map.set(1, Fragile(10));
        let acts: [&dyn Fn(); 6] = [
            &|| _ = map.compute(1, |_| panic!("as asked")),
            &|| _ = map.compute(2, |_| panic!("as asked")),
            &|| _ = map.update(&1, |_| Fragile(1000)),
            &|| _ = map.set(2, Fragile(1000)),
            &|| _ = map.try_insert(2, Fragile(1000)),
            &|| map.retain(|_, _| panic!("as asked")),
        ];
        acts.iter().for_each(|act| assert!(catch_unwind(AssertUnwindSafe(act)).is_err()));
        FRAGILE.store(true, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| map.remove(&1))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| map.set(3, Fragile(1)))).is_err());
        FRAGILE.store(false, Ordering::Relaxed);
        assert_eq!((map.budget().unwrap().taken(), map.len(), map.delete(&1)), (10, 1, true));
        assert_eq!(map.budget().unwrap().taken(), 0);
    }
}

/// The accuracy that `map::limited` promises: the entries never exceed the limit, under all operations at
/// once.
#[test]
fn the_limit_holds_at_each_moment_in_every_form_and_across_swaps() {
    for form in FORMS {
        for (weighed, swaps) in [(false, false), (true, true), (false, true)] {
            keeps_its_limit(form, weighed, swaps);
        }
    }
}

const MOST: u64 = 24;
const KEYS: u64 = 64;
const ROUNDS: u64 = 3_000;

fn keeps_its_limit(form: Form, weighed: bool, swaps: bool) {
    let limit = if weighed {
        MapLimit::weight(MOST, "units", |value: &u64| value % 8)
    } else {
        MapLimit::entries(MOST)
    };
    let (map, within) = made(form, limit);
    let weight = |value: u64| if weighed { value % 8 } else { 1 };
    // Counted by threads that insert and remove keys of their own. They count an insertion after it, and a
    // removal before it.
    let (over, there, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert!(taken(&map) <= MOST);
                // The counted weight is at most the weight in the map.
                let there = there.load(Ordering::SeqCst);
                assert!(there.cast_signed() <= MOST.cast_signed(), "{there} in the map");
                thread::yield_now();
            }
        });
        let swapper = swaps.then(|| {
            scope.spawn(|| {
                for form in NEW.into_iter().cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                    swap_to(within, form);
                    thread::yield_now();
                }
            })
        });
        let workers: Vec<_> = (0..3_u64)
            .map(|worker| {
                let (map, there, refused) = (&map, &there, &refused);
                scope.spawn(move || {
                    let mut draw = worker + 1;
                    for _ in 0..ROUNDS {
                        draw = draw
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let (key, value) = ((draw >> 33) % KEYS * 3 + worker, draw >> 50);
                        let old = map.get(&key);
                        let had = old.map_or(0, weight);
                        if draw >> 40 & 3 == 0 {
                            there.fetch_sub(had, Ordering::SeqCst);
                            assert_eq!(map.remove(&key), old);
                            continue;
                        }
                        let lighter = had.saturating_sub(weight(value));
                        there.fetch_sub(lighter, Ordering::SeqCst);
                        if map.set_or_full(key, value).is_ok() {
                            there.fetch_add(weight(value).saturating_sub(had), Ordering::SeqCst);
                        } else {
                            there.fetch_add(lighter, Ordering::SeqCst);
                            refused.fetch_add(1, Ordering::Relaxed);
                            assert_eq!(map.get(&key), old, "the entry changed");
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        over.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
        swapper.into_iter().for_each(|swapper| swapper.join().unwrap());
    });
    let sum = map.fold(0, |sum, _, value| sum + weight(*value));
    assert_eq!((taken(&map), there.load(Ordering::SeqCst)), (sum, sum), "{form:?}");
    assert!(sum <= MOST && refused.load(Ordering::Relaxed) > 0, "{form:?}");
}

#[test]
fn the_cluster_size_is_the_inner_map_s() {
    use squall_machine::ClusterSize;
    let (map, within) = made(Form::Replicated, MapLimit::entries(8));
    map.set(1, 1);
    map.set_cluster_size(ClusterSize::Node).unwrap();
    assert_eq!((within.cluster_size(), map.cluster_size()), (ClusterSize::Node, ClusterSize::Node));
    assert_eq!((map.get(&1), taken(&map)), (Some(1), 1));
    for form in [Form::Shared, Form::Locked, Form::Adaptive] {
        let (map, within) = made(form, MapLimit::entries(8));
        let error = map.set_cluster_size(ClusterSize::Node).unwrap_err();
        assert!(matches!(error, ResizeError::OneForAll(_)));
        assert!(error.to_string().contains(&Handle::id(map.handle()).to_string()), "{error}");
        assert!(within.set_cluster_size(ClusterSize::Node).is_err());
    }
}

#[test]
fn a_limited_map_of_every_form_takes_every_other_and_keeps_its_limit() {
    for form in FORMS {
        let (inner, _) = made(form, MapLimit::entries(8));
        // A limit around a limit: the form is that of the innermost map.
        let map = map::limited(inner, MapLimit::weight(100, "units", |value: &u64| *value));
        for new in NEW {
            (1..=8).for_each(|key| _ = map.set(key, key));
            let report =
                map.swap_to(new.to_come()).unwrap_or_else(|error| panic!("{form:?} to {new:?}: {error}"));
            assert_ne!(report.id, Handle::id(map.handle()), "the map within, and not this one");
            assert_eq!((map.len(), map.get(&8), taken(&map)), (8, Some(8), 36));
            assert!(panic_of(|| _ = map.set(9, 1)).contains("8 of 8 entries"));
            assert!(map.set_or_full(1, 99).is_err() && map.delete(&8) && map.set_or_full(9, 1).is_ok());
            assert_eq!((map.len(), taken(&map)), (8, 29));
            map.clear();
            assert_eq!(taken(&map), 0);
        }
        // The outer object has no state to export, so the failed swap loses no entry.
        map.set(1, 1);
        assert!(squall_core::swap::swap(map.handle(), Form::Shared.to_come()).is_err());
        assert_eq!((map.get(&1), taken(&map)), (Some(1), 1));
    }
    let plain = Form::Shared.make::<u64, _>(RandomState::new());
    plain.set(1, 1);
    assert_eq!(plain.swap_to(Form::Locked.to_come()).unwrap().id, Handle::id(plain.handle()));
    assert_eq!(plain.get(&1), Some(1));
}
