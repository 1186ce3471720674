//! The cached map as an object: its interface, what people do with it, and its owner.

use squall_core::__macro::Panic;
use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{Handle, Root};
use squall_machine::ClusterSize;
use squall_macros::interface;
use squall_rcu::{Guard, pin};
use squall_parts::table::{Compute, Computed};
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;

use super::lines::{self, Cache, Changes, Lines};
use super::owner::OwnedCachedMap;
use super::distributed::{Body, Local, Distributed};
use super::{Form, Sensors, Walk};
use crate::sizes;

/// A cached map. [`MapExt`] has what people do with one; this is what an implementation has.
///
/// Progress: a lookup of what the cluster keeps is lock-free, and waits for no change; one whose copy a change has taken away tries a lock
/// once, to have it again. One that asked the one place keeps what it found: that takes a lock of the cluster's own table for a moment, as
/// a removal of what is kept there does; a thread that stalls in that holds up who keeps or removes a key of the same home there.
/// Changes of one key block each other for as long as a store to each copy takes; a thread that stalls in one holds up changes of that key, and
/// no lookup. A call that meets a swap waits for that, as every call does.
/// # Source
/// CO-43, TO-04, TO-05, HU-15, HU-16; X-23.
#[interface(crate = squall_core)]
pub trait CachedMap<
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
>: Send + Sync
{
    /// Lends what a lookup looks into, for one lookup in the rest of the operation.
    fn look<'o>(&self, guard: &'o Guard) -> MapView<'o, K, V, S>;

    /// Calls `act` once with the map, for what changes it: when this returns, nothing is done to it any more.
    fn write(&self, act: &mut dyn FnMut(MapWriter<'_, K, V, S>));

    /// What it keeps where.
    fn form(&self) -> Form;

    /// What its sensors read.
    fn sensors(&self) -> Sensors {
        Sensors::default()
    }
}

/// What a lookup in a cached map looks into.
pub struct MapView<'o, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    cache: Option<&'o Cache<K, V, S>>,
    lines: &'o Lines<K, V, S>,
}

impl<'o, K, V, S> MapView<'o, K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone,
{
    /// The key's value.
    #[inline(always)]
    pub fn find<Q: Eq + Hash + ?Sized>(&self, guard: &'o Guard, key: &Q) -> Option<&'o V>
    where
        K: Borrow<Q>,
    {
        lines::find(guard, self.cache, self.lines, key)
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> fmt::Debug for MapView<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapView").finish_non_exhaustive()
    }
}

/// A cached map within a call, for changes: what the methods of [`MapExt`] are made of.
pub struct MapWriter<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S>(Changes<'a, K, V, S>);

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> fmt::Debug for MapWriter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapWriter").finish_non_exhaustive()
    }
}

/// What people do with a cached map. Comes with the reference.
///
/// Closures run under no lock, in an operation, and may use the map; those that say what becomes of an entry are called again where
/// another change was faster, and have changed nothing if they panic. Such a change may be their own: one that changes its key each time that
/// it is called is called for ever. Each method panics as every call does if the object was destroyed.
pub trait CachedMapExt<K, V, S>: Copy
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// What `f` makes of the key's value.
    ///
    /// # Cost
    /// A lookup in the cluster's own table, which writes nothing; where the cluster does not have the key, one in the one place, too.
    fn with<Q: Eq + Hash + ?Sized, R>(self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>;

    /// A clone of the key's value.
    #[inline]
    #[track_caller]
    fn get<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.with(key, V::clone)
    }

    /// Whether the key is there.
    #[track_caller]
    fn contains_key<Q: Eq + Hash + ?Sized>(self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.with(key, |_| ()).is_some()
    }

    /// Sets the key's value; a clone of the old one is returned. A new key is kept by the caller's cluster from then on.
    fn insert(self, key: K, value: V) -> Option<V>;

    /// Sets the key's value, and says whether there was another.
    fn set(self, key: K, value: V) -> bool;

    /// Inserts the key unless it is there.
    ///
    /// # Errors
    /// It is there: key and value come back, the value perhaps as a clone.
    fn try_insert(self, key: K, value: V) -> Result<(), (K, V)>;

    /// The key's value; if it is not there, what `value` makes is inserted. Of several that come at once each may make a value; one
    /// is inserted, and all return that one.
    fn get_or_insert_with(self, key: K, value: impl FnOnce() -> V) -> V;

    /// Takes the key out; a clone of its value is returned. When it returns, no lookup finds the value anywhere.
    fn remove<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>;

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

    /// Does with the key what `f` says of its value, if it has one.
    fn compute(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed;

    /// Calls `f` for each entry. A key that is there all the time is seen once; one that comes or goes meanwhile, perhaps.
    ///
    /// It is one call of the object for a few entries at a time, so a swap may come between two of them. Nothing of it is kept.
    fn for_each(self, f: impl FnMut(&K, &V));

    /// Clones of the entries, as [`for_each`](MapExt::for_each) sees them.
    fn iter(self) -> Walk<(K, V)>;

    /// Clones of the keys.
    fn keys(self) -> Walk<K>;

    /// Clones of the values.
    fn values(self) -> Walk<V>;

    /// Keeps the entries of which `f` says so; others that come meanwhile, perhaps.
    fn retain(self, f: impl FnMut(&K, &V) -> bool);

    /// Takes out all that is there from the beginning to the end; others that come meanwhile, perhaps.
    fn clear(self) {
        self.retain(|_, _| false);
    }

    /// How many entries there are: exactly if nobody changes the map, else about.
    fn len(self) -> usize;

    /// Whether there is no entry, as [`len`](MapExt::len) has it.
    #[track_caller]
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Changes the size of the clusters that keep what they look up, while the map is used: by a swap.
    ///
    /// # Errors
    /// [`SwapError`]: everything is as it was.
    /// # Cost
    /// That of a [`Swap`]; each cluster keeps what it looks up from then on.
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, SwapError>;
}

