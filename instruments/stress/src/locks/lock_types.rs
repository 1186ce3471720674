//! The locks under stress, behind two traits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use squall::lock::{
    Cancel, ConfigurableLock, DistributedRwLock, Lock, LockError, Method, Order, ReadBiasedRwLock, Request,
    Scheduling, Steps, TwoBits, Waiting,
};
use squall::objects::lock::{AdaptiveLock, Wanted};

use super::disturbed::Disturbed;
use crate::run::{Rng, lock};
use crate::skeleton::run_state::RunState;

/// A request for a lock.
#[derive(Clone)]
pub(super) enum Attempt {
    /// Waits without a limit.
    Wait,
    /// Does not wait.
    Try,
    /// Waits until the deadline.
    Until(Instant),
    /// Waits until it is cancelled.
    Cancel(Arc<Cancel>),
    /// Waits with a priority, and optionally in its own way.
    As(i32, Option<Waiting>),
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Inside,
    Busy,
    TimedOut,
    Cancelled,
    NotRegistered,
    /// The run is over; only a lock with a planned break returns this.
    Over,
}

/// The critical section, with the word that the lock guards.
pub(super) type Section<'a> = &'a mut dyn FnMut(&mut u64);
pub(super) type Reading<'a> = &'a mut dyn FnMut(u64);

/// A mutual exclusion lock.
pub(super) trait Exclusive: Send + Sync {
    fn name(&self) -> &'static str;

