//! Starvation: callers pause if the engine's thread gets no processor.
//!
//! Problem: while all processors are busy, the engine's thread waits for one, and objects keep a form that is
//! too expensive just when it costs most. Idea: the threads that keep the processors busy call those objects.
//! The engine publishes when it should wake. A caller on the slow path of a sensor that has posted compares
//! this time with the clock. If the engine is late, the caller sleeps for a millisecond, and the engine's
//! thread gets its processor.
//!
//! - I1. A pause takes no lock, allocates no memory, runs no code of the program, and keeps `errno`. So a
//!   sensor may trip in a signal handler.
//! - I2. A pause asks for a millisecond, and the system may make it longer. In any span, a thread sleeps for
//!   at most [`BURST`] and one percent of the span, and for the excess of its last pause. The excess is
//!   charged. The milliseconds in which any thread begins a pause are at most as many. So callers go on if
//!   a debugger has stopped the engine's thread.
//! - I3. No thread pauses in the child of a fork, while the engine's thread or the pauses are off, within a
//!   round, with a real-time policy, or in a signal handler in a pause.
//! - I4. The engine is late only while it sleeps. Its thread withdraws its time as soon as it runs, so
//!   callers do not pause while a round or a swap waits.
//!
//! A caller may pause within an operation, and a grace period waits for it. So a second pause needs another
//! call. Calls within an operation pause, too: a call may open several operations, so their depth does not
//! tell.
//!
//! Not promised: a pause. It needs calls on the slow path of an object that has posted, and Linux. A thread
//! that loses its processor within a round is not late.
//!
//! Cost: a load while the engine runs or is idle, otherwise also a reading of the clock. If it is late, a
//! system call for the policy, too.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use squall_sys::{fork, scheduling};

use super::switch::is_on;

/// Time by which the engine may be late before callers pause.
const PATIENCE: u64 = 3 * MS;
/// Length of a pause.
#[cfg(all(target_os = "linux", not(miri)))]
const PAUSE: Duration = Duration::from_millis(1);
/// Time that may be slept at once, in nanoseconds, after a long time without pauses.
const BURST: u64 = 100 * MS;
/// Time after which a span may be slept again, in spans.
const REFILL: u64 = 100;

/// One millisecond in nanoseconds, the unit of all times here.
const MS: u64 = 1_000_000;
/// Bit of a time until which the engine's thread sleeps, if a post wakes it earlier.
const WAKES: u64 = 1;

static ENGINE: Lateness = Lateness::new();
static BEGAN: OnceLock<Instant> = OnceLock::new();

/// Whether pauses are allowed.
static SWITCH: AtomicU8 = AtomicU8::new(UNASKED);
/// The program has not said.
const UNASKED: u8 = 0;
const ALLOWED: u8 = 1;
const FORBIDDEN: u8 = 2;

thread_local! {
    /// Has no destructor, so a signal handler may read it. The same is true of `OWN`.
    static ROLE: Cell<Role> = const { Cell::new(Role::Caller) };
    /// Budget of the thread.
    static OWN: Cell<Budget> = const { Cell::new(Budget(0)) };
}

/// Budget of time asleep: the time at which it will be full again.
#[derive(Clone, Copy, Debug)]
struct Budget(u64);

impl Budget {
    /// Whether the budget has a pause left.
    fn has_pause(self, now: u64) -> bool {
        self.0.saturating_sub(now) <= (BURST - MS) * REFILL
    }

    /// Returns the budget after a sleep.
    fn charged(self, now: u64, slept: u64) -> Budget {
        Budget(self.0.max(now).saturating_add(slept.saturating_mul(REFILL)))
    }
}

/// Time at which the engine's thread should have run, and the budget of pauses.
#[derive(Debug)]
struct Lateness {
    /// Time at which the thread should wake, with the bit [`WAKES`]; [`IDLE`](Lateness::IDLE) or
    /// [`RUNS`](Lateness::RUNS).
    due: AtomicU64,
    /// [`Budget`] of the milliseconds in which pauses begin.
    spent: AtomicU64,
    /// Last millisecond in which a pause began.
    last: AtomicU64,
    pauses: AtomicU64,
}

impl Lateness {
    /// No time: the engine's thread sleeps until a post.
    const IDLE: u64 = u64::MAX;
    /// No time: the engine's thread does not sleep. A post does not change this.
    const RUNS: u64 = !WAKES;

