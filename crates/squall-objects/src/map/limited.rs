//! A map with a limit, around a map of any form.
//!
//! Problem: a limit of entries or bytes must hold in each form and across swaps, and a map without a limit
//! must not pay for it. Idea: a separate object owns the inner map and a budget. A write first takes its
//! need from the budget and then calls the inner map. It gives back the surplus, and the amounts of removed
//! entries. So the forms know no limits, and the inner map may be swapped and may adapt.
//!
//! - I1. The weight of the entries is at most the amount taken from the budget. A write takes the
//!   additional weight of the new entry before it takes effect, and gives back a surplus afterwards
//!   (`squall_parts::table::Budget`).
//! - I2. The amount given back for an entry is the amount that was taken for it. If a closure runs several
//!   times, its last run counts (`Charge`).
//! - I3. A closure that goes to the inner map has a type that does not depend on the caller's closure type.
//!   The inner map may have a limit in turn, so the types would never end.
//! - I4. Only the limited map calls the inner map, except to change its form or its clusters: its owner
//!   gave it up.

use squall_core::{Handle, Id, Miss, MissAnswer, Owned, RepContext, Root};
use squall_machine::ClusterSize;
use squall_parts::table::{Budget, Compute, Computed, Exhausted, Reservation};
use squall_rcu::{Guard, RcuArc};
use std::any::Any;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, OnceLock};

use super::cloners::Cloners;
use super::ext::MapExt;
use super::full::Full;
use super::store::{Form, Store};
use super::{Map, Resized, Sensors};

/// A function that returns a value's weight.
type Weigh<V> = Arc<dyn Fn(&V) -> u64 + Send + Sync>;

/// A maximum number of entries, or a maximum total weight of values: see [`limited`](super::limited()).
///
/// ```
/// use squall_objects::map::MapLimit;
///
/// let limit = MapLimit::<Vec<u8>>::weight(1 << 20, "bytes", |page| page.len() as u64);
/// assert_eq!(format!("{limit:?}"), "MapLimit(1048576 bytes)");
/// ```
pub struct MapLimit<V> {
    most: u64,
    unit: &'static str,
    weigh: Option<Weigh<V>>,
}

impl<V> MapLimit<V> {
    /// Returns a limit of this number of entries.
    pub fn entries(most: u64) -> MapLimit<V> {
        MapLimit { most, unit: "entries", weigh: None }
    }

    /// Returns a limit of this total weight of values, in this unit, such as bytes. `weigh` must return the
    /// same weight for a value each time, and for its clones. It runs in an operation. To limit the memory
    /// of keys and of the map itself, add a share to the weight of each value.
    pub fn weight(
        most: u64,
        unit: &'static str,
        weigh: impl Fn(&V) -> u64 + Send + Sync + 'static,
    ) -> MapLimit<V> {
        MapLimit { most, unit, weigh: Some(Arc::new(weigh)) }
    }
}

impl<V> fmt::Debug for MapLimit<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MapLimit({} {})", self.most, self.unit)
    }
}

/// The inner map and its budget.
pub(super) struct Limited<K, V, S> {
    /// Owner of the inner map. Its type is erased, because the struct's parameters lack the bounds to name
    /// it.
    inner: Box<dyn Any + Send + Sync>,
    budget: Arc<Budget>,
    unit: &'static str,
    weigh: Option<Weigh<V>>,
    cloners: Cloners<K, V, S>,
    /// Id of the object with the limit.
    id: OnceLock<Id>,
}

/// The amount that one change takes while its closure runs, and the amount that it gives back at the end
/// (I2).
struct Charge<'a> {
    budget: &'a Budget,
    part: Reservation<'a>,
    back: u64,
    refused: Option<Exhausted>,
}

impl<'a> Charge<'a> {
    fn new(budget: &'a Budget) -> Charge<'a> {
        Charge { budget, part: Reservation::new(budget), back: 0, refused: None }
    }

    /// Charges a decision about a value of weight `had`. Returns the decision, or `Keep` if the budget
    /// rejects it.
    fn charge<V>(&mut self, had: u64, wanted: Compute<V>, weight: impl FnOnce(&V) -> u64) -> Compute<V> {
        let needs = match &wanted {
            Compute::Put(value) => weight(value),
            Compute::Keep => had,
            Compute::Remove => 0,
        };
        self.back = had.saturating_sub(needs);
        self.refused = self.part.take(needs.saturating_sub(had)).err();
        if self.refused.is_some() { Compute::Keep } else { wanted }
    }

    fn finish(self, computed: Computed) -> Result<Computed, Exhausted> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        if computed != Computed::Kept {
            self.part.keep();
            if self.back > 0 {
                self.budget.give(self.back);
            }
        }
        Ok(computed)
    }
}

