//! A map and the record of the writes to it.
//!
//! Problem: threads write and look up at the same time, so a lookup has no single right answer. Idea: every
//! key has one writer, which records each event of the key before it begins and after it is done. A lookup
//! finds the result of the last event done before it, or of an event begun until it ended.
//!
//! - I1. A lane and its own keys are written by the threads of one worker, which follow each other.
//! - I2. While the drain lock is closed, no thread writes to the map (`lifecycle/I2`).
//! - I3. An event that was begun and failed is taken back before the next one.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use squall::Id;
use squall::objects::map::{Compute, Computed};

use super::any_map::AnyMap;
use super::breaks::Break;
use super::counts::{Stat, count};
use super::token::Token;
use super::world::World;
use crate::run::Rng;
use crate::skeleton::expected_panic::raise_expected_panic;
use crate::skeleton::lifecycle::{CallOutcome, DrainLock, Lifecycle};

/// Number of own keys of each lane.
const OWN: u64 = 40;
/// Number of shared keys, to which all threads add.
const SHARED: u64 = 12;
const SHARED_FROM: u64 = 1 << 40;
/// With a planned break, one step in this many goes wrong.
const BREAK_ONE_IN: u64 = 2048;

/// The state of a key: its last event, and whether that left a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    event: u64,
    is_there: bool,
}

impl State {
    fn of(word: u64) -> State {
        State { event: word >> 1, is_there: word & 1 != 0 }
    }

    fn word(self) -> u64 {
        self.event << 1 | u64::from(self.is_there)
    }

    /// Returns the event of the value, if there is one.
    fn value(self) -> Option<u64> {
        self.is_there.then_some(self.event)
    }

    /// Returns the state after one more event.
    fn next(self, is_there: bool) -> State {
        State { event: self.event + 1, is_there }
    }
}

/// The events of a key, as its writer records them.
#[derive(Default)]
struct Key {
    begun: AtomicU64,
    done: AtomicU64,
}

/// The record of one worker, on cache lines of its own.
#[repr(align(128))]
struct Lane {
    keys: Vec<Key>,
    /// Additions begun and done.
    begun: AtomicU64,
    done: AtomicU64,
}

pub(super) struct TrackedMap {
    world: &'static World,
    serial: u64,
    pub(super) map: AnyMap,
    pub(super) is_adaptive: bool,
    lanes: Box<[Lane]>,
    drain_lock: DrainLock,
    pub(super) lifecycle: Lifecycle,
}

fn number(lane: usize, index: u64) -> u64 {
    (lane as u64) << 8 | index
}

impl TrackedMap {
    pub(super) fn open(world: &'static World, serial: u64, map: AnyMap, is_adaptive: bool) -> TrackedMap {
        let lane = |_| Lane {
            keys: (0..OWN).map(|_| Key::default()).collect(),
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
        };
        for index in 0..SHARED {
            let key = SHARED_FROM + index;
            map.set(key, world.token(key, 0));
        }
        TrackedMap {
            world,
            serial,
            map,
            is_adaptive,
            lanes: (0..world.callers).map(lane).collect(),
            drain_lock: DrainLock::new(world.callers),
            lifecycle: Lifecycle::default(),
        }
    }

    pub(super) fn id(&self) -> Id {
        self.map.id()
    }

    fn fail(&self, what: String) {
        self.world.run_state.fail(format!("map #{}, {}: {what}", self.serial, self.id()));
    }

    /// Returns whether this step goes wrong, in a run with this planned break.
    fn goes_wrong(&self, how: Break, rng: &mut Rng) -> bool {
        self.world.breaks(how, BREAK_ONE_IN, rng)
    }

    /// Calls the map. The call fails only if the map is being destroyed.
    fn call<R>(&self, f: impl FnOnce(AnyMap) -> R) -> CallOutcome<R> {
        let outcome = self.lifecycle.call(|| f(self.map)).unwrap_or_else(|what| {
            self.fail(what);
            CallOutcome::Failed
        });
        if let CallOutcome::Failed = outcome {
            count(Stat::Stale);
        }
        outcome
    }

    // --- own keys ---

    /// Writes or looks up one of the lane's own keys, and checks the answer.
    pub(super) fn write(&self, lane: usize, rng: &mut Rng) {
        self.drain_lock.pass(lane, || {
            let index = rng.below(OWN);
            let now = State::of(self.lanes[lane].keys[index as usize].done.load(Ordering::Relaxed));
            match rng.below(8) {
                0..3 => self.put(lane, index, now, rng),
                3 | 4 => self.take_out(lane, index, now, rng),
                5 => self.panic_in(lane, index, now, rng),
                _ => self.look_at_own(lane, index, now),
            }
            count(Stat::Writes);
        });
    }