/// Looks within a call.
#[inline(always)]
#[track_caller]
fn look<K, V, S, R>(
    handle: Handle<dyn CachedMap<K, V, S>>,
    f: impl for<'o> FnOnce(&'o Guard, MapView<'o, K, V, S>) -> R,
) -> R
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    handle.__call_in("look", |guard, map| f(guard, map.look(guard)), Panic)
}

/// Changes within a call.
#[inline(always)]
#[track_caller]
fn write<K, V, S, R>(handle: Handle<dyn CachedMap<K, V, S>>, f: impl FnOnce(&Changes<'_, K, V, S>) -> R) -> R
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    let (mut f, mut done) = (Some(f), None);
    handle.write(&mut |writer| done = f.take().map(|f| f(&writer.0)));
    done.expect("an implementation of a cached map calls what it is given")
}

/// Some entries from a position on.
#[track_caller]
fn visit_from<K, V, S>(handle: Handle<dyn CachedMap<K, V, S>>, from: u64, f: impl FnMut(&K, &V)) -> Option<u64>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    look(handle, |_, map| map.lines.visit_from(from, f))
}

fn walk<K, V, S, T: 'static>(handle: Handle<dyn CachedMap<K, V, S>>, make: fn(&K, &V) -> T) -> Walk<T>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    Walk::new(move |from, found| visit_from(handle, from, |key, value| found.push(make(key, value))))
}

