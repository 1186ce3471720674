//! The cache: a table of entries, a budget, and evictions.
//!
//! Problem: a bound over many entries. The usual queues are written by each hit, so processors that share a
//! cache fight for them.
//!
//! Idea: no queue. A hit marks its entry once in an epoch. If the cache is full, an insertion draws some
//! entries at random, and a policy compares their marks.
//!
//! - I1. The entries need at most the bound, unless that has just become lower: see squall-parts' `budget`.
//!   The thread that lowers it evicts entries, and so does the next insertion. An insertion takes room before
//!   it inserts. The thread that claims an entry (stored/I1) gives its cost back after the entry has left.
//!   One that replaces an entry claims it first, and takes the difference. If it then fails, it removes the
//!   entry.
//! - I2. Loaders and listeners run outside operations and locks, so they may use the cache.
//!
//! Cost: a hit reads the table, and writes its entry once in an epoch. An insertion into a full cache visits
//! a bucket or two.
//! Source: for sampling, Redis's approximation of LRU; for marks without queues, CLOCK.

mod compute;
mod evict;

use squall_core::{Handle, Owned};
use squall_parts::budget::{Budget, Share};
use squall_parts::loads::{Joined, Loads, Place, Turn};
use squall_parts::table::{Budget as Bound, Table};
use squall_rcu::pin;
use squall_sys::padded::CachePadded;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::inner::evict::Evicted;
use crate::listener::{Listener, RemovalCause, Told};
use crate::policy::{Candidate, Eviction, Mark, Now};
use crate::stats::Counters;
use crate::stored::{Span, Stored};
use crate::time::{Ends, Times};

/// The largest number of entries that a policy expects before the cache has half as many.
const EXPECTED_FIRST: u64 = 1 << 20;

/// Types that a table holds.
pub(crate) trait Held: Send + Sync + 'static {}
impl<T: Send + Sync + 'static> Held for T {}
/// Types of keys.
pub(crate) trait Key: Eq + Hash + Held {}
impl<T: Eq + Hash + Held> Key for T {}
/// Types of values.
pub(crate) trait Value: Clone + Held {}
impl<T: Clone + Held> Value for T {}

pub(crate) type Weigher<K, V> = Box<dyn Fn(&K, &V) -> u32 + Send + Sync>;

/// The constants of a cache.
pub(crate) struct Config<K, V> {
    pub(crate) name: Option<String>,
    /// The bound, of which reservations take parts. Insertions read its words, and few calls write them.
    pub(crate) bound: Option<Bound>,
    /// Whether entries differ in their part of the bound.
    pub(crate) is_weighed: bool,
    /// The part of the bound that each entry needs beyond its weight.
    pub(crate) overhead: u32,
    pub(crate) weigher: Option<Weigher<K, V>>,
    pub(crate) listener: Option<Listener<K, V>>,
    pub(crate) times: Times<K, V>,
}

/// The words that insertions write.
struct Written {
    budget: Budget,
    insertions: AtomicU64,
}

pub(crate) struct Inner<K: Held, V: Held, S, T: Span> {
    pub(crate) table: Table<K, Stored<V, T>, S>,
    pub(crate) config: Config<K, V>,
    policy: Owned<dyn Eviction>,
    /// The bits of [`Now`]. They change after many insertions.
    now: AtomicU64,
    generation: AtomicU32,
    /// Insertions of an epoch, as the policy said when the last one began.
    epoch_length: AtomicU64,
    pub(crate) counters: Option<Counters>,
    pub(crate) loads: Loads<K, V>,
    written: CachePadded<Written>,
}

impl<K: Key, V: Value, S: BuildHasher, T: Span> Inner<K, V, S, T> {
    pub(crate) fn new(
        table: Table<K, Stored<V, T>, S>,
        config: Config<K, V>,
        policy: Owned<dyn Eviction>,
        counters: Option<Counters>,
    ) -> Inner<K, V, S, T> {
        let entries = entries_within(config.bound.as_ref().map(Bound::limit), config.is_weighed);
        policy.resize(entries.min(EXPECTED_FIRST));
        let budget = if config.bound.is_some() { Budget::new() } else { Budget::unbounded() };
        Inner {
            table,
            config,
            now: AtomicU64::new(Now::new(0, 0, u16::MAX).bits()),
            generation: AtomicU32::new(0),
            epoch_length: AtomicU64::new(policy.epoch_length().max(1)),
            counters,
            loads: Loads::new(),
            policy,
            written: CachePadded::new(Written { budget, insertions: AtomicU64::new(0) }),
        }
    }

