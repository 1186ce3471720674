//! Fast paths of the lock's owner: the thread to which the lock of a locked map is biased.
//!
//! Each succeeds only if its thread owns the lock, no table has replaced the hash table, and values are plain
//! data. Otherwise the caller takes the slow path.

use squall_parts::__Drops;
use squall_parts::table::{Compute, Computed};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;

use super::{LockGuard, Locked, Numbered, Place, never_rehash};
use crate::map::key::Borrowed;
use crate::map::policy::is_cheap;

/// Whether keys have no drop and values are plain data. Then no user code runs when an entry is dropped, so
/// the lock's owner may write by the view (`view/I1`).
const fn is_plain_entry<K, V: 'static>() -> bool {
    is_cheap::<V>() && !mem::needs_drop::<K>()
}

impl<K, V, S> Locked<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + 'static,
{
    /// Whether the lock is biased to the calling thread, and values are plain data. Then the thread's calls
    /// need no record.
    #[inline(always)]
    pub(in crate::map) fn needs_no_record(&self) -> bool {
        is_cheap::<V>() && self.is_biased_to_me()
    }

    /// Fast path of the lock's owner: returns a copy of the key's value, or that the key is absent. Returns
    /// empty if the slow path is needed: another thread owns the lock, values are not plain data, or a
    /// table has replaced the hash table.
    #[inline(always)]
    pub(in crate::map) fn biased_read<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<Option<V>>
    where
        K: Borrow<Q>,
    {
        if !is_cheap::<V>() {
            return None;
        }
        let hash = self.hash(key);
        let inner = self.inner.lock_if_mine()?;
        match inner.map.find(hash, |(there, _)| there.borrow() == key) {
            // An entry that is found here is not in a table (locked/I3).
            Some((_, held)) => Some(Some(self.cloners.copy(&held.value))),
            None => self.spilled().is_none().then_some(None),
        }
    }

    /// Fast path of the lock's owner: sets the key's value, and returns the old one. Requires room, and
    /// types without user code in their drop (locked/I1).
    ///
    /// # Errors
    /// The slow path is needed. The map is unchanged; key and value come back.
    #[inline(always)]
    pub(in crate::map) fn biased_put(&self, key: K, value: V) -> Result<Option<V>, (K, V)> {
        if !is_plain_entry::<K, V>() {
            return Err((key, value));
        }
        let hash = self.hash(&key);
        let Some(mut guard) = self.inner.lock_if_mine() else { return Err((key, value)) };
        let inner = &mut *guard;
        if let Some((_, held)) = inner.map.find_mut(hash, |(there, _)| *there == key) {
            // An entry that is found here is not in a table (locked/I3).
            inner.numbers += 1;
            return Ok(Some(mem::replace(held, Numbered { number: inner.numbers, value }).value));
        }
        self.biased_add(guard, hash, key, value).map(|()| None)
    }

    /// Inserts a key that is absent. Out of line: an owner's writes mostly replace values.
    #[inline(never)]
    fn biased_add(&self, mut guard: LockGuard<'_, K, V>, hash: u64, key: K, value: V) -> Result<(), (K, V)> {
        let inner = &mut *guard;
        let entries = inner.map.len();
        if entries >= inner.most || entries >= inner.map.capacity() || self.spilled().is_some() {
            return Err((key, value));
        }
        let number = inner.number();
        inner.map.insert_unique(hash, (key, Numbered { number, value }), never_rehash);
        self.publish_counts(inner);
        Ok(())
    }

    /// Fast path of the lock's owner: removes the key, and returns its value. Returns empty if the slow
    /// path is needed, on the conditions of [`biased_put`](Locked::biased_put).
    #[inline(always)]
    pub(in crate::map) fn biased_take<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<Option<V>>
    where
        K: Borrow<Q>,
    {
        if !is_plain_entry::<K, V>() {
            return None;
        }
        let hash = self.hash(key);
        let mut inner = self.inner.lock_if_mine()?;
        let Ok(there) = inner.map.find_entry(hash, |(there, _)| there.borrow() == key) else {
            return self.spilled().is_none().then_some(None);
        };
        let ((_, held), _) = there.remove();
        self.publish_counts(&inner);
        Some(Some(held.value))
    }

    /// Fast path of the lock's owner for `Storage::change`. The key must be present, its value plain data,
    /// and the value must not change while `f` runs. Returns empty, with the map unchanged, if the slow
    /// path is needed. That path calls `f` again.
    #[inline(always)]
    pub(in crate::map) fn biased_change<Q: Eq + Hash + ?Sized>(
        &self,
        key: &Q,
        f: &mut impl FnMut(&V) -> Compute<V>,
    ) -> Option<Computed>
    where
        K: Borrow<Q>,
    {
        if !is_cheap::<V>() {
            return None;
        }
        let hash = self.hash(key);
        let inner = self.inner.lock_if_mine()?;
        let index = inner.map.find_bucket_index(hash, |(there, _)| there.borrow() == key)?;
        let (_, held) = inner.map.get_bucket(index)?;
        let (number, value) = (held.number, self.cloners.copy(&held.value));
        drop(inner);
        match f(&value) {
            Compute::Keep => Some(Computed::Kept),
            Compute::Put(value) => {
                let mut inner = self.inner.lock_if_mine()?;
                let next = inner.number();
                // By its number, as in `apply`. The old value is plain data and needs no drop.
                let (_, there) =
                    inner.map.get_bucket_mut(index).filter(|(_, there)| there.number == number)?;
                *there = Numbered { number: next, value };
                Some(Computed::Updated)
            }
            Compute::Remove => {
                let place = Place { hash, index, number };
                self.apply(&Borrowed(key), place, &mut Compute::Remove, &mut __Drops::default())
            }
        }
    }
}
