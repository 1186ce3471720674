//! The store and the caches of a map: lines, and replicas of lines.
//!
//! Problem: a lookup that misses its cache searches the store and caches the result. Meanwhile the entry may
//! be removed or changed. A removal goes from cluster to cluster. Meanwhile, a thread that still sees the
//! entry here must not be able to learn that it is gone there.
//!
//! Idea: an entry is a *line*, and its value alone says whether the entry is present: a [`Master`] of an
//! `Option`. A cache holds no value but a replica of the line's master. The replica's protocol solves both
//! problems (`squall_parts::replica`, header of `raw.rs`). While a change goes from replica to replica these
//! are empty, and a reader of an empty replica reads the master.
//!
//! - I1. A key has a value if the store's table has a line for it, and the line's master has one. A line with
//!   a value is never taken out of the table or replaced. The loss of a value is final. The line is then
//!   *dead*, and may be taken out or replaced.
//! - I2. A cache's table has replicas of lines that were in the store's table. A replica that holds a value
//!   is in its cache's table as long as its line is alive, except for I5 and `distributed/I4`. It is recorded
//!   in the line's `holders` (`places/I1`). So the walk of a change reaches every replica that holds the old
//!   value.
//! - I3. When a removal has returned, no cache has a replica of its line, with two exceptions. In the first,
//!   the thread that made the replica is about to take it out (`places/I2`: the step that makes an entry is
//!   the insertion into the cache's table). In the second, the cache was removed (`distributed/I4`). A
//!   removal that ended by a panic of `Eq` or `Hash` may leave dead replicas; each is replaced when its cache
//!   adds the key again.
//! - I4. User closures run under no lock. Under a line's lock run lookups in caches, hence `Eq` and `Hash` of
//!   keys, and no other user code. The first reader clones a value, under no lock.
//! - I5. A replica that a cache drops to keep its limit stays reachable only from lookups that had found it
//!   before. Changes reach it until it is dropped. After that, one of these lookups may read a value that
//!   another of them has filled in. That value was the key's value at a moment of the reading lookup.
//!
//! Linearization:
//!
//! - A change of a value, and a removal: the change of the master's word.
//! - An insertion: the insertion of the line into the table.
//! - A successful lookup: the read of the replica or of the master. By I1 the key has that value then.
//! - A failed lookup: the search of the store's table, if at that moment the table has no line for the key,
//!   or a dead line. If the line dies after the search: the line's death.
//!
//! Each line records its holders (Unrau et al. 1995, Hurricane: HU-15), so a change needs no broadcast. Most
//! lines have few holders, and a change of a line without holders is free for the other clusters. The
//! record is two words with a bit for each cluster up to 64. Beyond 64, clusters share bits, and a change
//! visits a few caches in vain. The changing thread visits each holder itself, neighbours one after the
//! other. In Hurricane (HU-17) one processor of each cluster informs the others; here one visit per cluster
//! is enough.
//!
//! Cost: a hit is a lookup in the cluster's table, and a load. A miss adds a lookup in the store's table, an
//! allocation for the replica and one for the copy. A change is an allocation, the line's lock, and for each
//! holder a lookup and two stores. A line takes about 150 bytes besides key and value; a replica takes about
//! 40, and its slot.
//!
//! Source: Appavoo 2005, §4.1.1 (CO-43): the master list in the root, and a cache in each representative.
//! There a removal takes the entry out of the root and then out of each cache. So a thread can still find
//! the entry in one cache after another thread has seen it gone.

use squall_machine::pervp::PerVpWord;
use squall_parts::replica::{Conflict, Holders, Master, Presence, Replica, Versioned};
use squall_parts::table::{Compute, Computed, Table};
use squall_rcu::{__pin as pin, Guard};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::distributed::Reach;
use super::{Coherence, Sensors};

/// Count of a sensor. Concurrent steps may be lost. The alignment prevents false sharing with words that
/// lookups read.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Tally(AtomicU64);

