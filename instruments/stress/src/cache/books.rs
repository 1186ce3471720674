//! The books: the fate of each value, the progress of each thread with each key, and the loaders that run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};

use super::value::Value;
use crate::violations::Violations;

/// The listener got the value.
const TOLD: u8 = 1;
/// A panic lost the value.
const LOST: u8 = 2;

/// The fate of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Told,
    Lost,
    Unknown,
}

pub(super) struct Books {
    /// The fate of each value, by its serial number.
    fates: Box<[AtomicU8]>,
    next: AtomicU64,
    alive: AtomicI64,
    threads: usize,
    /// For each key and thread, the last value that the thread has inserted.
    finished: Box<[AtomicU64]>,
    /// For each key, whether a loader runs.
    loads: Box<[AtomicBool]>,
    pub(super) violations: Violations,
}

impl Books {
    pub(super) fn new(values: u64, keys: u64, threads: usize) -> Arc<Books> {
        Arc::new(Books {
            fates: (0..values).map(|_| AtomicU8::new(0)).collect(),
            next: AtomicU64::new(1),
            alive: AtomicI64::new(0),
            threads,
            finished: (0..keys as usize * threads).map(|_| AtomicU64::new(0)).collect(),
            loads: (0..keys).map(|_| AtomicBool::new(false)).collect(),
            violations: Violations::default(),
        })
    }

    /// Makes a value, unless all serial numbers are used up.
    pub(super) fn value(self: &Arc<Books>, key: u64, writer: usize, weight: u32) -> Option<Value> {
        let serial = self.next.fetch_add(1, Ordering::Relaxed);
        (serial < self.fates.len() as u64).then(|| Value::new(self, key, serial, writer, weight))
    }

    /// Returns the serial numbers of all values that were made.
    pub(super) fn serials(&self) -> std::ops::Range<u64> {
        1..self.next.load(Ordering::Relaxed).min(self.fates.len() as u64)
    }

    pub(super) fn count_made(&self) {
        self.alive.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_dropped(&self) {
        // Release: pairs with the Acquire in `alive`.
        self.alive.fetch_sub(1, Ordering::Release);
    }

    /// Returns the number of values that exist.
    pub(super) fn alive(&self) -> i64 {
        // Acquire: pairs with the Release in `count_dropped`.
        self.alive.load(Ordering::Acquire)
    }

    /// Notes that the listener got a value.
    pub(super) fn note_told(&self, value: &Value) {
        // AcqRel: pairs with the Acquire in `fate`. A thread that sees it finds the entry gone.
        if self.fates[value.serial as usize].fetch_or(TOLD, Ordering::AcqRel) & TOLD != 0 {
            self.violations
                .fail(format!("the listener got value {} of key {} twice", value.serial, value.key));
        }
    }

    pub(super) fn note_lost(&self, serial: u64) {
        self.fates[serial as usize].fetch_or(LOST, Ordering::Relaxed);
    }

    pub(super) fn fate(&self, serial: u64) -> Fate {
        // Acquire: pairs with the AcqRel in `note_told`.
        match self.fates[serial as usize].load(Ordering::Acquire) {
            fate if fate & TOLD != 0 => Fate::Told,
            0 => Fate::Unknown,
            _ => Fate::Lost,
        }
    }

    /// Notes that a thread has inserted a value (`cache/I2`).
    pub(super) fn note_finished(&self, key: u64, writer: usize, serial: u64) {
        // Release: pairs with the Acquire in `finished`.
        self.finished[key as usize * self.threads + writer].store(serial, Ordering::Release);
    }

    /// Copies the last finished value of each thread for a key.
    pub(super) fn finished(&self, key: u64, into: &mut Vec<u64>) {
        into.clear();
        let first = key as usize * self.threads;
        // Acquire: pairs with the Release in `note_finished`. A lookup after it finds no earlier value.
        let all = self.finished[first..first + self.threads].iter();
        into.extend(all.map(|serial| serial.load(Ordering::Acquire)));
    }

    /// Notes that a loader of a key begins, until the result is dropped.
    pub(super) fn begin_load(&self, key: u64) -> RunningLoad<'_> {
        // Relaxed: the cache orders the loaders of a key, and this must show if it does not.
        if self.loads[key as usize].swap(true, Ordering::Relaxed) {
            self.violations.fail(format!("two loaders of key {key} run at one time"));
        }
        RunningLoad(&self.loads[key as usize])
    }
}

/// A loader that runs.
pub(super) struct RunningLoad<'a>(&'a AtomicBool);

impl Drop for RunningLoad<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_told_twice_is_a_violation() {
        let books = Books::new(10, 1, 1);
        let value = books.value(0, 0, 1).unwrap();
        assert_eq!(books.fate(value.serial), Fate::Unknown);
        books.note_told(&value);
        assert_eq!((books.fate(value.serial), books.violations.first()), (Fate::Told, None));
        books.note_told(&value.clone());
        assert_eq!(books.violations.first().as_deref(), Some("the listener got value 1 of key 0 twice"));
        drop(value);
        assert_eq!(books.alive(), 0);
    }

    #[test]
    fn two_loaders_at_one_time_are_a_violation() {
        let books = Books::new(10, 1, 1);
        drop(books.begin_load(0));
        let first = books.begin_load(0);
        assert_eq!(books.violations.first(), None);
        drop((books.begin_load(0), first));
        assert_eq!(books.violations.first().as_deref(), Some("two loaders of key 0 run at one time"));
    }
}
