//! Models of loads, and their twins with one weakened site.

use super::{Joined, Loads, Place, Waited, sites};
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use squall_sys::sync::{Arc, Mutex, thread};
use std::task::{Poll, Waker};

/// A place for one value.
struct World {
    loads: Loads<u32, u32>,
    value: Mutex<Option<u32>>,
    loaded: AtomicUsize,
}

impl Place<u32, u32> for &World {
    fn find(&self, _: &u32) -> Option<u32> {
        *self.value.lock().unwrap()
    }

    fn put(self, key: u32, value: u32) {
        assert_eq!(key, 1);
        *self.value.lock().unwrap() = Some(value);
    }
}

impl World {
    fn new() -> Arc<World> {
        let (value, loaded) = (Mutex::new(None), AtomicUsize::new(0));
        Arc::new(World { loads: Loads::new(), value, loaded })
    }

    /// Gets the value. `fails` is true for a loader without a value.
    fn get(&self, fails: bool) -> Option<u32> {
        if let Some(value) = (&self).find(&1) {
            return Some(value);
        }
        let turn = match self.loads.join(&self, 0, 1) {
            Joined::Found(value) => return Some(value),
            Joined::Turn(turn) => turn,
            Joined::Wait(wait) => match wait.block() {
                Waited::Value(value) => return Some(value),
                Waited::Turn(turn) => turn,
            },
        };
        if fails {
            return None;
        }
        self.loaded.fetch_add(1, Ordering::Relaxed);
        Some(turn.finish(self, 7))
    }
}

/// Two callers: one load.
fn once() {
    let world = World::new();
    let other = {
        let world = world.clone();
        thread::spawn(move || world.get(false))
    };
    assert_eq!(world.get(false), Some(7));
    assert_eq!(other.join().unwrap(), Some(7));
    assert_eq!((world.loaded.load(Ordering::Relaxed), world.loads.count()), (1, 0));
}

/// A loader fails while another caller waits, which then loads.
fn passes_on() {
    let world = World::new();
    let other = {
        let world = world.clone();
        thread::spawn(move || world.get(true))
    };
    assert_eq!(world.get(false), Some(7));
    assert!(matches!(other.join().unwrap(), None | Some(7)));
    assert_eq!((world.loaded.load(Ordering::Relaxed), world.loads.count()), (1, 0));
}

/// A waiting task that was woken for a turn is dropped. Another caller that waits gets the turn.
fn leaves() {
    let world = World::new();
    let Joined::Turn(turn) = world.loads.join(&&*world, 0, 1) else { unreachable!() };
    let Joined::Wait(mut dropped) = world.loads.join(&&*world, 0, 1) else { unreachable!() };
    assert!(matches!(dropped.poll(Waker::noop()), Poll::Pending));
    let other = {
        let world = world.clone();
        thread::spawn(move || world.get(false))
    };
    drop(turn);
    drop(dropped);
    assert_eq!(other.join().unwrap(), Some(7));
    assert_eq!((world.loaded.load(Ordering::Relaxed), world.loads.count()), (1, 0));
}

/// Makes a test of each model, which must hold.
use squall_sys::models;
models! { within 3: once passes_on leaves }

#[cfg(loom)]
#[test]
fn twins() {
    for (site, model) in
        [(sites::FIND_AGAIN, "once"), (sites::PASS_ON, "passes_on"), (sites::LEAVE, "leaves")]
    {
        squall_sys::sync::weaken::twin(site, &[], &format!("loads::model::{model}::holds"));
    }
}
