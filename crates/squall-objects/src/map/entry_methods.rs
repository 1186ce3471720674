//! The methods of an [`Entry`] that read or change the map.

use squall_core::Handle;
use squall_parts::table::Compute;
use std::hash::{BuildHasher, Hash};

use super::Map;
use super::construct::take_turn;
use super::entry::{Entry, Snapshot};
use super::ext::MapExt;

impl<K, V, S, F> Entry<K, V, S, F>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: FnMut(&mut V),
{
    /// Returns the key, after the collected changes of a present value.
    ///
    /// # Panics
    /// If the map was destroyed, and there are changes.
    #[track_caller]
    pub fn into_key(mut self) -> K {
        let (key, changes) = self.take();
        if let Some(changes) = changes {
            self.map.update_in_place(&key, changes);
        }
        key
    }

    /// Changes the value if the key is present, and inserts `value` otherwise. Returns a clone of the key's
    /// value.
    ///
    /// # Panics
    /// If the map was destroyed, or a [`limited`](super::limited) map is full.
    #[track_caller]
    pub fn or_insert(mut self, value: V) -> Snapshot<V> {
        let (key, changes) = self.take();
        Snapshot(match changes {
            None => self.map.get_or_insert_with(key, || value),
            Some(changes) => change_or_insert(self.map, key, changes, value),
        })
    }

    /// Changes the value if the key is present, and inserts the result of `value` otherwise. Returns a clone
    /// of the key's value.
    ///
    /// One thread at a time constructs a value for the key by this method, or by
    /// [`or_insert_with_key`](Entry::or_insert_with_key), [`or_try_insert_with`](Entry::or_try_insert_with)
    /// and [`MapExt::try_get_or_insert_with`]. The other threads wait, and return its value. The last method
    /// states the rules for constructors.
    ///
    /// # Panics
    /// If the map was destroyed, or a [`limited`](super::limited) map is full.
    #[track_caller]
    pub fn or_insert_with(self, value: impl FnOnce() -> V) -> Snapshot<V> {
        self.or_insert_with_key(|_| value())
    }

    /// Inserts like [`or_insert_with`](Entry::or_insert_with). The closure gets the key.
    ///
    /// # Panics
    /// If the map was destroyed, or a [`limited`](super::limited) map is full.
    #[track_caller]
    pub fn or_insert_with_key(self, value: impl FnOnce(&K) -> V) -> Snapshot<V> {
        let Ok(inserted) = self.insert_constructed(|key| Ok::<V, std::convert::Infallible>(value(key)));
        inserted
    }

    /// Inserts like [`or_insert_with`](Entry::or_insert_with). If the closure returns an error, the map stays
    /// unchanged.
    ///
    /// # Errors
    /// Returns the closure's error.
    /// # Panics
    /// If the map was destroyed, or a [`limited`](super::limited) map is full.
    #[track_caller]
    pub fn or_try_insert_with<E>(self, value: impl FnOnce() -> Result<V, E>) -> Result<Snapshot<V>, E> {
        self.insert_constructed(|_| value())
    }

    /// Changes the value if the key is present, and inserts the type's default otherwise. Returns a clone of
    /// the key's value.
    ///
    /// # Panics
    /// If the map was destroyed, or a [`limited`](super::limited) map is full.
    #[track_caller]
    pub fn or_default(self) -> Snapshot<V>
    where
        V: Default,
    {
        self.or_insert(V::default())
    }

    /// Changes a present value, or inserts one that is constructed in a turn of the key.
    #[track_caller]
    fn insert_constructed<E>(mut self, construct: impl FnOnce(&K) -> Result<V, E>) -> Result<Snapshot<V>, E> {
        let (key, mut changes) = self.take();
        let map = self.map;
        if let Some(value) = present(map, &key, &mut changes) {
            return Ok(Snapshot(value));
        }
        let _turn = take_turn(map, &key);
        if let Some(value) = present(map, &key, &mut changes) {
            return Ok(Snapshot(value));
        }
        let value = construct(&key)?;
        Ok(Snapshot(match changes {
            None => map.get_or_insert_with(key, || value),
            Some(changes) => change_or_insert(map, key, changes, value),
        }))
    }
}

/// Changes the value of a present key, if there are changes. Returns a clone of the value.
#[track_caller]
fn present<K, V, S, F>(map: Handle<dyn Map<K, V, S>>, key: &K, changes: &mut Option<F>) -> Option<V>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: FnMut(&mut V),
{
    let Some(changes) = changes else { return map.get_cloned(key) };
    map.update_in_place(key, |value| {
        changes(value);
        value.clone()
    })
}

/// Changes the value of a present key, or inserts `value`, in one step. Returns a clone of the key's value.
#[track_caller]
fn change_or_insert<K, V, S>(map: Handle<dyn Map<K, V, S>>, key: K, mut f: impl FnMut(&mut V), value: V) -> V
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    map.compute_with(key, |there| {
        let mut last = there.unwrap_or(&value).clone();
        if there.is_some() {
            f(&mut last);
        }
        (Compute::Put(last.clone()), last)
    })
}

impl<K, V, S, F> Drop for Entry<K, V, S, F>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: FnMut(&mut V),
{
    /// Applies collected changes to a present value, unless a panic is the reason for the drop.
    ///
    /// # Panics
    /// If the map was destroyed, and there are changes.
    fn drop(&mut self) {
        if let Some((key, Some(changes))) = &mut self.parts
            && std::thread::panicking() == self.made_in_panic
        {
            self.map.update_in_place(&*key, changes);
        }
    }
}
