//! `Table`: the public interface of the hash table. Constructors, reads, and the size are here; `update` has
//! the writes, `walk` the iteration, and `try_fast` the fast paths.

use crate::table::compiled::Compiled;
use crate::table::layout::{Boxed, Flat, Split, Wide};
use crate::table::ops::free;
use crate::table::raw::Raw;
use crate::table::slots::{FlatSlots, NodeSlots, SplitSlots, WideSlots};
use crate::table::word::{Words, fits_word, fits_words};
use squall_rcu::{__pin as pin, Guard};
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

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
/// about an entry panics, the entry is unchanged. [`insert`](Table::insert) and [`remove`](Table::remove)
/// clone a value before the change, so a panic there leaves it, too. Only `Eq` and `Hash` of keys run under
/// the lock of a home. They must not use the same table: a call that would wait for its own thread panics. A
/// hasher or an equality that contradicts itself finds or loses entries, but corrupts no memory.
///
/// If the drop of an entry panics as the table is dropped, all others are dropped all the same. The first
/// panic then goes on.
///
/// A key of a type outside `std` may change in place while it is shared. So the key never moves, and its
/// value is a separate allocation.
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
/// use squall::parts::table::Table;
/// let hits: Table<&str, u64> = Table::new();
/// hits.set("home", 1);
/// hits.update("home", |n| n + 1);
/// assert_eq!(hits.get("home"), Some(2));
/// assert_eq!(hits.read("about", |n| n + 1), None);
/// ```
pub struct Table<K: Send + Sync + 'static, V: Send + Sync + 'static, S = RandomState> {
    /// Dropped by the table's own drop.
    pub(crate) entries: Entries,
    pub(crate) hasher: S,
    types: PhantomData<Types<K, V>>,
}

/// A type that takes and returns keys and values: [`Table`] of one type is no `Table` of another.
type Types<K, V> = fn(K, V) -> (K, V);

/// The raw entries, in the layout that the types select ([`either`]).
pub(crate) union Entries {
    pub(crate) flat: ManuallyDrop<Raw<FlatSlots>>,
    pub(crate) wide: ManuallyDrop<Raw<WideSlots>>,
    pub(crate) boxed: ManuallyDrop<Raw<NodeSlots>>,
    pub(crate) split: ManuallyDrop<Raw<SplitSlots>>,
}

// Implemented for the table itself, and not derived from its fields, so that a value may own a table of its
// own type.
// SAFETY: it owns keys and values, lends `&` to them to every thread, and drops them on any. All its other
// fields are shared by protocol (raw).
unsafe impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: Send> Send for Table<K, V, S> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: Sync> Sync for Table<K, V, S> {}

/// Evaluates the expression of the layout that the types select: flat, wide, boxed or split.
///
/// The sizes of most types exclude a layout. Code for an excluded layout is not even compiled: each such
/// condition is a constant of its own.
macro_rules! by_layout {
    ($flat:expr, $wide:expr, $boxed:expr, $split:expr) => {{
        use $crate::table::hash_table::{is_flat, is_wide, may_be_flat, may_be_wide};
        if const { may_be_flat::<K, V>() } && is_flat::<K, V>() {
            $flat
        } else if const { may_be_wide::<K, V>() } && is_wide::<K, V>() {
            $wide
        } else if $crate::table::word::has_stable_bits::<K>() {
            $boxed
        } else {
            $split
        }
    }};
}
pub(crate) use by_layout;

/// Runs an expression on the table in its layout, as a [`Typed`](crate::table::ops::Typed).
macro_rules! either {
    ($table:expr, $typed:ident => $do:expr) => {{
        use $crate::table::layout::{Boxed, Flat, Split, Wide};
        use $crate::table::ops::Typed;
        $crate::table::hash_table::by_layout!(
            {
                // SAFETY: `with_capacity_and_hasher` selected the layout by the same macro.
                let $typed = Typed::<Flat<K, V>> { raw: unsafe { &*$table.entries.flat } };
                $do
            },
            {
                // SAFETY: as above.
                let $typed = Typed::<Wide<K, V>> { raw: unsafe { &*$table.entries.wide } };
                $do
            },
            {
                // SAFETY: as above.
                let $typed = Typed::<Boxed<K, V>> { raw: unsafe { &*$table.entries.boxed } };
                $do
            },
            {
                // SAFETY: as above.
                let $typed = Typed::<Split<K, V>> { raw: unsafe { &*$table.entries.split } };
                $do
            }
        )
    }};
}
pub(crate) use either;

/// Whether the sizes of these types allow the flat layout.
pub(crate) const fn may_be_flat<K, V>() -> bool {
    const WORD: usize = size_of::<u64>();
    let are_plain = !std::mem::needs_drop::<K>() && !std::mem::needs_drop::<V>();
    are_plain && size_of::<K>() <= WORD && size_of::<V>() <= WORD
}

/// Whether the sizes of these types allow the wide layout.
pub(crate) const fn may_be_wide<K, V>() -> bool {
    const WORD: usize = size_of::<u64>();
    let fits_value = !std::mem::needs_drop::<V>() && size_of::<V>() <= WORD;
    fits_value && size_of::<K>() > WORD && size_of::<K>() <= size_of::<Words>()
}

