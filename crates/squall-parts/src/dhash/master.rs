//! `MasterTable` and `LocalTable`: the tables of a root and of its representatives.
//!
//! - I1. Each method that locks first calls `lock_order::check`.

use squall_sys::sync::Arc;
use std::borrow::Borrow;
use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use crate::dhash::element::{Emptying, Locked, Locking};
use crate::dhash::lock_order;
use crate::dhash::raw::{self, DeferredDrops, Element, Shared};
use crate::dhash::{Replicas, Verdict};

/// The table of a root. It has each key's element, with its global part, and the element has pointers to
/// its replicas in the [`LocalTable`] tables.
///
/// `G` is the global part, one for all. It is lent as `&G`, so mutable state in it is atomic or behind a
/// lock. `L` is the local part, one for each local table that looked up the key under a lock. The holder of
/// its lock gets it as `&mut L`.
///
/// Limits first:
/// - A key that is looked up once costs twice: an element and a replica.
/// - Closures run under locks: they must not lock in the same table, or wait for a thread that does. Debug
///   builds panic. [`read`](MasterTable::read) takes no lock. A key that is filled later, or by a task, needs
///   [`find_or_reserve`](MasterTable::find_or_reserve).
/// - Emptying, and operations on all replicas, look into each local table.
///
/// Drops of parts run after the table's locks are released, and may use it, the same key included. So do
/// drops of other values that the thread has retired: they wait until its locks are free
/// ([`squall_rcu::without_callbacks`]). Besides the closures, only the hash, comparison, clone and drop of
/// keys run under its locks: they must not use the table.
///
/// # Progress
/// Reads are lock-free. A thread that stalls in a closure of a local table blocks its key in that table. It
/// blocks its key everywhere if it came through the master, or is filling the key.
///
/// # Panics
/// If a closure panics, its locks are released, and a key that it was to fill stays empty; there is no
/// poisoning. A panic in a key's hash or comparison behaves likewise, even if it came from another key that a
/// growing table moves. In debug builds, methods that lock panic within a closure of the same table.
///
/// # Cost
/// An entry of the master's table, and a block of 48 bytes plus key and global part. Each replica adds an
/// entry of its local table, and a block of 40 bytes plus the local part. See [`crate::table::Table`] for the
/// entries.
///
/// # Source
/// CO-54 to CO-62, CO-66 (Appavoo 2005, §4.1.4).
///
/// # Example
/// ```
/// use squall::parts::dhash::{Locking, MasterTable, Verdict};
///
/// // The global part is the number of a page frame; the local part counts the mappings in each place.
/// let pages = MasterTable::<u64, u64, u32>::new(|_frame| 0);
/// let (here, there) = (pages.local(), pages.local());
/// here.find_or_allocate_and_lock(&7, || 4096, |verdict, _, maps| {
///     assert_eq!(verdict, Verdict::Empty);
///     *maps += 1;
/// });
/// there.find_or_allocate_and_lock(&7, || unreachable!(), |verdict, _, maps| {
///     assert_eq!(verdict, Verdict::Found);
///     *maps += 1;
/// });
/// assert_eq!(pages.do_op(&7, Locking::All, 0, |_, _| (), |sum, _, maps| *sum += *maps), Some(2));
/// assert!(pages.empty_data(&7) && here.read(&7, |frame| *frame).is_none());
/// ```
pub struct MasterTable<K, G, L, S = RandomState>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    pub(super) shared: Arc<Shared<K, G, L, S>>,
}

/// The table of a representative. It has replicas of the keys that were looked up in this place, with their
/// local parts.
///
/// It belongs to the [`MasterTable`] that made it: a key that one of the tables finds is found by all. Its
/// drop removes it from the master; its local parts are dropped when no operation can still see them.
pub struct LocalTable<K, G, L, S = RandomState>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    pub(super) shared: Arc<Shared<K, G, L, S>>,
    pub(super) table: Arc<raw::Local<K, G, L, S>>,
}

fn never<T>(result: Result<T, Infallible>) -> T {
    result.unwrap_or_else(|never| match never {})
}

