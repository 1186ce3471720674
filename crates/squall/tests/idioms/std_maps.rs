//! `std::collections::HashMap`.

use squall::ClusterSize;
use squall::objects::map::{self, MapExt, OwnedMap};
use std::collections::{BTreeMap, HashMap};

/// Owners of one map in each form.
fn forms<V: Clone + Send + Sync + 'static>() -> [OwnedMap<String, V>; 5] {
    [
        map::shared(),
        map::locked(),
        map::replicated(ClusterSize::Cpu),
        map::partitioned(2, |key| key as usize),
        map::adaptive(),
    ]
}

/// Runs these lines on a `std` map and on each form, and compares the results.
macro_rules! equal {
    ($value:ty, |$map:ident| $body:expr) => {{
        let expected = {
            #[allow(unused_mut, reason = "some idioms only read")]
            let mut $map: HashMap<String, $value> = HashMap::new();
            $body
        };
        #[allow(unused_mut, reason = "some idioms only read")]
        for mut $map in forms::<$value>() {
            assert_eq!($body, expected);
        }
    }};
}

fn key(name: &str) -> String {
    name.into()
}

#[test]
fn insertions_and_removals() {
    equal!(u64, |map| {
        let first = (map.insert(key("a"), 1), map.insert(key("a"), 2), map.len(), map.is_empty());
        let there = (map.contains_key("a"), map.contains_key("b"), map.remove("a"), map.remove("a"));
        (first, there, map.is_empty())
    });
    equal!(u64, |map| {
        map.extend([(key("a"), 1), (key("b"), 2), (key("c"), 3)]);
        map.retain(|_, n| *n != 2);
        let left = map.len();
        map.clear();
        (left, map.len(), map.contains_key("a"))
    });
    equal!(u64, |map| {
        map.extend([(key("a"), 1), (key("b"), 2)]);
        (map.remove_entry("a"), map.remove_entry("a"), map.len())
    });
}

#[test]
fn entries_change_the_map() {
    equal!(u64, |map| {
        let count = |n: &mut u64| *n += 1;
        let first = *map.entry(key("a")).and_modify(count).or_insert(10);
        let second = *map.entry(key("a")).and_modify(count).and_modify(count).or_insert(10);
        map.entry(key("a")).and_modify(count);
        map.entry(key("b")).and_modify(count);
        let third = *map.entry(key("a")).or_default();
        let fourth = *map.entry(key("c")).or_insert_with(|| 7);
        let fifth = *map.entry(key("long key")).or_insert_with_key(|key| key.len() as u64);
        let name = map.entry(key("d")).key().clone();
        let again = *map.entry(key("c")).or_insert_with(|| unreachable!("the key is present"));
        ((first, second, third, fourth, fifth), again, name, map.len())
    });
    equal!(Vec<u64>, |map| {
        for n in [1, 2] {
            map.entry(key("a")).and_modify(|list| list.push(n)).or_insert_with(|| vec![n]);
        }
        let list = map.entry(key("a")).or_default().clone();
        (list, map.entry(key("b")).or_default().len())
    });
}

#[test]
fn walks() {
    equal!(u64, |map| {
        map.extend([(key("a"), 1), (key("b"), 2)]);
        let mut seen = BTreeMap::new();
        for (key, value) in map {
            seen.insert(key, value);
        }
        seen
    });
    equal!(u64, |map| {
        map.extend([(key("a"), 1), (key("b"), 2)]);
        let drained: BTreeMap<_, _> = map.drain().collect();
        (drained, map.is_empty())
    });
    equal!(u64, |map| {
        map.extend((0..100).map(|n| (n.to_string(), n)));
        drop(map.drain());
        map.len()
    });
    equal!(u64, |map| {
        map.extend([(key("a"), 1), (key("b"), 2)]);
        (
            map.keys().count(),
            map.values().count(),
            map.iter().fold(0, |sum, (_, n)| sum + n),
            format!("{map:?}").len(),
        )
    });
}

#[test]
fn room() {
    for map in forms::<u64>() {
        map.reserve(1_000);
        assert!(map.capacity() >= 1_000);
        map.shrink_to_fit();
        assert!(map.capacity() < 1_000);
    }
}

#[test]
fn and_modify_or_insert_loses_no_addition() {
    let rounds: u64 = if cfg!(miri) { 50 } else { 50_000 };
    for map in forms::<u64>() {
        let handle = map.handle();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(move || {
                    for round in 0..rounds {
                        let name = ["a", "b"][round as usize % 2];
                        handle.entry(key(name)).and_modify(|n| *n += 1).or_insert(1);
                    }
                });
            }
        });
        assert_eq!((handle.get("a"), handle.get("b")), (Some(rounds * 2), Some(rounds * 2)));
    }
}