/// Whether entries of these types lie in the slots, one word each for key and value.
#[inline(always)]
pub(crate) fn is_flat<K: 'static, V: 'static>() -> bool {
    fits_word::<K>() && fits_word::<V>()
}

/// Whether entries of these types lie in the slots, with a key of several words.
#[inline(always)]
pub(crate) fn is_wide<K: 'static, V: 'static>() -> bool {
    fits_words::<K>() && fits_word::<V>()
}

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static> Table<K, V> {
    /// Returns an empty table with `std`'s randomly keyed hasher.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, &str> = Table::new();
    /// table.set(1, "one");
    /// assert_eq!(table.get(&1), Some("one"));
    /// ```
    pub fn new() -> Table<K, V> {
        Table::with_hasher(RandomState::new())
    }

    /// Returns an empty table with room for `entries` entries. It does not shrink below that by itself.
    ///
    /// # Panics
    /// If memory is exhausted.
    /// # Example
    /// ```
    /// use squall::parts::table::Table;
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
    /// use squall::parts::table::Table;
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
        let entries = by_layout!(
            Entries { flat: ManuallyDrop::new(FlatSlots::new(entries)) },
            Entries { wide: ManuallyDrop::new(WideSlots::new(entries)) },
            Entries { boxed: ManuallyDrop::new(NodeSlots::new(entries)) },
            Entries { split: ManuallyDrop::new(SplitSlots::new(entries)) }
        );
        Table { entries, hasher, types: PhantomData }
    }

    /// Returns the hasher.
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    // --- reading ---

    /// Returns a copy of the key's value, or `None` if the key is absent. For types that are not `Copy`, see
    /// [`get_cloned`](Table::get_cloned) and [`read`](Table::read).
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<String, u64> = Table::new();
    /// table.set("a".to_owned(), 1);
    /// assert_eq!((table.get("a"), table.get("b")), (Some(1), None));
    /// ```
    #[inline]
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Copy,
    {
        self.read(key, |value| *value)
    }

    /// Returns a clone of the key's value, or `None` if the key is absent. A change of the clone does not
    /// change the table.
    #[inline]
    pub fn get_cloned<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
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
    /// use squall::parts::table::Table;
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
    /// use squall::parts::table::Table;
    /// use squall::rcu::pin;
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
        either!(self, typed => unsafe { typed.read(hash, move |found| found.borrow() == key, f) })
    }

    /// Calls `f` with the table's copy of the key and its value. Returns its result, or `None` if the key is
    /// absent.
    ///
    /// ```
    /// use squall::parts::table::Table;
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
            either!(self, typed => unsafe {
                typed.find(hash, move |found| found.borrow() == key).map(|entry| typed.both(entry, f))
            })
        })
    }

    /// Whether the key is present.
    ///
    /// ```
    /// use squall::parts::table::Table;
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

    // --- size ---

    /// Returns the number of entries: exact while no thread writes, approximate otherwise.
    ///
    /// # Cost
    /// Reads one word per VP.
    /// # Example
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = (0..10).map(|n| (n, n)).collect();
    /// assert_eq!(table.len(), 10);
    /// ```
    pub fn len(&self) -> usize {
        either!(self, typed => typed.raw.len())
    }

    /// Whether the table is empty, as accurate as [`len`](Table::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of entries for which there is room before the table grows.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = Table::with_capacity(100);
    /// assert!(table.capacity() >= 100);
    /// ```
    pub fn capacity(&self) -> usize {
        pin(|_| either!(self, typed => typed.raw.slots()))
    }

    /// Makes room for `more` further entries, and keeps it.
    ///
    /// # Panics
    /// If memory is exhausted.
    /// # Example
    /// ```
    /// use squall::parts::table::Table;
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
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = Table::new();
    /// assert!(table.try_reserve(1000) && table.capacity() >= 1000);
    /// ```
    #[must_use = "perhaps nothing was reserved"]
    pub fn try_reserve(&self, more: usize) -> bool {
        let entries = self.len().saturating_add(more);
        // SAFETY: within the operation.
        pin(|_| either!(self, typed => unsafe { typed.resize_to(entries, false, &self.hasher) }))
    }

    /// Frees the room that the entries do not need.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = Table::with_capacity(1000);
    /// table.shrink_to_fit();
    /// assert!(table.capacity() < 1000);
    /// ```
    pub fn shrink_to_fit(&self) {
        // SAFETY: within the operation.
        pin(|_| either!(self, typed => unsafe { typed.resize_to(0, true, &self.hasher) }));
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for Table<K, V, S> {
    fn drop(&mut self) {
        let entries = &mut self.entries;
        // SAFETY: `with_capacity_and_hasher` selected the layout by the same macro. Taken once, here.
        unsafe {
            by_layout!(
                free::<Flat<K, V>>(ManuallyDrop::take(&mut entries.flat)),
                free::<Wide<K, V>>(ManuallyDrop::take(&mut entries.wide)),
                free::<Boxed<K, V>>(ManuallyDrop::take(&mut entries.boxed)),
                free::<Split<K, V>>(ManuallyDrop::take(&mut entries.split))
            );
        }
    }
}

// --- trait implementations ---

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