    /// Runs the section inside, unless the request ends otherwise.
    fn enter(&self, attempt: &Attempt, section: Section<'_>) -> Outcome;

    fn can_cancel(&self) -> bool {
        false
    }

    /// Changes the lock's attributes. Returns whether there are any.
    fn meddle(&self, _rng: &mut Rng) -> bool {
        false
    }

    /// Describes the attributes as they are now.
    fn attributes(&self) -> String {
        String::new()
    }

    /// Checks the memory beside the lock after all threads have ended.
    fn is_whole(&self) -> bool {
        true
    }
}

/// A reader-writer lock.
pub(super) trait SharedAccess: Send + Sync {
    fn name(&self) -> &'static str;
    fn read(&self, attempt: &Attempt, section: Reading<'_>) -> Outcome;
    fn write(&self, attempt: &Attempt, section: Section<'_>) -> Outcome;
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// A lock with a name.
pub(super) struct Named<L>(pub(super) &'static str, pub(super) L);

impl<S: Steps> Exclusive for Named<Lock<u64, S>>
where
    Lock<u64, S>: Send + Sync,
{
    fn name(&self) -> &'static str {
        self.0
    }

    fn enter(&self, attempt: &Attempt, section: Section<'_>) -> Outcome {
        let guard = match attempt {
            Attempt::Try => self.1.try_lock().ok_or(Outcome::Busy),
            Attempt::Until(deadline) => self.1.try_lock_until(*deadline).ok_or(Outcome::TimedOut),
            Attempt::Wait | Attempt::Cancel(_) | Attempt::As(..) => Ok(self.1.lock()),
        };
        guard.map_or_else(|outcome| outcome, |mut guard| inside(&mut guard, section))
    }
}

fn inside(word: &mut u64, section: Section<'_>) -> Outcome {
    section(word);
    Outcome::Inside
}

impl<S: Steps> Exclusive for Named<ConfigurableLock<u64, S>> {
    fn name(&self) -> &'static str {
        self.0
    }

    fn can_cancel(&self) -> bool {
        true
    }

    fn enter(&self, attempt: &Attempt, section: Section<'_>) -> Outcome {
        let guard = match attempt {
            Attempt::Try => self.1.try_lock().ok_or(Outcome::Busy),
            Attempt::Wait => Ok(self.1.lock()),
            // Not `try_lock_until`, so that the deadline and the lock's own timeout meet.
            Attempt::Until(deadline) => {
                self.1.lock_with(&Request::new().deadline(*deadline)).map_err(outcome)
            }
            Attempt::Cancel(cancel) => self.1.lock_with(&Request::new().cancel(cancel)).map_err(outcome),
            Attempt::As(priority, waiting) => {
                let mut request = Request::new().priority(*priority);
                if let Some(waiting) = waiting {
                    request = request.waiting(*waiting);
                }
                self.1.lock_with(&request).map_err(outcome)
            }
        };
        guard.map_or_else(|outcome| outcome, |mut guard| inside(&mut guard, section))
    }

    fn attributes(&self) -> String {
        format!(" (now {:?}, {:?})", self.1.waiting(), self.1.scheduling())
    }

    fn meddle(&self, rng: &mut Rng) -> bool {
        match rng.below(8) {
            0..3 => self.1.set_waiting(any_waiting(rng)),
            3..7 => self.1.set_scheduling(any_scheduling(rng)),
            _ => drop(self.1.monitor()),
        }
        true
    }
}

impl Exclusive for Named<AdaptiveLock<u64>> {
    fn name(&self) -> &'static str {
        self.0
    }

    fn can_cancel(&self) -> bool {
        true
    }

    fn enter(&self, attempt: &Attempt, section: Section<'_>) -> Outcome {
        let guard = match attempt {
            Attempt::Try => self.1.try_lock().ok_or(Outcome::Busy),
            Attempt::Wait => Ok(self.1.lock()),
            Attempt::Until(deadline) => self.1.try_lock_until(*deadline).ok_or(Outcome::TimedOut),
            Attempt::Cancel(cancel) => self.1.lock_with(&Request::new().cancel(cancel)).map_err(outcome),
            Attempt::As(priority, _) => {
                self.1.lock_with(&Request::new().priority(*priority)).map_err(outcome)
            }
        };
        guard.map_or_else(|outcome| outcome, |mut guard| inside(&mut guard, section))
    }

    fn meddle(&self, rng: &mut Rng) -> bool {
        // Mostly automatic.
        let forms =
            [Wanted::Auto, Wanted::Auto, Wanted::Turns, Wanted::HandOff, Wanted::StandBy, Wanted::Block];
        self.1.set_form(forms[rng.below(forms.len() as u64) as usize]);
        true
    }
}

fn outcome(error: LockError) -> Outcome {
    match error {
        LockError::TimedOut => Outcome::TimedOut,
        LockError::Cancelled => Outcome::Cancelled,
        _ => Outcome::NotRegistered,
    }
}

/// Returns a random way to wait.
pub(super) fn any_waiting(rng: &mut Rng) -> Waiting {
    let amount = |rng: &mut Rng| 1 + rng.below(200) as u16;
    match rng.below(6) {
        0 => Waiting::SPIN,
        1 => Waiting::BLOCK,
        2 => Waiting::SPIN_THEN_BLOCK,
        3 => Waiting::new(&[Method::Spin(amount(rng)), Method::Yield(amount(rng))]),
        4 => Waiting::new(&[Method::Yield(amount(rng)), Method::Block]),
        _ => Waiting::new(&[Method::Backoff(amount(rng)), Method::Spin(amount(rng)), Method::Block]),
    }
}

fn any_scheduling(rng: &mut Rng) -> Scheduling {
    let order = [Order::FirstCome, Order::Priority, Order::ClusterFirst][rng.below(3) as usize];
    let base = if rng.one_in(2) { Scheduling::HAND_OFF } else { Scheduling::FREE_FOR_ALL };
    base.order(order)
        .registration(rng.one_in(2))
        .awake_max(rng.below(5) as u8)
        .patience(Duration::from_micros(rng.below(2_000)))
}

/// Implements `SharedAccess` for a reader-writer lock.
macro_rules! shared_access {
    ($lock:ident) => {
        impl<S: Steps> SharedAccess for Named<$lock<u64, S>> {
            fn name(&self) -> &'static str {
                self.0
            }

            fn read(&self, attempt: &Attempt, section: Reading<'_>) -> Outcome {
                let guard = match attempt {
                    Attempt::Try => self.1.try_read().ok_or(Outcome::Busy),
                    Attempt::Until(deadline) => self.1.try_read_for(left(*deadline)).ok_or(Outcome::TimedOut),
                    Attempt::Wait | Attempt::Cancel(_) | Attempt::As(..) => Ok(self.1.read()),
                };
                guard.map_or_else(
                    |outcome| outcome,
                    |guard| {
                        section(*guard);
                        Outcome::Inside
                    },
                )
            }

            fn write(&self, attempt: &Attempt, section: Section<'_>) -> Outcome {
                let guard = match attempt {
                    Attempt::Try => self.1.try_write().ok_or(Outcome::Busy),
                    Attempt::Until(deadline) => {
                        self.1.try_write_for(left(*deadline)).ok_or(Outcome::TimedOut)
                    }
                    Attempt::Wait | Attempt::Cancel(_) | Attempt::As(..) => Ok(self.1.write()),
                };
                guard.map_or_else(|outcome| outcome, |mut guard| inside(&mut guard, section))
            }
        }
    };
}

shared_access!(DistributedRwLock);
shared_access!(ReadBiasedRwLock);

/// A lock in two bits of a word. The word also holds another lock, and a count that changes at any time.
struct InBits<S: Steps> {
    name: &'static str,
    bits: TwoBits<AtomicU64, S>,
    shared: Arc<Shared>,
    /// The guarded word, with plain loads and stores.
    guarded: AtomicU64,
}

#[derive(Default)]
struct Shared {
    word: AtomicU64,
    /// The expected count in the word.
    changes: AtomicU64,
}

/// The count lies between the two locks.
const FIRST: u32 = 0;
const COUNT: u32 = 2;
const SECOND: u32 = 62;

impl<S: Steps> Exclusive for InBits<S> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn enter(&self, attempt: &Attempt, section: Section<'_>) -> Outcome {
        let word = &self.shared.word;
        let guard = match attempt {
            Attempt::Try => self.bits.try_lock(word).ok_or(Outcome::Busy),
            Attempt::Until(deadline) => self.bits.try_lock_until(word, *deadline).ok_or(Outcome::TimedOut),
            Attempt::Wait | Attempt::Cancel(_) | Attempt::As(..) => Ok(self.bits.lock(word)),
        };
        match guard {
            Ok(_guard) => {
                let mut guarded = Kept { of: &self.guarded, word: self.guarded.load(Ordering::Relaxed) };
                inside(&mut guarded.word, section)
            }
            Err(outcome) => outcome,
        }
    }

