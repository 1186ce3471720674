//! `MapExt`: the methods of a map, on its handle and with the caller's types.
use squall_core::CallError;
use squall_core::swap::{Replacement, SwapError, SwapReport};
use squall_machine::ClusterSize;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, RandomState};

use super::drain::Drain;
use super::entry::{Entry, Snapshot};
use super::full::Full;
use super::in_place::InPlace;
use super::iter::Iter;
use super::resize_error::ResizeError;
use super::{Compute, Computed, Map};

/// The methods of a map. Import it to call them on a handle or an owner.
///
/// Closures run under no lock, in an operation, and may use the map. Keep them short: memory that is
/// retired meanwhile is freed after them. Constructors of [`Entry`] and
/// [`try_get_or_insert_with`](MapExt::try_get_or_insert_with) run outside of an operation.
///
/// A closure that decides about an entry runs again if another writer was faster. If it panics, the entry is
/// unchanged.
///
/// Keys are passed in any borrowed form: `&str` for a map with `String` keys.
///
/// # Panics
/// If the map was destroyed: each method with a result that holds no [`CallError`]. `try_insert`,
/// `try_reserve` and `try_get_or_insert_with` are such methods.
/// # Cost
/// An operation, the search for the representative, and the cost of the form: see the [module](super). No
/// method waits for readers.
///
/// ```
/// use squall::objects::map::{self, MapExt};
///
/// let stock = map::shared::<String, u64>();
/// stock.set("apple".into(), 3);
/// assert_eq!(stock.remove("apple"), Some(3));
/// ```
pub trait MapExt<K, V, S = RandomState>: Copy
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Calls `f` with the key's value and returns its result, or `None` if the key is absent.
    ///
    /// The value may be a copy that the form has or makes. So other threads see a change in place only if
    /// it is behind an `Arc`.
    ///
    /// # Cost
    /// Takes no lock, except in a locked map, and clones no value in a shared one.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let names = map::shared::<u64, String>();
    /// names.set(1, "ada".into());
    /// assert_eq!(names.with(&1, |name| name.len()), Some(3));
    /// ```
    fn with<Q: Eq + Hash + ?Sized, R>(self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>;

    /// Returns a copy of the key's value, or `None` if the key is absent. A change of the copy does not
    /// change the map. For types that are not `Copy`, see [`get_cloned`](MapExt::get_cloned) and
    /// [`with`](MapExt::with).
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<String, u64>();
    /// map.set("a".into(), 1);
    /// assert_eq!((map.get("a"), map.get("b")), (Some(1), None));
    /// ```
    fn get<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Copy;

    /// Returns a clone of the key's value, or `None` if the key is absent.
    ///
    /// A change of the clone does not change the map: see [`update_in_place`](MapExt::update_in_place).
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let names = map::shared::<u64, String>();
    /// names.set(1, "ada".into());
    /// assert_eq!(names.get_cloned(&1).as_deref(), Some("ada"));
    /// ```
    fn get_cloned<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone;

    /// Returns `true` if the key is present.
    ///
    /// # Cost
    /// Clones no value.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, u64>();
    /// map.set(1, 1);
    /// assert!(map.contains_key(&1) && !map.contains_key(&2));
    /// ```
    fn contains_key<Q: Eq + Hash + ?Sized>(self, key: &Q) -> bool
    where
        K: Borrow<Q>;

    /// Sets the key's value, and returns a clone of the old value if there was one. [`set`](MapExt::set)
    /// makes no clone.
    ///
    /// # Panics
    /// If a [`limited`](super::limited) map is full.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, &str>();
    /// assert_eq!(map.insert(1, "one"), None);
    /// assert_eq!(map.insert(1, "uno"), Some("one"));
    /// ```
    fn insert(self, key: K, value: V) -> Option<V>
    where
        V: Clone;

    /// Sets the key's value. Returns whether the key was present.
    ///
    /// # Panics
    /// If a [`limited`](super::limited) map is full; [`set_or_full`](MapExt::set_or_full) returns an error
    /// instead.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, &str>();
    /// assert!(!map.set(1, "one"));
    /// assert!(map.set(1, "uno"));
    /// ```
    fn set(self, key: K, value: V) -> bool;

    /// Inserts the key if it is absent.
    ///
    /// # Errors
    /// The key is present: the map is unchanged, and key and value come back.
    /// # Panics
    /// If a [`limited`](super::limited) map is full.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, &str>();
    /// assert_eq!(map.try_insert(1, "one"), Ok(()));
    /// assert_eq!(map.try_insert(1, "uno"), Err((1, "uno")));
    /// ```
    fn try_insert(self, key: K, value: V) -> Result<(), (K, V)>;

    /// Returns a clone of the key's value. If the key is absent, inserts the result of `value` first.
    ///
    /// Several threads may each call their `value` at the same time. One result is inserted, and all of
    /// them return that one. [`entry`](MapExt::entry) with [`Entry::or_insert_with`] calls one at a time.
    ///
    /// # Panics
    /// If a [`limited`](super::limited) map is full.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, String>();
    /// assert_eq!(map.get_or_insert_with(1, || "one".into()), "one");
    /// assert_eq!(map.get_or_insert_with(1, || unreachable!()), "one");
    /// ```
    fn get_or_insert_with(self, key: K, value: impl FnOnce() -> V) -> V
    where
        V: Clone;

    /// Returns a clone of the key's value. If the key is absent, inserts the value that `value` returns, or
    /// returns its error.
    ///
    /// One thread at a time constructs a value for the key. The other threads wait. They return its value, or
    /// call their own `value` if it failed. `value` runs outside of an operation, so it may take long and may
    /// sleep. Inside a closure of a map, or in [`squall::rcu::pin`](squall_rcu::pin), a caller does not wait:
    /// several may construct at once there.
    ///
    /// Two threads wait for each other for ever if the `value` of each asks for the key that the other
    /// constructs.
    ///
    /// # Errors
    /// The error of `value`: the map is unchanged.
    /// # Panics
    /// If the map was destroyed, or a [`limited`](super::limited) map is full.
    /// # Cost
    /// Takes one lock more than [`get_or_insert_with`](MapExt::get_or_insert_with) if the key is absent.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let numbers = map::shared::<&str, u64>();
    /// assert!(numbers.try_get_or_insert_with("one", || "one".parse()).is_err());
    /// assert_eq!(numbers.try_get_or_insert_with("one", || "1".parse()), Ok(1));
    /// ```
    #[track_caller]
    fn try_get_or_insert_with<E>(self, key: K, value: impl FnOnce() -> Result<V, E>) -> Result<V, E>
    where
        V: Clone,
    {
        self.entry(key).or_try_insert_with(value).map(Snapshot::into_inner)
    }

    /// Removes the key. Returns a clone of its value, or `None` if the key was absent.
    /// [`delete`](MapExt::delete) makes no clone.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, u64>();
    /// map.set(1, 10);
    /// assert_eq!((map.remove(&1), map.remove(&1)), (Some(10), None));
    /// ```
    fn remove<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone;

    /// Removes the key. Returns clones of the stored key and of its value, or `None` if the key was absent.
    ///
    /// If another thread removes the key and inserts an equal one meanwhile, the result may have the earlier
    /// key.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<String, u64>();
    /// map.set("a".into(), 1);
    /// assert_eq!(map.remove_entry("a"), Some(("a".to_owned(), 1)));
    /// ```
    fn remove_entry<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q> + Clone,
        V: Clone;

    /// Removes the key. Returns whether it was present.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, u64>();
    /// map.set(1, 10);
    /// assert!(map.delete(&1) && !map.delete(&1));
    /// ```
    fn delete<Q: Eq + Hash + ?Sized>(self, key: &Q) -> bool
    where
        K: Borrow<Q>;

    /// Removes the key if `f` returns true for its value. The removed value is the one that `f` saw.
    /// Returns whether the key was removed.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, u64>();
    /// map.set(1, 10);
    /// assert!(!map.remove_if(&1, |value| *value > 10));
    /// assert!(map.remove_if(&1, |value| *value == 10));
    /// ```
    fn remove_if<Q: Eq + Hash + ?Sized>(self, key: &Q, f: impl FnMut(&V) -> bool) -> bool
    where
        K: Borrow<Q>;

    /// Replaces the key's value by the result of `f`. Returns whether the key is present. `f` runs again if
    /// another writer was faster. To change a clone in place, see
    /// [`update_in_place`](MapExt::update_in_place).
    ///
    /// # Panics
    /// If a [`limited`](super::limited) map has no room for a heavier value.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let hits = map::shared::<String, u64>();
    /// hits.set("home".into(), 1);
    /// assert!(hits.update("home", |n| n + 1) && !hits.update("about", |n| n + 1));
    /// assert_eq!(hits.get("home"), Some(2));
    /// ```
    fn update<Q: Eq + Hash + ?Sized>(self, key: &Q, f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q>;

    /// Changes the key's value by `f`, and returns the result of `f`, or `None` if the key is absent.
    ///
    /// `f` changes a clone, which then replaces the value. `f` runs again if another writer was faster.
    ///
    /// # Panics
    /// If a [`limited`](super::limited) map has no room for a heavier value.
    /// # Cost
    /// Clones the value.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let visits = map::shared::<&str, Vec<u64>>();
    /// visits.set("home", vec![]);
    /// let visit = |pages: &mut Vec<u64>| {
    ///     pages.push(3);
    ///     pages.len()
    /// };
    /// assert_eq!(visits.update_in_place("home", visit), Some(1));
    /// assert_eq!(visits.get_cloned("home"), Some(vec![3]));
    /// ```
    fn update_in_place<Q: Eq + Hash + ?Sized, R>(self, key: &Q, f: impl FnMut(&mut V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        V: Clone;

    /// Replaces, removes or keeps the entry, as `f` decides from its value. An absent key stays absent, and
    /// `f` is not called. Unlike [`compute`](MapExt::compute), it takes a borrowed key.
    ///
    /// # Panics
    /// If a [`limited`](super::limited) map has no room for a heavier value.
    ///
    /// ```
    /// use squall::objects::map::{self, Compute, Computed, MapExt};
    ///
    /// let leases = map::shared::<String, u64>();
    /// leases.set("disk".into(), 1);
    /// let count_down = |n: &u64| if *n == 0 { Compute::Remove } else { Compute::Put(n - 1) };
    /// assert_eq!(leases.compute_if_present("disk", count_down), Computed::Updated);
    /// assert_eq!(leases.compute_if_present("disk", count_down), Computed::Removed);
    /// ```
    fn compute_if_present<Q: Eq + Hash + ?Sized>(self, key: &Q, f: impl FnMut(&V) -> Compute<V>) -> Computed
    where
        K: Borrow<Q>;

    /// Atomically inserts, replaces, removes or keeps the entry, as `f` decides from its current value. `f`
    /// runs again if another writer was faster.
    ///
    /// # Panics
    /// If a [`limited`](super::limited) map is full; [`compute_or_full`](MapExt::compute_or_full) returns
    /// an error instead.
    ///
    /// ```
    /// use squall::objects::map::{self, Compute, Computed, MapExt};
    ///
    /// let hits = map::shared::<&str, u64>();
    /// let count = |n: Option<&u64>| Compute::Put(n.map_or(1, |n| n + 1));
    /// assert_eq!(hits.compute("home", count), Computed::Inserted);
    /// assert_eq!(hits.compute("home", count), Computed::Updated);
    /// ```
    fn compute(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed;

    /// Decides about one entry, like [`compute`](MapExt::compute), but returns the second part of the result
    /// of `f`, from the run that took effect.
    ///
    /// # Panics
    /// If a [`limited`](super::limited) map is full.
    ///
    /// ```
    /// use squall::objects::map::{self, Compute, MapExt};
    ///
    /// let tickets = map::shared::<&str, u64>();
    /// let next = |last: Option<&u64>| {
    ///     let next = last.map_or(1, |last| last + 1);
    ///     (Compute::Put(next), next)
    /// };
    /// assert_eq!(tickets.compute_with("desk", next), 1);
    /// assert_eq!(tickets.compute_with("desk", next), 2);
    /// ```
    fn compute_with<R>(self, key: K, f: impl FnMut(Option<&V>) -> (Compute<V>, R)) -> R;

    /// Sets the key's value, like [`set`](MapExt::set), but returns an error if a
    /// [`limited`](super::limited) map is full.
    ///
    /// # Errors
    /// [`Full`]: the map is unchanged, and key and value come back. A map without a limit never returns it.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt, MapLimit};
    ///
    /// let map = map::limited(map::shared::<u64, &str>(), MapLimit::entries(1));
    /// assert_eq!(map.set_or_full(1, "one"), Ok(false));
    /// assert_eq!(map.set_or_full(2, "two").unwrap_err().back, (2, "two"));
    /// ```
    fn set_or_full(self, key: K, value: V) -> Result<bool, Full<(K, V)>>;

    /// Decides about one entry, like [`compute`](MapExt::compute), but returns an error if a
    /// [`limited`](super::limited) map is full.
    ///
    /// # Errors
    /// [`Full`]: the map is unchanged, and the key is dropped. A map without a limit never returns it.
    ///
    /// ```
    /// use squall::objects::map::{self, Compute, MapExt, MapLimit};
    ///
    /// let map = map::limited(map::shared::<u64, u64>(), MapLimit::entries(1));
    /// map.set(1, 1);
    /// assert!(map.compute_or_full(2, |_| Compute::Put(1)).is_err());
    /// ```
    fn compute_or_full(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Result<Computed, Full<()>>;

    /// Changes the size of the clusters that have a representative each, by a
    /// [`Swap`](squall_core::swap::Swap) while the map is used. A [`limited`](super::limited) map swaps the
    /// map inside.
    ///
    /// # Errors
    /// [`ResizeError`]: the form has no choice of cluster size, or the swap failed. The map is unchanged.
    /// # Cost
    /// A [`Swap`](squall_core::swap::Swap), during which callers wait. A replicated map keeps its entries,
    /// and readers make its copies again. A partitioned map clones its entries twice.
    ///
    /// ```
    /// use squall::ClusterSize;
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::replicated::<u64, u64>(ClusterSize::Node);
    /// map.set_cluster_size(ClusterSize::Core).unwrap();
    /// assert!(map::shared::<u64, u64>().set_cluster_size(ClusterSize::Core).is_err());
    /// ```
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, ResizeError>;

    /// Replaces the map's implementation by `new` while the map is used. A [`limited`](super::limited) map
    /// keeps its limit. [`Swap`](squall_core::swap::Swap) has more options.
    ///
    /// # Errors
    /// [`SwapError`]: the map is unchanged.
    /// # Cost
    /// A [`Swap`](squall_core::swap::Swap), during which callers wait. Some forms clone the entries.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::locked::<u64, u64>();
    /// map.set(1, 1);
    /// map.swap_to(map::new_shared()).unwrap();
    /// assert_eq!(map.get(&1), Some(1));
    /// ```
    fn swap_to(self, new: Replacement<dyn Map<K, V, S>>) -> Result<SwapReport, SwapError>;

    /// Returns one key, present or absent, to change its value or to insert one: see [`Entry`].
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let hits = map::shared::<&str, u64>();
    /// let count = |page| *hits.entry(page).and_modify(|n| *n += 1).or_insert(1);
    /// assert_eq!((count("home"), count("home")), (1, 2));
    /// ```
    fn entry(self, key: K) -> Entry<K, V, S>
    where
        V: Clone;

    /// Calls `f` for each entry. Visits a key that is present from begin to end exactly once. May or may
    /// not visit keys that come or go meanwhile.
    ///
    /// # Cost
    /// One call of the object for a few entries at a time. So a swap may complete between two entries. A
    /// locked map clones all entries in one step.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, u64>();
    /// (0..10).for_each(|n| _ = map.set(n, n * n));
    /// let mut sum = 0;
    /// map.for_each(|_, square| sum += square);
    /// assert_eq!(sum, 285);
    /// ```
    fn for_each(self, f: impl FnMut(&K, &V));

    /// Removes the entries for which `f` returns false. May or may not visit keys that come meanwhile.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, u64>();
    /// (0..10).for_each(|n| _ = map.set(n, n));
    /// map.retain(|_, n| n % 2 == 0);
    /// assert_eq!(map.len(), 5);
    /// ```
    fn retain(self, f: impl FnMut(&K, &V) -> bool);

    /// Removes all entries that are present from begin to end. May or may not remove entries that come
    /// meanwhile.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, u64>();
    /// map.set(1, 1);
    /// map.clear();
    /// assert!(map.is_empty());
    /// ```
    #[track_caller]
    fn clear(self) {
        self.retain(|_, _| false);
    }

    /// Replaces the value of each entry by the result of `f`. Visits the same entries as
    /// [`for_each`](MapExt::for_each). `f` runs again for an entry if another writer was faster.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, u64>();
    /// (0..10).for_each(|n| _ = map.set(n, n));
    /// map.alter_all(|key, n| key + n);
    /// assert_eq!(map.get(&4), Some(8));
    /// ```
    #[track_caller]
    fn alter_all(self, mut f: impl FnMut(&K, V) -> V)
    where
        V: Clone,
    {
        self.for_each(|key, _| _ = self.update(key, |value| f(key, value.clone())));
    }

    /// Returns an iterator that removes each entry and returns clones of key and value. The drop of the
    /// iterator removes the entries that are left. It visits the same entries as
    /// [`for_each`](MapExt::for_each).
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, u64>();
    /// map.set(1, 10);
    /// assert_eq!(map.drain().collect::<Vec<_>>(), [(1, 10)]);
    /// assert!(map.is_empty());
    /// ```
    fn drain(self) -> Drain<K, V, S>
    where
        K: Clone,
        V: Clone;

    /// Returns an iterator over clones of the entries. It visits the same entries as
    /// [`for_each`](MapExt::for_each).
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, u64>();
    /// map.set(1, 10);
    /// assert_eq!(map.iter().collect::<Vec<_>>(), [(1, 10)]);
    /// ```
    fn iter(self) -> Iter<Self, K, V, S>
    where
        K: Clone,
        V: Clone,
    {
        Iter::new(self, |map, at, f| map.visit_from(at, f), |key, value| (key.clone(), value.clone()))
    }

    /// Returns an iterator over clones of the keys. It visits the same entries as
    /// [`for_each`](MapExt::for_each).
    fn keys(self) -> Iter<Self, K, V, S, K>
    where
        K: Clone,
    {
        Iter::new(self, |map, at, f| map.visit_from(at, f), |key, _| key.clone())
    }

    /// Returns an iterator over clones of the values. It visits the same entries as
    /// [`for_each`](MapExt::for_each).
    fn values(self) -> Iter<Self, K, V, S, V>
    where
        V: Clone,
    {
        Iter::new(self, |map, at, f| map.visit_from(at, f), |_, value| value.clone())
    }

    /// Folds all entries into one result, which begins as `from`. Visits the same entries as
    /// [`for_each`](MapExt::for_each).
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, u64>();
    /// (1..5).for_each(|n| _ = map.set(n, n));
    /// assert_eq!(map.fold(1, |product, _, n| product * n), 24);
    /// ```
    #[track_caller]
    fn fold<T>(self, from: T, mut f: impl FnMut(T, &K, &V) -> T) -> T {
        let mut folded = Some(from);
        self.for_each(|key, value| folded = folded.take().map(|folded| f(folded, key, value)));
        folded.expect("the folded value is missing after the last entry")
    }

    /// Returns the number of entries: exact while no thread writes, approximate otherwise.
    ///
    /// # Cost
    /// Reads one word per VP in a shared map, or one word in a locked one. Takes no lock.
    fn len(self) -> usize;

    /// Whether the map is empty, as accurate as [`len`](MapExt::len).
    #[track_caller]
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Counts the entries in one iteration. It counts each key that is present from begin to end, and some
    /// of those that come or go meanwhile.
    #[track_caller]
    fn count(self) -> usize {
        self.fold(0, |count, _, _| count + 1)
    }

    /// Returns the number of entries for which there is room before the map grows. A partitioned map
    /// returns the sum over its parts, and one part may grow before.
    fn capacity(self) -> usize;

    /// Makes room for `more` further entries. Returns `false`, with the entries unchanged, if memory is
    /// exhausted. Each part of a partitioned map gets an equal share of the room.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, u64>();
    /// assert!(map.try_reserve(1000) && map.capacity() >= 1000);
    /// ```
    #[must_use = "the reservation may have failed"]
    fn try_reserve(self, more: usize) -> bool;

    /// Makes room for `more` further entries, like [`try_reserve`](MapExt::try_reserve).
    ///
    /// # Panics
    /// If memory is exhausted.
    #[track_caller]
    fn reserve(self, more: usize) {
        assert!(
            self.try_reserve(more),
            "a map cannot reserve room for {more} further entries: memory is exhausted"
        );
    }

    /// Frees the room that the entries do not need. A replicated map also removes all copies.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, u64>();
    /// map.reserve(1000);
    /// map.shrink_to_fit();
    /// assert!(map.capacity() < 1000);
    /// ```
    fn shrink_to_fit(self);

    // --- for a map that may have been destroyed ---

    /// Calls `f` with the key's value, like [`with`](MapExt::with), but returns an error if the map was
    /// destroyed.
    ///
    /// # Errors
    /// [`CallError`]: the map was destroyed, or the call was refused. `f` was not called.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt};
    ///
    /// let map = map::shared::<u64, u64>();
    /// let handle = map.handle();
    /// handle.set(1, 1);
    /// assert_eq!(handle.try_with(&1, |value| value + 1), Ok(Some(2)));
    /// drop(map);
    /// assert!(handle.try_with(&1, |value| value + 1).is_err());
    /// ```
    fn try_with<Q: Eq + Hash + ?Sized, R>(
        self,
        key: &Q,
        f: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>, CallError>
    where
        K: Borrow<Q>;

    /// Returns a copy of the key's value, like [`get`](MapExt::get), but returns an error if the map was
    /// destroyed.
    ///
    /// # Errors
    /// [`CallError`]: the map was destroyed, or the call was refused.
    fn try_get<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Result<Option<V>, CallError>
    where
        K: Borrow<Q>,
        V: Copy;

    /// Returns a clone of the key's value, like [`get_cloned`](MapExt::get_cloned), but returns an error if
    /// the map was destroyed.
    ///
    /// # Errors
    /// [`CallError`]: the map was destroyed, or the call was refused.
    fn try_get_cloned<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Result<Option<V>, CallError>
    where
        K: Borrow<Q>,
        V: Clone;

    /// Sets the key's value, like [`set`](MapExt::set), but returns an error if the map was destroyed.
    ///
    /// # Errors
    /// [`CallError`]: the map was destroyed, or the call was refused. Key and value are dropped.
    fn try_set(self, key: K, value: V) -> Result<bool, CallError>;

    /// Removes the key, like [`delete`](MapExt::delete), but returns an error if the map was destroyed.
    ///
    /// # Errors
    /// [`CallError`]: the map was destroyed, or the call was refused.
    fn try_delete<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Result<bool, CallError>
    where
        K: Borrow<Q>;

    /// Decides about one entry, like [`compute`](MapExt::compute), but returns an error if the map was
    /// destroyed.
    ///
    /// # Errors
    /// [`CallError`]: the map was destroyed, or the call was refused. The key is dropped.
    fn try_compute(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Result<Computed, CallError>;

    /// Calls `f` for each entry, like [`for_each`](MapExt::for_each), but returns an error if the map was
    /// destroyed.
    ///
    /// # Errors
    /// [`CallError`]: the map was destroyed. `f` may have seen some entries before.
    fn try_for_each(self, f: impl FnMut(&K, &V)) -> Result<(), CallError>;

    // Values are never changed in place. Without these methods, rustc would suggest `values` or `iter`, whose
    // clones can be changed without an effect.

    #[doc(hidden)]
    fn get_mut<Q: ?Sized>(self, key: &Q) -> Option<V>
    where
        V: InPlace,
    {
        let _ = key;
        unreachable!("no type is `InPlace`")
    }

    #[doc(hidden)]
    fn values_mut(self) -> std::iter::Empty<V>
    where
        V: InPlace,
    {
        unreachable!("no type is `InPlace`")
    }

    #[doc(hidden)]
    fn iter_mut(self) -> std::iter::Empty<(K, V)>
    where
        V: InPlace,
    {
        unreachable!("no type is `InPlace`")
    }

    /// Visits some entries from a position on, and returns the position after them. [`iter`](MapExt::iter)
    /// is built on it.
    #[doc(hidden)]
    fn visit_from(self, from: u64, f: impl FnMut(&K, &V)) -> Option<u64>;
}
