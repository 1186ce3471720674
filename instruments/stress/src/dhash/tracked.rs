//! A directory and the record of its entries and uses.
//!
//! Problem: threads fill, use and remove keys at the same time, so a call has no single right answer. Idea: a
//! key of a directory has one life after another. The closure that removes an entry, with all parts locked,
//! records the end of its life before that takes effect. The caller that fills the key records the next
//! life before that begins. So no two lives of a steady key overlap in the record.
//!
//! - I1. Steady keys are never revoked, and only `remove_with` removes them. Each of their fills makes a
//!   part.
//! - I2. While the drain lock is closed, no caller is inside (`lifecycle/I2`). Then the uses of steady keys
//!   are those that removals have summed, and those in the parts.
//! - I3. A use counts when its closure has changed the part. The result of the call is not considered.

use std::any::Any;
use std::cell::Cell;
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering, fence};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use squall::objects::directory::{
    Directory, FillError, Lookup, Parts as _, Reservation, Revoked, new_directory,
};
use squall::swap::Swap;
use squall::{ClusterSize, Handle, Id};
use squall_history::tasks::block_on;

use super::breaks::Break;
use super::contents::{Entry, NotFilled, Part};
use super::counts::{Stat, count};
use super::world::World;
use crate::run::Rng;
use crate::skeleton::expected_panic::{ExpectedPanic, catch_silently, raise_expected_panic};
use crate::skeleton::lifecycle::{CallOutcome, DrainLock, Lifecycle};

/// Number of steady keys, and of all keys.
const STEADY: u64 = 10;
const KEYS: u64 = 16;
/// With a planned break, one step in this many goes wrong.
const BREAK_ONE_IN: u64 = 512;
/// One closure in this many panics.
const PANICS_ONE_IN: u64 = 16;

type Shown = Handle<dyn Directory<u64, Entry, Part, RandomState>>;
/// A reserved key.
pub(super) type Reserved = Reservation<u64, Entry, Part>;
/// The answer to a caller that reserves an absent key.
type Answer = Result<Lookup<(), Reserved>, FillError>;

/// The lives of a key. They are numbered from 1.
#[derive(Default)]
struct Key {
    /// Lives begun.
    begun: AtomicU64,
    /// Lives begun and not ended.
    open: AtomicI64,
    /// The last life that was seen present.
    filled: AtomicU64,
    /// The last life of which the removal has begun.
    removed: AtomicU64,
}

/// The record of one caller, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Lane {
    /// Uses of steady keys, and the sums of removals.
    used: AtomicU64,
    summed: AtomicU64,
}

fn add(to: &AtomicU64, more: u64) {
    // Relaxed: written by the lane's thread alone, and read when the callers are drained.
    to.store(to.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

pub(super) struct Tracked {
    world: &'static World,
    serial: u64,
    directory: Shown,
    keys: [Key; KEYS as usize],
    lanes: Box<[Lane]>,
    drain_lock: DrainLock,
    pub(super) lifecycle: Lifecycle,
}

fn is_steady(key: u64) -> bool {
    key < STEADY
}

/// How a closure uses a part.
struct Use<'t> {
    tracked: &'t Tracked,
    key: u64,
    /// Whether the closure panics, before or after the use.
    panics: Option<bool>,
    is_lost: bool,
    /// Set by the closure.
    is_used: AtomicBool,
}

impl Use<'_> {
    /// Runs in the closure of a call.
    fn run(&self, entry: &Entry, part: &mut Part) {
        self.tracked.right(entry.life_locked(self.key));
        if self.panics == Some(false) {
            raise_expected_panic();
        }
        part.uses += u64::from(!self.is_lost);
        self.is_used.store(true, Ordering::Relaxed);
        if self.panics == Some(true) {
            raise_expected_panic();
        }
    }
}

impl Tracked {
    pub(super) fn open(world: &'static World, serial: u64, directory: Shown) -> Tracked {
        Tracked {
            world,
            serial,
            directory,
            keys: std::array::from_fn(|_| Key::default()),
            lanes: (0..world.callers).map(|_| Lane::default()).collect(),
            drain_lock: DrainLock::new(world.callers),
            lifecycle: Lifecycle::default(),
        }
    }

