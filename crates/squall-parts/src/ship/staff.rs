//! The threads that serve an inbox if no thread of the program does.
//!
//! Problem: a call must not wait for ever because its VP has no thread that serves. An idle process should
//! not wake up, and should keep no idle threads.
//!
//! Idea: a thread is made on demand. It sleeps while the inbox is empty, and ends if that lasts
//! [`IDLE`]. A sender *asks* for a server, under the lock of the staff.
//!
//! - I1. A thread of the staff looks into the inbox under the lock before it sleeps. So a call that was
//!   queued before a sender asked is seen by that look, or the sender finds the thread asleep or gone.
//! - I2. A thread of the staff that waits for the result of another shipped call says so first. If the inbox
//!   has calls then, it asks for another server. So calls that wait for each other, in any circle of VPs,
//!   all get a thread.
//! - I3. If no other thread can be started, the waiting thread serves the calls that are queued before it
//!   sleeps. A sender that asks later learns that no thread serves.
//! - I4. The thread that fell asleep last is woken first. So threads that are not needed sleep on, and end.
//! - I5. A thread is counted under the lock, and then started outside it. A sender that depends on a thread
//!   that is being started waits for the outcome. So a sender that got a server has a thread that runs. If
//!   the starter is preempted meanwhile, such a sender waits for it, even if a thread serves again by then.
//!
//! Not promised: progress while a shipped call waits for something else, such as a lock. The other calls in
//! the inbox then wait for it, unless another thread serves. Nor progress if no thread can be started and
//! calls wait for each other deeper than a thread nests them (`vps`), or poll.
//!
//! Cost: asking takes a lock, and wakes or makes a thread. Making one takes tens of microseconds. Senders
//! that need that thread wait as long; all others go on.

use super::inbox::{Inbox, Taken};
use super::sites;
#[cfg(not(loom))]
use squall_machine::park::time_left;
#[cfg(not(loom))]
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::{Condvar, Mutex, MutexGuard, lock, thread};
use std::time::Duration;
#[cfg(not(loom))]
use std::time::Instant;

/// A thread of the staff ends after this time without a call.
pub(super) const IDLE: Duration = Duration::from_secs(1);
/// The most threads that an inbox has.
const THREADS_MAX: u32 = 64;

/// The staff of an inbox.
pub(super) struct Staff {
    counts: Mutex<Counts>,
    /// A start has ended.
    outcome: Condvar,
    /// A thread sleeps. A hint, written under the lock.
    #[cfg(not(loom))]
    has_sleeper: AtomicBool,
    /// The last sender that asked for a thread got none. A hint, written under the lock.
    #[cfg(not(loom))]
    was_refused: AtomicBool,
}

#[derive(Debug, Default)]
struct Counts {
    /// All threads, with those that are being started.
    threads: u32,
    /// Threads that are being started.
    starting: u32,
    /// Threads that wait for the result of a shipped call.
    waiting: u32,
    /// Threads that sleep. The one that fell asleep last is at the end.
    sleepers: Vec<thread::Thread>,
}

impl Staff {
    pub(super) fn new() -> Staff {
        Staff {
            counts: Mutex::new(Counts::default()),
            outcome: Condvar::new(),
            #[cfg(not(loom))]
            has_sleeper: AtomicBool::new(false),
            #[cfg(not(loom))]
            was_refused: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        lock(&self.counts, "the staff of an inbox")
    }

    /// Asks for a server: wakes a thread, or makes one with `start` if all threads wait. Returns false if
    /// that failed; no thread may serve the inbox then.
    pub(super) fn ask(&self, start: impl FnOnce() -> bool) -> bool {
        let mut counts = self.lock();
        loop {
            if let Some(sleeper) = counts.sleepers.pop() {
                self.note_sleepers(&counts);
                drop(counts);
                sleeper.unpark();
                return true;
            }
            if counts.threads > counts.waiting + counts.starting {
                return true;
            }
            if counts.threads <= counts.waiting {
                break;
            }
            if sites::OUTCOME.is_weak() {
                return true;
            }
            counts = self.outcome.wait(counts).unwrap_or_else(|poison| poison.into_inner());
        }
        if counts.threads >= THREADS_MAX {
            self.note_refused(true);
            return false;
        }
        counts.threads += 1;
        counts.starting += 1;
        drop(counts);
        let mut starting = Starting { staff: self, has_started: false };
        starting.has_started = start();
        starting.has_started
    }

    /// The life of a thread of the staff: gives the calls of the inbox to `run` until the inbox has been
    /// empty for [`IDLE`], or `run` returns false.
    pub(super) fn serve(&self, inbox: &Inbox, run: impl Fn(Taken) -> bool) {
        loop {
            while let Some(taken) = inbox.take() {
                if !run(taken) {
                    return;
                }
            }
            let mut counts = self.lock();
            if inbox.has_queued() && !sites::LOOK.is_weak() {
                continue;
            }
            counts.sleepers.push(thread::current());
            self.note_sleepers(&counts);
            drop(counts);
            if !self.sleep() {
                return;
            }
        }
    }

    /// Sleeps until a sender asks. Returns false if none does for [`IDLE`]; the thread is no longer counted
    /// then.
    fn sleep(&self) -> bool {
        let (me, alarm) = (thread::current().id(), Alarm::new());
        loop {
            let is_late = alarm.park();
            let mut counts = self.lock();
            let Some(at) = counts.sleepers.iter().position(|sleeper| sleeper.id() == me) else {
                return true;
            };
            if is_late {
                counts.sleepers.remove(at);
                counts.threads -= 1;
                self.note_sleepers(&counts);
                return false;
            }
        }
    }

    /// Notes that a thread of the staff waits for a shipped call, until the result is dropped (I2).
    pub(super) fn wait(&self, inbox: &Inbox, start: impl FnOnce() -> bool) -> Waiting<'_> {
        let is_served = self.begin_wait(inbox, start);
        Waiting { staff: self, is_served }
    }

