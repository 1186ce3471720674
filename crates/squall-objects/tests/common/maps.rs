//! Maps of each form for the checks of `squall-history`: at rest, and while a thread swaps them between
//! forms.

#![allow(dead_code, reason = "each test binary uses some of it")]

use squall_core::Handle;
use squall_core::swap::{Replacement, Swap};
use squall_history::maps::{ConcurrentMap, Held, Maker, Step};
use squall_machine::ClusterSize;
use squall_objects::map::{self, Compute, Map, MapExt, OwnedMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A form of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Shared,
    Locked,
    Partitioned,
    Replicated,
    Adaptive,
}

pub(crate) const FORMS: [Form; 5] =
    [Form::Shared, Form::Locked, Form::Partitioned, Form::Replicated, Form::Adaptive];
/// Forms that can be swapped in.
pub(crate) const NEW: [Form; 4] = [Form::Locked, Form::Partitioned, Form::Replicated, Form::Shared];
const PARTS: usize = 3;

/// Home part of a key. Neighbours go by pairs, so a part has few of a check's keys.
fn home(key: u64) -> usize {
    (key >> 1) as usize
}

impl Form {
    pub(crate) fn make<V: Held, S: Hashing>(self, hasher: S) -> OwnedMap<u64, V, S> {
        match self {
            Form::Shared => map::shared_with(0, hasher),
            Form::Locked => map::locked_with(0, hasher),
            Form::Partitioned => map::partitioned_with(PARTS, home, ClusterSize::Cpu, hasher),
            Form::Replicated => map::replicated_with(0, ClusterSize::Cpu, hasher),
            Form::Adaptive => map::adaptive_with(0, hasher),
        }
    }

    pub(crate) fn to_come<V: Held, S: Hashing>(self) -> Replacement<dyn Map<u64, V, S>> {
        match self {
            Form::Locked => map::new_locked(),
            Form::Partitioned => map::new_partitioned(PARTS, home, ClusterSize::Cpu),
            Form::Replicated => map::new_replicated(ClusterSize::Cpu),
            Form::Shared | Form::Adaptive => map::new_shared(),
        }
    }
}

pub(crate) trait Hashing: BuildHasher + Clone + Send + Sync + 'static {}

impl<S: BuildHasher + Clone + Send + Sync + 'static> Hashing for S {}

/// Implements the checks' interface by calls on the handle.
macro_rules! as_checked {
    ($of:ident<$v:ident $(, $s:ident: $bound:path)?>, $this:ident => $handle:expr) => {
        as_checked!($of<$v $(, $s: $bound)?>, $this => $handle, delete);
    };
    ($of:ident<$v:ident $(, $s:ident: $bound:path)?>, $this:ident => $handle:expr, $delete:ident) => {
        impl<$v: Held $(, $s: $bound)?> ConcurrentMap<$v> for $of<$v $(, $s)?> {
            fn get(&self, key: u64) -> Option<$v> {
                let $this = self;
                $handle.get_cloned(&key)
            }
            fn insert(&self, key: u64, value: $v) -> Option<$v> {
                let $this = self;
                $handle.insert(key, value)
            }
            fn set(&self, key: u64, value: $v) -> bool {
                let $this = self;
                $handle.set(key, value)
            }
            fn try_insert(&self, key: u64, value: $v) -> Result<(), $v> {
                let $this = self;
                $handle.try_insert(key, value).map_err(|(_, value)| value)
            }
            fn get_or_insert_with(&self, key: u64, make: &mut dyn FnMut() -> $v) -> $v {
                let $this = self;
                $handle.get_or_insert_with(key, make)
            }
            fn remove(&self, key: u64) -> Option<$v> {
                let $this = self;
                $handle.remove(&key)
            }
            fn discard(&self, key: u64) -> bool {
                let $this = self;
                $handle.$delete(&key)
            }
            fn remove_if(&self, key: u64, goes: &mut dyn FnMut(&$v) -> bool) -> bool {
                let $this = self;
                $handle.remove_if(&key, goes)
            }
            fn update(&self, key: u64, change: &mut dyn FnMut(&$v) -> $v) -> bool {
                let $this = self;
                $handle.update(&key, change)
            }
            fn compute(&self, key: u64, step: &mut dyn FnMut(Option<&$v>) -> Step<$v>) {
                let $this = self;
                let _ = $handle.compute(key, |value| match step(value) {
                    Step::Keep => Compute::Keep,
                    Step::Put(value) => Compute::Put(value),
                    Step::Remove => Compute::Remove,
                });
            }
            fn for_each(&self, visit: &mut dyn FnMut(u64, &$v)) {
                let $this = self;
                $handle.for_each(|key, value| visit(*key, value));
            }
            fn retain(&self, keep: &mut dyn FnMut(u64, &$v) -> bool) {
                let $this = self;
                $handle.retain(|key, value| keep(*key, value));
            }
            fn clear(&self) {
                let $this = self;
                $handle.clear();
            }
            fn len(&self) -> usize {
                let $this = self;
                $handle.len()
            }
            fn reserve(&self, more: usize) {
                let $this = self;
                $handle.reserve(more);
            }
            fn shrink(&self) {
                let $this = self;
                $handle.shrink_to_fit();
            }
        }
    };
}

/// A map that keeps its form.
pub(crate) struct AtRest<V: Held, S: Hashing>(pub(crate) OwnedMap<u64, V, S>);
as_checked!(AtRest<V, S: Hashing>, this => this.0.handle());

/// Makes maps of one form.
pub(crate) struct Maps<S>(pub(crate) Form, pub(crate) S);

