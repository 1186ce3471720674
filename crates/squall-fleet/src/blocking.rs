//! Threads that must not wait for a stub, since they serve.
//!
//! Problem: a stub blocks its thread. In a task of a dispatcher it would hold up all other tasks, and for
//! ever if its server waits for one of them in turn. On the thread that serves its mailbox, no other thread
//! can answer.
//! Idea: a dispatcher marks its thread while it runs tasks, and marks its mailboxes with its thread. A stub
//! looks at both marks before it sends.
//!
//! - I1. A dispatcher belongs to one thread as long as it lives, and so do its mailboxes. So a mailbox is
//!   marked once.
//!
//! Not promised: a thread outside of any task may wait for a server that waits for this thread's dispatcher.
//! Cost: two thread-local accesses and a load for each call.

use squall_sys::sync::atomic::{AtomicU64, Ordering};
use std::cell::Cell;

std::thread_local! {
    static RUNS_TASKS: Cell<bool> = const { Cell::new(false) };
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The time in which a dispatcher runs code of its tasks, until it is dropped.
pub(crate) struct Step {
    /// A task of another dispatcher runs this one.
    before: bool,
}

impl Step {
    pub(crate) fn begin() -> Step {
        Step { before: RUNS_TASKS.replace(true) }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        RUNS_TASKS.set(self.before);
    }
}

/// Returns whether this thread runs a task of a dispatcher.
pub(crate) fn runs_tasks() -> bool {
    RUNS_TASKS.get()
}

/// The number of the thread that serves a mailbox.
pub(crate) struct ServedOn(AtomicU64);

impl ServedOn {
    pub(crate) fn new() -> ServedOn {
        ServedOn(AtomicU64::new(0))
    }

    /// Notes that the calling thread serves the mailbox (I1).
    pub(crate) fn set_here(&self) {
        // Relaxed: see `is_here`.
        self.0.store(number(), Ordering::Relaxed);
    }

    /// Returns whether the calling thread serves the mailbox.
    pub(crate) fn is_here(&self) -> bool {
        // Relaxed: only the calling thread itself writes its number.
        self.0.load(Ordering::Relaxed) == number()
    }
}

/// Returns the number of the calling thread, which no other thread of the process ever has.
fn number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    NUMBER.with(|own| {
        if own.get() == 0 {
            // Relaxed: only the value matters.
            own.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        own.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_sys::sync::thread;

    #[test]
    fn a_mailbox_is_served_on_one_thread() {
        let served = ServedOn::new();
        assert!(!served.is_here());
        served.set_here();
        assert!(served.is_here());
        assert!(!thread::scope(|threads| threads.spawn(|| served.is_here()).join().unwrap()));
    }

    #[test]
    fn steps_nest() {
        assert!(!runs_tasks());
        let outer = Step::begin();
        drop(Step::begin());
        assert!(runs_tasks());
        drop(outer);
        assert!(!runs_tasks());
    }
}
