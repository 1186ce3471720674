//! The engine: looks at objects whose sensors tripped, asks what would be best for them, and swaps them.
//!
//! Problem: deciding takes time that the call which tripped a sensor does not have, and a swap is not allowed there. Idea: a
//! sensor only posts an id, and one thread looks. While every object has the form in which it began, the thread
//! sleeps until something is posted; while one is grown it looks ten times a second, and never more than twenty times.
//!
//! A look has three steps, in which many objects are looked at together: two readings of the sensors some milliseconds
//! apart tell who is busy, a count of calls for a fraction of a millisecond tells who calls what, and the families judge
//! that. What is thought best is then swapped for, if the object's temper (`temper.rs`) and the program's budget allow.
//!
//! - I1. A look runs outside every operation, in the engine's thread or in that of a caller of [`turn`], one at a time.
//! - I2. No code of a family's runs under a lock of the engine's but `LOOKING`, which nobody waits for.
//! - I3. A sensor that tripped is armed again by the look that took its post, or is looked at again: it is in `again`.
//! - I4. Whatever is decided is remembered with its readings; that something is held, when that changes.
//!
//! Source: CO-71; KT-17 (who is sampled and reconfigured), KT-19; PITFALLS on sensors: they only post.

mod look;
mod posts;
mod record;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use squall_core::Id;
use squall_machine::park::EventCount;

use crate::hysteresis::Allowance;
use posts::Posts;
use record::Record;

/// The name of the engine's thread.
pub(crate) const NAME: &str = "squall-adapt";

/// Looks in each second, at most: the bucket holds so many more.
const LOOKS_PER_S: f64 = 16.0;
const LOOKS_BURST: f64 = 4.0;
/// Between two looks while an object is grown.
const GROWN_TICK: Duration = Duration::from_millis(100);
/// The same while one is held that would be better off otherwise.
const HELD_TICK: Duration = Duration::from_millis(50);

static POSTS: Posts = Posts::new();
static BELL: EventCount = EventCount::new();
static STATE: Mutex<Option<State>> = Mutex::new(None);
/// Held by who looks.
static LOOKING: Mutex<()> = Mutex::new(());
/// Whether everything is frozen, and whether the policies only say what they would do.
pub(crate) static FROZEN: AtomicBool = AtomicBool::new(false);
pub(crate) static DRY_RUN: AtomicBool = AtomicBool::new(false);

/// What the engine knows.
pub(crate) struct State {
    pub(crate) records: HashMap<Id, Record>,
    /// After so many records those of objects that are gone are thrown away.
    prune_at: usize,
    swaps: Allowance,
    looks: Allowance,
}

impl State {
    fn new() -> State {
        State {
            records: HashMap::new(),
            prune_at: 64,
            swaps: Allowance::full(1.0),
            looks: Allowance::full(LOOKS_BURST),
        }
    }

    /// The record of an object, made now if there is none.
    pub(crate) fn record(&mut self, id: Id, make: impl FnOnce() -> Record) -> &mut Record {
        self.records.entry(id).or_insert_with(make)
    }
}

/// The engine's state, under its lock.
pub(crate) struct Locked(MutexGuard<'static, Option<State>>);

impl std::ops::Deref for Locked {
    type Target = State;
    fn deref(&self) -> &State {
        self.0.as_ref().expect("made when it was locked")
    }
}

impl std::ops::DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("made when it was locked")
    }
}

pub(crate) use look::{by_hand, replaced, wake};

pub(crate) fn state() -> Locked {
    // Nothing panics under this lock but a failed allocation, which leaves it whole.
    let mut state = STATE.lock().unwrap_or_else(|poison| poison.into_inner());
    state.get_or_insert_with(State::new);
    Locked(state)
}

/// Time since the engine was first used, plus a second, so that nothing is ever before it.
pub(crate) fn now() -> Duration {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed() + Duration::from_secs(1)
}

/// What the engine's thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineState {
    /// No adaptive object was made.
    NotStarted,
    /// There is a thread, `squall-adapt`.
    Running,
    /// It was switched off, by [`set_thread`] or `SQUALL_ADAPT=off`: [`turn`] does its work.
    Off,
    /// It could not be started.
    Failed,
}

const UNASKED: u8 = 0;
const RUNNING: u8 = 1;
const OFF: u8 = 2;
const FAILED: u8 = 3;
/// Switched off, and its thread exists.
const PAUSED: u8 = 4;
/// Switched on by the program, and not started.
const ALLOWED: u8 = 5;

