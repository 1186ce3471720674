//! Fast paths and slow paths of `Table`, each by itself.
//!
//! Each `__try_*` method handles the common case: the key is in its home's own bucket or absent, and no
//! other thread writes to that home. It is compiled into the caller and reports all other cases as an error.
//!
//! The other `__*` methods handle all cases. They take closures as trait objects, so that they are compiled
//! once for each type of table. Most methods of `Table` do the same where their fast path gives up. `is_key`
//! may run under a lock, like the comparison of keys: it must not use the table.

use crate::table::compute::{Compute, Computed};
use crate::table::hash_table::{Table, either};
use squall_rcu::Guard;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static, S: BuildHasher> Table<K, V, S> {
    /// Fast path of [`read_in`](Table::read_in): succeeds if the key is in its home's own bucket or absent,
    /// as in most reads. Calls no function except the hasher, the key's comparison, and `f`.
    ///
    /// # Errors
    /// The key may be elsewhere: [`__read_slow`](Table::__read_slow) finds it. `f` comes back uncalled.
    /// # Example
    /// ```
    /// use squall::parts::table::Table;
    /// use squall::rcu::pin;
    /// let table: Table<u64, u64> = [(1, 10)].into_iter().collect();
    /// let value = pin(|guard| match table.__try_read(guard, &1, |value| *value) {
    ///     Ok(found) => found,
    ///     Err(f) => table.__read_slow(guard, &1, f),
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
        either!(self, typed => unsafe { typed.try_read(hash, move |found| found.borrow() == key, f) })
    }

    /// Slow path of [`read_in`](Table::read_in), for a key in any bucket.
    #[doc(hidden)]
    pub fn __read_slow<Q: Eq + Hash + ?Sized, R>(
        &self,
        _: &Guard,
        key: &Q,
        f: impl FnOnce(&V) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, typed => unsafe { typed.read_slow(hash, move |found| found.borrow() == key, f) })
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
        either!(self, typed => unsafe { typed.try_find(hash, move |found| found.borrow() == key, f) })
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
        either!(self, typed => unsafe { typed.try_put(hash, key, value, f) })
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
        either!(self, typed => unsafe {
            typed.try_take(hash, move |found| found.borrow() == key, &self.hasher, f)
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
        either!(self, typed => unsafe {
            typed.try_change(hash, move |found: &K| found.borrow() == key, &self.hasher, f)
        })
    }

    /// Calls `f` with the value of the key for which `is_key` returns `true`, like
    /// [`read_in`](Table::read_in). Returns whether the key is present. `hash` is the key's.
    ///
    /// # Example
    /// ```
    /// use squall::parts::table::Table;
    /// use squall::rcu::pin;
    /// use std::hash::BuildHasher;
    /// let table: Table<u64, String> = Table::new();
    /// let hash = |key: u64| table.hasher().hash_one(key);
    /// pin(|guard| {
    ///     let mut entry = Some((1, "one".to_owned()));
    ///     assert!(!table.__put(guard, &mut entry, &mut |_| ()) && entry.is_none());
    ///     let mut length = 0;
    ///     assert!(table.__read(guard, hash(1), &|key| *key == 1, &mut |value| length = value.len()));
    ///     assert_eq!(length, 3);
    /// });
    /// ```
    #[doc(hidden)]
    #[inline(never)]
    pub fn __read(&self, _: &Guard, hash: u64, is_key: &dyn Fn(&K) -> bool, f: &mut dyn FnMut(&V)) -> bool {
        // SAFETY: within the operation.
        either!(self, typed => unsafe { typed.read(hash, is_key, f).is_some() })
    }

    /// Calls `f` with the entry of the key for which `is_key` returns `true`, like
    /// [`read_entry`](Table::read_entry). Returns whether the key is present. `hash` is the key's.
    #[doc(hidden)]
    pub fn __read_entry(
        &self,
        _: &Guard,
        hash: u64,
        is_key: &dyn Fn(&K) -> bool,
        f: &mut dyn FnMut(&K, &V),
    ) -> bool {
        // SAFETY: within the operation.
        either!(self, typed => unsafe { typed.read_entry_slow(hash, is_key, f) })
    }

    /// Takes the entry out of the option and sets it, like [`put_in`](Table::put_in). Calls `old` with the
    /// replaced value. Returns whether the key was present. A large value is moved once, to its place.
    #[doc(hidden)]
    #[inline(never)]
    pub fn __put(&self, _: &Guard, entry: &mut Option<(K, V)>, old: &mut dyn FnMut(&V)) -> bool {
        let Some((key, _)) = &*entry else { return false };
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, typed => unsafe { typed.put_option(hash, entry, &self.hasher, old) })
    }

    /// Like [`__put`](Table::__put), but calls `old` before the change, perhaps several times. If it panics,
    /// the table is unchanged.
    #[doc(hidden)]
    #[inline(never)]
    pub fn __put_seen(&self, _: &Guard, entry: &mut Option<(K, V)>, old: &mut dyn FnMut(&V)) -> bool {
        let Some((key, _)) = &*entry else { return false };
        let hash = self.hasher.hash_one(key);
        // SAFETY: within the operation.
        either!(self, typed => unsafe { typed.put_seen(hash, entry, &self.hasher, old) })
    }

    /// Inserts the entry and takes it out of the option, if the key is absent. Otherwise calls `there` with
    /// the present value and leaves the entry. Returns whether it was inserted.
    #[doc(hidden)]
    pub fn __try_insert(&self, guard: &Guard, entry: &mut Option<(K, V)>, there: &mut dyn FnMut(&V)) -> bool {
        let Some((key, _)) = &*entry else { return false };
        let hash = self.hasher.hash_one(key);
        let is_present = self.__read(guard, hash, &|found| found == key, there);
        // SAFETY: within the operation.
        !is_present && unsafe { self.insert_any(hash, entry, there) }
    }

    /// Inserts an entry like [`__try_insert`](Table::__try_insert), after a search for its key.
    ///
    /// # Safety
    /// In an operation.
    #[inline(never)]
    pub(crate) unsafe fn insert_any(
        &self,
        hash: u64,
        entry: &mut Option<(K, V)>,
        there: &mut dyn FnMut(&V),
    ) -> bool {
        // SAFETY: the caller.
        either!(self, typed => unsafe { typed.insert(hash, entry, &self.hasher, there) })
    }

    /// Removes the key for which `is_key` returns `true`, like [`take_in`](Table::take_in). Calls `f` with
    /// its value. Returns whether the key was present. `hash` is the key's.
    #[doc(hidden)]
    pub fn __take(&self, _: &Guard, hash: u64, is_key: &dyn Fn(&K) -> bool, f: &mut dyn FnMut(&V)) -> bool {
        // SAFETY: within the operation.
        unsafe { self.take_any(hash, is_key, f) }
    }

    /// The body of [`__take`](Table::__take).
    ///
    /// # Safety
    /// In an operation.
    #[inline(never)]
    unsafe fn take_any(&self, hash: u64, is_key: &dyn Fn(&K) -> bool, f: &mut dyn FnMut(&V)) -> bool {
        // SAFETY: the caller.
        either!(self, typed => unsafe { typed.take_slow(hash, is_key, &self.hasher, f) })
    }

    /// Replaces, removes or keeps the entry of the key for which `is_key` returns `true`, like
    /// [`compute_if_present_in`](Table::compute_if_present_in). `hash` is the key's.
    #[doc(hidden)]
    pub fn __change(
        &self,
        _: &Guard,
        hash: u64,
        is_key: &dyn Fn(&K) -> bool,
        f: &mut dyn FnMut(&V) -> Compute<V>,
    ) -> Computed {
        // SAFETY: within the operation.
        unsafe { self.change_any(hash, is_key, f) }.unwrap_or(Computed::Kept)
    }

    /// The body of [`__change`](Table::__change). Returns `None` if the key is absent.
    ///
    /// # Safety
    /// In an operation.
    #[inline(never)]
    pub(crate) unsafe fn change_any(
        &self,
        hash: u64,
        is_key: &dyn Fn(&K) -> bool,
        f: &mut dyn FnMut(&V) -> Compute<V>,
    ) -> Option<Computed> {
        // SAFETY: the caller.
        either!(self, typed => unsafe { typed.change_slow(hash, is_key, &self.hasher, f) })
    }

    /// Slow path of [`take_in`](Table::take_in). Takes no guard, which would be one more register on the fast
    /// path.
    ///
    /// # Safety
    /// In an operation.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn take_slow<R>(
        &self,
        hash: u64,
        is_key: impl Fn(&K) -> bool,
        f: impl FnOnce(&V) -> R,
    ) -> Option<R> {
        let (mut f, mut result) = (Some(f), None);
        // SAFETY: the caller.
        unsafe { self.take_any(hash, &is_key, &mut |value| result = f.take().map(|f| f(value))) };
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_rcu::pin;

    /// A type that does not have stable bits as far as known.
    #[derive(PartialEq, Eq, Hash)]
    struct Own(u64);

    fn put_read_and_take<K: Eq + Hash + Send + Sync + 'static>(key: fn(u64) -> K) {
        const BYTES: usize = 128 * 1024;
        let table: Table<K, [u8; BYTES]> = Table::new();
        let hash = |n| table.hasher().hash_one(key(n));
        let is = |n| move |found: &K| *found == key(n);
        let mut seen = Vec::new();
        pin(|guard| {
            let mut entry = Some((key(1), [1; BYTES]));
            assert!(table.__try_insert(guard, &mut entry, &mut |_| ()) && entry.is_none());
            entry = Some((key(1), [2; BYTES]));
            assert!(!table.__try_insert(guard, &mut entry, &mut |there| seen.push(there[0])));
            assert!(entry.is_some(), "the key is present: the entry stays");
            assert!(table.__put(guard, &mut entry, &mut |old| seen.push(old[0])) && entry.is_none());
            assert!(!table.__put(guard, &mut entry, &mut |_| ()), "there is no entry to put");
            assert!(table.__read(guard, hash(1), &is(1), &mut |value| seen.push(value[BYTES - 1])));
            let computed = table.__change(guard, hash(1), &is(1), &mut |value| {
                seen.push(value[0]);
                Compute::Put([3; BYTES])
            });
            assert_eq!(computed, Computed::Updated);
            assert!(table.__take(guard, hash(1), &is(1), &mut |value| seen.push(value[0])));
            assert!(!table.__read(guard, hash(1), &is(1), &mut |_| ()));
            let absent = table.__change(guard, hash(1), &is(1), &mut |_| Compute::Remove);
            assert_eq!((absent, table.len()), (Computed::Kept, 0));
        });
        assert_eq!(seen, [1, 1, 2, 2, 3]);
    }

    #[test]
    #[cfg_attr(any(squall_asan, squall_tsan), ignore = "sanitizers enlarge the stack")]
    fn large_values_need_little_stack() {
        let stack = std::thread::Builder::new().stack_size(2 << 20);
        let thread = stack.spawn(|| {
            put_read_and_take(|n| n);
            put_read_and_take(Own);
        });
        thread.expect("a thread starts").join().unwrap();
    }

    #[test]
    fn an_entry_that_is_not_inserted_is_dropped_once() {
        let table: Table<Own, std::sync::Arc<()>> = Table::new();
        let value = std::sync::Arc::new(());
        pin(|guard| {
            let mut entry = Some((Own(1), value.clone()));
            assert!(table.__try_insert(guard, &mut entry, &mut |_| ()));
            entry = Some((Own(1), value.clone()));
            let mut seen = 0;
            // SAFETY: within the operation. Without the search before, the write finds the key.
            let inserted =
                unsafe { table.insert_any(table.hasher().hash_one(Own(1)), &mut entry, &mut |_| seen += 1) };
            assert!(!inserted && entry.is_some() && seen == 1);
            drop(entry);
        });
        assert_eq!(std::sync::Arc::strong_count(&value), 2);
        drop(table);
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    }
}
