//! The body of a thread: calls of the cache, and the check of each.

use std::thread;

use squall::cache::ops::compute::{Computed, Op};
use squall::swap::SwapFailure;

use super::breaks::Break;
use super::counts::{Stat, count};
use super::mood;
use super::own::Own;
use super::policy::any_new;
use super::round::{OWN, SHARED, World};
use super::value::Value;
use crate::run::Rng;
use crate::skeleton::delay::delay;
use crate::skeleton::expected_panic::{ExpectedPanic, catch_silently, panic_message};
use crate::skeleton::placement::switch_vp;

/// Maximum number of steps of a thread.
pub(super) const STEPS_MAX: u64 = 1_500;
/// A loader panics once in so many times.
const LOADER_PANIC_ONE_IN: u64 = 16;
/// A loader fails once in so many times.
const FAIL_ONE_IN: u64 = 8;
/// A predicate panics once in so many times.
const PREDICATE_PANIC_ONE_IN: u64 = 1024;
/// A closure that changes an entry panics once in so many times.
const CLOSURE_PANIC_ONE_IN: u64 = 64;

/// An error of a loader: the thread, and a number.
type LoadError = (usize, u64);

/// Calls the cache. After a planned panic there is no result.
fn call<R>(world: &World<'_>, f: impl FnOnce() -> R) -> Option<R> {
    let outcome = catch_silently(f);
    mood::note_caught();
    match outcome {
        Ok(result) => return Some(result),
        Err(panic) if panic.is::<ExpectedPanic>() => count(Stat::Panics),
        Err(panic) => world.fail(format!("a call of a cache panicked: {}", panic_message(&*panic))),
    }
    None
}

/// Swaps the policy.
pub(super) fn swap(world: &World<'_>, rng: &mut Rng) {
    match call(world, || world.cache.swap_policy(any_new(rng))) {
        Some(Ok(_)) => count(Stat::Swaps),
        Some(Err(error)) if error.failure() == SwapFailure::Busy => count(Stat::Busy),
        Some(Err(error)) => world.fail(format!("a policy cannot be swapped: {error}")),
        // The new policy panicked after the swap.
        None => count(Stat::Swaps),
    }
}

/// Runs the loader of a key. If it fails, there is no value.
fn load(world: &World<'_>, key: u64, writer: usize, weight: u32) -> Option<Value> {
    let _running = world.books.begin_load(key);
    if world.breaks(Break::LoadTwice) {
        drop(world.books.begin_load(key));
    }
    (0..mood::below(3)).for_each(|_| thread::yield_now());
    mood::panic_one_in(LOADER_PANIC_ONE_IN);
    if mood::one_in(FAIL_ONE_IN) {
        return None;
    }
    if key + 1 < SHARED && mood::one_in(4) {
        mood::nested(|| {
            count(Stat::Nested);
            // A larger key (`cache/I4`).
            let larger = key + 1 + mood::below(SHARED - key - 1);
            let mut made = None;
            let value = world.cache.optionally_get_with(larger, || {
                let value = load(world, larger, writer, weight)?;
                made = Some(value.serial);
                Some(value)
            });
            if let Some(serial) = made {
                world.books.note_finished(larger, writer, serial);
            }
            if let Some(Err(what)) = value.map(|value| value.check(larger)) {
                world.fail(what);
            }
        });
    }
    world.books.value(key, writer, weight)
}

