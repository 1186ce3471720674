//! The entries and parts of the directories. Each entry knows its key and its life, and whether it was
//! removed. Entries and parts are counted. So an entry of another key, a removed entry in use, a dropped
//! entry and a leaked one are detected.

use std::fmt;
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

const PRESENT: u64 = 0x5EED_0001;
const REMOVED: u64 = 0x5EED_0002;
const DROPPED: u64 = 0x5EED_0003;

/// The entry of a key in one of the key's lives.
pub(super) struct Entry {
    key: u64,
    life: u64,
    state: AtomicU64,
    alive: &'static AtomicI64,
}

impl Entry {
    pub(super) fn new(key: u64, life: u64, alive: &'static AtomicI64) -> Entry {
        alive.fetch_add(1, Ordering::Relaxed);
        Entry { key, life, state: AtomicU64::new(PRESENT), alive }
    }

    /// Returns the life, for a caller without a lock.
    ///
    /// # Errors
    /// The entry belongs to another key, or was dropped.
    pub(super) fn life(&self, key: u64) -> Result<u64, String> {
        match self.state.load(Ordering::Relaxed) {
            PRESENT | REMOVED if self.key == key => Ok(self.life),
            PRESENT | REMOVED => Err(format!("key {key} has an entry of key {}", self.key)),
            _ => Err(format!("key {key} has an entry that was dropped")),
        }
    }

    /// Returns the life, for a caller that has locked the key.
    ///
    /// # Errors
    /// As [`life`](Entry::life), or the entry was removed.
    pub(super) fn life_locked(&self, key: u64) -> Result<u64, String> {
        if self.state.load(Ordering::Relaxed) == REMOVED {
            return Err(format!("life {} of key {key} is used after its removal", self.life));
        }
        self.life(key)
    }

    /// Marks the entry as removed. The caller has locked the key and all its parts.
    ///
    /// # Errors
    /// As [`life_locked`](Entry::life_locked).
    pub(super) fn remove(&self, key: u64) -> Result<u64, String> {
        let life = self.life_locked(key);
        self.state.store(REMOVED, Ordering::Relaxed);
        life
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // A thread that still uses the entry sees this, if the memory is unchanged. `black_box` keeps the
        // store.
        self.state.store(DROPPED, Ordering::Relaxed);
        black_box(&mut self.state);
        // Release: pairs with the acquire in `World::alive`.
        self.alive.fetch_sub(1, Ordering::Release);
    }
}

/// The part of a key in one cluster.
pub(super) struct Part {
    pub(super) uses: u64,
    alive: &'static AtomicI64,
}

impl Part {
    /// Makes the part of an entry.
    pub(super) fn of(entry: &Entry) -> Part {
        entry.alive.fetch_add(1, Ordering::Relaxed);
        Part { uses: 0, alive: entry.alive }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `World::alive`.
        self.alive.fetch_sub(1, Ordering::Release);
    }
}

/// The error of a reservation of this key.
#[derive(Debug)]
pub(super) struct NotFilled(pub(super) u64);

impl fmt::Display for NotFilled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {} was not filled, as planned", self.0)
    }
}

impl std::error::Error for NotFilled {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_knows_its_key_and_its_end() {
        static ALIVE: AtomicI64 = AtomicI64::new(0);
        let entry = Entry::new(3, 5, &ALIVE);
        let part = Part::of(&entry);
        assert_eq!((entry.life(3), entry.life_locked(3), entry.remove(3)), (Ok(5), Ok(5), Ok(5)));
        // A reader without a lock may still see it.
        assert_eq!(entry.life(3), Ok(5));
        assert!(entry.life(4).is_err() && entry.life_locked(3).is_err() && entry.remove(3).is_err());
        assert_eq!(ALIVE.load(Ordering::Relaxed), 2);
        drop((entry, part));
        let dropped = Entry { key: 3, life: 5, state: AtomicU64::new(DROPPED), alive: &ALIVE };
        assert!(dropped.life(3).is_err());
        std::mem::forget(dropped);
        assert_eq!(ALIVE.load(Ordering::Relaxed), 0);
    }
}
