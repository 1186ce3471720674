//! The values of the cache. Each knows its key and its writer, and is counted.

use std::hint::black_box;
use std::sync::Arc;

use super::books::Books;
use super::mood;

/// The key of a dropped value.
const DROPPED: u64 = u64::MAX;

/// A value, written for a key by a thread.
pub(super) struct Value {
    books: Arc<Books>,
    pub(super) key: u64,
    pub(super) serial: u64,
    pub(super) writer: usize,
    pub(super) weight: u32,
}

impl Value {
    /// Makes the first copy of a value.
    pub(super) fn new(books: &Arc<Books>, key: u64, serial: u64, writer: usize, weight: u32) -> Value {
        books.count_made();
        Value { books: books.clone(), key, serial, writer, weight }
    }

    /// Checks that the value belongs to a key.
    ///
    /// # Errors
    /// The value belongs to another key, or was dropped.
    pub(super) fn check(&self, key: u64) -> Result<(), String> {
        match self.key {
            found if found == key => Ok(()),
            DROPPED => Err(format!("key {key} has a value that was dropped")),
            other => Err(format!("key {key} has a value of key {other}")),
        }
    }
}

impl Clone for Value {
    fn clone(&self) -> Value {
        Value::new(&self.books, self.key, self.serial, self.writer, self.weight)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if mood::is_panicking() {
            self.books.note_lost(self.serial);
        }
        // A thread that still has the value sees this, if the memory is unchanged. `black_box` keeps the
        // store.
        self.key = DROPPED;
        black_box(&mut self.key);
        self.books.count_dropped();
    }
}