    pub(super) fn id(&self) -> Id {
        Handle::id(self.directory)
    }

    fn fail(&self, what: String) {
        self.world.run_state.fail(format!("directory #{}, {}: {what}", self.serial, self.id()));
    }

    fn right<T>(&self, checked: Result<T, String>) -> Option<T> {
        checked.map_err(|what| self.fail(what)).ok()
    }

    /// Returns whether this step goes wrong, in a run with this planned break.
    fn goes_wrong(&self, how: Break, rng: &mut Rng) -> bool {
        self.world.breaks(how, BREAK_ONE_IN, rng)
    }

    /// Calls the directory. The call fails only if the directory is being destroyed.
    fn call<R>(&self, f: impl FnOnce(Shown) -> R) -> CallOutcome<R> {
        let outcome = self.lifecycle.call(|| f(self.directory)).unwrap_or_else(|what| {
            self.fail(what);
            CallOutcome::Failed
        });
        if let CallOutcome::Failed = outcome {
            count(Stat::Stale);
        }
        outcome
    }

    // --- lives ---

    fn key(&self, key: u64) -> &Key {
        &self.keys[key as usize]
    }

    /// Makes the entry of the key's next life. The caller is the only one to fill the key.
    fn begin_life(&self, key: u64) -> (u64, Entry) {
        let record = self.key(key);
        // Relaxed, both: the directory orders the end of a life before the beginning of the next one.
        let open = record.open.fetch_add(1, Ordering::Relaxed);
        let life = record.begun.fetch_add(1, Ordering::Relaxed) + 1;
        // The fill of a destroyed directory fails, and its life is taken back after the key is free again.
        if is_steady(key) && open != 0 && !self.lifecycle.is_ending() {
            self.fail(format!("life {life} of key {key} begins while {open} other(s) have not ended"));
        }
        (life, self.world.entry(key, life))
    }

    /// Takes back a life: its entry did not get into the directory.
    fn take_life_back(&self, key: u64) {
        self.key(key).open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records that a life is present.
    fn note_filled(&self, key: u64, life: u64) {
        // Release: pairs with the acquire in `look`: a lookup after this finds the life, or sees its end.
        self.key(key).filled.fetch_max(life, Ordering::Release);
    }

    /// Records that a removal of the entry begins. The key and all its parts are locked.
    fn end_life(&self, key: u64, entry: &Entry) {
        if let Some(life) = self.right(entry.remove(key)) {
            self.key(key).removed.fetch_max(life, Ordering::Relaxed);
            self.key(key).open.fetch_sub(1, Ordering::Relaxed);
            // Release: pairs with the acquire fence in `look`: a lookup that misses the life sees its end.
            fence(Ordering::Release);
        }
    }

    // --- calls ---

    /// Makes one random call for a lane.
    pub(super) fn use_any(self: &Arc<Tracked>, lane: usize, rng: &mut Rng) {
        self.drain_lock.pass(lane, || {
            let key = rng.below(KEYS);
            match rng.below(32) {
                0..6 => self.make(lane, key, rng),
                6..14 => self.update(lane, key, rng),
                14..22 => self.reserve(lane, key, rng),
                22..28 => self.remove(lane, key, rng),
                28..30 => self.sum(key),
                30 => self.remove_loose(rng),
                _ => self.walk(),
            }
            if self.world.breaks(Break::LeakEntry, 4096, rng) {
                std::mem::forget(self.world.entry(key, 0));
            }
        });
    }

    fn new_use(&self, key: u64, rng: &mut Rng) -> Use<'_> {
        let panics = rng.one_in(PANICS_ONE_IN).then(|| rng.one_in(2));
        let is_lost = is_steady(key) && self.goes_wrong(Break::LoseUse, rng);
        Use { tracked: self, key, panics, is_lost, is_used: AtomicBool::new(false) }
    }

    /// Counts a use after its call (I3).
    fn count_use(&self, lane: usize, used: &Use<'_>) {
        if used.is_used.load(Ordering::Relaxed) {
            count(Stat::Uses);
            add(&self.lanes[lane].used, u64::from(is_steady(used.key)));
        }
    }

