//! Parts of a bound that are reserved for other memory than entries.

use squall_parts::table::Budget as Bound;
use std::fmt;
use std::hash::{BuildHasher, Hash};

use crate::sync::{Cache, on};

/// A part of a cache's bound that entries cannot use, until the drop: see [`Cache::reserve`].
#[must_use = "the drop gives the part back"]
pub struct Reservation<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    cache: &'a Cache<K, V, S>,
    weight: u64,
}

impl<K, V, S> Cache<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Changes the bound, in its unit: entries, weights or bytes. If it becomes lower, this thread evicts
    /// entries before the call returns. Insertions that other threads began before may exceed the new bound
    /// by their entries, until the next insertion.
    ///
    /// Returns false if the cache was made without a bound. It then stays so.
    ///
    /// ```
    /// use squall::cache::Cache;
    ///
    /// let squares: Cache<u64, u64> = Cache::new(1000);
    /// (0..1000).for_each(|n| squares.insert(n, n * n));
    /// assert!(squares.set_max_capacity(100));
    /// assert_eq!((squares.max_capacity(), squares.entry_count()), (Some(100), 100));
    /// ```
    ///
    /// # Panics
    /// If the listener panics.
    pub fn set_max_capacity(&self, max_capacity: u64) -> bool {
        on!(self, inner => inner.set_bound(max_capacity))
    }

    /// Reserves a part of the bound for memory beside the entries, such as values that are being received.
    /// This thread evicts entries until the others fit into the rest.
    ///
    /// Returns no part, and evicts no entry, if all reservations together would exceed the bound. A cache
    /// without a bound grants each reservation.
    ///
    /// ```
    /// use squall::cache::Cache;
    ///
    /// let squares: Cache<u64, u64> = Cache::new(1000);
    /// (0..1000).for_each(|n| squares.insert(n, n * n));
    /// let part = squares.reserve(400).unwrap();
    /// assert_eq!(squares.entry_count(), 600);
    /// assert!(squares.reserve(700).is_none());
    /// drop(part);
    /// ```
    ///
    /// # Panics
    /// If the listener panics. The part is given back.
    pub fn reserve(&self, weight: u64) -> Option<Reservation<'_, K, V, S>> {
        let mut part = Reservation { cache: self, weight: 0 };
        part.resize(weight).then_some(part)
    }

    /// Returns the sum of all reservations.
    pub fn reserved(&self) -> u64 {
        on!(self, inner => inner.config.bound.as_ref().map_or(0, Bound::taken))
    }
}

impl<K, V, S> Reservation<'_, K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the size of the part, or 0 in a cache without a bound.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Makes the part larger or smaller. A larger part evicts entries. Returns false if it does not fit, and
    /// keeps the old size.
    ///
    /// # Panics
    /// If the listener panics. The part has the new size.
    pub fn resize(&mut self, weight: u64) -> bool {
        let Some(more) = weight.checked_sub(self.weight) else {
            give_back(self.cache, self.weight - weight);
            self.weight = weight;
            return true;
        };
        let bound = on!(self.cache, inner => inner.config.bound.as_ref());
        if bound.is_none_or(|bound| bound.take(more).is_err()) {
            return bound.is_none();
        }
        self.weight = weight;
        on!(self.cache, inner => inner.trim());
        true
    }
}

/// Gives a part of a reservation back.
fn give_back<K: Send + Sync + 'static, V: Send + Sync + 'static, S>(cache: &Cache<K, V, S>, weight: u64) {
    if let Some(bound) = on!(cache, inner => inner.config.bound.as_ref()) {
        bound.give(weight);
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for Reservation<'_, K, V, S> {
    fn drop(&mut self) {
        give_back(self.cache, self.weight);
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> fmt::Debug for Reservation<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("weight", &self.weight).finish_non_exhaustive()
    }
}
