//! Writes to a locked map.

use squall_parts::table::{Compute, Computed};
use squall_parts::{__DropQuietly, __Drops};
use std::hash::{BuildHasher, Hash};
use std::mem;

use super::{LockGuard, Locked, Numbered, Place, Spilled, Stored, never_rehash};
use crate::map::key::{Borrowed, KeyForm};
use crate::map::storage::Old;

impl<K, V, S> Locked<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + 'static,
{
    /// Inserts the entry if its key is absent. Otherwise the value there and the one of the entry change
    /// places. Returns whether the key was present.
    pub(super) fn insert_or_replace(&self, entry: &mut Option<(K, V)>) -> Result<bool, Spilled<'_, K, V, S>> {
        let Some((key, value)) = entry else { unreachable!("a put without an entry") };
        let hash = self.hash(key);
        let mut guard = self.lock()?;
        let inner = &mut *guard;
        // A lookup first: an insertion would reserve room even for a key that is present.
        let there = inner.index_of::<S>(hash, &Borrowed(&*key));
        if let Some((_, there)) = there.and_then(|index| inner.map.get_bucket_mut(index)) {
            inner.numbers += 1;
            there.number = inner.numbers;
            mem::swap(&mut there.value, value);
            return Ok(true);
        }
        self.insert_absent(guard, hash, entry);
        Ok(false)
    }

    /// Inserts the entry if its key is absent. Otherwise copies the value there, if that is wanted. `hash` is
    /// the key's. Returns whether it was inserted.
    pub(super) fn insert_or_copy(
        &self,
        hash: u64,
        entry: &mut Option<(K, V)>,
        present: &mut Old<V>,
    ) -> Result<bool, Spilled<'_, K, V, S>> {
        let Some((key, _)) = entry else { unreachable!("an insertion without an entry") };
        let inner = self.lock()?;
        let there = inner.index_of::<S>(hash, &Borrowed(&*key));
        if let Some((_, there)) = there.and_then(|index| inner.map.get_bucket(index)) {
            if present.is_wanted() {
                present.keep(self.cloners.copy(&there.value));
            }
            return Ok(false);
        }
        self.insert_absent(inner, hash, entry);
        Ok(true)
    }

    fn insert_absent(&self, mut inner: LockGuard<'_, K, V>, hash: u64, entry: &mut Option<(K, V)>) {
        self.grow(&mut inner);
        let number = inner.number();
        inner.map.insert_unique(hash, take_numbered(entry, number), never_rehash);
        self.end_insertion(inner);
    }

    /// Removes the key, and returns its entry.
    pub(super) fn take_entry(
        &self,
        key: &dyn KeyForm<K, S>,
    ) -> Result<Option<Stored<K, V>>, Spilled<'_, K, V, S>> {
        let hash = key.hash(&self.hasher);
        let mut inner = self.lock()?;
        let there = inner.index_of(hash, key);
        let there = there.and_then(|index| inner.map.get_bucket_entry(index).ok());
        let taken = there.map(|there| there.remove().0);
        self.publish_counts(&inner);
        Ok(taken)
    }

    /// Like [`apply`](Locked::apply). Then drops the decision, and the copy of the value that led to it.
    pub(super) fn apply_and_drop(
        &self,
        key: &dyn KeyForm<K, S>,
        place: Place,
        mut wanted: Compute<V>,
        seen: __DropQuietly<V>,
        drops: &mut __Drops,
    ) -> Option<Computed> {
        let computed = self.apply(key, place, &mut wanted, drops);
        drops.drop(wanted);
        drops.drop(seen);
        computed
    }

    /// Applies the decision of a closure to the value that it saw. A new value and the old one change places,
    /// so that the caller drops the old one without the lock (locked/I1). A removed entry is dropped in
    /// `drops`, without the lock, too. Returns empty if the value is no longer there, or a table has replaced
    /// the hash table: then the closure must run again.
    pub(super) fn apply(
        &self,
        key: &dyn KeyForm<K, S>,
        place: Place,
        wanted: &mut Compute<V>,
        drops: &mut __Drops,
    ) -> Option<Computed> {
        if matches!(wanted, Compute::Keep) {
            return Some(Computed::Kept);
        }
        let Place { hash, index, number } = place;
        let mut inner = self.lock().ok()?;
        let next = inner.number();
        // At its old index if no entry moved since. The number proves it (locked/I2).
        let is_there = |(_, there): &Stored<K, V>| there.number == number;
        let index = if inner.map.get_bucket(index).is_some_and(is_there) {
            index
        } else {
            let index = inner.index_of(hash, key)?;
            inner.map.get_bucket(index).filter(|there| is_there(there))?;
            index
        };
        if let Compute::Put(value) = wanted {
            let (_, there) = inner.map.get_bucket_mut(index)?;
            there.number = next;
            mem::swap(&mut there.value, value);
            return Some(Computed::Updated);
        }
        let old = inner.map.get_bucket_entry(index).ok()?.remove().0;
        self.publish_counts(&inner);
        drop(inner);
        drops.drop(old);
        Some(Computed::Removed)
    }
}

/// Takes an entry out, and gives it its number. A function of its own: in unoptimised builds, each variable
/// for a large value takes room on the stack.
fn take_numbered<K, V>(entry: &mut Option<(K, V)>, number: u64) -> Stored<K, V> {
    let (key, value) = entry.take().expect("an insertion without an entry");
    (key, Numbered { number, value })
}
