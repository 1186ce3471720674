//! Waiting for a lock and waking who waits: what the two-bit lock and `Lock` have in common.
//!
//! Problem: whoever releases a lock must learn of those who are about to sleep, and whoever is about to sleep of the release.
//! Idea: a sleeper announces itself in the lock's own bits, then looks again under the lock of the queue in which it will
//! sleep ([`parking`], I1); who releases looks for the announcement after the release. How
//! these two are ordered is the lock's own affair ([`Sleepable::announce`]).
//!
//! - I1. After `announce` said [`Announced::Surely`], a thread that finds the lock held and announced, and sleeps, is woken:
//!   every later release sees the announcement, and only the queue's lock covers its removal, when nobody sleeps.
//! - I2. A thread that was woken, or that gives up, tries the lock once after that. So a wake-up is not lost with it: if the
//!   lock is free it has it, else its holder's release wakes the next.
//! - I3. Who is handed the lock never sees it free.
//! - I4. A thread that announced itself does not leave without having seen the lock held after that, or having it.
//!
//! Not promised: order. A thread that comes while the lock is free takes it before those that were woken (barging). One that
//! was woken [`VAIN`] times and found the lock taken again is impatient: who releases takes the lock again for it, if it is
//! still free, and hands it over. Each hand-over costs all others the time in which the new holder wakes up, so it is rare.
//!
//! Progress: blocking. Cost: a few dozen pauses and a few yields before a sleep, none of it if others sleep already.
//! Source: `parking_lot` 0.13 (the same order of release and wake); Karlin et al., "Empirical studies of competitive
//! spinning", 1991.

use crate::parking::{self, FilterOp, ParkResult, ParkToken, UnparkToken};
use crate::steps::Steps;
use squall_sync::{hint, thread};
use std::cell::Cell;
#[cfg(not(loom))]
use std::time::Duration;
use std::time::Instant;

/// What a lock must offer to be waited for.
pub(crate) trait Sleepable {
    /// The address under which threads wait, and the number of this lock among those that share it (even).
    fn key(&self) -> (usize, usize);
    /// Takes the lock if it is free, with Acquire. Looks before it writes.
    fn try_take(&self) -> bool;
    /// Whether somebody announced that it sleeps or will.
    fn is_announced(&self) -> bool;
    /// Announces a sleeper.
    fn announce(&self) -> Announced;
    /// Whether the lock is held and a sleeper announced. Under the lock of the queue.
    fn must_sleep(&self) -> bool;
    /// Takes back the announcement. Under the lock of the queue, which is empty.
    fn nobody_sleeps(&self);
}

/// Whether a release that comes later sees the announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Announced {
    /// Every one.
    Surely,
    /// The fence that was to make sure was refused.
    Perhaps,
}

/// The lock is yours.
const HANDED: UnparkToken = UnparkToken(1);
const WOKEN: UnparkToken = UnparkToken(0);

/// Added to the lock's number in the token of a thread that was woken in vain too often.
const IMPATIENT: usize = 1;

/// How often a thread is woken in vain before it is impatient.
const VAIN: u32 = if cfg!(any(loom, miri)) { 1 } else { 16 };

/// How long a thread that must not trust to be woken sleeps between two looks.
#[cfg(not(loom))]
const PAUSE: Duration = Duration::from_millis(1);

/// Rounds of spinning before a sleep: the first `PAUSING` pause 2, 4, 8.. times, the others yield.
const ROUNDS: u32 = if cfg!(any(loom, miri)) { 0 } else { 10 };
const PAUSING: u32 = 3;

/// Takes the lock, without a sleep, if it becomes free soon.
pub(crate) fn spin<L: Sleepable>(lock: &L) -> bool {
    for round in 1..=ROUNDS {
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

/// Takes the lock, asleep if need be. False if the time was over before.
pub(crate) fn sleep<L: Sleepable, S: Steps>(lock: &L, deadline: Option<Instant>) -> bool {
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
        match parking::park(key, || lock.must_sleep(), S::step, timed_out, token, deadline) {
            ParkResult::Unparked(HANDED) => return true,
            ParkResult::Unparked(_) => vain = VAIN.min(vain + 1),
            // I4: it was seen held under the queue's lock.
            ParkResult::TimedOut => {
                S::step();
                return lock.try_take();
            }
            ParkResult::Invalid => {}
        }
        S::step();
        // I2, I4.
        if spin(lock) {
            return true;
        }
    }
}

/// Takes the lock without trusting that anybody would wake us: `membarrier` worked once and is refused now. Others may have
/// gone to sleep because they trust us (`lock/raw.rs`, I4), so who gives up wakes one, which then looks for itself: by then
/// no release can be so old as not to see the announcement.
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

/// A model has no clock.
#[cfg(loom)]
fn pause() {
    thread::yield_now();
}

/// Wakes the first who sleeps for this lock, after a release that saw an announcement.
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
        // I3: taken by us, and never released before the other has it.
        let handed = impatient.get() && lock.try_take();
        if !more.get() {
            lock.nobody_sleeps();
        }
        if handed { HANDED } else { WOKEN }
    };
    parking::unpark_filter(key, filter, callback);
}

/// Whether the time is over.
fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}
