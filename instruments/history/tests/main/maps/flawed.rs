//! Std's map behind a lock, with one fault or without.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{ThreadId, current, yield_now};

use super::fault::Fault;
use squall_history::maps::{ConcurrentMap, Counted, Held, Maker, Step};

/// Creates maps with this fault.
pub(crate) struct Broken(pub(crate) Fault);

impl Maker for Broken {
    type Map<V: Held> = Flawed<V>;

    fn make<V: Held>(&self) -> Flawed<V> {
        Flawed {
            fault: self.0,
            inner: Mutex::new(Inner {
                map: HashMap::new(),
                before: HashMap::new(),
                kept: Vec::new(),
                late: HashMap::new(),
                room: FEWEST,
                looks: 0,
            }),
            grows: AtomicBool::new(false),
            len: AtomicUsize::new(0),
        }
    }
}

/// Initial capacity.
const FEWEST: usize = 4;

/// A map with a fault.
pub(crate) struct Flawed<V> {
    fault: Fault,
    inner: Mutex<Inner<V>>,
    grows: AtomicBool,
    /// A separate count of entries.
    len: AtomicUsize,
}

struct Inner<V> {
    map: HashMap<u64, V>,
    /// Previous values.
    before: HashMap<u64, V>,
    kept: Vec<V>,
    /// Values set by a thread and not yet visible to others.
    late: HashMap<ThreadId, (u64, V)>,
    room: usize,
    looks: usize,
}

impl<V: Held> Flawed<V> {
    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn lock(&self) -> MutexGuard<'_, Inner<V>> {
        let mut inner = self.lock_as_it_is();
        if let Some((key, value)) = inner.late.remove(&current().id()) {
            inner.map.insert(key, value);
        }
        inner
    }

    fn lock_as_it_is(&self) -> MutexGuard<'_, Inner<V>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: isize) {
        let len = self.len.load(Ordering::Relaxed);
        yield_now();
        self.len.store(len.wrapping_add_signed(change), Ordering::Relaxed);
    }

    /// Inserts a value and grows if there is no room.
    fn put(&self, key: u64, value: V) -> Option<V> {
        let mut inner = self.lock();
        if inner.map.len() >= inner.room && !inner.map.contains_key(&key) {
            inner.room *= 2;
            inner = self.grow(inner);
        }
        let old = inner.map.insert(key, value);
        if let Some(old) = old.clone().filter(|_| self.is(Fault::StaleGet)) {
            inner.before.insert(key, old);
        }
        drop(inner);
        if self.is(Fault::LenDrifts) && old.is_none() {
            self.count(1);
        }
        old
    }

    /// Inserts the value if the key is absent. Returns the value present afterwards, and the rejected value.
    fn put_if_absent(&self, key: u64, value: V) -> (V, Option<V>) {
        let mut inner = self.lock();
        if inner.map.len() >= inner.room && !inner.map.contains_key(&key) {
            inner.room *= 2;
            inner = self.grow(inner);
        }
        if let Some(there) = inner.map.get(&key) {
            return (there.clone(), Some(value));
        }
        inner.map.insert(key, value.clone());
        drop(inner);
        if self.is(Fault::LenDrifts) {
            self.count(1);
        }
        (value, None)
    }

    fn grow<'a>(&'a self, mut inner: MutexGuard<'a, Inner<V>>) -> MutexGuard<'a, Inner<V>> {
        match self.fault {
            Fault::LosesInGrowth => {
                let lost = inner.map.keys().copied().next();
                lost.and_then(|key| inner.map.remove(&key));
                inner
            }
            Fault::HidesInGrowth => {
                let keys: Vec<_> = inner.map.keys().copied().filter(|key| key % 2 == 0).collect();
                let away: Vec<_> = keys.iter().filter_map(|key| inner.map.remove_entry(key)).collect();
                drop(inner);
                yield_now();
                let mut inner = self.lock();
                for (key, value) in away {
                    inner.map.entry(key).or_insert(value);
                }
                inner
            }
            Fault::GhostsInGrowth | Fault::UpdatesLostInGrowth => {
                drop(inner);
                self.grows.store(true, Ordering::Relaxed);
                yield_now();
                self.grows.store(false, Ordering::Relaxed);
                self.lock()
            }
            _ => inner,
        }
    }

    fn take(&self, key: u64) -> Option<V> {
        if self.is(Fault::DropsEarly) {
            self.bury(key);
        }
        let old = self.lock().map.remove(&key);
        if self.is(Fault::LenDrifts) && old.is_some() {
            self.count(-1);
        }
        old
    }

    /// Marks the value as dropped while others can still see it.
    fn bury(&self, key: u64) {
        let inner = self.lock();
        let value = inner.map.get(&key).map(|value| value as &dyn Any);
        if let Some(counted) = value.and_then(|value| value.downcast_ref::<Counted>()) {
            counted.bury();
        }
        drop(inner);
        yield_now();
    }

    fn done_with(&self, old: V) {
        match self.fault {
            Fault::Leaks => std::mem::forget(old),
            Fault::Keeps => self.lock().kept.push(old),
            _ => drop(old),
        }
    }

    fn found(&self, key: u64) -> Option<V> {
        self.lock().map.get(&key).cloned()
    }
}