impl<K, G, L> MasterTable<K, G, L>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
{
    /// Returns an empty table without local tables. `local_of` makes the local part of a new replica. It runs
    /// under the element's lock, and may only read in this table.
    ///
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let pages = MasterTable::<u64, u64, u32>::new(|_frame| 0);
    /// assert!(pages.is_empty() && pages.locals() == 0);
    /// ```
    pub fn new(local_of: impl Fn(&G) -> L + Send + Sync + 'static) -> MasterTable<K, G, L> {
        MasterTable::with_hasher(RandomState::new(), local_of)
    }
}

impl<K, G, L, S> MasterTable<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Returns an empty table with this hasher. Local tables get clones of the hasher. `local_of` makes the
    /// local part of a new replica, as in [`new`](MasterTable::new).
    pub fn with_hasher(
        hasher: S,
        local_of: impl Fn(&G) -> L + Send + Sync + 'static,
    ) -> MasterTable<K, G, L, S> {
        MasterTable { shared: Arc::new(Shared::new(hasher, Box::new(local_of))) }
    }

    /// Returns an empty table with this hasher and room for `keys` keys in the master's table, which does not
    /// shrink below that by itself. Local tables begin small. `local_of` makes the local part of a new
    /// replica, as in [`new`](MasterTable::new).
    pub fn with_capacity_and_hasher(
        keys: usize,
        hasher: S,
        local_of: impl Fn(&G) -> L + Send + Sync + 'static,
    ) -> MasterTable<K, G, L, S> {
        MasterTable { shared: Arc::new(Shared::with_capacity(keys, hasher, Box::new(local_of))) }
    }

    /// Adds a local table, for a representative. Local tables may come and go at any time.
    ///
    /// # Cost
    /// Proportional to the number of local tables.
    /// # Example
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let pages = MasterTable::<u64, u64, u32>::new(|_frame| 0);
    /// let places = [pages.local(), pages.local()];
    /// assert_eq!(pages.locals(), 2);
    /// drop(places);
    /// assert_eq!(pages.locals(), 0);
    /// ```
    pub fn local(&self) -> LocalTable<K, G, L, S> {
        let table = self.shared.add_local(self.shared.hasher().clone());
        LocalTable { shared: self.shared.clone(), table }
    }

    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn check(&self) {
        lock_order::check(self.shared.number());
    }

    // --- one key ---

    /// Calls `f` with the key's global part and returns its result, or `None` if the key is absent. Takes no
    /// lock and writes no shared memory. `f` runs in an operation of `squall-rcu`: parts that are emptied
    /// meanwhile stay until it returns.
    ///
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let pages = MasterTable::<u64, u64, ()>::new(|_| ());
    /// pages.find_or_allocate_and_lock(&7, || 4096, |_, _| ());
    /// assert_eq!((pages.read(&7, |frame| *frame), pages.read(&8, |frame| *frame)), (Some(4096), None));
    /// ```
    #[inline]
    pub fn read<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&G) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.shared.read(key, f)
    }

    /// Locks the key's element and calls `then` with it. If the key is absent, `fill` makes its global part
    /// first. Of all callers that ask for a key, through the master or a local table, exactly one gets
    /// [`Verdict::Empty`] until the key is emptied. The others wait for the fill. If `fill` panics, the key
    /// stays empty, and the next caller gets that verdict.
    ///
    /// # Source
    /// CO-57.
    /// # Example
    /// ```
    /// use squall::parts::dhash::{MasterTable, Verdict};
    /// let pages = MasterTable::<u64, u64, ()>::new(|_| ());
    /// let verdict = |_| pages.find_or_allocate_and_lock(&7, || 4096, |verdict, _| verdict);
    /// assert_eq!([0, 1].map(verdict), [Verdict::Empty, Verdict::Found]);
    /// ```
    pub fn find_or_allocate_and_lock<Q, R>(
        &self,
        key: &Q,
        fill: impl FnOnce() -> G,
        then: impl FnOnce(Verdict, Locked<'_, K, G, L, S>) -> R,
    ) -> R
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        never(self.try_find_or_allocate_and_lock(key, || Ok(fill()), then))
    }

    /// Like [`find_or_allocate_and_lock`](MasterTable::find_or_allocate_and_lock), with a `fill` that may
    /// fail. The key then stays empty.
    ///
    /// # Errors
    /// The errors of `fill`.
    /// # Example
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let pages = MasterTable::<u64, u64, ()>::new(|_| ());
    /// let failed = pages.try_find_or_allocate_and_lock(&7, || Err("no memory"), |_, _| ());
    /// assert_eq!(failed, Err("no memory"));
    /// assert_eq!(pages.read(&7, |frame| *frame), None);
    /// ```
    pub fn try_find_or_allocate_and_lock<Q, R, E>(
        &self,
        key: &Q,
        fill: impl FnOnce() -> Result<G, E>,
        then: impl FnOnce(Verdict, Locked<'_, K, G, L, S>) -> R,
    ) -> Result<R, E>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        let mut deferred = DeferredDrops::new();
        self.check();
        let then = |verdict, element: &_| then(verdict, Locked::new(&self.shared, element, &mut deferred));
        self.shared.find_or_fill(key, fill, then)
    }

    /// Locks the key's element and calls `then` with it, if the key is present. Returns its result.
    pub fn find_and_lock<Q: Eq + Hash + ?Sized, R>(
        &self,
        key: &Q,
        then: impl FnOnce(Locked<'_, K, G, L, S>) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let mut deferred = DeferredDrops::new();
        self.check();
        self.shared.find(key, |element| then(Locked::new(&self.shared, element, &mut deferred)))
    }

    /// Calls `global` with the key's global part, and `local` with the local part of each replica. Both
    /// update `gathered`, which is returned if the key is present.
    ///
    /// # Source
    /// CO-59.
    /// # Example
    /// ```
    /// use squall::parts::dhash::{Locking, MasterTable};
    /// let hits = MasterTable::<String, (), u64>::new(|_| 1);
    /// let place = hits.local();
    /// place.find_or_allocate_and_lock("home", || (), |_, _, n| *n += 1);
    /// assert_eq!(hits.do_op("home", Locking::Each, 0, |_, _| (), |sum, _, n| *sum += *n), Some(2));
    /// ```
    pub fn do_op<Q: Eq + Hash + ?Sized, A>(
        &self,
        key: &Q,
        locking: Locking,
        gathered: A,
        global: impl FnOnce(&mut A, &G),
        local: impl FnMut(&mut A, &G, &mut L),
    ) -> Option<A>
    where
        K: Borrow<Q>,
    {
        self.find_and_lock(key, |mut element| element.do_op(locking, gathered, global, local))
    }

    /// Locks the key's element and all its replicas, and calls `f` with the global part and the local parts,
    /// if the key is present.
    ///
    /// # Source
    /// CO-60.
    pub fn lock_all_replicas<Q: Eq + Hash + ?Sized, R>(
        &self,
        key: &Q,
        f: impl FnOnce(&G, &mut Replicas<'_, '_, L>) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.find_and_lock(key, |mut element| element.lock_all_replicas(f))
    }

    /// Empties the key, in all tables at one moment. Returns whether it was present. See
    /// [`Locked::empty_data`].
    ///
    /// If another thread is filling the key, this call waits for the fill and then empties the key. So a
    /// value that `fill` computed before this call does not stay. [`revoke`](MasterTable::revoke) ends a
    /// reservation without waiting.
    ///
    /// # Source
    /// CO-61.
    /// # Example
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let pages = MasterTable::<u64, u64, ()>::new(|_| ());
    /// pages.find_or_allocate_and_lock(&7, || 4096, |_, _| ());
    /// assert!(pages.empty_data(&7) && !pages.empty_data(&7));
    /// ```
    pub fn empty_data<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find_and_lock(key, |element| element.empty_data()).is_some()
    }

    /// Empties the key in steps, if it is present. See [`Locked::start_empty`].
    ///
    /// # Source
    /// CO-61.
    pub fn start_empty<Q: Eq + Hash + ?Sized, R>(
        &self,
        key: &Q,
        f: impl FnOnce(Emptying<'_, '_, K, G, L, S>) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.find_and_lock(key, |element| element.start_empty(f))
    }

    // --- all keys ---

    /// Like [`do_op`](MasterTable::do_op), for all keys, one after the other, in the order of a
    /// [walk](MasterTable::add_reference). The operators also get the key.
    ///
    /// # Source
    /// CO-62.
    /// # Example
    /// ```
    /// use squall::parts::dhash::{Locking, MasterTable};
    /// let mut stock = MasterTable::<&str, u64, u64>::new(|_| 0);
    /// stock.extend([("apple", 2), ("pear", 3)]);
    /// let total = stock.do_op_all(Locking::Each, 0, |sum, _, n| *sum += n, |_, _, _, _| ());
    /// assert_eq!(total, 5);
    /// ```
    pub fn do_op_all<A>(
        &self,
        locking: Locking,
        mut gathered: A,
        mut global: impl FnMut(&mut A, &K, &G),
        mut local: impl FnMut(&mut A, &K, &G, &mut L),
    ) -> A {
        let mut walk = self.add_reference();
        while walk.next_locked(|mut element| {
            let key = element.key();
            let global = |gathered: &mut &mut A, part: &G| global(gathered, key, part);
            element.do_op(locking, &mut gathered, global, |gathered, part, here| {
                local(gathered, key, part, here)
            });
        }) {}
        gathered
    }

    /// Empties all keys that are present from begin to end, one after the other.
    ///
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let mut stock = MasterTable::<&str, u64, ()>::new(|_| ());
    /// stock.extend([("apple", 2), ("pear", 3)]);
    /// stock.clear();
    /// assert!(stock.is_empty());
    /// ```
    pub fn clear(&self) {
        let mut walk = self.add_reference();
        while walk.get_next_and_lock(|element| element.empty_data()).is_some() {}
    }

    /// Empties all keys for which `keep` returns `false`, one after the other. `keep` runs under the
    /// element's lock. Keys that come meanwhile may be missed.
    ///
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let mut stock = MasterTable::<&str, u64, ()>::new(|_| ());
    /// stock.extend([("apple", 2), ("pear", 0)]);
    /// stock.retain(|_, n| *n > 0);
    /// assert_eq!(stock.read("pear", |n| *n), None);
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&K, &G) -> bool) {
        let mut walk = self.add_reference();
        while walk.next_locked(|element| {
            if !keep(element.key(), element.global()) {
                element.empty_data();
            }
        }) {}
    }

    /// Calls `f` with each key that is present from begin to end, and its global part. It may visit others,
    /// and may visit a key twice that is emptied and filled meanwhile. Takes no lock and writes no shared
    /// memory. `f` runs in operations of `squall-rcu`, of some keys each.
    ///
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let mut stock = MasterTable::<&str, u64, ()>::new(|_| ());
    /// stock.extend([("apple", 2), ("pear", 3)]);
    /// let mut total = 0;
    /// stock.for_each(|_, n| total += n);
    /// assert_eq!(total, 5);
    /// ```
    pub fn for_each(&self, mut f: impl FnMut(&K, &G)) {
        let mut from = Some(0);
        while let Some(at) = from {
            from = self.visit_from(at, &mut f);
        }
    }

    /// Like [`for_each`](MasterTable::for_each), for some keys from a position on; walks begin at 0. Returns
    /// the next position; `None` at the end.
    ///
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let mut stock = MasterTable::<&str, u64, ()>::new(|_| ());
    /// stock.extend([("apple", 2), ("pear", 3)]);
    /// let (mut from, mut total) = (Some(0), 0);
    /// while let Some(at) = from {
    ///     from = stock.visit_from(at, |_, n| total += n);
    /// }
    /// assert_eq!(total, 5);
    /// ```
    pub fn visit_from(&self, from: u64, mut f: impl FnMut(&K, &G)) -> Option<u64> {
        self.shared.read_from(from, &mut f)
    }

    /// Begins a walk over the elements. It ends with the drop of the result, or with
    /// [`Walk::remove_reference`].
    ///
    /// # Source
    /// CO-62.
    /// # Example
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let mut stock = MasterTable::<&str, u64, ()>::new(|_| ());
    /// stock.extend([("apple", 2), ("pear", 3)]);
    /// let mut walk = stock.add_reference();
    /// let mut total = 0;
    /// while walk.get_next_and_lock(|element| total += element.global()).is_some() {}
    /// assert_eq!(total, 5);
    /// ```
    pub fn add_reference(&self) -> Walk<'_, K, G, L, S> {
        Walk { master: self, from: Some(0), found: Vec::new() }
    }

    /// Returns the approximate number of keys, including keys that are being filled or emptied.
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether the table is empty, approximately.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the approximate number of keys for which the master's table has room before it grows.
    pub fn capacity(&self) -> usize {
        self.shared.capacity()
    }

    /// Frees the room that the master's table and the local tables do not need. They also shrink by
    /// themselves, later and less.
    pub fn shrink_to_fit(&self) {
        self.shared.shrink_to_fit();
    }

    /// Returns the number of local tables.
    pub fn locals(&self) -> usize {
        self.shared.locals()
    }
}

