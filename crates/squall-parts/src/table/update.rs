//! Writes of `Table`: insertions, changes and removals.

use crate::table::compute::{Compute, Computed};
use crate::table::hash_table::{Table, either};
use crate::table::word::has_stable_bits;
use squall_rcu::{__pin as pin, Guard};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static, S: BuildHasher> Table<K, V, S> {
    /// Sets the key's value. Returns a clone of the old value, or `None` if the key was absent. A present key
    /// stays or is replaced by `key`, which is equal.
    ///
    /// # Panics
    /// If the clone of the old value panics. The table is then unchanged.
    /// # Example
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = Table::new();
    /// assert_eq!((table.insert(1, 10), table.insert(1, 20)), (None, Some(10)));
    /// ```
    pub fn insert(&self, key: K, value: V) -> Option<V>
    where
        V: Clone,
    {
        if has_stable_bits::<V>() {
            return self.put(key, value, V::clone);
        }
        let (mut entry, mut old) = (Some((key, value)), None);
        let is_present =
            pin(|guard| self.__put_seen(guard, &mut entry, &mut |value| old = Some(value.clone())));
        old.filter(|_| is_present)
    }

    /// Sets the key's value. Returns whether the key was present. Unlike [`insert`](Table::insert), clones no
    /// value.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = Table::new();
    /// assert!(!table.set(1, 10) && table.set(1, 20));
    /// ```
    #[inline]
    pub fn set(&self, key: K, value: V) -> bool {
        self.put(key, value, |_| ()).is_some()
    }

    #[inline]
    fn put<R>(&self, key: K, value: V, f: impl FnOnce(&V) -> R) -> Option<R> {
        pin(|guard| self.put_in(guard, key, value, f))
    }

    /// Sets the key's value, in an operation that is already open. Returns `f`'s result for the old value, or
    /// `None` if the key was absent.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// use squall::rcu::pin;
    /// let table: Table<u64, String> = Table::new();
    /// table.set(1, "old".to_owned());
    /// assert_eq!(pin(|guard| table.put_in(guard, 1, "new".to_owned(), |old| old.len())), Some(3));
    /// ```
    #[inline(always)]
    pub fn put_in<R>(&self, _: &Guard, key: K, value: V, f: impl FnOnce(&V) -> R) -> Option<R> {
        let hash = self.hasher.hash_one(&key);
        // SAFETY: within the operation.
        either!(self, typed => unsafe { typed.put(hash, key, value, &self.hasher, f) })
    }

    /// Inserts the key if it is absent.
    ///
    /// # Errors
    /// The key is present: key and value come back.
    /// # Example
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = Table::new();
    /// assert_eq!((table.try_insert(1, 10), table.try_insert(1, 20)), (Ok(()), Err((1, 20))));
    /// ```
    pub fn try_insert(&self, key: K, value: V) -> Result<(), (K, V)> {
        let hash = self.hasher.hash_one(&key);
        pin(|_| {
            let is_key = |found: &K| *found == key;
            // SAFETY: within the operation.
            if either!(self, typed => unsafe { typed.find(hash, is_key).is_some() }) {
                return Err((key, value));
            }
            let mut entry = Some((key, value));
            // SAFETY: as above.
            unsafe { self.insert_any(hash, &mut entry, &mut |_| ()) };
            entry.map_or(Ok(()), Err)
        })
    }

    /// Returns a clone of the key's value. If the key is absent, inserts the result of `value` first. Threads
    /// that miss the key at once may each make a value. One of these is inserted, and all threads return it.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, String> = Table::new();
    /// assert_eq!(table.get_or_insert_with(1, || "first".to_owned()), "first");
    /// assert_eq!(table.get_or_insert_with(1, || "second".to_owned()), "first");
    /// ```
    pub fn get_or_insert_with(&self, key: K, value: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        let hash = self.hasher.hash_one(&key);
        if let Some(value) = self.get_cloned(&key) {
            return value;
        }
        let value = value();
        let inserted = value.clone();
        let (mut entry, mut there) = (Some((key, value)), None);
        // SAFETY: within the operation.
        pin(|_| unsafe { self.insert_any(hash, &mut entry, &mut |value| there = Some(value.clone())) });
        there.unwrap_or(inserted)
    }

    /// Removes the key. Returns a clone of its value, or `None` if the key was absent.
    ///
    /// # Panics
    /// If the clone panics. The table is then unchanged.
    /// # Example
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = [(1, 10)].into_iter().collect();
    /// assert_eq!((table.remove(&1), table.remove(&1)), (Some(10), None));
    /// ```
    pub fn remove<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        if has_stable_bits::<V>() {
            return self.take(key, V::clone);
        }
        let mut old = None;
        let clone_and_remove = |value: &V| {
            old = Some(value.clone());
            Compute::Remove
        };
        let computed = self.compute_if_present(key, clone_and_remove);
        old.filter(|_| computed == Computed::Removed)
    }

    /// Removes the key. Returns whether it was present. Unlike [`remove`](Table::remove), clones no value.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = [(1, 10)].into_iter().collect();
    /// assert!(table.delete(&1) && !table.delete(&1));
    /// ```
    #[inline]
    pub fn delete<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.take(key, |_| ()).is_some()
    }

    #[inline]
    fn take<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        pin(|guard| self.take_in(guard, key, f))
    }

    /// Removes the key, in an operation that is already open. Returns `f`'s result for its value, or `None`
    /// if the key was absent.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// use squall::rcu::pin;
    /// let table: Table<u64, String> = Table::new();
    /// table.set(1, "gone".to_owned());
    /// assert_eq!(pin(|guard| table.take_in(guard, &1, |value| value.len())), Some(4));
    /// ```
    #[inline(always)]
    pub fn take_in<Q: Eq + Hash + ?Sized, R>(&self, _: &Guard, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let is_key = move |found: &K| found.borrow() == key;
        // SAFETY: within the operation.
        let slow = |f| unsafe { self.take_slow(hash, is_key, f) };
        // SAFETY: as above.
        either!(self, typed => unsafe { typed.take(hash, is_key, &self.hasher, f, slow) })
    }

    /// Removes the key if `f` returns `true` for its value. Returns whether it did. The removed value is the
    /// one that `f` saw: if another writer was faster, `f` is called again.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = [(1, 10)].into_iter().collect();
    /// assert!(!table.remove_if(&1, |n| *n > 10) && table.remove_if(&1, |n| *n == 10));
    /// ```
    pub fn remove_if<Q: Eq + Hash + ?Sized>(&self, key: &Q, mut f: impl FnMut(&V) -> bool) -> bool
    where
        K: Borrow<Q>,
    {
        self.compute_if_present(key, |value| if f(value) { Compute::Remove } else { Compute::Keep })
            == Computed::Removed
    }

    /// Replaces the key's value by `f`'s result. Returns whether the key is present. If another writer was
    /// faster, `f` is called again.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let hits: Table<&str, u64> = [("home", 1)].into_iter().collect();
    /// assert!(hits.update("home", |n| n + 1) && !hits.update("about", |n| n + 1));
    /// ```
    #[inline]
    pub fn update<Q: Eq + Hash + ?Sized>(&self, key: &Q, mut f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q>,
    {
        self.compute_if_present(key, |value| Compute::Put(f(value))) == Computed::Updated
    }

    /// Replaces, removes or keeps the entry of a present key, as `f` decides from its value. Like
    /// [`compute`](Table::compute), for a borrowed key. `f` may run several times.
    ///
    /// ```
    /// use squall::parts::table::{Compute, Computed, Table};
    /// let stock: Table<&str, u32> = [("apple", 1)].into_iter().collect();
    /// let sell = |n: &u32| if *n > 1 { Compute::Put(n - 1) } else { Compute::Remove };
    /// assert_eq!(stock.compute_if_present("apple", sell), Computed::Removed);
    /// assert_eq!(stock.compute_if_present("apple", sell), Computed::Kept);
    /// ```
    #[inline]
    pub fn compute_if_present<Q: Eq + Hash + ?Sized>(
        &self,
        key: &Q,
        f: impl FnMut(&V) -> Compute<V>,
    ) -> Computed
    where
        K: Borrow<Q>,
    {
        pin(|guard| self.compute_if_present_in(guard, key, f))
    }

    /// Like [`compute_if_present`](Table::compute_if_present), in an operation that is already open.
    ///
    /// ```
    /// use squall::parts::table::{Compute, Computed, Table};
    /// use squall::rcu::pin;
    /// let hits: Table<&str, u64> = [("home", 1)].into_iter().collect();
    /// let computed = pin(|guard| hits.compute_if_present_in(guard, "home", |n| Compute::Put(n + 1)));
    /// assert_eq!(computed, Computed::Updated);
    /// ```
    #[inline(always)]
    pub fn compute_if_present_in<Q: Eq + Hash + ?Sized>(
        &self,
        _: &Guard,
        key: &Q,
        f: impl FnMut(&V) -> Compute<V>,
    ) -> Computed
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let is_key = move |found: &K| found.borrow() == key;
        // SAFETY: within the operation.
        let slow = |mut f| unsafe { self.change_any(hash, &is_key, &mut f) }.unwrap_or(Computed::Kept);
        // SAFETY: as above.
        either!(self, typed => unsafe { typed.change(hash, is_key, &self.hasher, f, slow) })
    }

    /// Inserts, replaces, removes or keeps the key's entry, as `f` decides from its value, in one atomic
    /// step. `f` gets `None` if the key is absent. If another writer was faster, `f` is called again with the
    /// new value.
    ///
    /// ```
    /// use squall::parts::table::{Compute, Computed, Table};
    /// let hits: Table<&str, u64> = Table::new();
    /// let count = |n: Option<&u64>| Compute::Put(n.map_or(1, |n| n + 1));
    /// assert_eq!(hits.compute("home", count), Computed::Inserted);
    /// assert_eq!(hits.compute("home", count), Computed::Updated);
    /// assert_eq!(hits.get("home"), Some(2));
    /// ```
    pub fn compute(&self, key: K, mut f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed {
        pin(|guard| self.__compute(guard, &mut Some(key), &mut f))
    }

    /// Internal: [`compute`](Table::compute) in an operation that is already open, compiled once for all
    /// closures. Takes the key out if it inserts it.
    #[doc(hidden)]
    pub fn __compute(
        &self,
        _: &Guard,
        key: &mut Option<K>,
        f: &mut dyn FnMut(Option<&V>) -> Compute<V>,
    ) -> Computed {
        let hash = key.as_ref().map_or(0, |key| self.hasher.hash_one(key));
        loop {
            let Some(wanted) = &*key else { unreachable!("a computation without a key") };
            let is_key = |found: &K| found == wanted;
            // SAFETY: within the operation.
            let changed = unsafe { self.change_any(hash, &is_key, &mut |value| f(Some(value))) };
            if let Some(computed) = changed {
                return computed;
            }
            let Compute::Put(value) = f(None) else { return Computed::Kept };
            let mut entry = key.take().map(|key| (key, value));
            // SAFETY: within the operation.
            unsafe { self.insert_any(hash, &mut entry, &mut |_| ()) };
            match entry {
                None => return Computed::Inserted,
                // Another thread was faster.
                Some((back, _)) => *key = Some(back),
            }
        }
    }
}
