//! Loads in progress: of the callers that want an absent key, one loads its value, and the others wait.
//!
//! Problem: a popular key expires, and a thousand callers load it at once.
//!
//! Idea: a list of the keys that are being loaded. The caller that adds a key has its *turn*: it runs its
//! loader. A turn ends with a value, which all callers of the key get, or it passes to the next caller.
//!
//! - I1. A key has at most one load in the list, and a load at most one turn. The list is read and written
//!   under its lock.
//! - I2. A caller adds a load only after it found, under the lock, that the key is absent from the cache. The
//!   value goes into the cache under the lock, when its load leaves the list. So no key is loaded twice
//!   because a value was between the two.
//! - I3. A turn without a value (an error, a panic, a future that was dropped) frees the load and wakes a
//!   caller that waits. A waiting caller that was woken and leaves wakes the next one. A load that no caller
//!   needs leaves the list.
//! - I4. Wakers are called, and keys dropped, outside the lock. A waker that panics keeps no other one from
//!   its call. Deferred calls of RCU run outside the lock too: a place may retire values, and their drops may
//!   load.
//!
//! Cost: a hit does not come here. A load takes the lock of a part of the list twice.
//! Source: the *single flight* of Go's groupcache.
//!
//! ```
//! use squall::parts::loads::{Joined, Loads, Place};
//! use squall::parts::table::Table;
//!
//! struct Cache(Table<u64, u64>);
//!
//! impl Place<u64, u64> for &Cache {
//!     fn find(&self, key: &u64) -> Option<u64> {
//!         self.0.get(key)
//!     }
//!     fn put(self, key: u64, value: u64) {
//!         self.0.set(key, value);
//!     }
//! }
//!
//! let (cache, loads) = (Cache(Table::new()), Loads::new());
//! let square = match loads.join(&&cache, 7, 7) {
//!     Joined::Turn(turn) => turn.finish(&cache, 49), // other callers of 7 waited
//!     Joined::Found(square) => square,
//!     Joined::Wait(_) => unreachable!("no other caller"),
//! };
//! assert_eq!((square, cache.0.get(&7)), (49, Some(49)));
//! ```

#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod sites;
#[cfg(all(test, not(any(loom, squall_model))))]
mod tests;

use squall_sys::sync::{Mutex, MutexGuard};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Poll, Waker};

use crate::block;
use crate::drops::Drops;

#[cfg(not(loom))]
use squall_rcu::__callback_free as quiet;

/// Models have no deferred calls.
#[cfg(loom)]
struct Quiet;

#[cfg(loom)]
fn quiet() -> Quiet {
    Quiet
}

/// The parts of the list.
const PARTS: usize = if cfg!(loom) { 1 } else { 64 };

/// The place of loaded values, such as a cache.
pub trait Place<K, V> {
    /// Returns the value of a key if it is there. Called under the lock of a part of the list.
    fn find(&self, key: &K) -> Option<V>;
    /// Adds a value. Called under the lock of a part of the list, so it must not load a value itself.
    fn put(self, key: K, value: V);
}

/// A key that is being loaded.
struct Load<K, V> {
    number: u64,
    hash: u64,
    /// `None` once the load has left the list for new callers.
    key: Option<K>,
    state: State<V>,
    /// Callers that wait, with the wakers of those that sleep.
    waiting: Vec<(u64, Option<Waker>)>,
}

enum State<V> {
    /// A caller has the turn.
    Taken,
    /// A waiting caller may take the turn.
    Free,
    /// The value, for the callers that wait.
    Done(V),
}

struct Part<K, V> {
    loads: Vec<Load<K, V>>,
    next: u64,
}

/// A list of the keys that are being loaded.
pub struct Loads<K, V> {
    parts: Box<[Mutex<Part<K, V>>]>,
}

