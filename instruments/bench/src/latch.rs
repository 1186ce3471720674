//! A latch at which many threads wait. It opens once, with the order to continue or to end.
//!
//! Threads start one by one and wait at the latch until all of them run. If a thread cannot be started, the
//! others end, so that no thread waits at a barrier forever.

use std::sync::{Condvar, Mutex, PoisonError};

/// State of the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Door {
    /// Go on with the work.
    Open,
    /// Return at once.
    GoHome,
}

#[derive(Debug, Default)]
pub(crate) struct Latch {
    state: Mutex<State>,
    /// Wakes the threads that wait at the door.
    said: Condvar,
    /// Wakes the thread that counts them.
    came: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    door: Option<Door>,
}

impl Latch {
    /// Sleeps until the door opens, and returns its order.
    pub(crate) fn wait(&self) -> Door {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting += 1;
        self.came.notify_one();
        loop {
            if let Some(door) = state.door {
                return door;
            }
            state = self.said.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Opens the door with the order `door`, for threads that wait now or come later.
    pub(crate) fn open(&self, door: Door) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.door = Some(door);
        self.said.notify_all();
    }

    /// Sleeps until `threads` threads have come to the door. Only one thread at a time may call it.
    pub(crate) fn await_waiting(&self, threads: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.waiting < threads {
            state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_waiting_threads_get_one_order() {
        for said in [Door::Open, Door::GoHome] {
            let latch = Latch::default();
            std::thread::scope(|s| {
                let heard: Vec<_> = (0..4).map(|_| s.spawn(|| latch.wait())).collect();
                latch.await_waiting(4);
                latch.open(said);
                assert!(heard.into_iter().all(|h| h.join().is_ok_and(|door| door == said)));
            });
            assert_eq!(latch.wait(), said, "late comers too");
        }
    }
}
