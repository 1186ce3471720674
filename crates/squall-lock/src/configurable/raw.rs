//! The lock's word, and how it passes from thread to thread.
//!
//! Problem: whether a lock is free, whether anybody sleeps, and whether anybody who is awake will take it must be seen
//! together by whoever releases it, or a wake-up is lost or wasted. Idea: all three are one word.
//!
//! ```text
//! bit 0      HELD       somebody has the lock
//! bit 1      PARKED     somebody sleeps in the parking table, or is about to
//! bit 2      QUEUED     the list of registered waiters is not empty
//! bit 3      TIMED      the holder's time is taken
//! bit 4      RESERVED   free, but only for those who are counted as awake
//! bit 5      WAKING     one that slept was woken, and will be counted as awake
//! bits 8-15  AWAKE      waiters that have promised to take the lock when it is free
//! ```
//!
//! - W1. Exclusion: HELD is set by a compare-and-swap that found it clear, or stays set when the holder gives the lock to a
//!   waiter that it has taken from the list or the table; that waiter alone is told.
//! - W2. Whoever is about to sleep makes that known in the word, and then looks whether the lock is held, under the lock of the
//!   queue that it sleeps in. A holder that releases afterwards finds PARKED or QUEUED.
//! - W3. While AWAKE is not zero or WAKING is set, a release may leave everybody else asleep. So whoever is counted either takes the
//!   lock or stops being counted in one step that found it HELD: then that holder's release sees the count without it. RESERVED is
//!   set only with the lock free and AWAKE not zero, and cleared by whoever takes the lock: somebody counted, or, after a while, another.
//! - W4. A registered waiter is in the list, or has been told what became of it; it leaves the list itself only under the list's lock,
//!   and looks there which of the two it is.
//! - W5. Whoever changes the attributes stores them first, and then wakes those who sleep, under the locks of their queues; whoever is
//!   about to sleep looks, under the same lock, whether they are what it began to wait by. Registered waiters keep their place; one
//!   that was woken and did not get the lock goes back to it.
//! - W6. A wait that was cancelled ends: see `cancel.rs`.
//!
//! Turns. In a free-for-all the thread that has the lock takes it again and again, at no cost, while one waiter spins and the
//! others sleep: that is fast, and unfair. So, after `patience`, a release reserves the lock for those who are awake (who runs at
//! this moment, so that the lock does not stand still while a thread is woken), and every sixteenth time, or when nobody has been
//! awake for long, gives it to the first that sleeps. A reservation is no promise: if those who are awake do not come, because
//! they were preempted, another takes the lock after a moment. On why few should be awake: D. Dice, "Malthusian locks", 2017.
//!
//! Progress: blocking. A holder that does not run delays all others; a counted waiter that does not run delays those who sleep
//! until somebody releases the lock at the end of a turn.
//! Cost: free, one compare-and-swap to lock and one to unlock. Memory: 192 bytes at most, and a list that grows with the registered waiters.
//! Source: Gheith, Mukherjee, Silva and Schwan, "KTK", 1994, §5.1; Mukherjee and Schwan, 1993.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use super::cancel::Cancel;
use super::monitor::{Monitor, SAMPLED};
use super::pace::{Paced, pace};
use super::queue::{Left, List, Told};
use super::scheduling::{Release, Scheduling, SchedulingCell};
use super::waiting::{Method, Waiting, WaitingCell};
use super::{LockError, sites};
use crate::parking::{self, ParkResult, ParkToken, UnparkToken};
use crate::steps::Steps;
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
/// Somebody will take the lock (W3).
const PROMISED: u32 = AWAKE | WAKING;

/// What a thread that slept is told: the lock is its own.
const HANDED: usize = 1;
/// It is counted as awake.
const COUNTED: usize = 2;
/// It should look again.
pub(super) const AGAIN: usize = 3;

