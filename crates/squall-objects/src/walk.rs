//! Iterators over what an object holds, a few entries at a time.

use std::fmt;
use std::vec;

/// Visits some entries from a position on, puts what is made of each into the list, and says where the next ones begin.
type Visit<T> = dyn FnMut(u64, &mut Vec<T>) -> Option<u64> + Send + Sync;

/// What is made of each entry. It is one call of the object for a few entries at a time, and between two of them it holds nothing.
///
/// Each call panics as every call does if the object was destroyed.
pub struct Walk<T> {
    visit: Box<Visit<T>>,
    /// Where the next ones begin.
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
            // Only what was made whole: a clone may panic.
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
