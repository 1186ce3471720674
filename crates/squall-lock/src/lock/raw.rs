//! The lock of two bytes whose release, when nobody waits, is a plain store.
//!
//! Problem: a lock that sleeps needs two atomic operations, one to take it and one to release it, since the release must see
//! a sleeper that announces itself at the same moment; they are nearly all of what a free lock costs.
//!
//! Idea: `held` and `waiting` are bytes of their own. The release stores `held` and loads `waiting` with a light fence
//! between; the sleeper announces itself in `waiting`, makes the heavy fence ([`asym`]), and looks at `held` once more. To pay
//! that for each sleep would be dear, so the first sleeper also makes the lock *careful*: while it is, whoever releases
//! makes a read-modify-write of `waiting` instead, and sleepers pay nothing. When enough releases in a row found no
//! sleeper, the one that counts them to the end makes the lock *quick* again.
//!
//! `waiting` is zero while the lock is quick, else of the bits [`SLEEPERS`], [`CAREFUL`] and [`COUNT`]. A new lock is careful, so
//! that `new` asks for nothing.
//!
//! - I1. Two releases or takings of the lock are ordered by `held`: taking is an Acquire compare-exchange that reads the zero which a
//!   Release store wrote.
//! - I2. A release that read `waiting` as quick, and did not see that somebody made the lock careful, is seen by whoever
//!   made it careful, after its heavy fence.
//! - I3. A release that read `waiting` as careful sees each announcement before its read-modify-write, or is seen by the
//!   announcer: both modify one word, with acquire and release, and the store of `held` precedes the one, the look at `held`
//!   follows the other.
//! - I4. Whoever made the lock careful looks at `held` after its heavy fence, and takes the lock if it is free (`slow`,
//!   I4). A sleeper that came meanwhile and relied on the lock being careful was perhaps not seen by a release that read
//!   quick; that release is seen by the one who made it careful (I2), which takes the lock or sees it held by
//!   somebody whose release reads careful. That release wakes the sleeper.
//!
//! From I2 to I4 follows `slow`'s I1. If the heavy fence is refused, the announcement is [`Announced::Perhaps`], and no lock of
//! the process that is careful becomes quick any more.
//!
//! Not promised: that the memory is not looked at after the release is seen. The guard borrows the lock until its drop
//! returns, which is after that; whoever frees a lock by other means must wait for that too (unlike `std`'s).
//!
//! Progress: `release` is wait-free while the lock is quick, else lock-free but for the wake-up; taking blocks.
//! Cost: quick: one compare-exchange; one store and one load. Careful: one read-modify-write more, and a call. Becoming careful: a system
//! call that interrupts each processor on which a thread of the process runs.
//! Source: D. Dice, H. Huang, M. Yang, "Asymmetric Dekker synchronization", 2001; our own: that care is a mode of each lock, so that
//! the heavy fence is paid once in a while and not once per sleep, and that care is a read-modify-write and not a fence.

use super::slow::{self, Announced, Sleepable};
use crate::steps::{Steps, Undisturbed};
use squall_machine::asym;
#[cfg(not(loom))]
use squall_sys::sync::atomic::AtomicBool;
use squall_sys::sync::atomic::{AtomicU8, Ordering};
use std::marker::PhantomData;
use std::time::Instant;

/// The sites of the argument, which model tests weaken one by one.
pub(crate) mod sites {
    use squall_sys::sync::weaken::Site;
    /// The acquire of taking the lock (I1).
    pub(crate) const TAKE: Site = Site(0);
    /// The release of `held` (I1).
    pub(crate) const RELEASE: Site = Site(1);
    /// The light fence of a release (I2).
    pub(crate) const LIGHT: Site = Site(2);
    /// The heavy fence of whoever makes the lock careful (I2).
    pub(crate) const HEAVY: Site = Site(3);
    /// The announcement's acquire (I3).
    pub(crate) const ANNOUNCE: Site = Site(4);
    /// The release of a careful release's read-modify-write (I3).
    pub(crate) const CARE: Site = Site(5);
    /// Not an ordering: whether who releases a careful lock modifies `waiting` or only reads it (I3).
    pub(crate) const MODIFY: Site = Site(6);
    /// Not an ordering: whether who is about to sleep looks at `held` once more (I4, and `slow`'s I1).
    pub(crate) const LOOK: Site = Site(7);
    /// Not an ordering: whether the lock may become quick. Weakened, it is the lock where there is no `membarrier`.
    #[cfg(loom)]
    pub(crate) const QUICKEN: Site = Site(8);
    /// Not an ordering: whether the heavy fence is made at all. Weakened, it is refused, and the sleeper is told so.
    pub(crate) const REFUSE: Site = Site(9);
}

// The bits of `waiting`.
/// Somebody sleeps, or is about to.
const SLEEPERS: u8 = 0x80;
/// Releases modify `waiting`.
const CAREFUL: u8 = 0x40;
/// How many releases in a row found no sleeper; only while careful.
const COUNT: u8 = 0x3f;

