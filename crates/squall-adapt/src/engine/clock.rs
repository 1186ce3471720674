//! Clock of the engine: the system's monotonic clock, or the virtual clock of a
//! [`VirtualTime`](super::VirtualTime).
//!
//! Problem: the engine measures rates and waits for spans, so a test of its decisions depends on the load of
//! the machine. Idea: all code of the engine reads its time and sleeps here. On virtual time a sleep moves
//! the clock and calls a load of the test, which makes the calls of that span.
//!
//! - I1. The clock never goes back, also where virtual time begins or ends: all threads read it under one
//!   lock.
//! - I2. Only the thread that holds a `VirtualTime` sleeps on virtual time. No other thread runs a round
//!   meanwhile (`virtual_time/I1`).
//! - I3. A panic of a load does not unwind through a round, where it would count as a panic of a family. The
//!   holder takes it from [`take_panic`].

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use super::starved;

static CLOCK: Mutex<Clock> = Mutex::new(Clock { virtual_now: None, ahead: Duration::ZERO });

struct Clock {
    /// Time of the virtual clock, while there is one.
    virtual_now: Option<Duration>,
    /// Time by which earlier virtual clocks ran ahead of the system's clock.
    ahead: Duration,
}

/// Longest span that passes between two calls of a load.
const STEP: Duration = Duration::from_millis(1);

/// Makes the calls of a span of virtual time.
type CallLoad = Box<dyn FnMut(Duration)>;

thread_local! {
    /// The load of the thread that holds a `VirtualTime`.
    static LOAD: RefCell<Option<CallLoad>> = const { RefCell::new(None) };
    /// The panic that ended the load.
    static PANIC: RefCell<Option<Box<dyn Any + Send>>> = const { RefCell::new(None) };
    /// Whether this thread holds the `VirtualTime`.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

impl Clock {
    fn system(&self) -> Duration {
        static BEGAN: OnceLock<Instant> = OnceLock::new();
        BEGAN.get_or_init(Instant::now).elapsed() + Duration::from_secs(1) + self.ahead
    }

    fn now(&self) -> Duration {
        self.virtual_now.unwrap_or_else(|| self.system())
    }
}

fn clock() -> MutexGuard<'static, Clock> {
    CLOCK.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Returns the time since the first use of the engine plus one second, so that no event has an earlier time.
pub(crate) fn now() -> Duration {
    clock().now()
}

/// Returns `true` if another thread holds a `VirtualTime`.
pub(super) fn is_held_elsewhere() -> bool {
    !HOLDS.get() && clock().virtual_now.is_some()
}

/// Lets a span pass: the calling thread sleeps. On virtual time the load of the calling thread is called
/// instead.
pub(super) fn sleep(span: Duration) {
    if !HOLDS.get() {
        return starved::asleep(Some(span), false, || thread::sleep(span));
    }
    let end = now() + span;
    loop {
        let left = end.saturating_sub(now());
        if left.is_zero() {
            return;
        }
        advance(left);
    }
}

/// Moves the virtual clock by at most `span`, and calls the load for this time. Without a load it moves by
/// the whole span.
pub(super) fn advance(span: Duration) {
    // Taken out during the call, so that a load that sleeps does not call itself.
    let load = LOAD.take();
    let step = if load.is_some() { span.min(STEP) } else { span };
    if let Some(mut load) = load {
        match catch_unwind(AssertUnwindSafe(|| load(step))) {
            Ok(()) => LOAD.set(Some(load)),
            Err(panic) => PANIC.set(Some(panic)),
        }
    }
    let mut clock = clock();
    clock.virtual_now = clock.virtual_now.map(|now| now + step);
}

/// Sets or removes the load of the calling thread.
pub(super) fn set_load(load: Option<Box<dyn FnMut(Duration)>>) {
    LOAD.set(load);
}

/// Takes the panic that ended the load of the calling thread (I3).
pub(super) fn take_panic() -> Option<Box<dyn Any + Send>> {
    PANIC.take()
}

/// Stops the clock: from now on only [`advance`] moves it. The caller holds the lock of the rounds, so that
/// no round has begun on the system's clock.
pub(super) fn begin_virtual() {
    let mut clock = clock();
    clock.virtual_now = Some(clock.now());
    HOLDS.set(true);
}

/// Returns to the system's clock, from the time that the virtual clock has reached (I1).
pub(super) fn end_virtual() {
    let mut clock = clock();
    let ahead = clock.now().saturating_sub(clock.system());
    clock.ahead += ahead;
    clock.virtual_now = None;
    HOLDS.set(false);
}