impl Tally {
    pub(super) fn step(&self) {
        self.0.store(self.read() + 1, Ordering::Relaxed);
    }

    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Entry of the store.
pub(super) struct Line<V: Send + Sync + 'static> {
    master: Master<Option<V>>,
    /// Clusters with a replica that holds the value.
    holders: Holders,
    /// Caches that may have a replica.
    presence: Presence,
}

impl<V: Clone + Send + Sync + 'static> Line<V> {
    fn of(master: Master<Option<V>>) -> Arc<Line<V>> {
        Arc::new(Line { master, holders: Holders::new(), presence: Presence::new() })
    }

    fn new(value: V, coherence: Coherence) -> Arc<Line<V>> {
        Line::of(match coherence {
            Coherence::Invalidate => Master::copied(Some(value)),
            Coherence::Update => Master::new(Some(value)),
        })
    }

    /// Returns the value, unless the line is dead.
    #[inline]
    fn load<'o>(&self, guard: &'o Guard) -> Option<&'o V> {
        self.master.load(guard).as_ref()
    }

    fn is_dead(&self) -> bool {
        pin(|guard| self.load(guard).is_none())
    }
}

/// Replica of a line in a cache.
pub(super) struct Held<V: Send + Sync + 'static> {
    line: Arc<Line<V>>,
    replica: Replica<Option<V>>,
}

impl<V: Clone + Send + Sync + 'static> Held<V> {
    /// Returns the value, unless the line is dead. If the replica has to read the master, increments `asked`.
    #[inline(always)]
    fn load<'o>(&self, guard: &'o Guard, place: usize, asked: Option<&Tally>) -> Option<&'o V> {
        let note = || {
            self.line.holders.note(place);
            if let Some(asked) = asked {
                asked.step();
            }
        };
        self.replica.load_noting(&self.line.master, guard, note).as_ref()
    }
}

/// Cache of a cluster.
pub(crate) struct Cache<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    held: Table<K, Held<V>, S>,
    /// Number of the cluster.
    place: usize,
    /// Maximum number of replicas.
    most: usize,
    /// State of the generator that draws the replica to drop.
    drawn: AtomicU64,
    asked: Tally,
}

/// Store with all lines.
pub(crate) struct Lines<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    table: Table<K, Arc<Line<V>>, S>,
    coherence: Coherence,
    /// Count per VP, since without caches each lookup is counted.
    asked: PerVpWord,
    changes: Tally,
    reached: Tally,
}

impl<K, V, S> Cache<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone,
{
    pub(super) fn new(lines: &Lines<K, V, S>, place: usize, most: usize) -> Cache<K, V, S> {
        let held = Table::with_hasher(lines.table.hasher().clone());
        Cache { held, place, most, drawn: AtomicU64::new(0), asked: Tally::default() }
    }

