//! The books about shipped calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::run::lock;

/// Counts of a round.
#[derive(Default)]
pub(super) struct Books {
    made: AtomicU64,
    dropped: AtomicU64,
    violation: Mutex<Option<String>>,
}

impl Books {
    /// Records a violation if it is the first.
    pub(super) fn fail(&self, what: impl Into<String>) {
        lock(&self.violation).get_or_insert_with(|| what.into());
    }

    pub(super) fn violation(&self) -> Option<String> {
        lock(&self.violation).clone()
    }

    /// Makes a token.
    pub(super) fn token(self: &Arc<Books>) -> (Token, Runs) {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let runs = Runs(Arc::new(AtomicU64::new(0)));
        (Token { books: self.clone(), number, runs: runs.clone() }, runs)
    }

    /// Returns the tokens that exist.
    pub(super) fn living(&self) -> u64 {
        // Acquire: pairs with the Release in the drop of each token.
        let dropped = self.dropped.load(Ordering::Acquire);
        self.made.load(Ordering::Relaxed).saturating_sub(dropped)
    }
}

/// The runs of one call.
#[derive(Clone)]
pub(super) struct Runs(Arc<AtomicU64>);

impl Runs {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Owned by the closure of a call.
pub(super) struct Token {
    books: Arc<Books>,
    number: u64,
    runs: Runs,
}

impl Token {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Called when the closure runs.
    pub(super) fn note_run(&self) {
        // Relaxed: the inbox orders the accesses, and this must show if it does not.
        if self.runs.0.fetch_add(1, Ordering::Relaxed) > 0 {
            self.books.fail(format!("call {} ran twice", self.number));
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `living`.
        self.books.dropped.fetch_add(1, Ordering::Release);
    }
}
