//! Tokens, the elements of a container under stress, and the books about them.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::run::lock;
use crate::skeleton::expected_panic::raise_expected_panic;

const HELD: u8 = 0;
const PUT: u8 = 1;
const DROPPED: u8 = 2;

/// The state of each token, by its number.
pub(crate) struct Books {
    states: Box<[AtomicU8]>,
    made: AtomicU64,
    dropped: AtomicU64,
    violation: Mutex<Option<String>>,
}

impl Books {
    pub(crate) fn new(tokens: usize) -> Books {
        Books {
            states: (0..tokens).map(|_| AtomicU8::new(HELD)).collect(),
            made: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            violation: Mutex::new(None),
        }
    }

    /// Makes the token of a number. A number is used once.
    pub(crate) fn token(self: &Arc<Books>, number: usize) -> Token {
        // Relaxed: the container orders it before all that follows from the token.
        self.made.fetch_add(1, Ordering::Relaxed);
        Token { books: self.clone(), number, inverse: !number, panics: false }
    }

    /// Returns the number of tokens that exist.
    pub(crate) fn living(&self) -> u64 {
        let dropped = self.dropped();
        self.made.load(Ordering::Relaxed).wrapping_sub(dropped)
    }

    /// Returns the number of tokens dropped.
    pub(crate) fn dropped(&self) -> u64 {
        // Acquire: pairs with the release in the drop of each token.
        self.dropped.load(Ordering::Acquire)
    }

    /// Records a violation if it is the first.
    pub(crate) fn fail(&self, what: String) {
        lock(&self.violation).get_or_insert(what);
    }

    pub(crate) fn violation(&self) -> Option<String> {
        lock(&self.violation).clone()
    }

    /// Changes the state of a token from `from` to `to`.
    fn change(&self, number: usize, from: u8, to: u8, what: &str) {
        // Relaxed: the container orders the accesses to a token, and this must show if it does not.
        let state = self.states[number].swap(to, Ordering::Relaxed);
        if state != from {
            let names = ["held by a thread", "in the container", "dropped"];
            self.fail(format!("token {number} was {what} although it was {}", names[usize::from(state)]));
        }
    }
}

/// An element of the container.
pub(crate) struct Token {
    books: Arc<Books>,
    number: usize,
    /// The number, inverted: a damaged token is found.
    inverse: usize,
    /// Whether the drop panics.
    pub(crate) panics: bool,
}

impl Token {
    /// Makes a second token of this number: a planned break.
    pub(crate) fn double(&self) -> Token {
        self.books.token(self.number)
    }

    /// Called before the token is put.
    pub(crate) fn note_put(&self) {
        self.books.change(self.number, HELD, PUT, "put");
    }

    /// Called after the container gave the token back without taking it.
    pub(crate) fn note_rejected(&self) {
        self.books.change(self.number, PUT, HELD, "rejected");
    }

    /// Called after the token was got.
    pub(crate) fn note_got(&self) {
        self.books.change(self.number, PUT, HELD, "got");
        if self.inverse != !self.number {
            self.books.fail(format!("token {} is damaged: it also says {}", self.number, !self.inverse));
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        // Relaxed: as in `change`.
        if self.books.states[self.number].swap(DROPPED, Ordering::Relaxed) == DROPPED {
            self.books.fail(format!("token {} was dropped twice", self.number));
        }
        // Release: pairs with the acquire in `Books::dropped`.
        self.books.dropped.fetch_add(1, Ordering::Release);
        if self.panics {
            raise_expected_panic();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_comes_out_twice_is_a_violation() {
        let books = Arc::new(Books::new(2));
        let token = books.token(1);
        token.note_put();
        token.note_got();
        assert_eq!(books.violation(), None);
        token.note_got();
        assert_eq!(books.violation().as_deref(), Some("token 1 was got although it was held by a thread"));
        drop(token);
        assert_eq!(books.dropped(), 1);
    }

    #[test]
    fn a_token_lives_until_it_is_dropped_and_a_rejected_one_is_held() {
        let books = Arc::new(Books::new(1));
        let token = books.token(0);
        token.note_put();
        token.note_rejected();
        token.note_put();
        token.note_got();
        assert_eq!((books.violation(), books.living()), (None, 1));
        drop(token);
        assert_eq!(books.living(), 0);
    }
}
