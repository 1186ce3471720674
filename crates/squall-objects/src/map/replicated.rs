//! The replicated form: one main table with all entries, and for each cluster with readers a table of
//! copies.
//!
//! Problem: a key that is read everywhere and hardly ever changed should be found in memory of the reader's
//! cluster. But no thread may see an old value after another thread saw a newer one. Idea: as in a
//! read-mostly value with replicas, a writer removes all copies before the value changes. The next reader
//! makes a copy again, unless a writer has announced a change of the key.
//!
//! - I1. A representative's table of copies is a place of `squall_parts::replica::KeyedCopies`, and the main
//!   table is its master. `KeyedCopies` alone makes and removes copies, and the main table changes only
//!   while the key is announced there. The proof of `KeyedCopies` and its models apply.
//! - I2. An absent key has no copies. So an insertion of an absent key needs no announcement.
//! - I3. No user closure, and no clone of a value, runs under a stripe's lock; `Eq` and `Hash` of the key
//!   do. If one of them panics, which they must not, the new copy is dropped under the lock, and the map is
//!   unchanged.
//!
//! A read that finds a copy takes effect when it finds the copy; another read takes effect when it finds
//! the entry in the main table. A write takes effect when the main table changes. A thread that knows of
//! the write finds no older copy.
//!
//! Source: CO-54 and CO-58 (K42: each copy leads to shared data), TO-04 (Tornado: invalidation), HU-16
//! (Hurricane). It is the simplest use of K42's distributed table: no data is local to a copy, so a search
//! for one takes no lock.

use squall_core::swap::{Replacement, RootFormats};
use squall_core::{Miss, MissAnswer, RepContext, Root};
use squall_machine::ClusterSize;
use squall_parts::__Drops;
use squall_parts::replica::{Announced, KeyedCopies};
use squall_parts::table::{Compute, Computed, Table};
use squall_rcu::{Guard, RcuArc};
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, OnceLock};

use super::cloners::Cloners;
use super::format::{EntriesFormat, has_entries, no_entries};
use super::key::{Borrowed, KeyForm};
use super::storage::{Old, Storage, retain_keys};
use super::store::Store;
use super::view::{MapView, Viewed};
use super::{Map, Resized, Sensors};

/// Number of stripes. A writer announces its key in one of them.
const STRIPES: usize = 64;

/// A table of copies.
type CopyTable<K, V, S> = Arc<Table<K, V, S>>;

/// The structure that all representatives share.
pub(super) struct Replicated<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    main: Arc<Table<K, V, S>>,
    /// Its places are the tables of copies.
    keyed: KeyedCopies<CopyTable<K, V, S>>,
    cloners: Cloners<K, V, S>,
}

/// The part of one representative: its table of copies, and the shared structure.
pub(super) struct LocalCopies<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    table: CopyTable<K, V, S>,
    shared: Arc<Replicated<K, V, S>>,
}

impl<K, V, S> Replicated<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync,
{
    pub(super) fn of_table(main: Arc<Table<K, V, S>>, cloners: Cloners<K, V, S>) -> Replicated<K, V, S> {
        Replicated { main, keyed: KeyedCopies::new(STRIPES), cloners }
    }

    pub(super) fn join(self: &Arc<Self>) -> LocalCopies<K, V, S> {
        let hasher = (self.cloners.hasher)(self.main.hasher());
        let here = Arc::new(Table::with_hasher(hasher));
        self.keyed.join(here.clone());
        LocalCopies { table: here, shared: self.clone() }
    }

    pub(super) fn table(&self) -> Arc<Table<K, V, S>> {
        self.main.clone()
    }

