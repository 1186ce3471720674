//! The raw lock: two bytes; a release without waiters is a plain store.
//!
//! Problem: a lock with sleeping waiters usually needs two atomic operations, one to take it and one to
//! release it. The release must see a sleeper that announces itself at the same moment. These two operations
//! are nearly the whole cost of a free lock.
//!
//! Idea: `held` and `waiting` are separate bytes. A release stores `held`, makes a light fence, and loads
//! `waiting`. A sleeper announces itself in `waiting`, makes the heavy fence ([`asym`]), and reads `held`
//! once more. A heavy fence per sleep would be expensive. So the first sleeper also makes the lock *careful*.
//! A release of a careful lock makes a read-modify-write of `waiting`, and sleepers need no heavy fence.
//! After enough releases in a row without a sleeper, the releasing thread makes the lock *quick* again.
//!
//! `waiting` is zero while the lock is quick. Otherwise it consists of the bits [`SLEEPERS`], [`CAREFUL`] and
//! [`COUNT`]. A new lock is careful, so that `new` need not ask whether `membarrier` works.
//!
//! - I1. `held` orders all acquisitions and releases. An acquisition is an Acquire compare-exchange that
//!   reads the zero written by a Release store.
//! - I2. Suppose that a release read `waiting` as quick, and so did not see that a thread made the lock
//!   careful. Then that thread sees the release after its heavy fence.
//! - I3. A release that read `waiting` as careful sees each announcement before its read-modify-write, or the
//!   announcing thread sees the release. Both modify the same word, with Acquire and Release. The store of
//!   `held` precedes the release's modification, and the read of `held` follows the announcement.
//! - I4. The thread that made the lock careful reads `held` after its heavy fence, and takes the lock if it
//!   is free (`slow/I4`). A later sleeper that relied on the CAREFUL bit may be missed by a release that
//!   read quick. But the thread that made the lock careful sees that release (I2). It takes the lock, or sees
//!   it held by a thread that will read careful when it releases the lock. That release wakes the sleeper.
//!
//! I2 to I4 imply `slow/I1`. If the heavy fence is refused, the announcement is [`Announced::Perhaps`].
//! After that no careful lock of the process becomes quick.
//!
//! Not promised: that the releasing thread has stopped reading the memory when its release becomes visible.
//! The guard borrows the lock until its drop returns, which is later. Code that frees a lock by other means
//! must wait for that too (unlike with `std`'s mutex).
//!
//! Progress: `release` is wait-free while the lock is quick, otherwise lock-free except for the wake-up.
//! Taking blocks.
//! Cost: quick: one compare-exchange, one store and one load. Careful: one more read-modify-write, and a
//! call. Becoming careful: a system call that interrupts each processor on which a thread of the process
//! runs.
//! Source: D. Dice, H. Huang, M. Yang, "Asymmetric Dekker synchronization", 2001. Our own: care is a mode of
//! each lock, so the heavy fence is paid now and then instead of once per sleep; and care is a
//! read-modify-write instead of a fence.

use super::slow::{self, Announced, Sleepable};
use crate::records::Wait;
use crate::steps::{NoSteps, Steps};
use squall_machine::asym;
#[cfg(not(loom))]
use squall_sys::sync::atomic::AtomicBool;
use squall_sys::sync::atomic::{AtomicU8, Ordering};
use std::marker::PhantomData;
use std::time::Instant;

/// The sites of the argument. Each model twin weakens one.
pub(crate) mod sites {
    use squall_sys::sync::weaken::Site;
    /// Acquire of taking the lock (I1). Partner: [`RELEASE`].
    pub(crate) const TAKE: Site = Site(0);
    /// Release of `held` (I1). Partner: [`TAKE`].
    pub(crate) const RELEASE: Site = Site(1);
    /// Light fence of a release (I2). Partner: [`HEAVY`].
    pub(crate) const LIGHT: Site = Site(2);
    /// Heavy fence of the thread that makes the lock careful (I2). Partner: [`LIGHT`].
    pub(crate) const HEAVY: Site = Site(3);
    /// Acquire of the announcement (I3). Partner: [`CARE`].
    pub(crate) const ANNOUNCE: Site = Site(4);
    /// Release of a careful release's read-modify-write (I3). Partner: [`ANNOUNCE`].
    pub(crate) const CARE: Site = Site(5);
    /// Not an ordering: a careful release modifies `waiting`. Weakened, it only reads it (I3).
    pub(crate) const MODIFY: Site = Site(6);
    /// Not an ordering: a thread reads `held` once more before it sleeps (I4, and `slow/I1`).
    pub(crate) const LOOK: Site = Site(7);
    /// Not an ordering: the lock may become quick. Weakened, it behaves like a lock without `membarrier`.
    #[cfg(loom)]
    pub(crate) const QUICKEN: Site = Site(8);
    /// Not an ordering: the heavy fence is made. Weakened, it is refused, and the sleeper learns that.
    pub(crate) const REFUSE: Site = Site(9);
}

