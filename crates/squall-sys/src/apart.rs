//! Keeping a value on cache lines of its own.
//!
//! What is read all the time must not lie beside what is written now and then, or its readers pay for the writes.

use std::ops::Deref;

/// A value that shares its cache lines with nothing: two lines, as some processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Apart<T>(T);

impl<T> Apart<T> {
    /// The value, apart.
    pub const fn new(value: T) -> Apart<T> {
        Apart(value)
    }
}

impl<T> Deref for Apart<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}
