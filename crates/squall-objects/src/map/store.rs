//! What the forms of a map have in common: the structure that holds the entries, and what is done to it, with the types of
//! the caller.
//!
//! Problem: a method of an interface has no type parameters, and a map's best ones do: any borrowed form of a key, any closure. Idea: a
//! call of the object lends its [`Store`], and what the caller wants is done to that, compiled for the caller's types. Reads take it
//! for the rest of an operation, so that they are one call and no more; what writes does so within the call.
//!
//! - I1. What writes to a store does so within a call of the object, so that a swap waits for it, or holds it up, before the
//!   entries move.
//! - I2. A store whose entries have moved is not changed any more, nor emptied, before the operations that were lent it are over, unless
//!   the next form goes on with its table. So a read of a store that was swapped away meanwhile finds what the map had at a moment from
//!   the swap on, which is within the read.
//! - I3. No closure of the user's runs under a lock.

use squall_rcu::Guard;
use squall_parts::table::{Compute, Computed, Table};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::Map;
use super::limited::{Full, Limited};
use super::locked::Locked;
use super::parts::Parts;
use super::replicated::Place;

/// The structure in which a map has its entries, lent by a call of the object.
pub struct Store<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S>(Form<'a, K, V, S>);

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Clone for Store<'_, K, V, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Copy for Store<'_, K, V, S> {}

/// The forms.
pub(super) enum Form<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    Central(&'a Table<K, V, S>),
    Locked(&'a Locked<K, V, S>),
    Partitioned(&'a Parts<K, V, S>),
    Replicated(&'a Place<K, V, S>),
    Limited(&'a Limited<K, V, S>),
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Clone for Form<'_, K, V, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Copy for Form<'_, K, V, S> {}

/// Does the same with each form.
macro_rules! each {
    ($store:expr, $form:ident => $do:expr) => {
        match $store.0 {
            Form::Central($form) => $do,
            Form::Locked($form) => $do,
            Form::Partitioned($form) => $do,
            Form::Replicated($form) => $do,
            Form::Limited($form) => $do,
        }
    };
}

/// The same, but what is done with a table is compiled into the caller, behind one comparison and not behind a jump through a list of the
/// forms, and what is done with the form of one lock behind another; all else is called.
macro_rules! central {
    ($store:expr, $table:ident => $within:expr, $form:ident => $do:expr) => {
        match $store.0 {
            Form::Central($table) => $within,
            Form::Locked($form) => $do,
            other => apart(move || match other {
                Form::Central(_) | Form::Locked(_) => unreachable!("those are other arms'"),
                Form::Partitioned($form) => $do,
                Form::Replicated($form) => $do,
                Form::Limited($form) => $do,
            }),
        }
    };
}

#[inline(never)]
fn apart<R>(f: impl FnOnce() -> R) -> R {
    f()
}

impl<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S> Store<'a, K, V, S> {
    pub(super) fn new(form: Form<'a, K, V, S>) -> Store<'a, K, V, S> {
        Store(form)
    }

    /// A table, for an implementation of your own.
    pub fn table(table: &'a Table<K, V, S>) -> Store<'a, K, V, S> {
        Store(Form::Central(table))
    }
}

impl<K, V, S> Store<'_, K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    // --- reading ---

    /// What `f` makes of the key's value.
    #[inline(always)]
    pub fn read<Q: Eq + Hash + ?Sized, R>(&self, guard: &Guard, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        // A table that is all there is, and whose readers are not counted, is read without this (`Lends` of a map).
        match self.0 {
            Form::Locked(form) => form.read_in(guard, key, f),
            _ => apart(|| each!(self, form => form.read_in(guard, key, f))),
        }
    }

    /// Whether the key is there. Nothing is copied.
    #[inline(always)]
    pub(super) fn contains<Q: Eq + Hash + ?Sized>(&self, guard: &Guard, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        match self.0 {
            Form::Locked(locked) => locked.contains_in(guard, key),
            _ => self.read(guard, key, |_| ()).is_some(),
        }
    }

    /// Calls `f` for some entries, from a position on; returns the position after them: see [`Table::visit_from`].
    pub fn visit_from(&self, from: u64, f: impl FnMut(&K, &V)) -> Option<u64> {
        each!(self, form => form.visit_from(from, f))
    }

    /// How many entries there are: exactly if nobody writes, else about.
    pub fn len(&self) -> usize {
        each!(self, form => form.len())
    }

    /// Whether there is no entry, as [`len`](Store::len) has it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries for which there is room before it grows.
    pub fn capacity(&self) -> usize {
        each!(self, form => form.capacity())
    }

    // --- writing: within a call (I1) ---

    /// Writes to what a call of `map` lent, before it is over.
    #[inline(always)]
    pub(super) fn within<'o, R>(
        self,
        map: &dyn Map<K, V, S>,
        guard: &'o Guard,
        f: impl FnOnce(&'o Guard, Self) -> R,
    ) -> R {
        let result = f(guard, self);
        // Under one lock when it was lent, and a table now.
        if matches!(self.0, Form::Locked(locked) if locked.spilled().is_some()) {
            map.spilled();
        }
        result
    }

    #[inline(always)]
    pub(super) fn insert(&self, guard: &Guard, key: K, value: V) -> Option<V>
    where
        V: Clone,
    {
        central!(self, table => table.put_in(guard, key, value, V::clone), form => form.insert(key, value))
    }

    #[inline(always)]
    pub(super) fn set(&self, guard: &Guard, key: K, value: V) -> bool {
        central!(self, table => table.put_in(guard, key, value, |_| ()).is_some(), form => form.set(key, value))
    }

    pub(super) fn try_insert(&self, key: K, value: V) -> Result<(), (K, V)> {
        each!(self, form => form.try_insert(key, value))
    }

    pub(super) fn get_or_insert_with(&self, key: K, value: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        each!(self, form => form.get_or_insert_with(key, value))
    }

    #[inline(always)]
    pub(super) fn remove<Q: Eq + Hash + ?Sized>(&self, guard: &Guard, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        central!(self, table => table.take_in(guard, key, V::clone), form => form.remove(key))
    }

    #[inline(always)]
    pub(super) fn discard<Q: Eq + Hash + ?Sized>(&self, guard: &Guard, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        central!(self, table => table.take_in(guard, key, |_| ()).is_some(), form => form.discard(key))
    }

    /// Does with a key that is there what `f` says of its value.
    #[inline(always)]
    pub(super) fn change<Q: Eq + Hash + ?Sized>(
        &self,
        guard: &Guard,
        key: &Q,
        f: impl FnMut(&V) -> Compute<V>,
    ) -> Computed
    where
        K: Borrow<Q>,
    {
        central!(self, table => table.change_in(guard, key, f), form => form.change(key, f))
    }

    pub(super) fn compute(&self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed {
        each!(self, form => form.compute(key, f))
    }

    /// As `set`, with an error where there is a limit.
    pub(super) fn put_within(&self, guard: &Guard, key: K, value: V) -> Result<bool, Full<(K, V)>> {
        match self.0 {
            Form::Limited(limited) => limited.put_within(key, value),
            _ => Ok(self.set(guard, key, value)),
        }
    }

    /// As `compute`, with an error where there is a limit.
    pub(super) fn compute_within(
        &self,
        key: K,
        f: impl FnMut(Option<&V>) -> Compute<V>,
    ) -> Result<Computed, Full<()>> {
        match self.0 {
            Form::Limited(limited) => limited.compute_within(key, f),
            _ => Ok(self.compute(key, f)),
        }
    }

    pub(super) fn retain_from(&self, from: u64, f: impl FnMut(&K, &V) -> bool) -> Option<u64> {
        each!(self, form => form.retain_from(from, f))
    }

    pub(super) fn try_reserve(&self, more: usize) -> bool {
        each!(self, form => form.try_reserve(more))
    }

    pub(super) fn shrink_to_fit(&self) {
        each!(self, form => form.shrink_to_fit());
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> std::fmt::Debug for Store<'_, K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}