    #[inline(always)]
    fn find<'o, Q: Eq + Hash + ?Sized>(&self, guard: &'o Guard, key: &Q) -> Option<&'o V>
    where
        K: Borrow<Q>,
    {
        self.held.read_in(guard, key, |held| held.load(guard, self.place, Some(&self.asked))).flatten()
    }

    /// Adds a replica of a line of the store.
    fn keep(&self, key: &K, line: &Arc<Line<V>>) {
        line.presence.announce(self.place);
        let _ = self.held.compute(key.clone(), |there| match there {
            Some(held) if !held.line.is_dead() => Compute::Keep,
            _ => Compute::Put(Held { line: line.clone(), replica: line.master.replica() }),
        });
        if !line.presence.is_here_still() {
            self.take_out(key, line);
        }
        if self.most < usize::MAX && self.held.len() > self.most {
            self.let_go_for(key);
        }
    }

    /// Drops some other replica to make room for that of `key` (I5).
    #[cold]
    fn let_go_for(&self, key: &K) {
        // Relaxed: two threads may draw the same position. Weyl's sequence draws all positions equally often.
        let drawn = self.drawn.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mut goes = None;
        // From there to the end, and then from the beginning if necessary.
        for begin in [drawn, 0] {
            let mut from = Some(begin);
            while let Some(at) = from
                && goes.is_none()
            {
                from = self.held.visit_from(at, |other, _| {
                    if goes.is_none() && other != key {
                        goes = Some(other.clone());
                    }
                });
            }
        }
        if let Some(goes) = goes {
            self.held.delete(&goes);
        }
    }

    /// Adds a new line, or one that another cache had, with its value.
    fn keep_new(&self, key: &K, line: &Arc<Line<V>>) {
        self.keep(key, line);
        pin(|guard| self.held.read_in(guard, key, |held| held.load(guard, self.place, None).is_some()));
    }

    /// Adds the lines with values in another cache of the same store, at most `most`, as a lookup would.
    ///
    /// The search is bounded, in case changes have emptied most replicas.
    pub(super) fn take_over(&self, from: &Self, most: usize) {
        let (mut left, mut from_here) = (most.min(self.most), Some(0));
        let mut looks = left.saturating_mul(4);
        while let Some(at) = from_here
            && left > 0
            && looks > 0
        {
            let mut some = Vec::new();
            from_here = from.held.visit_from(at, |key, held| {
                looks = looks.saturating_sub(1);
                if some.len() < left && held.replica.is_filled() {
                    some.push((key.clone(), held.line.clone()));
                }
            });
            left -= some.len();
            some.iter().for_each(|(key, line)| self.keep_new(key, line));
        }
    }

    fn take_out<Q: Eq + Hash + ?Sized>(&self, key: &Q, line: &Arc<Line<V>>)
    where
        K: Borrow<Q>,
    {
        let _ = self.held.compute_if_present(key, |held| if_it_is(&held.line, line));
    }

    pub(super) fn read_sensors(&self, sensors: &mut Sensors) {
        sensors.copies += self.held.len();
        sensors.asked += self.asked.read();
    }
}

/// Removes the entry if it belongs to this line.
fn if_it_is<T, V>(there: &Arc<T>, line: &Arc<T>) -> Compute<V> {
    if Arc::ptr_eq(there, line) { Compute::Remove } else { Compute::Keep }
}

impl<K, V, S> Lines<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone,
{
    pub(super) fn new(hasher: S, coherence: Coherence) -> Lines<K, V, S> {
        Lines {
            table: Table::with_hasher(hasher),
            coherence,
            asked: PerVpWord::new(),
            changes: Tally::default(),
            reached: Tally::default(),
        }
    }

    /// Returns the same entries in lines of another coherence. Values and versions are shared. The caller
    /// excludes changes.
    pub(super) fn refit(this: &Arc<Self>, coherence: Coherence) -> Arc<Self> {
        if this.coherence == coherence {
            return this.clone();
        }
        let other = Lines::new(this.table.hasher().clone(), coherence);
        this.table.for_each(|key, line| {
            let value = line.master.keep().filter(|value| value.is_some());
            let master = match coherence {
                Coherence::Invalidate => Master::vacant_copied(),
                Coherence::Update => Master::vacant_updated(),
            };
            if value.is_some_and(|value| master.adopt(value).is_ok()) {
                other.table.set(key.clone(), Line::of(master));
            }
        });
        other.changes.add(this.changes.read());
        other.reached.add(this.reached.read());
        Arc::new(other)
    }

    pub(super) fn read_sensors(&self) -> Sensors {
        Sensors {
            entries: self.table.len(),
            asked: self.asked.sum(),
            changes: self.changes.read(),
            reached: self.reached.read(),
            ..Sensors::default()
        }
    }

    fn line<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<Arc<Line<V>>>
    where
        K: Borrow<Q>,
    {
        self.table.get_cloned(key)
    }

    /// Calls `f` for some entries from a position on. Returns the position after them.
    pub(super) fn visit_from(&self, from: u64, mut f: impl FnMut(&K, &V)) -> Option<u64> {
        self.table.visit_from(from, |key, line| {
            pin(|guard| {
                if let Some(value) = line.load(guard) {
                    f(key, value);
                }
            });
        })
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}

/// Looks a key up in the cache, if there is one, and then in the store.
#[inline(always)]
pub(super) fn find<'o, K, V, S, Q: Eq + Hash + ?Sized>(
    guard: &'o Guard,
    cache: Option<&Cache<K, V, S>>,
    lines: &Lines<K, V, S>,
    key: &Q,
) -> Option<&'o V>
where
    K: Eq + Hash + Clone + Send + Sync + Borrow<Q> + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone,
{
    match cache.and_then(|cache| cache.find(guard, key)) {
        None => ask(guard, cache, lines, key),
        hit => hit,
    }
}

