//! What the protocol stands on: tables and the set of locals. In a model both are small maps under a lock.
//!
//! - I1. Who takes an entry out drops it when nobody is in a [`Store::read`] any more that may have found it: so a reference that
//!   `read` lends is good until it returns, and a clone that `get` makes is of something that is there.
//! - I2. Who has an [`Under`] runs nothing that was deferred, and waits for nothing that is, until it has let it go.
//! - I3. Who finds an entry sees what was done before it was put in.

#[cfg(loom)]
pub(crate) use in_models::*;
#[cfg(not(loom))]
pub(crate) use on_linux::*;

#[cfg(not(loom))]
mod on_linux {
    use squall_rcu::{__quiet, Quiet, Rcu, op};
    use squall_sys::sync::Arc;
    use crate::table::{Compute, Table};
    use std::borrow::Borrow;
    use std::hash::{BuildHasher, Hash};

    use crate::dhash::order::{self, Inside};

    /// Being under locks of a table. It is there before the first of them, and goes after the last; what goes after it in turn, and what
    /// it catches up with, may be users' drops that lock in the same table.
    pub(crate) struct Under {
        // First: see above.
        _inside: Inside,
        _quiet: Quiet,
    }

    impl Under {
        #[inline(always)]
        pub(crate) fn new(table: usize) -> Under {
            let _quiet = __quiet();
            Under { _inside: order::enter(table), _quiet }
        }
    }

    /// A table that grows and shrinks by itself.
    pub(crate) struct Store<K: Send + Sync + 'static, V: Send + Sync + 'static, S>(Table<K, V, S>);

    impl<K: Eq + Hash + Send + Sync + 'static, V: Clone + Send + Sync + 'static, S: BuildHasher> Store<K, V, S> {
        pub(crate) fn new(hasher: S) -> Store<K, V, S> {
            Store(Table::with_hasher(hasher))
        }

        pub(crate) fn with_capacity(entries: usize, hasher: S) -> Store<K, V, S> {
            Store(Table::with_capacity_and_hasher(entries, hasher))
        }

        pub(crate) fn capacity(&self) -> usize {
            self.0.capacity()
        }

        pub(crate) fn shrink_to_fit(&self) {
            self.0.shrink_to_fit();
        }

        pub(crate) fn hasher(&self) -> &S {
            self.0.hasher()
        }

        #[inline]
        pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
        where
            K: Borrow<Q>,
        {
            self.0.get(key)
        }

        #[inline]
        pub(crate) fn read<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
        where
            K: Borrow<Q>,
        {
            self.0.read(key, f)
        }

        /// Whether the key was not there, and is now.
        pub(crate) fn try_insert(&self, key: K, value: V) -> bool {
            self.0.try_insert(key, value).is_ok()
        }

        /// Takes the key out if `is` says so of its value.
        pub(crate) fn forget(&self, key: &K, is: impl Fn(&V) -> bool) {
            let _ = self.0.change(key, |value| if is(value) { Compute::Remove } else { Compute::Keep });
        }

        /// As [`Table::visit_from`].
        pub(crate) fn visit_from(&self, from: u64, mut f: impl FnMut(&V)) -> Option<u64> {
            self.0.visit_from(from, |_, value| f(value))
        }

        pub(crate) fn len(&self) -> usize {
            self.0.len()
        }
    }

    /// A set of what is shared: a look writes nothing.
    pub(crate) struct Set<T: Send + Sync + 'static>(Rcu<Vec<Arc<T>>>);

    impl<T: Send + Sync + 'static> Set<T> {
        pub(crate) fn new() -> Set<T> {
            Set(Rcu::new(Box::default()))
        }

        pub(crate) fn add(&self, new: &Arc<T>) {
            self.0.update(|members| [&members[..], std::slice::from_ref(new)].concat());
        }

        pub(crate) fn remove(&self, old: &Arc<T>) {
            self.0.update(|members| {
                members.iter().filter(|member| !Arc::ptr_eq(member, old)).cloned().collect()
            });
        }

        pub(crate) fn for_each(&self, f: impl FnMut(&Arc<T>)) {
            op(|op| self.0.load(op).iter().for_each(f));
        }
    }
}

#[cfg(loom)]
mod in_models {
    use squall_sys::sync::{Arc, Mutex};
    use std::borrow::Borrow;
    use std::marker::PhantomData;

    /// Nothing is deferred in a model.
    pub(crate) struct Under;

    impl Under {
        pub(crate) fn new(_: usize) -> Under {
            Under
        }
    }

    impl Drop for Under {
        fn drop(&mut self) {}
    }

    /// A reader holds the lock, so that what is taken out is dropped after it: no grace period is shorter.
    pub(crate) struct Store<K, V, S>(Mutex<Vec<(K, V)>>, PhantomData<S>);

    impl<K: Eq, V: Clone, S> Store<K, V, S> {
        pub(crate) fn new(_: S) -> Store<K, V, S> {
            Store(Mutex::new(Vec::new()), PhantomData)
        }

        pub(crate) fn get<Q: Eq + ?Sized>(&self, key: &Q) -> Option<V>
        where
            K: Borrow<Q>,
        {
            self.read(key, V::clone)
        }

        pub(crate) fn read<Q: Eq + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
        where
            K: Borrow<Q>,
        {
            let entries = self.0.lock().unwrap();
            entries.iter().find(|entry| entry.0.borrow() == key).map(|entry| f(&entry.1))
        }

        pub(crate) fn try_insert(&self, key: K, value: V) -> bool {
            let mut entries = self.0.lock().unwrap();
            let is_new = entries.iter().all(|entry| entry.0 != key);
            if is_new {
                entries.push((key, value));
            }
            is_new
        }

        pub(crate) fn forget(&self, key: &K, is: impl Fn(&V) -> bool) {
            let mut entries = self.0.lock().unwrap();
            let out: Vec<_> = entries.extract_if(.., |entry| entry.0 == *key && is(&entry.1)).collect();
            drop(entries);
            drop(out);
        }
    }

    pub(crate) struct Set<T>(Mutex<Vec<Arc<T>>>);

    impl<T> Set<T> {
        pub(crate) fn new() -> Set<T> {
            Set(Mutex::new(Vec::new()))
        }

        pub(crate) fn add(&self, new: &Arc<T>) {
            self.0.lock().unwrap().push(new.clone());
        }

        pub(crate) fn for_each(&self, f: impl FnMut(&Arc<T>)) {
            let members = self.0.lock().unwrap().clone();
            members.iter().for_each(f);
        }
    }
}