    fn meddle(&self, _rng: &mut Rng) -> bool {
        self.shared.word.fetch_add(1 << COUNT, Ordering::Relaxed);
        self.shared.changes.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn is_whole(&self) -> bool {
        let changes = self.shared.changes.load(Ordering::Relaxed);
        self.shared.word.load(Ordering::Relaxed) == changes << COUNT
    }
}

/// Stores the word back, also after a panic.
struct Kept<'a> {
    of: &'a AtomicU64,
    word: u64,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.of.store(self.word, Ordering::Relaxed);
    }
}

/// Makes two locks in one word.
pub(super) fn in_bits() -> [Box<dyn Exclusive>; 2] {
    let shared = Arc::new(Shared::default());
    let guarded = || AtomicU64::new(0);
    let (name, bits) = ("the disturbed two-bit lock", TwoBits::<_, Disturbed>::with_steps(FIRST));
    let first = InBits { name, bits, shared: Arc::clone(&shared), guarded: guarded() };
    let (name, bits) = ("the two-bit lock", TwoBits::at(SECOND));
    [Box::new(first), Box::new(InBits { name, bits, shared, guarded: guarded() })]
}

/// Makes all mutual exclusion locks, each with delayed steps and as shipped.
pub(super) fn locks() -> Vec<Box<dyn Exclusive>> {
    let (waiting, scheduling) = (Waiting::SPIN_THEN_BLOCK, Scheduling::HAND_OFF);
    let [first_bits, second_bits] = in_bits();
    vec![
        first_bits,
        second_bits,
        Box::new(Named("the disturbed lock", Lock::<u64, Disturbed>::with_steps(0))),
        Box::new(Named("the lock", Lock::new(0))),
        Box::new(Named(
            "the disturbed configurable lock",
            ConfigurableLock::<u64, Disturbed>::with_steps(0, waiting, scheduling),
        )),
        Box::new(Named(
            "the second disturbed configurable lock",
            ConfigurableLock::<u64, Disturbed>::with_steps(0, Waiting::BLOCK, Scheduling::FREE_FOR_ALL),
        )),
        Box::new(Named("the configurable lock", ConfigurableLock::new(0))),
        Box::new(Named("the adaptive lock", AdaptiveLock::new(0))),
    ]
}

