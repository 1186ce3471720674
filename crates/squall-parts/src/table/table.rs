//! `Table`: the public interface of the hash table.

use crate::table::entry::{Compute, Computed, Entry};
use crate::table::layout::{Boxed, Flat, Split, Wide};
use crate::table::ops::{
    both, change, change_at_home, compute, find_at_home, keep_if, put, put_at_home, read, read_at_home, step,
    take, take_at_home, try_insert, visit,
};
use crate::table::raw::Raw;
use crate::table::slab::mix;
use crate::table::word::{fits_word, fits_words, has_stable_bits};
use squall_rcu::{Guard, pin};
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

/// A concurrent hash table. Readers take no lock.
///
/// Limits first:
/// - A value is never changed in place: a new value replaces the old one. Functions that derive one from the
///   other ([`update`](Table::update), [`compute`](Table::compute)) are called again if another writer was
///   faster.
/// - An entry lies in the table itself if both its types are known and small. The value must be one of
///   `std`'s plain types of up to eight bytes. The key must be such a type, or a known type of up to 24
///   bytes: `String`, `Vec<u8>`, `Box<str>`, `Arc<str>`, `&'static str`, paths, small arrays. Every other
///   entry costs an allocation.
/// - Removed memory is freed after a grace period. The removing thread frees types known to free only memory:
///   those without a drop, `String`, `Vec<u8>`, `Arc<str>` and some more. The reclaimer's thread drops all
///   other types, since their drop may run user code. A thread that removes thousands at a time waits for the
///   reclaimer.
/// - Iteration visits each key that is present from begin to end exactly once. It may or may not visit keys
///   that come or go meanwhile. [`len`](Table::len) is exact only while no thread writes.
///
/// User functions run under no lock, within an operation, and may use the table. If a function that decides
/// about an entry panics, the entry is unchanged. A replaced or removed value is cloned after the change is
/// complete. Only `Eq` and `Hash` of keys run under the lock of a home: they must not use the same table. A
/// hasher or an equality that contradicts itself finds or loses entries, but corrupts no memory.
///
/// A key of a type outside `std` may change in place while it is shared. So it stays where it is, and its
/// value is an allocation of its own.
///
/// # Progress
/// Reading is lock-free: a lookup restarts when an entry was removed from its bucket meanwhile. Writers of
/// one bucket, which has about ten keys, exclude each other. A thread that stalls in a write blocks those
/// writers, and no reader. The table resizes gradually: each writer moves a few buckets. If all writers stop
/// halfway, readers search two slabs until one writes again. A read takes effect when it finds the entry or
/// sees that it is absent, a write at one store.
///
/// # Cost
/// A read costs an RCU operation, two cache lines of the table, and the node if there is one. A write costs
/// two read-modify-writes in addition. Sixteen slots take 296 bytes with plain types, 552 with a key of
/// several words, or 168 and one node per entry. The table is between 15 % and 80 % full.
///
/// # Source
/// See the header of `raw.rs`.
///
/// # Example
/// ```
/// use squall_parts::table::Table;
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

// Implemented for the table itself, and not derived from its fields, so that a value may own a table of its
// own type.
// SAFETY: it owns keys and values, lends `&` to them to every thread, and drops them on any. All its other
// fields are shared by protocol (raw).
unsafe impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: Send> Send for Table<K, V, S> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: Sync> Sync for Table<K, V, S> {}

/// Runs an expression on the table in its layout. The types select the layout, so that the other three are
/// compiled out.
macro_rules! either {
    ($table:expr, $raw:ident => $do:expr) => {
        match &$table.entries {
            Entries::Flat($raw) if is_flat::<K, V>() => $do,
            Entries::Wide($raw) if is_wide::<K, V>() => $do,
            Entries::Boxed($raw) if !is_flat::<K, V>() && !is_wide::<K, V>() && has_stable_bits::<K>() => $do,
            Entries::Split($raw) if !is_flat::<K, V>() && !has_stable_bits::<K>() => $do,
            // SAFETY: `with_capacity_and_hasher` selected the layout by the same constant conditions.
            _ => unsafe { std::hint::unreachable_unchecked() },
        }
    };
}

/// Whether entries of these types lie in the slots, one word each for key and value.
#[inline(always)]
fn is_flat<K: 'static, V: 'static>() -> bool {
    fits_word::<K>() && fits_word::<V>()
}