/// Whether a turn is over is asked at one release in so many that find a waiter.
const LOOK_EVERY: u32 = if cfg!(loom) { 2 } else { 16 };
/// Where the lock is held for longer than this, the clock is asked at each release.
const CLOCK_IS_CHEAP_NS: u64 = 1_000;
/// Every so many turns the lock goes to the first that sleeps.
const TURNS: u32 = if cfg!(loom) { 2 } else { 16 };
/// If nobody was awake to have its turn for so many patiences, one that sleeps has it.
const OVERDUE: u32 = 4;
/// Pauses for which a lock is kept for those who are awake: more than there are between two of their looks.
const KEPT: u32 = if cfg!(loom) { 1 } else { 2 * super::pace::GAP_MAX + 128 };

/// How somebody wants the lock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ask<'a> {
    pub(super) deadline: Option<Instant>,
    pub(super) cancel: Option<&'a Cancel>,
    pub(super) priority: i32,
    pub(super) waiting: Option<Waiting>,
    /// Refused where threads are not registered.
    pub(super) must_register: bool,
}

impl Ask<'_> {
    /// Why this wait must end, if it must.
    pub(super) fn over(&self) -> Option<LockError> {
        if self.cancel.is_some_and(Cancel::is_cancelled) {
            return Some(LockError::Cancelled);
        }
        self.deadline.is_some_and(is_past).then_some(LockError::TimedOut)
    }

    /// Sleeps under this key, as [`parking::park`], and so that it can be cancelled. Nobody else has this token there, or those who
    /// have it share the cancellation.
    pub(super) fn park<S: Steps>(
        &self,
        key: usize,
        token: ParkToken,
        validate: impl FnOnce() -> bool,
        timed_out: impl FnOnce(bool),
    ) -> ParkResult {
        let Some(cancel) = self.cancel else {
            return parking::park(key, validate, || {}, timed_out, token, self.deadline);
        };
        if !cancel.enter(key, token) {
            return ParkResult::Invalid;
        }
        S::step();
        let look = sites::CANCEL_LOOK.is_weak();
        let validate = || (look || !cancel.is_cancelled()) && validate();
        let result = parking::park(key, validate, || {}, timed_out, token, self.deadline);
        cancel.leave(key, token);
        result
    }
}

#[cfg(not(loom))]
fn is_past(deadline: Instant) -> bool {
    Instant::now() >= deadline
}

/// A model has no clock: a time is over as soon as it is asked for.
#[cfg(loom)]
fn is_past(_deadline: Instant) -> bool {
    true
}

