//! Functions that clone a map's contents, for forms whose interface does not require `Clone`.

/// Functions that clone a map's contents. They are known where the map is made, so the interface need not
/// require `Clone`.
pub(super) struct Cloners<K, V, S> {
    pub(super) key: fn(&K) -> K,
    pub(super) value: fn(&V) -> V,
    pub(super) hasher: fn(&S) -> S,
}

impl<K, V, S> Clone for Cloners<K, V, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V, S> Copy for Cloners<K, V, S> {}

impl<K: Clone, V: Clone, S: Clone> Cloners<K, V, S> {
    pub(super) fn new() -> Cloners<K, V, S> {
        Cloners { key: K::clone, value: V::clone, hasher: S::clone }
    }
}

impl<K, V: 'static, S> Cloners<K, V, S> {
    /// Returns a copy of a value, without a call if the type is plain data.
    #[inline(always)]
    pub(super) fn copy(&self, value: &V) -> V {
        squall_parts::table::__copied(value).unwrap_or_else(|| (self.value)(value))
    }

    /// Returns a copy of an entry. If the clone of the value panics, the cloned key stays in `half`.
    pub(super) fn copy_entry(&self, key: &K, value: &V, half: &mut Option<K>) -> (K, V) {
        *half = Some((self.key)(key));
        let value = self.copy(value);
        (half.take().expect("the cloned key is missing after the clone of its value"), value)
    }
}