/// The answer to a caller that wants a key.
#[derive(Debug)]
pub enum Joined<'a, K, V> {
    /// The key is there meanwhile.
    Found(V),
    /// The caller loads the value.
    Turn(Turn<'a, K, V>),
    /// Another caller loads it.
    Wait(Wait<'a, K, V>),
}

/// The right to load a value. Dropping it passes the turn on.
pub struct Turn<'a, K, V> {
    loads: &'a Loads<K, V>,
    part: usize,
    number: u64,
}

/// A caller that waits.
pub struct Wait<'a, K, V> {
    loads: &'a Loads<K, V>,
    part: usize,
    number: u64,
    caller: u64,
    is_over: bool,
}

impl<K: Eq, V: Clone> Loads<K, V> {
    /// Returns an empty list.
    pub fn new() -> Loads<K, V> {
        let part = || Mutex::new(Part { loads: Vec::new(), next: 0 });
        Loads { parts: (0..PARTS).map(|_| part()).collect() }
    }

    /// Finds the key, or joins its load.
    ///
    /// `hash` is the same for equal keys.
    pub fn join(&self, place: &impl Place<K, V>, hash: u64, key: K) -> Joined<'_, K, V> {
        let part = hash as usize % PARTS;
        // Declared before the lock (I4).
        let _quiet = quiet();
        let mut list = self.lock(part);
        let number = list.next;
        list.next += 1;
        let mut loads = list.loads.iter_mut();
        if let Some(load) = loads.find(|load| load.hash == hash && load.key.as_ref() == Some(&key)) {
            if matches!(load.state, State::Free) {
                load.state = State::Taken;
                let turn = Turn { loads: self, part, number: load.number };
                drop(list);
                drop(key);
                return Joined::Turn(turn);
            }
            load.waiting.push((number, None));
            let wait = Wait { loads: self, part, number: load.number, caller: number, is_over: false };
            drop(list);
            drop(key);
            return Joined::Wait(wait);
        }
        // I2.
        if !sites::FIND_AGAIN.is_weak()
            && let Some(value) = place.find(&key)
        {
            drop(list);
            drop(key);
            return Joined::Found(value);
        }
        list.loads.push(Load { number, hash, key: Some(key), state: State::Taken, waiting: Vec::new() });
        Joined::Turn(Turn { loads: self, part, number })
    }

    /// Number of loads in the list, for tests.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        (0..PARTS).map(|part| self.lock(part).loads.len()).sum()
    }
}

impl<K, V> Loads<K, V> {
    fn lock(&self, part: usize) -> MutexGuard<'_, Part<K, V>> {
        self.parts[part].lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<K, V> Part<K, V> {
    fn place_of(&self, number: u64) -> Option<usize> {
        self.loads.iter().position(|load| load.number == number)
    }

    /// Removes a load that no caller needs, and returns it for its drop (I3).
    fn remove_idle(&mut self, at: usize) -> Option<Load<K, V>> {
        let load = &self.loads[at];
        let is_idle = load.waiting.is_empty() && !matches!(load.state, State::Taken);
        is_idle.then(|| self.loads.swap_remove(at))
    }
}

impl<K, V> Load<K, V> {
    /// Returns the waker of a caller that sleeps, if the turn is free.
    fn next_sleeper(&mut self) -> Option<Waker> {
        if !matches!(self.state, State::Free) {
            return None;
        }
        self.waiting.iter_mut().find_map(|(_, waker)| waker.take())
    }
}

impl<K, V: Clone> Turn<'_, K, V> {
    /// Gives the value to its place and to all callers that wait, and returns it.
    ///
    /// # Panics
    /// If the place or a waker panics. The callers that wait have the value.
    pub fn finish(self, place: impl Place<K, V>, value: V) -> V {
        let _quiet = quiet();
        let mut list = self.loads.lock(self.part);
        let at = list.place_of(self.number).expect("a load in the list has its turn");
        // I2.
        let panicked = list.loads[at].key.take().and_then(|key| {
            let put = AssertUnwindSafe(|| place.put(key, value.clone()));
            catch_unwind(put).err()
        });
        let load = &mut list.loads[at];
        // The clone may panic. The drop of the turn then wakes a caller, so the wakers must still be there.
        load.state = if load.waiting.is_empty() { State::Free } else { State::Done(value.clone()) };
        let wakers: Vec<Waker> = load.waiting.iter_mut().filter_map(|(_, waker)| waker.take()).collect();
        let removed = list.remove_idle(at);
        drop(list);
        std::mem::forget(self);
        drop(removed);
        // The first panic goes on after the last call.
        let mut drops = Drops::default();
        panicked.into_iter().for_each(|panic| drops.keep(panic));
        drops.each(wakers, Waker::wake);
        // Before the return: a value that is being returned is leaked if the drop of a local panics.
        drop(drops);
        value
    }
}