    /// Announces a change of a key, and removes its copies. The key may be changed while the returned guard
    /// lives.
    fn announce(&self, guard: &Guard, key: &dyn KeyForm<K, S>) -> Announced<'_> {
        self.keyed.announce(key.position(self.main.hasher()), |place| {
            // A lookup first: most tables have no copy, and a lookup writes no memory.
            if Storage::contains(&**place, guard, key) {
                Storage::take(&**place, guard, key, &mut Old::unwanted());
            }
        })
    }

    /// Copies an entry to this table of copies, unless a writer has announced the key.
    fn copy(&self, guard: &Guard, here: &Table<K, V, S>, key: &dyn KeyForm<K, S>) {
        let make = || {
            let (mut copied, hasher) = (None, self.main.hasher());
            let mut copy =
                |key: &K, value: &V| copied = Some(((self.cloners.key)(key), (self.cloners.value)(value)));
            self.main.__read_entry(guard, key.hash(hasher), &|there| key.is(there), &mut copy);
            copied
        };
        let insert = |copy: &mut Option<(K, V)>| _ = here.__try_insert(guard, copy, &mut |_| ());
        self.keyed.copy(key.position(self.main.hasher()), make, insert);
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for LocalCopies<K, V, S> {
    fn drop(&mut self) {
        self.shared.keyed.leave(|place| Arc::ptr_eq(place, &self.table));
    }
}

impl<K, V, S> LocalCopies<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync,
{
    fn main(&self) -> &Table<K, V, S> {
        &self.shared.main
    }

    /// Returns the table of copies.
    pub(super) fn table(&self) -> &Table<K, V, S> {
        &self.table
    }

    /// Returns the number of copies.
    pub(super) fn copies(&self) -> usize {
        self.table.len()
    }
}

impl<K, V, S> Storage<K, V, S> for LocalCopies<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync,
{
    fn read(&self, guard: &Guard, key: &dyn KeyForm<K, S>, f: &mut dyn FnMut(&V)) -> bool {
        if Storage::read(&*self.table, guard, key, f) {
            return true;
        }
        let is_present = Storage::read(self.main(), guard, key, f);
        if is_present {
            self.shared.copy(guard, &self.table, key);
        }
        is_present
    }

    fn find_key(&self, guard: &Guard, key: &dyn KeyForm<K, S>, f: &mut dyn FnMut(&K)) -> bool {
        Storage::find_key(self.main(), guard, key, f)
    }

    fn put(&self, guard: &Guard, entry: &mut Option<(K, V)>, old: &mut Old<V>) -> bool {
        let Some((key, _)) = entry else { unreachable!("a put without an entry") };
        let _announced = self.shared.announce(guard, &Borrowed(key));
        Storage::put(self.main(), guard, entry, old)
    }

    fn get(&self, guard: &Guard, key: &dyn KeyForm<K, S>, value: &mut Old<V>) -> bool {
        Storage::get(self.main(), guard, key, value)
    }

    /// Inserts without an announcement: an absent key has no copies (I2). One that was inserted meanwhile
    /// may have some, and stays unchanged.
    fn try_insert(&self, guard: &Guard, entry: &mut Option<(K, V)>, present: &mut Old<V>) -> bool {
        Storage::try_insert(self.main(), guard, entry, present)
    }

    fn take(&self, guard: &Guard, key: &dyn KeyForm<K, S>, old: &mut Old<V>) -> bool {
        let _announced = self.shared.announce(guard, key);
        Storage::take(self.main(), guard, key, old)
    }

    /// Runs `f` while the key is announced, under no lock.
    fn change(
        &self,
        guard: &Guard,
        key: &dyn KeyForm<K, S>,
        f: &mut dyn FnMut(&V) -> Compute<V>,
        drops: &mut __Drops,
    ) -> Computed {
        let _announced = self.shared.announce(guard, key);
        Storage::change(self.main(), guard, key, f, drops)
    }

    /// Runs `f` while the key is announced, under no lock.
    fn compute(
        &self,
        guard: &Guard,
        key: &mut Option<K>,
        f: &mut dyn FnMut(Option<&V>) -> Compute<V>,
        drops: &mut __Drops,
    ) -> Computed {
        let Some(wanted) = key else { unreachable!("a computation without a key") };
        let _announced = self.shared.announce(guard, &Borrowed(&*wanted));
        Storage::compute(self.main(), guard, key, f, drops)
    }

    fn visit_from(&self, from: u64, f: &mut dyn FnMut(&K, &V)) -> Option<u64> {
        self.main().visit_from(from, f)
    }

    fn retain_from(&self, from: u64, f: &mut dyn FnMut(&K, &V) -> bool) -> Option<u64> {
        let mut keys = Vec::new();
        let next = self.main().visit_from(from, |key, _| keys.push((self.shared.cloners.key)(key)));
        retain_keys(self, keys, f);
        next
    }

    fn len(&self) -> usize {
        self.main().len()
    }

    fn capacity(&self) -> usize {
        self.main().capacity()
    }

    fn try_reserve(&self, more: usize) -> bool {
        self.main().try_reserve(more)
    }

    /// Removes all copies. Readers make them again.
    fn shrink_to_fit(&self) {
        self.main().shrink_to_fit();
        for place in self.shared.keyed.places().iter() {
            place.clear();
            place.shrink_to_fit();
        }
    }
}

/// The root of a replicated map.
pub(super) struct ReplicatedRoot<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    cloners: Cloners<K, V, S>,
    /// Empty until the entries have moved in.
    whole: OnceLock<Arc<Replicated<K, V, S>>>,
}

