//! Values that detect misuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Requirements on the values of a map.
pub trait Held: Clone + Send + Sync + 'static {}

impl<V: Clone + Send + Sync + 'static> Held for V {}

/// A value that represents a number.
pub trait Value: Held {
    /// Creates the value of this number.
    fn of(number: u64) -> Self;

    /// Number of the value.
    ///
    /// # Panics
    ///
    /// If the value is corrupt.
    fn number(&self) -> u64;
}

impl Value for u64 {
    fn of(number: u64) -> u64 {
        number
    }

    fn number(&self) -> u64 {
        *self
    }
}

/// A number in several words and on the heap. If it is read half written, or after its free, its parts
/// disagree.
#[derive(Clone, Debug)]
pub struct Wide(u64, Box<u64>, u64);

impl Value for Wide {
    fn of(number: u64) -> Wide {
        Wide(number, Box::new(number.rotate_left(17)), !number)
    }

    fn number(&self) -> u64 {
        let agrees = self.1.rotate_right(17) == self.0 && !self.2 == self.0;
        assert!(agrees, "a corrupt value: {self:x?}");
        self.0
    }
}

/// Counts values.
#[derive(Debug, Default)]
pub struct Ledger {
    born: AtomicU64,
    died: AtomicU64,
    wrong: AtomicBool,
}

impl Ledger {
    /// Creates an empty ledger.
    pub fn new() -> Arc<Ledger> {
        Arc::default()
    }

    /// Numbers of created (or cloned) and dropped values.
    pub fn counts(&self) -> (u64, u64) {
        (self.born.load(Ordering::Relaxed), self.died.load(Ordering::Relaxed))
    }

    /// Number of living values.
    pub fn alive(&self) -> i64 {
        let (born, died) = self.counts();
        born as i64 - died as i64
    }

    /// Whether a value was dropped twice, or read after its drop.
    pub fn is_wrong(&self) -> bool {
        self.wrong.load(Ordering::Relaxed)
    }
}

/// A value that is counted in a ledger and detects use after its drop.
#[derive(Debug)]
pub struct Counted {
    ledger: Arc<Ledger>,
    number: u64,
    /// `number` combined with a mark while the value is alive.
    seal: AtomicU64,
}

const ALIVE: u64 = 0x5EA1_ED00_A11F_E000;

impl Counted {
    /// Creates a value.
    pub fn new(ledger: &Arc<Ledger>, number: u64) -> Counted {
        ledger.born.fetch_add(1, Ordering::Relaxed);
        Counted { ledger: Arc::clone(ledger), number, seal: AtomicU64::new(number ^ ALIVE) }
    }

    /// Marks the value as dropped without dropping it: imitates a map that drops too early, without the
    /// crash.
    pub fn bury(&self) {
        self.seal.store(0, Ordering::Relaxed);
    }

    /// Number of the value. A read after the drop is noted in the ledger.
    pub fn number(&self) -> u64 {
        if self.seal.load(Ordering::Relaxed) != self.number ^ ALIVE {
            self.ledger.wrong.store(true, Ordering::Relaxed);
        }
        self.number
    }
}

impl Clone for Counted {
    fn clone(&self) -> Counted {
        Counted::new(&self.ledger, self.number())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.seal.swap(0, Ordering::Relaxed) != self.number ^ ALIVE {
            self.ledger.wrong.store(true, Ordering::Relaxed);
        }
        self.ledger.died.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_counts_clones_and_drops() {
        let ledger = Ledger::new();
        let first = Counted::new(&ledger, 1);
        let second = first.clone();
        assert_eq!((ledger.counts(), ledger.alive()), ((2, 0), 2));
        drop(first);
        assert_eq!((second.number(), ledger.alive(), ledger.is_wrong()), (1, 1, false));
        drop(second);
        assert_eq!((ledger.counts(), ledger.is_wrong()), ((2, 2), false));
    }

    #[test]
    fn a_dropped_value_is_detected_by_its_seal() {
        let ledger = Ledger::new();
        let value = Counted::new(&ledger, 1);
        value.bury();
        value.number();
        assert!(ledger.is_wrong(), "read after it was dropped");
        let ledger = Ledger::new();
        let value = Counted::new(&ledger, 1);
        value.bury();
        drop(value);
        assert!(ledger.is_wrong(), "dropped twice");
    }

    #[test]
    #[should_panic(expected = "a corrupt value")]
    fn a_torn_value_panics() {
        Wide(1, Box::new(1), !1).number();
    }
}