    const fn new() -> Lateness {
        let [spent, last, pauses] = [const { AtomicU64::new(0) }; 3];
        Lateness { due: AtomicU64::new(Lateness::IDLE), spent, last, pauses }
    }

    // Relaxed throughout: the words publish no other data, and a stale value costs a pause or saves one.

    /// Notes that the engine's thread sleeps until `due`. A post wakes it earlier if `wakes`.
    fn sleeps(&self, due: u64, wakes: bool) {
        self.due.store(due & !WAKES | if wakes { WAKES } else { 0 }, Ordering::Relaxed);
    }

    /// Notes that the engine's thread runs.
    fn runs(&self) {
        self.due.store(Lateness::RUNS, Ordering::Relaxed);
    }

    /// Notes a post, which wakes the engine's thread.
    fn wake(&self, now: impl FnOnce() -> u64) {
        let due = self.due.load(Ordering::Relaxed);
        if due & WAKES != 0 {
            let now = now() & !WAKES;
            if now < due {
                let _ = self.due.compare_exchange(due, now, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    fn is_late(&self, now: u64) -> bool {
        now.saturating_sub(self.due.load(Ordering::Relaxed)) >= PATIENCE
    }

    /// Pauses if the engine is late and the budgets allow it. `sleep` returns the time after the sleep, which
    /// is charged to the thread's budget. Returns `true` if the thread paused.
    fn pause(&self, now: u64, own: &Cell<Budget>, sleep: impl FnOnce() -> u64) -> bool {
        let pauses = self.is_late(now) && own.get().has_pause(now) && self.take(now);
        if pauses {
            let slept = sleep().saturating_sub(now);
            own.set(own.get().charged(now, slept));
            self.pauses.fetch_add(1, Ordering::Relaxed);
        }
        pauses
    }

    /// Takes this millisecond from the budget of all threads, unless another thread has taken it. Returns
    /// `false` if the budget is used up.
    fn take(&self, now: u64) -> bool {
        let now_ms = now / MS;
        if self.last.load(Ordering::Relaxed) == now_ms {
            return true;
        }
        let take = |full: u64| Budget(full).has_pause(now).then(|| Budget(full).charged(now, MS).0);
        let taken = self.spent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if taken {
            self.last.store(now_ms, Ordering::Relaxed);
        }
        taken
    }
}

/// Starts the clock, and the detection of forks. The engine calls this before it starts its thread.
pub(super) fn begin() {
    fork::arm();
    BEGAN.get_or_init(Instant::now);
    if std::env::var_os("SQUALL_ADAPT").is_some_and(|value| value == "nopause") {
        // Fails if the program has said otherwise.
        let _ = SWITCH.compare_exchange(UNASKED, FORBIDDEN, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Allows or forbids pauses of callers while the engine's thread gets no processor: see [`pauses`]. They are
/// allowed at first, except with `SQUALL_ADAPT=nopause`. Overrides that variable.
///
/// Forbid them in a program that calls adaptive objects while it holds a lock for which others wait, or in a
/// signal handler, if such a call must not sleep. Without pauses, objects adapt later if there are more busy
/// threads than processors.
///
/// ```
/// use squall::adapt::engine::{pauses, set_pauses};
///
/// set_pauses(false);
/// assert_eq!(pauses(), 0);
/// ```
pub fn set_pauses(allowed: bool) {
    SWITCH.store(if allowed { ALLOWED } else { FORBIDDEN }, Ordering::Relaxed);
}

/// Returns the time in nanoseconds, if the engine's thread was ever started.
fn now() -> Option<u64> {
    Some(BEGAN.get()?.elapsed().as_nanos() as u64)
}

/// Part of the calling thread in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Caller,
    /// Runs a round for the program.
    Round,
    /// A caller that is paused.
    Paused,
    /// The engine's thread.
    Engine,
}

/// Marks the calling thread as the engine's, which runs now.
pub(super) fn become_engine() {
    ROLE.set(Role::Engine);
    ENGINE.runs();
}

/// Marks the calling thread as one that runs a round, until it is dropped.
pub(super) struct InRound(Role);

impl InRound {
    pub(super) fn begin() -> InRound {
        let before = ROLE.get();
        if before == Role::Caller {
            ROLE.set(Role::Round);
        }
        InRound(before)
    }
}

impl Drop for InRound {
    fn drop(&mut self) {
        ROLE.set(self.0);
    }
}

/// Calls `sleep`, which sleeps for a span, or until a post if `wakes`. If the calling thread is the engine's,
/// it may be late until `sleep` returns (I4).
pub(super) fn asleep(span: Option<Duration>, wakes: bool, sleep: impl FnOnce()) {
    let is_engine = ROLE.get() == Role::Engine;
    if is_engine {
        let due = span.and_then(|span| now()?.checked_add(u64::try_from(span.as_nanos()).ok()?));
        ENGINE.sleeps(due.unwrap_or(Lateness::IDLE), wakes);
    }
    sleep();
    if is_engine {
        ENGINE.runs();
    }
}

/// Notes a post, which wakes the engine's thread.
pub(super) fn wake() {
    if let Some(now) = now() {
        ENGINE.wake(|| now);
    }
}

/// Lets the calling thread sleep for a millisecond if the engine's thread gets no processor (I2, I3).
#[cold]
pub(crate) fn pause_if_late() {
    if ENGINE.due.load(Ordering::Relaxed) >= Lateness::RUNS || !may_pause(is_on()) {
        return;
    }
    let Some(began) = now() else { return };
    // The policy is read again each time, since any thread can change it.
    if ENGINE.is_late(began) && !scheduling::is_real_time() {
        let sleep = || {
            paused(sleep);
            now().unwrap_or(began)
        };
        OWN.with(|own| ENGINE.pause(began, own, sleep));
    }
}

/// Whether the calling thread may pause, apart from its policy (I3), if the engine's thread is on or off.
fn may_pause(is_on: bool) -> bool {
    is_on
        && cfg!(any(target_os = "linux", miri))
        && SWITCH.load(Ordering::Relaxed) != FORBIDDEN
        && ROLE.get() == Role::Caller
        && !fork::forked()
}

/// Returns how often callers have paused because the engine's thread got no processor.
///
/// Only callers of objects that have posted pause, on the slow path of their sensors. A pause asks for a
/// millisecond. While the processors are busy, the thread may get one back later. In any span, a thread
/// sleeps for at most 100 ms and one percent of the span; only its last pause can exceed this. A thread with
/// a real-time policy does not pause.
///
/// While a caller pauses, it holds its locks, and stays in the operation, miss handler or signal handler that
/// makes the call. If this must not be, switch pauses off with [`set_pauses`].
///
/// A program in which this number grows has more busy threads than processors. With a higher priority of the
/// thread `squall-adapt`, its objects adapt faster.
///
/// ```
/// println!("{} pauses", squall::adapt::engine::pauses());
/// ```
pub fn pauses() -> u64 {
    ENGINE.pauses.load(Ordering::Relaxed)
}

/// Calls `sleep`. The handler of a signal that arrives meanwhile does not pause.
fn paused(sleep: impl FnOnce()) {
    ROLE.set(Role::Paused);
    sleep();
    ROLE.set(Role::Caller);
}

/// Sleeps for one [`PAUSE`], or less if a signal arrives.
#[cfg(all(target_os = "linux", not(miri)))]
fn sleep() {
    squall_sys::waits::count_sleep();
    // No thread wakes this word, so only time ends the wait.
    squall_sys::futex::wait(&std::sync::atomic::AtomicU32::new(0), 0, Some(PAUSE));
}

/// Other systems have no sleep that a signal handler may use.
#[cfg(not(all(target_os = "linux", not(miri))))]
fn sleep() {}

/// For tests: makes the engine's thread late until it sleeps again.
#[doc(hidden)]
pub fn __plant_late() {
    begin();
    ENGINE.sleeps(0, false);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller with a budget of its own.
    fn caller() -> Cell<Budget> {
        Cell::new(Budget(0))
    }

    /// Has a caller ask at a time in milliseconds. It sleeps for `takes` milliseconds. Returns `true` if it
    /// pauses.
    fn asks_long(late: &Lateness, own: &Cell<Budget>, ms: u64, takes: u64) -> bool {
        let slept = Cell::new(false);
        let sleep = || {
            slept.set(true);
            (ms + takes) * MS
        };
        let pauses = late.pause(ms * MS, own, sleep);
        assert_eq!(pauses, slept.get());
        pauses
    }

    /// Has a new caller ask at a time in milliseconds. Returns `true` if it pauses.
    fn asks(late: &Lateness, ms: u64) -> bool {
        asks_long(late, &caller(), ms, 1)
    }

    #[test]
    fn a_caller_pauses_if_the_engine_is_late_after_a_post_or_a_sleep() {
        let late = Lateness::new();
        assert!(!asks(&late, 50), "the engine has nothing to do");
        late.wake(|| 50 * MS);
        assert!(!asks(&late, 52), "the engine has a little time");
        assert!(asks(&late, 53));
        late.sleeps(55 * MS, false);
        late.wake(|| unreachable!("a post does not end this sleep"));
        assert_eq!([54, 57, 58, 59].map(|ms| asks(&late, ms)), [false, false, true, true]);
        late.sleeps(Lateness::IDLE, true);
        assert!(!asks(&late, 1000));
        assert_eq!(late.pauses.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn the_first_of_several_posts_counts() {
        let late = Lateness::new();
        late.sleeps(100 * MS, true);
        late.wake(|| 10 * MS);
        late.wake(|| 12 * MS);
        assert!(asks(&late, 13));
        late.sleeps(100 * MS, true);
        late.wake(|| 200 * MS);
        assert!(asks(&late, 104), "the sleep ended before the post");
    }

    #[test]
    fn no_caller_pauses_while_the_engine_runs() {
        let late = Lateness::new();
        late.wake(|| 10 * MS);
        assert!(asks(&late, 20));
        late.runs();
        assert!(!asks(&late, 21));
        late.wake(|| unreachable!("a post does not wake a thread that runs"));
        assert!(!asks(&late, 1000));
        late.sleeps(Lateness::IDLE, true);
        late.wake(|| 1000 * MS);
        assert!(asks(&late, 1003));
    }

    #[test]
    fn pauses_that_take_long_use_up_the_threads_budget() {
        let late = Lateness::new();
        late.sleeps(0, false);
        let slow = caller();
        // Each asks for one millisecond, and gets its processor back after sixty.
        let paused = [0, 60, 120].map(|at| asks_long(&late, &slow, 100_000 + at, 60));
        assert_eq!(paused, [true, true, false]);
        assert!(asks(&late, 100_120), "another thread's budget");
        assert_eq!([102_099, 102_100].map(|at| asks_long(&late, &slow, at, 1)), [false, true]);
        // A debt is paid before the next pause.
        let once = caller();
        assert!(asks_long(&late, &once, 200_000, 300));
        assert!(!asks_long(&late, &once, 200_000 + 20_000, 1));
        assert!(asks_long(&late, &once, 200_000 + 20_100, 1));
    }

    #[test]
    fn pauses_are_a_burst_and_one_percent_of_any_span() {
        let late = Lateness::new();
        late.sleeps(0, false);
        let own = caller();
        let paused = |from: u64, to: u64| (from..to).filter(|ms| asks_long(&late, &own, *ms, 1)).count();
        assert_eq!(paused(100_000, 100_100), 100, "a burst");
        assert_eq!(paused(100_100, 110_000), 99, "then one in a hundred");
        assert_eq!(paused(110_000, 110_200), 2, "no second burst at a border");
        assert_eq!(paused(200_000, 200_200), 101, "after a rest");
    }

    #[test]
    fn threads_that_pause_together_share_the_budget() {
        let late = Lateness::new();
        late.sleeps(0, false);
        for ms in 10_000..10_100 {
            assert!((0..50).all(|_| asks(&late, ms)), "{ms}");
        }
        assert!(asks(&late, 10_099), "this millisecond is paid");
        let new = (10_100..10_300).filter(|ms| asks(&late, *ms));
        assert_eq!(new.count(), 2, "a new thread adds nothing to the budget of all");
    }

    #[test]
    fn no_thread_pauses_where_it_must_not() {
        // In this program the engine's thread never runs.
        __plant_late();
        pause_if_late();
        assert_eq!([false, true].map(may_pause), [false, true]);
        {
            let _round = InRound::begin();
            let _inner = InRound::begin();
            assert!(!may_pause(true), "a round");
        }
        paused(|| assert!(!may_pause(true), "a signal handler in a pause"));
        assert!(may_pause(true));
        set_pauses(false);
        assert!(!may_pause(true), "switched off");
        set_pauses(true);
        assert!(may_pause(true));
        assert_eq!(pauses(), 0);
    }
}
