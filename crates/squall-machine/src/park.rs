//! Event count: a waiter sleeps until an event happens after the waiter's last check of its condition.
//!
//! Problem: a waiter checks a condition, finds it false, and goes to sleep. The event that makes the
//! condition true must not slip between the check and the sleep. Signalling must be cheap while no thread
//! sleeps.
//!
//! - I1. A waiter reads the count with [`EventCount::prepare`], then checks its condition, then sleeps with
//!   [`EventCount::wait`]. If [`EventCount::signal`] runs after the `prepare`, that `wait` returns.
//! - I2. A signaller makes the condition true before it signals. A waiter whose `prepare` reads the new count
//!   sees the condition true.
//!
//! Argument for I1. `signal` adds to the count, then fences, then reads the number of sleepers. `wait` adds
//! to the sleepers, then fences, then compares the count. The two SeqCst fences have one order. If the
//! signaller's fence is first, the waiter reads the new count and does not sleep. If the waiter's fence is
//! first, the signaller reads a sleeper and wakes it. The kernel makes compare-and-sleep one atomic step
//! against the wake; in the portable form a lock does.
//!
//! Progress: `signal` is wait-free apart from the system call; `wait` blocks.
//! Cost: `signal` with no sleeper is one locked addition, one fence and one load.
//! Source: event counts, Reed and Kanodia 1979; futex(2).

use squall_sys::sync::atomic::{AtomicU32, Ordering, fence};
use squall_sys::sync::weaken::Site;
use std::time::{Duration, Instant};

/// Weakening sites in the argument for I1 and I2. Each model twin weakens one of them and must fail.
pub mod sites {
    use super::Site;
    /// The fence in `signal` between the count and the sleepers. Partner: [`WAIT_FENCE`].
    pub const SIGNAL_FENCE: Site = Site(32);
    /// The fence in `wait` between the sleepers and the count. Partner: [`SIGNAL_FENCE`].
    pub const WAIT_FENCE: Site = Site(33);
    /// The Release of the count in `signal`. Partner: the Acquire in `prepare` (I2).
    pub const SIGNAL_RELEASE: Site = Site(34);
}

/// An event count: lets threads sleep until an event happens. The module describes the protocol.
#[derive(Debug)]
pub struct EventCount {
    count: AtomicU32,
    sleepers: AtomicU32,
    #[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
    portable: portable::Sleep,
}

impl Default for EventCount {
    fn default() -> EventCount {
        EventCount::new()
    }
}

/// A value of the count, returned by [`EventCount::prepare`] and passed to [`EventCount::wait`].
#[derive(Clone, Copy, Debug)]
pub struct Seen(u32);

impl EventCount {
    /// Creates an event count with count zero and no sleepers.
    #[cfg(not(loom))]
    pub const fn new() -> EventCount {
        EventCount {
            count: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            #[cfg(not(all(target_os = "linux", not(miri))))]
            portable: portable::Sleep::new(),
        }
    }

    /// Creates an event count with count zero and no sleepers.
    #[cfg(loom)]
    pub fn new() -> EventCount {
        EventCount { count: AtomicU32::new(0), sleepers: AtomicU32::new(0), portable: portable::Sleep::new() }
    }

    /// Reads the count. Call it before checking the condition, and pass the result to
    /// [`wait`](EventCount::wait).
    pub fn prepare(&self) -> Seen {
        // Acquire: pairs with the Release in `signal` (I2).
        Seen(self.count.load(Ordering::Acquire))
    }

    /// Sleeps until [`signal`](EventCount::signal) is called after `seen` was read, or until `timeout`
    /// passes. May return early, so the caller must check its condition again.
    pub fn wait(&self, seen: Seen, timeout: Option<Duration>) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        if !sites::WAIT_FENCE.is_weak() {
            // Partner: the fence in `signal` (argument for I1).
            fence(Ordering::SeqCst);
        }
        if self.count.load(Ordering::Relaxed) == seen.0 {
            self.sleep(seen.0, timeout);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records an event and wakes up to `count` sleeping threads.
    pub fn signal(&self, count: u32) {
        // Release: pairs with the Acquire in `prepare` (I2).
        self.count.fetch_add(1, sites::SIGNAL_RELEASE.order(Ordering::Release));
        if !sites::SIGNAL_FENCE.is_weak() {
            // Partner: the fence in `wait` (argument for I1).
            fence(Ordering::SeqCst);
        }
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.wake(count);
        }
    }