    /// Begins an event of a key and runs `act`. Records the event as done if `act` returns true.
    fn event(&self, lane: usize, index: u64, after: State, act: impl FnOnce() -> bool) {
        let key = &self.lanes[lane].keys[index as usize];
        let before = key.done.load(Ordering::Relaxed);
        key.begun.store(after.word(), Ordering::Relaxed);
        // Release: pairs with the acquire fence in `look`: a thread that sees the event's value sees that it
        // was begun.
        fence(Ordering::Release);
        if act() {
            // Release: pairs with the acquire in `look`: a thread that sees that it is done finds its value,
            // or a later one.
            key.done.store(after.word(), Ordering::Release);
        } else {
            key.begun.store(before, Ordering::Relaxed);
        }
    }

    /// Checks the event that a call of this key found.
    fn found(&self, key: u64, how: &str, told: Option<u64>, was: Option<u64>) {
        if told != was {
            self.fail(format!("{how} of key {key} found event {told:?}, but its only writer left {was:?}"));
        }
    }

    fn put(&self, lane: usize, index: u64, now: State, rng: &mut Rng) {
        let (key, after) = (number(lane, index), now.next(true));
        let token = || self.world.token(key, after.event);
        let is_lost = self.goes_wrong(Break::LoseWrite, rng);
        let how = rng.below(6);
        self.event(lane, index, after, || {
            if is_lost {
                return true;
            }
            let came = self.call(|map| match how {
                0 => ("set", Some(map.set(key, token())), now.is_there),
                1 => {
                    let old = map.insert(key, token());
                    self.found(key, "an insertion", old.and_then(|old| self.judged(key, &old)), now.value());
                    ("insert", None, true)
                }
                2 => ("try_insert", Some(map.try_insert(key, token()).is_err()), !now.is_there),
                3 => {
                    let there = self.judged(key, &map.get_or_insert_with(key, token));
                    self.found(key, "get_or_insert_with", there, now.value().or(after.value()));
                    ("get_or_insert_with", None, !now.is_there)
                }
                4 => ("update", Some(map.update(&key, |old| old.next(after.event))), now.is_there),
                _ => {
                    let _ = map.compute(key, |_| Compute::Put(token()));
                    ("compute", None, true)
                }
            });
            match came {
                // Calls that report whether the key was present.
                CallOutcome::Returned((how @ ("set" | "update"), Some(was), _)) => {
                    if was != now.is_there {
                        self.fail(format!(
                            "{how} of key {key} returned {was}, but its only writer left {now:?}"
                        ));
                    }
                    how == "set" || was
                }
                CallOutcome::Returned(("try_insert", Some(refused), _)) => {
                    if refused != now.is_there {
                        self.fail(format!(
                            "try_insert of key {key} failed: {refused}, but its only writer left {now:?}"
                        ));
                    }
                    !refused
                }
                CallOutcome::Returned((_, _, is_made)) => is_made,
                CallOutcome::ExpectedPanic | CallOutcome::Failed => false,
            }
        });
    }

    fn take_out(&self, lane: usize, index: u64, now: State, rng: &mut Rng) {
        let (key, after) = (number(lane, index), now.next(false));
        let (how, goes) = (rng.below(5), rng.one_in(2));
        self.event(lane, index, after, || {
            let came = self.call(|map| match how {
                0 => {
                    let old = map.remove(&key);
                    self.found(key, "a removal", old.and_then(|old| self.judged(key, &old)), now.value());
                    now.is_there
                }
                1 => map.discard(&key),
                2 => map.remove_if(&key, |_| goes),
                3 => {
                    let mut had = false;
                    let _ = map.compute(key, |old| {
                        had = old.is_some();
                        Compute::Remove
                    });
                    had
                }
                _ => {
                    map.retain(|there, _| *there != key);
                    now.is_there
                }
            });
            let CallOutcome::Returned(told) = came else { return false };
            let expected = now.is_there && (how != 2 || goes);
            if told != expected {
                self.fail(format!(
                    "a removal of key {key} returned {told}, but its only writer left {now:?}"
                ));
            }
            told
        });
    }

