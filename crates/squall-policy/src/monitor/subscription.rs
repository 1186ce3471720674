//! Reader's end of the general monitor: a bounded queue of batches.
//!
//! - I1. A batch is in the queue, or was received, or its records are counted as missed.
//! - I2. After `close` the queue gets no more batches, and the batches in it can still be received.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::centre::{self, Reader};

#[derive(Debug)]
pub(super) struct Queue {
    batches_max: usize,
    /// `true` if the subscription needs the collector's thread.
    pub(super) wants_collector: bool,
    state: Mutex<State>,
    arrived: Condvar,
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
            arrived: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        squall_sys::sync::lock(&self.state, "a subscription")
    }

    /// Never waits for the reader: records that do not fit are missed (I1).
    pub(super) fn push(&self, batch: &Arc<Batch>) {
        let mut state = self.state();
        if state.batches.len() >= self.batches_max {
            state.missed += batch.records().len() as u64 + batch.dropped();
            return;
        }
        state.batches.push_back(batch.clone());
        drop(state);
        self.arrived.notify_one();
    }

    /// Closes the queue and wakes all waiting readers (I2).
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.arrived.notify_all();
    }

    fn recv_until(&self, deadline: Option<Instant>) -> Option<Arc<Batch>> {
        if squall_sys::fork::forked() {
            return None;
        }
        let mut state = self.state();
        loop {
            if let Some(batch) = state.batches.pop_front() {
                return Some(batch);
            }
            if state.closed {
                return None;
            }
            state = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// Receives the records of all threads that [`emit`](super::emit), in batches, from its creation until it is
/// closed or dropped.
///
/// Threads can share it: each batch is received once. Created by [`subscribe`](super::subscribe()).
///
/// ```
/// use squall::policy::monitor::{self, Kind, Object};
///
/// static REFILL: Kind = Kind::new("pool.refill", ["items", ""]);
/// let reader = monitor::subscribe_without_collector(1)?;
/// monitor::emit(&REFILL, Object::NONE, [1, 0]);
/// monitor::collect();
/// // The queue has room for one batch.
/// monitor::emit(&REFILL, Object::NONE, [2, 0]);
/// monitor::collect();
/// reader.close();
/// assert_eq!(reader.recv().unwrap().records()[0].values()[0], 1);
/// assert!(reader.recv().is_none());
/// assert_eq!(reader.missed(), 1);
/// # Ok::<(), monitor::MonitorError>(())
/// ```
#[derive(Debug)]
pub struct Subscription {
    pub(super) queue: Arc<Queue>,
}

impl Subscription {
    /// Waits for the next batch and returns it. Returns `None` once the subscription is closed and the queue
    /// empty.
    ///
    /// A subscription without a collector waits until another thread calls [`collect`](super::collect). In
    /// the child of a fork, `recv` returns at once without a batch.
    pub fn recv(&self) -> Option<Arc<Batch>> {
        self.queue.recv_until(None)
    }

    /// Returns the next batch, and waits for it for at most `timeout`.
    pub fn recv_timeout(&self, timeout: Duration) -> Option<Arc<Batch>> {
        // A deadline beyond the range of the clock counts as no deadline.
        self.queue.recv_until(Instant::now().checked_add(timeout))
    }

    /// Returns the next batch, if there is one now.
    pub fn try_recv(&self) -> Option<Arc<Batch>> {
        self.queue.state().batches.pop_front()
    }

    /// Returns the number of records that this subscription has lost, because its queue was full when they
    /// arrived. Includes records that their writers dropped.
    pub fn missed(&self) -> u64 {
        self.queue.state().missed
    }

    /// Ends the subscription. Gathers the records written before, on this thread and on threads that
    /// synchronised with it. Wakes all waiting readers. Batches in the queue can still be received. Ending
    /// the last subscription switches the monitor off.
    ///
    /// Never waits for the collector's thread, which ends by itself.
    pub fn close(&self) {
        centre::unsubscribe(&Reader::Queue(Arc::clone(&self.queue)));
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.close();
    }
}
