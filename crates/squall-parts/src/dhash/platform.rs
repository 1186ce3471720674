//! The protocol's environment: tables, and the set of local tables. Loom builds use small lists under a lock.
//!
//! - I1. A removed entry is dropped only when no [`Store::read`] that may have found it is still running. So
//!   a reference lent by `read` is valid until that returns, and `get` clones a live value.
//! - I2. The holder of a [`LockScope`] neither runs deferred drops nor waits for them until it has dropped
//!   the scope.
//! - I3. A thread that finds an entry sees all writes made before the entry was inserted.

#[cfg(loom)]
pub(crate) use loom_stubs::*;
#[cfg(not(loom))]
pub(crate) use real::*;

#[cfg(not(loom))]
mod real {
    use crate::table::{Compute, Table};
    use squall_rcu::{__callback_free, __pin as pin, CallbackFree, Rcu};
    use squall_sys::sync::Arc;
    use std::borrow::Borrow;
    use std::hash::{BuildHasher, Hash};

    use crate::dhash::lock_order::{self, TableScope};

    /// Scope of holding locks of a table. It is created before the first lock and dropped after the last. Its
    /// own drop, and the deferred drops that it then runs, may be user code that locks in the same table.
    pub(crate) struct LockScope {
        // First, so that it is dropped before deferred drops run.
        _inside: TableScope,
        _quiet: CallbackFree,
    }

    impl LockScope {
        #[inline(always)]
        pub(crate) fn new(table: usize) -> LockScope {
            let _quiet = __callback_free();
            LockScope { _inside: lock_order::enter(table), _quiet }
        }
    }

    /// Panics if the thread is inside an operation: a long wait would delay all reclamation.
    pub(crate) fn refuse_in_operation() {
        #[cfg(debug_assertions)]
        assert!(
            !squall_rcu::in_operation(),
            "squall-parts: a key that is being filled was waited for inside an operation, which would delay all \
             reclamation; wait after the operation, or use `try_find_or_reserve`"
        );
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
            self.0.get_cloned(key)
        }

        #[inline]
        pub(crate) fn read<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
        where
            K: Borrow<Q>,
        {
            self.0.read(key, f)
        }

        /// Inserts the key if it is absent. Returns whether it did.
        pub(crate) fn try_insert(&self, key: K, value: V) -> bool {
            self.0.try_insert(key, value).is_ok()
        }

        /// Removes the key if `is` returns `true` for its value.
        pub(crate) fn remove_if(&self, key: &K, is: impl Fn(&V) -> bool) {
            let _ = self
                .0
                .compute_if_present(key, |value| if is(value) { Compute::Remove } else { Compute::Keep });
        }

        /// Calls `f` for the values of one home, like [`Table::visit_from`].
        pub(crate) fn visit_from(&self, from: u64, mut f: impl FnMut(&V)) -> Option<u64> {
            self.0.visit_from(from, |_, value| f(value))
        }

        pub(crate) fn len(&self) -> usize {
            self.0.len()
        }
    }

    /// A set of shared objects. Reading it writes no shared memory.
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
            pin(|guard| self.0.load(guard).iter().for_each(f));
        }
    }
}

#[cfg(loom)]
mod loom_stubs {
    use squall_sys::sync::{Arc, Mutex};
    use std::borrow::Borrow;
    use std::marker::PhantomData;

    /// Models open no operation.
    pub(crate) fn refuse_in_operation() {}

    /// Models defer no drops.
    pub(crate) struct LockScope;

    impl LockScope {
        pub(crate) fn new(_: usize) -> LockScope {
            LockScope
        }
    }

    impl Drop for LockScope {
        fn drop(&mut self) {}
    }

    /// A table as a list. A reader holds the lock, and removed entries are dropped after its release: the
    /// shortest possible grace period.
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

        pub(crate) fn remove_if(&self, key: &K, is: impl Fn(&V) -> bool) {
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
