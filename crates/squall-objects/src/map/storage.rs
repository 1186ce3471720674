//! `Storage`: the operations of a structure that holds a map's entries, as a trait object.
//!
//! Problem: a map's methods have type parameters, for borrowed forms of keys and for closures. Compiled for
//! each of them and for each form, a map takes a compiler half a minute. Idea: the methods of [`Storage`]
//! have no such parameters. Keys and closures come as trait objects, an entry in an `Option` that is
//! emptied. So each structure is compiled once for its types of entries, and only if the program makes it.

use squall_parts::table::{__clones_without_user_code, Compute, Computed, Table};
use squall_parts::{__DropEach, __Drops};
use squall_rcu::{__pin as pin, Guard};
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::full::Full;
use super::key::{Borrowed, KeyForm};

/// Operations of a structure that holds entries.
pub(super) trait Storage<K, V, S>: Send + Sync {
    /// Calls `f` with the key's value. Returns whether the key is present.
    fn read(&self, guard: &Guard, key: &dyn KeyForm<K, S>, f: &mut dyn FnMut(&V)) -> bool;

    /// Whether the key is present. Clones no value.
    fn contains(&self, guard: &Guard, key: &dyn KeyForm<K, S>) -> bool {
        self.read(guard, key, &mut |_| ())
    }

    /// Calls `f` with the stored key. Returns whether the key is present.
    fn find_key(&self, guard: &Guard, key: &dyn KeyForm<K, S>, f: &mut dyn FnMut(&K)) -> bool;

    /// Takes the entry out, and sets its key to its value. Returns whether the key was present. If the clone
    /// of the old value panics, the structure is unchanged.
    fn put(&self, guard: &Guard, entry: &mut Option<(K, V)>, old: &mut Old<V>) -> bool;

    /// Returns a clone of the key's value, for an insertion if it is absent. Makes no copy of the entry
    /// in the replicated form.
    fn get(&self, guard: &Guard, key: &dyn KeyForm<K, S>, value: &mut Old<V>) -> bool {
        self.read(guard, key, &mut |there| value.see(Some(there)))
    }

    /// Takes the entry out and inserts it if its key is absent, and returns `true`. Otherwise the entry
    /// stays, and `present` gets a clone of the present value if it wants one.
    fn try_insert(&self, guard: &Guard, entry: &mut Option<(K, V)>, present: &mut Old<V>) -> bool;

    /// Removes the key. Returns whether it was present. If the clone of its value panics, the structure is
    /// unchanged.
    fn take(&self, guard: &Guard, key: &dyn KeyForm<K, S>, old: &mut Old<V>) -> bool;

    /// Replaces, removes or keeps the entry of a key that is present, as `f` decides. Drops after the change
    /// run in `drops`. So a panic in one does not hide the result.
    fn change(
        &self,
        guard: &Guard,
        key: &dyn KeyForm<K, S>,
        f: &mut dyn FnMut(&V) -> Compute<V>,
        drops: &mut __Drops,
    ) -> Computed;

    /// Inserts, replaces, removes or keeps the entry, as `f` decides. Takes the key out if it inserts it.
    /// Drops after the change run in `drops`.
    fn compute(
        &self,
        guard: &Guard,
        key: &mut Option<K>,
        f: &mut dyn FnMut(Option<&V>) -> Compute<V>,
        drops: &mut __Drops,
    ) -> Computed;

    /// Like [`put`](Storage::put). If the structure is limited and full, the entry stays.
    fn put_or_full(
        &self,
        guard: &Guard,
        entry: &mut Option<(K, V)>,
        old: &mut Old<V>,
    ) -> Result<bool, Full<()>> {
        Ok(self.put(guard, entry, old))
    }

    /// Like [`compute`](Storage::compute). If the structure is limited and full, it stays unchanged.
    fn compute_or_full(
        &self,
        guard: &Guard,
        key: &mut Option<K>,
        f: &mut dyn FnMut(Option<&V>) -> Compute<V>,
        drops: &mut __Drops,
    ) -> Result<Computed, Full<()>> {
        Ok(self.compute(guard, key, f, drops))
    }

    /// Calls `f` for some entries, from a position on. Returns the position after them.
    fn visit_from(&self, from: u64, f: &mut dyn FnMut(&K, &V)) -> Option<u64>;
    /// Removes some entries unless `f` returns `true`, from a position on. Returns the position after them.
    fn retain_from(&self, from: u64, f: &mut dyn FnMut(&K, &V) -> bool) -> Option<u64>;
    /// Returns the number of entries: exact while no thread writes, approximate otherwise.
    fn len(&self) -> usize;
    /// Returns the number of entries for which there is room before the structure grows.
    fn capacity(&self) -> usize;
    /// Reserves room for further entries. Returns `false` if memory is exhausted.
    fn try_reserve(&self, more: usize) -> bool;
    fn shrink_to_fit(&self);

    /// Whether a table has replaced this structure, since it had too many entries.
    fn has_spilled(&self) -> bool {
        false
    }
}

/// The value that an operation finds, replaces or removes, if the caller wants it.
pub(super) struct Old<V> {
    clone: Option<fn(&V) -> V>,
    value: Option<V>,
}

impl<V> Old<V> {
    pub(super) fn unwanted() -> Old<V> {
        Old { clone: None, value: None }
    }

    pub(super) fn wanted() -> Old<V>
    where
        V: Clone,
    {
        Old { clone: Some(V::clone), value: None }
    }

