//! `Table`: the map as its users see it.

use crate::table::acts::{
    both, change, change_at_home, compute, find_at_home, keep_if, put, put_at_home, read, read_at_home, step,
    take, take_at_home, try_insert, visit,
};
use crate::table::entry::{Compute, Computed, Entry};
use crate::table::layout::{Boxed, Flat, Split, Wide};
use crate::table::raw::Raw;
use crate::table::slab::mix;
use crate::table::word::{fits, spans, stays};
use squall_rcu::{Op, op};
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

/// A concurrent hash table.
///
/// Drawbacks first:
/// - What is read under no lock cannot be changed in place: a new value takes the place of the old, and functions that make one from
///   the other ([`update`](Table::update), [`compute`](Table::compute)) are called again if another writer was faster.
/// - Entries lie in the table itself where the value is of one of `std`'s plain types of up to eight bytes, and the key of one of these or
///   of those of up to 24 that it knows (`String`, `Vec<u8>`, `Box<str>`, `Arc<str>`, `&'static str`, paths, small arrays). Others cost an allocation each. That,
///   and what such a key owns, is freed after a grace period: by the thread that took it out where the type is known to give back nothing but memory (those without a drop, `String`, `Vec<u8>`, `Arc<str>` and a
///   few more); of any other type, whose drop may be the user's code, on the reclaimer's thread, for which a thread that takes out thousands at a time waits.
/// - Iteration sees each key that is there from its beginning to its end once; of those that come and go meanwhile, some.
///   [`len`](Table::len) is exact only while nobody writes.
///
/// Users' functions run under no lock, in an operation, and may use the table; one that is to say what becomes of an entry, and panics, has
/// changed nothing. (A clone of a value that was replaced or removed is made after that is done.) Only `Eq` and `Hash` of the keys run
/// under the lock of a bucket: they must not use the same table. A hasher or an equality that contradicts itself finds or
/// loses entries; it breaks no memory.
///
/// A key whose type `std` does not have keeps its place, so that its value is an allocation of its own: for any type may change while
/// it is shared, and the bits of most of `std`'s cannot.
///
/// # Progress
/// Reading: lock-free; a look begins anew when an entry was removed from its bucket meanwhile. Writing excludes writers of the same bucket,
/// which is that of ten other keys or so; a thread that stalls in a write holds up those, no reader. The table
/// grows and shrinks by and by: each writer moves a few buckets; if all stop to write in the midst of it, readers look into two
/// tables until one writes again. Reads take effect when they find the entry or see that it is not
/// there, writes at one store.
///
/// # Cost
/// Reading: an RCU operation, two lines of the table, and the node where there is one. Writing: besides, two read-modify-writes. 296 bytes
/// for sixteen slots of plain types, 552 with a key of several words, or 168 for sixteen and a node each; the table is between 15 % and 80 % full.
///
/// # Source
/// The header of `raw.rs`.
///
/// # Example
/// ```
/// use crate::table::Table;
/// let hits: Table<&str, u64> = Table::new();
/// hits.set("home", 1);
/// hits.update("home", |n| n + 1);
/// assert_eq!(hits.get("home"), Some(2));
/// assert_eq!(hits.read("about", |n| n + 1), None);
/// ```
pub struct Table<K: Send + Sync + 'static, V: Send + Sync + 'static, S = RandomState> {
    entries: Entries<K, V>,
    hasher: S,
}

enum Entries<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    Flat(Raw<Flat<K, V>>),
    Wide(Raw<Wide<K, V>>),
    Boxed(Raw<Boxed<K, V>>),
    Split(Raw<Split<K, V>>),
}

// Said of the table itself, and not by what it is made of, so that a value may have the table that it is in.
// SAFETY: it owns keys and values, which it shows to every thread by reference, and drops on any; all that it has besides is
// shared by protocol (raw).
unsafe impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: Send> Send for Table<K, V, S> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: Sync> Sync for Table<K, V, S> {}

/// Runs the same on the table in its layout. Which that is the types say, so that three of four are not compiled in.
macro_rules! either {
    ($table:expr, $raw:ident => $do:expr) => {
        match &$table.entries {
            Entries::Flat($raw) if is_flat::<K, V>() => $do,
            Entries::Wide($raw) if is_wide::<K, V>() => $do,
            Entries::Boxed($raw) if !is_flat::<K, V>() && !is_wide::<K, V>() && stays::<K>() => $do,
            Entries::Split($raw) if !is_flat::<K, V>() && !stays::<K>() => $do,
            // SAFETY: made by `with_capacity_and_hasher`, by the same rule, which no type answers differently later.
            _ => unsafe { std::hint::unreachable_unchecked() },
        }
    };
}