    pub(crate) fn policy(&self) -> Handle<dyn Eviction> {
        self.policy.handle()
    }

    pub(crate) fn taken(&self) -> u64 {
        self.written.budget.taken()
    }

    // Relaxed, in both: a lookup may run before or after a concurrent change.
    fn present(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    #[inline]
    fn now(&self) -> u64 {
        if T::ENDS { self.config.times.clock.now() } else { 0 }
    }

    // --- lookups ---

    #[inline]
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.with(key, V::clone)
    }

    /// Returns the value of a key. Counts a hit, but no miss.
    pub(crate) fn hit<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let found = self.look_up(key);
        if let (Some(_), Some(counters)) = (&found, &self.counters) {
            counters.looked_up(true);
        }
        found
    }

    /// Calls `f` with the value of a key.
    #[inline]
    pub(crate) fn with<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let found = self.look_up_with(key, f);
        if let Some(counters) = &self.counters {
            counters.looked_up(found.is_some());
        }
        found
    }

    #[inline]
    fn look_up<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.look_up_with(key, V::clone)
    }

    #[inline]
    fn look_up_with<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        if T::ENDS { self.look_up_in_time(key, f) } else { self.look_up_endless(key, f) }
    }

    #[inline]
    fn look_up_endless<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let (generation, present) = (self.generation(), self.present());
        let found = self.table.read(key, |stored| {
            stored.is_live(generation).then(|| {
                stored.touch(present);
                f(&stored.value)
            })
        });
        found.flatten()
    }

    fn look_up_in_time<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let (generation, present, now) = (self.generation(), self.present(), self.now());
        let found = self.table.read_entry(key, |key, stored| {
            (stored.is_live(generation) && stored.is_in_time(now)).then(|| {
                stored.touch(present);
                if let Some(ends) = self.config.times.read(now, key, &stored.value, stored.span.ends()) {
                    stored.span.move_to(ends);
                }
                f(&stored.value)
            })
        });
        found.flatten()
    }

    /// Whether the key is present. Leaves no mark.
    pub(crate) fn contains<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let (generation, now) = (self.generation(), self.now());
        self.table.read(key, |stored| stored.is_live(generation) && stored.is_in_time(now)) == Some(true)
    }

    /// Calls `f` with each live entry.
    pub(crate) fn visit(&self, from: u64, f: &mut dyn FnMut(&K, &V)) -> Option<u64> {
        let (generation, now) = (self.generation(), self.now());
        self.table.visit_from(from, |key, stored| {
            if stored.is_live(generation) && stored.is_in_time(now) {
                f(key, &stored.value);
            }
        })
    }

    // --- insertions ---

    /// Inserts an entry, or replaces its value. Returns false if the policy refused it.
    pub(crate) fn insert(&self, key: K, value: V) -> bool {
        let weight = self.weigh(&key, &value);
        self.telling(|told| self.put(key, value, weight, told))
    }

    /// Inserts an entry with a known weight. Runs no code of users but that of the key, the value's clone,
    /// the policy and the times.
    pub(crate) fn put(&self, key: K, value: V, weight: u32, told: &mut Told<'_, K, V>) -> bool {
        let cost = weight.saturating_add(self.config.overhead);
        let hash = self.table.hasher().hash_one(&key);
        let (generation, now) = (self.generation(), self.now());
        let mut room = self.room();
        // The old entry stays until the new one is there, which gets its part of the bound.
        let before = self.table.read(&key, |old| {
            if old.is_claimed() {
                return None;
            }
            let dead = old.cause(generation, now);
            let note = told.prepare(&key, &old.value, dead.unwrap_or(RemovalCause::Replaced));
            room.claim(old).then(|| {
                told.add(note);
                // A replacement is a use. The mark of a dead entry does not count.
                old.touch(self.present());
                (dead.is_none().then(|| old.mark_now()), old.span.ends())
            })
        });
        let (is_there, before) = (before.is_some(), before.flatten());
        let made = catch_unwind(AssertUnwindSafe(|| {
            let mark = self.make_room(hash, cost, before.and_then(|(mark, _)| mark), &mut room, told)?;
            let ends = self.ends(now, &key, &value, before.map(|(_, ends)| ends));
            Some((mark, ends, told.clone_key(&key)))
        }));
        if is_there && !matches!(made, Ok(Some(_))) {
            // A claimed entry that stayed would have no part of the bound, and lookups would find it.
            self.take_out(&key, RemovalCause::Replaced, told);
        }
        let Some((mark, ends, noted)) = made.unwrap_or_else(|panic| resume_unwind(panic)) else {
            told.note_owned(key, value, RemovalCause::Size);
            return false;
        };
        let generation = self.generation();
        let stored = Stored::new(value, cost, ends, generation, mark);
        let mut is_spent = false;
        let put = AssertUnwindSafe(|| {
            pin(|guard| {
                self.table.put_in(guard, key, stored, |old| {
                    let is_mine = room.claim(old);
                    // Before the clone, which may panic: the new entry is in.
                    room.spend(cost);
                    is_spent = true;
                    if let (true, Some(key)) = (is_mine, noted) {
                        // Another thread inserted it meanwhile.
                        let cause = old.cause(generation, now).unwrap_or(RemovalCause::Replaced);
                        told.note_owned(key, old.value.clone(), cause);
                    }
                })
            })
        });
        let replaced = catch_unwind(put);
        // After a panic of a hash, too: the entry may be in the table, and nothing gives its room back twice.
        if !is_spent {
            room.spend(cost);
        }
        if let Err(panic) = replaced {
            resume_unwind(panic);
        }
        true
    }

    /// Makes room for an entry of this cost, of which the room has a part if it replaces another one. Returns
    /// the entry's mark: `mark` if it has an old one. Returns `None` if it is refused.
    fn make_room(
        &self,
        hash: u64,
        cost: u32,
        mark: Option<Mark>,
        room: &mut Room<'_, K, V, S, T>,
        told: &mut Told<'_, K, V>,
    ) -> Option<Mark> {
        if u64::from(cost) > self.bound() {
            return None;
        }
        // The bound has become lower, and a thread that took room before exceeded it.
        self.trim_telling(told);
        let is_new = mark.is_none();
        let mark = mark.unwrap_or_else(|| {
            let present = Now::from_bits(self.present());
            if self.config.bound.is_none() {
                return Mark::new(present, 0);
            }
            self.count_insertion();
            // Without a policy, marks are those of an LRU.
            self.policy.try_arrived(hash, present).unwrap_or(Mark::new(present, 0))
        });
        let newcomer = is_new.then(|| Candidate::new(hash, cost, mark));
        let more = u64::from(cost).saturating_sub(room.share.held());
        let is_in = room.take(more, newcomer, told);
        if let (false, Some(counters)) = (is_in, &self.counters) {
            counters.refused();
        }
        is_in.then_some(mark)
    }

    /// Returns the ends of an entry that is written now. `before` are those of the value that it replaces.
    fn ends(&self, now: u64, key: &K, value: &V, before: Option<Ends>) -> Ends {
        if T::ENDS {
            let before = before.filter(|ends| ends.soft > now);
            self.config.times.written(now, key, value, before.map(|ends| ends.own))
        } else {
            Ends::NEVER
        }
    }

    /// Returns the part of the bound that an entry needs.
    fn cost(&self, key: &K, value: &V) -> u32 {
        self.weigh(key, value).saturating_add(self.config.overhead)
    }

    /// Returns the part of the bound for entries.
    fn bound(&self) -> u64 {
        self.config.bound.as_ref().map_or(u64::MAX, |bound| bound.limit().saturating_sub(bound.taken()))
    }

    /// Counts a new key. Some of them begin an epoch.
    fn count_insertion(&self) {
        // Relaxed, here and below: hits may mark entries with the old epoch for a while.
        let count = self.written.insertions.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_multiple_of(self.epoch_length.load(Ordering::Relaxed)) {
            self.begin_epoch();
        }
    }

    #[cold]
    pub(crate) fn begin_epoch(&self) {
        // A policy that was replaced does not know the size yet. The weights of entries may change.
        let _ = self.policy.try_resize(self.expected_entries());
        let turn = self.policy.try_begin_epoch().unwrap_or_default();
        let next = |bits: u64| {
            let Now { epoch, halvings, .. } = Now::from_bits(bits);
            Some(Now::new(epoch.wrapping_add(1), halvings.wrapping_add(turn.halvings), turn.late).bits())
        };
        let _ = self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let length = self.policy.try_epoch_length().unwrap_or(1).max(1);
        self.epoch_length.store(length, Ordering::Relaxed);
    }

    /// Returns the number of entries that fit about.
    fn expected_entries(&self) -> u64 {
        let (bound, taken, len) = (self.bound(), self.taken(), self.table.len() as u64);
        let fit = if !self.config.is_weighed || taken < bound / 2 || len == 0 {
            entries_within(self.config.bound.as_ref().map(|_| bound), self.config.is_weighed)
        } else {
            (u128::from(len) * u128::from(bound) / u128::from(taken)).try_into().unwrap_or(u64::MAX)
        };
        // A policy has memory for each entry. So a large bound alone needs none.
        fit.min(len.saturating_mul(2).max(EXPECTED_FIRST))
    }

    // --- removals ---

    /// Removes an entry and returns its value.
    pub(crate) fn remove<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.telling(|told| self.take_out(key, RemovalCause::Explicit, told))
    }

    /// Removes an entry. Returns its value if lookups saw it.
    fn take_out<Q: Eq + Hash + ?Sized>(
        &self,
        key: &Q,
        cause: RemovalCause,
        told: &mut Told<'_, K, V>,
    ) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (generation, now) = (self.generation(), self.now());
        let is_seen = |old: &Stored<V, T>| old.is_live(generation) && old.is_in_time(now);
        let mut room = self.room();
        let mut value = None;
        if self.config.listener.is_some() {
            // The listener gets the key that the cache has. If another thread replaces the value meanwhile,
            // the new one is taken out too.
            self.table.retain_from(self.table.position(key), |found, old| {
                if found.borrow() != key {
                    return true;
                }
                if old.is_claimed() {
                    return false;
                }
                let is_seen = is_seen(old);
                let cause = old.cause(generation, now).unwrap_or(cause);
                let (note, taken) = (told.prepare(found, &old.value, cause), old.value.clone());
                if room.claim(old) {
                    told.add(note);
                    value = is_seen.then_some(taken);
                }
                false
            });
        } else {
            value = pin(|guard| {
                let taken = self.table.take_in(guard, key, |old| {
                    // The table says which thread removed the entry. Another one may have claimed it, to
                    // replace it.
                    room.claim(old);
                    is_seen(old).then(|| old.value.clone())
                });
                taken.flatten()
            });
        }
        value
    }

    /// Removes the entries of one bucket for which `f` returns true, and the dead ones. Returns the position
    /// of the next bucket.
    pub(crate) fn sweep(
        &self,
        from: u64,
        told: &mut Told<'_, K, V>,
        f: &mut dyn FnMut(&K, &V) -> bool,
    ) -> Option<u64> {
        let (generation, now) = (self.generation(), self.now());
        let mut room = self.room();
        self.table.retain_from(from, |key, stored| {
            let dead = stored.cause(generation, now);
            // A claimed entry may be about to be replaced: it leaves only if this sweep is meant for it.
            if dead.is_none() && !f(key, &stored.value) {
                return true;
            }
            if stored.is_claimed() {
                return false;
            }
            let cause = dead.unwrap_or(RemovalCause::Explicit);
            let note = told.prepare(key, &stored.value, cause);
            if room.claim(stored) {
                told.add(note);
            }
            false
        })
    }

    /// Removes all entries for which `f` returns true, and the dead ones.
    pub(crate) fn sweep_all(&self, f: &mut dyn FnMut(&K, &V) -> bool) {
        let (mut from, mut panicked) = (Some(0), None);
        while let Some(at) = from {
            let mut told = Told::new(self.config.listener.as_ref());
            let swept = catch_unwind(AssertUnwindSafe(|| self.sweep(at, &mut told, f)));
            // A panic of the listener ends no sweep. One of `f` does.
            let heard = catch_unwind(AssertUnwindSafe(|| told.tell()));
            panicked = panicked.or(heard.err());
            from = swept.unwrap_or_else(|panic| {
                panicked.get_or_insert(panic);
                None
            });
        }
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }

    /// Runs an operation, and then tells the listener about the entries that it removed, even if it panics.
    fn telling<'a, R>(&'a self, operation: impl FnOnce(&mut Told<'a, K, V>) -> R) -> R {
        let mut told = Told::new(self.config.listener.as_ref());
        let result = catch_unwind(AssertUnwindSafe(|| operation(&mut told)));
        told.tell();
        result.unwrap_or_else(|payload| resume_unwind(payload))
    }

    /// Makes all entries of now absent at one moment, and removes them.
    pub(crate) fn invalidate_all(&self) {
        self.telling(|told| {
            // The number comes again after 32,768 calls. Each call that has ended has removed the dead
            // entries, so an entry stays dead unless as many calls run at one moment. No lock is held: a
            // removal may run drops of the program.
            self.generation.fetch_add(1, Ordering::Relaxed);
            let mut from = Some(0);
            while let Some(at) = from {
                from = self.sweep(at, told, &mut |_, _| false);
            }
        });
    }

    /// Changes the bound. Returns false for a cache without a bound.
    pub(crate) fn set_bound(&self, max: u64) -> bool {
        let Some(bound) = &self.config.bound else { return false };
        bound.set_limit(max);
        self.trim();
        true
    }

    /// Evicts entries until the bound holds.
    pub(crate) fn trim(&self) {
        self.telling(|told| self.trim_telling(told));
    }

    fn trim_telling(&self, told: &mut Told<'_, K, V>) {
        while self.taken() > self.bound() && matches!(self.evict(None, told), Evicted::Made) {}
    }

    fn room(&self) -> Room<'_, K, V, S, T> {
        Room { inner: self, share: self.written.budget.share() }
    }
}

