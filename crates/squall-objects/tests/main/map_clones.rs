//! The clones that operations of a map make.

use squall_machine::ClusterSize;
use squall_objects::map::{self, Map, MapExt, MapLimit, OwnedMap};
use std::cell::Cell;

thread_local! {
    static CLONES: Cell<u64> = const { Cell::new(0) };
    /// Runs at the next clone.
    static NEXT: Cell<Option<fn()>> = const { Cell::new(None) };
    static MAP: Cell<Option<&'static OwnedMap<u64, Counted>>> = const { Cell::new(None) };
}

/// A value that counts its clones.
#[derive(Debug, PartialEq)]
struct Counted(u64);

impl Clone for Counted {
    fn clone(&self) -> Counted {
        CLONES.set(CLONES.get() + 1);
        if let Some(next) = NEXT.take() {
            next();
        }
        Counted(self.0)
    }
}

fn clones(f: impl FnOnce()) -> u64 {
    let before = CLONES.get();
    f();
    CLONES.get() - before
}

fn forms() -> [(&'static str, OwnedMap<u64, Counted>); 5] {
    [
        ("locked", map::locked()),
        ("shared", map::shared()),
        ("partitioned", map::partitioned(2, |key| key as usize)),
        ("replicated", map::replicated(ClusterSize::Cpu)),
        ("limited", map::limited(map::locked(), MapLimit::entries(9))),
    ]
}

#[test]
fn a_rejected_insertion_clones_nothing() {
    for (form, map) in forms() {
        map.set(1, Counted(1));
        let made = clones(|| assert_eq!(map.try_insert(1, Counted(2)), Err((1, Counted(2)))));
        assert_eq!(made, 0, "{form}");
    }
}

#[test]
fn a_value_that_is_there_is_cloned_once_instead_of_inserting() {
    for (form, map) in forms() {
        map.set(1, Counted(1));
        let made = clones(|| assert_eq!(map.get_or_insert_with(1, || unreachable!()), Counted(1)));
        assert_eq!((made, map.sensors().copies), (1, 0), "{form}");
    }
}

#[test]
fn a_limited_map_returns_no_value_that_another_call_removed() {
    let map = map::limited(map::shared(), MapLimit::entries(9));
    map.set(1, Counted(1));
    MAP.set(Some(Box::leak(Box::new(map))));
    // A clone in `remove` removes the key before `remove` does.
    NEXT.set(Some(|| assert!(MAP.get().unwrap().delete(&1))));
    assert_eq!(MAP.get().unwrap().remove(&1), None);
}