// The bits of `waiting`.
/// A thread sleeps, or is about to.
const SLEEPERS: u8 = 0x80;
/// Releases must modify `waiting`.
const CAREFUL: u8 = 0x40;
/// The number of releases in a row without a sleeper. Used only while CAREFUL is set.
const COUNT: u8 = 0x3f;

/// The number of releases without a sleeper after which a careful lock becomes quick.
const QUIET: u8 = if cfg!(any(loom, miri)) { 1 } else { COUNT };
/// A new lock becomes quick sooner, because no thread has paid a heavy fence for it yet.
const QUIET_NEW: u8 = if cfg!(any(loom, miri)) { 1 } else { 8 };

const _: () = assert!(
    SLEEPERS & CAREFUL == 0 && SLEEPERS | CAREFUL | COUNT == 0xff && QUIET_NEW <= QUIET && QUIET <= COUNT
);

/// Set once `membarrier`, which worked before, was refused.
#[cfg(not(loom))]
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Returns whether light fences have an effect in this process. The answer stays true unless `membarrier` is
/// refused later.
#[cfg(not(loom))]
fn may_be_quick() -> bool {
    // Relaxed: if a lock becomes quick in spite of REFUSED, its next sleeper tries the heavy fence again.
    (asym::CHECKED || asym::mode() == asym::Mode::Membarrier) && !REFUSED.load(Ordering::Relaxed)
}

/// Returns whether zeroed memory is a valid free lock. Zero means quick, and a quick lock is valid while
/// light fences have an effect.
#[cfg(not(loom))]
pub fn zeros_are_free() -> bool {
    may_be_quick()
}

#[cfg(loom)]
fn may_be_quick() -> bool {
    !sites::QUICKEN.is_weak()
}

/// A lock without the value it protects.
pub(crate) struct RawLock<S = NoSteps> {
    /// 1 while a thread holds the lock, otherwise 0.
    held: AtomicU8,
    waiting: AtomicU8,
    steps: PhantomData<fn() -> S>,
}

impl<S> RawLock<S> {
    /// Makes a free lock.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> RawLock<S> {
        RawLock {
            held: AtomicU8::new(0),
            waiting: AtomicU8::new(CAREFUL | (QUIET - QUIET_NEW)),
            steps: PhantomData,
        }
    }

    /// Makes a free lock.
    #[cfg(loom)]
    pub(crate) fn new() -> RawLock<S> {
        RawLock {
            held: AtomicU8::new(0),
            waiting: AtomicU8::new(CAREFUL | (QUIET - QUIET_NEW)),
            steps: PhantomData,
        }
    }

    /// Makes a free lock that is already quick.
    #[cfg(all(test, any(loom, squall_model)))]
    pub(super) fn new_quick() -> RawLock<S> {
        RawLock { held: AtomicU8::new(0), waiting: AtomicU8::new(0), steps: PhantomData }
    }

    /// Returns whether releases are plain stores now.
    #[cfg(all(test, not(loom)))]
    pub(super) fn is_quick(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Takes the lock if it is free, without reading `held` first.
    #[inline(always)]
    pub(crate) fn take(&self) -> bool {
        // Acquire: pairs with the store of `release` (I1).
        let order = sites::TAKE.order(Ordering::Acquire);
        self.held.compare_exchange(0, 1, order, Ordering::Relaxed).is_ok()
    }

    /// Returns whether a thread holds the lock.
    #[inline(always)]
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed) != 0
    }

    /// Returns the address that identifies the lock.
    #[inline(always)]
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(&self.held).addr()
    }
}

