//! A reader's end: a bounded queue of batches.
//!
//! - I1. A batch is in the queue, or was received, or its records are counted as missed.
//! - I2. After `close` the queue gets no more, and what is in it can still be received.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::centre;

#[derive(Debug)]
pub(super) struct Queue {
    batches_max: usize,
    /// Whether the collector's thread is there for it.
    pub(super) wants_collector: bool,
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<Arc<Batch>>,
    missed: u64,
    closed: bool,
}

impl Queue {
    pub(super) fn new(batches_max: usize, wants_collector: bool) -> Queue {
        Queue {
            batches_max: batches_max.max(1),
            wants_collector,
            state: Mutex::default(),
            came: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never waits for the reader: what does not fit is missed (I1).
    pub(super) fn push(&self, batch: &Arc<Batch>) {
        let mut state = self.state();
        if state.batches.len() >= self.batches_max {
            state.missed += batch.records().len() as u64 + batch.dropped();
            return;
        }
        state.batches.push_back(batch.clone());
        drop(state);
        self.came.notify_one();
    }

    /// Whoever waits here is let go (I2).
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.came.notify_all();
    }

    fn recv_until(&self, deadline: Option<Instant>) -> Option<Arc<Batch>> {
        let mut state = self.state();
        loop {
            if let Some(batch) = state.batches.pop_front() {
                return Some(batch);
            }
            if state.closed {
                return None;
            }
            state = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => self.came.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return None,
                Some(left) => self.came.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }
}

/// Receives what all threads [`emit`](super::emit), in batches, from when it was made until it is closed or dropped.
///
/// It can be shared: each batch is received once. See [`subscribe`](super::subscribe()).
#[derive(Debug)]
pub struct Subscription {
    pub(super) queue: Arc<Queue>,
}

impl Subscription {
    /// The next batch; waits for one. `None` when closed, and nothing is left.
    ///
    /// One without a collector waits for what another thread's [`collect`](super::collect) brings.
    pub fn recv(&self) -> Option<Arc<Batch>> {
        self.queue.recv_until(None)
    }

    /// The next batch, if there is one within this time.
    pub fn recv_timeout(&self, timeout: Duration) -> Option<Arc<Batch>> {
        // A deadline that the clock cannot tell is none.
        self.queue.recv_until(Instant::now().checked_add(timeout))
    }

    /// The next batch, if it is there.
    pub fn try_recv(&self) -> Option<Arc<Batch>> {
        self.queue.state().batches.pop_front()
    }

    /// Records that this subscription has not received and will not, since its queue was full when they came (those that
    /// their writers dropped among them).
    pub fn missed(&self) -> u64 {
        self.queue.state().missed
    }

    /// Ends it: gathers what was emitted before (by threads that this one has heard from since), and lets go of whoever
    /// waits. What is in the queue can still be received. The last subscription to end switches the monitor off.
    ///
    /// Never waits for the collector's thread, which ends by itself.
    pub fn close(&self) {
        centre::unsubscribe(&self.queue);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.close();
    }
}
