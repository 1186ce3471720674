//! Clock of the engine: the system's monotonic clock, or the virtual clock of a
//! [`VirtualTime`](super::VirtualTime).
//!
//! Problem: the engine measures rates and waits for spans, so a test of its decisions depends on the load of
//! the machine. Idea: all code of the engine reads its time and sleeps here. On virtual time a sleep moves
//! the clock and calls a load of the test, which makes the calls of that span.
//!
//! - I1. The clock never goes back, also where virtual time begins or ends.
//! - I2. Only the thread that holds a `VirtualTime` sleeps on virtual time. No other thread runs a round
//!   meanwhile (`virtual_time/I1`).

use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time of the virtual clock in nanoseconds; 0 while the system's clock is used.
static VIRTUAL_NS: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds by which earlier virtual clocks ran ahead of the system's clock.
static AHEAD_NS: AtomicU64 = AtomicU64::new(0);

/// Longest span that passes between two calls of a load.
pub(super) const STEP: Duration = Duration::from_millis(1);

/// Makes the calls of a span of virtual time.
pub(super) type CallLoad = Box<dyn FnMut(Duration)>;

thread_local! {
    /// The load of the thread that holds a `VirtualTime`.
    static LOAD: RefCell<Option<CallLoad>> = const { RefCell::new(None) };
}

/// Returns the time since the first use of the engine plus one second, so that no event has an earlier time.
pub(crate) fn now() -> Duration {
    // Relaxed: the clock orders no other data. The lock of the rounds orders the start and end of virtual
    // time.
    match VIRTUAL_NS.load(Ordering::Relaxed) {
        0 => system(),
        virtual_ns => Duration::from_nanos(virtual_ns),
    }
}

fn system() -> Duration {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let ahead = Duration::from_nanos(AHEAD_NS.load(Ordering::Relaxed));
    BEGAN.get_or_init(Instant::now).elapsed() + Duration::from_secs(1) + ahead
}

/// Lets a span pass: the calling thread sleeps. On virtual time the load of the calling thread is called
/// instead.
pub(super) fn sleep(span: Duration) {
    if VIRTUAL_NS.load(Ordering::Relaxed) == 0 {
        return thread::sleep(span);
    }
    let end = now() + span;
    while now() < end {
        advance(end.saturating_sub(now()));
    }
}

/// Moves the virtual clock by at most `span`, and calls the load for this time. Without a load it moves by
/// the whole span.
pub(super) fn advance(span: Duration) {
    // Taken out during the call, so that a load that sleeps does not call itself.
    let load = LOAD.take();
    let step = if load.is_some() { span.min(STEP) } else { span };
    if let Some(mut load) = load {
        load(step);
        LOAD.set(Some(load));
    }
    VIRTUAL_NS.fetch_add(ns(step), Ordering::Relaxed);
}

/// Sets the load of the calling thread. Returns the previous one.
pub(super) fn set_load(load: Option<CallLoad>) -> Option<CallLoad> {
    LOAD.replace(load)
}

/// Stops the clock: from now on only [`advance`] moves it.
pub(super) fn begin_virtual() {
    VIRTUAL_NS.store(ns(now()), Ordering::Relaxed);
}

/// Returns to the system's clock, from the time that the virtual clock has reached (I1).
pub(super) fn end_virtual() {
    let ahead = now().saturating_sub(system());
    AHEAD_NS.fetch_add(ns(ahead), Ordering::Relaxed);
    VIRTUAL_NS.store(0, Ordering::Relaxed);
}

fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