impl<S: Steps> RawLock<S> {
    /// Releases the lock, which the caller holds.
    #[inline(always)]
    pub(crate) fn release(&self) {
        // Release: pairs with the compare-exchange of `take` (I1).
        self.held.store(0, sites::RELEASE.order(Ordering::Release));
        if !sites::LIGHT.is_weak() {
            // Pairs with the heavy fence in `announce` (I2).
            asym::light();
        }
        S::step();
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting != 0 {
            self.release_with_care(waiting);
        }
    }

    /// Completes a release that found the lock careful.
    #[cold]
    #[inline(never)]
    fn release_with_care(&self, mut seen: u8) {
        while seen != 0 {
            if seen & SLEEPERS != 0 {
                return slow::wake::<Self, S>(self);
            }
            let next = match seen & COUNT {
                count if count < QUIET => seen + 1,
                _ if may_be_quick() => 0,
                _ => seen,
            };
            if sites::MODIFY.is_weak() {
                return;
            }
            S::step();
            // Release: pairs with the Acquire of `announce` (I3), even where the value stays the same.
            let order = sites::CARE.order(Ordering::Release);
            match self.waiting.compare_exchange_weak(seen, next, order, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes the lock without sleeping, if it becomes free soon.
    pub(crate) fn spin(&self) -> bool {
        slow::spin(self)
    }

    /// Takes the lock, sleeping if necessary. Like [`slow::sleep`].
    #[track_caller]
    pub(crate) fn sleep(&self, deadline: Option<Instant>, wait: &Wait) -> bool {
        slow::sleep::<Self, S>(self, deadline, wait)
    }
}

impl<S: Steps> Sleepable for RawLock<S> {
    fn key(&self) -> (usize, usize) {
        (self.address(), 0)
    }

    fn try_take(&self) -> bool {
        !self.is_held() && self.take()
    }

    fn is_held(&self) -> bool {
        RawLock::is_held(self)
    }

    fn is_announced(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) & SLEEPERS != 0
    }

    fn announce(&self) -> Announced {
        // Acquire: pairs with the Release in `release_with_care` (I3).
        let before = self.waiting.fetch_or(SLEEPERS | CAREFUL, sites::ANNOUNCE.order(Ordering::Acquire));
        S::step();
        if before & CAREFUL != 0 || sites::HEAVY.is_weak() {
            return Announced::Surely;
        }
        if sites::REFUSE.is_weak() {
            return refused();
        }
        // Heavy fence: pairs with the light fence in `release` (I2).
        match asym::heavy() {
            Ok(()) => Announced::Surely,
            Err(_) => refused(),
        }
    }

    fn must_sleep(&self) -> bool {
        (self.is_held() || sites::LOOK.is_weak()) && self.is_announced()
    }

    fn nobody_sleeps(&self) {
        self.waiting.fetch_and(CAREFUL, Ordering::Relaxed);
    }
}

/// Remembers that `membarrier` is refused.
#[cold]
fn refused() -> Announced {
    #[cfg(not(loom))]
    REFUSED.store(true, Ordering::Relaxed);
    Announced::Perhaps
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{QUIET, QUIET_NEW, RawLock, Sleepable, may_be_quick};

    fn quiet_releases(lock: &RawLock, count: u8) {
        for _ in 0..count {
            assert!(lock.take());
            lock.release();
        }
    }

    /// A new lock becomes quick after some quiet releases, careful by one sleeper, and quick again. Where a
    /// light fence does not order the accesses, the lock stays careful.
    #[test]
    fn a_sleeper_makes_the_lock_careful() {
        let lock = RawLock::new();
        quiet_releases(&lock, QUIET_NEW);
        assert!(!lock.is_quick());
        quiet_releases(&lock, 1);
        assert_eq!(lock.is_quick(), may_be_quick());
        // A sleeper that came when the lock was free: the next release finds an empty queue.
        let _ = lock.announce();
        assert!(lock.is_announced() && !lock.is_quick());
        quiet_releases(&lock, 1);
        assert!(!lock.is_announced());
        quiet_releases(&lock, QUIET);
        assert!(!lock.is_quick());
        quiet_releases(&lock, 1);
        assert_eq!(lock.is_quick(), may_be_quick());
    }
}
