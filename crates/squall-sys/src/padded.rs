//! Padding: keeps a value on cache lines of its own, to avoid false sharing.
//!
//! A word that is read all the time must not share a line with data that is written now and then.

use std::ops::Deref;

/// A value alone on its cache lines. It occupies two lines, because some processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    /// Puts `value` on cache lines of its own.
    pub const fn new(value: T) -> CachePadded<T> {
        CachePadded(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}
