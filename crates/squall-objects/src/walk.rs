//! Iterators over the entries of an object, a few entries per call.

use std::fmt;
use std::vec;

/// Visits some entries from a position on, pushes the results, and returns the position after them.
type Visit<T> = dyn FnMut(u64, &mut Vec<T>) -> Option<u64> + Send + Sync;

/// Iterator over the entries of an object. Each call of the object returns a few entries; between calls the
/// iterator holds no lock and no operation.
///
/// Each call panics if the object was destroyed.
///
/// ```
/// use squall::objects::map::{self, MapExt};
///
/// let map = map::shared::<u64, u64>();
/// (0..100).for_each(|key| _ = map.insert(key, 1));
/// let mut walk = map.iter();
/// map.clear(); // entries that are removed meanwhile may be skipped
/// assert!(walk.by_ref().count() <= 100);
/// ```
pub struct Walk<T> {
    visit: Box<Visit<T>>,
    /// Position at which the next call starts; empty at the end.
    from: Option<u64>,
    found: vec::IntoIter<T>,
}

impl<T> Walk<T> {
    pub(crate) fn new(visit: impl FnMut(u64, &mut Vec<T>) -> Option<u64> + Send + Sync + 'static) -> Walk<T> {
        Walk { visit: Box::new(visit), from: Some(0), found: Vec::new().into_iter() }
    }
}

impl<T> Iterator for Walk<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        loop {
            if let Some(next) = self.found.next() {
                return Some(next);
            }
            let at = self.from?;
            let mut found = Vec::new();
            // A clone may panic: then `self.from` is unchanged, and the partial batch is dropped.
            self.from = (self.visit)(at, &mut found);
            self.found = found.into_iter();
        }
    }
}

impl<T> fmt::Debug for Walk<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").finish_non_exhaustive()
    }
}
