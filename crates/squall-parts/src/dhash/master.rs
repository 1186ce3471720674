//! `Master` and `Local`: what a root has, and what a representative has.
//!
//! - I1. Each method that locks asks `order` at its beginning whether it may.

use squall_sys::sync::Arc;
use std::borrow::Borrow;
use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use crate::dhash::element::{Emptying, Locked, Locking};
use crate::dhash::order;
use crate::dhash::raw::{self, After, Element, Shared};
use crate::dhash::{Replicas, Verdict};

/// The table of a root: each key's element, with its global part, and the way to its replicas in the [`Local`]s.
///
/// `G` is the global part, one for all; it is lent as `&G`, so that what changes in it is an atomic, or has a lock. `L` is the local part, one for
/// each local table that looked the key up under a lock; whoever has its lock has it as `&mut L`.
///
/// Drawbacks first:
/// - What is looked up once costs twice: an element, and a replica of it.
/// - Closures run under locks: they must not lock anything in the same table, or wait for who does. In debug builds that panics. [`read`](Master::read)
///   takes no lock.
/// - Emptying and operations look into each local table.
///
/// Drops of parts run under no lock of the table's, and may use it, the same key included; so may drops of whatever else the thread has
/// retired, which wait until its locks are free ([`squall_rcu::quietly`]). What runs under locks besides the closures are the hash, the
/// comparison, the clone and its drop of keys: these must not use the table.
///
/// # Progress
/// As `raw.rs` has it: reads are lock-free. Whoever stalls in a closure holds up its key: there if by way of a local, for all if by way
/// of the master; while it fills, for all.
///
/// # Panics
/// A closure's panic releases what it was lent, and a key that it was to fill is empty as before; there is no poisoning. So it is with
/// a panic of a key's hash or comparison, also where it was another key's, which a growing table moves. In debug builds methods that lock
/// panic in a closure of the same table's.
///
/// # Cost
/// An entry of the master's table, and a block of 32 bytes besides the key and the global part; for each replica an entry of its local
/// table, and a block of 40 bytes besides the local part. See [`crate::table::Table`] for the entries.
///
/// # Source
/// CO-54 to CO-62, CO-66.
///
/// # Example
/// ```
/// use crate::dhash::{Locking, Master, Verdict};
///
/// // Globally the number of a page frame; locally how often it was mapped here.
/// let pages = Master::<u64, u64, u32>::new(|_frame| 0);
/// let (here, there) = (pages.local(), pages.local());
/// here.find_or_allocate_and_lock(&7, || 4096, |verdict, _, maps| (*maps += 1, assert_eq!(verdict, Verdict::Empty)));
/// there.find_or_allocate_and_lock(&7, || unreachable!(), |verdict, _, maps| (*maps += 1, assert_eq!(verdict, Verdict::Found)));
/// assert_eq!(pages.do_op(&7, Locking::All, 0, |_, _| (), |sum, _, maps| *sum += *maps), Some(2));
/// assert!(pages.empty_data(&7) && here.read(&7, |frame| *frame).is_none());
/// ```
pub struct Master<K, G, L, S = RandomState>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    shared: Arc<Shared<K, G, L, S>>,
}

/// The table of a representative: replicas of the keys that were looked up here, with their local parts.
///
/// It belongs to the [`Master`] that made it, and answers as part of it: what one finds, all find. Its drop takes it out; its local parts
/// are dropped when no operation can see them any more, and what they knew is gone.
pub struct Local<K, G, L, S = RandomState>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    shared: Arc<Shared<K, G, L, S>>,
    table: Arc<raw::Local<K, G, L, S>>,
}

fn never<T>(result: Result<T, Infallible>) -> T {
    result.unwrap_or_else(|never| match never {})
}

impl<K, G, L> Master<K, G, L>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
{
    /// An empty table, without locals. `local_of` makes the local part of a replica; it runs under the element's lock, and must not use
    /// this table but to read.
    pub fn new(local_of: impl Fn(&G) -> L + Send + Sync + 'static) -> Master<K, G, L> {
        Master::with_hasher(RandomState::new(), local_of)
    }
}