    /// Raises a panic in a closure: the key keeps its state.
    fn panic_in(&self, lane: usize, index: u64, now: State, rng: &mut Rng) {
        let key = number(lane, index);
        let how = rng.below(4);
        if self.world.is_broken(Break::DirtyPanic) && now.is_there {
            let _ = self.call(|map| map.set(key, self.world.token(key, now.event + 1)));
        }
        let came = self.call(|map| match how {
            0 => map.update(&key, |_| raise_expected_panic()),
            1 => map.compute(key, |_| raise_expected_panic()) == Computed::Kept,
            2 => map.remove_if(&key, |_| raise_expected_panic()),
            _ => map.read(&key, |_| raise_expected_panic()).unwrap_or(false),
        });
        match came {
            CallOutcome::ExpectedPanic => count(Stat::Panics),
            CallOutcome::Returned(_) if now.is_there || how == 1 => {
                self.fail(format!(
                    "the closure for key {key} was not called, but its only writer left {now:?}"
                ));
            }
            _ => {}
        }
        self.look_at_own(lane, index, now);
    }

    fn look_at_own(&self, lane: usize, index: u64, now: State) {
        let key = number(lane, index);
        let came = self.call(|map| map.read(&key, |token| token.event(key)));
        if let CallOutcome::Returned(found) = came {
            self.found(key, "a lookup", found.and_then(|event| self.right(event)), now.value());
        }
    }

    fn judged(&self, key: u64, token: &Token) -> Option<u64> {
        self.right(token.event(key))
    }

    fn right(&self, event: Result<u64, String>) -> Option<u64> {
        event.map_err(|what| self.fail(what)).ok()
    }

    // --- keys of other lanes ---

    /// Looks up a key that another thread writes.
    pub(super) fn look(&self, rng: &mut Rng) {
        let (lane, index) = (rng.below(self.lanes.len() as u64) as usize, rng.below(OWN));
        let (key, noted) = (number(lane, index), &self.lanes[lane].keys[index as usize]);
        // Acquire: pairs with the release in `event`.
        let done = State::of(noted.done.load(Ordering::Acquire));
        let came = self.call(|map| map.read(&key, |token| token.event(key)));
        let CallOutcome::Returned(found) = came else { return };
        // Acquire: pairs with the release fence in `event`: the seen event was begun.
        fence(Ordering::Acquire);
        let begun = State::of(noted.begun.load(Ordering::Relaxed));
        let mut found = found.and_then(|event| self.right(event));
        if self.goes_wrong(Break::StaleLook, rng) {
            found = done.event.checked_sub(1).filter(|_| done.is_there);
        }
        count(Stat::Looks);
        let is_right = match found {
            Some(event) => (done.event..=begun.event).contains(&event),
            // If several events were begun meanwhile, any of them may have removed the value.
            None => !done.is_there || begun.event > done.event + 1 || begun != done && !begun.is_there,
        };
        // While the map is being destroyed, a failed event may have had an effect and was taken back.
        if !is_right && !self.lifecycle.is_ending() {
            let what = format!(
                "a lookup of key {key} found event {found:?}, but {done:?} was done before it, and {begun:?} begun by its end"
            );
            self.fail(what);
        }
    }

    // --- shared keys ---

