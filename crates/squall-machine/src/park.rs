//! An event count: sleep until something has happened since you last looked.
//!
//! Problem: a waiter checks a condition, finds it false, and goes to sleep; the event that makes it true must not slip
//! between the two, and signalling must cost nothing much while nobody sleeps.
//!
//! - I1. A waiter reads the count with [`EventCount::prepare`], then checks its condition, then sleeps with
//!   [`EventCount::wait`]. If [`EventCount::signal`] runs after the `prepare`, that `wait` returns.
//! - I2. A signaller makes the condition true before it signals; a waiter whose `prepare` reads the new count sees it.
//!
//! Argument for I1. `signal` adds to the count, then fences, then reads how many sleep; `wait` adds to the sleepers,
//! then fences, then compares the count. The two fences are in one order: if the signaller's is first, the waiter reads
//! the new count and does not sleep; if the waiter's is first, the signaller reads a sleeper and wakes it. The kernel
//! (or the lock, in the portable form) makes compare-and-sleep one step against the wake.
//!
//! Progress: `signal` is wait-free but for the system call; `wait` blocks. Cost of `signal` with no sleeper: one locked
//! addition, one fence, one load.
//! Source: event counts, Reed and Kanodia 1979; futex(2).

use squall_sync::atomic::{AtomicU32, Ordering, fence};
use squall_sync::weaken::Site;
use std::time::Duration;

/// The sites of the argument for I1 and I2, which model tests weaken one by one.
pub mod sites {
    use super::Site;
    /// The fence of `signal` between the count and the sleepers. Partner: [`WAIT_FENCE`].
    pub const SIGNAL_FENCE: Site = Site(32);
    /// The fence of `wait` between the sleepers and the count. Partner: [`SIGNAL_FENCE`].
    pub const WAIT_FENCE: Site = Site(33);
    /// The release of the count in `signal`. Partner: the acquire of `prepare` (I2).
    pub const SIGNAL_RELEASE: Site = Site(34);
}

/// An event count. See the module.
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

/// What [`EventCount::prepare`] saw.
#[derive(Clone, Copy, Debug)]
pub struct Seen(u32);

impl EventCount {
    /// An event count at which nothing has happened.
    #[cfg(not(loom))]
    pub const fn new() -> EventCount {
        EventCount {
            count: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            #[cfg(not(all(target_os = "linux", not(miri))))]
            portable: portable::Sleep::new(),
        }
    }

    /// An event count at which nothing has happened.
    #[cfg(loom)]
    pub fn new() -> EventCount {
        EventCount { count: AtomicU32::new(0), sleepers: AtomicU32::new(0), portable: portable::Sleep::new() }
    }

    /// Remembers how many events there were, before the caller checks its condition.
    pub fn prepare(&self) -> Seen {
        // Acquire: pairs with the release in `signal` (I2).
        Seen(self.count.load(Ordering::Acquire))
    }

    /// Sleeps until [`signal`](EventCount::signal) has been called since `seen`, or the time is over. May return early.
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

    /// Notes an event and wakes up to `count` of those who wait.
    pub fn signal(&self, count: u32) {
        // Release: pairs with the acquire in `prepare` (I2).
        self.count.fetch_add(1, sites::SIGNAL_RELEASE.order(Ordering::Release));
        if !sites::SIGNAL_FENCE.is_weak() {
            // Partner: the fence in `wait` (argument for I1).
            fence(Ordering::SeqCst);
        }
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.wake(count);
        }
    }

    /// How many threads sleep here or are about to.
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

/// Compare-and-sleep where there is no futex: the comparison is made under the lock that the waker takes.
#[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
mod portable {
    use squall_sync::sync::{Condvar, Mutex};
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
                // A model has no clock: whoever sleeps in it waits for the signal.
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
    use squall_sync::atomic::{AtomicUsize, Ordering};
    use squall_sync::sync::Arc;
    use squall_sync::thread;

    /// A waiter sleeps until a condition holds; the signaller makes it true and signals once. The condition is relaxed
    /// on purpose: what makes it visible is the count.
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
            squall_sync::weaken::check(super::sleep_until);
        }
    }

    #[cfg(loom)]
    #[test]
    fn twins() {
        use super::sites;
        for site in [sites::SIGNAL_FENCE, sites::WAIT_FENCE, sites::SIGNAL_RELEASE] {
            squall_sync::weaken::twin(site, &[], "park::model::sleep_until::holds");
        }
    }
}