/// A representative of a replicated map, on cache lines of its own.
#[repr(align(128))]
pub(super) struct ReplicatedRep<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    place: RcuArc<LocalCopies<K, V, S>>,
    at: RepContext<ReplicatedRoot<K, V, S>>,
}

impl<K, V, S> ReplicatedRoot<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn new(table: Table<K, V, S>, cloners: Cloners<K, V, S>) -> ReplicatedRoot<K, V, S> {
        let whole = Replicated::of_table(Arc::new(table), cloners);
        ReplicatedRoot { cloners, whole: OnceLock::from(Arc::new(whole)) }
    }

    pub(super) fn replacement(size: ClusterSize, cloners: Cloners<K, V, S>) -> Replacement<dyn Map<K, V, S>> {
        Replacement::root(ReplicatedRoot { cloners, whole: OnceLock::new() }, size)
    }
}

impl<K, V, S> Root for ReplicatedRoot<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Interface = dyn Map<K, V, S>;
    type Rep = ReplicatedRep<K, V, S>;

    fn view(rep: &Self::Rep) -> MapView<'_, K, V, S> {
        MapView::new(Viewed::Copies(rep.place.table()))
    }

    fn class_name() -> &'static str {
        std::any::type_name::<super::classes::Replicated<K, V>>()
    }

    fn make_rep(&self, at: RepContext<Self>) -> ReplicatedRep<K, V, S> {
        let whole = self.whole.get().expect("a representative was made before the entries had moved in");
        ReplicatedRep { place: RcuArc::new(whole.join()), at }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        if self.whole.get().is_none() {
            return miss.refuse("no entries moved in; repeat the swap with its state");
        }
        miss.local().cached()
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|whole| {
                let whole = whole.root().whole.get().ok_or_else(no_entries)?;
                Ok(EntriesFormat(whole.main.clone()))
            })
            .import(|whole, state: EntriesFormat<K, V, S>| {
                let root = whole.root();
                let made = Arc::new(Replicated::of_table(state.0, root.cloners));
                root.whole.set(made).map_err(|_| has_entries())
            });
    }
}

impl<K, V, S> Map<K, V, S> for ReplicatedRep<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    #[inline]
    fn read<'o>(&self, guard: &'o Guard) -> Store<'o, K, V, S> {
        Store(self.place.lend(guard))
    }

    fn sensors(&self) -> Sensors {
        Sensors { entries: self.place.len(), reps: self.at.reps().count(), ..Sensors::default() }
    }

    fn cluster_size(&self) -> ClusterSize {
        self.at.clusters().size()
    }

    fn resized(&self, size: ClusterSize) -> Option<Resized<K, V, S>> {
        Some((self.at.handle(), ReplicatedRoot::replacement(size, self.at.root().cloners)))
    }
}
