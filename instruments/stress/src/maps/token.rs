//! The values of the maps. Each knows its key and is counted. So a value of another key, a dropped value, and
//! a leaked value are detected.

use std::hint::black_box;
use std::sync::atomic::{AtomicI64, Ordering};

/// The event of a dropped value.
const DROPPED: u64 = u64::MAX;

/// A value of a key, written by an event.
pub(super) struct Token {
    key: u64,
    event: u64,
    alive: &'static AtomicI64,
}

impl Token {
    pub(super) fn new(key: u64, event: u64, alive: &'static AtomicI64) -> Token {
        alive.fetch_add(1, Ordering::Relaxed);
        Token { key, event, alive }
    }

    /// Returns the next value of the same key.
    pub(super) fn next(&self, event: u64) -> Token {
        Token::new(self.key, event, self.alive)
    }

    /// Returns the event that wrote this value.
    ///
    /// # Errors
    /// The value belongs to another key, or was dropped.
    pub(super) fn event(&self, key: u64) -> Result<u64, String> {
        match self {
            Token { event: DROPPED, .. } => Err(format!("key {key} has a value that was dropped")),
            token if token.key != key => Err(format!("key {key} has a value of key {}", token.key)),
            token => Ok(token.event),
        }
    }
}

impl Clone for Token {
    fn clone(&self) -> Token {
        self.next(self.event)
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        // A thread that still holds the value sees this, if the memory is unchanged. `black_box` keeps the
        // store.
        self.event = DROPPED;
        black_box(&mut self.event);
        // Release: pairs with the acquire in `World::alive`.
        self.alive.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_knows_its_key_and_is_counted() {
        static ALIVE: AtomicI64 = AtomicI64::new(0);
        let token = Token::new(3, 5, &ALIVE);
        let next = token.next(6);
        assert_eq!((token.event(3), next.clone().event(3)), (Ok(5), Ok(6)));
        assert!(token.event(4).is_err() && ALIVE.load(Ordering::Relaxed) == 2);
        let dropped = Token { key: 3, event: DROPPED, alive: &ALIVE };
        assert!(dropped.event(3).is_err());
        std::mem::forget(dropped);
        drop((token, next));
        assert_eq!(ALIVE.load(Ordering::Relaxed), 0);
    }
}