impl<V: Held> ConcurrentMap<V> for Flawed<V> {
    fn get(&self, key: u64) -> Option<V> {
        let mut inner = self.lock_as_it_is();
        inner.looks += 1;
        let own = inner.late.get(&current().id()).filter(|(late, _)| *late == key);
        let found = own.map(|(_, value)| value).or_else(|| inner.map.get(&key)).cloned();
        let stale = inner.before.get(&key).cloned().filter(|_| inner.looks.is_multiple_of(5));
        let ghost = self.grows.load(Ordering::Relaxed) && found.is_none() && self.is(Fault::GhostsInGrowth);
        let ghost = inner.map.values().next().cloned().filter(|_| ghost);
        drop(inner);
        drop(self.lock());
        stale.or(found).or(ghost)
    }

    fn insert(&self, key: u64, value: V) -> Option<V> {
        if self.is(Fault::InsertTellsOther) {
            let found = self.found(key);
            yield_now();
            self.put(key, value);
            return found;
        }
        self.put(key, value)
    }

    fn set(&self, key: u64, value: V) -> bool {
        if self.is(Fault::LateStores) {
            let mut inner = self.lock();
            inner.late.insert(current().id(), (key, value));
            return inner.map.contains_key(&key);
        }
        let old = self.put(key, value);
        let was = old.is_some();
        if let Some(old) = old {
            self.done_with(old);
        }
        was
    }

    fn try_insert(&self, key: u64, value: V) -> Result<(), V> {
        if self.is(Fault::TwoWinners) {
            if self.found(key).is_some() {
                return Err(value);
            }
            yield_now();
            self.put(key, value);
            return Ok(());
        }
        match self.put_if_absent(key, value) {
            (_, None) => Ok(()),
            (_, Some(back)) => Err(back),
        }
    }

    fn get_or_insert_with(&self, key: u64, make: &mut dyn FnMut() -> V) -> V {
        if self.is(Fault::TwoValues) {
            return self.found(key).unwrap_or_else(|| {
                let value = make();
                self.put(key, value.clone());
                value
            });
        }
        self.found(key).unwrap_or_else(|| self.put_if_absent(key, make()).0)
    }

    fn remove(&self, key: u64) -> Option<V> {
        if self.is(Fault::RemovedTwice) {
            let found = self.found(key);
            yield_now();
            self.take(key);
            return found;
        }
        self.take(key)
    }

    fn discard(&self, key: u64) -> bool {
        let old = self.take(key);
        let was = old.is_some();
        if let Some(old) = old {
            self.done_with(old);
        }
        was || self.is(Fault::DiscardLies)
    }

    fn remove_if(&self, key: u64, goes: &mut dyn FnMut(&V) -> bool) -> bool {
        if self.is(Fault::RemoveIfTorn) {
            let goes = self.found(key).is_some_and(|value| goes(&value));
            yield_now();
            return goes && self.take(key).is_some();
        }
        let mut inner = self.lock();
        let gone = if inner.map.get(&key).is_some_and(goes) { inner.map.remove(&key) } else { None };
        drop(inner);
        if self.is(Fault::LenDrifts) && gone.is_some() {
            self.count(-1);
        }
        gone.is_some()
    }

