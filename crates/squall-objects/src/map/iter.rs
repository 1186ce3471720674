//! `Iter`: iteration over a map, a few entries at a time.

use std::fmt;
use std::vec;

/// Visits some entries of a map from a position on, and returns the position after them.
pub(super) type Visit<M, K, V> = fn(M, u64, &mut dyn FnMut(&K, &V)) -> Option<u64>;

/// An iterator over clones of a map's entries, keys or values.
///
/// [`MapExt::iter`](super::MapExt::iter), `keys` and `values` return it. Each
/// step of a few entries is one call of the map; between two steps the iterator holds no resource of the
/// map.
pub struct Iter<M, K, V, S, T = (K, V)> {
    map: M,
    visit: Visit<M, K, V>,
    make: fn(&K, &V) -> T,
    /// Position of the next entries, or empty at the end.
    from: Option<u64>,
    found: vec::IntoIter<T>,
    hasher: std::marker::PhantomData<fn(S)>,
}

impl<M, K, V, S, T> Iter<M, K, V, S, T> {
    pub(super) fn new(map: M, visit: Visit<M, K, V>, make: fn(&K, &V) -> T) -> Self {
        Iter {
            map,
            visit,
            make,
            from: Some(0),
            found: Vec::new().into_iter(),
            hasher: std::marker::PhantomData,
        }
    }
}

impl<M, K, V, S, T> Iterator for Iter<M, K, V, S, T>
where
    M: Copy,
{
    type Item = T;

    fn next(&mut self) -> Option<T> {
        loop {
            if let Some(next) = self.found.next() {
                return Some(next);
            }
            let (at, make) = (self.from?, self.make);
            let mut found = Vec::new();
            // A clone may panic: then the position is unchanged, and only complete clones are kept.
            self.from = (self.visit)(self.map, at, &mut |key, value| found.push(make(key, value)));
            self.found = found.into_iter();
        }
    }
}

impl<M, K, V, S, T> fmt::Debug for Iter<M, K, V, S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}
