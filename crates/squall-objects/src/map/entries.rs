//! What people do with a map: on the reference, with the types of the caller.

use squall_core::__macro::{Checked, Panic};
use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{CallError, Handle, Id};
use squall_machine::ClusterSize;
use squall_rcu::Guard;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::vec;

use super::acts::{Change, Contains, Discard, Insert, Read, Remove, Set, TryRead};
use super::limited::Full;
use super::store::Store;
use super::{Compute, Computed, Map};

/// What people do with a map. Comes with the reference.
///
/// Closures run under no lock, in an operation, and may use the map; those that say what becomes of an entry are called again where
/// another writer was faster, and have changed nothing if they panic; one that changes its own key each time is asked for ever. Each
/// method panics as every call does if the object was destroyed.
pub trait MapExt<K, V, S>: Copy
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// What `f` makes of the key's value, or of a copy of it that the form has or makes: what is changed in place in a value is
    /// found by others only where it is behind an `Arc`.
    fn with<Q: Eq + Hash + ?Sized, R>(self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>;

    /// A clone of the key's value.
    #[inline]
    #[track_caller]
    fn get<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.with(key, V::clone)
    }

    /// Whether the key is there.
    #[inline]
    #[track_caller]
    fn contains_key<Q: Eq + Hash + ?Sized>(self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.with(key, |_| ()).is_some()
    }

    /// Sets the key's value; a clone of the old one is returned.
    fn insert(self, key: K, value: V) -> Option<V>
    where
        V: Clone;

    /// Sets the key's value, and says whether there was another.
    fn set(self, key: K, value: V) -> bool;

    /// Inserts the key unless it is there.
    ///
    /// # Errors
    /// It is there: key and value come back.
    fn try_insert(self, key: K, value: V) -> Result<(), (K, V)>;

    /// The key's value; if it is not there, what `value` makes is inserted. Of several that come at once each may make a value; one
    /// is inserted, and all return that one.
    fn get_or_insert_with(self, key: K, value: impl FnOnce() -> V) -> V
    where
        V: Clone;

    /// Takes the key out; a clone of its value is returned.
    fn remove<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone;

    /// Takes the key out, and says whether it was there.
    fn delete<Q: Eq + Hash + ?Sized>(self, key: &Q) -> bool
    where
        K: Borrow<Q>;

    /// Takes the key out if `f` says so of its value, which is the value that goes.
    fn remove_if<Q: Eq + Hash + ?Sized>(self, key: &Q, f: impl FnMut(&V) -> bool) -> bool
    where
        K: Borrow<Q>;

    /// Replaces the key's value by what `f` makes of it, and says whether it is there.
    fn update<Q: Eq + Hash + ?Sized>(self, key: &Q, f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q>;

    /// Does with a key that is there what `f` says of its value; as [`compute`](MapExt::compute) for a key that is borrowed.
    fn compute_if_present<Q: Eq + Hash + ?Sized>(self, key: &Q, f: impl FnMut(&V) -> Compute<V>) -> Computed
    where
        K: Borrow<Q>;

    /// Does with the key what `f` says of its value, if it has one.
    fn compute(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed;

    /// As [`set`](MapExt::set), of a map that may have a limit.
    ///
    /// # Errors
    /// The map is [`limited`](super::limited), and full. Of others there is none.
    fn set_or_full(self, key: K, value: V) -> Result<bool, Full<(K, V)>>;

    /// As [`compute`](MapExt::compute), of a map that may have a limit: whatever is done with one key.
    ///
    /// # Errors
    /// As [`set_within`](MapExt::set_or_full).
    fn compute_or_full(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Result<Computed, Full<()>>;

    /// Changes the size of the clusters of which each has a representative of its own, while the map is used: by a swap, of the map
    /// within where it is [`limited`](super::limited).
    ///
    /// # Errors
    /// Its form has one for all, or it has them as its policy wants; or the swap failed. Everything is as it was.
    /// # Cost
    /// That of a [`Swap`], in which callers wait. A replicated map's entries stay where they are, and its copies are made again by who
    /// reads. A partitioned map's entries are copied twice.
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, ResizeError>;

    /// Gives the map another form while it is used, as `new` makes it; one that is [`limited`](super::limited) keeps its limit. As a [`Swap`],
    /// which has more to say of how.
    ///
    /// # Errors
    /// [`SwapError`]: everything is as it was.
    fn swap_to(self, new: Replacement<dyn Map<K, V, S>>) -> Result<SwapReport, SwapError>;

    /// The key, for what people do with an entry.
    fn entry(self, key: K) -> Entry<Self, K>
    where
        Self: Sized,
    {
        Entry { map: self, key }
    }

    /// Calls `f` for each entry. A key that is there all the time is seen once; one that comes or goes meanwhile, perhaps.
    ///
    /// It is one call of the object for a few entries at a time, so a swap may come between two of them.
    fn for_each(self, f: impl FnMut(&K, &V));

    /// Keeps the entries of which `f` says so; others that come meanwhile, perhaps.
    fn retain(self, f: impl FnMut(&K, &V) -> bool);

    /// Takes out all that is there from the beginning to the end; others that come meanwhile, perhaps.
    fn clear(self) {
        self.retain(|_, _| false);
    }

    /// Clones of the entries, as [`for_each`](MapExt::for_each) sees them.
    fn iter(self) -> Iter<Self, K, V, S>
    where
        K: Clone,
        V: Clone,
    {
        Iter::new(self, |key, value| (key.clone(), value.clone()))
    }

    /// Clones of the keys.
    fn keys(self) -> Iter<Self, K, V, S, K>
    where
        K: Clone,
    {
        Iter::new(self, |key, _| key.clone())
    }

    /// Clones of the values.
    fn values(self) -> Iter<Self, K, V, S, V>
    where
        V: Clone,
    {
        Iter::new(self, |_, value| value.clone())
    }

    /// What the entries come to: `f` adds one to what there was.
    fn fold<T>(self, from: T, mut f: impl FnMut(T, &K, &V) -> T) -> T {
        let mut folded = Some(from);
        self.for_each(|key, value| folded = folded.take().map(|folded| f(folded, key, value)));
        folded.expect("put back after each entry")
    }

    /// How many entries there are: exactly if nobody writes, else about.
    fn len(self) -> usize;

    /// Whether there is no entry, as [`len`](MapExt::len) has it.
    #[track_caller]
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// How many entries were counted in one walk: each that is there all the time, and some of those that come or go.
    fn count(self) -> usize {
        self.fold(0, |count, _, _| count + 1)
    }

    /// Entries for which there is room before it grows. Of a partitioned map, of all parts together: one part may grow before.
    fn capacity(self) -> usize;

    /// Makes room for so many entries more, now; whether there was memory for it. If not, the entries are as they were. Of a
    /// partitioned map each part gets room for its share, as if all got equally many: where one gets more, it grows.
    #[must_use = "perhaps nothing was reserved"]
    fn try_reserve(self, more: usize) -> bool;

    /// As [`try_reserve`](MapExt::try_reserve).
    ///
    /// # Panics
    /// If there is no memory for it.
    #[track_caller]
    fn reserve(self, more: usize) {
        assert!(self.try_reserve(more), "no memory for {more} entries more");
    }

    /// Gives up the room that the entries do not need, now.
    fn shrink_to_fit(self);

    // --- for those who do not know whether it is there still ---

    /// As [`read`](MapExt::with).
    ///
    /// # Errors
    /// [`CallError`]: the map is gone, and `f` was not called. Of the others named `try_`, too: nothing was done.
    fn try_with<Q: Eq + Hash + ?Sized, R>(
        self,
        key: &Q,
        f: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>, CallError>
    where
        K: Borrow<Q>;

    /// As [`get`](MapExt::get).
    ///
    /// # Errors
    /// As [`try_read`](MapExt::try_with).
    #[inline]
    fn try_get<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Result<Option<V>, CallError>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.try_with(key, V::clone)
    }

    /// As [`set`](MapExt::set).
    ///
    /// # Errors
    /// As [`try_read`](MapExt::try_with); key and value are dropped.
    fn try_set(self, key: K, value: V) -> Result<bool, CallError>;

    /// As [`discard`](MapExt::delete).
    ///
    /// # Errors
    /// As [`try_read`](MapExt::try_with).
    fn try_delete<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Result<bool, CallError>
    where
        K: Borrow<Q>;

    /// As [`compute`](MapExt::compute), which can do whatever is done with one key.
    ///
    /// # Errors
    /// As [`try_read`](MapExt::try_with); the key is dropped.
    fn try_compute(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Result<Computed, CallError>;

    /// As [`for_each`](MapExt::for_each).
    ///
    /// # Errors
    /// [`CallError`]: the map is gone; perhaps since a moment ago, and `f` saw some entries.
    fn try_for_each(self, f: impl FnMut(&K, &V)) -> Result<(), CallError>;

    /// Some entries from a position on: what [`iter`](MapExt::iter) is made of.
    #[doc(hidden)]
    fn visit_from(self, from: u64, f: impl FnMut(&K, &V)) -> Option<u64>;
}

/// Writes within a call.
#[inline(always)]
#[track_caller]
fn write<K, V, S, R>(co: Handle<dyn Map<K, V, S>>, f: impl FnOnce(&Guard, Store<'_, K, V, S>) -> R) -> R
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    co.__call_in("lend", |guard, map| map.lend(guard).within(map, guard, f), Panic)
}

/// The same, if the object is there.
#[inline(always)]
fn try_write<K, V, S, R>(
    co: Handle<dyn Map<K, V, S>>,
    f: impl FnOnce(&Guard, Store<'_, K, V, S>) -> R,
) -> Result<R, CallError>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    co.__call_in("lend", |guard, map| Ok(map.lend(guard).within(map, guard, f)), Checked)
}

/// Reads within a call.
#[inline(always)]
#[track_caller]
fn look<K, V, S, R>(co: Handle<dyn Map<K, V, S>>, f: impl FnOnce(&Guard, Store<'_, K, V, S>) -> R) -> R
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    co.__call_in("look", |guard, map| f(guard, map.look(guard)), Panic)
}

/// The same, if the object is there.
#[inline(always)]
fn try_look<K, V, S, R>(
    co: Handle<dyn Map<K, V, S>>,
    f: impl FnOnce(&Guard, Store<'_, K, V, S>) -> R,
) -> Result<R, CallError>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    co.__call_in("look", |guard, map| Ok(f(guard, map.look(guard))), Checked)
}

impl<K, V, S> MapExt<K, V, S> for Handle<dyn Map<K, V, S>>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    #[inline]
    #[track_caller]
    fn with<Q: Eq + Hash + ?Sized, R>(self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.__call_act("look", Read { key, f }, Panic)
    }

    #[inline]
    #[track_caller]
    fn contains_key<Q: Eq + Hash + ?Sized>(self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.__call_act("look", Contains { key }, Panic)
    }

    #[inline]
    #[track_caller]
    fn insert(self, key: K, value: V) -> Option<V>
    where
        V: Clone,
    {
        self.__call_act("lend", Insert { key, value }, Panic)
    }

    #[inline]
    #[track_caller]
    fn set(self, key: K, value: V) -> bool {
        self.__call_act("lend", Set { key, value }, Panic)
    }

    #[track_caller]
    fn try_insert(self, key: K, value: V) -> Result<(), (K, V)> {
        write(self, |_, store| store.try_insert(key, value))
    }

    #[track_caller]
    fn get_or_insert_with(self, key: K, value: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        write(self, |_, store| store.get_or_insert_with(key, value))
    }

    #[inline]
    #[track_caller]
    fn remove<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.__call_act("lend", Remove { key }, Panic)
    }

    #[inline]
    #[track_caller]
    fn delete<Q: Eq + Hash + ?Sized>(self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.__call_act("lend", Discard { key }, Panic)
    }

    #[track_caller]
    fn remove_if<Q: Eq + Hash + ?Sized>(self, key: &Q, mut f: impl FnMut(&V) -> bool) -> bool
    where
        K: Borrow<Q>,
    {
        let decide = |value: &V| if f(value) { Compute::Remove } else { Compute::Keep };
        write(self, |guard, store| store.change(guard, key, decide)) == Computed::Removed
    }

    #[inline]
    #[track_caller]
    fn update<Q: Eq + Hash + ?Sized>(self, key: &Q, mut f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q>,
    {
        let f = |value: &V| Compute::Put(f(value));
        self.__call_act("lend", Change { key, f }, Panic) == Computed::Updated
    }

    #[track_caller]
    fn compute_if_present<Q: Eq + Hash + ?Sized>(self, key: &Q, f: impl FnMut(&V) -> Compute<V>) -> Computed
    where
        K: Borrow<Q>,
    {
        self.__call_act("lend", Change { key, f }, Panic)
    }

    #[track_caller]
    fn compute(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed {
        write(self, |_, store| store.compute(key, f))
    }

    #[track_caller]
    fn set_or_full(self, key: K, value: V) -> Result<bool, Full<(K, V)>> {
        write(self, |guard, store| store.put_within(guard, key, value))
    }

    #[track_caller]
    fn compute_or_full(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Result<Computed, Full<()>> {
        write(self, |_, store| store.compute_within(key, f))
    }

    #[track_caller]
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, ResizeError> {
        let (co, new) = self.resized(size).ok_or(ResizeError::OneForAll(Handle::id(self)))?;
        Swap::new(co).run(new).map_err(ResizeError::Swap)
    }

    #[track_caller]
    fn swap_to(self, new: Replacement<dyn Map<K, V, S>>) -> Result<SwapReport, SwapError> {
        let mut co = self;
        while let Some(within) = co.within() {
            co = within;
        }
        Swap::new(co).run(new)
    }

    #[track_caller]
    fn for_each(self, mut f: impl FnMut(&K, &V)) {
        let mut from = Some(0);
        while let Some(at) = from {
            from = self.visit_from(at, &mut f);
        }
    }

    #[track_caller]
    fn retain(self, mut f: impl FnMut(&K, &V) -> bool) {
        let mut from = Some(0);
        while let Some(at) = from {
            from = write(self, |_, store| store.retain_from(at, &mut f));
        }
    }

    #[track_caller]
    fn len(self) -> usize {
        look(self, |_, store| store.len())
    }

    #[track_caller]
    fn capacity(self) -> usize {
        look(self, |_, store| store.capacity())
    }

    #[track_caller]
    fn try_reserve(self, more: usize) -> bool {
        write(self, |_, store| store.try_reserve(more))
    }

    #[track_caller]
    fn shrink_to_fit(self) {
        write(self, |_, store| store.shrink_to_fit());
    }

    #[inline]
    fn try_with<Q: Eq + Hash + ?Sized, R>(
        self,
        key: &Q,
        f: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>, CallError>
    where
        K: Borrow<Q>,
    {
        self.__call_act("look", TryRead(Read { key, f }), Checked)
    }

    fn try_set(self, key: K, value: V) -> Result<bool, CallError> {
        try_write(self, |guard, store| store.set(guard, key, value))
    }

    fn try_delete<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Result<bool, CallError>
    where
        K: Borrow<Q>,
    {
        try_write(self, |guard, store| store.discard(guard, key))
    }

    fn try_compute(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Result<Computed, CallError> {
        try_write(self, |_, store| store.compute(key, f))
    }

    fn try_for_each(self, mut f: impl FnMut(&K, &V)) -> Result<(), CallError> {
        let mut from = Some(0);
        while let Some(at) = from {
            from = try_look(self, |_, store| store.visit_from(at, &mut f))?;
        }
        Ok(())
    }

    #[track_caller]
    fn visit_from(self, from: u64, f: impl FnMut(&K, &V)) -> Option<u64> {
        look(self, |_, store| store.visit_from(from, f))
    }
}

/// Why the size of a map's clusters was not changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ResizeError {
    /// This map has one representative for all, or as many as its policy wants.
    OneForAll(Id),
    /// The swap failed.
    Swap(SwapError),
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResizeError::OneForAll(id) => {
                write!(f, "map {id} is not replicated or partitioned: its clusters have no size to be set")
            }
            ResizeError::Swap(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResizeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ResizeError::OneForAll(_) => None,
            ResizeError::Swap(error) => Some(error),
        }
    }
}

/// One key of a map, there or not: made by [`MapExt::entry`]. It holds nothing: each of its methods is one operation on the map,
/// and between two of them others may change the entry.
#[derive(Debug)]
pub struct Entry<M, K> {
    map: M,
    key: K,
}

impl<M, K> Entry<M, K> {
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }
}

impl<K, V, S> Entry<Handle<dyn Map<K, V, S>>, K>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Changes the value by what `f` makes of it, if the key is there. As [`MapExt::update`].
    #[track_caller]
    pub fn and_modify(self, f: impl FnMut(&V) -> V) -> Self {
        self.map.update(&self.key, f);
        self
    }

    /// The value; `value` if the key was not there.
    #[track_caller]
    pub fn or_insert(self, value: V) -> V
    where
        V: Clone,
    {
        self.or_insert_with(|| value)
    }

    /// The value; if the key is not there, what `value` makes. As [`MapExt::get_or_insert_with`].
    #[track_caller]
    pub fn or_insert_with(self, value: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        self.map.get_or_insert_with(self.key, value)
    }

    /// The value; if the key was not there, the type's default.
    #[track_caller]
    pub fn or_default(self) -> V
    where
        V: Clone + Default,
    {
        self.or_insert_with(V::default)
    }
}

/// What is made of each entry, a few at a time: see [`MapExt::iter`].
pub struct Iter<M, K, V, S, T = (K, V)> {
    map: M,
    make: fn(&K, &V) -> T,
    /// Where the next ones begin.
    from: Option<u64>,
    found: vec::IntoIter<T>,
    hasher: std::marker::PhantomData<fn(S)>,
}

impl<M, K, V, S, T> Iter<M, K, V, S, T> {
    fn new(map: M, make: fn(&K, &V) -> T) -> Self {
        Iter { map, make, from: Some(0), found: Vec::new().into_iter(), hasher: std::marker::PhantomData }
    }
}

impl<M, K, V, S, T> Iterator for Iter<M, K, V, S, T>
where
    M: MapExt<K, V, S>,
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = T;

    fn next(&mut self) -> Option<T> {
        loop {
            if let Some(next) = self.found.next() {
                return Some(next);
            }
            let (at, make) = (self.from?, self.make);
            let mut found = Vec::new();
            // Only what was made whole: a clone may panic.
            self.from = self.map.visit_from(at, |key, value| found.push(make(key, value)));
            self.found = found.into_iter();
        }
    }
}

impl<M, K, V, S, T> fmt::Debug for Iter<M, K, V, S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}