impl<K, G, L, S> LocalTable<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn check(&self) {
        lock_order::check(self.shared.number());
    }

    /// Calls `f` with the key's global part, found in this table or in the master's. Returns its result, or
    /// `None` if the key is absent. Takes no lock, writes no shared memory, and makes no replica. `f` runs in
    /// an operation of `squall-rcu`.
    ///
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let pages = MasterTable::<u64, u64, ()>::new(|_| ());
    /// let place = pages.local();
    /// pages.find_or_allocate_and_lock(&7, || 4096, |_, _| ());
    /// assert_eq!(place.read(&7, |frame| *frame), Some(4096));
    /// assert!(place.is_empty(), "a read makes no replica");
    /// ```
    #[inline]
    pub fn read<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&G) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.shared.read_local(&self.table, key, f)
    }

    /// Locks the key's replica in this table and calls `then` with its parts. If it has no replica here, one
    /// is made. If the key is absent everywhere, `fill` makes its global part first. Of all callers that ask
    /// for a key, exactly one gets [`Verdict::Empty`] until the key is emptied. The others wait for the fill.
    /// If `fill` panics, the key stays empty, and the next caller gets that verdict.
    ///
    /// # Cost
    /// A hit: a lookup here, a reference count of this table up and down, and a lock of this table.
    /// # Source
    /// CO-55, CO-56.
    /// # Example
    /// ```
    /// use squall::parts::dhash::{MasterTable, Verdict};
    /// let files = MasterTable::<String, u64, u64>::new(|_handle| 0);
    /// let place = files.local();
    /// let open = |_| place.find_or_allocate_and_lock("motd", || 3, |verdict, _, uses| {
    ///     *uses += 1;
    ///     (verdict, *uses)
    /// });
    /// assert_eq!([0, 1].map(open), [(Verdict::Empty, 1), (Verdict::Found, 2)]);
    /// ```
    pub fn find_or_allocate_and_lock<Q, R>(
        &self,
        key: &Q,
        fill: impl FnOnce() -> G,
        then: impl FnOnce(Verdict, &G, &mut L) -> R,
    ) -> R
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        never(self.try_find_or_allocate_and_lock(key, || Ok(fill()), then))
    }

    /// Like [`find_or_allocate_and_lock`](LocalTable::find_or_allocate_and_lock), with a `fill` that may
    /// fail. The key then stays empty.
    ///
    /// # Errors
    /// The errors of `fill`.
    pub fn try_find_or_allocate_and_lock<Q, R, E>(
        &self,
        key: &Q,
        fill: impl FnOnce() -> Result<G, E>,
        then: impl FnOnce(Verdict, &G, &mut L) -> R,
    ) -> Result<R, E>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        self.check();
        self.shared.find_or_fill_local(&self.table, key, fill, then)
    }

    /// Locks the key's replica in this table and calls `then` with its parts, if the key is present anywhere.
    /// If it has no replica here, one is made.
    ///
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let files = MasterTable::<String, u64, u64>::new(|_handle| 0);
    /// let (here, there) = (files.local(), files.local());
    /// here.find_or_allocate_and_lock("motd", || 3, |_, _, uses| *uses += 1);
    /// assert_eq!(there.find_and_lock("motd", |_, uses| *uses), Some(0));
    /// ```
    pub fn find_and_lock<Q: Eq + Hash + ?Sized, R>(
        &self,
        key: &Q,
        then: impl FnOnce(&G, &mut L) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.check();
        self.shared.find_local(&self.table, key, then)
    }

    /// Returns the approximate number of replicas in this table.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the approximate number of replicas for which this table has room before it grows.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Whether this table has no replicas, approximately.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K, G, L, S> Drop for LocalTable<K, G, L, S>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    fn drop(&mut self) {
        self.shared.remove_local(&self.table);
    }
}