impl<K, G, L, S> Master<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// The same with any hasher. Its locals have clones of it.
    pub fn with_hasher(hasher: S, local_of: impl Fn(&G) -> L + Send + Sync + 'static) -> Master<K, G, L, S> {
        Master { shared: Arc::new(Shared::new(hasher, Box::new(local_of))) }
    }

    /// The same, with room for so many keys; locals begin small. It does not shrink below that by itself.
    pub fn with_capacity_and_hasher(
        keys: usize,
        hasher: S,
        local_of: impl Fn(&G) -> L + Send + Sync + 'static,
    ) -> Master<K, G, L, S> {
        Master { shared: Arc::new(Shared::with_capacity(keys, hasher, Box::new(local_of))) }
    }

    /// A local table more, for a representative. There may be any number; they come and go at any time.
    ///
    /// # Cost
    /// In proportion to those there are.
    pub fn local(&self) -> Local<K, G, L, S> {
        let table = self.shared.join(self.shared.hasher().clone());
        Local { shared: self.shared.clone(), table }
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn check(&self) {
        order::check(self.shared.number());
    }

    // --- one key ---

    /// What `f` makes of the global part of a key that is there. It takes no lock and writes nothing; `f` runs in an operation of
    /// `squall-rcu`: what was emptied meanwhile stays until it returns.
    #[inline]
    pub fn read<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&G) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.shared.read(key, f)
    }

    /// Locks the key's element and calls `then` with it. If the key is not there, `fill` makes its global part first: of all that ask for
    /// a key, by way of the master or a local, exactly one is told [`Verdict::Empty`] until the key is emptied; the others wait for it. If `fill`
    /// panics, the key is as empty as before, and the next one is told so.
    ///
    /// # Source
    /// CO-57.
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

    /// The same with a `fill` that may fail: then the key is as empty as before.
    ///
    /// # Errors
    /// Those of `fill`.
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
        let mut after = After::new();
        self.check();
        let then = |verdict, element: &_| then(verdict, Locked::new(&self.shared, element, &mut after));
        self.shared.find_or_fill(key, fill, then)
    }

    /// Locks the key's element and calls `then` with it, if the key is there.
    pub fn find_and_lock<Q: Eq + Hash + ?Sized, R>(
        &self,
        key: &Q,
        then: impl FnOnce(Locked<'_, K, G, L, S>) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let mut after = After::new();
        self.check();
        self.shared.find(key, |element| then(Locked::new(&self.shared, element, &mut after)))
    }

    /// Applies `global` to the key's global part, and `local` to the local part of each of its replicas; returns what they gathered, if
    /// the key is there.
    ///
    /// # Source
    /// CO-59.
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

    /// Locks the key's element and all its replicas, and calls `f` with the global part and the local ones, if the key is there.
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

    /// Puts the key back to empty, in all tables at one moment, and says whether it was there. As [`Locked::empty_data`].
    ///
    /// One that is being filled is emptied after: so what `fill` read before something changed does not stay.
    ///
    /// # Source
    /// CO-61.
    pub fn empty_data<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find_and_lock(key, |element| element.empty_data()).is_some()
    }

    /// The same in steps, if the key is there. As [`Locked::start_empty`].
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

    /// As [`do_op`](Master::do_op), of one key after the other, as a [`walk`](Master::add_reference) meets them; the operators are told which.
    ///
    /// # Source
    /// CO-62.
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

    /// Empties all that is there from the beginning to the end, one key after the other.
    pub fn clear(&self) {
        let mut walk = self.add_reference();
        while walk.get_next_and_lock(|element| element.empty_data()).is_some() {}
    }

    /// Empties what `keep` says no to, one key after the other: it runs under the element's lock. Keys that come meanwhile may be met or not.
    pub fn retain(&self, mut keep: impl FnMut(&K, &G) -> bool) {
        let mut walk = self.add_reference();
        while walk.next_locked(|element| {
            if !keep(element.key(), element.global()) {
                element.empty_data();
            }
        }) {}
    }

    /// Calls `f` with the key and the global part of each key that is there from the beginning to the end, and of some others; of one that is
    /// emptied and filled meanwhile perhaps twice. It takes no lock and writes nothing; `f` runs in operations of `squall-rcu`, of some
    /// keys each.
    pub fn for_each(&self, mut f: impl FnMut(&K, &G)) {
        let mut from = Some(0);
        while let Some(at) = from {
            from = self.visit_from(at, &mut f);
        }
    }

    /// The same of some elements, from a position on; the first is 0. Returns where the next ones begin.
    pub fn visit_from(&self, from: u64, mut f: impl FnMut(&K, &G)) -> Option<u64> {
        self.shared.read_from(from, &mut f)
    }

    /// Begins a walk over the elements: it ends with the drop of what this returns, or with [`Walk::remove_reference`].
    ///
    /// # Source
    /// CO-62.
    pub fn add_reference(&self) -> Walk<'_, K, G, L, S> {
        Walk { master: self, from: Some(0), found: Vec::new() }
    }

    /// How many keys there are, about: those that are being filled or taken out count.
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether there is none, about.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys the master's table has room for before it grows, about.
    pub fn capacity(&self) -> usize {
        self.shared.capacity()
    }

    /// Gives back what room the master's table and each local one can spare. They shrink by themselves, too, later and less.
    pub fn shrink_to_fit(&self) {
        self.shared.shrink_to_fit();
    }

    /// How many locals there are.
    pub fn locals(&self) -> usize {
        self.shared.locals()
    }
}