/// Makes all reader-writer locks, each with delayed steps and as shipped.
pub(super) fn shared_locks() -> Vec<Box<dyn SharedAccess>> {
    vec![
        Box::new(Named(
            "the disturbed reader-writer lock",
            DistributedRwLock::<u64, Disturbed>::with_steps(0),
        )),
        Box::new(Named("the reader-writer lock", DistributedRwLock::new(0))),
        Box::new(Named("the disturbed read-biased lock", ReadBiasedRwLock::<u64, Disturbed>::with_steps(0))),
        Box::new(Named("the read-biased lock", ReadBiasedRwLock::new(0))),
    ]
}

/// A broken lock: it sometimes forgets to wake the first waiter, which blocks the whole queue.
pub(super) struct Forgetful {
    state: Mutex<State>,
    freed: Condvar,
    over: &'static RunState,
}

#[derive(Default)]
struct State {
    held: bool,
    /// While there are waiters, a new thread waits too.
    waiters: u64,
    word: u64,
    releases: u64,
}

/// One release in this many wakes no waiter.
const FORGETS_ONE_IN: u64 = 50;
/// Sleep of a waiter between two checks of its deadline and of the run.
const NAP: Duration = Duration::from_millis(2);

impl Forgetful {
    pub(super) fn new(over: &'static RunState) -> Forgetful {
        Forgetful { state: Mutex::default(), freed: Condvar::new(), over }
    }
}

impl Exclusive for Forgetful {
    fn name(&self) -> &'static str {
        "the forgetful lock"
    }

    fn enter(&self, attempt: &Attempt, section: Section<'_>) -> Outcome {
        let mut state = lock(&self.state);
        if state.held || state.waiters > 0 {
            if matches!(attempt, Attempt::Try) {
                return Outcome::Busy;
            }
            state.waiters += 1;
            let mut woken = false;
            // A waiter that was not woken sleeps on, even if the lock is free.
            while state.held || !woken {
                let given_up = match attempt {
                    _ if self.over.is_stopped() => Some(Outcome::Over),
                    Attempt::Until(deadline) if left(*deadline).is_zero() => Some(Outcome::TimedOut),
                    _ => None,
                };
                if let Some(outcome) = given_up {
                    state.waiters -= 1;
                    return outcome;
                }
                let (next, nap) =
                    self.freed.wait_timeout(state, NAP).unwrap_or_else(|poison| poison.into_inner());
                (state, woken) = (next, !nap.timed_out());
            }
            state.waiters -= 1;
        }
        state.held = true;
        let mut held = Held { lock: self, word: state.word };
        drop(state);
        section(&mut held.word);
        Outcome::Inside
    }
}

/// Frees the lock, also after a panic.
struct Held<'a> {
    lock: &'a Forgetful,
    word: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.lock.state);
        (state.held, state.word) = (false, self.word);
        state.releases += 1;
        if !state.releases.is_multiple_of(FORGETS_ONE_IN) {
            self.lock.freed.notify_one();
        }
    }
}