#[cold]
#[inline(never)]
fn ask<'o, K, V, S, Q: Eq + Hash + ?Sized>(
    guard: &'o Guard,
    cache: Option<&Cache<K, V, S>>,
    lines: &Lines<K, V, S>,
    key: &Q,
) -> Option<&'o V>
where
    K: Eq + Hash + Clone + Send + Sync + Borrow<Q> + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone,
{
    let Some(cache) = cache else {
        lines.asked.add(1);
        return lines.table.read_in(guard, key, |line| line.load(guard)).flatten();
    };
    let entry = lines.table.read_entry(key, |key, line| (key.clone(), line.clone()));
    let Some((kept, line)) = entry.filter(|(_, line)| line.load(guard).is_some()) else {
        cache.asked.step();
        return None;
    };
    cache.keep(&kept, &line);
    // The replica is absent if the line has died. It may belong to another line that was faster.
    cache.find(guard, key).or_else(|| line.load(guard))
}

/// Changes of the lines, made within a call of the object.
pub(super) struct Changes<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    pub(super) lines: &'a Lines<K, V, S>,
    /// Cache of the caller's cluster.
    pub(super) here: Option<&'a Cache<K, V, S>>,
    pub(super) reach: &'a dyn Reach<Cache<K, V, S>>,
}

impl<K, V, S> Changes<'_, K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone,
{
    /// Sets or clears a line's value if it still has version `version`.
    fn replace<Q: Eq + Hash + ?Sized>(
        &self,
        key: &Q,
        line: &Arc<Line<V>>,
        version: u64,
        value: Option<V>,
    ) -> Result<(), Conflict<Option<V>>>
    where
        K: Borrow<Q>,
    {
        let keeps = value.is_some() && self.lines.coherence == Coherence::Update;
        let (mut walks, mut reached) = (0, 0);
        let walk = |reach: &mut dyn FnMut(&Replica<Option<V>>)| {
            walks += 1;
            self.reach.each(line.holders.all(), &mut |cache| {
                cache.held.read(key, |held| {
                    if Arc::ptr_eq(&held.line, line) {
                        reached += u64::from(walks == 1 && held.replica.is_filled());
                        reach(&held.replica);
                    }
                });
            });
            // Still under the lock. If the walk panics, the replicas that it did not reach keep the value and
            // stay recorded.
            if !keeps {
                line.holders.take();
            }
        };
        line.master.compare_and_set(version, value, walk)?;
        self.lines.changes.add(1);
        if reached > 0 {
            self.lines.reached.add(reached);
        }
        Ok(())
    }

    /// Takes a dead line out of all tables. Called by the thread that removed its value.
    fn take_out<Q: Eq + Hash + ?Sized>(&self, key: &Q, line: &Arc<Line<V>>)
    where
        K: Borrow<Q>,
    {
        // First, since the next steps may panic. From now on a thread that adds a replica takes it out
        // itself.
        let places = line.presence.end();
        let _ = self.lines.table.compute_if_present(key, |there| if_it_is(there, line));
        if let Some(places) = places {
            self.reach.each(places, &mut |cache| cache.take_out(key, line));
        }
    }

    /// Applies the decision of `f` to a line. Returns an empty result if the line is dead.
    fn change_line<Q: Eq + Hash + ?Sized>(
        &self,
        key: &Q,
        line: &Arc<Line<V>>,
        mut f: impl FnMut(&V) -> Compute<V>,
    ) -> Option<Computed>
    where
        K: Borrow<Q>,
    {
        loop {
            let (version, wanted) = pin(|guard| {
                let seen = line.master.load(guard);
                seen.as_ref().map(|value| (Versioned::version(seen), f(value)))
            })?;
            let (value, computed) = match wanted {
                Compute::Keep => return Some(Computed::Kept),
                Compute::Put(value) => (Some(value), Computed::Updated),
                Compute::Remove => (None, Computed::Removed),
            };
            if self.replace(key, line, version, value).is_ok() {
                if computed == Computed::Removed {
                    self.take_out(key, line);
                }
                return Some(computed);
            }
        }
    }

