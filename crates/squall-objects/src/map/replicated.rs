//! The replicated form: one table that says what is there, and for each cluster that looks keys up a table of copies.
//!
//! Problem: a key that is read everywhere and hardly ever changed shall be found in memory of the reader's cluster, and yet nobody may
//! see a value after somebody saw a later one. Idea: as of a value with replicas (`squall_replica`): a copy is taken out before the value
//! changes, and made again by who reads it next, unless somebody is about to change it.
//!
//! - I1. The table of who looks is a place, the table that says what is there the truth, of `squall_parts::replica::Keyed`, whose proof this stands on, and
//!   whose models: copies are made and taken out by it alone, and the truth is changed only while the key is announced there.
//! - I2. A key that is not there has no copies, so that who only puts in what is not there announces nothing.
//! - I3. No closure of the user's, and nothing that says what a value is, runs under a stripe's lock; `Eq` and `Hash` of the key do. Where one
//!   of them panics, which they must not, the copy that was made is dropped under it, and the map is as it was.
//!
//! So a read that finds a copy takes effect when it finds it, one that does not when it finds the truth, and a change where the truth
//! changes. Who knows of a change finds no copy of what was before.
//!
//! Source: CO-54, CO-58 (every copy leads to what is one for all), TO-04 (invalidation), HU-16. Of K42's distributed table this is the simplest
//! use: nothing is local to a copy, so that nothing is locked to find one.

use squall_core::__macro::{Lender, Lent};
use squall_core::swap::{Replacement, RootFormats};
use squall_core::{RepContext, Miss, MissAnswer, Root};
use squall_machine::ClusterSize;
use squall_rcu::{Guard, RcuArc};
use squall_parts::replica::{Announced, Keyed};
use squall_parts::table::{Compute, Computed, Table};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, OnceLock};

use super::forms::Moved;
use super::locked::Copies;
use super::store::{Form, Store};
use super::{Map, Resized, Sensors};

/// How many stripes there are.
const STRIPES: usize = 64;

/// A table of copies.
type Here<K, V, S> = Arc<Table<K, V, S>>;

/// What all representatives share.
pub(super) struct Replicated<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    truth: Arc<Table<K, V, S>>,
    /// Whose places are the tables of copies that there are.
    keyed: Keyed<Here<K, V, S>>,
    copies: Copies<K, V, S>,
}

/// What a representative has: its table of copies, and the rest.
pub(super) struct Place<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    here: Here<K, V, S>,
    whole: Arc<Replicated<K, V, S>>,
}

impl<K, V, S> Replicated<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    pub(super) fn of_table(truth: Arc<Table<K, V, S>>, copies: Copies<K, V, S>) -> Replicated<K, V, S> {
        Replicated { truth, keyed: Keyed::new(STRIPES), copies }
    }

    pub(super) fn join(self: &Arc<Self>) -> Place<K, V, S> {
        let hasher = (self.copies.hasher)(self.truth.hasher());
        let here = Arc::new(Table::with_hasher(hasher));
        self.keyed.join(here.clone());
        Place { here, whole: self.clone() }
    }

    pub(super) fn table(&self) -> Arc<Table<K, V, S>> {
        self.truth.clone()
    }

    /// Announces a change of a key, and takes its copies out. It may be changed for as long as what this returns is there.
    fn announce<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Announced<'_>
    where
        K: Borrow<Q>,
    {
        self.keyed.announce(self.truth.position(key), |place| {
            // The look first: most have none, and it writes nothing.
            if place.contains_key(key) {
                place.discard(key);
            }
        })
    }

    /// Makes a copy, if nobody is at the key.
    fn copy<Q: Eq + Hash + ?Sized>(&self, here: &Table<K, V, S>, key: &Q)
    where
        K: Borrow<Q>,
    {
        let copy = |key: &K, value: &V| ((self.copies.key)(key), (self.copies.value)(value));
        let make = || self.truth.read_entry(key, copy);
        self.keyed.copy(self.truth.position(key), make, |(key, value)| here.try_insert(key, value));
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for Place<K, V, S> {
    fn drop(&mut self) {
        self.whole.keyed.leave(|place| Arc::ptr_eq(place, &self.here));
    }
}

impl<K, V, S> Place<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn truth(&self) -> &Table<K, V, S> {
        &self.whole.truth
    }

    /// The copies.
    pub(super) fn here(&self) -> &Table<K, V, S> {
        &self.here
    }

    #[inline]
    pub(super) fn read_in<Q: Eq + Hash + ?Sized, R>(
        &self,
        guard: &Guard,
        key: &Q,
        f: impl FnOnce(&V) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let mut f = Some(f);
        if let Some(read) = self.here.read_in(guard, key, |value| f.take().map(|f| f(value))) {
            return read;
        }
        let read = self.truth().read_in(guard, key, f?)?;
        self.whole.copy(&self.here, key);
        Some(read)
    }

    /// How many entries there are copies of here.
    pub(super) fn copies(&self) -> usize {
        self.here.len()
    }

    pub(super) fn visit_from(&self, from: u64, f: impl FnMut(&K, &V)) -> Option<u64> {
        self.truth().visit_from(from, f)
    }

    pub(super) fn len(&self) -> usize {
        self.truth().len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.truth().capacity()
    }

    pub(super) fn insert(&self, key: K, value: V) -> Option<V>
    where
        V: Clone,
    {
        let _announced = self.whole.announce(&key);
        self.truth().insert(key, value)
    }

    pub(super) fn set(&self, key: K, value: V) -> bool {
        let _announced = self.whole.announce(&key);
        self.truth().set(key, value)
    }

    /// Of a key that is not there there are no copies; one that comes meanwhile may have some.
    pub(super) fn try_insert(&self, key: K, value: V) -> Result<(), (K, V)> {
        if self.truth().contains_key(&key) {
            return Err((key, value));
        }
        self.truth().try_insert(key, value)
    }

    /// As [`try_insert`](Place::try_insert).
    pub(super) fn get_or_insert_with(&self, key: K, value: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        self.truth().get_or_insert_with(key, value)
    }

    pub(super) fn remove<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        let _announced = self.whole.announce(key);
        self.truth().remove(key)
    }

    pub(super) fn discard<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let _announced = self.whole.announce(key);
        self.truth().discard(key)
    }

    /// `f` runs while the key is announced, under no lock.
    pub(super) fn change<Q: Eq + Hash + ?Sized>(&self, key: &Q, f: impl FnMut(&V) -> Compute<V>) -> Computed
    where
        K: Borrow<Q>,
    {
        let _announced = self.whole.announce(key);
        self.truth().change(key, f)
    }

    /// As [`change`](Place::change).
    pub(super) fn compute(&self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed {
        let _announced = self.whole.announce(&key);
        self.truth().compute(key, f)
    }

    pub(super) fn retain_from(&self, from: u64, mut f: impl FnMut(&K, &V) -> bool) -> Option<u64> {
        let mut keys = Vec::new();
        let next = self.truth().visit_from(from, |key, _| keys.push((self.whole.copies.key)(key)));
        for key in keys {
            let _ = self.change(&key, |value| if f(&key, value) { Compute::Keep } else { Compute::Remove });
        }
        next
    }

    pub(super) fn try_reserve(&self, more: usize) -> bool {
        self.truth().try_reserve(more)
    }

    /// Copies go: they are made again where they are needed.
    pub(super) fn shrink_to_fit(&self) {
        self.truth().shrink_to_fit();
        for place in self.whole.keyed.places().iter() {
            place.clear();
            place.shrink_to_fit();
        }
    }
}