/// Whether entries of these types lie in the slots themselves.
#[inline(always)]
fn is_flat<K: 'static, V: 'static>() -> bool {
    fits::<K>() && fits::<V>()
}

/// Whether they do, with a key that takes several words.
#[inline(always)]
fn is_wide<K: 'static, V: 'static>() -> bool {
    spans::<K>() && fits::<V>()
}

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static> Table<K, V> {
    /// An empty table. Its hasher is `std`'s, with keys of its own.
    pub fn new() -> Table<K, V> {
        Table::with_hasher(RandomState::new())
    }

    /// An empty table that has room for so many entries, and does not shrink below that.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn with_capacity(entries: usize) -> Table<K, V> {
        Table::with_capacity_and_hasher(entries, RandomState::new())
    }
}

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static, S: BuildHasher> Table<K, V, S> {
    /// An empty table with this hasher: any will do, but those whose bits are all alike make chains.
    pub fn with_hasher(hasher: S) -> Table<K, V, S> {
        Table::with_capacity_and_hasher(0, hasher)
    }

    /// As [`with_capacity`](Table::with_capacity), with this hasher.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn with_capacity_and_hasher(entries: usize, hasher: S) -> Table<K, V, S> {
        let entries = if is_flat::<K, V>() {
            Entries::Flat(Raw::new(entries))
        } else if is_wide::<K, V>() {
            Entries::Wide(Raw::new(entries))
        } else if stays::<K>() {
            Entries::Boxed(Raw::new(entries))
        } else {
            Entries::Split(Raw::new(entries))
        };
        Table { entries, hasher }
    }

    /// The hasher.
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    fn rehash(&self) -> impl Fn(&K) -> u64 {
        |key| self.hasher.hash_one(key)
    }

    // --- reading ---

    /// A clone of the key's value.
    #[inline]
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.read(key, V::clone)
    }

    /// What `f` makes of the key's value. It runs in an operation: nothing that was retired meanwhile is freed before it ends.
    #[inline]
    pub fn read<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        op(|op| self.read_in(op, key, f))
    }

    /// As [`read`](Table::read), in an operation that is open.
    #[inline(always)]
    pub fn read_in<Q: Eq + Hash + ?Sized, R>(&self, _: &Op, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe { read(raw, hash, move |found| found.borrow() == key, f) })
    }

    /// As [`read_in`](Table::read_in), if the key is in its home's own bucket, or in none: what most reads find. It calls no function but the
    /// hasher's, the key's comparison, and `f`.
    ///
    /// # Errors
    /// It may be elsewhere: that is for [`read_in`](Table::read_in). `f` comes back, and was not called.
    #[inline(always)]
    pub fn read_at_home<Q: Eq + Hash + ?Sized, R, F: FnOnce(&V) -> R>(
        &self,
        _: &Op,
        key: &Q,
        f: F,
    ) -> Result<Option<R>, F>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe { read_at_home(raw, hash, move |found| found.borrow() == key, f) })
    }

    /// As [`read_at_home`](Table::read_at_home), of a key that is there.
    ///
    /// # Errors
    /// It is not in its home's own bucket. `f` comes back, and was not called.
    #[inline(always)]
    pub fn find_at_home<Q: Eq + Hash + ?Sized, R, F: FnOnce(&V) -> R>(
        &self,
        _: &Op,
        key: &Q,
        f: F,
    ) -> Result<R, F>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe { find_at_home(raw, hash, move |found| found.borrow() == key, f) })
    }

    /// What `f` makes of the key, as it is in the table, and of its value.
    #[inline]
    pub fn read_entry<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&K, &V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        op(|_| {
            // SAFETY: within the operation.
            either!(self, raw => unsafe {
                raw.find_raw(hash, move |found| found.borrow() == key).map(|entry| both(raw, entry, f))
            })
        })
    }

    /// Whether the key is there.
    #[inline]
    pub fn contains_key<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.read(key, |_| ()).is_some()
    }

    // --- writing ---

    /// Sets the key's value; the old one's clone is returned. The key stays the one that was there, or is replaced by this one, which is
    /// equal.
    pub fn insert(&self, key: K, value: V) -> Option<V>
    where
        V: Clone,
    {
        self.put(key, value, V::clone)
    }

    /// Sets the key's value, and says whether there was another.
    #[inline]
    pub fn set(&self, key: K, value: V) -> bool {
        self.put(key, value, |_| ()).is_some()
    }

    #[inline]
    fn put<R>(&self, key: K, value: V, f: impl FnOnce(&V) -> R) -> Option<R> {
        op(|op| self.put_in(op, key, value, f))
    }

    /// As [`insert`](Table::insert), in an operation that is open: what `f` makes of the old value is returned.
    #[inline(always)]
    pub fn put_in<R>(&self, _: &Op, key: K, value: V, f: impl FnOnce(&V) -> R) -> Option<R> {
        let hash = self.hasher.hash_one(&key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe { put(raw, hash, key, value, &self.rehash(), f) })
    }

    /// The same, if that is soon done: nobody else writes to keys of its home, which has room for it, and the table is not changing its size. No
    /// function is called then but `f`, and what hashes and compares keys.
    ///
    /// # Errors
    /// It is otherwise: that is for [`put_in`](Table::put_in). Nothing was done; key and value come back.
    #[inline(always)]
    pub fn put_at_home<R>(
        &self,
        _: &Op,
        key: K,
        value: V,
        f: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>, (K, V)> {
        let hash = self.hasher.hash_one(&key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe { put_at_home(raw, hash, key, value, f) })
    }

    /// Inserts the key unless it is there.
    ///
    /// # Errors
    /// It is there: key and value come back.
    pub fn try_insert(&self, key: K, value: V) -> Result<(), (K, V)> {
        let hash = self.hasher.hash_one(&key);
        op(|_| {
            // SAFETY: within the operation.
            either!(self, raw => unsafe { try_insert(raw, hash, key, value, &self.rehash(), |_| ()).map_err(|(k, v, ())| (k, v)) })
        })
    }

    /// The key's value; if it is not there, what `value` makes is inserted. Of several that come at once each may make a value; one
    /// is inserted, and all return that one.
    pub fn get_or_insert_with(&self, key: K, value: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        let hash = self.hasher.hash_one(&key);
        if let Some(value) = self.get(&key) {
            return value;
        }
        let value = value();
        let inserted = value.clone();
        op(|_| {
            // SAFETY: within the operation.
            either!(self, raw => unsafe {
                match try_insert(raw, hash, key, value, &self.rehash(), V::clone) {
                    Ok(()) => inserted,
                    Err((.., there)) => there,
                }
            })
        })
    }

    /// Takes the key out; a clone of its value is returned.
    pub fn remove<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.take(key, V::clone)
    }

    /// Takes the key out, and says whether it was there.
    #[inline]
    pub fn discard<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.take(key, |_| ()).is_some()
    }

    #[inline]
    fn take<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        op(|op| self.take_in(op, key, f))
    }

    /// As [`remove`](Table::remove), in an operation that is open: what `f` makes of the value is returned.
    #[inline(always)]
    pub fn take_in<Q: Eq + Hash + ?Sized, R>(&self, _: &Op, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe { take(raw, hash, move |found| found.borrow() == key, &self.rehash(), f) })
    }

    /// The same, if that is soon done: nobody else writes to keys of its home, which is where it is, and the table is not changing its size. No function is
    /// called then but `f`, and what hashes and compares keys.
    ///
    /// # Errors
    /// It is otherwise: that is for [`take_in`](Table::take_in). Nothing was done; `f` comes back, and was not called.
    #[inline(always)]
    pub fn take_at_home<Q: Eq + Hash + ?Sized, R, F: FnOnce(&V) -> R>(
        &self,
        _: &Op,
        key: &Q,
        f: F,
    ) -> Result<Option<R>, F>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe {
            take_at_home(raw, hash, move |found| found.borrow() == key, &self.rehash(), f)
        })
    }

    /// Takes the key out if `f` says so of its value, which is the value that goes: if another writer is faster, `f` is asked again.
    pub fn remove_if<Q: Eq + Hash + ?Sized>(&self, key: &Q, mut f: impl FnMut(&V) -> bool) -> bool
    where
        K: Borrow<Q>,
    {
        self.change(key, |value| if f(value) { Compute::Remove } else { Compute::Keep }) == Computed::Removed
    }

    /// Replaces the key's value by what `f` makes of it, and says whether it is there. If another writer is faster, `f` is called again.
    #[inline]
    pub fn update<Q: Eq + Hash + ?Sized>(&self, key: &Q, mut f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q>,
    {
        self.change(key, |value| Compute::Put(f(value))) == Computed::Updated
    }

    /// Does with a key that is there what `f` says of its value; as [`compute`](Table::compute) for a key that is borrowed.
    #[inline]
    pub fn change<Q: Eq + Hash + ?Sized>(&self, key: &Q, f: impl FnMut(&V) -> Compute<V>) -> Computed
    where
        K: Borrow<Q>,
    {
        op(|op| self.change_in(op, key, f))
    }

    /// As [`change`](Table::change), in an operation that is open.
    #[inline(always)]
    pub fn change_in<Q: Eq + Hash + ?Sized>(
        &self,
        _: &Op,
        key: &Q,
        f: impl FnMut(&V) -> Compute<V>,
    ) -> Computed
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe { change(raw, hash, move |found: &K| found.borrow() == key, &self.rehash(), f) })
    }

    /// As [`change_in`](Table::change_in), if the key is in its home's own bucket, or in none, and nobody writes to that bucket: what most changes
    /// find. Where `f` makes another value it calls no function but the hasher's, the key's comparison, `f`, and what the value's memory needs.
    ///
    /// # Errors
    /// It is otherwise: that is for [`change_in`](Table::change_in). `f` comes back, and was perhaps called, but nothing was done.
    #[inline(always)]
    pub fn change_at_home<Q: Eq + Hash + ?Sized, F: FnMut(&V) -> Compute<V>>(
        &self,
        _: &Op,
        key: &Q,
        f: F,
    ) -> Result<Computed, F>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe {
            change_at_home(raw, hash, move |found: &K| found.borrow() == key, &self.rehash(), f)
        })
    }

    /// Does with the key what `f` says of its value, if it has one. If another writer is faster, `f` is called again: it is what is then
    /// there that it was told.
    pub fn compute(&self, key: K, mut f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed {
        let hash = self.hasher.hash_one(&key);
        op(|_| {
            // SAFETY: within the operation.
            either!(self, raw => unsafe { compute(raw, hash, key, &self.rehash(), &mut f) })
        })
    }

    /// The key, for what people do with an entry.
    pub fn entry(&self, key: K) -> Entry<'_, K, V, S> {
        Entry { table: self, key }
    }

    // --- all entries ---

    /// Calls `f` for each entry. A key that is there all the time is seen once; one that comes or goes meanwhile, perhaps.
    ///
    /// `f` runs in an operation of its bucket's.
    pub fn for_each(&self, mut f: impl FnMut(&K, &V)) {
        either!(self, raw => visit(raw, &self.rehash(), |entry| {
            // SAFETY: within the operation of `visit`.
            unsafe { both(raw, entry, &mut f) };
        }));
    }

    /// Calls `f` for the entries of one bucket: the one in which the position `from` is, from there on. Returns the position after
    /// them, or nothing after the last. The first position is 0; a position means the same in every table with an equal hasher, of
    /// whatever size, so that a walk may go on in another one.
    pub fn visit_from(&self, from: u64, mut f: impl FnMut(&K, &V)) -> Option<u64> {
        either!(self, raw => step(raw, from, &self.rehash(), &mut Vec::new(), |entry| {
            // SAFETY: within the operation of `step`.
            unsafe { both(raw, entry, &mut f) };
        }))
    }

    /// As [`retain`](Table::retain), for one bucket, as [`visit_from`](Table::visit_from) does.
    pub fn retain_from(&self, from: u64, mut f: impl FnMut(&K, &V) -> bool) -> Option<u64> {
        either!(self, raw => step(raw, from, &self.rehash(), &mut Vec::new(), |entry| {
            // SAFETY: within the operation of `step`.
            unsafe { keep_if(raw, entry, &self.rehash(), &mut f) };
        }))
    }

    /// The position of a key: that of walks.
    pub fn position<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        position(&self.hasher, key)
    }

    /// Keeps the entries of which `f` says so; others that come meanwhile, perhaps.
    pub fn retain(&self, mut f: impl FnMut(&K, &V) -> bool) {
        either!(self, raw => visit(raw, &self.rehash(), |entry| {
            // SAFETY: within the operation of `visit`.
            unsafe { keep_if(raw, entry, &self.rehash(), &mut f) };
        }));
    }

    /// Takes out all that is there from the beginning to the end; others that come meanwhile, perhaps.
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }

    /// Clones of the entries, as [`for_each`](Table::for_each) sees them, bucket by bucket.
    pub fn iter(&self) -> Iter<'_, K, V, S>
    where
        K: Clone,
        V: Clone,
    {
        Iter::new(self, |key, value| (key.clone(), value.clone()))
    }

    /// Clones of the keys.
    pub fn keys(&self) -> Iter<'_, K, V, S, K>
    where
        K: Clone,
    {
        Iter::new(self, |key, _| key.clone())
    }

    /// Clones of the values.
    pub fn values(&self) -> Iter<'_, K, V, S, V>
    where
        V: Clone,
    {
        Iter::new(self, |_, value| value.clone())
    }

    // --- its size ---

    /// How many entries there are: exactly if nobody writes, else about.
    ///
    /// # Cost
    /// A word of each VP is read.
    pub fn len(&self) -> usize {
        either!(self, raw => raw.len())
    }

    /// Whether there is no entry, as [`len`](Table::len) has it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries for which there is room before the table grows.
    pub fn capacity(&self) -> usize {
        op(|_| either!(self, raw => raw.slots()))
    }

    /// Makes room for so many entries more, now, and keeps it.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn reserve(&self, more: usize) {
        assert!(self.try_reserve(more), "no memory for {more} entries more");
    }

    /// As [`reserve`](Table::reserve); whether there was memory for it. If not, the table is as it was.
    #[must_use = "perhaps nothing was reserved"]
    pub fn try_reserve(&self, more: usize) -> bool {
        let entries = self.len().saturating_add(more);
        // SAFETY: within the operation.
        op(|_| either!(self, raw => unsafe { raw.fit(entries, false, &self.rehash()) }))
    }

    /// Gives up the room that the entries do not need, now.
    pub fn shrink_to_fit(&self) {
        // SAFETY: within the operation.
        op(|_| either!(self, raw => unsafe { raw.fit(0, true, &self.rehash()) }));
    }
}

