//! The store and the caches of a map: lines, and what is held of them.
//!
//! Problem: a lookup that found nothing in its cluster asks the store, and keeps what it finds; but what it found may be removed, or have
//! another value, before it is kept. And while a removal goes from cluster to cluster, nobody who still sees the entry here may be told
//! by somebody that it is gone there.
//! Idea: an entry is a *line*, with a value that alone says whether the entry is there: a [`Master`] of an `Option`. What a cluster
//! keeps is no value but a replica of the line's master, whose protocol makes both questions its own (`squall_replica`, header of
//! `raw.rs`): while a change goes from replica to replica these are empty, and who finds one empty asks the master.
//!
//! - I1. A key has a value if the store's table has a line for it whose master has one. A line that has one is taken out of the table by
//!   nobody, and replaced by none; one whose value is gone, which it is for good, is *dead*, and may be both.
//! - I2. A cache's table has replicas of lines that were in the store's table. A replica that holds a value is in its cache's table as long as
//!   its line is not dead, but for I5 and `distributed/I4`, and is noted in the line's `holders` (`places/I1`). So the walk of a change reaches every replica that
//!   holds the old value.
//! - I3. When a removal has returned, no cache has a replica of its line, but one whose maker is about to take it out (`places/I2`: the step
//!   that makes an entry is the insertion into the cache's table), and one that was taken away (`distributed/I4`). A removal that a panic of `Eq` or `Hash` ended may leave dead ones; each
//!   is replaced when its cache keeps the key again.
//! - I4. Closures of the user's run under no lock. Under a line's lock there run lookups in caches, and so `Eq` and `Hash` of keys, and
//!   nothing else of the user's; but copies of values are made by who reads first, in no lock.
//! - I5. Of a replica that a cache lets go of, to keep no more than it may, nobody learns any more but lookups that had found it before. Up to
//!   then changes reached it; so what one of them reads in it, be it filled later by another of them, the key had at a moment of that lookup.
//!
//! Linearization. A change of a value and a removal: where the master's word changes. An insertion: where the table gets the line. A lookup
//! that finds a value: where the replica or the master is read; by I1 the key has that value then. One that finds nothing: where the store's table
//! is found to have no line for the key; or, if it has a dead one, at the lookup if it was dead then, else at its death.
//!
//! The directory of who holds a copy is kept by line (HU-15), not asked of everybody by broadcast: most lines are held by few
//! clusters, and a change of one that nobody holds costs nobody else anything. It is two words, of a bit for each cluster up to 64; beyond,
//! clusters share bits, and a change looks into a cache or two in vain. Who changes a line tells each holder itself, neighbours one after
//! the other (HU-17 has one processor of each cluster tell the rest: here one telling is enough for a cluster).
//!
//! Cost: a hit is a lookup in the cluster's own table, and a load. A miss is that, a lookup in the store's, an allocation for the replica and
//! one for the copy. A change is an allocation, the line's lock, and for each holder a lookup and two stores. A line takes about
//! 150 bytes beside key and value, a replica about 40 and its slot.
//! Source: CO-43 (Appavoo 2005, §4.1.1: the master list in the root, and a cache in each representative), whose removal takes the entry out
//! of the root and then out of each cache: there, one may still find here what another has seen to be gone there.

use squall_machine::pervp::PerVpWord;
use squall_rcu::{Guard, pin};
use squall_parts::replica::{Conflict, Holders, Master, Presence, Replica, Versioned};
use squall_parts::table::{Compute, Computed, Table};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::distributed::Reach;
use super::{Coherence, Sensors};

/// A sensor's count: it may lose steps to those who come at once. On lines of its own: what lies beside it is read by lookups.
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

/// An entry.
pub(super) struct Line<V: Send + Sync + 'static> {
    master: Master<Option<V>>,
    /// Which replicas hold its value.
    holders: Holders,
    /// In which caches there may be a replica.
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

    /// The value, unless the line is dead.
    #[inline]
    fn load<'o>(&self, guard: &'o Guard) -> Option<&'o V> {
        self.master.load(guard).as_ref()
    }

    fn is_dead(&self) -> bool {
        pin(|guard| self.load(guard).is_none())
    }
}

/// What a cluster has of a line.
pub(super) struct Held<V: Send + Sync + 'static> {
    line: Arc<Line<V>>,
    replica: Replica<Option<V>>,
}