/// Returns the number of entries that fit about: ones of a few words, until the cache knows better. Returns 0
/// without a bound.
fn entries_within(bound: Option<u64>, is_weighed: bool) -> u64 {
    match bound {
        Some(bound) if is_weighed => (bound / 128).max(1),
        bound => bound.unwrap_or(0),
    }
}

/// A part of the bound, for an entry that is about to come, or of one that was claimed. The drop gives it
/// back, also in a panic of the program's code.
struct Room<'a, K: Key, V: Value, S: BuildHasher, T: Span> {
    inner: &'a Inner<K, V, S, T>,
    share: Share<'a>,
}

impl<K: Key, V: Value, S: BuildHasher, T: Span> Room<'_, K, V, S, T> {
    /// Takes a part of the bound, and evicts entries for it. Returns false if the newcomer is refused.
    fn take(&mut self, wanted: u64, mut newcomer: Option<Candidate>, told: &mut Told<'_, K, V>) -> bool {
        while !self.share.take(wanted, self.inner.bound()) {
            match self.inner.evict(newcomer, told) {
                // The newcomer was compared once. A refusal now would have evicted an entry for no other.
                Evicted::Made => newcomer = None,
                // Or other threads hold all of it, for entries that are about to come.
                Evicted::Refused | Evicted::Empty => return false,
            }
        }
        true
    }

    /// Claims an entry, with its part of the bound (stored/I1). Returns false if another thread has it.
    fn claim(&mut self, stored: &Stored<V, T>) -> bool {
        self.share.claim(&stored.word, u64::from(stored.cost))
    }

    /// Turns a part into the cost of an entry that came.
    fn spend(&mut self, cost: u32) {
        self.share.spend(u64::from(cost));
    }

    /// Gives all of it back.
    fn give_back(&mut self) {
        self.share = self.inner.written.budget.share();
    }
}

