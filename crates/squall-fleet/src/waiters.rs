//! The wakers of the threads and tasks that wait for one condition.
//!
//! - I1. A waiter leaves its waker and makes its wait known (`announce`) under one lock. The thread that
//!   finds the announcement takes the lock before it wakes, so it finds the waker.
//! - I2. No waker is cloned, run or dropped under the lock: wakers are the program's code.
//! - I3. All waiters are woken at once. So a waiter that is cancelled, even after it was woken, takes no
//!   wake-up from another one.

use crate::sites;
use squall_sys::panics::end_panic;
use squall_sys::sync::{Mutex, MutexGuard, lock};
use std::collections::BTreeMap;
use std::task::Waker;

/// The wakers of waiting threads and tasks.
pub(crate) struct Waiters(Mutex<Queue>);

struct Queue {
    /// By their tickets, in the order in which they came.
    wakers: BTreeMap<u64, Waker>,
    tickets: u64,
}

impl Waiters {
    pub(crate) fn new() -> Waiters {
        Waiters(Mutex::new(Queue { wakers: BTreeMap::new(), tickets: 0 }))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.0, "the waits for room in a mailbox")
    }

    /// Leaves a waker, if `announce` returns true. Returns its ticket.
    pub(crate) fn add(&self, waker: &Waker, announce: impl FnOnce() -> bool) -> Option<u64> {
        let waker = waker.clone();
        let mut queue = self.lock();
        if !announce() {
            drop(queue);
            return None;
        }
        queue.tickets += 1;
        let ticket = queue.tickets;
        queue.wakers.insert(ticket, waker);
        Some(ticket)
    }

    /// Removes a waker, if it is still there.
    pub(crate) fn remove(&self, ticket: u64) {
        let removed = self.lock().wakers.remove(&ticket);
        drop(removed);
    }

    /// Wakes all, in the order in which they came.
    pub(crate) fn wake_all(&self) {
        let mut queue = self.lock();
        let mut wakers = std::mem::take(&mut queue.wakers);
        if sites::WAKE_ALL.is_weak()
            && let Some((&first, _)) = wakers.first_key_value()
        {
            queue.wakers = wakers.split_off(&(first + 1));
        }
        drop(queue);
        wakers.into_values().for_each(wake);
    }
}

/// Wakes a thread or task. A panic of its waker ends here, after the panic hook has reported it.
pub(crate) fn wake(waker: Waker) {
    end_panic(move || waker.wake());
}
