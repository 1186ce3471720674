//! The end of a round: counts up a tree, and wakes the waiter.
//!
//! - I1. `left` of a node is the number of its children that have not arrived. The thread that takes it to
//!   zero arrives at the parent of the node. So the thread that takes `roots` to zero comes after all others.
//! - I2. A waiter leaves its waker under the lock, and then looks. The last thread takes the lock after its
//!   step. So the waiter sees that step, or the last thread sees the waker.
//!
//! Cost: a leaf's thread writes words of its own ancestors, as far as it is the last one there. Words of
//! several nodes share a line.

use super::inbox::wake;
use super::sites;
use squall_sys::sync::atomic::{AtomicU32, Ordering};
use squall_sys::sync::{Mutex, MutexGuard, lock};
use std::task::Waker;

/// The arrivals of a round.
pub(super) struct Tally {
    left: Box<[AtomicU32]>,
    roots: AtomicU32,
    waker: Mutex<Option<Waker>>,
}

impl Tally {
    /// Makes a tally for nodes with these numbers of children, of which the first `roots` have no parent.
    pub(super) fn new(children: impl Iterator<Item = u32>, roots: u32) -> Tally {
        let left = children.map(AtomicU32::new).collect();
        Tally { left, roots: AtomicU32::new(roots), waker: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Waker>> {
        lock(&self.waker, "the end of a call to all clusters")
    }

    /// Notes that a leaf has its result (I1).
    pub(super) fn arrive(&self, leaf: usize, parent: impl Fn(usize) -> Option<usize>) {
        let mut node = leaf;
        // AcqRel: pairs with itself: the last thread of a node has seen the results of the others.
        let order = sites::ARRIVE.order(Ordering::AcqRel);
        while let Some(above) = parent(node) {
            if self.left[above].fetch_sub(1, order) > 1 {
                return;
            }
            node = above;
        }
        if self.roots.fetch_sub(1, order) == 1 {
            let waker = self.lock().take();
            waker.into_iter().for_each(wake);
        }
    }

    /// Returns whether all leaves have arrived.
    pub(super) fn is_over(&self) -> bool {
        // Acquire: pairs with the Release of the last thread in `arrive`.
        self.roots.load(sites::OVER.order(Ordering::Acquire)) == 0
    }

    /// Leaves a waker for the last thread. Returns whether the round is over already.
    pub(super) fn watch(&self, waker: &Waker) -> bool {
        let waker = Some(waker.clone());
        if sites::LEAVE.is_weak() && !self.is_over() {
            *self.lock() = waker;
            return false;
        }
        let before = std::mem::replace(&mut *self.lock(), waker);
        drop(before);
        self.is_over()
    }
}