/// The root.
pub(super) struct ReplicatedRoot<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    copies: Copies<K, V, S>,
    /// Once the state has moved in.
    whole: OnceLock<Arc<Replicated<K, V, S>>>,
}

/// A representative, on lines of its own: neighbours in memory belong to other processors.
#[repr(align(128))]
pub(super) struct Local<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    place: RcuArc<Place<K, V, S>>,
    at: RepContext<ReplicatedRoot<K, V, S>>,
}

impl<K, V, S> ReplicatedRoot<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn new(table: Table<K, V, S>, copies: Copies<K, V, S>) -> ReplicatedRoot<K, V, S> {
        let whole = Replicated::of_table(Arc::new(table), copies);
        ReplicatedRoot { copies, whole: OnceLock::from(Arc::new(whole)) }
    }

    pub(super) fn to_come(size: ClusterSize, copies: Copies<K, V, S>) -> Replacement<dyn Map<K, V, S>> {
        Replacement::root(ReplicatedRoot { copies, whole: OnceLock::new() }, size)
    }
}

impl<K, V, S> Root for ReplicatedRoot<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Interface = dyn Map<K, V, S>;
    type Rep = Local<K, V, S>;

    const LENDER: Lender<Self::Rep, Self::Interface> = Lender::of(|rep| Some(Lent::Third(rep.place.here())));

    fn make_rep(&self, at: RepContext<Self>) -> Local<K, V, S> {
        let whole = self.whole.get().expect("a miss is refused while nothing moved in");
        Local { place: RcuArc::new(whole.join()), at }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        if self.whole.get().is_none() {
            return miss.refuse("no entries moved in");
        }
        miss.local().cached()
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|whole| {
                let whole = whole.root().whole.get().ok_or("entries that were never moved in")?;
                Ok(Moved(whole.truth.clone()))
            })
            .import(|whole, state: Moved<K, V, S>| {
                let root = whole.root();
                let made = Arc::new(Replicated::of_table(state.0, root.copies));
                root.whole.set(made).map_err(|_| "the new object has entries already".into())
            });
    }
}

impl<K, V, S> Map<K, V, S> for Local<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    #[inline]
    fn look<'o>(&self, guard: &'o Guard) -> Store<'o, K, V, S> {
        Store::new(Form::Replicated(self.place.lend(guard)))
    }

    fn sensors(&self) -> Sensors {
        Sensors { entries: self.place.len(), reps: self.at.reps().count(), ..Sensors::default() }
    }

    fn cluster_size(&self) -> ClusterSize {
        self.at.clusters().size()
    }

    fn resized(&self, size: ClusterSize) -> Option<Resized<K, V, S>> {
        Some((self.at.co(), ReplicatedRoot::to_come(size, self.at.root().copies)))
    }
}
