//! Writes to a locked map.

use squall_parts::table::{Compute, Computed};
use std::hash::{BuildHasher, Hash};
use std::mem;

use super::{LockGuard, Locked, Numbered, Place, Spilled, rehash};
use crate::map::key::{Borrowed, KeyForm};

impl<K, V, S> Locked<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
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

    /// Inserts the entry if its key is absent. Otherwise returns a copy of the value there.
    pub(super) fn insert_or_copy(
        &self,
        entry: &mut Option<(K, V)>,
    ) -> Result<Option<V>, Spilled<'_, K, V, S>> {
        let Some((key, _)) = entry else { unreachable!("an insertion without an entry") };
        let hash = self.hash(key);
        let inner = self.lock()?;
        let there = inner.index_of::<S>(hash, &Borrowed(&*key));
        if let Some((_, there)) = there.and_then(|index| inner.map.get_bucket(index)) {
            return Ok(Some(self.cloners.copy(&there.value)));
        }
        self.insert_absent(inner, hash, entry);
        Ok(None)
    }

    fn insert_absent(&self, mut inner: LockGuard<'_, K, V>, hash: u64, entry: &mut Option<(K, V)>) {
        let number = inner.number();
        inner.map.insert_unique(hash, take_numbered(entry, number), rehash(&self.hasher));
        self.end_insertion(inner);
    }

    /// Removes the key, and returns its entry.
    pub(super) fn take_entry(&self, key: &dyn KeyForm<K, S>) -> Result<Option<(K, V)>, Spilled<'_, K, V, S>> {
        let hash = key.hash(&self.hasher);
        let mut inner = self.lock()?;
        let there = inner.index_of(hash, key);
        let there = there.and_then(|index| inner.map.get_bucket_entry(index).ok());
        let taken = there.map(|there| there.remove().0);
        self.publish_counts(&inner);
        Ok(taken.map(|(key, held)| (key, held.value)))
    }

    /// Applies the decision of a closure to the value that it saw. Returns empty if the value is no longer
    /// there, or a table has replaced the hash table: then the closure must run again.
    pub(super) fn apply(
        &self,
        key: &dyn KeyForm<K, S>,
        place: Place,
        wanted: Compute<V>,
    ) -> Option<Computed> {
        // Declared before the guard, so that an unused value is dropped after it.
        let value = match wanted {
            Compute::Keep => return Some(Computed::Kept),
            Compute::Put(value) => Some(value),
            Compute::Remove => None,
        };
        let Place { hash, index, number } = place;
        let mut inner = self.lock().ok()?;
        let next = inner.number();
        // At its old index if no entry moved since. The number proves it (locked/I2).
        let is_there = |(_, there): &(K, Numbered<V>)| there.number == number;
        let index = if inner.map.get_bucket(index).is_some_and(is_there) {
            index
        } else {
            let index = inner.index_of(hash, key)?;
            inner.map.get_bucket(index).filter(|there| is_there(there))?;
            index
        };
        match value {
            Some(value) => {
                let (_, there) = inner.map.get_bucket_mut(index)?;
                let old = mem::replace(there, Numbered { number: next, value });
                drop(inner);
                drop(old);
                Some(Computed::Updated)
            }
            None => {
                let old = inner.map.get_bucket_entry(index).ok()?.remove().0;
                self.publish_counts(&inner);
                drop(inner);
                drop(old);
                Some(Computed::Removed)
            }
        }
    }
}

/// Takes an entry out, and gives it its number. A function of its own: in unoptimised builds, each variable
/// for a large value takes room on the stack.
fn take_numbered<K, V>(entry: &mut Option<(K, V)>, number: u64) -> (K, Numbered<V>) {
    let (key, value) = entry.take().expect("an insertion without an entry");
    (key, Numbered { number, value })
}