impl<K, V, S> Limited<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn new(
        inner: Owned<dyn Map<K, V, S>>,
        limit: MapLimit<V>,
        cloners: Cloners<K, V, S>,
    ) -> Limited<K, V, S> {
        let MapLimit { most, unit, weigh } = limit;
        let budget = Arc::new(Budget::new(most));
        let limited = Limited { inner: Box::new(inner), budget, unit, weigh, cloners, id: OnceLock::new() };
        limited.inner().for_each(|_, value| limited.budget.take_unchecked(limited.weight(value)));
        limited
    }

    fn inner(&self) -> Handle<dyn Map<K, V, S>> {
        let inner = self.inner.downcast_ref::<Owned<dyn Map<K, V, S>>>();
        inner.expect("the inner map of a limited map has another type").handle()
    }

    fn weight(&self, value: &V) -> u64 {
        self.weigh.as_ref().map_or(1, |weigh| weigh(value))
    }

    pub(super) fn full<T>(&self, back: T, exhausted: Exhausted) -> Full<T> {
        let id = *self.id.get().expect("the limited map was called before its id was set");
        Full { back, id, exhausted, unit: self.unit }
    }

    /// Panics for a method that has no way to return the error.
    #[cold]
    #[track_caller]
    fn refuse(&self, exhausted: Exhausted) -> ! {
        panic!("{}", self.full((), exhausted))
    }

    pub(super) fn read_in<Q: Eq + Hash + ?Sized, R>(
        &self,
        _: &Guard,
        key: &Q,
        f: impl FnOnce(&V) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let (mut f, mut read) = (Some(f), None);
        let mut keep = |value: &V| read = f.take().map(|f| f(value));
        let keep: &mut dyn FnMut(&V) = &mut keep;
        self.inner().with(key, keep)?;
        read
    }

    pub(super) fn visit_from(&self, from: u64, mut f: impl FnMut(&K, &V)) -> Option<u64> {
        let f: &mut dyn FnMut(&K, &V) = &mut f;
        self.inner().visit_from(from, f)
    }

    pub(super) fn len(&self) -> usize {
        self.inner().len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.inner().capacity()
    }

    pub(super) fn try_reserve(&self, more: usize) -> bool {
        self.inner().try_reserve(more)
    }

    pub(super) fn shrink_to_fit(&self) {
        self.inner().shrink_to_fit();
    }

    /// Runs a closure and charges its decision.
    fn decide<'a>(
        &'a self,
        charge: &mut Charge<'a>,
        there: Option<&V>,
        f: impl FnOnce(Option<&V>) -> Compute<V>,
    ) -> Compute<V> {
        let wanted = f(there);
        charge.charge(there.map_or(0, |value| self.weight(value)), wanted, |value| self.weight(value))
    }

    pub(super) fn compute_or_full(
        &self,
        key: K,
        mut f: impl FnMut(Option<&V>) -> Compute<V>,
    ) -> Result<Computed, Full<()>> {
        let mut charge = Charge::new(&self.budget);
        let mut decide = |there: Option<&V>| self.decide(&mut charge, there, &mut f);
        let decide: &mut dyn FnMut(Option<&V>) -> Compute<V> = &mut decide;
        let computed = self.inner().compute(key, decide);
        charge.finish(computed).map_err(|exhausted| self.full((), exhausted))
    }

    pub(super) fn set_or_full(&self, key: K, value: V) -> Result<bool, Full<(K, V)>> {
        let copy = || (self.cloners.value)(&value);
        if self.weigh.is_some() {
            let again = (self.cloners.key)(&key);
            let done = self.compute_or_full(key, |_| Compute::Put(copy()));
            return match done {
                Ok(done) => Ok(done != Computed::Inserted),
                Err(full) => Err(full.map(|()| (again, value))),
            };
        }
        let mut part = Reservation::new(&self.budget);
        if let Err(exhausted) = part.take(1) {
            // A key that is present needs no budget.
            let there = self.inner().update(&key, |_| copy());
            return if there { Ok(true) } else { Err(self.full((key, value), exhausted)) };
        }
        let there = self.inner().set(key, value);
        if !there {
            part.keep();
        }
        Ok(there)
    }

    pub(super) fn set(&self, key: K, value: V) -> bool {
        self.set_or_full(key, value).unwrap_or_else(|full| self.refuse(full.exhausted))
    }

    pub(super) fn insert(&self, key: K, value: V) -> Option<V>
    where
        V: Clone,
    {
        let mut old = None;
        let put = |there: Option<&V>| {
            old = there.cloned();
            Compute::Put(value.clone())
        };
        let done = self.compute_or_full(key, put);
        let _ = done.unwrap_or_else(|full| self.refuse(full.exhausted));
        old
    }

    pub(super) fn try_insert(&self, key: K, value: V) -> Result<(), (K, V)> {
        let mut part = Reservation::new(&self.budget);
        if let Err(exhausted) = part.take(self.weight(&value)) {
            if self.inner().contains_key(&key) {
                return Err((key, value));
            }
            self.refuse(exhausted);
        }
        self.inner().try_insert(key, value)?;
        part.keep();
        Ok(())
    }

    pub(super) fn get_or_insert_with(&self, key: K, value: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        let handle = self.inner();
        if let Some(there) = handle.get(&key) {
            return there;
        }
        let value = value();
        let mut part = Reservation::new(&self.budget);
        let taken = part.take(self.weight(&value));
        loop {
            if let Some(there) = handle.get(&key) {
                return there;
            }
            if let Err(exhausted) = taken {
                self.refuse(exhausted);
            }
            if handle.try_insert((self.cloners.key)(&key), value.clone()).is_ok() {
                part.keep();
                return value;
            }
        }
    }

    pub(super) fn change<Q: Eq + Hash + ?Sized>(
        &self,
        key: &Q,
        mut f: impl FnMut(&V) -> Compute<V>,
    ) -> Computed
    where
        K: Borrow<Q>,
    {
        let mut charge = Charge::new(&self.budget);
        let mut decide = |value: &V| self.decide(&mut charge, Some(value), |_| f(value));
        let decide: &mut dyn FnMut(&V) -> Compute<V> = &mut decide;
        let computed = self.inner().compute_if_present(key, decide);
        charge.finish(computed).unwrap_or_else(|exhausted| self.refuse(exhausted))
    }

    pub(super) fn compute(&self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed {
        self.compute_or_full(key, f).unwrap_or_else(|full| self.refuse(full.exhausted))
    }

    /// Removes an entry. Clones the value before the removal, so a clone that panics leaves the entry in the
    /// map.
    pub(super) fn remove<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        let mut old = None;
        let removed = self.change(key, |value| {
            old = Some(value.clone());
            Compute::Remove
        });
        old.filter(|_| removed == Computed::Removed)
    }

    pub(super) fn discard<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.change(key, |_| Compute::Remove) == Computed::Removed
    }

    pub(super) fn retain_from(&self, from: u64, mut f: impl FnMut(&K, &V) -> bool) -> Option<u64> {
        let mut keys = Vec::new();
        let next = self.inner().visit_from(from, |key, _| keys.push((self.cloners.key)(key)));
        for key in keys {
            let _ = self.change(&key, |value| if f(&key, value) { Compute::Keep } else { Compute::Remove });
        }
        next
    }
}