/// A walk over the elements of a master.
///
/// It keeps the next few elements alive by counts, so it is no operation of `squall-rcu` and may take long.
/// It visits each key once that is present from begin to end. Keys that are filled or emptied meanwhile may
/// be missed, and reserved keys are skipped. Other threads, and the same thread, may change and empty keys
/// meanwhile.
pub struct Walk<'a, K, G, L, S = RandomState>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    master: &'a MasterTable<K, G, L, S>,
    from: Option<u64>,
    found: Vec<Arc<Element<K, G>>>,
}

impl<K, G, L, S> Walk<'_, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Locks the next element that is not empty and calls `f` with it. Returns `None` at the end.
    pub fn get_next_and_lock<R>(&mut self, f: impl FnOnce(Locked<'_, K, G, L, S>) -> R) -> Option<R> {
        let master = self.master;
        loop {
            while let Some(element) = self.found.pop() {
                let mut deferred = DeferredDrops::new();
                master.check();
                if element.is_reserved() {
                    continue;
                }
                let _scope = master.shared.lock_scope();
                if let Some(_held) = master.shared.lock_full(&element) {
                    return Some(f(Locked::new(&master.shared, &element, &mut deferred)));
                }
            }
            self.from = master.shared.visit_from(self.from?, &mut self.found);
        }
    }

    /// Locks the next element that is not empty, and all its replicas, and calls `f` with key, global part
    /// and local parts. Returns `None` at the end.
    pub fn get_next_and_lock_all<R>(
        &mut self,
        f: impl FnOnce(&K, &G, &mut Replicas<'_, '_, L>) -> R,
    ) -> Option<R> {
        self.get_next_and_lock(|mut element| {
            let key = element.key();
            element.lock_all_replicas(|global, replicas| f(key, global, replicas))
        })
    }

    /// Ends the walk.
    pub fn remove_reference(self) {}

    fn next_locked(&mut self, f: impl FnOnce(Locked<'_, K, G, L, S>)) -> bool {
        self.get_next_and_lock(f).is_some()
    }
}

/// Fills absent keys, without replicas. A present key keeps its global part, which only emptying the key
/// removes.
impl<K, G, L, S> Extend<(K, G)> for MasterTable<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn extend<T: IntoIterator<Item = (K, G)>>(&mut self, keys: T) {
        keys.into_iter().for_each(|(key, global)| self.find_or_allocate_and_lock(&key, || global, |_, _| ()));
    }
}

impl<K, G, L, S> fmt::Debug for MasterTable<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("MasterTable");
        shown.field("len", &self.len()).field("locals", &self.locals()).finish_non_exhaustive()
    }
}

impl<K, G, L, S> fmt::Debug for LocalTable<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTable").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<K, G, L, S> fmt::Debug for Walk<'_, K, G, L, S>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").finish_non_exhaustive()
    }
}