    pub(super) fn change<Q: Eq + Hash + ?Sized>(&self, key: &Q, f: impl FnMut(&V) -> Compute<V>) -> Computed
    where
        K: Borrow<Q>,
    {
        let line = self.lines.line(key);
        line.and_then(|line| self.change_line(key, &line, f)).unwrap_or(Computed::Kept)
    }

    pub(super) fn compute(&self, mut key: K, mut f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed {
        loop {
            if let Some(line) = self.lines.line(&key)
                && let Some(computed) = self.change_line(&key, &line, |value| f(Some(value)))
            {
                return computed;
            }
            let Compute::Put(value) = f(None) else { return Computed::Kept };
            match self.add(key, value) {
                Ok(()) => return Computed::Inserted,
                Err((back, _)) => key = back,
            }
        }
    }

    /// Adds a line, unless the key has a live one.
    pub(super) fn add(&self, key: K, value: V) -> Result<(), (K, V)> {
        if self.lines.line(&key).is_some_and(|line| !line.is_dead()) {
            return Err((key, value));
        }
        let fresh = Line::new(value, self.lines.coherence);
        let computed = self.lines.table.compute(key.clone(), |there| match there {
            Some(line) if !line.is_dead() => Compute::Keep,
            // The thread that killed the old line will find it replaced.
            _ => Compute::Put(fresh.clone()),
        });
        if computed == Computed::Kept {
            let value = pin(|guard| fresh.load(guard).cloned());
            return Err((
                key,
                value.unwrap_or_else(|| {
                    unreachable!("the value of a new line is absent, although no other thread has the line")
                }),
            ));
        }
        self.lines.changes.add(1);
        if let Some(cache) = self.here {
            cache.keep_new(&key, &fresh);
        }
        Ok(())
    }

    /// Sets the key's value, and returns the result of `f` for the old one.
    pub(super) fn put<R>(&self, mut key: K, mut value: V, f: impl Fn(&V) -> R) -> Option<R> {
        loop {
            if let Some(line) = self.lines.line(&key) {
                let seen = || {
                    pin(|guard| {
                        let seen = line.master.load(guard);
                        seen.as_ref().map(|value| (Versioned::version(seen), f(value)))
                    })
                };
                while let Some((version, old)) = seen() {
                    match self.replace(&key, &line, version, Some(value)) {
                        Ok(()) => return Some(old),
                        Err(Conflict { value: Some(back), .. }) => value = back,
                        Err(_) => unreachable!("a rejected replacement did not return its value"),
                    }
                }
            }
            match self.add(key, value) {
                Ok(()) => return None,
                Err(back) => (key, value) = back,
            }
        }
    }

    pub(super) fn get_or_insert_with(&self, mut key: K, value: impl FnOnce() -> V) -> V {
        let there = |key: &K| self.lines.line(key).and_then(|line| pin(|guard| line.load(guard).cloned()));
        if let Some(value) = there(&key) {
            return value;
        }
        let mut value = value();
        let inserted = value.clone();
        loop {
            match self.add(key, value) {
                Ok(()) => return inserted,
                Err(back) => (key, value) = back,
            }
            if let Some(value) = there(&key) {
                return value;
            }
        }
    }

    pub(super) fn retain_from(&self, from: u64, mut f: impl FnMut(&K, &V) -> bool) -> Option<u64> {
        let mut keys = Vec::new();
        let next = self.lines.visit_from(from, |key, _| keys.push(key.clone()));
        for key in keys {
            let keep = |value: &V| if f(&key, value) { Compute::Keep } else { Compute::Remove };
            let _ = self.change(&key, keep);
        }
        next
    }
}
