//! The lock's word, and the ways the lock passes from thread to thread.
//!
//! Problem: a releasing thread must see together whether the lock has sleepers, and whether an awake waiter
//! will take it. Otherwise a wake-up is lost or wasted. Idea: one word holds all of that.
//!
//! ```text
//! bit 0      HELD       a thread has the lock
//! bit 1      PARKED     a thread sleeps in the parking table, or is about to
//! bit 2      QUEUED     the list of registered waiters is not empty
//! bit 3      TIMED      the holder's time is sampled
//! bit 4      RESERVED   free, but only for counted waiters
//! bit 5      WAKING     a sleeper was woken, and will be counted as awake
//! bits 8-15  AWAKE      counted waiters: they have promised to take the lock when it is free
//! ```
//!
//! - W1. Exclusion: A thread gets the lock in one of two ways. It sets HELD by a compare-and-swap that found
//!   HELD clear. Or the holder leaves HELD set, removes a waiter from the list or the table, and tells only
//!   that waiter.
//! - W2. A thread that is about to sleep sets its bit in the word. Then it checks whether the lock is held,
//!   under the lock of the queue in which it will sleep. A holder that releases afterwards finds PARKED or
//!   QUEUED.
//! - W3. While AWAKE is not zero or WAKING is set, a release may leave all other waiters asleep. So a counted
//!   waiter takes the lock, or leaves the count in one step that finds HELD set. Then that holder's release
//!   sees the smaller count. RESERVED is set only if the lock is free and AWAKE is not zero. The thread that
//!   takes the lock clears it: a counted waiter or, after a while, another thread.
//! - W4. A registered waiter is in the list, or has been told its result. It leaves the list by itself only
//!   under the list's lock, where it checks which of the two holds.
//! - W5. A thread that changes the attributes stores them first. Then it wakes the sleepers, under the locks
//!   of their queues. A thread that is about to sleep checks under the same lock that the attributes are
//!   still those it waits by. Registered waiters keep their place; a woken waiter without the lock returns to
//!   its place.
//! - W6. A cancelled wait ends: see `cancel.rs`.
//!
//! Turns. In a free-for-all one thread may take the lock again and again at no cost, while one waiter spins
//! and the others sleep. That is fast and unfair. So after `patience` a release reserves the lock for the
//! awake waiters. They run at this moment, so the lock does not stand idle during a wake-up. Every sixteenth
//! turn, or when no waiter has been awake for long, the lock goes to the first sleeper. A reservation is no
//! guarantee: if the awake waiters were preempted, another thread takes the lock after a moment. On the
//! benefit of few awake waiters: D. Dice, "Malthusian locks", 2017.
//!
//! Progress: blocking. A holder that does not run delays all others. A counted waiter that does not run
//! delays the sleepers until a release ends a turn.
//! Cost: free, one compare-and-swap to lock and one to unlock. Memory: at most 192 bytes, and a list that
//! grows with the registered waiters.
//! Source: KT-15 to KT-17 (Gheith, Mukherjee, Silva and Schwan, "KTK", 1994, §5.1); Mukherjee and Schwan,
//! 1993.

use std::marker::PhantomData;
use std::time::Duration;
#[cfg(not(loom))]
use std::time::Instant;

use super::monitor::{Monitor, SAMPLED};
use super::pace::{Paced, pace};
use super::queue::{Left, List, Told};
use super::request::{Ask, LockError};
use super::scheduling::{Release, Scheduling, SchedulingCell};
use super::sites;
use super::tokens::{AGAIN, COUNTED, HANDED};
use super::waiting::{Method, Waiting, WaitingCell};
use crate::parking::{self, ParkResult, ParkToken, UnparkToken};
use crate::records::{self, LockType};
use crate::steps::Steps;
use squall_sys::fork::forked;
use squall_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use squall_sys::sync::hint::spin_loop;