/// The root of a limited map.
pub(super) struct LimitedRoot<K, V, S> {
    limited: Arc<Limited<K, V, S>>,
}

/// The only representative of a limited map.
#[repr(align(128))]
pub(super) struct LimitedRep<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    limited: RcuArc<Limited<K, V, S>>,
}

impl<K, V, S> LimitedRoot<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn new(
        inner: Owned<dyn Map<K, V, S>>,
        limit: MapLimit<V>,
        cloners: Cloners<K, V, S>,
    ) -> LimitedRoot<K, V, S> {
        LimitedRoot { limited: Arc::new(Limited::new(inner, limit, cloners)) }
    }
}

impl<K, V, S> Root for LimitedRoot<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Interface = dyn Map<K, V, S>;
    type Rep = LimitedRep<K, V, S>;

    fn make_rep(&self, at: RepContext<Self>) -> LimitedRep<K, V, S> {
        self.limited.id.get_or_init(|| Handle::id(at.handle()));
        LimitedRep { limited: self.limited.clone().into() }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        miss.local().cached()
    }
}

impl<K, V, S> Map<K, V, S> for LimitedRep<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn read<'o>(&self, guard: &'o Guard) -> Store<'o, K, V, S> {
        Store::new(Form::Limited(self.limited.lend(guard)))
    }

    fn sensors(&self) -> Sensors {
        self.limited.inner().sensors()
    }

    fn budget(&self) -> Option<Arc<Budget>> {
        Some(self.limited.budget.clone())
    }

    fn inner(&self) -> Option<Handle<dyn Map<K, V, S>>> {
        Some(self.limited.inner())
    }

    fn cluster_size(&self) -> ClusterSize {
        self.limited.inner().cluster_size()
    }

    fn resized(&self, size: ClusterSize) -> Option<Resized<K, V, S>> {
        self.limited.inner().resized(size)
    }
}