    /// Uses the key, and makes its entry if it is absent. The closure that makes it may fail or panic.
    fn make(&self, lane: usize, key: u64, rng: &mut Rng) {
        let (used, fails) = (self.new_use(key, rng), rng.below(PANICS_ONE_IN));
        let twice = self.goes_wrong(Break::DoubleFill, rng);
        let made = Cell::new(None);
        let outcome = self.call(|directory| {
            let make = || {
                let (life, entry) = self.begin_life(key);
                made.set(Some(life));
                match fails {
                    0 | 1 => self.take_life_back(key),
                    _ => return Ok(entry),
                }
                if fails == 0 { Err(()) } else { raise_expected_panic() }
            };
            directory.try_get_or_make(&key, make, |entry, part| {
                if let Some(life) = made.get() {
                    self.note_filled(key, life);
                }
                used.run(entry, part);
            })
        });
        self.count_use(lane, &used);
        match outcome {
            CallOutcome::ExpectedPanic => count(Stat::Panics),
            CallOutcome::Returned(Err(())) if made.get().is_none() || fails != 0 => {
                self.fail(format!("a call of key {key} failed although its closure did not"));
            }
            CallOutcome::Returned(Ok(())) if made.get().is_some() => count(Stat::Made),
            CallOutcome::Returned(Ok(())) if twice => drop(self.begin_life(key)),
            _ => {}
        }
    }

    fn update(&self, lane: usize, key: u64, rng: &mut Rng) {
        let used = self.new_use(key, rng);
        let filled = self.filled(key);
        let outcome = self.call(|directory| directory.update(&key, |entry, part| used.run(entry, part)));
        self.count_use(lane, &used);
        match outcome {
            CallOutcome::ExpectedPanic => count(Stat::Panics),
            CallOutcome::Returned(None) => self.judge(key, filled, None),
            _ => {}
        }
    }