impl<K, G, L, S> Local<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    #[cfg_attr(debug_assertions, track_caller)]
    fn check(&self) {
        order::check(self.shared.number());
    }

    /// What `f` makes of the global part of a key that is there, found in this table, or else in the master's. It takes no lock, writes nothing and
    /// makes no replica; `f` runs in an operation of `squall-rcu`.
    #[inline]
    pub fn read<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&G) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.shared.read_at(&self.table, key, f)
    }

    /// Locks the key's replica here and calls `then` with its parts. If the key is not here, a replica is made; if it is nowhere, `fill` makes its
    /// global part first: of all that ask for a key, exactly one is told [`Verdict::Empty`] until the key is emptied, and others wait for it. If
    /// `fill` panics, the key is as empty as before, and the next one is told so.
    ///
    /// # Cost
    /// Of a hit: a look-up here, a count of this table's up and down, a lock of this table's.
    /// # Source
    /// CO-55, CO-56.
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

    /// The same with a `fill` that may fail: then the key is as empty as before.
    ///
    /// # Errors
    /// Those of `fill`.
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
        self.shared.find_or_fill_at(&self.table, key, fill, then)
    }

    /// Locks the key's replica here and calls `then` with its parts, if the key is anywhere; a replica is made if there was none here.
    pub fn find_and_lock<Q: Eq + Hash + ?Sized, R>(
        &self,
        key: &Q,
        then: impl FnOnce(&G, &mut L) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.check();
        self.shared.find_at(&self.table, key, then)
    }

    /// How many replicas are here, about.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// How many replicas this table has room for before it grows, about.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Whether there is none, about.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K, G, L, S> Drop for Local<K, G, L, S>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    fn drop(&mut self) {
        self.shared.leave(&self.table);
    }
}

/// A walk over the elements of a master's. It holds on to those that it is about to come to, so that their memory is not given back; it is no
/// operation of `squall-rcu`, and may take its time. A key that is there from its beginning to its end is met once; of those that come and go,
/// some. Others may be changed and emptied meanwhile, by the same thread, too.
pub struct Walk<'a, K, G, L, S = RandomState>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    master: &'a Master<K, G, L, S>,
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
    /// Locks the next element that is not empty and calls `f` with it; nothing if there was none left.
    pub fn get_next_and_lock<R>(&mut self, f: impl FnOnce(Locked<'_, K, G, L, S>) -> R) -> Option<R> {
        let master = self.master;
        loop {
            while let Some(element) = self.found.pop() {
                let mut after = After::new();
                master.check();
                let _under = master.shared.under();
                if let Some(_held) = master.shared.lock_full(&element) {
                    return Some(f(Locked::new(&master.shared, &element, &mut after)));
                }
            }
            self.from = master.shared.visit_from(self.from?, &mut self.found);
        }
    }

    /// The same, and all replicas are locked, too.
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

/// Fills what is not there, without locals. A key that is there keeps its global part: nothing replaces one but emptying the key.
impl<K, G, L, S> Extend<(K, G)> for Master<K, G, L, S>
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

impl<K, G, L, S> fmt::Debug for Master<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Master");
        shown.field("len", &self.len()).field("locals", &self.locals()).finish_non_exhaustive()
    }
}

impl<K, G, L, S> fmt::Debug for Local<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("len", &self.len()).finish_non_exhaustive()
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