/// The releases without sleepers after which a careful lock becomes quick.
const QUIET: u8 = if cfg!(any(loom, miri)) { 1 } else { COUNT };
/// The same for a new lock, for which nobody has paid a heavy fence yet.
const QUIET_NEW: u8 = if cfg!(any(loom, miri)) { 1 } else { 8 };

const _: () = assert!(
    SLEEPERS & CAREFUL == 0 && SLEEPERS | CAREFUL | COUNT == 0xff && QUIET_NEW <= QUIET && QUIET <= COUNT
);

/// Set once `membarrier`, which worked before, was refused.
#[cfg(not(loom))]
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether a light fence orders anything in this process, now and for ever unless `membarrier` is refused.
#[cfg(not(loom))]
fn may_be_quick() -> bool {
    // Relaxed: a lock that becomes quick in spite of it makes the next sleeper find out anew.
    (asym::CHECKED || asym::mode() == asym::Mode::Membarrier) && !REFUSED.load(Ordering::Relaxed)
}

/// Whether memory of zeros is a lock that nobody holds: a quick one, which it may be while light fences order something.
#[cfg(not(loom))]
pub fn zeros_are_free() -> bool {
    may_be_quick()
}

#[cfg(loom)]
fn may_be_quick() -> bool {
    !sites::QUICKEN.is_weak()
}

/// The lock, without what it protects.
pub(crate) struct RawLock<S = Undisturbed> {
    /// Whether somebody holds it: 0 or 1.
    held: AtomicU8,
    waiting: AtomicU8,
    steps: PhantomData<fn() -> S>,
}

impl<S> RawLock<S> {
    /// A lock that nobody holds.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> RawLock<S> {
        RawLock {
            held: AtomicU8::new(0),
            waiting: AtomicU8::new(CAREFUL | (QUIET - QUIET_NEW)),
            steps: PhantomData,
        }
    }

    /// A lock that nobody holds.
    #[cfg(loom)]
    pub(crate) fn new() -> RawLock<S> {
        RawLock {
            held: AtomicU8::new(0),
            waiting: AtomicU8::new(CAREFUL | (QUIET - QUIET_NEW)),
            steps: PhantomData,
        }
    }

    /// A lock that is quick at once.
    #[cfg(all(test, any(loom, squall_model)))]
    pub(super) fn new_quick() -> RawLock<S> {
        RawLock { held: AtomicU8::new(0), waiting: AtomicU8::new(0), steps: PhantomData }
    }

    /// Whether releases are plain stores now.
    #[cfg(all(test, not(loom)))]
    pub(super) fn is_quick(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Takes the lock if it is free, without a look before.
    #[inline(always)]
    pub(crate) fn take(&self) -> bool {
        // Acquire: pairs with the store of `release` (I1).
        let order = sites::TAKE.order(Ordering::Acquire);
        self.held.compare_exchange(0, 1, order, Ordering::Relaxed).is_ok()
    }

    /// Whether somebody holds the lock.
    #[inline(always)]
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed) != 0
    }

    /// The address that stands for the lock.
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
            // Partner: the heavy fence in `announce` (I2).
            asym::light();
        }
        S::step();
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting != 0 {
            self.release_with_care(waiting);
        }
    }

    /// The rest of a release that found the lock careful.
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
            // Release: pairs with the acquire of `announce` (I3), even where the value stays as it was.
            let order = sites::CARE.order(Ordering::Release);
            match self.waiting.compare_exchange_weak(seen, next, order, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes the lock without a sleep, if it becomes free soon.
    pub(crate) fn spin(&self) -> bool {
        slow::spin(self)
    }

    /// Takes the lock, asleep if need be. False if the time was over before.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) -> bool {
        slow::sleep::<Self, S>(self, deadline)
    }
}

impl<S: Steps> Sleepable for RawLock<S> {
    fn key(&self) -> (usize, usize) {
        (self.address(), 0)
    }

    fn try_take(&self) -> bool {
        !self.is_held() && self.take()
    }

    fn is_announced(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) & SLEEPERS != 0
    }

    fn announce(&self) -> Announced {
        // Acquire: pairs with the release in `release_with_care` (I3).
        let before = self.waiting.fetch_or(SLEEPERS | CAREFUL, sites::ANNOUNCE.order(Ordering::Acquire));
        S::step();
        if before & CAREFUL != 0 || sites::HEAVY.is_weak() {
            return Announced::Surely;
        }
        if sites::REFUSE.is_weak() {
            return refused();
        }
        // Pairs with the light fence in `release` (I2).
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

    /// A lock becomes quick after so many quiet releases, careful by one sleeper, and quick again; where a light fence orders
    /// nothing it never does.
    #[test]
    fn it_is_quick_until_somebody_sleeps() {
        let lock = RawLock::new();
        quiet_releases(&lock, QUIET_NEW);
        assert!(!lock.is_quick());
        quiet_releases(&lock, 1);
        assert_eq!(lock.is_quick(), may_be_quick());
        // A sleeper that came when the lock was free: the next release finds nobody.
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
