//! `dashmap::DashMap`.

use dashmap::DashMap;
use squall::objects::map::{self, MapExt};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs these lines on a `DashMap` and on a shared and an adaptive map, and compares the results.
macro_rules! equal {
    ($value:ty, |$map:ident| $body:expr) => {{
        let expected = {
            let $map: DashMap<u64, $value> = DashMap::new();
            $body
        };
        for $map in [map::shared::<u64, $value>(), map::adaptive()] {
            assert_eq!($body, expected);
        }
    }};
}

#[test]
fn changes_through_a_shared_reference() {
    equal!(u64, |map| {
        let map = &map;
        let first = (map.insert(1, 10), map.insert(1, 11), map.contains_key(&1));
        (0..10).for_each(|n| _ = map.insert(n, n));
        map.alter_all(|key, n| key * n);
        map.retain(|_, n| *n % 2 == 0);
        let values = (0..10).map(|key| map.get(&key).is_some()).collect::<Vec<_>>();
        let gone = (map.remove(&2).is_some(), map.remove(&2).is_none(), map.remove(&3).is_none());
        (first, values, gone, map.len())
    });
}

#[test]
fn entries_change_the_map_in_one_step() {
    equal!(u64, |map| {
        let first = *map.entry(1).and_modify(|n| *n += 1).or_insert(5);
        let second = *map.entry(1).and_modify(|n| *n += 1).or_insert(5);
        let third = *map.entry(2).or_insert_with(|| 7);
        let error = map.entry(3).or_try_insert_with(|| Err::<u64, _>("none")).map(|value| *value);
        let value = map.entry(3).or_try_insert_with(|| Ok::<u64, &str>(9)).map(|value| *value);
        (first, second, third, error, value, map.len())
    });
}

/// A constructor counts its calls. All threads ask for the absent key at once.
#[test]
fn one_constructor_runs_for_a_key() {
    let threads = if cfg!(miri) { 3 } else { 8 };
    for map in [map::shared::<u64, u64>(), map::locked(), map::adaptive()] {
        let (handle, calls, together) = (map.handle(), AtomicU64::new(0), Barrier::new(threads));
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (calls, together) = (&calls, &together);
                scope.spawn(move || {
                    let construct = || {
                        std::thread::yield_now();
                        Ok::<u64, ()>(calls.fetch_add(1, Ordering::Relaxed) + 1)
                    };
                    together.wait();
                    let value = match thread % 3 {
                        0 => handle.try_get_or_insert_with(7, construct).unwrap(),
                        1 => *handle.entry(7).or_try_insert_with(construct).unwrap(),
                        _ => *handle.entry(7).or_insert_with(|| construct().unwrap()),
                    };
                    assert_eq!(value, 1);
                });
            }
        });
        assert_eq!(calls.into_inner(), 1);
    }
}

#[test]
fn a_failed_or_panicking_constructor_leaves_the_turn_to_the_next() {
    let map = map::shared::<u64, u64>();
    assert_eq!(map.try_get_or_insert_with(1, || Err("no")), Err("no"));
    let handle = map.handle();
    let panics = std::panic::catch_unwind(|| handle.entry(1).or_insert_with(|| panic!("no value")));
    assert!(panics.is_err() && !map.contains_key(&1));
    assert_eq!(map.try_get_or_insert_with(1, || Ok::<_, ()>(5)), Ok(5));
    // A constructor may use the map, also for its own key.
    let nested = map.try_get_or_insert_with(2, || map.try_get_or_insert_with(2, || Ok::<_, ()>(6)));
    assert_eq!((nested, map.get(&2)), (Ok(6), Some(6)));
}

/// A destructor that runs during a panic uses the map as always. An entry that a panic drops does nothing.
#[test]
fn entries_and_drains_work_in_destructors_during_a_panic() {
    struct Counts(map::MapHandle<&'static str, u64>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.entry("panics").and_modify(|n| *n += 1);
            self.0.entry("panics").and_modify(|n| *n += 1).into_key();
        }
    }
    let map = map::shared();
    map.set("panics", 0);
    let handle = map.handle();
    let panics = std::panic::catch_unwind(|| {
        let _counts = Counts(handle);
        let _not_applied = handle.entry("panics").and_modify(|n| *n += 100);
        panic!("for the test");
    });
    assert!(panics.is_err());
    assert_eq!(map.get("panics"), Some(2));
    struct Drains(map::MapHandle<&'static str, u64>);
    impl Drop for Drains {
        fn drop(&mut self) {
            drop(self.0.drain());
        }
    }
    let panics = std::panic::catch_unwind(|| {
        let _drains = Drains(handle);
        panic!("for the test");
    });
    assert!(panics.is_err() && map.is_empty());
}

/// A panic of a method names the caller's line.
#[test]
fn panics_name_the_caller() {
    let map = map::shared::<u64, u64>();
    let handle = map.handle();
    drop(map);
    let places = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let (hook, seen) = (std::panic::take_hook(), places.clone());
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().expect("a panic has a place");
        seen.lock().unwrap().push((place.file().to_owned(), std::thread::current().id()));
    }));
    let calls: [&dyn Fn(); 6] = [
        &|| _ = handle.entry(1).or_insert(1),
        &|| _ = handle.entry(1).or_insert_with(|| 1),
        &|| _ = handle.entry(1).and_modify(|n| *n += 1).or_insert_with(|| 1),
        &|| _ = handle.try_get_or_insert_with(1, || Ok::<_, ()>(1)),
        &|| _ = handle.update_in_place(&1, |n| *n += 1),
        &|| handle.clear(),
    ];
    for call in calls {
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
    }
    std::panic::set_hook(hook);
    let here = std::thread::current().id();
    let places = std::mem::take(&mut *places.lock().unwrap());
    let mine: Vec<_> = places.into_iter().filter(|(_, thread)| *thread == here).collect();
    assert!(
        mine.len() == calls.len() && mine.iter().all(|(file, _)| file.ends_with("dash_maps.rs")),
        "{mine:?}"
    );
}