/// The position of a key in walks through tables with this hasher: see [`Table::visit_from`].
pub fn position<Q: Hash + ?Sized>(hasher: &impl BuildHasher, key: &Q) -> u64 {
    mix(hasher.hash_one(key))
}

// --- what it is to others ---

/// The iterator of [`Table::iter`], [`keys`](Table::keys) and [`values`](Table::values): what is made of each entry, a bucket at a time.
pub struct Iter<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S, T = (K, V)> {
    table: &'a Table<K, V, S>,
    make: fn(&K, &V) -> T,
    /// Where the next bucket begins.
    from: Option<u64>,
    found: Vec<T>,
}

impl<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S, T> Iter<'a, K, V, S, T> {
    fn new(table: &'a Table<K, V, S>, make: fn(&K, &V) -> T) -> Self {
        Iter { table, make, from: Some(0), found: Vec::new() }
    }
}

impl<K, V, S, T> Iterator for Iter<'_, K, V, S, T>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    type Item = T;

    fn next(&mut self) -> Option<T> {
        while self.found.is_empty() {
            let at = self.from?;
            let (table, make) = (self.table, self.make);
            // Only what was made whole: a clone may panic.
            let (found, next) = op(|_| {
                either!(table, raw => {
                    let mut entries = Vec::new();
                    // SAFETY: within the operation.
                    unsafe {
                        let next = raw.visit(at, &table.rehash(), &mut entries);
                        (entries.drain(..).map(|entry| both(raw, entry, make)).collect(), next)
                    }
                })
            });
            (self.found, self.from) = (found, next);
        }
        self.found.pop()
    }
}

impl<K, V, S, T> fmt::Debug for Iter<'_, K, V, S, T>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

impl<K, V, S> fmt::Debug for Table<K, V, S>
where
    K: fmt::Debug + Eq + Hash + Send + Sync + 'static,
    V: fmt::Debug + Send + Sync + 'static,
    S: BuildHasher,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        self.for_each(|key, value| _ = map.entry(key, value));
        map.finish()
    }
}

impl<K, V, S> Default for Table<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Default,
{
    fn default() -> Table<K, V, S> {
        Table::with_hasher(S::default())
    }
}

impl<K, V, S> Extend<(K, V)> for Table<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, entries: T) {
        entries.into_iter().for_each(|(key, value)| _ = self.set(key, value));
    }
}

impl<K, V, S> FromIterator<(K, V)> for Table<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Default,
{
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Table<K, V, S> {
        let entries = entries.into_iter();
        let mut table = Table::with_capacity_and_hasher(entries.size_hint().0, S::default());
        table.extend(entries);
        table
    }
}
