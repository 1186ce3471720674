//! The cached map as an object: its interface, its methods, and its constructors.

use squall_core::__macro::Answer;
use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{Handle, Root};
use squall_machine::ClusterSize;
use squall_macros::interface;
use squall_parts::table::{Compute, Computed};
use squall_rcu::{__pin as pin, Guard};
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;

use super::distributed::{Body, Distributed, Local};
use super::lines::{self, Cache, Changes, Lines};
use super::owner::OwnedCachedMap;
use super::{Form, Sensors, Walk};
use crate::answers::panics_in;
use crate::sizes;

/// A cached map, as implementations provide it. [`CachedMapExt`] has the methods for users.
///
/// Progress:
///
/// - A lookup of a cached key is lock-free and never waits for a change. If a change has invalidated the
///   copy, the lookup tries a lock once to restore it.
/// - A lookup that searched the store fills its cache, which takes a lock of the cluster's table briefly. The
///   removal of a cached key takes the same lock. A thread that stalls there delays changes of keys of the
///   same home.
/// - Changes of one key block each other while a change stores to each copy. A thread that stalls in a change
///   delays other changes of that key, and no lookup.
/// - A call that meets a swap waits for it.
///
/// # Source
/// Appavoo 2005 (CO-43); Gamsa et al. 1999, Tornado (TO-04, TO-05); Unrau et al. 1995, Hurricane (HU-15,
/// HU-16).
#[interface(crate = squall_core)]
pub trait CachedMap<
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
>: Send + Sync
{
    /// Returns a view for one lookup in the rest of the operation.
    fn look<'o>(&self, guard: &'o Guard) -> MapView<'o, K, V, S>;

    /// Calls `act` once with the map, for changes. All changes are complete when this returns.
    fn write(&self, act: &mut dyn FnMut(MapWriter<'_, K, V, S>));

    /// Returns the form.
    fn form(&self) -> Form;

    /// Reads the sensors.
    fn sensors(&self) -> Sensors {
        Sensors::default()
    }
}

/// View of a cached map for a lookup.
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
    /// Returns the key's value.
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

/// A cached map within a call, for the changes of [`CachedMapExt`].
pub struct MapWriter<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S>(Changes<'a, K, V, S>);

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> fmt::Debug for MapWriter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapWriter").finish_non_exhaustive()
    }
}

