//! `papaya::HashMap`.

use squall::objects::map::{self, MapExt};

/// Runs these lines on a pinned papaya map and on a shared and an adaptive map, and compares the results.
macro_rules! equal {
    (|$map:ident| $body:expr) => {{
        let expected = {
            let map: papaya::HashMap<u64, u64> = papaya::HashMap::new();
            let $map = map.pin();
            $body
        };
        for owner in [map::shared::<u64, u64>(), map::adaptive()] {
            let $map = owner.handle();
            assert_eq!($body, expected);
        }
    }};
}

#[test]
fn writes() {
    equal!(|map| {
        let first = (map.try_insert(1, 10).is_ok(), map.try_insert(1, 11).is_ok());
        let there = map.get_or_insert_with(1, || 12).to_string();
        let made = map.get_or_insert_with(2, || 13).to_string();
        map.retain(|_, n| *n < 13);
        let gone = (map.remove(&1).is_some(), map.remove(&2).is_some());
        (first, there, made, gone, map.contains_key(&1), map.is_empty())
    });
    equal!(|map| {
        (0..10).for_each(|n| _ = map.insert(n, n));
        map.clear();
        (map.len(), map.iter().count(), map.keys().count(), map.values().count())
    });
}
