//! The lock of heaps and of page pools: one word, without allocation and without a destructor.
//!
//! Problem: an allocator cannot use a lock that may allocate. A pure spin lock waits for a whole time slice
//! if its holder is preempted. Idea: the futex lock with three states.
//!
//! - I1. A thread that gets the lock sees everything that its previous holders did.
//! - I2. A thread sleeps only while the word is `WAITED`, and a thread that releases a `WAITED` lock wakes
//!   one.
//!
//! Cost: one exchange to acquire and one to release. Progress: blocking; a stalled holder delays the threads
//! that want the same lock.
//! Source: Drepper, "Futexes Are Tricky" (2011), the second mutex.

use crate::sites;
use squall_sys::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const WAITED: u32 = 2;
/// The reads of the word before a thread sleeps. Critical sections move at most a hundred blocks.
const SPINS: u32 = if cfg!(loom) { 0 } else { 100 };

#[derive(Debug)]
pub(crate) struct Lock(AtomicU32);

impl Lock {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Lock {
        Lock(AtomicU32::new(FREE))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Lock {
        Lock(AtomicU32::new(FREE))
    }

    #[inline]
    pub(crate) fn lock(&self) {
        // Acquire: pairs with the Release in `unlock` (I1).
        let order = sites::ACQUIRE.order(Ordering::Acquire);
        if self.0.compare_exchange(FREE, HELD, order, Ordering::Relaxed).is_err() {
            self.wait();
        }
    }

    /// Takes the lock if it is free. Returns whether it did.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn try_lock(&self) -> bool {
        // Acquire: as in `lock`.
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            squall_sys::sync::hint::spin_loop();
            // Acquire: as in `lock`.
            if self.0.load(Ordering::Relaxed) == FREE
                && self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
        }
        // Acquire: as in `lock`.
        while self.0.swap(WAITED, sites::ACQUIRE.order(Ordering::Acquire)) != FREE {
            sleep(&self.0);
        }
    }

    #[inline]
    pub(crate) fn unlock(&self) {
        // Release: pairs with the Acquire in `lock` and `wait` (I1).
        if self.0.swap(FREE, sites::RELEASE.order(Ordering::Release)) == WAITED {
            wake(&self.0);
        }
    }

    /// Runs `f` with the lock held.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        self.lock();
        let result = f();
        self.unlock();
        result
    }
}

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
fn sleep(word: &AtomicU32) {
    squall_sys::waits::count_sleep();
    squall_sys::futex::wait(word, WAITED, None);
}

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
#[cold]
fn wake(word: &AtomicU32) {
    squall_sys::futex::wake(word, 1);
}

#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
fn sleep(_word: &AtomicU32) {
    squall_sys::sync::thread::yield_now();
}

#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
fn wake(_word: &AtomicU32) {}
