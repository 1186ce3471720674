//! Tests of loads on real threads.

use super::{Joined, Loads, Place, Waited};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::thread;

#[derive(Default)]
struct World {
    loads: Loads<String, usize>,
    values: Mutex<HashMap<String, usize>>,
    panics: bool,
}

impl Place<String, usize> for &World {
    fn find(&self, key: &String) -> Option<usize> {
        self.values.lock().unwrap().get(key).copied()
    }

    fn put(self, key: String, value: usize) {
        assert!(!self.panics, "a place that panics");
        self.values.lock().unwrap().insert(key, value);
    }
}

impl World {
    fn get(&self, key: &str, load: impl FnOnce() -> Option<usize>) -> Option<usize> {
        let turn = match self.loads.join(&self, key.len() as u64, key.to_owned()) {
            Joined::Found(value) => return Some(value),
            Joined::Turn(turn) => turn,
            Joined::Wait(wait) => match wait.block() {
                Waited::Value(value) => return Some(value),
                Waited::Turn(turn) => turn,
            },
        };
        Some(turn.finish(self, load()?))
    }
}

#[test]
fn of_many_callers_one_loads_and_failures_pass_the_turn_on() {
    for fails in [0, 3, 7] {
        let (world, loads, barrier) = (World::default(), AtomicUsize::new(0), Barrier::new(8));
        let found: usize = thread::scope(|scope| {
            let caller = |_| {
                scope.spawn(|| {
                    barrier.wait();
                    let load = || {
                        let number = loads.fetch_add(1, Relaxed);
                        if number == 2 {
                            std::panic::resume_unwind(Box::new("a loader that panics"));
                        }
                        (number >= fails).then_some(number)
                    };
                    catch_unwind(AssertUnwindSafe(|| world.get("key", load))).ok().flatten()
                })
            };
            let callers: Vec<_> = (0..8).map(caller).collect();
            callers.into_iter().filter_map(|caller| caller.join().unwrap()).count()
        });
        // The loads before the first good one failed, and each of them lost its caller.
        assert_eq!((loads.load(Relaxed), found), (fails + 1, 8 - fails));
        assert_eq!(world.loads.count(), 0);
    }
}

#[test]
fn keys_with_one_hash_have_loads_of_their_own() {
    let world = World::default();
    let outer = world.get("one", || {
        let inner = world.get("two", || Some(2));
        inner.map(|inner| inner + 1)
    });
    assert_eq!((outer, world.loads.count()), (Some(3), 0));
}

#[test]
fn a_place_that_panics_keeps_no_caller_waiting() {
    let world = World { panics: true, ..World::default() };
    let (start, waits) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let load = || {
                start.wait();
                waits.wait();
                Some(5)
            };
            assert!(catch_unwind(AssertUnwindSafe(|| world.get("key", load))).is_err());
        });
        start.wait();
        let Joined::Wait(wait) = world.loads.join(&&world, 3, "key".to_owned()) else { unreachable!() };
        waits.wait();
        assert!(matches!(wait.block(), Waited::Value(5)));
    });
    assert_eq!(world.loads.count(), 0);
}
