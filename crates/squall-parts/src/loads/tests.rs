//! Tests of loads on real threads.

use super::{Joined, Loads, Place, Waited};
use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Poll, Wake, Waker};
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

/// Panics when it is woken.
struct Loud;

impl Wake for Loud {
    fn wake(self: Arc<Loud>) {
        panic!("a waker that panics");
    }
}

#[derive(Default)]
struct Counted(AtomicUsize);

impl Wake for Counted {
    fn wake(self: Arc<Counted>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_waker_that_panics_keeps_no_other_caller_waiting() {
    let (world, counted) = (World::default(), Arc::new(Counted::default()));
    let wakers = [Waker::from(Arc::new(Loud)), Waker::from(counted.clone())];
    let join = || world.loads.join(&&world, 3, "key".to_owned());
    let Joined::Turn(turn) = join() else { unreachable!() };
    let mut waits = wakers.each_ref().map(|waker| {
        let Joined::Wait(mut wait) = join() else { unreachable!() };
        assert!(wait.poll(waker).is_pending());
        wait
    });
    assert!(catch_unwind(AssertUnwindSafe(|| turn.finish(&world, 5))).is_err());
    assert_eq!(counted.0.load(Relaxed), 1);
    for (wait, waker) in waits.iter_mut().zip(&wakers) {
        assert!(matches!(wait.poll(waker), Poll::Ready(Waited::Value(5))));
    }
    drop(waits);
    // A loader that panics meets a waker that panics.
    world.values.lock().unwrap().clear();
    let loaded = catch_unwind(AssertUnwindSafe(|| {
        let Joined::Turn(_turn) = join() else { unreachable!() };
        let Joined::Wait(mut wait) = join() else { unreachable!() };
        assert!(wait.poll(&wakers[0]).is_pending());
        std::mem::forget(wait);
        std::panic::resume_unwind(Box::new("a loader that panics"));
    }));
    assert_eq!(*loaded.unwrap_err().downcast::<&str>().unwrap(), "a loader that panics");
}

thread_local! {
    static PUTS: Cell<bool> = const { Cell::new(false) };
}

/// A value that the place has replaced.
struct Old<'a>(&'a AtomicUsize);

impl Drop for Old<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(usize::from(PUTS.get()), Relaxed);
    }
}

/// A place that replaces many values.
struct Replaces(&'static AtomicUsize);

impl Place<u32, u32> for &Replaces {
    fn find(&self, _: &u32) -> Option<u32> {
        None
    }

    fn put(self, _: u32, _: u32) {
        PUTS.set(true);
        (0..1000).for_each(|_| squall_rcu::retire(Box::new(Old(self.0))));
        PUTS.set(false);
    }
}

#[test]
fn deferred_drops_run_outside_the_lock() {
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    let (loads, place) = (Loads::new(), Replaces(&INSIDE));
    for _ in 0..20 {
        let Joined::Turn(turn) = loads.join(&&place, 1, 1) else { unreachable!() };
        turn.finish(&place, 1);
    }
    assert_eq!(INSIDE.load(Relaxed), 0);
}

/// A place that refuses each value by a panic.
struct Refuses;

impl Place<u32, Arc<()>> for &Refuses {
    fn find(&self, _: &u32) -> Option<Arc<()>> {
        None
    }

    fn put(self, _: u32, _: Arc<()>) {
        panic!("a place that panics");
    }
}

#[test]
fn a_place_that_panics_leaks_no_value() {
    let (loads, value) = (Loads::new(), Arc::new(()));
    let Joined::Turn(turn) = loads.join(&&Refuses, 1, 1) else { unreachable!() };
    assert!(catch_unwind(AssertUnwindSafe(|| turn.finish(&Refuses, value.clone()))).is_err());
    assert_eq!(Arc::strong_count(&value), 1);
}
