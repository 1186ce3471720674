//! The threads that have pages of a cache pinned for writing.
//!
//! Problem: a copy of a file is taken at one moment. A fault is over before its page is written, so a copy
//! that waits for faults alone would change under later writes. Idea: each such thread is a request of a
//! spread counter, from its first pin for writing to the drop of its last one. A cache is frozen by a
//! shutdown of the counter.
//!
//! - I1. A thread with a pin for writing is inside the counter of the cache. Further pins of the thread do
//!   not enter again. So they succeed during the shutdown, which waits for the thread anyway.
//!
//! Cost: the first pin of a thread counts in, and the last one out, on its processor.

use squall_machine::pervp::GatedWord;
use squall_parts::gate::LocalRequests;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

/// The counts of writers on one processor.
pub(crate) type LocalWriters = LocalRequests<GatedWord>;

thread_local! {
    /// The caches of which this thread has pages pinned for writing, and the number of pins.
    static HELD: RefCell<Vec<(u64, usize)>> = const { RefCell::new(Vec::new()) };
}

/// Changes the number of pins that this thread has of a cache. Returns the number from before.
fn change(cache: u64, by: isize) -> usize {
    HELD.with_borrow_mut(|held| {
        let at = held.iter().position(|(other, _)| *other == cache).unwrap_or_else(|| {
            held.push((cache, 0));
            held.len() - 1
        });
        let before = held[at].1;
        held[at].1 = before.wrapping_add_signed(by);
        if held[at].1 == 0 {
            held.swap_remove(at);
        }
        before
    })
}

/// Returns whether this thread has a page of the cache pinned for writing.
pub(crate) fn holds(cache: u64) -> bool {
    HELD.with_borrow(|held| held.iter().any(|(other, _)| *other == cache))
}

/// A pin for writing, in the count of its thread.
pub(crate) struct Writing {
    cache: u64,
    writers: Arc<LocalWriters>,
    stays: PhantomData<*const ()>,
}

impl Writing {
    /// Counts a pin. It fails if the cache is frozen, or is being frozen and this thread has no pin yet.
    pub(crate) fn begin(cache: u64, writers: &Arc<LocalWriters>) -> Option<Writing> {
        if !holds(cache) {
            writers.try_enter().ok()?;
        }
        change(cache, 1);
        Some(Writing { cache, writers: writers.clone(), stays: PhantomData })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if change(self.cache, -1) == 1 {
            self.writers.leave();
        }
    }
}