impl<V: Clone + Send + Sync + 'static> Held<V> {
    /// The value, unless the line is dead. Of a replica that has it from the line only now, `asked` counts that.
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

/// What a cluster keeps.
pub(crate) struct Cache<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    held: Table<K, Held<V>, S>,
    /// The cluster's number.
    place: usize,
    /// Replicas at most.
    most: usize,
    /// Where the next one is drawn that goes.
    drawn: AtomicU64,
    asked: Tally,
}

/// The one place.
pub(crate) struct Lines<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    table: Table<K, Arc<Line<V>>, S>,
    coherence: Coherence,
    /// By VP: where there are no caches, each lookup is counted.
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

    /// Keeps a replica of a line of the store's.
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

    /// Lets go of any other replica, in the place of which a key's was kept (I5).
    #[cold]
    fn let_go_for(&self, key: &K) {
        // Relaxed: it need not be drawn once. Weyl's sequence: any position as often as any other.
        let drawn = self.drawn.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mut goes = None;
        // From there to the end, and from the beginning if there is none.
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
            self.held.discard(&goes);
        }
    }

    /// Keeps a line that was inserted from here, or that another cache had, with its value.
    fn keep_new(&self, key: &K, line: &Arc<Line<V>>) {
        self.keep(key, line);
        pin(|guard| self.held.read_in(guard, key, |held| held.load(guard, self.place, None).is_some()));
    }

    /// Keeps what another cache of the same store has values of, so much at most: as a lookup does with what it found in the store.
    /// Where changes have taken most values away it does not look for the rest in all that is there.
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
        let _ = self.held.change(key, |held| if_it_is(&held.line, line));
    }

    pub(super) fn read_sensors(&self, sensors: &mut Sensors) {
        sensors.copies += self.held.len();
        sensors.asked += self.asked.read();
    }
}

/// Takes out what is of this line, and leaves what is of another.
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

    /// The same entries, with lines of another kind: the values are shared, and so are their versions. Nobody changes either meanwhile.
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
        self.table.get(key)
    }

    /// Calls `f` for some entries, from a position on; returns the position after them.
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

/// Looks a key up: in this cache, if there is one, then in the store.
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
    // It was taken out again if the line has died, and is another line's if that was faster.
    cache.find(guard, key).or_else(|| line.load(guard))
}

/// Changes of the lines, from within a call of the object.
pub(super) struct Changes<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    pub(super) lines: &'a Lines<K, V, S>,
    /// The cache of the caller's cluster.
    pub(super) here: Option<&'a Cache<K, V, S>>,
    pub(super) reach: &'a dyn Reach<Cache<K, V, S>>,
}

impl<K, V, S> Changes<'_, K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone,
{
    /// Gives a line another value, or none, if its value is of this version still.
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
            // Under the lock still. Where the walk panics, those that it did not come to hold the value still, and are noted.
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

    /// Takes a dead line out of all tables: by who removed its value.
    fn take_out<Q: Eq + Hash + ?Sized>(&self, key: &Q, line: &Arc<Line<V>>)
    where
        K: Borrow<Q>,
    {
        // First, for what follows may panic: who keeps a replica from now on takes it out itself.
        let places = line.presence.end();
        let _ = self.lines.table.change(key, |there| if_it_is(there, line));
        if let Some(places) = places {
            self.reach.each(places, &mut |cache| cache.take_out(key, line));
        }
    }

    /// Does with a line what `f` says of its value; nothing, if it is dead.
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

    /// Adds a line, unless there is one that lives.
    pub(super) fn add(&self, key: K, value: V) -> Result<(), (K, V)> {
        if self.lines.line(&key).is_some_and(|line| !line.is_dead()) {
            return Err((key, value));
        }
        let fresh = Line::new(value, self.lines.coherence);
        let computed = self.lines.table.compute(key.clone(), |there| match there {
            Some(line) if !line.is_dead() => Compute::Keep,
            // Who killed it finds that it was replaced.
            _ => Compute::Put(fresh.clone()),
        });
        if computed == Computed::Kept {
            let value = pin(|guard| fresh.load(guard).cloned());
            return Err((key, value.unwrap_or_else(|| unreachable!("nobody has seen it to remove it"))));
        }
        self.lines.changes.add(1);
        if let Some(cache) = self.here {
            cache.keep_new(&key, &fresh);
        }
        Ok(())
    }

    /// Sets the key's value, and returns what `f` makes of the old one.
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
                        Err(_) => unreachable!("a value that is not replaced comes back"),
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