impl<S: Hashing> Maker for Maps<S> {
    type Map<V: Held> = AtRest<V, S>;

    fn make<V: Held>(&self) -> AtRest<V, S> {
        AtRest(self.0.make(self.1.clone()))
    }

    fn settle(&self) {
        squall_rcu::barrier().expect("no operation is open here");
    }
}

/// A hasher that counts the structures with a clone of it: each table and each locked map has one.
#[derive(Clone)]
pub(crate) struct Tracked(RandomState, Arc<()>);

impl BuildHasher for Tracked {
    type Hasher = <RandomState as BuildHasher>::Hasher;

    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

/// A map that a thread of its own swaps between forms.
pub(crate) struct Swapped<V: Held> {
    map: Option<OwnedMap<u64, V, Tracked>>,
    turns: Arc<Turns>,
    swapper: Option<JoinHandle<()>>,
    gone: Arc<AtomicBool>,
}
as_checked!(Swapped<V>, this => this.map.as_ref().expect("there until it is dropped").handle());

impl<V: Held> Drop for Swapped<V> {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
        let ended = self.swapper.take().map(JoinHandle::join);
        self.map = None;
        if let Some(Err(panic)) = ended
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// State shared by the swapping threads.
#[derive(Default)]
struct Turns {
    /// Held by each swap. True while swaps are paused.
    paused: Mutex<bool>,
    swaps: AtomicU64,
}

/// A map that may be alive: its hashers, whether it was dropped, and a function that makes it shared.
struct Known {
    hashers: std::sync::Weak<()>,
    gone: Arc<AtomicBool>,
    make_shared: Box<dyn Fn() + Send>,
}

/// Makes maps that are swapped while they are checked.
#[derive(Default)]
pub(crate) struct Swapping {
    turns: Arc<Turns>,
    made: AtomicUsize,
    known: Mutex<Vec<Known>>,
}

impl Swapping {
    /// Number of swaps so far.
    pub(crate) fn swaps(&self) -> u64 {
        self.turns.swaps.load(Ordering::Relaxed)
    }

    pub(crate) fn maps(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }
}

impl Maker for Swapping {
    type Map<V: Held> = Swapped<V>;

    fn make<V: Held>(&self) -> Swapped<V> {
        let first = FORMS[self.made.fetch_add(1, Ordering::Relaxed) % FORMS.len()];
        let token = Arc::new(());
        let hashers = Arc::downgrade(&token);
        let map = first.make(Tracked(RandomState::new(), token));
        let (handle, gone) = (map.handle(), Arc::new(AtomicBool::new(false)));
        let mut known = self.known.lock().unwrap();
        known.retain(|known| known.hashers.strong_count() > 0);
        known.push(Known {
            hashers,
            gone: gone.clone(),
            make_shared: Box::new(move || swap_to(handle, Form::Shared)),
        });
        drop(known);
        *self.turns.paused.lock().unwrap() = false;
        let (turns, over) = (self.turns.clone(), gone.clone());
        let swapper = thread::spawn(move || {
            for form in NEW.into_iter().cycle() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let paused = turns.paused.lock().unwrap();
                if !*paused {
                    swap_to(handle, form);
                    turns.swaps.fetch_add(1, Ordering::Relaxed);
                }
                drop(paused);
                thread::yield_now();
            }
        });
        Swapped { map: Some(map), turns: self.turns.clone(), swapper: Some(swapper), gone }
    }

    /// Stops the swaps, and waits until each live map has only the structure of its form.
    fn settle(&self) {
        *self.turns.paused.lock().unwrap() = true;
        for known in self.known.lock().unwrap().iter() {
            let gone = known.gone.load(Ordering::Relaxed);
            if !gone {
                (known.make_shared)();
            }
            while known.hashers.strong_count() > usize::from(!gone) {
                squall_rcu::barrier().expect("no operation is open here");
                thread::yield_now();
            }
        }
        squall_rcu::barrier().expect("no operation is open here");
    }
}

impl<V: Held> Swapped<V> {
    /// Number of swaps of all maps of the same maker so far.
    pub(crate) fn swaps(&self) -> u64 {
        self.turns.swaps.load(Ordering::Relaxed)
    }
}

pub(crate) fn swap_to<V: Held, S: Hashing>(handle: Handle<dyn Map<u64, V, S>>, form: Form) {
    // A thread may be preempted in a call; a deadlock lasts longer.
    let swap = Swap::new(handle).drain_timeout(Duration::from_secs(60));
    swap.run(form.to_come()).unwrap_or_else(|error| panic!("to {form:?}: {error}"));
}

/// A map that changes its form by itself with every few calls.
pub(crate) struct Restless<V: Held> {
    map: OwnedMap<u64, V>,
    calls: AtomicUsize,
}

impl<V: Held> Restless<V> {
    fn handle(&self) -> Handle<dyn Map<u64, V, RandomState>> {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        let handle = self.map.handle();
        if calls % 5 == 4 && !squall_rcu::in_operation() {
            swap_to(handle, NEW[calls / 5 % NEW.len()]);
        }
        handle
    }
}
as_checked!(Restless<V>, this => this.handle());

/// Makes maps that change their form by themselves.
pub(crate) struct RestlessMaps;

impl Maker for RestlessMaps {
    type Map<V: Held> = Restless<V>;

    fn make<V: Held>(&self) -> Restless<V> {
        Restless { map: Form::Locked.make(RandomState::new()), calls: AtomicUsize::new(0) }
    }
}
