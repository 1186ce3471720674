//! Reservations on their way from the thread that made them to the one that ends them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::tracked::{Reserved, Tracked};
use crate::run::lock;

/// Maximum number of reservations on their way.
const HANDED_MAX: usize = 16;

/// A queue of reservations with their directories.
#[derive(Default)]
pub(super) struct Handed(Mutex<VecDeque<(Arc<Tracked>, Reserved)>>);

impl Handed {
    /// Hands a reservation over. Returns it if the queue is full.
    pub(super) fn give(&self, of: &Arc<Tracked>, reserved: Reserved) -> Option<Reserved> {
        let mut queue = lock(&self.0);
        if queue.len() >= HANDED_MAX {
            return Some(reserved);
        }
        queue.push_back((Arc::clone(of), reserved));
        None
    }

    pub(super) fn take(&self) -> Option<(Arc<Tracked>, Reserved)> {
        lock(&self.0).pop_front()
    }

    /// Drops all reservations, so that no thread waits for them.
    pub(super) fn drop_all(&self) {
        while let Some(handed) = self.take() {
            drop(handed);
        }
    }
}