    /// Keeps a clone of this value if it is wanted, in place of an earlier one.
    pub(super) fn see(&mut self, value: Option<&V>) {
        self.value = value.and_then(|value| self.clone.map(|clone| clone(value)));
    }

    /// Keeps this value if it is wanted. In a function of its own, so that a large value takes no room on the
    /// stack of its callers in unoptimised builds.
    pub(super) fn keep(&mut self, value: V) {
        if self.clone.is_some() {
            self.value = Some(value);
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.clone.is_some()
    }

    pub(super) fn into_value(mut self) -> Option<V> {
        self.value.take()
    }
}

/// Drops the value of an operation that panicked. A second panic would end the process.
impl<V> Drop for Old<V> {
    #[inline]
    fn drop(&mut self) {
        if mem::needs_drop::<V>()
            && let Some(value) = self.value.take()
        {
            __Drops::default().run(|| drop(value));
        }
    }
}

/// Removes the entries of these keys for which `f` returns `false`, in an operation for each. A panic in the
/// drop of an entry stops no other removal; the first one goes on at the end. A panic in `f` goes on at once.
pub(super) fn retain_keys<K, V, S>(
    storage: &dyn Storage<K, V, S>,
    keys: Vec<K>,
    f: &mut dyn FnMut(&K, &V) -> bool,
) where
    K: Eq + Hash,
    S: BuildHasher,
{
    let (keys, mut drops) = (__DropEach(keys), __Drops::default());
    for key in &keys.0 {
        let mut is_in_f = false;
        let mut decide = |value: &V| {
            is_in_f = true;
            let keep = f(key, value);
            is_in_f = false;
            if keep { Compute::Keep } else { Compute::Remove }
        };
        let change = || pin(|guard| storage.change(guard, &Borrowed(key), &mut decide, &mut drops));
        match catch_unwind(AssertUnwindSafe(change)) {
            Ok(_) => {}
            Err(panic) if is_in_f => resume_unwind(panic),
            Err(panic) => drops.keep(panic),
        }
    }
}

/// Removes the key, after the clone of its value. For structures whose removal does not clone first.
pub(super) fn take_seen<K, V, S>(
    storage: &dyn Storage<K, V, S>,
    guard: &Guard,
    key: &dyn KeyForm<K, S>,
    old: &mut Old<V>,
) -> bool {
    let mut drops = __Drops::default();
    let mut remove = |value: &V| {
        old.see(Some(value));
        Compute::Remove
    };
    let is_removed = storage.change(guard, key, &mut remove, &mut drops) == Computed::Removed;
    if !is_removed {
        old.see(None);
    }
    is_removed
}

impl<K, V, S> Storage<K, V, S> for Table<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync,
{
    fn read(&self, guard: &Guard, key: &dyn KeyForm<K, S>, f: &mut dyn FnMut(&V)) -> bool {
        self.__read(guard, key.hash(self.hasher()), &|there| key.is(there), f)
    }

    fn find_key(&self, guard: &Guard, key: &dyn KeyForm<K, S>, f: &mut dyn FnMut(&K)) -> bool {
        let mut f = |key: &K, _: &V| f(key);
        self.__read_entry(guard, key.hash(self.hasher()), &|there| key.is(there), &mut f)
    }

    fn put(&self, guard: &Guard, entry: &mut Option<(K, V)>, old: &mut Old<V>) -> bool {
        if !old.is_wanted() || __clones_without_user_code::<V>() {
            return self.__put(guard, entry, &mut |value| old.see(Some(value)));
        }
        let was_present = self.__put_seen(guard, entry, &mut |value| old.see(Some(value)));
        if !was_present {
            old.see(None);
        }
        was_present
    }

    fn try_insert(&self, guard: &Guard, entry: &mut Option<(K, V)>, present: &mut Old<V>) -> bool {
        self.__try_insert(guard, entry, &mut |there| present.see(Some(there)))
    }

    fn take(&self, guard: &Guard, key: &dyn KeyForm<K, S>, old: &mut Old<V>) -> bool {
        if !old.is_wanted() || __clones_without_user_code::<V>() {
            let is_key = |there: &K| key.is(there);
            return self.__take(guard, key.hash(self.hasher()), &is_key, &mut |value| old.see(Some(value)));
        }
        take_seen(self, guard, key, old)
    }

    fn change(
        &self,
        guard: &Guard,
        key: &dyn KeyForm<K, S>,
        f: &mut dyn FnMut(&V) -> Compute<V>,
        _: &mut __Drops,
    ) -> Computed {
        self.__change(guard, key.hash(self.hasher()), &|there| key.is(there), f)
    }

    fn compute(
        &self,
        guard: &Guard,
        key: &mut Option<K>,
        f: &mut dyn FnMut(Option<&V>) -> Compute<V>,
        _: &mut __Drops,
    ) -> Computed {
        self.__compute(guard, key, f)
    }

    fn visit_from(&self, from: u64, f: &mut dyn FnMut(&K, &V)) -> Option<u64> {
        Table::visit_from(self, from, f)
    }

    fn retain_from(&self, from: u64, f: &mut dyn FnMut(&K, &V) -> bool) -> Option<u64> {
        Table::retain_from(self, from, f)
    }

    fn len(&self) -> usize {
        Table::len(self)
    }

    fn capacity(&self) -> usize {
        Table::capacity(self)
    }

    fn try_reserve(&self, more: usize) -> bool {
        Table::try_reserve(self, more)
    }

    fn shrink_to_fit(&self) {
        Table::shrink_to_fit(self);
    }
}
