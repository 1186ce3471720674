//! Panics in the `Drop` and the `Clone` of a map's values: every form and method.
//!
//! A panic in a drop stops no other drop. A panic in a clone leaves the map as it was before the call.

use squall_core::{Handle, Owned};
use squall_machine::ClusterSize;
use squall_objects::map::{self, Compute, Map, MapExt, MapLimit, OwnedMap};
use std::hash::RandomState;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Data that all values of a map have in common.
#[derive(Default)]
struct Shared {
    live: AtomicUsize,
    drops_panic: AtomicBool,
    clones_panic: AtomicBool,
}

struct Value {
    number: u64,
    weight: u64,
    /// Whether its drop may panic. Two values of one call never do, except where a call drops many.
    is_first: bool,
    shared: Arc<Shared>,
}

impl Value {
    fn new(number: u64, shared: &Arc<Shared>) -> Value {
        shared.live.fetch_add(1, Ordering::Relaxed);
        Value { number, weight: 1, is_first: false, shared: shared.clone() }
    }
}

impl Clone for Value {
    fn clone(&self) -> Value {
        assert!(!self.shared.clones_panic.load(Ordering::Relaxed), "the clone of {} panics", self.number);
        let mut clone = Value::new(self.number, &self.shared);
        clone.weight = self.weight;
        clone.is_first = self.is_first;
        clone
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.shared.live.fetch_sub(1, Ordering::Relaxed);
        let panics = self.is_first && self.shared.drops_panic.load(Ordering::Relaxed);
        assert!(!panics, "the drop of {} panics", self.number);
    }
}