/// A cache as the place of a value that was loaded.
struct Loaded<'a, 'b, K: Held, V: Held, S, T: Span> {
    inner: &'a Inner<K, V, S, T>,
    told: &'b mut Told<'a, K, V>,
}

impl<K: Key, V: Value, S: BuildHasher, T: Span> Place<K, V> for Loaded<'_, '_, K, V, S, T> {
    fn find(&self, key: &K) -> Option<V> {
        self.inner.look_up(key)
    }

    fn put(self, key: K, value: V) {
        let weight = self.inner.weigh(&key, &value);
        self.inner.put(key, value, weight, self.told);
    }
}

impl<K: Key, V: Value, S: BuildHasher, T: Span> Inner<K, V, S, T> {
    fn weigh(&self, key: &K, value: &V) -> u32 {
        self.config.weigher.as_ref().map_or(1, |weigher| weigher(key, value))
    }

    /// Joins the load of an absent key.
    pub(crate) fn join(&self, key: K) -> Joined<'_, K, V> {
        let hash = self.table.hasher().hash_one(&key);
        let mut told = Told::new(None);
        self.loads.join(&Loaded { inner: self, told: &mut told }, hash, key)
    }

    /// Ends the load of a key: its value goes into the cache, and to all callers that wait.
    pub(crate) fn finish(&self, turn: Turn<'_, K, V>, value: V) -> V {
        let value = self.telling(|told| turn.finish(Loaded { inner: self, told }, value));
        if let Some(counters) = &self.counters {
            counters.loaded(true);
        }
        value
    }

    /// Notes a load without a value.
    pub(crate) fn failed(&self) {
        if let Some(counters) = &self.counters {
            counters.loaded(false);
        }
    }
}
