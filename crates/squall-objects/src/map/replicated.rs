//! The replicated form: one table that says what is there, and for each cluster that looks keys up a table of copies.
//!
//! Problem: a key that is read everywhere and hardly ever changed shall be found in memory of the reader's cluster, and yet nobody may
//! see a value after somebody saw a later one. Idea: as of a value with replicas (`squall_replica`): a copy is taken out before the value
//! changes, and made again by who reads it next, unless somebody is about to change it.
//!
//! - I1. While a copy of a key is in a table, the truth has that value. For who changes a key announces it in the key's stripe, then takes the
//!   copies out, and only then changes the truth; and copies are made under the stripe's lock, while nobody is announced there, of
//!   what was read after the last who was had ended (`Stripe`).
//! - I2. Whoever is announced takes the copies out of every table that can have one: copies are made under the stripe's lock, in tables
//!   that were known before, so that whoever announces himself after knows of them, and after that none is made.
//! - I3. The lock of a stripe is held for two numbers, or for putting a copy in; who reads only tries it. No closure of the user's, and
//!   nothing that says what a value is, runs under it; `Eq` and `Hash` of the key do. Where one of them panics, which they must not, the
//!   copy that was made is dropped under it.
//!
//! So a read that finds a copy takes effect when it finds it (I1), one that does not when it finds the truth, and a change where the
//! truth changes. Who knows of a change finds no copy of what was before (I2).
//!
//! Source: CO-54, CO-58 (every copy leads to what is one for all), TO-04 (invalidation), HU-16. Of K42's distributed table this is the simplest
//! use: nothing is local to a copy, so that nothing is locked to find one.

use squall_core::swap::{New, RootFormats};
use squall_core::{At, Miss, Reply, Root};
use squall_lock::Lock;
use squall_machine::ClusterSize;
use squall_rcu::{Op, RcuArc};
use squall_table::{Compute, Computed, Table};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, OnceLock};

use super::forms::Moved;
use super::locked::Copies;
use super::store::{Form, Store};
use super::{Mapping, Sensors};

/// How many stripes there are.
const STRIPES: usize = 64;

/// Those who change keys of a stripe. On a line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Stripe(Lock<Writers>);

#[derive(Clone, Copy, Default)]
struct Writers {
    /// Announced.
    now: u32,
    /// Who were, and have ended.
    ended: u64,
}

impl Stripe {
    /// How many have ended, if nobody is announced and the lock is free.
    fn quiet(&self) -> Option<u64> {
        let writers = *self.0.try_lock()?;
        (writers.now == 0).then_some(writers.ended)
    }
}

/// Somebody who is announced in a stripe.
struct Announced<'a>(&'a Stripe);

impl<'a> Announced<'a> {
    fn new(stripe: &'a Stripe) -> Announced<'a> {
        stripe.0.lock().now += 1;
        Announced(stripe)
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        let mut writers = self.0.0.lock();
        writers.now -= 1;
        writers.ended += 1;
    }
}

/// A table of copies.
type Here<K, V, S> = Arc<Table<K, V, S>>;

/// What all representatives share.
pub(super) struct Replicated<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    truth: Arc<Table<K, V, S>>,
    stripes: Box<[Stripe]>,
    /// The tables of copies that there are.
    places: Lock<Arc<[Here<K, V, S>]>>,
    copies: Copies<K, V, S>,
}

/// What a representative has: its table of copies, and the rest.
pub(super) struct Place<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    here: Here<K, V, S>,
    whole: Arc<Replicated<K, V, S>>,
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Replicated<K, V, S> {
    fn places(&self) -> Arc<[Here<K, V, S>]> {
        self.places.lock().clone()
    }

    fn change_places(&self, f: impl FnOnce(&[Here<K, V, S>]) -> Arc<[Here<K, V, S>]>) {
        let mut places = self.places.lock();
        *places = f(&places);
    }
}

