//! The keys that one thread alone inserts, and the values that its lookups may find.

use super::books::{Books, Fate};

/// A key that one thread alone inserts.
#[derive(Default)]
pub(super) struct Own {
    /// The values that a lookup may find. There are several after a panic in an insertion.
    may: Vec<u64>,
    /// The time at which the last value has expired, if it does.
    end: Option<u64>,
}

impl Own {
    /// Notes an insertion that returned.
    pub(super) fn note_inserted(&mut self, serial: u64, end: Option<u64>) {
        self.may = vec![serial];
        self.end = end;
    }

    /// Notes an insertion that panicked: it was made, or was not.
    pub(super) fn note_uncertain(&mut self, serial: u64) {
        self.may.push(serial);
        self.end = None;
    }

    /// Notes that the key was absent.
    pub(super) fn note_absent(&mut self) {
        self.may.clear();
    }

    /// Notes the time and the listener's calls before a lookup.
    pub(super) fn prepare(&mut self, now: u64, books: &Books) {
        if self.end.is_some_and(|end| now >= end) {
            self.may.clear();
        }
        self.may.retain(|serial| books.fate(*serial) != Fate::Told);
    }

    /// Notes a value that was found.
    ///
    /// # Errors
    /// The value should not be there.
    pub(super) fn note_found(&mut self, key: u64, serial: u64, call: &str) -> Result<(), String> {
        if self.may.contains(&serial) {
            self.may = vec![serial];
            return Ok(());
        }
        Err(format!("{call} of key {key} found value {serial}, although its only writer left {:?}", self.may))
    }

    /// Notes that the key was present.
    ///
    /// # Errors
    /// The key should be absent.
    pub(super) fn note_present(&self, key: u64) -> Result<(), String> {
        if self.may.is_empty() {
            return Err(format!("key {key} is present, although its only writer left []"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_finds_the_last_value_or_is_a_violation() {
        let mut own = Own::default();
        assert!(own.note_found(1, 5, "a lookup").is_err());
        own.note_inserted(5, None);
        assert!(own.note_found(1, 5, "a lookup").is_ok() && own.note_found(1, 4, "a lookup").is_err());
        own.note_uncertain(6);
        assert!(own.note_found(1, 6, "a lookup").is_ok());
        assert!(own.note_found(1, 5, "a lookup").is_err(), "the newer value was found before");
        own.note_absent();
        assert!(own.note_present(1).is_err() && own.note_found(1, 6, "a lookup").is_err());
    }

    #[test]
    fn an_expired_or_told_value_is_not_found() {
        let books = Books::new(10, 1, 1);
        let value = books.value(0, 0, 1).unwrap();
        let mut own = Own::default();
        own.note_inserted(value.serial, Some(10));
        own.prepare(9, &books);
        assert!(own.note_present(0).is_ok());
        own.prepare(10, &books);
        assert!(own.note_present(0).is_err());
        own.note_inserted(value.serial, None);
        books.note_told(&value);
        own.prepare(0, &books);
        assert!(own.note_found(0, value.serial, "a lookup").is_err());
    }
}