    /// Number of threads that sleep here or are about to.
    pub fn sleepers(&self) -> u32 {
        self.sleepers.load(Ordering::Relaxed)
    }

    #[cfg(all(target_os = "linux", not(loom), not(miri)))]
    fn sleep(&self, seen: u32, timeout: Option<Duration>) {
        squall_sys::futex::wait(&self.count, seen, timeout);
    }

    #[cfg(all(target_os = "linux", not(loom), not(miri)))]
    fn wake(&self, count: u32) {
        squall_sys::futex::wake(&self.count, count);
    }

    #[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
    fn sleep(&self, seen: u32, timeout: Option<Duration>) {
        self.portable.sleep(timeout, || self.count.load(Ordering::Relaxed) == seen);
    }

    #[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
    fn wake(&self, _count: u32) {
        self.portable.wake();
    }
}

/// Not public: returns whether a wait has a deadline and the deadline has passed.
#[doc(hidden)]
pub fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Not public: returns the time left until the deadline, for [`EventCount::wait`].
#[doc(hidden)]
pub fn time_left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// Compare-and-sleep without a futex: the waiter compares while it holds the lock that the waker takes.
#[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
mod portable {
    use squall_sys::sync::{Condvar, Mutex};
    use std::time::Duration;

    #[derive(Debug)]
    pub(super) struct Sleep {
        lock: Mutex<()>,
        woken: Condvar,
    }

    impl Sleep {
        #[cfg(not(loom))]
        pub(super) const fn new() -> Sleep {
            Sleep { lock: Mutex::new(()), woken: Condvar::new() }
        }

        #[cfg(loom)]
        pub(super) fn new() -> Sleep {
            Sleep { lock: Mutex::new(()), woken: Condvar::new() }
        }

        pub(super) fn sleep(&self, timeout: Option<Duration>, still: impl Fn() -> bool) {
            let guard = self.lock.lock().unwrap_or_else(|poison| poison.into_inner());
            if !still() {
                return;
            }
            match timeout {
                // A model has no clock, so a sleeper waits for the signal even if it has a timeout.
                #[cfg(not(loom))]
                Some(limit) => drop(self.woken.wait_timeout(guard, limit)),
                _ => drop(self.woken.wait(guard)),
            }
        }

        pub(super) fn wake(&self) {
            let _guard = self.lock.lock().unwrap_or_else(|poison| poison.into_inner());
            self.woken.notify_all();
        }
    }
}

#[cfg(all(test, any(loom, squall_model)))]
mod model {
    use super::EventCount;
    use squall_sys::sync::Arc;
    use squall_sys::sync::atomic::{AtomicUsize, Ordering};
    use squall_sys::sync::thread;

    /// One waiter sleeps until a condition holds; the signaller makes it true and signals once. The condition
    /// is relaxed on purpose: only the count makes it visible.
    fn sleep_until() {
        let shared = Arc::new((EventCount::new(), AtomicUsize::new(0)));
        let waiter = {
            let shared = shared.clone();
            thread::spawn(move || {
                loop {
                    let seen = shared.0.prepare();
                    if shared.1.load(Ordering::Relaxed) == 1 {
                        break;
                    }
                    shared.0.wait(seen, None);
                }
            })
        };
        shared.1.store(1, Ordering::Relaxed);
        shared.0.signal(1);
        waiter.join().unwrap();
    }

    mod sleep_until {
        #[test]
        fn holds() {
            squall_sys::sync::weaken::check(super::sleep_until);
        }
    }

    #[cfg(loom)]
    #[test]
    fn twins() {
        use super::sites;
        for site in [sites::SIGNAL_FENCE, sites::WAIT_FENCE, sites::SIGNAL_RELEASE] {
            squall_sys::sync::weaken::twin(site, &[], "park::model::sleep_until::holds");
        }
    }
}