impl<K, V> Drop for Turn<'_, K, V> {
    fn drop(&mut self) {
        let mut list = self.loads.lock(self.part);
        let Some(at) = list.place_of(self.number) else { return };
        list.loads[at].state = State::Free;
        let waker = if !sites::PASS_ON.is_weak() { list.loads[at].next_sleeper() } else { None };
        let removed = list.remove_idle(at);
        drop(list);
        // The thread may panic already, in a loader.
        let mut drops = Drops::default();
        drops.drop(removed);
        drops.each(waker, Waker::wake);
    }
}

/// The end of a wait.
#[derive(Debug)]
pub enum Waited<'a, K, V> {
    /// The value.
    Value(V),
    /// The caller before has none: this one loads the value.
    Turn(Turn<'a, K, V>),
}

impl<'a, K, V: Clone> Wait<'a, K, V> {
    /// Returns the value or the turn, or leaves a waker.
    pub fn poll(&mut self, waker: &Waker) -> Poll<Waited<'a, K, V>> {
        let mut list = self.loads.lock(self.part);
        let Some(at) = list.place_of(self.number) else { unreachable!("a load stays while a caller waits") };
        let load = &mut list.loads[at];
        let caller = self.caller;
        let waited = match &load.state {
            State::Done(value) => Waited::Value(value.clone()),
            State::Free => {
                load.state = State::Taken;
                Waited::Turn(Turn { loads: self.loads, part: self.part, number: self.number })
            }
            State::Taken => {
                let own = load.waiting.iter_mut().find(|(number, _)| *number == caller);
                let old = own.and_then(|(_, own)| own.replace(waker.clone()));
                drop(list);
                drop(old);
                return Poll::Pending;
            }
        };
        load.waiting.retain(|(number, _)| *number != caller);
        let removed = list.remove_idle(at);
        self.is_over = true;
        drop(list);
        drop(removed);
        Poll::Ready(waited)
    }
}

impl<'a, K, V: Clone> Wait<'a, K, V> {
    /// Blocks the thread until the value or the turn is there.
    pub fn block(mut self) -> Waited<'a, K, V> {
        block::block(|waker| self.poll(waker))
    }
}

impl<K, V> Drop for Wait<'_, K, V> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut list = self.loads.lock(self.part);
        let Some(at) = list.place_of(self.number) else { return };
        let load = &mut list.loads[at];
        load.waiting.retain(|(number, _)| *number != self.caller);
        // The wake-up of this caller may have been the one for a free turn.
        let waker = if !sites::LEAVE.is_weak() { load.next_sleeper() } else { None };
        let removed = list.remove_idle(at);
        drop(list);
        // The thread may panic already, in a loader.
        let mut drops = Drops::default();
        drops.drop(removed);
        drops.each(waker, Waker::wake);
    }
}

impl<K: Eq, V: Clone> Default for Loads<K, V> {
    fn default() -> Loads<K, V> {
        Loads::new()
    }
}

impl<K, V> fmt::Debug for Loads<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loads").finish_non_exhaustive()
    }
}

impl<K, V> fmt::Debug for Turn<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<K, V> fmt::Debug for Wait<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("number", &self.number).finish_non_exhaustive()
    }
}
