//! Fast paths of `Table`, for callers that handle the slow path themselves.
//!
//! Each `__try_*` method handles the common case: the key is in its home's own bucket or absent, and no
//! other thread writes to that home. It is compiled into the caller and reports all other cases as an error.

use crate::table::compute::{Compute, Computed};
use crate::table::hash_table::{Table, either};
use crate::table::ops::{try_change, try_find, try_put, try_read, try_take};
use squall_rcu::Guard;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static, S: BuildHasher> Table<K, V, S> {
    /// Fast path of [`read_in`](Table::read_in): succeeds if the key is in its home's own bucket or absent,
    /// as in most reads. Calls no function except the hasher, the key's comparison, and `f`.
    ///
    /// # Errors
    /// The key may be elsewhere: [`read_in`](Table::read_in) is the slow path. `f` comes back uncalled.
    /// # Example
    /// ```
    /// use squall_parts::table::Table;
    /// use squall_rcu::pin;
    /// let table: Table<u64, u64> = [(1, 10)].into_iter().collect();
    /// let value = pin(|guard| match table.__try_read(guard, &1, |value| *value) {
    ///     Ok(found) => found,
    ///     Err(f) => table.read_in(guard, &1, f),
    /// });
    /// assert_eq!(value, Some(10));
    /// ```
    #[doc(hidden)]
    #[inline(always)]
    pub fn __try_read<Q: Eq + Hash + ?Sized, R, F: FnOnce(&V) -> R>(
        &self,
        _: &Guard,
        key: &Q,
        f: F,
    ) -> Result<Option<R>, F>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe { try_read(raw, hash, move |found| found.borrow() == key, f) })
    }

    /// Fast path of [`read_in`](Table::read_in) for a key that is present in its home's own bucket.
    ///
    /// # Errors
    /// The key is not in its home's own bucket. `f` comes back uncalled.
    #[doc(hidden)]
    #[inline(always)]
    pub fn __try_find<Q: Eq + Hash + ?Sized, R, F: FnOnce(&V) -> R>(
        &self,
        _: &Guard,
        key: &Q,
        f: F,
    ) -> Result<R, F>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe { try_find(raw, hash, move |found| found.borrow() == key, f) })
    }

    /// Fast path of [`put_in`](Table::put_in). Succeeds if no other thread writes to the key's home, that
    /// home has room, and the table is not resizing. Calls no function except `f`, the hasher, and the key's
    /// comparison.
    ///
    /// # Errors
    /// The slow path is needed: [`put_in`](Table::put_in). The table is unchanged; key and value come back.
    #[doc(hidden)]
    #[inline(always)]
    pub fn __try_put<R>(
        &self,
        _: &Guard,
        key: K,
        value: V,
        f: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>, (K, V)> {
        let hash = self.hasher.hash_one(&key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe { try_put(raw, hash, key, value, f) })
    }

    /// Fast path of [`take_in`](Table::take_in). Succeeds if no other thread writes to the key's home, and
    /// the table is not resizing. The key must be in that home's own bucket or absent. Calls no function
    /// except `f`, the hasher, and the key's comparison.
    ///
    /// # Errors
    /// The slow path is needed: [`take_in`](Table::take_in). The table is unchanged; `f` comes back uncalled.
    #[doc(hidden)]
    #[inline(always)]
    pub fn __try_take<Q: Eq + Hash + ?Sized, R, F: FnOnce(&V) -> R>(
        &self,
        _: &Guard,
        key: &Q,
        f: F,
    ) -> Result<Option<R>, F>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe {
            try_take(raw, hash, move |found| found.borrow() == key, &self.rehash(), f)
        })
    }

    /// Fast path of [`compute_if_present_in`](Table::compute_if_present_in). Succeeds if the key is absent,
    /// or in its home's own bucket without a concurrent writer, as in most changes. If `f` replaces the
    /// value, the calls are to the hasher, the key's comparison, `f`, and the allocator of the value.
    ///
    /// # Errors
    /// The slow path is needed: [`compute_if_present_in`](Table::compute_if_present_in). The table is
    /// unchanged; `f` comes back, perhaps after a call.
    #[doc(hidden)]
    #[inline(always)]
    pub fn __try_change<Q: Eq + Hash + ?Sized, F: FnMut(&V) -> Compute<V>>(
        &self,
        _: &Guard,
        key: &Q,
        f: F,
    ) -> Result<Computed, F>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, raw => unsafe {
            try_change(raw, hash, move |found: &K| found.borrow() == key, &self.rehash(), f)
        })
    }
}
