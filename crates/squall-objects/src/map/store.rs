//! The store of a map: a borrowed reference to the structure that holds the entries, in one of the forms.
//!
//! Problem: an interface method has no type parameters, but a map's methods need them, for borrowed forms
//! of keys and for closures. Idea: a call of the object returns a [`Store`], and the operation runs on
//! that, compiled for the caller's types. A read may use the store for the rest of the operation, so it
//! needs one call. A write ends within the call.
//!
//! - I1. A write to a store runs within a call of the object. So a swap waits for it or holds it up before
//!   the entries move.
//! - I2. Entries have moved from a store: it stays unchanged, and keeps its entries, while an operation
//!   that got it still runs. The exception is a next form that continues with its table. So a read that got
//!   a store before a swap finds a state the map had during that read.
//! - I3. User closures run under no lock.

use squall_parts::table::{Compute, Computed, Table};
use squall_rcu::Guard;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::Map;
use super::full::Full;
use super::limited::Limited;
use super::locked::Locked;
use super::parts::Parts;
use super::replicated::LocalCopies;

/// A borrowed reference to the structure that holds a map's entries, returned by a call of the object.
///
/// Implementations of [`Map`] make one from a table of their own.
///
/// ```
/// use squall_objects::map::Store;
/// use squall_parts::table::Table;
///
/// let table: Table<u64, u64> = [(1, 10)].into_iter().collect();
/// let store = Store::table(&table);
/// squall_rcu::pin(|guard| assert_eq!(store.read(guard, &1, |value| *value), Some(10)));
/// assert_eq!(store.len(), 1);
/// ```
pub struct Store<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S>(Form<'a, K, V, S>);

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Clone for Store<'_, K, V, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Copy for Store<'_, K, V, S> {}

/// The structure that holds the entries, one variant per form.
pub(super) enum Form<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    Shared(&'a Table<K, V, S>),
    Locked(&'a Locked<K, V, S>),
    Partitioned(&'a Parts<K, V, S>),
    Replicated(&'a LocalCopies<K, V, S>),
    Limited(&'a Limited<K, V, S>),
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Clone for Form<'_, K, V, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Copy for Form<'_, K, V, S> {}

/// Runs an expression on the structure of each form.
macro_rules! each {
    ($store:expr, $form:ident => $do:expr) => {
        match $store.0 {
            Form::Shared($form) => $do,
            Form::Locked($form) => $do,
            Form::Partitioned($form) => $do,
            Form::Replicated($form) => $do,
            Form::Limited($form) => $do,
        }
    };
}

/// Runs an expression on the structure of each form. The code for a table is inlined behind one comparison,
/// and the code for a locked map behind a second one. All other forms are called out of line. So the
/// frequent forms need no jump table.
macro_rules! shared {
    ($store:expr, $table:ident => $inlined:expr, $form:ident => $do:expr) => {
        match $store.0 {
            Form::Shared($table) => $inlined,
            Form::Locked($form) => $do,
            other => out_of_line(move || match other {
                Form::Shared(_) | Form::Locked(_) => {
                    unreachable!("a shared or locked form reached the path of the other forms")
                }
                Form::Partitioned($form) => $do,
                Form::Replicated($form) => $do,
                Form::Limited($form) => $do,
            }),
        }
    };
}

#[inline(never)]
fn out_of_line<R>(f: impl FnOnce() -> R) -> R {
    f()
}

impl<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S> Store<'a, K, V, S> {
    pub(super) fn new(form: Form<'a, K, V, S>) -> Store<'a, K, V, S> {
        Store(form)
    }

    /// Returns a store for a table, for an implementation of your own.
    pub fn table(table: &'a Table<K, V, S>) -> Store<'a, K, V, S> {
        Store(Form::Shared(table))
    }
}

impl<K, V, S> Store<'_, K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    // --- reading ---

    /// Calls `f` with the key's value and returns its result, or `None` if the key is absent.
    #[inline(always)]
    pub fn read<Q: Eq + Hash + ?Sized, R>(&self, guard: &Guard, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        // A table with a view is read without this function: see `view.rs`.
        match self.0 {
            Form::Locked(form) => form.read_in(guard, key, f),
            _ => out_of_line(|| each!(self, form => form.read_in(guard, key, f))),
        }
    }

    /// Whether the key is present. Clones no value.
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

    /// Calls `f` for some entries, from a position on. Returns the position after them: see
    /// [`Table::visit_from`].
    pub fn visit_from(&self, from: u64, f: impl FnMut(&K, &V)) -> Option<u64> {
        each!(self, form => form.visit_from(from, f))
    }

    /// Returns the number of entries: exact while no thread writes, approximate otherwise.
    pub fn len(&self) -> usize {
        each!(self, form => form.len())
    }

    /// Whether there is no entry, as accurate as [`len`](Store::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of entries for which there is room before the structure grows.
    pub fn capacity(&self) -> usize {
        each!(self, form => form.capacity())
    }

    // --- writing: within a call of the object (I1) ---

    /// Runs `f` on the store that a call of `map` returned, within that call.
    #[inline(always)]
    pub(super) fn run_write<'o, R>(
        self,
        map: &dyn Map<K, V, S>,
        guard: &'o Guard,
        f: impl FnOnce(&'o Guard, Self) -> R,
    ) -> R {
        let result = f(guard, self);
        // The map was under its lock when the call began, and has a table now.
        if matches!(self.0, Form::Locked(locked) if locked.spilled().is_some()) {
            map.note_spill();
        }
        result
    }

    #[inline(always)]
    pub(super) fn insert(&self, guard: &Guard, key: K, value: V) -> Option<V>
    where
        V: Clone,
    {
        shared!(self, table => table.put_in(guard, key, value, V::clone), form => form.insert(key, value))
    }

    #[inline(always)]
    pub(super) fn set(&self, guard: &Guard, key: K, value: V) -> bool {
        shared!(self, table => table.put_in(guard, key, value, |_| ()).is_some(), form => form.set(key, value))
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
        shared!(self, table => table.take_in(guard, key, V::clone), form => form.remove(key))
    }

    #[inline(always)]
    pub(super) fn discard<Q: Eq + Hash + ?Sized>(&self, guard: &Guard, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        shared!(self, table => table.take_in(guard, key, |_| ()).is_some(), form => form.discard(key))
    }

    /// Replaces, removes or keeps the entry of a key that is present, as `f` decides.
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
        shared!(self, table => table.compute_if_present_in(guard, key, f), form => form.change(key, f))
    }

    pub(super) fn compute(&self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed {
        each!(self, form => form.compute(key, f))
    }

    /// Sets the key's value, or returns an error if the map is limited and full.
    pub(super) fn set_or_full(&self, guard: &Guard, key: K, value: V) -> Result<bool, Full<(K, V)>> {
        match self.0 {
            Form::Limited(limited) => limited.set_or_full(key, value),
            _ => Ok(self.set(guard, key, value)),
        }
    }

    /// Inserts, replaces, removes or keeps the entry, as `f` decides, or returns an error if the map is
    /// limited and full.
    pub(super) fn compute_or_full(
        &self,
        key: K,
        f: impl FnMut(Option<&V>) -> Compute<V>,
    ) -> Result<Computed, Full<()>> {
        match self.0 {
            Form::Limited(limited) => limited.compute_or_full(key, f),
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