/// A thread.
pub(super) struct Worker<'a> {
    world: &'a World<'a>,
    index: usize,
    rng: Rng,
    own: Vec<Own>,
    /// The last value that each thread had inserted for a key before a call.
    before: Vec<u64>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(world: &'a World<'a>, index: usize, rng: Rng) -> Worker<'a> {
        let own = (0..OWN).map(|_| Own::default()).collect();
        Worker { world, index, rng, own, before: Vec::new() }
    }

    /// Takes a random number of steps.
    pub(super) fn live(&mut self) {
        for _ in 0..1 + self.rng.below(STEPS_MAX) {
            if self.world.books.violations.is_over() {
                break;
            }
            self.step();
        }
    }

    fn step(&mut self) {
        let world = self.world;
        match self.rng.below(256) {
            0..70 => self.look_up(),
            70..80 => self.look_for(),
            80..130 => self.insert(),
            130..165 => self.load(),
            165..180 => self.change(),
            180..200 => self.remove(),
            200..202 => self.clear(),
            202..206 => self.sweep(),
            206..212 => self.walk(),
            212..222 => world.check_bound(),
            222..224 => drop(call(world, || world.cache.run_pending_tasks())),
            224 => swap(world, &mut self.rng),
            225..230 => world.clock.advance(self.rng.below(200)),
            230 => {
                world.home.confine(None, &mut self.rng);
                switch_vp(&mut self.rng);
            }
            _ => delay(&mut self.rng),
        }
    }

    // --- keys and checks ---

    fn first_own(&self) -> u64 {
        SHARED + self.index as u64 * OWN
    }

    /// Returns the record of a key that this thread alone inserts.
    fn own(&mut self, key: u64) -> Option<&mut Own> {
        let index = key.checked_sub(self.first_own())?;
        self.own.get_mut(index as usize)
    }

    /// Returns a random key that this thread may insert.
    fn key_to_insert(&mut self) -> u64 {
        let first = self.first_own();
        if self.rng.one_in(2) { self.rng.below(SHARED) } else { first + self.rng.below(OWN) }
    }

    /// Returns a random key, often one that this thread inserts.
    fn any_key(&mut self) -> u64 {
        if self.rng.one_in(4) { self.rng.below(self.world.keys) } else { self.key_to_insert() }
    }

    /// Reads the books before a call.
    fn prepare(&mut self, key: u64) {
        let world = self.world;
        world.books.finished(key, &mut self.before);
        let now = if world.breaks(Break::KeepExpired) { u64::MAX } else { world.clock.earliest() };
        if let Some(own) = self.own(key) {
            own.prepare(now, &world.books);
        }
    }

    /// Checks the value that a call found after `prepare`.
    fn judge(&mut self, key: u64, value: &Value, what: &str) {
        let world = self.world;
        count(Stat::Found);
        let wanted = if world.breaks(Break::WrongKey) { key ^ 1 } else { key };
        let serial = if world.breaks(Break::StaleValue) { value.serial - 1 } else { value.serial };
        if let Err(what) = value.check(wanted) {
            return world.fail(what);
        }
        let (writer, last) = (value.writer, self.before[value.writer]);
        if serial < last {
            return world.fail(format!(
                "{what} of key {key} found value {serial} of thread {writer}, which had inserted value {last} before"
            ));
        }
        if let Some(Err(what)) = self.own(key).map(|own| own.note_found(key, serial, what)) {
            world.fail(what);
        }
    }

    /// Notes that a key of this thread's own was absent.
    fn note_absent(&mut self, key: u64) {
        if let Some(own) = self.own(key) {
            own.note_absent();
        }
    }

    /// Notes an insertion that returned, or that panicked.
    fn note_inserted(&mut self, key: u64, serial: u64, is_certain: bool) {
        let world = self.world;
        let end = world.to_live.map(|to_live| world.clock.latest() + to_live);
        if let Some(own) = self.own(key) {
            if is_certain {
                own.note_inserted(serial, end);
            } else {
                own.note_uncertain(serial);
            }
        }
        if is_certain {
            world.books.note_finished(key, self.index, serial);
        }
    }

    // --- calls ---

    fn look_up(&mut self) {
        let (world, key) = (self.world, self.any_key());
        self.prepare(key);
        count(Stat::Lookups);
        match call(world, || world.cache.get(&key)) {
            Some(Some(value)) => self.judge(key, &value, "a lookup"),
            Some(None) => self.note_absent(key),
            None => world.fail("a lookup panicked"),
        }
    }

    fn look_for(&mut self) {
        let (world, key) = (self.world, self.any_key());
        self.prepare(key);
        if !world.cache.contains_key(&key) {
            self.note_absent(key);
        } else if let Some(Err(what)) = self.own(key).map(|own| own.note_present(key)) {
            world.fail(what);
        }
    }

    fn insert(&mut self) {
        let (world, key) = (self.world, self.key_to_insert());
        let weight = world.weight(&mut self.rng);
        let Some(value) = world.books.value(key, self.index, weight) else { return };
        let serial = value.serial;
        let early = world.breaks(Break::TellEarly).then(|| value.clone());
        if world.breaks(Break::LeakValue) {
            std::mem::forget(value.clone());
        }
        let inserted = if world.breaks(Break::LoseInsert) {
            drop(value);
            Some(())
        } else {
            call(world, || world.cache.insert(key, value))
        };
        count(Stat::Inserts);
        self.note_inserted(key, serial, inserted.is_some());
        if let Some(value) = early {
            world.books.note_told(&value);
        }
    }

    fn load(&mut self) {
        let (world, key, index) = (self.world, self.key_to_insert(), self.index);
        let weight = world.weight(&mut self.rng);
        let error: LoadError = (index, self.rng.next());
        self.prepare(key);
        let (mut has_run, mut made) = (false, None);
        let mut loader = || {
            has_run = true;
            let value = load(world, key, index, weight)?;
            made = Some(value.serial);
            Some(value)
        };
        let how = self.rng.below(4);
        let loaded = call(world, || match how {
            0 => Some(world.cache.get_with(key, || loader().unwrap_or_else(|| mood::raise()))),
            1 => Some(world.cache.get_with_by_ref(&key, || loader().unwrap_or_else(|| mood::raise()))),
            2 => world.cache.optionally_get_with(key, loader),
            _ => match world.cache.try_get_with(key, || loader().ok_or(error)) {
                Ok(value) => Some(value),
                Err(found) => {
                    let is_mine = *found == error && !world.breaks(Break::WrongError);
                    if !is_mine {
                        world.fail(format!("a load of thread {index} got the error {found:?} of another"));
                    }
                    None
                }
            },
        });
        if has_run {
            // The key was absent before.
            self.note_absent(key);
        }
        match (loaded, made) {
            (Some(Some(value)), Some(serial)) => {
                count(Stat::Loads);
                let found = if world.breaks(Break::WrongLoad) { serial - 1 } else { value.serial };
                if found != serial {
                    world.fail(format!("a load of value {serial} of key {key} returned value {found}"));
                }
                self.note_inserted(key, serial, true);
            }
            (Some(Some(value)), None) => {
                count(Stat::Shared);
                self.judge(key, &value, "a load");
            }
            (Some(None), None) if has_run => count(Stat::Failed),
            (Some(None), _) => world.fail(format!("a load of key {key} failed, although its loader did not")),
            (None, Some(serial)) => self.note_inserted(key, serial, false),
            (None, None) => {}
        }
    }

    /// Inserts, replaces, removes or keeps an entry by a closure.
    fn change(&mut self) {
        let (world, key, index) = (self.world, self.key_to_insert(), self.index);
        let (weight, how) = (world.weight(&mut self.rng), self.rng.below(4));
        self.prepare(key);
        let (mut seen, mut made) = (None, None::<u64>);
        let change = |value: Option<&Value>| {
            if let Some(serial) = made.take() {
                // The value of an attempt in which another thread was faster.
                world.books.note_lost(serial);
            }
            seen = value.cloned();
            mood::panic_one_in(CLOSURE_PANIC_ONE_IN);
            let value = if how == 0 { None } else { world.books.value(key, index, weight) };
            made = value.as_ref().map(|value| value.serial);
            value.map_or(if how == 0 { Op::Remove } else { Op::Nop }, Op::Put)
        };
        let changed = call(world, || world.cache.compute(key, change));
        count(Stat::Changes);
        let Some(changed) = changed else {
            if let Some(serial) = made {
                self.note_inserted(key, serial, false);
            }
            return;
        };
        match &seen {
            Some(value) => self.judge(key, value, "a change"),
            None => self.note_absent(key),
        }
        match (changed, made) {
            (Computed::Kept, _) => {}
            (Computed::Removed, None) if seen.is_some() => self.note_absent(key),
            (Computed::Inserted, Some(serial)) if seen.is_none() => self.note_inserted(key, serial, true),
            (Computed::Replaced, Some(serial)) if seen.is_some() => self.note_inserted(key, serial, true),
            (Computed::Refused, Some(serial)) => {
                self.note_inserted(key, serial, true);
                self.note_absent(key);
            }
            (changed, made) => {
                let seen = seen.map(|value| value.serial);
                world.fail(format!(
                    "a change of key {key} saw {seen:?} and made {made:?}, but says {changed:?}"
                ));
            }
        }
    }

    fn remove(&mut self) {
        let (world, key) = (self.world, self.any_key());
        self.prepare(key);
        count(Stat::Removals);
        let removed = if world.breaks(Break::IgnoreRemove) {
            None
        } else if self.rng.one_in(4) {
            call(world, || world.cache.invalidate(&key));
            None
        } else {
            call(world, || world.cache.remove(&key)).flatten()
        };
        if let Some(value) = removed {
            self.judge(key, &value, "a removal");
        }
        // A listener panics after the removal.
        self.note_absent(key);
    }

    fn clear(&mut self) {
        let world = self.world;
        count(Stat::Clears);
        if !world.breaks(Break::IgnoreClear) {
            call(world, || world.cache.invalidate_all());
        }
        // A listener panics after the invalidation.
        self.own.iter_mut().for_each(Own::note_absent);
    }

    fn sweep(&mut self) {
        let world = self.world;
        let (modulus, first) = (2 + self.rng.below(6), self.rng.next());
        let is_invalid = |key: u64| key % modulus == first % modulus;
        count(Stat::Sweeps);
        let swept = if world.breaks(Break::IgnoreSweep) {
            Some(())
        } else {
            call(world, || {
                world.cache.invalidate_entries_if(|key, value| {
                    if let Err(what) = value.check(*key) {
                        world.fail(what);
                    }
                    mood::panic_one_in(PREDICATE_PANIC_ONE_IN);
                    is_invalid(*key)
                });
            })
        };
        if swept.is_some() {
            let first = self.first_own();
            let own = self.own.iter_mut().zip(first..);
            own.filter(|(_, key)| is_invalid(*key)).for_each(|(own, _)| own.note_absent());
        }
    }

    /// Walks over the cache. A key of this thread's own that the walk omits is absent.
    fn walk(&mut self) {
        let world = self.world;
        let first = self.first_own();
        let own = first..first + OWN;
        own.clone().for_each(|key| self.prepare(key));
        count(Stat::Walks);
        let Some(mut seen) = call(world, || world.cache.iter().collect::<Vec<_>>()) else { return };
        if world.breaks(Break::SkipEntry) {
            seen.retain(|(key, _)| !own.contains(key));
        }
        if world.breaks(Break::WalkTwice) {
            seen.extend_from_within(..);
        }
        for (key, value) in &seen {
            if let Err(what) = value.check(**key) {
                world.fail(what);
            }
        }
        for key in own {
            let mut found = seen.iter().filter(|(seen, _)| **seen == key);
            match found.next() {
                Some((_, value)) => {
                    let noted = self.own(key).map(|own| own.note_found(key, value.serial, "a walk"));
                    if let Some(Err(what)) = noted {
                        world.fail(what);
                    }
                }
                None => self.note_absent(key),
            }
            if found.next().is_some() {
                world.fail(format!("a walk has key {key} twice"));
            }
        }
    }
}