/// Methods of a cached map, on a handle or an owner.
///
/// Closures run under no lock, in an operation, and may use the map. A closure that decides about an entry is
/// called again if another change was faster, and leaves the map unchanged if it panics. Such a
/// closure must not change its own key on each call, or it is called forever. Each method panics if the
/// object was destroyed.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::cached::{self, CachedMapExt, Form};
///
/// let users = cached::map::<u32, String>(Form::distributed(ClusterSize::Core));
/// users.set(1, "ann".into());
/// assert_eq!(users.with(&1, |name| name.len()), Some(3));
/// assert!(users.delete(&1) && users.is_empty());
/// ```
pub trait CachedMapExt<K, V, S>: Copy
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Calls `f` with the key's value and returns the result, or `None` if the key is absent.
    ///
    /// # Cost
    /// A lookup in the cluster's cache, which writes no memory. On a miss, a lookup in the store too.
    fn with<Q: Eq + Hash + ?Sized, R>(self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>;

    /// Returns a copy of the key's value. For types that are not `Copy`, see
    /// [`get_cloned`](CachedMapExt::get_cloned) and [`with`](CachedMapExt::with).
    #[inline]
    #[track_caller]
    fn get<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Copy,
    {
        self.with(key, |value| *value)
    }

    /// Returns a clone of the key's value. A change of the clone does not change the map.
    #[inline]
    #[track_caller]
    fn get_cloned<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.with(key, V::clone)
    }

    /// Returns whether the map contains the key.
    #[track_caller]
    fn contains_key<Q: Eq + Hash + ?Sized>(self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.with(key, |_| ()).is_some()
    }

    /// Sets the key's value and returns a clone of the old one. A new key enters the cache of the caller's
    /// cluster.
    ///
    /// ```
    /// use squall::objects::cached::{self, CachedMapExt, Form};
    ///
    /// let map = cached::map(Form::shared());
    /// assert_eq!((map.insert(1, 'a'), map.insert(1, 'b')), (None, Some('a')));
    /// ```
    fn insert(self, key: K, value: V) -> Option<V>;

    /// Sets the key's value and returns whether there was an old one.
    fn set(self, key: K, value: V) -> bool;

    /// Inserts the key unless it is present.
    ///
    /// ```
    /// use squall::objects::cached::{self, CachedMapExt, Form};
    ///
    /// let map = cached::map(Form::shared());
    /// assert_eq!(map.try_insert(1, 'a'), Ok(()));
    /// assert_eq!(map.try_insert(1, 'b'), Err((1, 'b')));
    /// ```
    ///
    /// # Errors
    /// Key and value, if the key is present. The value may be a clone.
    fn try_insert(self, key: K, value: V) -> Result<(), (K, V)>;

    /// Returns the key's value, after inserting the result of `value` if the key is absent.
    ///
    /// Concurrent callers may each compute a value. One is inserted, and all callers return that one.
    ///
    /// ```
    /// use squall::objects::cached::{self, CachedMapExt, Form};
    ///
    /// let map = cached::map(Form::shared());
    /// assert_eq!(map.get_or_insert_with(1, || 'a'), 'a');
    /// assert_eq!(map.get_or_insert_with(1, || 'b'), 'a');
    /// ```
    fn get_or_insert_with(self, key: K, value: impl FnOnce() -> V) -> V;

    /// Removes the key and returns a clone of its value. After the return no lookup finds it in any cluster.
    fn remove<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>;

    /// Removes the key and returns whether it was present.
    fn delete<Q: Eq + Hash + ?Sized>(self, key: &Q) -> bool
    where
        K: Borrow<Q>;

    /// Removes the key if `f` returns true for its value. Returns whether it did.
    ///
    /// ```
    /// use squall::objects::cached::{self, CachedMapExt, Form};
    ///
    /// let map = cached::map(Form::shared());
    /// map.set(1, 10);
    /// assert!(!map.remove_if(&1, |value| *value > 10));
    /// assert!(map.remove_if(&1, |value| *value == 10));
    /// ```
    fn remove_if<Q: Eq + Hash + ?Sized>(self, key: &Q, f: impl FnMut(&V) -> bool) -> bool
    where
        K: Borrow<Q>;

    /// Replaces the key's value by the result of `f`. Returns whether the key is present.
    ///
    /// ```
    /// use squall::objects::cached::{self, CachedMapExt, Form};
    ///
    /// let map = cached::map(Form::shared());
    /// map.set(1, 10);
    /// assert!(map.update(&1, |value| value + 1) && !map.update(&2, |value| value + 1));
    /// assert_eq!(map.get(&1), Some(11));
    /// ```
    fn update<Q: Eq + Hash + ?Sized>(self, key: &Q, f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q>;

    /// Inserts, replaces, removes or keeps the entry atomically, as `f` decides from its current value.
    ///
    /// ```
    /// use squall::objects::cached::{self, CachedMapExt, Compute, Computed, Form};
    ///
    /// let map = cached::map(Form::shared());
    /// let count = |value: Option<&u32>| Compute::Put(value.map_or(1, |value| value + 1));
    /// assert_eq!(map.compute("a", count), Computed::Inserted);
    /// assert_eq!(map.compute("a", count), Computed::Updated);
    /// assert_eq!(map.get("a"), Some(2));
    /// ```
    fn compute(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed;

    /// Calls `f` for each entry. A key that is present throughout is visited once. A key that comes or goes
    /// during the walk may be skipped.
    ///
    /// Each call of the object visits a few entries, so a swap may happen in between.
    fn for_each(self, f: impl FnMut(&K, &V));

    /// Returns an iterator over clones of the entries that [`for_each`](CachedMapExt::for_each) visits.
    fn iter(self) -> Walk<(K, V)>;

    /// Returns an iterator over clones of the keys.
    fn keys(self) -> Walk<K>;

    /// Returns an iterator over clones of the values.
    fn values(self) -> Walk<V>;

    /// Removes the entries for which `f` returns false. An entry that is inserted meanwhile may be skipped.
    ///
    /// ```
    /// use squall::objects::cached::{self, CachedMapExt, Form};
    ///
    /// let map = cached::map(Form::shared());
    /// (0..10).for_each(|key| _ = map.set(key, key));
    /// map.retain(|key, _| key % 2 == 0);
    /// assert_eq!(map.len(), 5);
    /// ```
    fn retain(self, f: impl FnMut(&K, &V) -> bool);

    /// Removes all entries that are present throughout. An entry that is inserted meanwhile may stay.
    fn clear(self) {
        self.retain(|_, _| false);
    }

    /// Returns the number of entries: exact without concurrent changes, else approximate.
    fn len(self) -> usize;

    /// Returns whether the map is empty, as exactly as [`len`](CachedMapExt::len).
    #[track_caller]
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Changes the size of the clusters that have a cache, by a hot-swap.
    ///
    /// # Errors
    /// [`SwapError`]: the object is unchanged.
    /// # Cost
    /// The cost of a [`Swap`]. The new caches are empty.
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, SwapError>;
}

/// Runs a lookup within a call.
#[inline(always)]
#[track_caller]
fn look<K, V, S, R>(
    handle: Handle<dyn CachedMap<K, V, S>>,
    gone: impl Answer<R>,
    f: impl for<'o> FnOnce(&'o Guard, MapView<'o, K, V, S>) -> R,
) -> R
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    handle.__call_in("look", |guard, map| f(guard, map.look(guard)), gone)
}

/// Runs a change within a call.
#[inline(always)]
#[track_caller]
fn write<K, V, S, R>(
    handle: Handle<dyn CachedMap<K, V, S>>,
    gone: impl Answer<R>,
    f: impl FnOnce(&Changes<'_, K, V, S>) -> R,
) -> R
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    let (mut f, mut done) = (Some(f), None);
    if let Err(error) = handle.try_write(&mut |writer| done = f.take().map(|f| f(&writer.0))) {
        return gone.answer(error);
    }
    done.expect("this implementation of `CachedMap` did not call the closure of `write`")
}