    fn update(&self, key: u64, change: &mut dyn FnMut(&V) -> V) -> bool {
        match self.fault {
            Fault::TornUpdate | Fault::UpdateResurrects => {
                let Some(found) = self.found(key) else { return false };
                let new = change(&found);
                yield_now();
                let mut inner = self.lock();
                if self.is(Fault::UpdateResurrects) || inner.map.contains_key(&key) {
                    inner.map.insert(key, new);
                }
                true
            }
            Fault::PanicLoses => {
                let Some(found) = self.lock().map.remove(&key) else { return false };
                let new = change(&found);
                self.lock().map.insert(key, new);
                true
            }
            Fault::UpdatesLostInGrowth if self.grows.load(Ordering::Relaxed) => {
                self.found(key).is_some_and(|found| {
                    change(&found);
                    true
                })
            }
            _ => {
                let mut inner = self.lock();
                let Some(there) = inner.map.get_mut(&key) else { return false };
                let new = change(there);
                *there = new;
                true
            }
        }
    }

    fn compute(&self, key: u64, step: &mut dyn FnMut(Option<&V>) -> Step<V>) {
        if self.is(Fault::TornCompute) {
            let found = self.found(key);
            let step = step(found.as_ref());
            yield_now();
            let mut inner = self.lock();
            match step {
                Step::Keep => {}
                Step::Put(value) => drop(inner.map.insert(key, value)),
                Step::Remove => drop(inner.map.remove(&key)),
            }
            return;
        }
        let mut inner = self.lock();
        let change = match step(inner.map.get(&key)) {
            Step::Keep => 0,
            Step::Put(value) => isize::from(inner.map.insert(key, value).is_none()),
            Step::Remove => -isize::from(inner.map.remove(&key).is_some()),
        };
        drop(inner);
        if self.is(Fault::LenDrifts) {
            self.count(change);
        }
    }

    fn for_each(&self, visit: &mut dyn FnMut(u64, &V)) {
        let before = self.lock().map.len();
        if matches!(self.fault, Fault::IterationSkips | Fault::IterationRepeats) {
            yield_now();
        }
        let inner = self.lock();
        let changed = inner.map.len() != before;
        let first = inner.map.keys().min().copied();
        for (key, value) in &inner.map {
            let times = match self.fault {
                Fault::IterationSkips if changed && Some(*key) == first => 0,
                Fault::IterationRepeats if changed && Some(*key) == first => 2,
                _ => 1,
            };
            (0..times).for_each(|_| visit(*key, value));
        }
    }

    fn retain(&self, keep: &mut dyn FnMut(u64, &V) -> bool) {
        if self.is(Fault::RetainByKey) {
            let copy = self.lock().map.clone();
            for (key, _) in copy.iter().filter(|(key, value)| !keep(**key, value)) {
                self.lock().map.remove(key);
            }
            return;
        }
        let mut inner = self.lock();
        let before = inner.map.len();
        let spared = inner.map.keys().max().copied().filter(|_| self.is(Fault::RetainMisses));
        inner.map.retain(|key, value| Some(*key) == spared || keep(*key, value));
        let change = inner.map.len() as isize - before as isize;
        drop(inner);
        if self.is(Fault::LenDrifts) {
            self.count(change);
        }
    }

    fn clear(&self) {
        let mut inner = self.lock();
        let left = inner.map.keys().max().copied().filter(|_| self.is(Fault::ClearLeaves));
        inner.map.retain(|key, _| Some(*key) == left);
        if self.is(Fault::LenDrifts) {
            self.len.store(0, Ordering::Relaxed);
        }
    }

    fn len(&self) -> usize {
        match self.fault {
            Fault::LenDrifts => self.len.load(Ordering::Relaxed),
            _ => self.lock().map.len(),
        }
    }

    fn shrink(&self) {
        let mut inner = self.lock();
        inner.room = FEWEST;
        inner.map.shrink_to_fit();
    }
}