impl<K, V, S> Replicated<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn of_table(truth: Arc<Table<K, V, S>>, copies: Copies<K, V, S>) -> Replicated<K, V, S> {
        let stripes = (0..STRIPES).map(|_| Stripe::default()).collect();
        Replicated { truth, stripes, places: Lock::new(Arc::new([])), copies }
    }

    fn join(self: &Arc<Self>) -> Place<K, V, S> {
        let hasher = (self.copies.hasher)(self.truth.hasher());
        let here = Arc::new(Table::with_hasher(hasher));
        self.change_places(|places| [places, std::slice::from_ref(&here)].concat().into());
        Place { here, whole: self.clone() }
    }

    fn stripe<Q: Hash + ?Sized>(&self, key: &Q) -> &Stripe {
        &self.stripes[self.truth.position(key) as usize % STRIPES]
    }

    /// Announces a change of a key, and takes its copies out. It may be changed for as long as what this returns is there.
    fn announce<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Announced<'_>
    where
        K: Borrow<Q>,
    {
        let announced = Announced::new(self.stripe(key));
        for place in self.places().iter() {
            // The look first: most have none, and it writes nothing.
            if place.contains_key(key) {
                place.discard(key);
            }
        }
        announced
    }

    /// Makes a copy, if nobody is at the key.
    fn copy<Q: Eq + Hash + ?Sized>(&self, here: &Table<K, V, S>, key: &Q)
    where
        K: Borrow<Q>,
    {
        let stripe = self.stripe(key);
        let Some(ended) = stripe.quiet() else { return };
        let copy = |key: &K, value: &V| ((self.copies.key)(key), (self.copies.value)(value));
        let Some((key, value)) = self.truth.read_entry(key, copy) else { return };
        let Some(writers) = stripe.0.try_lock() else { return };
        let made_in_vain = if writers.now == 0 && writers.ended == ended {
            here.try_insert(key, value).err()
        } else {
            Some((key, value))
        };
        // What was made in vain is the user's to drop: after the lock.
        drop(writers);
        drop(made_in_vain);
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for Place<K, V, S> {
    fn drop(&mut self) {
        let others = |places: &[Here<K, V, S>]| {
            places.iter().filter(|place| !Arc::ptr_eq(place, &self.here)).cloned().collect()
        };
        self.whole.change_places(others);
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

    #[inline]
    pub(super) fn read_in<Q: Eq + Hash + ?Sized, R>(
        &self,
        op: &Op,
        key: &Q,
        f: impl FnOnce(&V) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let mut f = Some(f);
        if let Some(read) = self.here.read_in(op, key, |value| f.take().map(|f| f(value))) {
            return read;
        }
        let read = self.truth().read_in(op, key, f?)?;
        self.whole.copy(&self.here, key);
        Some(read)
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
        for place in self.whole.places().iter() {
            place.clear();
            place.shrink_to_fit();
        }
    }
}

/// The root.
pub(super) struct Spread<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
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
    at: At<Spread<K, V, S>>,
}

impl<K, V, S> Spread<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn new(table: Table<K, V, S>, copies: Copies<K, V, S>) -> Spread<K, V, S> {
        let whole = Replicated::of_table(Arc::new(table), copies);
        Spread { copies, whole: OnceLock::from(Arc::new(whole)) }
    }

    pub(super) fn to_come(size: ClusterSize, copies: Copies<K, V, S>) -> New<dyn Mapping<K, V, S>> {
        New::root(Spread { copies, whole: OnceLock::new() }, size)
    }
}

impl<K, V, S> Root for Spread<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Interface = dyn Mapping<K, V, S>;
    type Rep = Local<K, V, S>;

    fn make_rep(&self, at: At<Self>) -> Local<K, V, S> {
        let whole = self.whole.get().expect("a miss is refused while nothing moved in");
        Local { place: RcuArc::new(whole.join()), at }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> Reply<'a, Self> {
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

impl<K, V, S> Mapping<K, V, S> for Local<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    #[inline]
    fn look<'o>(&self, op: &'o Op, found: &mut Option<Store<'o, K, V, S>>) {
        *found = Some(Store::new(Form::Replicated(self.place.lend(op))));
    }

    #[inline]
    fn with(&self, act: &mut dyn FnMut(Store<'_, K, V, S>)) {
        act(Store::new(Form::Replicated(&self.place)));
    }

    fn sensors(&self) -> Sensors {
        Sensors { entries: self.place.len(), reps: self.at.reps().count(), ..Sensors::default() }
    }
}
