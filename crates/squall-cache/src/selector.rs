//! Selectors of entries.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::entry::Entry;
use crate::ops::compute::{CompResult, Computed, Op};
use crate::sync::Cache;

/// A key of a cache, for one operation on its entry. [`Cache::entry`] returns it.
pub struct EntrySelector<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    cache: &'a Cache<K, V, S>,
    key: K,
}

impl<'a, K, V, S> EntrySelector<'a, K, V, S>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    pub(crate) fn new(cache: &'a Cache<K, V, S>, key: K) -> EntrySelector<'a, K, V, S> {
        EntrySelector { cache, key }
    }

    /// Returns the entry. If it is absent, inserts this value. Blocks while another caller loads the key.
    pub fn or_insert(self, default: V) -> Entry<K, V> {
        self.or_insert_with(|| default)
    }

    /// Returns the entry. If it is absent, inserts the default value. Blocks while another caller loads the
    /// key.
    pub fn or_default(self) -> Entry<K, V>
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }

    /// Returns the entry. If it is absent, `init` makes the value. Of several callers, one runs its `init`,
    /// and the others block: see [`Cache::get_with`].
    pub fn or_insert_with(self, init: impl FnOnce() -> V) -> Entry<K, V> {
        let EntrySelector { cache, key } = self;
        let mut is_fresh = false;
        let make = || {
            is_fresh = true;
            init()
        };
        let value = cache.get_with(key.clone(), make);
        Entry::new(Arc::new(key), value, is_fresh, false)
    }

    /// Returns the entry. If it is absent, `init` may make the value: see [`Cache::optionally_get_with`].
    pub fn or_optionally_insert_with(self, init: impl FnOnce() -> Option<V>) -> Option<Entry<K, V>> {
        let EntrySelector { cache, key } = self;
        let mut is_fresh = false;
        let make = || {
            is_fresh = true;
            init()
        };
        let value = cache.optionally_get_with(key.clone(), make)?;
        Some(Entry::new(Arc::new(key), value, is_fresh, false))
    }

    /// Returns the entry. If it is absent, `init` makes the value, or fails: see [`Cache::try_get_with`].
    ///
    /// # Errors
    /// The error of `init`.
    pub fn or_try_insert_with<E>(self, init: impl FnOnce() -> Result<V, E>) -> Result<Entry<K, V>, Arc<E>> {
        let EntrySelector { cache, key } = self;
        let mut is_fresh = false;
        let make = || {
            is_fresh = true;
            init()
        };
        let value = cache.try_get_with(key.clone(), make)?;
        Ok(Entry::new(Arc::new(key), value, is_fresh, false))
    }

    /// Inserts the key with the value that `f` returns, or replaces its value, like
    /// [`and_compute_with`](Self::and_compute_with). Returns the new entry, even if the cache refused it.
    ///
    /// ```
    /// use squall::cache::Cache;
    ///
    /// let visits: Cache<&str, u64> = Cache::new(100);
    /// let count = || visits.entry("home").and_upsert_with(|old| old.map_or(1, |old| old.into_value() + 1));
    /// assert_eq!((count().into_value(), count().into_value()), (1, 2));
    /// ```
    pub fn and_upsert_with(self, mut f: impl FnMut(Option<Entry<K, V>>) -> V) -> Entry<K, V> {
        match self.and_compute_with(|entry| Op::Put(f(entry))) {
            CompResult::Inserted(entry) | CompResult::ReplacedWith(entry) => entry,
            CompResult::Removed(_) | CompResult::StillNone(_) | CompResult::Unchanged(_) => {
                unreachable!("an upsert has a value")
            }
        }
    }

    /// Inserts, replaces, removes or keeps the entry, as `f` decides, in one atomic step.
    ///
    /// Like [`Cache::compute`], with copies of entries in place of borrowed values. `f` may run several
    /// times, and must not use the cache.
    pub fn and_compute_with(self, mut f: impl FnMut(Option<Entry<K, V>>) -> Op<V>) -> CompResult<K, V> {
        let EntrySelector { cache, key } = self;
        let shared = Arc::new(key.clone());
        let (mut old, mut new) = (None, None);
        let computed = cache.compute(key, |value| {
            old = value.map(|value| Entry::new(shared.clone(), value.clone(), false, false));
            let op = f(old.clone());
            new = match &op {
                Op::Put(value) => Some(value.clone()),
                Op::Nop | Op::Remove => None,
            };
            op
        });
        let made = |value, is_replaced| Entry::new(shared.clone(), value, true, is_replaced);
        match (computed, old, new) {
            (Computed::Replaced | Computed::Refused, Some(_), Some(value)) => {
                CompResult::ReplacedWith(made(value, true))
            }
            (_, _, Some(value)) => CompResult::Inserted(made(value, false)),
            (Computed::Removed, Some(old), None) => CompResult::Removed(old),
            (_, Some(old), None) => CompResult::Unchanged(old),
            (_, None, None) => CompResult::StillNone(shared.clone()),
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> fmt::Debug for EntrySelector<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntrySelector").finish_non_exhaustive()
    }
}
