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
//!   times, its last run counts (`Charge`). A drop that panics runs before the charge is finished, but the
//!   panic goes on after that.
//! - I3. Only the limited map calls the inner map, except to change its form or its clusters: its owner
//!   gave it up.

use squall_core::__macro::Panic;
use squall_core::{Handle, Id, Miss, MissAnswer, Owned, RepContext, Root};
use squall_machine::ClusterSize;
use squall_parts::__Drops;
use squall_parts::table::{Budget, Compute, Computed, Exhausted, Reservation};
use squall_rcu::{Guard, RcuArc};
use std::any::Any;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};

use super::cloners::Cloners;
use super::ext::MapExt;
use super::full::Full;
use super::key::{Borrowed, KeyForm};
use super::methods;
use super::storage::{Old, Storage, retain_keys, take_seen};
use super::store::Store;
use super::{Map, Resized, Sensors};

/// A function that returns a value's weight.
type Weigh<V> = Arc<dyn Fn(&V) -> u64 + Send + Sync>;

/// A maximum number of entries, or a maximum total weight of values: see [`limited`](super::limited()).
///
/// ```
/// use squall::objects::map::MapLimit;
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

    /// Runs a closure and charges its decision.
    fn decide<'a>(
        &'a self,
        charge: &mut Charge<'a>,
        there: Option<&V>,
        f: &mut dyn FnMut(Option<&V>) -> Compute<V>,
    ) -> Compute<V> {
        let wanted = f(there);
        charge.charge(there.map_or(0, |value| self.weight(value)), wanted, |value| self.weight(value))
    }

    /// Runs `f` on the inner map's store, in a call that reads.
    fn read_inner<R>(&self, f: impl FnOnce(&Guard, &dyn Storage<K, V, S>) -> R) -> R {
        methods::read(self.inner(), Panic, |guard, store| f(guard, store.0))
    }

    /// Runs `f` on the inner map's store, in a call that writes.
    fn write_inner<R>(&self, f: impl FnOnce(&Guard, &dyn Storage<K, V, S>) -> R) -> R {
        methods::write(self.inner(), Panic, |guard, store| f(guard, store.0))
    }
}