impl<K, V, S> CachedMapExt<K, V, S> for Handle<dyn CachedMap<K, V, S>>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    #[inline]
    #[track_caller]
    fn with<Q: Eq + Hash + ?Sized, R>(self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        look(self, |guard, map| map.find(guard, key).map(f))
    }

    #[track_caller]
    fn insert(self, key: K, value: V) -> Option<V> {
        write(self, |changes| changes.put(key, value, V::clone))
    }

    #[track_caller]
    fn set(self, key: K, value: V) -> bool {
        write(self, |changes| changes.put(key, value, |_| ())).is_some()
    }

    #[track_caller]
    fn try_insert(self, key: K, value: V) -> Result<(), (K, V)> {
        write(self, |changes| changes.add(key, value))
    }

    #[track_caller]
    fn get_or_insert_with(self, key: K, value: impl FnOnce() -> V) -> V {
        write(self, |changes| changes.get_or_insert_with(key, value))
    }

    #[track_caller]
    fn remove<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let mut removed = None;
        let take = |value: &V| {
            removed = Some(value.clone());
            Compute::Remove
        };
        let computed = write(self, |changes| changes.change(key, take));
        removed.filter(|_| computed == Computed::Removed)
    }

    #[track_caller]
    fn delete<Q: Eq + Hash + ?Sized>(self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.remove_if(key, |_| true)
    }

    #[track_caller]
    fn remove_if<Q: Eq + Hash + ?Sized>(self, key: &Q, mut f: impl FnMut(&V) -> bool) -> bool
    where
        K: Borrow<Q>,
    {
        let decide = |value: &V| if f(value) { Compute::Remove } else { Compute::Keep };
        write(self, |changes| changes.change(key, decide)) == Computed::Removed
    }

    #[track_caller]
    fn update<Q: Eq + Hash + ?Sized>(self, key: &Q, mut f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q>,
    {
        let change = |value: &V| Compute::Put(f(value));
        write(self, |changes| changes.change(key, change)) == Computed::Updated
    }

    #[track_caller]
    fn compute(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed {
        write(self, |changes| changes.compute(key, f))
    }

    #[track_caller]
    fn for_each(self, mut f: impl FnMut(&K, &V)) {
        let mut from = Some(0);
        while let Some(at) = from {
            from = visit_from(self, at, &mut f);
        }
    }

    fn iter(self) -> Walk<(K, V)> {
        walk(self, |key, value| (key.clone(), value.clone()))
    }

    fn keys(self) -> Walk<K> {
        walk(self, |key, _| key.clone())
    }

    fn values(self) -> Walk<V> {
        walk(self, |_, value| value.clone())
    }

    #[track_caller]
    fn retain(self, mut f: impl FnMut(&K, &V) -> bool) {
        let mut from = Some(0);
        while let Some(at) = from {
            from = write(self, |changes| changes.retain_from(at, &mut f));
        }
    }

    #[track_caller]
    fn len(self) -> usize {
        look(self, |_, map| map.lines.len())
    }

    #[track_caller]
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, SwapError> {
        Swap::new(self).run(new_map(self.form().resized(size)))
    }
}

/// What is spread of a map.
struct Mapped<K, V, S>(PhantomData<fn(K, V, S)>);

impl<K, V, S> Body for Mapped<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    type Interface = dyn CachedMap<K, V, S>;
    type Store = Lines<K, V, S>;
    type Cache = Cache<K, V, S>;

    fn cache(store: &Lines<K, V, S>, place: usize, most: usize) -> Cache<K, V, S> {
        Cache::new(store, place, most)
    }

    fn refit(store: &Arc<Lines<K, V, S>>, form: &Form) -> Arc<Lines<K, V, S>> {
        Lines::refit(store, form.coherence())
    }

    fn read(store: &Lines<K, V, S>) -> Sensors {
        store.read_sensors()
    }

    fn add(cache: &Cache<K, V, S>, sensors: &mut Sensors) {
        cache.read_sensors(sensors);
    }

    fn hand_on(_: &Guard, from: &Cache<K, V, S>, to: &Cache<K, V, S>, most: usize) {
        to.take_over(from, most);
    }
}

impl<K, V, S> CachedMap<K, V, S> for Local<Mapped<K, V, S>>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    #[inline]
    fn look<'o>(&self, guard: &'o Guard) -> MapView<'o, K, V, S> {
        MapView { cache: self.lend_cache(guard), lines: self.lend_store(guard) }
    }

    fn write(&self, act: &mut dyn FnMut(MapWriter<'_, K, V, S>)) {
        pin(|guard| act(MapWriter(Changes { lines: self.store(), here: self.own_cache(guard), reach: self })));
    }

    fn form(&self) -> Form {
        Local::form(self).clone()
    }

    fn sensors(&self) -> Sensors {
        self.read_sensors()
    }
}

/// Makes a cached map. Its hasher is std's.
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
#[track_caller]
pub fn map<K, V>(form: Form) -> OwnedCachedMap<K, V>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    map_with(form, RandomState::new())
}

/// The same, with any hasher.
///
/// # Panics
/// As [`map`].
#[track_caller]
pub fn map_with<K, V, S>(form: Form, hasher: S) -> OwnedCachedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    have_sizes::<K, V, S>();
    let (size, lines) = (form.cluster_size(), Lines::new(hasher, form.coherence()));
    OwnedCachedMap(Distributed::<Mapped<K, V, S>>::new(form, Some(lines)).create(size))
}

/// Has maps of these types have the attribute of their clusters' size.
fn have_sizes<K, V, S>()
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    sizes::have::<dyn CachedMap<K, V, S>>(
        |handle| handle.try_form().ok()?.chosen_size(),
        |handle, size| Some((handle, new_map(handle.try_form().ok()?.resized(size)))),
    );
}

/// An implementation, to take the place of a cached map: as [`map`] makes it. It takes the entries over; swapped in without state it has
/// none, and every call errs. Where copies were taken away and are to be updated now, or the other way round, all callers wait for as
/// long as a line for each entry takes to be made.
pub fn new_map<K, V, S>(form: Form) -> Replacement<dyn CachedMap<K, V, S>>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    Distributed::<Mapped<K, V, S>>::to_come(form)
}
