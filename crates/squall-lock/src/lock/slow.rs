//! The slow path shared by the two-bit lock and `Lock`: sleep for a lock, and wake a sleeper.
//!
//! Problem: a releasing thread must learn of a thread that is about to sleep, and that thread must learn of
//! the release.
//! Idea: a sleeper announces itself in the lock's own bits. Then it reads the lock again under the lock of
//! the queue in which it will sleep (`parking/I1`). The releasing thread looks for the announcement after
//! its release. Each lock orders these two accesses by its own means ([`Sleepable::announce`]).
//!
//! - I1. A thread that got [`Announced::Surely`] from `announce`, finds the lock held and announced, and
//!   sleeps, is woken. Every later release sees the announcement. The announcement is removed only under the
//!   queue's lock, when the last sleeper leaves.
//! - I2. A thread that was woken, or that gives up, tries the lock once afterwards. So its wake-up is never
//!   lost: it takes a free lock, or else the release of the current holder wakes the next sleeper.
//! - I3. A thread that is handed the lock never sees it free.
//! - I4. A thread that announced itself leaves only after it took the lock, or after it saw the lock held at
//!   a time after the announcement.
//!
//! Not promised: order. A thread that arrives while the lock is free takes it before woken threads (barging).
//! A thread that was woken [`VAIN`] times and found the lock taken again is impatient. The releasing thread
//! then retakes the lock for it, if the lock is still free, and hands it over. During a hand-over all others
//! wait until the new holder runs, so it is rare.
//!
//! Progress: blocking. Cost: a few dozen pauses and a few yields before a sleep; they are skipped if others
//! sleep already.
//! Source: `parking_lot` 0.13 (the same order of release and wake); Karlin et al., "Empirical studies of
//! competitive spinning", 1991.

use crate::forked::refuse;
use crate::parking::{self, FilterOp, ParkResult, ParkToken, UnparkToken};
use crate::records::Wait;
use crate::steps::Steps;
use squall_machine::park::is_past;
#[cfg(not(loom))]
use squall_machine::transfer::TransferTimer;
use squall_sys::fork::forked;
use squall_sys::sync::{hint, thread};
use std::cell::Cell;
#[cfg(not(loom))]
use std::time::Duration;
use std::time::Instant;

/// The operations that the slow path needs from a lock.
pub(crate) trait Sleepable {
    /// Returns the address under which threads sleep, and the even number of this lock among locks that share
    /// the address.
    fn key(&self) -> (usize, usize);
    /// Takes the lock if it is free, with Acquire. Reads before it writes.
    fn try_take(&self) -> bool;
    /// Returns whether a thread holds the lock.
    fn is_held(&self) -> bool;
    /// Returns whether a thread announced that it sleeps or will sleep.
    fn is_announced(&self) -> bool;
    /// Announces a sleeper.
    fn announce(&self) -> Announced;
    /// Returns whether the lock is held and a sleeper announced. Called under the lock of the queue.
    fn must_sleep(&self) -> bool;
    /// Removes the announcement. Called under the lock of the queue, which is empty.
    fn nobody_sleeps(&self);
}

/// Tells whether later releases see an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Announced {
    /// Every later release sees it.
    Surely,
    /// A later release may miss it, because the heavy fence was refused.
    Perhaps,
}

/// Tells the woken thread that it holds the lock.
const HANDED: UnparkToken = UnparkToken(1);
const WOKEN: UnparkToken = UnparkToken(0);

/// Added to the lock's number in the token of a thread that too often was woken and found the lock held.
const IMPATIENT: usize = 1;

/// The number of wake-ups that find the lock held after which a thread is impatient.
const VAIN: u32 = if cfg!(any(loom, miri)) { 1 } else { 16 };

/// The time between two attempts of a thread that cannot rely on a wake-up.
#[cfg(not(loom))]
const PAUSE: Duration = Duration::from_millis(1);

/// Rounds of spinning before a sleep. The first `PAUSING` rounds pause 2, 4, 8, ... times; the others yield.
const ROUNDS: u32 = if cfg!(any(loom, miri)) { 0 } else { 10 };
const PAUSING: u32 = 3;