/// Nanoseconds since some moment, never zero.
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
    /// Releases that found a waiter. The holder's.
    passes: AtomicU32,
    /// When the present turn began, or zero; and how many there were. The holder's.
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

    /// Takes the lock if it is free, and not kept for those who are counted. Looks first: while others wait the word is never plain
    /// zero, and a compare-and-swap in vain costs what one that succeeds does.
    #[inline(always)]
    pub(super) fn try_fast(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        S::step();
        // Acquire: pairs with the release of `unlock`.
        let order = sites::ACQUIRE.order(Ordering::Acquire);
        is_free_for(word, false)
            && self.word.compare_exchange(word, word | HELD, order, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock if it is free, and not kept for those who are counted.
    pub(super) fn try_take(&self, counted: bool) -> bool {
        self.try_take_if(counted, |word| is_free_for(word, counted))
    }

    fn try_take_if(&self, counted: bool, may: impl Fn(u32) -> bool) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while may(word) {
            S::step();
            let taken = (word | HELD) & !RESERVED;
            let taken = if counted { taken - AWAKE_ONE } else { taken };
            // Acquire: pairs with the release of `unlock`.
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

    /// If the lock is kept for those who are awake: waits for them, and takes it if they do not come.
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

    /// Takes the lock, as asked.
    pub(super) fn acquire(&self, ask: &Ask<'_>) -> Result<(), LockError> {
        if !ask.must_register && self.try_take(false) {
            return Ok(());
        }
        self.monitor.waiters.fetch_add(1, Ordering::Relaxed);
        let mut wait = Wait { lock: self, ask, counted: false, ticket: None, spins: 0 };
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
        result
    }

    /// Gives the lock up. Only the holder may call this.
    #[inline(always)]
    pub(super) fn unlock(&self) {
        let word = self.word.load(Ordering::Relaxed);
        // Release: pairs with the acquire of `try_fast` and `try_take_if`.
        let order = sites::RELEASE.order(Ordering::Release);
        if word != HELD || self.word.compare_exchange(HELD, 0, order, Ordering::Relaxed).is_err() {
            self.unlock_with_waiters();
        }
    }

    #[cold]
    fn unlock_with_waiters(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        // In the midst of a turn, with somebody awake to take the lock (W3): nothing is to be decided.
        let midst = word & (TIMED | QUEUED) == 0 && word & PROMISED != 0 && self.scheduling.has_turns();
        if midst && !self.looks_at_the_clock() {
            S::step();
            // Release: pairs with the acquire of `try_take_if`.
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
        // In a free-for-all, turns are counted by those who are awake, too.
        let (turn_over, to_sleeper) = match scheduling.release {
            Release::HandOff => (true, true),
            Release::FreeForAll => self.is_turn_over(word, scheduling.patience),
        };
        loop {
            S::step();
            let passes = to_sleeper || word & PROMISED == 0;
            // Attributes that changed leave some here and some there: in turns.
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
                // Nobody sleeps, or somebody who is awake will take it (W3).
                let kept = if turn_over && word & AWAKE != 0 && word & QUEUED == 0 { RESERVED } else { 0 };
                // Release: pairs with the acquire of `try_take_if`.
                let order = sites::RELEASE.order(Ordering::Release);
                let free = (word & !HELD) | kept;
                if self.word.compare_exchange_weak(word, free, order, Ordering::Relaxed).is_ok() {
                    return;
                }
            }
            word = self.word.load(Ordering::Relaxed);
        }
    }

    /// Whether a release that wakes nobody asks for the time: not each, where the lock is held for less than that takes.
    fn looks_at_the_clock(&self) -> bool {
        // Relaxed: the holder's, and the lock orders it.
        let passes = self.passes.load(Ordering::Relaxed).wrapping_add(1);
        self.passes.store(passes, Ordering::Relaxed);
        let is_long = self.monitor.hold_ns.load(Ordering::Relaxed) > CLOCK_IS_CHEAP_NS;
        is_long || passes.is_multiple_of(LOOK_EVERY)
    }

    /// Whether those who are awake are to get the lock now, and whether one that sleeps is.
    fn is_turn_over(&self, word: u32, patience: Duration) -> (bool, bool) {
        if word & (PARKED | QUEUED | AWAKE) == 0 {
            return (false, false);
        }
        // Relaxed: the holder's (`turns`, `turn_ns`), and the lock orders them.
        let next_turn = || {
            let turns = self.turns.load(Ordering::Relaxed).wrapping_add(1);
            self.turns.store(turns, Ordering::Relaxed);
            turns.is_multiple_of(TURNS)
        };
        if patience.is_zero() {
            let in_order = word & QUEUED != 0;
            return (true, in_order || (word & PARKED != 0 && next_turn()));
        }
        // A model has no clock: any other patience lasts.
        if cfg!(loom) {
            return (false, false);
        }
        let now = now_ns();
        let began = self.turn_ns.load(Ordering::Relaxed);
        let lasted = now.saturating_sub(began);
        let patience = patience.as_nanos() as u64;
        if began == 0 {
            // The first release of this turn that finds a waiter. Not the last of the turn before: until a thread that was woken
            // runs, a turn may have passed, and each release would be the end of one.
            self.turn_ns.store(now, Ordering::Relaxed);
        }
        if began == 0 || lasted < patience {
            return (false, false);
        }
        // Who is registered is served in order, and not by who is awake.
        let in_order = word & QUEUED != 0;
        if word & AWAKE == 0 && !in_order && lasted < patience * u64::from(OVERDUE) {
            // One is woken first; the lock is kept for it when it is there.
            return (false, false);
        }
        self.turn_ns.store(0, Ordering::Relaxed);
        (true, in_order || word & AWAKE == 0 || next_turn())
    }

    /// Gives the lock to a registered waiter, or frees it and wakes one. False if there is none any more.
    fn pass_to_registered(&self, scheduling: Scheduling, hand: bool) -> bool {
        let told = if hand { Told::Owner } else { Told::Counted };
        self.list.pass(self, scheduling.order, told)
    }

    /// Frees the lock for one that is woken. Only the holder may call this, with PROMISED zero.
    pub(super) fn free_for_woken(&self, also_clear: u32) {
        let free = |word: u32| Some((word & !(HELD | also_clear)) | WAKING);
        // Release: pairs with the acquire of `try_take_if`.
        let order = sites::RELEASE.order(Ordering::Release);
        let _ = self.word.fetch_update(order, Ordering::Relaxed, free);
    }

    /// Gives the lock to the first that sleeps in the table, or frees it and wakes that one. False if none sleeps, and the lock is
    /// still the caller's.
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

    /// Those who sleep look again (W5).
    pub(super) fn wake_all(&self) {
        if sites::CHANGE_WAKES.is_weak() {
            return;
        }
        // PARKED may remain with nobody asleep; the next release clears it.
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
    /// This thread is counted as awake in the word.
    counted: bool,
    /// Its place among those who registered, once it did.
    ticket: Option<u64>,
    /// Pauses since it slept last.
    spins: u32,
}

impl<S: Steps> Wait<'_, S> {
    /// Waits until it has the lock.
    fn run(&mut self) -> Result<(), LockError> {
        loop {
            let scheduling = self.lock.scheduling.get();
            if scheduling.registration && !self.counted {
                match self.lock.list.wait(self.lock, self.ask, &mut self.ticket, &mut self.spins) {
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
            // If others will sleep, who is not counted does so at once.
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

    /// It was woken, and is counted on.
    fn is_awake(&mut self) {
        // One is woken at a time (`PROMISED`), so that the bit is its own.
        self.lock.word.fetch_add(AWAKE_ONE - WAKING, Ordering::Relaxed);
        self.counted = true;
    }

    /// Is counted as awake from now on, unless enough are. It then takes the lock, or leaves by `stop_being_counted`.
    fn promise(&self, awake_max: u8) -> bool {
        let most = u32::from(awake_max) * AWAKE_ONE;
        let more = |word: u32| (word & AWAKE < most).then_some(word + AWAKE_ONE);
        self.lock.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Waits by one method. True if it has the lock.
    fn step(&mut self, method: Method, by: By) -> Result<bool, LockError> {
        let (lock, counted) = (self.lock, self.counted);
        match pace(method, self.ask, &mut self.spins, || lock.try_take(counted).then_some(())) {
            Paced::Found(()) => Ok(true),
            Paced::Over(why) => self.end(why),
            Paced::Nothing if method == Method::Block => self.block(by),
            Paced::Nothing => Ok(false),
        }
    }

    /// Ends the wait. If it is counted on and the lock is free, it takes the lock (W3), late as it is.
    fn end(&mut self, why: LockError) -> Result<bool, LockError> {
        if !self.counted || self.stop_being_counted(0) {
            return Err(why);
        }
        if why == LockError::Cancelled {
            // What it was counted on for, the release does: it wakes the next.
            self.lock.unlock();
            return Err(why);
        }
        Ok(true)
    }

    /// Sets `also` and is not counted any more, in a step that finds the lock held. False if it took the lock instead (W3).
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

    /// Sleeps, by these attributes. True if it has the lock when it wakes up.
    fn block(&mut self, by: By) -> Result<bool, LockError> {
        if by.scheduling.registration && self.ticket.is_some() {
            // It was woken and did not get the lock: it sleeps at its place in the list.
            return Ok(!self.stop_being_counted(0));
        }
        if !self.stop_being_counted(PARKED) {
            return Ok(true);
        }
        let lock = self.lock;
        let result = lock.monitor.slept(&mut self.spins, || {
            S::step();
            let still = || {
                let word = lock.word.load(Ordering::Relaxed);
                // A holder that found nobody in the table took PARKED away (W2). A lock that is free, and not kept for another,
                // is better taken than slept for. Who changes the attributes from here on finds it asleep (W5).
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
        });
        match result {
            ParkResult::Unparked(UnparkToken(HANDED)) => return Ok(true),
            ParkResult::Unparked(UnparkToken(COUNTED)) => self.is_awake(),
            ParkResult::TimedOut => return Err(LockError::TimedOut),
            // A time that is over, and a cancellation, are seen at the next look.
            ParkResult::Unparked(_) | ParkResult::Invalid => {}
        }
        Ok(false)
    }
}