impl<K, V, S> Storage<K, V, S> for Limited<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn read(&self, _: &Guard, key: &dyn KeyForm<K, S>, f: &mut dyn FnMut(&V)) -> bool {
        self.read_inner(|guard, inner| inner.read(guard, key, f))
    }

    fn find_key(&self, _: &Guard, key: &dyn KeyForm<K, S>, f: &mut dyn FnMut(&K)) -> bool {
        self.read_inner(|guard, inner| inner.find_key(guard, key, f))
    }

    fn get(&self, _: &Guard, key: &dyn KeyForm<K, S>, value: &mut Old<V>) -> bool {
        self.read_inner(|guard, inner| inner.get(guard, key, value))
    }

    fn contains(&self, _: &Guard, key: &dyn KeyForm<K, S>) -> bool {
        self.read_inner(|guard, inner| inner.contains(guard, key))
    }

    fn put(&self, guard: &Guard, entry: &mut Option<(K, V)>, old: &mut Old<V>) -> bool {
        self.put_or_full(guard, entry, old).unwrap_or_else(|full| self.refuse(full.exhausted))
    }

    fn put_or_full(
        &self,
        guard: &Guard,
        entry: &mut Option<(K, V)>,
        old: &mut Old<V>,
    ) -> Result<bool, Full<()>> {
        let Some((key, value)) = entry else { unreachable!("a put without an entry") };
        let mut drops = __Drops::default();
        let mut put = |there: Option<&V>| {
            old.see(there);
            Compute::Put((self.cloners.value)(value))
        };
        if self.weigh.is_some() {
            let computed =
                self.compute_or_full(guard, &mut Some((self.cloners.key)(key)), &mut put, &mut drops)?;
            *entry = None;
            return Ok(computed != Computed::Inserted);
        }
        let mut part = Reservation::new(&self.budget);
        if let Err(exhausted) = part.take(1) {
            // A key that is present needs no budget.
            let mut update = |there: &V| put(Some(there));
            let updated = self
                .write_inner(|guard, inner| inner.change(guard, &Borrowed(&*key), &mut update, &mut drops));
            if updated != Computed::Updated {
                return Err(self.full((), exhausted));
            }
            *entry = None;
            return Ok(true);
        }
        let was_present = self.write_inner(|guard, inner| inner.put(guard, entry, old));
        if !was_present {
            part.keep();
        }
        Ok(was_present)
    }

    /// Panics if the key is absent and the map is full.
    fn try_insert(&self, _: &Guard, entry: &mut Option<(K, V)>, present: &mut Old<V>) -> bool {
        let Some((key, value)) = entry else { unreachable!("an insertion without an entry") };
        let mut part = Reservation::new(&self.budget);
        if let Err(exhausted) = part.take(self.weight(value)) {
            let is_present = self.read_inner(|guard, inner| match present.is_wanted() {
                true => inner.get(guard, &Borrowed(&*key), present),
                false => inner.contains(guard, &Borrowed(&*key)),
            });
            if is_present {
                return false;
            }
            self.refuse(exhausted);
        }
        let is_inserted = self.write_inner(|guard, inner| inner.try_insert(guard, entry, present));
        if is_inserted {
            part.keep();
        }
        is_inserted
    }

    fn take(&self, guard: &Guard, key: &dyn KeyForm<K, S>, old: &mut Old<V>) -> bool {
        take_seen(self, guard, key, old)
    }

    fn change(
        &self,
        _: &Guard,
        key: &dyn KeyForm<K, S>,
        f: &mut dyn FnMut(&V) -> Compute<V>,
        drops: &mut __Drops,
    ) -> Computed {
        let mut charge = Charge::new(&self.budget);
        let mut f = |there: Option<&V>| there.map_or(Compute::Keep, &mut *f);
        let mut decide = |value: &V| self.decide(&mut charge, Some(value), &mut f);
        let computed = self.write_inner(|guard, inner| inner.change(guard, key, &mut decide, drops));
        charge.finish(computed).unwrap_or_else(|exhausted| self.refuse(exhausted))
    }

    fn compute(
        &self,
        guard: &Guard,
        key: &mut Option<K>,
        f: &mut dyn FnMut(Option<&V>) -> Compute<V>,
        drops: &mut __Drops,
    ) -> Computed {
        self.compute_or_full(guard, key, f, drops).unwrap_or_else(|full| self.refuse(full.exhausted))
    }

    fn compute_or_full(
        &self,
        _: &Guard,
        key: &mut Option<K>,
        f: &mut dyn FnMut(Option<&V>) -> Compute<V>,
        drops: &mut __Drops,
    ) -> Result<Computed, Full<()>> {
        let mut charge = Charge::new(&self.budget);
        let mut decide = |there: Option<&V>| self.decide(&mut charge, there, f);
        let computed = self.write_inner(|guard, inner| inner.compute(guard, key, &mut decide, drops));
        charge.finish(computed).map_err(|exhausted| self.full((), exhausted))
    }

    fn visit_from(&self, from: u64, f: &mut dyn FnMut(&K, &V)) -> Option<u64> {
        self.read_inner(|_, inner| inner.visit_from(from, f))
    }

    fn retain_from(&self, from: u64, f: &mut dyn FnMut(&K, &V) -> bool) -> Option<u64> {
        let (mut keys, mut next, mut is_cloning, mut drops) = (Vec::new(), None, false, __Drops::default());
        let mut copy = |key: &K, _: &V| {
            is_cloning = true;
            keys.push((self.cloners.key)(key));
            is_cloning = false;
        };
        // A locked map inside drops copies of the values. A panic there comes after all keys are cloned.
        match catch_unwind(AssertUnwindSafe(|| next = self.visit_from(from, &mut copy))) {
            Ok(()) => {}
            Err(panic) if is_cloning => resume_unwind(panic),
            Err(panic) => drops.keep(panic),
        }
        retain_keys(self, keys, f);
        next
    }

    fn len(&self) -> usize {
        self.read_inner(|_, inner| inner.len())
    }

    fn capacity(&self) -> usize {
        self.read_inner(|_, inner| inner.capacity())
    }

    fn try_reserve(&self, more: usize) -> bool {
        self.write_inner(|_, inner| inner.try_reserve(more))
    }

    fn shrink_to_fit(&self) {
        self.write_inner(|_, inner| inner.shrink_to_fit());
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

    fn class_name() -> &'static str {
        std::any::type_name::<super::classes::Limited<K, V>>()
    }

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
        Store(self.limited.lend(guard))
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