/// Takes the lock without sleeping, if it becomes free soon. The caller has just found it held.
pub(crate) fn spin<L: Sleepable>(lock: &L) -> bool {
    #[cfg(not(loom))]
    {
        let mut timer = TransferTimer::new();
        spin_with(lock, || timer.read(|| lock.is_held()))
    }
    #[cfg(loom)]
    spin_with(lock, || ())
}

/// Takes the lock without sleeping, if it becomes free soon. Calls `before_yield` in each round in which the
/// thread has not yielded yet.
fn spin_with<L: Sleepable>(lock: &L, mut before_yield: impl FnMut()) -> bool {
    for round in 1..=ROUNDS {
        if round <= PAUSING + 1 {
            before_yield();
        }
        if lock.try_take() {
            return true;
        }
        if lock.is_announced() {
            return false;
        }
        if round <= PAUSING {
            (0..1 << round).for_each(|_| hint::spin_loop());
        } else {
            thread::yield_now();
        }
    }
    lock.try_take()
}

/// Takes the lock, sleeping if necessary. Returns false if the deadline passed first, or in the child of a
/// fork. Emits the sleeps of `wait`.
///
/// # Panics
/// In the child of a fork, if there is no deadline.
#[track_caller]
pub(crate) fn sleep<L: Sleepable, S: Steps>(lock: &L, deadline: Option<Instant>, wait: &Wait) -> bool {
    if forked() {
        return if deadline.is_some() { lock.try_take() } else { refuse() };
    }
    let (key, number) = lock.key();
    let mut vain = 0;
    loop {
        if is_past(deadline) {
            return lock.try_take();
        }
        S::step();
        if lock.announce() == Announced::Perhaps {
            return poll::<L, S>(lock, deadline);
        }
        S::step();
        let timed_out = |last: bool| {
            if last {
                lock.nobody_sleeps();
            }
        };
        let token = ParkToken(if vain < VAIN { number } else { number | IMPATIENT });
        let park = || parking::park(key, || lock.must_sleep(), S::step, timed_out, token, deadline);
        match wait.parked(park) {
            ParkResult::Unparked(HANDED) => return true,
            ParkResult::Unparked(_) => vain = VAIN.min(vain + 1),
            // I4: this thread saw the lock held, under the queue's lock.
            ParkResult::TimedOut => {
                S::step();
                return lock.try_take();
            }
            ParkResult::Invalid => {}
        }
        S::step();
        // I2, I4.
        if spin_with(lock, || ()) {
            return true;
        }
    }
}

/// Takes the lock without relying on a wake-up: `membarrier` worked once and is refused now. Other threads
/// may sleep because they rely on this thread (`raw/I4`). So a thread that gives up wakes one
/// sleeper, which then looks for itself. By then every release old enough to miss the announcement has
/// completed.
#[cold]
fn poll<L: Sleepable, S: Steps>(lock: &L, deadline: Option<Instant>) -> bool {
    loop {
        pause();
        if lock.try_take() {
            return true;
        }
        if is_past(deadline) {
            wake::<L, S>(lock);
            return false;
        }
    }
}

#[cfg(not(loom))]
fn pause() {
    thread::sleep(PAUSE);
}

/// Yields: a model has no clock.
#[cfg(loom)]
fn pause() {
    thread::yield_now();
}

/// Wakes the first sleeper of this lock, after a release that saw an announcement.
#[cold]
#[inline(never)]
pub(crate) fn wake<L: Sleepable, S: Steps>(lock: &L) {
    S::step();
    let (key, number) = lock.key();
    let (found, impatient, more) = (Cell::new(false), Cell::new(false), Cell::new(false));
    let filter = |token: ParkToken| {
        if token.0 & !IMPATIENT != number {
            return FilterOp::Skip;
        }
        if found.replace(true) {
            more.set(true);
            return FilterOp::Stop;
        }
        impatient.set(token.0 & IMPATIENT != 0);
        FilterOp::Unpark
    };
    let callback = |_| {
        // I3: this thread takes the lock, and the woken thread receives it without a release in between.
        let handed = impatient.get() && lock.try_take();
        if !more.get() {
            lock.nobody_sleeps();
        }
        if handed { HANDED } else { WOKEN }
    };
    parking::unpark_filter(key, filter, callback);
}