static THREAD: AtomicU8 = AtomicU8::new(UNASKED);

/// What the engine's thread is doing.
pub fn thread_state() -> EngineState {
    match THREAD.load(Ordering::Relaxed) {
        RUNNING => EngineState::Running,
        OFF | PAUSED => EngineState::Off,
        FAILED => EngineState::Failed,
        _ => EngineState::NotStarted,
    }
}

/// Starts the engine's thread if there is none and it may run. Called by what makes adaptive objects; it sleeps until one of
/// them posts.
///
/// # Cost
/// A load; once, the start of a thread.
#[inline]
pub fn start() {
    if matches!(THREAD.load(Ordering::Relaxed), UNASKED | ALLOWED) {
        start_slowly();
    }
}

#[cold]
fn start_slowly() {
    if squall_sys::fork::forked() {
        return;
    }
    let off = std::env::var_os("SQUALL_ADAPT").is_some_and(|value| value == "off");
    let change = |state| match state {
        UNASKED if off => Some(OFF),
        UNASKED | ALLOWED => Some(RUNNING),
        _ => None,
    };
    // Relaxed: the thread's start orders what it must see.
    let changed = THREAD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    if changed == Ok(ALLOWED) || changed == Ok(UNASKED) && !off {
        spawn();
    }
}

fn spawn() {
    let spawned = std::thread::Builder::new().name(NAME.to_owned()).spawn(work);
    if spawned.is_err() {
        THREAD.store(FAILED, Ordering::Relaxed);
    }
}

/// Allows or forbids the engine's thread; overrides `SQUALL_ADAPT`. Without it, nothing changes by itself but where the
/// program calls [`turn`].
pub fn set_thread(allowed: bool) {
    let change = |state| match (state, allowed) {
        (RUNNING | PAUSED, true) => RUNNING,
        (RUNNING | PAUSED, false) => PAUSED,
        (_, true) => ALLOWED,
        (_, false) => OFF,
    };
    let _ = THREAD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| Some(change(state)));
    BELL.signal(1);
    if allowed {
        start();
    }
}

/// Asks for a look at an object: what a sensor does that tripped. Returns whether the engine will look; if not, it has many
/// to look at, and the sensor had better be armed again.
///
/// It may be called anywhere: inside an operation, in a signal handler.
///
/// # Cost
/// An atomic exchange, and a wake-up of a thread that sleeps. Lock-free.
pub fn post(id: Id) -> bool {
    if squall_sys::fork::forked() {
        return false;
    }
    let put = POSTS.put(id);
    if put {
        BELL.signal(1);
    }
    put
}

/// Wakes the thread, for something that is not posted.
pub(crate) fn ring() {
    BELL.signal(1);
}

/// Does what the engine's thread would do now: looks at what was posted, and at what is grown or held. Returns how many
/// objects were looked at. For programs that switched the thread off. Nothing is done if somebody else is at it, or inside an
/// operation or a method.
///
/// # Cost
/// Some milliseconds if there is anything to look at.
pub fn turn() -> usize {
    if squall_rcu::in_operation() || squall_sys::fork::forked() {
        return 0;
    }
    let _looking = match LOOKING.try_lock() {
        Ok(looking) => looking,
        // Something panicked in an earlier look.
        Err(TryLockError::Poisoned(poison)) => poison.into_inner(),
        Err(TryLockError::WouldBlock) => return 0,
    };
    look::look(POSTS.take())
}

/// The thread.
fn work() {
    let mut failures = 0;
    loop {
        let seen = BELL.prepare();
        let next = match THREAD.load(Ordering::Relaxed) {
            RUNNING if POSTS.any() => Some(Duration::ZERO),
            RUNNING => state().next_look(),
            _ => None,
        };
        if next != Some(Duration::ZERO) {
            BELL.wait(seen, next);
        } else if let Err(wait) = state().may_look() {
            std::thread::sleep(wait);
        } else if std::panic::catch_unwind(turn).is_err() {
            // A family's code panicked. What the look was about is forgotten, and may post again.
            failures += 1;
            std::thread::sleep(Duration::from_millis(100) * failures.min(100));
        }
    }
}

impl State {
    /// How long until the next look, if one is due although nothing is posted.
    fn next_look(&self) -> Option<Duration> {
        let now = now();
        self.records.values().filter_map(|record| record.due).min().map(|due| due.saturating_sub(now))
    }

    fn may_look(&mut self) -> Result<(), Duration> {
        self.looks.take(now(), LOOKS_PER_S, LOOKS_BURST)
    }
}