    /// Uses the key, or reserves it and ends the reservation, here or in another thread.
    fn reserve(self: &Arc<Tracked>, lane: usize, key: u64, rng: &mut Rng) {
        let used = self.new_use(key, rng);
        let how = rng.below(8);
        let f = |entry: &Entry, part: &mut Part| used.run(entry, part);
        let outcome: CallOutcome<Option<Answer>> = self.call(|directory| match how {
            0..3 => Some(directory.get_or_reserve(&key, f)),
            3..5 => Some(block_on(directory.get_or_reserve_async(&key, f))),
            5 => {
                let mut future = Box::pin(directory.get_or_reserve_async(&key, f));
                match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(answer) => Some(answer),
                    Poll::Pending => {
                        count(Stat::Left);
                        None
                    }
                }
            }
            _ => match directory.try_get_or_reserve(&key, f) {
                Ok(lookup) => Some(Ok(lookup)),
                Err(_) => {
                    count(Stat::Busy);
                    None
                }
            },
        });
        self.count_use(lane, &used);
        match outcome {
            CallOutcome::ExpectedPanic => count(Stat::Panics),
            CallOutcome::Returned(Some(Err(error))) => self.judge_error(key, &error),
            CallOutcome::Returned(Some(Ok(Lookup::Empty(reserved)))) => {
                if *reserved.key() != key {
                    self.fail(format!("a caller of key {key} got a reservation of key {}", reserved.key()));
                }
                // The thread must not wait for another key before it has ended the reservation.
                let here =
                    if rng.one_in(3) { self.world.handed.give(self, reserved) } else { Some(reserved) };
                match here {
                    Some(reserved) => self.end_reserved(reserved, rng),
                    None => count(Stat::Handed),
                }
            }
            _ => {}
        }
    }

    fn judge_error(&self, key: u64, error: &FillError) {
        count(Stat::Errors);
        match error.inner().downcast_ref() {
            Some(NotFilled(of)) if *of == key => {}
            _ => self.fail(format!("a caller of key {key} got an error of another: {error}")),
        }
    }

    /// Ends a reservation. Waits for no key. The thread may be no caller.
    pub(super) fn end_reserved(&self, reserved: Reserved, rng: &mut Rng) {
        let key = *reserved.key();
        match rng.below(16) {
            0 | 1 => {
                let of = if self.goes_wrong(Break::WrongError, rng) { key + 1 } else { key };
                reserved.fail(NotFilled(of));
                count(Stat::Failed);
            }
            2 => {
                drop(reserved);
                count(Stat::Dropped);
            }
            3 => {
                let lost: Result<(), _> = catch_silently(|| {
                    let _held = reserved;
                    raise_expected_panic()
                });
                self.only_planned(lost);
            }
            _ => self.fill_reserved(key, reserved, rng),
        }
    }

    fn only_planned(&self, outcome: Result<(), Box<dyn Any + Send>>) {
        match outcome {
            Err(panic) if panic.is::<ExpectedPanic>() => count(Stat::Panics),
            Err(_) => self.fail("a reservation panicked".to_owned()),
            Ok(()) => {}
        }
    }

    fn fill_reserved(&self, key: u64, reserved: Reserved, rng: &mut Rng) {
        let is_gone = self.lifecycle.is_destroyed();
        let (life, entry) = self.begin_life(key);
        if self.goes_wrong(Break::LoseFill, rng) {
            self.note_filled(key, life);
            return self.take_life_back(key);
        }
        let (plain, panics) = (!is_steady(key) && rng.one_in(2), rng.one_in(PANICS_ONE_IN));
        let filled = catch_silently(|| {
            if plain {
                return reserved.fill(entry);
            }
            reserved.fill_and_update(entry, |entry, part| {
                self.right(entry.life_locked(key));
                if part.uses != 0 {
                    self.fail(format!("key {key} was used {} times before it was filled", part.uses));
                }
                self.note_filled(key, life);
                if panics {
                    raise_expected_panic();
                }
            })
        });
        match filled {
            Ok(Ok(())) if is_gone && !plain => {
                self.fail("a fill succeeded after destroy had returned".to_owned());
            }
            Ok(Ok(())) => count(Stat::Filled),
            Ok(Err(Revoked(entry))) => {
                count(Stat::Late);
                if entry.life(key) != Ok(life) {
                    self.fail(format!("a late fill of key {key} returned another entry"));
                }
                if is_steady(key) && !self.lifecycle.is_ending() {
                    self.fail(format!("the reservation of key {key} was revoked, but no thread revokes it"));
                }
                self.take_life_back(key);
            }
            Err(panic) => self.only_planned(Err(panic)),
        }
    }

    /// Removes the key, and sums its uses.
    fn remove(&self, lane: usize, key: u64, rng: &mut Rng) {
        let filled = self.filled(key);
        let keep = self.goes_wrong(Break::KeepRemoved, rng);
        let outcome = self.call(|directory| {
            let sum = |(parts, uses): &mut (u64, u64), entry: &Entry, part: &mut Part| {
                if *parts == 0 {
                    self.end_life(key, entry);
                }
                (*parts, *uses) = (*parts + 1, *uses + part.uses);
            };
            match keep {
                true => directory.gather(&key, (0, 0), sum),
                false => directory.remove_with(&key, (0, 0), sum),
            }
        });
        match outcome {
            CallOutcome::Returned(Some((parts, uses))) => {
                count(Stat::Removals);
                if is_steady(key) {
                    add(&self.lanes[lane].summed, uses);
                    if parts == 0 {
                        self.fail(format!("key {key} was filled with a part, and removed without one"));
                    }
                }
            }
            CallOutcome::Returned(None) => self.judge(key, filled, None),
            _ => {}
        }
    }

    /// Revokes a loose key, or removes some.
    fn remove_loose(&self, rng: &mut Rng) {
        let (key, how) = (STEADY + rng.below(KEYS - STEADY), rng.below(8));
        let outcome = self.call(|directory| match how {
            0 => {
                directory.retain(|key, _| is_steady(*key));
                false
            }
            1 => {
                let panics = |_: &u64, _: &Entry| raise_expected_panic();
                directory.retain(panics);
                false
            }
            2 => {
                directory.remove(&key);
                false
            }
            _ => directory.revoke(&key),
        });
        match outcome {
            CallOutcome::ExpectedPanic => count(Stat::Panics),
            CallOutcome::Returned(true) => count(Stat::Revokes),
            _ => {}
        }
    }

    // --- lookups and questions ---

    /// Returns the last life that was seen present.
    fn filled(&self, key: u64) -> u64 {
        // Acquire: pairs with the release in `note_filled`.
        self.key(key).filled.load(Ordering::Acquire)
    }

    /// Checks the life of a steady key that a call found. `filled` was loaded before it.
    fn judge(&self, key: u64, filled: u64, found: Option<u64>) {
        // Acquire: pairs with the release fence in `end_life`.
        fence(Ordering::Acquire);
        let (removed, begun) = {
            let Key { removed, begun, .. } = self.key(key);
            (removed.load(Ordering::Relaxed), begun.load(Ordering::Relaxed))
        };
        let is_right = match found {
            Some(life) => (filled..=begun).contains(&life),
            None => removed >= filled,
        };
        // While the directory is being destroyed, the record is no longer exact.
        if is_steady(key) && !is_right && !self.lifecycle.is_ending() {
            self.fail(format!(
                "a lookup of key {key} found life {found:?}, but life {filled} was present before it, and by its end \
                 life {removed} is removed and life {begun} has begun"
            ));
        }
    }

    /// Looks up a key without a lock.
    pub(super) fn look(&self, rng: &mut Rng) {
        let key = rng.below(KEYS);
        let filled = self.filled(key);
        let outcome = self.call(|directory| directory.read(&key, |entry| entry.life(key)));
        let CallOutcome::Returned(found) = outcome else { return };
        let mut found = found.and_then(|life| self.right(life));
        if self.goes_wrong(Break::MissEntry, rng) {
            found = None;
        }
        self.judge(key, filled, found);
        count(Stat::Looks);
    }

    /// Asks for the sum of a key.
    fn sum(&self, key: u64) {
        let filled = self.filled(key);
        let outcome = self.call(|directory| {
            directory.gather(&key, None, |life, entry, _| *life = self.right(entry.life_locked(key)))
        });
        // A loose key may have no part.
        if let CallOutcome::Returned(found) = outcome {
            self.judge(key, filled, found.flatten());
            count(Stat::Sums);
        }
    }

    /// Visits all keys, with and without locks.
    fn walk(&self) {
        let _ = self.call(|directory| directory.for_each(|key, entry| _ = self.right(entry.life(*key))));
        let _ = self.uses();
        count(Stat::Walks);
    }

    /// Returns the uses in the parts of steady keys.
    fn uses(&self) -> CallOutcome<u64> {
        self.call(|directory| {
            directory.gather_all(0, |sum, key, entry, part| {
                self.right(entry.life_locked(*key));
                *sum += if is_steady(*key) { part.uses } else { 0 };
            })
        })
    }

    // --- the whole directory ---

    /// Drains the callers, and compares the sums with the record.
    pub(super) fn close(&self) {
        if self.drain_lock.close(self.world.run_state) {
            self.compare();
        }
    }

    pub(super) fn reopen(&self) {
        self.drain_lock.open();
    }

    fn compare(&self) {
        let all = |word: fn(&Lane) -> &AtomicU64| {
            self.lanes.iter().map(|lane| word(lane).load(Ordering::Relaxed)).sum::<u64>()
        };
        let CallOutcome::Returned(left) = self.uses() else { return };
        let (used, summed) = (all(|lane| &lane.used), all(|lane| &lane.summed));
        if used != summed + left {
            self.fail(format!(
                "no thread uses it, and it was used {used} times, but removals summed {summed} and the parts have {left}"
            ));
        }
        count(Stat::Exact);
    }

    /// Changes the cluster size by a swap. Returns whether that succeeded.
    pub(super) fn swap(&self, size: ClusterSize, patience: Duration) -> bool {
        Swap::new(self.directory).drain_timeout(patience).run(new_directory(size)).is_ok()
    }
}
