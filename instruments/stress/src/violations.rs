//! The first violation of a run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::run::lock;

#[derive(Default)]
pub(crate) struct Violations {
    first: Mutex<Option<String>>,
    is_over: AtomicBool,
}

impl Violations {
    /// Records a violation if it is the first.
    pub(crate) fn fail(&self, what: impl Into<String>) {
        lock(&self.first).get_or_insert_with(|| what.into());
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Returns whether there is a violation.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn first(&self) -> Option<String> {
        lock(&self.first).clone()
    }
}
