//! The methods of [`MapExt`] on a map's handle: each runs one operation on the store of a call.
//! Also the methods of [`Drain`], which call them.
//!
//! A call that fails names the method of [`MapExt`], and not the one of [`Map`] that it calls (`answers.rs`).

use squall_core::__macro::Answer;
use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{CallError, Handle};
use squall_machine::ClusterSize;
use squall_rcu::Guard;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::drain::Drain;
use super::entry::Entry;
use super::ext::MapExt;
use super::full::Full;
use super::operations::{Change, Contains, Discard, Insert, Read, Remove, Set, TryRead, is_large};
use super::resize_error::ResizeError;
use super::store::Store;
use super::{Compute, Computed, Map};
use crate::answers::{panics_in, returns_in};

/// Runs `f` on the store of a map, in a call that writes.
#[inline(always)]
#[track_caller]
pub(super) fn write<K, V, S, R>(
    handle: Handle<dyn Map<K, V, S>>,
    gone: impl Answer<R>,
    f: impl FnOnce(&Guard, Store<'_, K, V, S>) -> R,
) -> R
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    handle.__call_in("write", |guard, map| map.write(guard).run_write(map, |store| f(guard, store)), gone)
}

/// Runs `f` on the store of a map, in a call that reads.
#[inline(always)]
#[track_caller]
pub(super) fn read<K, V, S, R>(
    handle: Handle<dyn Map<K, V, S>>,
    gone: impl Answer<R>,
    f: impl FnOnce(&Guard, Store<'_, K, V, S>) -> R,
) -> R
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    handle.__call_in("read", |guard, map| f(guard, map.read(guard)), gone)
}