const HELD: u32 = 1;
const PARKED: u32 = 2;
pub(super) const QUEUED: u32 = 4;
const TIMED: u32 = 8;
const RESERVED: u32 = 16;
const AWAKE_ONE: u32 = 1 << 8;
const AWAKE: u32 = 0xff << 8;
const WAKING: u32 = 32;
/// A waiter will take the lock (W3).
const PROMISED: u32 = AWAKE | WAKING;

/// One in this many releases that find a waiter checks whether the turn is over.
const LOOK_EVERY: u32 = if cfg!(loom) { 2 } else { 16 };
/// If the lock is held longer than this, each release reads the clock.
const CLOCK_IS_CHEAP_NS: u64 = 1_000;
/// Every this many turns the lock goes to the first sleeper.
const TURNS: u32 = if cfg!(loom) { 2 } else { 16 };
/// A sleeper gets its turn after this many patiences in which no waiter was awake to take one.
const OVERDUE: u32 = 4;
/// The number of pauses for which a lock stays reserved for awake waiters: more than lie between two of their
/// checks.
const KEPT: u32 = if cfg!(loom) { 1 } else { 2 * super::pace::GAP_MAX + 128 };

/// Returns nanoseconds since a fixed moment, never zero.
#[cfg(not(loom))]
fn now_ns() -> u64 {
    static BEGAN: squall_sys::sync::OnceLock<Instant> = squall_sys::sync::OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

#[cfg(loom)]
fn now_ns() -> u64 {
    1
}

pub(super) struct RawLock<S> {
    pub(super) word: AtomicU32,
    /// Releases that found a waiter. Written by the holder.
    passes: AtomicU32,
    /// The start of the present turn, or zero; and the number of turns. Written by the holder.
    turn_ns: AtomicU64,
    turns: AtomicU32,
    pub(super) waiting: WaitingCell,
    pub(super) scheduling: SchedulingCell,
    pub(super) monitor: Monitor,
    pub(super) list: List,
    steps: PhantomData<fn() -> S>,
}

impl<S: Steps> RawLock<S> {
    #[cfg(not(loom))]
    pub(super) const fn new(waiting: Waiting, scheduling: Scheduling) -> RawLock<S> {
        RawLock {
            word: AtomicU32::new(0),
            passes: AtomicU32::new(0),
            turn_ns: AtomicU64::new(0),
            turns: AtomicU32::new(0),
            waiting: WaitingCell::new(waiting),
            scheduling: SchedulingCell::new(scheduling),
            monitor: Monitor::new(),
            list: List::new(),
            steps: PhantomData,
        }
    }

    #[cfg(loom)]
    pub(super) fn new(waiting: Waiting, scheduling: Scheduling) -> RawLock<S> {
        RawLock {
            word: AtomicU32::new(0),
            passes: AtomicU32::new(0),
            turn_ns: AtomicU64::new(0),
            turns: AtomicU32::new(0),
            waiting: WaitingCell::new(waiting),
            scheduling: SchedulingCell::new(scheduling),
            monitor: Monitor::new(),
            list: List::new(),
            steps: PhantomData,
        }
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(&self.word) as usize
    }

    /// Takes the lock if it is free and not reserved for counted waiters. Reads the word first: while threads
    /// wait it is never zero, and a failing compare-and-swap costs as much as a successful one.
    #[inline(always)]
    pub(super) fn try_fast(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        S::step();
        // Acquire: pairs with the Release of `unlock`.
        let order = sites::ACQUIRE.order(Ordering::Acquire);
        is_free_for(word, false)
            && self.word.compare_exchange(word, word | HELD, order, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock if it is free and, unless `counted`, not reserved for counted waiters.
    pub(super) fn try_take(&self, counted: bool) -> bool {
        self.try_take_if(counted, |word| is_free_for(word, counted))
    }

    fn try_take_if(&self, counted: bool, may: impl Fn(u32) -> bool) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while may(word) {
            S::step();
            let taken = (word | HELD) & !RESERVED;
            let taken = if counted { taken - AWAKE_ONE } else { taken };
            // Acquire: pairs with the Release of `unlock`.
            let order = sites::ACQUIRE.order(Ordering::Acquire);
            match self.word.compare_exchange_weak(word, taken, order, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => word = seen,
            }
        }
        false
    }

    pub(super) fn is_held(&self) -> bool {
        self.word.load(Ordering::Relaxed) & HELD != 0
    }

    /// Waits while the lock is reserved for awake waiters, and takes it if they do not come.
    fn take_what_is_kept(&self) -> bool {
        let is_kept = |word: u32| word & (HELD | RESERVED) == RESERVED;
        for _ in 0..KEPT {
            if !is_kept(self.word.load(Ordering::Relaxed)) {
                return false;
            }
            spin_loop();
        }
        let taken = self.try_take_if(false, is_kept);
        if taken {
            Monitor::count(&self.monitor.missed);
        }
        taken
    }

    /// Takes the lock according to `ask`.
    pub(super) fn acquire(&self, ask: &Ask<'_>) -> Result<(), LockError> {
        if !ask.must_register && self.try_take(false) {
            return Ok(());
        }
        if forked() {
            return Err(LockError::Forked);
        }
        self.monitor.waiters.fetch_add(1, Ordering::Relaxed);
        let traced = records::Wait::begin(LockType::Configurable, ask.subject);
        let mut wait = Wait { lock: self, ask, counted: false, ticket: None, spins: 0, traced: &traced };
        let result = wait.run();
        let others = self.monitor.waiters.fetch_sub(1, Ordering::Relaxed) - 1;
        if result.is_ok() {
            if others > self.monitor.peak.load(Ordering::Relaxed) {
                self.monitor.peak.store(others, Ordering::Relaxed);
            }
            self.monitor.spins_used.fetch_add(u64::from(wait.spins), Ordering::Relaxed);
            let contended = Monitor::count(&self.monitor.contended);
            if contended.is_multiple_of(SAMPLED) && !cfg!(loom) {
                self.monitor.since_ns.store(now_ns(), Ordering::Relaxed);
                self.word.fetch_or(TIMED, Ordering::Relaxed);
            }
        }
        traced.end(result.is_ok());
        result
    }

    /// Releases the lock. Only the holder may call this.
    #[inline(always)]
    pub(super) fn unlock(&self) {
        let word = self.word.load(Ordering::Relaxed);
        // Release: pairs with the Acquire of `try_fast` and `try_take_if`.
        let order = sites::RELEASE.order(Ordering::Release);
        if word != HELD || self.word.compare_exchange(HELD, 0, order, Ordering::Relaxed).is_err() {
            self.unlock_with_waiters();
        }
    }

    #[cold]
    fn unlock_with_waiters(&self) {
        if forked() {
            // The waiters do not exist in the child of a fork, and their list may be locked for ever.
            // Release: pairs with the Acquire of `try_take_if`.
            self.word.store(0, Ordering::Release);
            return;
        }
        let mut word = self.word.load(Ordering::Relaxed);
        // In the middle of a turn, with an awake waiter that will take the lock (W3), the release has no
        // decision to make.
        let midst = word & (TIMED | QUEUED) == 0 && word & PROMISED != 0 && self.scheduling.has_turns();
        if midst && !self.looks_at_the_clock() {
            S::step();
            // Release: pairs with the Acquire of `try_take_if`.
            let order = sites::RELEASE.order(Ordering::Release);
            if self.word.compare_exchange(word, word & !HELD, order, Ordering::Relaxed).is_ok() {
                return;
            }
            word = self.word.load(Ordering::Relaxed);
        }
        if word & TIMED != 0 {
            let since = self.monitor.since_ns.load(Ordering::Relaxed);
            self.monitor.held_for(now_ns().saturating_sub(since));
            word = self.word.fetch_and(!TIMED, Ordering::Relaxed) & !TIMED;
        }
        let scheduling = self.scheduling.get();
        // In a free-for-all, the turns of awake waiters count too.
        let (turn_over, to_sleeper) = match scheduling.release {
            Release::HandOff => (true, true),
            Release::FreeForAll => self.is_turn_over(word, scheduling.patience),
        };
        loop {
            S::step();
            let passes = to_sleeper || word & PROMISED == 0;
            // After a change of attributes some waiters may be in the table and some in the list: alternate
            // between them.
            let registered = word & PARKED == 0 || !self.turns.load(Ordering::Relaxed).is_multiple_of(2);
            let registered = registered && word & QUEUED != 0;
            if passes && registered {
                if self.pass_to_registered(scheduling, to_sleeper) {
                    return;
                }
            } else if passes && word & PARKED != 0 {
                if self.pass_to_sleeper(to_sleeper) {
                    return;
                }
            } else {
                // There is no sleeper, or an awake waiter will take the lock (W3).
                let kept = if turn_over && word & AWAKE != 0 && word & QUEUED == 0 { RESERVED } else { 0 };
                // Release: pairs with the Acquire of `try_take_if`.
                let order = sites::RELEASE.order(Ordering::Release);
                let free = (word & !HELD) | kept;
                if self.word.compare_exchange_weak(word, free, order, Ordering::Relaxed).is_ok() {
                    return;
                }
            }
            word = self.word.load(Ordering::Relaxed);
        }
    }

    /// Returns whether a release without a wake-up reads the clock. Where sections are shorter than reading
    /// the clock, only one in [`LOOK_EVERY`] releases reads it.
    fn looks_at_the_clock(&self) -> bool {
        // Relaxed: only the holder writes this, and the lock orders the holders.
        let passes = self.passes.load(Ordering::Relaxed).wrapping_add(1);
        self.passes.store(passes, Ordering::Relaxed);
        let is_long = self.monitor.hold_ns.load(Ordering::Relaxed) > CLOCK_IS_CHEAP_NS;
        is_long || passes.is_multiple_of(LOOK_EVERY)
    }

    /// Returns whether a waiter gets the lock now, and whether a sleeper gets it.
    fn is_turn_over(&self, word: u32, patience: Duration) -> (bool, bool) {
        if word & (PARKED | QUEUED | AWAKE) == 0 {
            return (false, false);
        }
        // Relaxed: only the holder writes `turns` and `turn_ns`, and the lock orders the holders.
        let next_turn = || {
            let turns = self.turns.load(Ordering::Relaxed).wrapping_add(1);
            self.turns.store(turns, Ordering::Relaxed);
            turns.is_multiple_of(TURNS)
        };
        if patience.is_zero() {
            let in_order = word & QUEUED != 0;
            return (true, in_order || (word & PARKED != 0 && next_turn()));
        }
        // A model has no clock: a non-zero patience never ends.
        if cfg!(loom) {
            return (false, false);
        }
        let now = now_ns();
        let began = self.turn_ns.load(Ordering::Relaxed);
        let lasted = now.saturating_sub(began);
        let patience = patience.as_nanos() as u64;
        if began == 0 {
            // The turn starts at its first release that finds a waiter. It cannot start at the end of the
            // previous turn: until a woken thread runs, a whole turn may pass, and then each release would
            // end one.
            self.turn_ns.store(now, Ordering::Relaxed);
        }
        if began == 0 || lasted < patience {
            return (false, false);
        }
        // Registered waiters are served in order, not by being awake.
        let in_order = word & QUEUED != 0;
        if word & AWAKE == 0 && !in_order && lasted < patience * u64::from(OVERDUE) {
            // First wake one; the lock is reserved for it once it is awake.
            return (false, false);
        }
        self.turn_ns.store(0, Ordering::Relaxed);
        (true, in_order || word & AWAKE == 0 || next_turn())
    }

    /// Gives the lock to a registered waiter, or frees it and wakes one. Returns false if the list is empty.
    fn pass_to_registered(&self, scheduling: Scheduling, hand: bool) -> bool {
        let told = if hand { Told::Owner } else { Told::Counted };
        self.list.pass(self, scheduling.order, told)
    }

    /// Frees the lock for a thread that is being woken. Only the holder may call this, with PROMISED zero.
    pub(super) fn free_for_woken(&self, also_clear: u32) {
        let free = |word: u32| Some((word & !(HELD | also_clear)) | WAKING);
        // Release: pairs with the Acquire of `try_take_if`.
        let order = sites::RELEASE.order(Ordering::Release);
        let _ = self.word.fetch_update(order, Ordering::Relaxed, free);
    }

    /// Gives the lock to the first sleeper in the table, or frees it and wakes that sleeper. Returns false if
    /// the table has no sleeper; the caller then still holds the lock.
    fn pass_to_sleeper(&self, hand: bool) -> bool {
        let result = parking::unpark_one(self.key(), |result| {
            let none_left = if result.have_more_threads { 0 } else { PARKED };
            if result.unparked_threads == 0 || hand {
                if result.unparked_threads > 0 {
                    Monitor::count(&self.monitor.handed);
                }
                self.word.fetch_and(!none_left, Ordering::Relaxed);
                UnparkToken(HANDED)
            } else {
                self.free_for_woken(none_left);
                UnparkToken(COUNTED)
            }
        });
        result.unparked_threads > 0
    }

    /// Wakes the sleepers, so that they check again (W5).
    pub(super) fn wake_all(&self) {
        if sites::CHANGE_WAKES.is_weak() || forked() {
            return;
        }
        // PARKED may stay set without a sleeper; the next release clears it.
        parking::unpark_all(self.key(), UnparkToken(AGAIN));
        self.list.wake_all();
    }
}

#[inline(always)]
fn is_free_for(word: u32, counted: bool) -> bool {
    word & HELD == 0 && (counted || word & RESERVED == 0)
}

/// The attributes that a thread waits by.
#[derive(Clone, Copy)]
struct By {
    waiting: Waiting,
    scheduling: Scheduling,
}

/// One thread's wait.
struct Wait<'a, S> {
    lock: &'a RawLock<S>,
    ask: &'a Ask<'a>,
    /// The thread is counted in AWAKE.
    counted: bool,
    /// The thread's place among registered threads, once it has one.
    ticket: Option<u64>,
    /// Pauses since the last sleep.
    spins: u32,
    traced: &'a records::Wait,
}

impl<S: Steps> Wait<'_, S> {
    /// Waits until the thread has the lock.
    fn run(&mut self) -> Result<(), LockError> {
        loop {
            let scheduling = self.lock.scheduling.get();
            if scheduling.registration && !self.counted {
                match self.lock.list.wait(self.lock, self.ask, &mut self.ticket, &mut self.spins, self.traced)
                {
                    Left::Owner => return Ok(()),
                    Left::Counted => self.is_awake(),
                    Left::Over(why) => return Err(why),
                }
            } else if self.ask.must_register && !self.counted {
                return Err(LockError::NotRegistered);
            }
            let own = self.ask.waiting.filter(|_| scheduling.registration);
            let by = By { waiting: self.lock.waiting.get(), scheduling };
            let waiting = own.unwrap_or(by.waiting);
            if !self.counted {
                self.counted = self.promise(scheduling.awake_max);
            }
            if !self.counted && self.lock.take_what_is_kept() {
                return Ok(());
            }
            // If others will sleep, a thread that is not counted sleeps at once.
            let skips = !self.counted && waiting.blocks();
            for method in waiting.methods() {
                if skips && method != Method::Block {
                    continue;
                }
                if self.step(method, by)? {
                    return Ok(());
                }
                if method == Method::Block {
                    break;
                }
            }
        }
    }

    /// Records that this woken thread is counted.
    fn is_awake(&mut self) {
        // Only one thread is woken at a time (`PROMISED`), so WAKING belongs to this thread.
        self.lock.word.fetch_add(AWAKE_ONE - WAKING, Ordering::Relaxed);
        self.counted = true;
    }

    /// Counts this thread as awake, unless `awake_max` threads are. A counted thread must take the lock, or
    /// leave the count by `stop_being_counted`.
    fn promise(&self, awake_max: u8) -> bool {
        let most = u32::from(awake_max) * AWAKE_ONE;
        let more = |word: u32| (word & AWAKE < most).then_some(word + AWAKE_ONE);
        self.lock.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Waits by one method. Returns true if the thread has the lock.
    fn step(&mut self, method: Method, by: By) -> Result<bool, LockError> {
        let (lock, counted) = (self.lock, self.counted);
        match pace(method, self.ask, &mut self.spins, || lock.try_take(counted).then_some(())) {
            Paced::Found(()) => Ok(true),
            Paced::Over(why) => self.end(why),
            Paced::Nothing if method == Method::Block => self.block(by),
            Paced::Nothing => Ok(false),
        }
    }

    /// Ends the wait. A counted thread takes the lock if it is free (W3), even after its deadline.
    fn end(&mut self, why: LockError) -> Result<bool, LockError> {
        if !self.counted || self.stop_being_counted(0) {
            return Err(why);
        }
        if why == LockError::Cancelled {
            // The release fulfils this thread's promise: it wakes the next waiter.
            self.lock.unlock();
            return Err(why);
        }
        Ok(true)
    }

    /// Sets `also` and leaves the count, in a step that finds the lock held. Returns false if the thread took
    /// the lock instead (W3).
    fn stop_being_counted(&mut self, also: u32) -> bool {
        let less = if self.counted { AWAKE_ONE } else { 0 };
        let ignores_duty = sites::DUTY.is_weak() && self.counted;
        loop {
            let word = self.lock.word.load(Ordering::Relaxed);
            if is_free_for(word, self.counted) && !ignores_duty {
                if self.lock.try_take(self.counted) {
                    self.counted = false;
                    return false;
                }
                continue;
            }
            S::step();
            let left = (word - less) | also;
            if self.lock.word.compare_exchange_weak(word, left, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                self.counted = false;
                return true;
            }
        }
    }

    /// Sleeps by these attributes. Returns true if the thread has the lock when it wakes up.
    fn block(&mut self, by: By) -> Result<bool, LockError> {
        if by.scheduling.registration && self.ticket.is_some() {
            // The thread was woken and did not get the lock: it sleeps at its place in the list.
            return Ok(!self.stop_being_counted(0));
        }
        if !self.stop_being_counted(PARKED) {
            return Ok(true);
        }
        let lock = self.lock;
        let park = || {
            S::step();
            let still = || {
                let word = lock.word.load(Ordering::Relaxed);
                // A holder that found the table empty cleared PARKED (W2). A lock that is free and not
                // reserved for another is better taken than slept for. A later change of attributes finds
                // this thread asleep (W5).
                let found = word & PARKED != 0 && !is_free_for(word, false);
                let same = lock.waiting.get() == by.waiting && lock.scheduling.get() == by.scheduling;
                (found || sites::LAST_LOOK.is_weak()) && (same || sites::CHANGE_LOOK.is_weak())
            };
            let timed_out = |last: bool| {
                if last {
                    lock.word.fetch_and(!PARKED, Ordering::Relaxed);
                }
            };
            let token = ParkToken(self.ask.cancel.map_or(0, |cancel| std::ptr::from_ref(cancel) as usize));
            self.ask.park::<S>(lock.key(), token, still, timed_out)
        };
        match lock.monitor.slept(&mut self.spins, || self.traced.parked(park)) {
            ParkResult::Unparked(UnparkToken(HANDED)) => return Ok(true),
            ParkResult::Unparked(UnparkToken(COUNTED)) => self.is_awake(),
            ParkResult::TimedOut => return Err(LockError::TimedOut),
            // The next check finds a passed deadline or a cancellation.
            ParkResult::Unparked(_) | ParkResult::Invalid => {}
        }
        Ok(false)
    }
}