    /// Like [`wait`](Staff::wait), until [`end_wait`](Staff::end_wait). Returns false if no other thread can
    /// serve the calls of the inbox.
    pub(super) fn begin_wait(&self, inbox: &Inbox, start: impl FnOnce() -> bool) -> bool {
        self.lock().waiting += 1;
        !inbox.has_queued() || sites::WAITS.is_weak() || self.ask(start)
    }

    pub(super) fn end_wait(&self) {
        self.lock().waiting -= 1;
    }

    #[cfg(not(loom))]
    fn note_sleepers(&self, counts: &Counts) {
        // Relaxed, here and below: a hint.
        self.has_sleeper.store(!counts.sleepers.is_empty(), Ordering::Relaxed);
    }

    #[cfg(not(loom))]
    fn note_refused(&self, refused: bool) {
        self.was_refused.store(refused, Ordering::Relaxed);
    }

    /// Returns whether a thread sleeps until there is work. It may be out of date.
    #[cfg(not(loom))]
    pub(super) fn is_idle(&self) -> bool {
        self.has_sleeper.load(Ordering::Relaxed)
    }

    /// Returns whether the last thread that was needed could not be started. It may be out of date.
    #[cfg(not(loom))]
    pub(super) fn was_refused(&self) -> bool {
        self.was_refused.load(Ordering::Relaxed)
    }

    #[cfg(loom)]
    fn note_sleepers(&self, _: &Counts) {}

    #[cfg(loom)]
    fn note_refused(&self, _: bool) {}
}

/// A thread is being started. Dropping this, also in a panic, tells the outcome (I5).
struct Starting<'a> {
    staff: &'a Staff,
    has_started: bool,
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        let mut counts = self.staff.lock();
        counts.starting -= 1;
        if !self.has_started && !sites::FAILED.is_weak() {
            counts.threads -= 1;
        }
        self.staff.note_refused(!self.has_started);
        drop(counts);
        self.staff.outcome.notify_all();
    }
}

/// A thread of the staff waits.
#[must_use]
pub(super) struct Waiting<'a> {
    staff: &'a Staff,
    is_served: bool,
}

impl Waiting<'_> {
    /// Serves the inbox if no other thread can (I3), until `is_over` or no call is queued.
    pub(super) fn serve(&self, inbox: &Inbox, is_over: impl Fn() -> bool, run: impl Fn(Taken) -> bool) {
        if self.is_served || sites::SERVES.is_weak() {
            return;
        }
        while !is_over()
            && let Some(taken) = inbox.take()
            && run(taken)
        {}
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.staff.end_wait();
    }
}

/// The end of a sleep.
#[cfg(not(loom))]
struct Alarm(Option<Instant>);

#[cfg(not(loom))]
impl Alarm {
    fn new() -> Alarm {
        Alarm(Instant::now().checked_add(IDLE))
    }

    /// Sleeps until a wake-up, or until the time is over. Returns whether it is over.
    fn park(&self) -> bool {
        match time_left(self.0) {
            None => thread::park(),
            Some(Duration::ZERO) => return true,
            Some(left) => thread::park_timeout(left),
        }
        time_left(self.0) == Some(Duration::ZERO)
    }
}

/// A model has no time: a sleep is over at any moment.
#[cfg(loom)]
struct Alarm;

#[cfg(loom)]
impl Alarm {
    fn new() -> Alarm {
        Alarm
    }

    fn park(&self) -> bool {
        thread::yield_now();
        true
    }
}