/// Whether entries of these types lie in the slots, with a key of several words.
#[inline(always)]
fn is_wide<K: 'static, V: 'static>() -> bool {
    fits_words::<K>() && fits_word::<V>()
}

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static> Table<K, V> {
    /// Returns an empty table with `std`'s randomly keyed hasher.
    pub fn new() -> Table<K, V> {
        Table::with_hasher(RandomState::new())
    }

    /// Returns an empty table with room for `entries` entries. It does not shrink below that by itself.
    ///
    /// # Panics
    /// If memory is exhausted.
    /// # Example
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, u64> = Table::with_capacity(1000);
    /// assert!(table.capacity() >= 1000 && table.is_empty());
    /// ```
    pub fn with_capacity(entries: usize) -> Table<K, V> {
        Table::with_capacity_and_hasher(entries, RandomState::new())
    }
}

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static, S: BuildHasher> Table<K, V, S> {
    /// Returns an empty table with this hasher. Any hasher works, but one with many equal results makes long
    /// chains.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// use std::hash::{BuildHasherDefault, DefaultHasher};
    /// let table = Table::<&str, u64, _>::with_hasher(BuildHasherDefault::<DefaultHasher>::default());
    /// assert!(!table.set("a", 1));
    /// ```
    pub fn with_hasher(hasher: S) -> Table<K, V, S> {
        Table::with_capacity_and_hasher(0, hasher)
    }

    /// Returns an empty table with this hasher and room for `entries` entries. It does not shrink below that
    /// by itself.
    ///
    /// # Panics
    /// If memory is exhausted.
    pub fn with_capacity_and_hasher(entries: usize, hasher: S) -> Table<K, V, S> {
        let entries = if is_flat::<K, V>() {
            Entries::Flat(Raw::new(entries))
        } else if is_wide::<K, V>() {
            Entries::Wide(Raw::new(entries))
        } else if has_stable_bits::<K>() {
            Entries::Boxed(Raw::new(entries))
        } else {
            Entries::Split(Raw::new(entries))
        };
        Table { entries, hasher }
    }

    /// Returns the hasher.
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    fn rehash(&self) -> impl Fn(&K) -> u64 {
        |key| self.hasher.hash_one(key)
    }

    // --- reading ---

    /// Returns a clone of the key's value, or `None` if the key is absent.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<String, u64> = Table::new();
    /// table.set("a".to_owned(), 1);
    /// assert_eq!((table.get("a"), table.get("b")), (Some(1), None));
    /// ```
    #[inline]
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.read(key, V::clone)
    }

    /// Calls `f` with the key's value and returns its result, or `None` if the key is absent. `f` runs in an
    /// operation: memory that other threads retire meanwhile is freed after it.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let names: Table<u64, String> = Table::new();
    /// names.set(1, "ada".to_owned());
    /// assert_eq!(names.read(&1, |name| name.len()), Some(3));
    /// ```
    #[inline]
    pub fn read<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        pin(|guard| self.read_in(guard, key, f))
    }

    /// Like [`read`](Table::read), in an operation that is already open. Several lookups in one operation
    /// cost less than one each.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// use squall_rcu::pin;
    /// let table: Table<u64, u64> = (0..10).map(|n| (n, n * n)).collect();
    /// let sum: u64 = pin(|guard| (0..10).filter_map(|n| table.read_in(guard, &n, |square| *square)).sum());
    /// assert_eq!(sum, 285);
    /// ```
    #[inline(always)]
    pub fn read_in<Q: Eq + Hash + ?Sized, R>(&self, _: &Guard, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe { read(raw, hash, move |found| found.borrow() == key, f) })
    }

    /// Fast path of [`read_in`](Table::read_in): succeeds if the key is in its home's own bucket or absent,
    /// as in most reads. Calls no function except the hasher, the key's comparison, and `f`.
    ///
    /// # Errors
    /// The key may be elsewhere: [`read_in`](Table::read_in) is the slow path. `f` comes back uncalled.
    #[inline(always)]
    pub fn read_at_home<Q: Eq + Hash + ?Sized, R, F: FnOnce(&V) -> R>(
        &self,
        _: &Guard,
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

    /// Fast path of [`read_in`](Table::read_in) for a key that is present in its home's own bucket.
    ///
    /// # Errors
    /// The key is not in its home's own bucket. `f` comes back uncalled.
    #[inline(always)]
    pub fn find_at_home<Q: Eq + Hash + ?Sized, R, F: FnOnce(&V) -> R>(
        &self,
        _: &Guard,
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

    /// Calls `f` with the table's copy of the key and its value. Returns its result, or `None` if the key is
    /// absent.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let ages: Table<String, u64> = Table::new();
    /// ages.set("ada".to_owned(), 36);
    /// assert_eq!(ages.read_entry("ada", |name, age| format!("{name}: {age}")).as_deref(), Some("ada: 36"));
    /// ```
    #[inline]
    pub fn read_entry<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&K, &V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        pin(|_| {
            // SAFETY: within the operation.
            either!(self, raw => unsafe {
                raw.find_raw(hash, move |found| found.borrow() == key).map(|entry| both(raw, entry, f))
            })
        })
    }

    /// Whether the key is present.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, u64> = [(1, 1)].into_iter().collect();
    /// assert!(table.contains_key(&1) && !table.contains_key(&2));
    /// ```
    #[inline]
    pub fn contains_key<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.read(key, |_| ()).is_some()
    }

    // --- writing ---

    /// Sets the key's value. Returns a clone of the old value, or `None` if the key was absent. A present key
    /// stays or is replaced by `key`, which is equal.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, u64> = Table::new();
    /// assert_eq!((table.insert(1, 10), table.insert(1, 20)), (None, Some(10)));
    /// ```
    pub fn insert(&self, key: K, value: V) -> Option<V>
    where
        V: Clone,
    {
        self.put(key, value, V::clone)
    }

    /// Sets the key's value. Returns whether the key was present. Unlike [`insert`](Table::insert), clones no
    /// value.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, u64> = Table::new();
    /// assert!(!table.set(1, 10) && table.set(1, 20));
    /// ```
    #[inline]
    pub fn set(&self, key: K, value: V) -> bool {
        self.put(key, value, |_| ()).is_some()
    }

    #[inline]
    fn put<R>(&self, key: K, value: V, f: impl FnOnce(&V) -> R) -> Option<R> {
        pin(|guard| self.put_in(guard, key, value, f))
    }

    /// Sets the key's value, in an operation that is already open. Returns `f`'s result for the old value, or
    /// `None` if the key was absent.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// use squall_rcu::pin;
    /// let table: Table<u64, String> = Table::new();
    /// table.set(1, "old".to_owned());
    /// assert_eq!(pin(|guard| table.put_in(guard, 1, "new".to_owned(), |old| old.len())), Some(3));
    /// ```
    #[inline(always)]
    pub fn put_in<R>(&self, _: &Guard, key: K, value: V, f: impl FnOnce(&V) -> R) -> Option<R> {
        let hash = self.hasher.hash_one(&key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe { put(raw, hash, key, value, &self.rehash(), f) })
    }

    /// Fast path of [`put_in`](Table::put_in). Succeeds if no other thread writes to the key's home, that
    /// home has room, and the table is not resizing. Calls no function except `f`, the hasher, and the key's
    /// comparison.
    ///
    /// # Errors
    /// The slow path is needed: [`put_in`](Table::put_in). The table is unchanged; key and value come back.
    #[inline(always)]
    pub fn put_at_home<R>(
        &self,
        _: &Guard,
        key: K,
        value: V,
        f: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>, (K, V)> {
        let hash = self.hasher.hash_one(&key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe { put_at_home(raw, hash, key, value, f) })
    }

    /// Inserts the key if it is absent.
    ///
    /// # Errors
    /// The key is present: key and value come back.
    /// # Example
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, u64> = Table::new();
    /// assert_eq!((table.try_insert(1, 10), table.try_insert(1, 20)), (Ok(()), Err((1, 20))));
    /// ```
    pub fn try_insert(&self, key: K, value: V) -> Result<(), (K, V)> {
        let hash = self.hasher.hash_one(&key);
        pin(|_| {
            // SAFETY: within the operation.
            either!(self, raw => unsafe { try_insert(raw, hash, key, value, &self.rehash(), |_| ()).map_err(|(k, v, ())| (k, v)) })
        })
    }

    /// Returns a clone of the key's value. If the key is absent, inserts the result of `value` first. Threads
    /// that miss the key at once may each make a value. One of these is inserted, and all threads return it.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, String> = Table::new();
    /// assert_eq!(table.get_or_insert_with(1, || "first".to_owned()), "first");
    /// assert_eq!(table.get_or_insert_with(1, || "second".to_owned()), "first");
    /// ```
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
        pin(|_| {
            // SAFETY: within the operation.
            either!(self, raw => unsafe {
                match try_insert(raw, hash, key, value, &self.rehash(), V::clone) {
                    Ok(()) => inserted,
                    Err((.., there)) => there,
                }
            })
        })
    }

    /// Removes the key. Returns a clone of its value, or `None` if the key was absent.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, u64> = [(1, 10)].into_iter().collect();
    /// assert_eq!((table.remove(&1), table.remove(&1)), (Some(10), None));
    /// ```
    pub fn remove<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.take(key, V::clone)
    }

    /// Removes the key. Returns whether it was present. Unlike [`remove`](Table::remove), clones no value.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, u64> = [(1, 10)].into_iter().collect();
    /// assert!(table.discard(&1) && !table.discard(&1));
    /// ```
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
        pin(|guard| self.take_in(guard, key, f))
    }

    /// Removes the key, in an operation that is already open. Returns `f`'s result for its value, or `None`
    /// if the key was absent.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// use squall_rcu::pin;
    /// let table: Table<u64, String> = Table::new();
    /// table.set(1, "gone".to_owned());
    /// assert_eq!(pin(|guard| table.take_in(guard, &1, |value| value.len())), Some(4));
    /// ```
    #[inline(always)]
    pub fn take_in<Q: Eq + Hash + ?Sized, R>(&self, _: &Guard, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe { take(raw, hash, move |found| found.borrow() == key, &self.rehash(), f) })
    }

    /// Fast path of [`take_in`](Table::take_in). Succeeds if no other thread writes to the key's home, and
    /// the table is not resizing. The key must be in that home's own bucket or absent. Calls no function
    /// except `f`, the hasher, and the key's comparison.
    ///
    /// # Errors
    /// The slow path is needed: [`take_in`](Table::take_in). The table is unchanged; `f` comes back uncalled.
    #[inline(always)]
    pub fn take_at_home<Q: Eq + Hash + ?Sized, R, F: FnOnce(&V) -> R>(
        &self,
        _: &Guard,
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

    /// Removes the key if `f` returns `true` for its value. Returns whether it did. The removed value is the
    /// one that `f` saw: if another writer was faster, `f` is called again.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, u64> = [(1, 10)].into_iter().collect();
    /// assert!(!table.remove_if(&1, |n| *n > 10) && table.remove_if(&1, |n| *n == 10));
    /// ```
    pub fn remove_if<Q: Eq + Hash + ?Sized>(&self, key: &Q, mut f: impl FnMut(&V) -> bool) -> bool
    where
        K: Borrow<Q>,
    {
        self.change(key, |value| if f(value) { Compute::Remove } else { Compute::Keep }) == Computed::Removed
    }

    /// Replaces the key's value by `f`'s result. Returns whether the key is present. If another writer was
    /// faster, `f` is called again.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let hits: Table<&str, u64> = [("home", 1)].into_iter().collect();
    /// assert!(hits.update("home", |n| n + 1) && !hits.update("about", |n| n + 1));
    /// ```
    #[inline]
    pub fn update<Q: Eq + Hash + ?Sized>(&self, key: &Q, mut f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q>,
    {
        self.change(key, |value| Compute::Put(f(value))) == Computed::Updated
    }

    /// Replaces, removes or keeps the entry of a present key, as `f` decides from its value. Like
    /// [`compute`](Table::compute), for a borrowed key. `f` may run several times.
    ///
    /// ```
    /// use squall_parts::table::{Compute, Computed, Table};
    /// let stock: Table<&str, u32> = [("apple", 1)].into_iter().collect();
    /// let sell = |n: &u32| if *n > 1 { Compute::Put(n - 1) } else { Compute::Remove };
    /// assert_eq!(stock.change("apple", sell), Computed::Removed);
    /// assert_eq!(stock.change("apple", sell), Computed::Kept);
    /// ```
    #[inline]
    pub fn change<Q: Eq + Hash + ?Sized>(&self, key: &Q, f: impl FnMut(&V) -> Compute<V>) -> Computed
    where
        K: Borrow<Q>,
    {
        pin(|guard| self.change_in(guard, key, f))
    }

    /// Like [`change`](Table::change), in an operation that is already open.
    #[inline(always)]
    pub fn change_in<Q: Eq + Hash + ?Sized>(
        &self,
        _: &Guard,
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

    /// Fast path of [`change_in`](Table::change_in). Succeeds if the key is absent, or in its home's own
    /// bucket without a concurrent writer, as in most changes. If `f` replaces the value, the calls are to
    /// the hasher, the key's comparison, `f`, and the allocator of the value.
    ///
    /// # Errors
    /// The slow path is needed: [`change_in`](Table::change_in). The table is unchanged; `f` comes back,
    /// perhaps after a call.
    #[inline(always)]
    pub fn change_at_home<Q: Eq + Hash + ?Sized, F: FnMut(&V) -> Compute<V>>(
        &self,
        _: &Guard,
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

    /// Inserts, replaces, removes or keeps the key's entry, as `f` decides from its value, in one atomic
    /// step. `f` gets `None` if the key is absent. If another writer was faster, `f` is called again with the
    /// new value.
    ///
    /// ```
    /// use squall_parts::table::{Compute, Computed, Table};
    /// let hits: Table<&str, u64> = Table::new();
    /// let count = |n: Option<&u64>| Compute::Put(n.map_or(1, |n| n + 1));
    /// assert_eq!(hits.compute("home", count), Computed::Inserted);
    /// assert_eq!(hits.compute("home", count), Computed::Updated);
    /// assert_eq!(hits.get("home"), Some(2));
    /// ```
    pub fn compute(&self, key: K, mut f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed {
        let hash = self.hasher.hash_one(&key);
        pin(|_| {
            // SAFETY: within the operation.
            either!(self, raw => unsafe { compute(raw, hash, key, &self.rehash(), &mut f) })
        })
    }

    /// Returns a view of the key's entry, for chains of operations on it.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let hits: Table<&str, u64> = Table::new();
    /// hits.entry("home").and_modify(|n| n + 1).or_insert(1);
    /// assert_eq!(hits.get("home"), Some(1));
    /// ```
    pub fn entry(&self, key: K) -> Entry<'_, K, V, S> {
        Entry { table: self, key }
    }

    // --- all entries ---

    /// Calls `f` for each entry. A key that is present all the time is visited exactly once; one that comes
    /// or goes meanwhile may be missed.
    ///
    /// `f` runs in one operation per home.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, u64> = (0..10).map(|n| (n, n)).collect();
    /// let mut sum = 0;
    /// table.for_each(|_, value| sum += value);
    /// assert_eq!(sum, 45);
    /// ```
    pub fn for_each(&self, mut f: impl FnMut(&K, &V)) {
        either!(self, raw => visit(raw, &self.rehash(), |entry| {
            // SAFETY: within the operation of `visit`.
            unsafe { both(raw, entry, &mut f) };
        }));
    }

    /// Calls `f` for the entries of the home that contains the position `from`, starting there. Returns the
    /// position behind the home; `None` after the last. Walks start at position 0. Positions mean the same in
    /// all tables with an equal hasher, of any size. So a walk can continue in another table.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, u64> = (0..100).map(|n| (n, n)).collect();
    /// let (mut from, mut count) = (Some(0), 0);
    /// while let Some(at) = from {
    ///     from = table.visit_from(at, |_, _| count += 1);
    /// }
    /// assert_eq!(count, 100);
    /// ```
    pub fn visit_from(&self, from: u64, mut f: impl FnMut(&K, &V)) -> Option<u64> {
        either!(self, raw => step(raw, from, &self.rehash(), &mut Vec::new(), |entry| {
            // SAFETY: within the operation of `step`.
            unsafe { both(raw, entry, &mut f) };
        }))
    }

    /// Like [`retain`](Table::retain), for one home at a time, with positions as in
    /// [`visit_from`](Table::visit_from).
    pub fn retain_from(&self, from: u64, mut f: impl FnMut(&K, &V) -> bool) -> Option<u64> {
        either!(self, raw => step(raw, from, &self.rehash(), &mut Vec::new(), |entry| {
            // SAFETY: within the operation of `step`.
            unsafe { keep_if(raw, entry, &self.rehash(), &mut f) };
        }))
    }

    /// Returns the position of a key in walks: see [`visit_from`](Table::visit_from).
    pub fn position<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        position(&self.hasher, key)
    }

    /// Removes all entries for which `f` returns `false`. It may miss entries that come meanwhile.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, u64> = (0..10).map(|n| (n, n)).collect();
    /// table.retain(|_, value| value % 2 == 0);
    /// assert_eq!(table.len(), 5);
    /// ```
    pub fn retain(&self, mut f: impl FnMut(&K, &V) -> bool) {
        either!(self, raw => visit(raw, &self.rehash(), |entry| {
            // SAFETY: within the operation of `visit`.
            unsafe { keep_if(raw, entry, &self.rehash(), &mut f) };
        }));
    }

    /// Removes all entries. It may miss entries that come meanwhile.
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }

    /// Iterates over clones of the entries, home by home, with the guarantees of
    /// [`for_each`](Table::for_each).
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, u64> = [(1, 10), (2, 20)].into_iter().collect();
    /// let mut entries: Vec<_> = table.iter().collect();
    /// entries.sort_unstable();
    /// assert_eq!(entries, [(1, 10), (2, 20)]);
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V, S>
    where
        K: Clone,
        V: Clone,
    {
        Iter::new(self, |key, value| (key.clone(), value.clone()))
    }

    /// Iterates over clones of the keys.
    pub fn keys(&self) -> Iter<'_, K, V, S, K>
    where
        K: Clone,
    {
        Iter::new(self, |key, _| key.clone())
    }

    /// Iterates over clones of the values.
    pub fn values(&self) -> Iter<'_, K, V, S, V>
    where
        V: Clone,
    {
        Iter::new(self, |_, value| value.clone())
    }

    // --- size ---

    /// Returns the number of entries: exact while no thread writes, approximate otherwise.
    ///
    /// # Cost
    /// Reads one word per VP.
    pub fn len(&self) -> usize {
        either!(self, raw => raw.len())
    }

    /// Whether the table is empty, as accurate as [`len`](Table::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of entries for which there is room before the table grows.
    pub fn capacity(&self) -> usize {
        pin(|_| either!(self, raw => raw.slots()))
    }

    /// Makes room for `more` further entries, and keeps it.
    ///
    /// # Panics
    /// If memory is exhausted.
    /// # Example
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, u64> = Table::new();
    /// table.reserve(1000);
    /// assert!(table.capacity() >= 1000);
    /// ```
    pub fn reserve(&self, more: usize) {
        assert!(
            self.try_reserve(more),
            "a table cannot reserve room for {more} further entries: memory is exhausted"
        );
    }

    /// Makes room for `more` further entries, and keeps it. Returns `false`, with the table unchanged, if
    /// memory is exhausted.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, u64> = Table::new();
    /// assert!(table.try_reserve(1000) && table.capacity() >= 1000);
    /// ```
    #[must_use = "perhaps nothing was reserved"]
    pub fn try_reserve(&self, more: usize) -> bool {
        let entries = self.len().saturating_add(more);
        // SAFETY: within the operation.
        pin(|_| either!(self, raw => unsafe { raw.resize_to(entries, false, &self.rehash()) }))
    }

    /// Frees the room that the entries do not need.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let table: Table<u64, u64> = Table::with_capacity(1000);
    /// table.shrink_to_fit();
    /// assert!(table.capacity() < 1000);
    /// ```
    pub fn shrink_to_fit(&self) {
        // SAFETY: within the operation.
        pin(|_| either!(self, raw => unsafe { raw.resize_to(0, true, &self.rehash()) }));
    }
}

/// Returns the position of a key in walks through tables with this hasher: see [`Table::visit_from`].
pub fn position<Q: Hash + ?Sized>(hasher: &impl BuildHasher, key: &Q) -> u64 {
    mix(hasher.hash_one(key))
}

// --- trait implementations ---

/// The iterator of [`Table::iter`], [`keys`](Table::keys) and [`values`](Table::values). It clones one home's
/// entries at a time.
pub struct Iter<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S, T = (K, V)> {
    table: &'a Table<K, V, S>,
    make: fn(&K, &V) -> T,
    /// The position of the next home.
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
            // Assigned only when complete: a clone may panic.
            let (found, next) = pin(|_| {
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