/// Visits some entries from a position on.
#[track_caller]
fn visit_from<K, V, S>(
    handle: Handle<dyn CachedMap<K, V, S>>,
    gone: impl Answer<Option<u64>>,
    from: u64,
    f: impl FnMut(&K, &V),
) -> Option<u64>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    look(handle, gone, |_, map| map.lines.visit_from(from, f))
}

fn walk<K, V, S, T: 'static>(handle: Handle<dyn CachedMap<K, V, S>>, make: fn(&K, &V) -> T) -> Walk<T>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    Walk::new(move |from, found| {
        visit_from(handle, panics_in!("iter"), from, |key, value| found.push(make(key, value)))
    })
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
        look(self, panics_in!("with"), |guard, map| map.find(guard, key).map(f))
    }

    #[track_caller]
    fn insert(self, key: K, value: V) -> Option<V> {
        write(self, panics_in!("insert"), |changes| changes.put(key, value, V::clone))
    }

    #[track_caller]
    fn set(self, key: K, value: V) -> bool {
        write(self, panics_in!("set"), |changes| changes.put(key, value, |_| ())).is_some()
    }

    #[track_caller]
    fn try_insert(self, key: K, value: V) -> Result<(), (K, V)> {
        write(self, panics_in!("try_insert"), |changes| changes.add(key, value))
    }

    #[track_caller]
    fn get_or_insert_with(self, key: K, value: impl FnOnce() -> V) -> V {
        write(self, panics_in!("get_or_insert_with"), |changes| changes.get_or_insert_with(key, value))
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
        let computed = write(self, panics_in!("remove"), |changes| changes.change(key, take));
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
        write(self, panics_in!("remove_if"), |changes| changes.change(key, decide)) == Computed::Removed
    }

    #[track_caller]
    fn update<Q: Eq + Hash + ?Sized>(self, key: &Q, mut f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q>,
    {
        let change = |value: &V| Compute::Put(f(value));
        write(self, panics_in!("update"), |changes| changes.change(key, change)) == Computed::Updated
    }

    #[track_caller]
    fn compute(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed {
        write(self, panics_in!("compute"), |changes| changes.compute(key, f))
    }

    #[track_caller]
    fn for_each(self, mut f: impl FnMut(&K, &V)) {
        let mut from = Some(0);
        while let Some(at) = from {
            from = visit_from(self, panics_in!("for_each"), at, &mut f);
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
            from = write(self, panics_in!("retain"), |changes| changes.retain_from(at, &mut f));
        }
    }

    #[track_caller]
    fn len(self) -> usize {
        look(self, panics_in!("len"), |_, map| map.lines.len())
    }

    #[track_caller]
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, SwapError> {
        Swap::new(self).run(new_map(
            self.try_form()
                .unwrap_or_else(|error| panics_in!("set_cluster_size").answer(error))
                .resized(size),
        ))
    }
}

/// Contents of a map.
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
        pin(|guard| {
            act(MapWriter(Changes { lines: self.store(), here: self.own_cache(guard), reach: self }))
        });
    }

    fn form(&self) -> Form {
        Local::form(self).clone()
    }

    fn sensors(&self) -> Sensors {
        self.read_sensors()
    }
}

/// Creates a cached map with std's hasher.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::cached::{self, CachedMapExt, Form};
///
/// let map = cached::map::<u32, u32>(Form::distributed(ClusterSize::Cache).updated());
/// map.set(1, 10);
/// assert_eq!(map.get(&1), Some(10));
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn map<K, V>(form: Form) -> OwnedCachedMap<K, V>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    map_with(form, RandomState::new())
}

/// Creates a cached map with this hasher.
///
/// ```
/// use squall::objects::cached::{self, CachedMapExt, Form};
/// use std::hash::RandomState;
///
/// let map = cached::map_with(Form::shared(), RandomState::new());
/// map.set(1, 10);
/// assert_eq!(map.get(&1), Some(10));
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
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

/// Registers the attribute [`CLUSTER_SIZE`](crate::CLUSTER_SIZE) for maps of these types.
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

/// Returns a replacement for a hot-swap of a cached map. It takes over the entries.
///
/// If a swap moves no state into it, every call of the map fails. If the [`Coherence`](super::Coherence)
/// changes, all callers wait until a new line for each entry is made.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::cached::{self, CachedMapExt, Form};
/// use squall::swap::swap;
///
/// let map = cached::map(Form::shared());
/// map.set(1, 10);
/// swap(map.handle(), cached::new_map(Form::distributed(ClusterSize::Core))).unwrap();
/// assert_eq!(map.get(&1), Some(10));
/// ```
pub fn new_map<K, V, S>(form: Form) -> Replacement<dyn CachedMap<K, V, S>>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    Distributed::<Mapped<K, V, S>>::to_come(form)
}
