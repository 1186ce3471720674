//! The threads that serve an inbox if no thread of the program does.
//!
//! Problem: a call must not wait for ever because its VP has no thread that serves. An idle process should
//! not wake up, and should keep no idle threads.
//!
//! Idea: a thread is made on demand. It sleeps while the inbox is empty, and ends if that lasts
//! [`IDLE`]. A sender that begins to wait *asks* for a server, under the lock of the staff.
//!
//! - I1. A thread of the staff looks into the inbox under the lock before it sleeps and before it ends. So a
//!   call that was queued before a sender asked is seen by that look, or the sender finds the thread asleep
//!   or gone.
//! - I2. A thread of the staff that waits for the result of another shipped call says so first. If the inbox
//!   has calls then, it asks for another server. So calls that wait for each other, in any circle of VPs,
//!   all get a thread.
//!
//! Not promised: progress while a shipped call waits for something else, such as a lock. The other calls in
//! the inbox then wait for it, unless another thread serves.
//!
//! Cost: asking takes a lock, and wakes or makes a thread.

use super::inbox::Inbox;
use super::sites;
use squall_sys::sync::{Condvar, Mutex, MutexGuard, lock};
use std::time::Duration;

/// A thread of the staff ends after this time without a call.
pub(super) const IDLE: Duration = Duration::from_secs(1);
/// The most threads that an inbox has. More calls than that in a circle of waits end in no deadlock of ours:
/// the sender runs its call itself.
const THREADS_MAX: u32 = 64;

/// The staff of an inbox.
pub(super) struct Staff {
    counts: Mutex<Counts>,
    work: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    threads: u32,
    /// Threads that sleep.
    idle: u32,
    /// Threads that wait for the result of a shipped call.
    waiting: u32,
}

impl Staff {
    pub(super) fn new() -> Staff {
        Staff { counts: Mutex::new(Counts::default()), work: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        lock(&self.counts, "the staff of an inbox")
    }

    /// Asks for a server: wakes a thread, or makes one with `start` if all threads wait. Returns false if
    /// that failed; no thread may serve the inbox then.
    pub(super) fn ask(&self, start: impl FnOnce() -> bool) -> bool {
        let mut counts = self.lock();
        if counts.idle > 0 {
            self.work.notify_one();
            return true;
        }
        if counts.threads > counts.waiting {
            return true;
        }
        if counts.threads >= THREADS_MAX {
            return false;
        }
        // Under the lock: the new thread's first look comes after its count.
        let started = start();
        counts.threads += u32::from(started);
        started
    }

    /// The life of a thread of the staff: serves the inbox until it has been empty for [`IDLE`].
    pub(super) fn serve(&self, inbox: &Inbox) {
        loop {
            while let Some(taken) = inbox.take() {
                inbox.run(taken);
            }
            let mut counts = self.lock();
            if inbox.has_queued() && !sites::LOOK.is_weak() {
                continue;
            }
            counts.idle += 1;
            let (mut counts, timed_out) = self.sleep(counts);
            counts.idle -= 1;
            if timed_out && (!inbox.has_queued() || sites::LOOK.is_weak()) {
                counts.threads -= 1;
                return;
            }
        }
    }

    #[cfg(not(loom))]
    fn sleep<'a>(&self, counts: MutexGuard<'a, Counts>) -> (MutexGuard<'a, Counts>, bool) {
        let (counts, result) =
            self.work.wait_timeout(counts, IDLE).unwrap_or_else(|poison| poison.into_inner());
        (counts, result.timed_out())
    }

    /// A model has no time: a thread that would sleep ends.
    #[cfg(loom)]
    fn sleep<'a>(&self, counts: MutexGuard<'a, Counts>) -> (MutexGuard<'a, Counts>, bool) {
        (counts, true)
    }

    /// Notes that a thread of the staff waits for a shipped call, until the result is dropped (I2).
    pub(super) fn wait(&self, inbox: &Inbox, start: impl FnOnce() -> bool) -> Waiting<'_> {
        self.lock().waiting += 1;
        if inbox.has_queued() && !sites::WAITS.is_weak() {
            self.ask(start);
        }
        Waiting(self)
    }

    /// Returns whether a thread sleeps until there is work. It may be out of date.
    #[cfg(not(loom))]
    pub(super) fn is_idle(&self) -> bool {
        self.counts.try_lock().is_ok_and(|counts| counts.idle > 0)
    }
}

/// A thread of the staff waits.
pub(super) struct Waiting<'a>(&'a Staff);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}