type Values = Handle<dyn Map<u64, Value, RandomState>>;
/// Name, constructor, and the limit.
type Form = (&'static str, fn() -> OwnedMap<u64, Value>, Option<u64>);

const ENTRIES: u64 = 100;

/// Entries with which an adaptive map has a table in place of its lock.
const GROWN: u64 = 17_000;

const FORMS: [Form; 12] = [
    ("locked", || map::locked(), None),
    ("shared", || map::shared(), None),
    ("partitioned", || map::partitioned(2, |key| key as usize), None),
    ("replicated", || map::replicated(ClusterSize::Cpu), None),
    ("adaptive", || map::adaptive(), None),
    ("limited locked", || map::limited(map::locked(), MapLimit::entries(2 * ENTRIES)), Some(2 * ENTRIES)),
    ("limited shared", || map::limited(map::shared(), MapLimit::entries(2 * ENTRIES)), Some(2 * ENTRIES)),
    ("full", || map::limited(map::shared(), MapLimit::entries(ENTRIES)), Some(ENTRIES)),
    ("weighed and full", || weighed(map::locked(), ENTRIES), Some(ENTRIES)),
    ("weighed locked", || weighed(map::locked(), 2 * ENTRIES), Some(2 * ENTRIES)),
    ("weighed shared", || weighed(map::shared(), 2 * ENTRIES), Some(2 * ENTRIES)),
    ("weighed adaptive", || weighed(map::adaptive(), 2 * ENTRIES), Some(2 * ENTRIES)),
];

fn weighed(map: OwnedMap<u64, Value>, most: u64) -> OwnedMap<u64, Value> {
    map::limited(map, MapLimit::weight(most, "units", |value: &Value| value.weight))
}

fn filled(make: fn() -> OwnedMap<u64, Value>, shared: &Arc<Shared>) -> OwnedMap<u64, Value> {
    let map = make();
    for key in 0..ENTRIES {
        let mut value = Value::new(key, shared);
        value.is_first = true;
        map.set(key, value);
    }
    // A replicated map has copies afterwards.
    (0..ENTRIES).for_each(|key| assert!(map.contains_key(&key) && map.with(&key, |_| ()).is_some()));
    map
}

/// Returns the number of live values, once `is_so` holds for it. A limited map destroys its inner map in a
/// deferred call, and other threads run deferred calls, too. So several rounds are needed.
fn live(shared: &Shared, is_so: impl Fn(usize) -> bool) -> usize {
    for _ in 0..10_000 {
        squall_rcu::barrier().expect("no operation is open here");
        if is_so(shared.live.load(Ordering::Relaxed)) {
            break;
        }
        std::thread::yield_now();
    }
    shared.live.load(Ordering::Relaxed)
}

/// Destroys a map, and returns the number of values that stay undropped.
fn left_after(map: OwnedMap<u64, Value>, shared: &Shared) -> usize {
    quietly(|| _ = Owned::destroy(map.into_owned()).wait());
    live(shared, |live| live == 0)
}

/// Returns the values' numbers by key.
fn numbers(map: Values) -> Vec<(u64, u64)> {
    let mut numbers = Vec::new();
    map.for_each(|key, value| numbers.push((*key, value.number)));
    numbers.sort_unstable();
    assert_eq!(map.len(), numbers.len());
    numbers
}

type Clones = (&'static str, fn(Values, &Arc<Shared>));
type Change = (&'static str, fn(Values, &Arc<Shared>), fn(u64) -> bool);

/// Each method that drops values, and the keys that stay.
const CHANGES: [Change; 13] = [
    ("clear", |map, _| map.clear(), |_| false),
    ("retain", |map, _| map.retain(|key, _| key % 2 == 0), |key| key % 2 == 0),
    ("remove", |map, _| (0..10).for_each(|key| quietly(|| drop(map.remove(&key)))), |key| key >= 10),
    ("delete", |map, _| (0..10).for_each(|key| quietly(|| _ = map.delete(&key))), |key| key >= 10),
    (
        "set",
        |map, shared| (0..10).for_each(|key| quietly(|| _ = map.set(key, Value::new(key, shared)))),
        |_| true,
    ),
    (
        "insert",
        |map, shared| (0..10).for_each(|key| quietly(|| drop(map.insert(key, Value::new(key, shared))))),
        |_| true,
    ),
    ("update", |map, shared| quietly(|| _ = map.update(&1, |old| Value::new(old.number, shared))), |_| true),
    (
        "update to a heavier value",
        |map, shared| quietly(|| _ = map.update(&1, |old| heavier(old, shared))),
        |_| true,
    ),
    (
        "compute",
        |map, shared| {
            (0..10).for_each(|key| {
                quietly(|| {
                    _ = map.compute(key, |old| {
                        old.map_or(Compute::Keep, |old| Compute::Put(heavier(old, shared)))
                    })
                })
            });
        },
        |_| true,
    ),
    (
        "compute_if_present",
        |map, _| quietly(|| _ = map.compute_if_present(&1, |_| Compute::Remove)),
        |key| key != 1,
    ),
    ("set_or_full", |map, shared| quietly(|| _ = map.set_or_full(1, Value::new(1, shared))), |_| true),
    ("iter", |map, _| map.for_each(|_, _| ()), |_| true),
    ("try_reserve", |map, _| quietly(|| _ = map.try_reserve(20_000)), |_| true),
];

/// Returns a value with the same number and a higher weight.
fn heavier(old: &Value, shared: &Arc<Shared>) -> Value {
    let mut value = Value::new(old.number, shared);
    value.weight = old.weight + 2;
    value
}

fn quietly(f: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(f));
}

#[test]
fn a_panic_in_a_drop_stops_no_other_drop() {
    for (form, make, limit) in FORMS {
        let shared = Arc::<Shared>::default();
        let map = filled(make, &shared);
        shared.drops_panic.store(true, Ordering::Relaxed);
        assert_eq!(left_after(map, &shared), 0, "{form}, the map is dropped");
        for (method, call, stays) in CHANGES {
            let shared = Arc::<Shared>::default();
            let map = filled(make, &shared);
            shared.drops_panic.store(true, Ordering::Relaxed);
            quietly(|| call(map.handle(), &shared));
            shared.drops_panic.store(false, Ordering::Relaxed);
            let expected: Vec<_> = (0..ENTRIES).filter(|key| stays(*key)).map(|key| (key, key)).collect();
            assert_eq!(numbers(map.handle()), expected, "{form}, {method}");
            // A replicated map has copies, too.
            let most = if form == "replicated" { 2 * expected.len() } else { expected.len() };
            let live = live(&shared, |live| live <= most);
            assert!((expected.len()..=most).contains(&live), "{form}, {method}: {live}");
            assert_room(map.handle(), limit, &shared, &format!("{form}, {method}"));
            assert_eq!(left_after(map, &shared), 0, "{form}, {method}: the map is dropped");
        }
    }
}

/// Asserts that a limited map takes as many further entries as its limit has room for.
fn assert_room(map: Values, limit: Option<u64>, shared: &Arc<Shared>, name: &str) {
    let Some(limit) = limit else { return };
    let mut weight = 0;
    map.for_each(|_, value| weight += if name.starts_with("weighed") { value.weight } else { 1 });
    let added =
        (0..=limit).take_while(|n| map.set_or_full(u64::MAX - n, Value::new(0, shared)).is_ok()).count();
    assert_eq!(added as u64, limit - weight, "{name}: the weight is {weight} of {limit}");
}

#[test]
#[cfg_attr(miri, ignore = "too many entries")]
fn a_panic_in_a_drop_while_a_limited_map_grows_leaves_its_room_exact() {
    let shared = Arc::<Shared>::default();
    let map = map::limited(map::adaptive(), MapLimit::entries(2 * GROWN));
    shared.drops_panic.store(true, Ordering::Relaxed);
    for key in 0..GROWN {
        let mut value = Value::new(key, &shared);
        value.is_first = key == 0;
        quietly(|| _ = map.set(key, value));
    }
    shared.drops_panic.store(false, Ordering::Relaxed);
    assert_eq!(numbers(map.handle()), (0..GROWN).map(|key| (key, key)).collect::<Vec<_>>());
    assert_room(map.handle(), Some(2 * GROWN), &shared, "grown");
    assert_eq!(left_after(map, &shared), 0);
}

#[test]
fn a_panic_in_a_clone_leaves_the_map_as_it_was() {
    let calls: [Clones; 6] = [
        ("get", |map, _| drop(map.get_cloned(&1))),
        ("insert", |map, shared| drop(map.insert(1, Value::new(1000, shared)))),
        ("remove", |map, _| drop(map.remove(&1))),
        ("get_or_insert_with", |map, shared| drop(map.get_or_insert_with(1, || Value::new(1000, shared)))),
        ("get_or_insert_with of an absent key", |map, shared| {
            drop(map.get_or_insert_with(1000, || Value::new(1000, shared)));
        }),
        ("iter", |map, _| map.iter().for_each(drop)),
    ];
    for (form, make, _) in FORMS {
        for (method, call) in calls {
            let shared = Arc::<Shared>::default();
            let map = filled(make, &shared);
            let before = numbers(map.handle());
            shared.clones_panic.store(true, Ordering::Relaxed);
            let panicked = catch_unwind(AssertUnwindSafe(|| call(map.handle(), &shared))).is_err();
            shared.clones_panic.store(false, Ordering::Relaxed);
            let after = numbers(map.handle());
            // A locked map moves a value out, so it needs no clone. Then the call is complete.
            let expected = match method {
                "remove" if !panicked => before.iter().copied().filter(|(key, _)| *key != 1).collect(),
                "insert" if !panicked => before
                    .iter()
                    .map(|(key, number)| (*key, if *key == 1 { 1000 } else { *number }))
                    .collect(),
                _ => before,
            };
            assert_eq!(after, expected, "{form}, {method}, panicked: {panicked}");
            assert!(!map.set(1, Value::new(1, &shared)) || map.contains_key(&1), "{form}, {method}");
            assert_eq!(left_after(map, &shared), 0, "{form}, {method}: the map is dropped");
        }
    }
}