/// Writes a large entry by `put`, on the slow path. The entry passes by reference.
#[inline(never)]
#[track_caller]
fn put_large<K, V, S, R>(
    handle: Handle<dyn Map<K, V, S>>,
    gone: impl Answer<R>,
    entry: (K, V),
    put: impl FnOnce(Store<'_, K, V, S>, &Guard, &mut Option<(K, V)>) -> R,
) -> R
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let mut entry = Some(entry);
    write(handle, gone, |guard, store| put(store, guard, &mut entry))
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
        self.__call_action("read", Read { key, f }, panics_in!("with"))
    }

    #[inline]
    #[track_caller]
    fn get<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Copy,
    {
        self.__call_action("read", Read { key, f: |value: &V| *value }, panics_in!("get"))
    }

    #[inline]
    #[track_caller]
    fn get_cloned<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.__call_action("read", Read { key, f: V::clone }, panics_in!("get_cloned"))
    }

    #[inline]
    #[track_caller]
    fn contains_key<Q: Eq + Hash + ?Sized>(self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.__call_action("read", Contains { key }, panics_in!("contains_key"))
    }

    #[inline]
    #[track_caller]
    fn insert(self, key: K, value: V) -> Option<V>
    where
        V: Clone,
    {
        if const { is_large::<K, V>() } {
            return put_large(self, panics_in!("insert"), (key, value), |store, guard, entry| {
                store.insert(guard, entry)
            });
        }
        self.__call_action("write", Insert { key, value }, panics_in!("insert"))
    }

    #[inline]
    #[track_caller]
    fn set(self, key: K, value: V) -> bool {
        if const { is_large::<K, V>() } {
            return put_large(self, panics_in!("set"), (key, value), |store, guard, entry| {
                store.set(guard, entry)
            });
        }
        self.__call_action("write", Set { key, value }, panics_in!("set"))
    }

    #[track_caller]
    fn try_insert(self, key: K, value: V) -> Result<(), (K, V)> {
        write(self, panics_in!("try_insert"), |guard, store| store.try_insert(guard, key, value))
    }

    #[track_caller]
    fn get_or_insert_with(self, key: K, value: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        write(self, panics_in!("get_or_insert_with"), |guard, store| {
            store.get_or_insert_with(guard, key, value)
        })
    }

    #[inline]
    #[track_caller]
    fn remove<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.__call_action("write", Remove { key }, panics_in!("remove"))
    }

    #[track_caller]
    fn remove_entry<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q> + Clone,
        V: Clone,
    {
        write(self, panics_in!("remove_entry"), |guard, store| store.remove_entry(guard, key))
    }

    #[inline]
    #[track_caller]
    fn delete<Q: Eq + Hash + ?Sized>(self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.__call_action("write", Discard { key }, panics_in!("delete"))
    }

    #[track_caller]
    fn remove_if<Q: Eq + Hash + ?Sized>(self, key: &Q, mut f: impl FnMut(&V) -> bool) -> bool
    where
        K: Borrow<Q>,
    {
        let decide = |value: &V| if f(value) { Compute::Remove } else { Compute::Keep };
        write(self, panics_in!("remove_if"), |guard, store| store.change(guard, key, decide))
            == Computed::Removed
    }

    #[inline]
    #[track_caller]
    fn update<Q: Eq + Hash + ?Sized>(self, key: &Q, mut f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q>,
    {
        let f = |value: &V| Compute::Put(f(value));
        self.__call_action("write", Change { key, f }, panics_in!("update")) == Computed::Updated
    }

    #[inline]
    #[track_caller]
    fn update_in_place<Q: Eq + Hash + ?Sized, R>(self, key: &Q, mut f: impl FnMut(&mut V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        let mut result = None;
        let f = |value: &V| {
            let mut value = value.clone();
            result = Some(f(&mut value));
            Compute::Put(value)
        };
        let done = self.__call_action("write", Change { key, f }, panics_in!("update_in_place"));
        // `f` may have run although another thread then removed the key.
        result.filter(|_| done == Computed::Updated)
    }

    #[track_caller]
    fn compute_if_present<Q: Eq + Hash + ?Sized>(self, key: &Q, f: impl FnMut(&V) -> Compute<V>) -> Computed
    where
        K: Borrow<Q>,
    {
        self.__call_action("write", Change { key, f }, panics_in!("compute_if_present"))
    }

    #[track_caller]
    fn compute(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed {
        write(self, panics_in!("compute"), |guard, store| store.compute(guard, key, f))
    }

    #[track_caller]
    fn compute_with<R>(self, key: K, mut f: impl FnMut(Option<&V>) -> (Compute<V>, R)) -> R {
        let mut result = None;
        let decide = |there: Option<&V>| {
            let (decision, last) = f(there);
            result = Some(last);
            decision
        };
        write(self, panics_in!("compute_with"), |guard, store| store.compute(guard, key, decide));
        result.expect("`compute` calls its closure")
    }

    #[track_caller]
    fn set_or_full(self, key: K, value: V) -> Result<bool, Full<(K, V)>> {
        write(self, panics_in!("set_or_full"), |guard, store| store.set_or_full(guard, key, value))
    }

    #[track_caller]
    fn compute_or_full(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Result<Computed, Full<()>> {
        write(self, panics_in!("compute_or_full"), |guard, store| store.compute_or_full(guard, key, f))
    }

    #[track_caller]
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, ResizeError> {
        let resized =
            self.try_resized(size).unwrap_or_else(|error| panics_in!("set_cluster_size").answer(error));
        let (handle, new) = resized.ok_or(ResizeError::OneForAll(Handle::id(self)))?;
        Swap::new(handle).run(new).map_err(ResizeError::Swap)
    }

    #[track_caller]
    fn swap_to(self, new: Replacement<dyn Map<K, V, S>>) -> Result<SwapReport, SwapError> {
        let mut handle = self;
        // A swap of a destroyed map returns the error.
        while let Ok(Some(inner)) = handle.try_inner() {
            handle = inner;
        }
        Swap::new(handle).run(new)
    }

    fn entry(self, key: K) -> Entry<K, V, S>
    where
        V: Clone,
    {
        Entry::new(self, key)
    }

    fn drain(self) -> Drain<K, V, S>
    where
        K: Clone,
        V: Clone,
    {
        Drain::new(self, self.keys())
    }

    #[track_caller]
    fn for_each(self, mut f: impl FnMut(&K, &V)) {
        let mut from = Some(0);
        while let Some(at) = from {
            from = read(self, panics_in!("for_each"), |_, store| store.visit_from(at, &mut f));
        }
    }

    #[track_caller]
    fn retain(self, mut f: impl FnMut(&K, &V) -> bool) {
        let mut from = Some(0);
        while let Some(at) = from {
            from = write(self, panics_in!("retain"), |_, store| store.0.retain_from(at, &mut f));
        }
    }

    #[track_caller]
    fn len(self) -> usize {
        read(self, panics_in!("len"), |_, store| store.len())
    }

    #[track_caller]
    fn capacity(self) -> usize {
        read(self, panics_in!("capacity"), |_, store| store.capacity())
    }

    #[track_caller]
    fn try_reserve(self, more: usize) -> bool {
        write(self, panics_in!("try_reserve"), |_, store| store.0.try_reserve(more))
    }

    #[track_caller]
    fn shrink_to_fit(self) {
        write(self, panics_in!("shrink_to_fit"), |_, store| store.0.shrink_to_fit());
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
        self.__call_action("read", TryRead(Read { key, f }), returns_in!("with"))
    }

    #[inline]
    fn try_get<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Result<Option<V>, CallError>
    where
        K: Borrow<Q>,
        V: Copy,
    {
        self.__call_action("read", TryRead(Read { key, f: |value: &V| *value }), returns_in!("get"))
    }

    #[inline]
    fn try_get_cloned<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Result<Option<V>, CallError>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.__call_action("read", TryRead(Read { key, f: V::clone }), returns_in!("get_cloned"))
    }

    fn try_set(self, key: K, value: V) -> Result<bool, CallError> {
        write(self, returns_in!("set"), |guard, store| Ok(store.set(guard, &mut Some((key, value)))))
    }

    fn try_delete<Q: Eq + Hash + ?Sized>(self, key: &Q) -> Result<bool, CallError>
    where
        K: Borrow<Q>,
    {
        write(self, returns_in!("delete"), |guard, store| Ok(store.delete(guard, key)))
    }

    fn try_compute(self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Result<Computed, CallError> {
        write(self, returns_in!("compute"), |guard, store| Ok(store.compute(guard, key, f)))
    }

    fn try_for_each(self, mut f: impl FnMut(&K, &V)) -> Result<(), CallError> {
        let mut from = Some(0);
        while let Some(at) = from {
            from = read(self, returns_in!("for_each"), |_, store| Ok(store.visit_from(at, &mut f)))?;
        }
        Ok(())
    }

    #[track_caller]
    fn visit_from(self, from: u64, f: impl FnMut(&K, &V)) -> Option<u64> {
        read(self, panics_in!("iter"), |_, store| store.visit_from(from, f))
    }
}

impl<K, V, S> Iterator for Drain<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        // A key that another thread has removed meanwhile is skipped.
        self.keys.find_map(|key| self.map.remove(&key).map(|value| (key, value)))
    }
}

impl<K, V, S> Drop for Drain<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn drop(&mut self) {
        if std::thread::panicking() == self.made_in_panic {
            let map = self.map;
            self.keys.by_ref().for_each(|key| _ = map.delete(&key));
        }
    }
}