    /// Adds one to a shared key.
    pub(super) fn add(&self, lane: usize, rng: &mut Rng) {
        self.drain_lock.pass(lane, || {
            let key = SHARED_FROM + rng.below(SHARED);
            let (mine, how) = (&self.lanes[lane], rng.below(2));
            mine.begun.store(mine.begun.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            // Release: pairs with the acquire in `sum`: a thread that sees the addition sees that it was
            // begun.
            fence(Ordering::Release);
            let add = |map: AnyMap| match how {
                0 => map.update(&key, |old| old.next(old.event(key).unwrap_or(0) + 1)),
                _ => {
                    let mut had = false;
                    let _ = map.compute(key, |old| {
                        had = old.is_some();
                        old.map_or(Compute::Keep, |old| {
                            Compute::Put(old.next(old.event(key).unwrap_or(0) + 1))
                        })
                    });
                    had
                }
            };
            match self.call(add) {
                CallOutcome::Returned(true) => {
                    // Release: pairs with the acquire in `sum`: a thread that sees that it is done finds it
                    // in the sum.
                    mine.done.store(mine.done.load(Ordering::Relaxed) + 1, Ordering::Release);
                    count(Stat::Adds);
                }
                CallOutcome::Returned(false) => {
                    self.fail(format!("shared key {key} is absent although no thread removes it"))
                }
                CallOutcome::ExpectedPanic | CallOutcome::Failed => {}
            }
            if self.goes_wrong(Break::DoubleAdd, rng) {
                let _ = self.call(add);
            }
        });
    }

    fn all(&self, word: impl Fn(&Lane) -> &AtomicU64) -> u64 {
        // Acquire: pairs with the release in `add`.
        self.lanes.iter().map(|lane| word(lane).load(Ordering::Acquire)).sum()
    }

    // --- all keys ---

    /// Walks over the map and checks it: all shared keys with their sum, and the lane's own keys.
    pub(super) fn walk(&self, lane: usize, rng: &mut Rng) {
        self.drain_lock.pass(lane, || {
            let done = self.all(|lane| &lane.done);
            let mut seen = Vec::new();
            if let CallOutcome::ExpectedPanic | CallOutcome::Failed =
                self.call(|map| map.for_each(|key, token| seen.push((*key, token.event(*key)))))
            {
                return;
            }
            // Acquire: pairs with the release fence in `add`: every addition in the sum was begun.
            fence(Ordering::Acquire);
            let begun = self.all(|lane| &lane.begun);
            if self.goes_wrong(Break::SkipEntry, rng) {
                seen.retain(|(key, _)| *key != SHARED_FROM);
            }
            let seen: Vec<(u64, u64)> =
                seen.into_iter().filter_map(|(key, event)| Some((key, self.right(event)?))).collect();
            self.judge_shared(&seen, done, begun);
            self.judge_own(&seen, lane);
            count(Stat::Walks);
        });
    }

    fn judge_shared(&self, seen: &[(u64, u64)], done: u64, begun: u64) {
        let shared = || seen.iter().filter(|(key, _)| *key >= SHARED_FROM);
        let mut keys: Vec<u64> = shared().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        if !keys.iter().copied().eq(SHARED_FROM..SHARED_FROM + SHARED) {
            self.fail(format!("a walk saw {keys:?} of the {SHARED} keys that are always present"));
        }
        let sum: u64 = shared().map(|(_, event)| event).sum();
        if !(done..=begun).contains(&sum) {
            self.fail(format!(
                "the sum is {sum}, outside {done} (added before the walk) to {begun} (begun before its end)"
            ));
        }
        count(Stat::Sums);
    }

    /// Checks the own keys of a lane whose thread does not write meanwhile.
    fn judge_own(&self, seen: &[(u64, u64)], lane: usize) {
        for index in 0..OWN {
            let key = number(lane, index);
            let was = State::of(self.lanes[lane].keys[index as usize].done.load(Ordering::Relaxed)).value();
            let mut found = seen.iter().filter(|(there, _)| *there == key).map(|(_, event)| *event);
            self.found(key, "a walk", found.next(), was);
            if found.next().is_some() {
                self.fail(format!("a walk saw key {key} twice"));
            }
        }
    }

    /// Drains the writers and compares the map with the record.
    pub(super) fn close(&self) {
        if self.drain_lock.close(self.world.run_state) {
            self.compare();
        }
    }

    pub(super) fn reopen(&self) {
        self.drain_lock.open();
    }

    /// Compares the map with the record. No thread may write meanwhile.
    fn compare(&self) {
        let mut seen = Vec::new();
        let walked = self.call(|map| {
            map.for_each(|key, token| seen.push((*key, token.event(*key))));
            map.len()
        });
        let CallOutcome::Returned(len) = walked else { return };
        let total = seen.len();
        let seen: Vec<(u64, u64)> =
            seen.into_iter().filter_map(|(key, event)| Some((key, self.right(event)?))).collect();
        let (done, begun) = (self.all(|lane| &lane.done), self.all(|lane| &lane.begun));
        self.judge_shared(&seen, done, begun);
        (0..self.lanes.len()).for_each(|lane| self.judge_own(&seen, lane));
        // Acquire: pairs with the release in `event`.
        let there = |lane: &Lane| {
            lane.keys.iter().filter(|key| State::of(key.done.load(Ordering::Acquire)).is_there).count()
        };
        let entries = SHARED as usize + self.lanes.iter().map(there).sum::<usize>();
        if (len, total) != (entries, entries) {
            let what = format!(
                "no thread writes, but len is {len}, a walk saw {total} entries, and the writers left {entries}"
            );
            self.fail(what);
        }
        count(Stat::Exact);
    }

    /// Reserves room, or gives it up.
    pub(super) fn change_room(&self, rng: &mut Rng) {
        let more = rng.below(2_000) as usize;
        let grows = rng.one_in(2);
        let came = self.call(|map| match grows {
            true => map.try_reserve(more),
            false => {
                map.shrink_to_fit();
                true
            }
        });
        if let CallOutcome::Returned(false) = came {
            self.fail(format!("there is no memory for {more} more entries"));
        }
        count(Stat::Rooms);
    }
}
