//! Starvation: callers pause if the engine's thread gets no processor.
//!
//! Problem: while all processors are busy, the engine's thread waits for one, and objects keep a form that is
//! too expensive just when it costs most. Idea: the threads that keep the processors busy call those objects.
//! The engine publishes when it should have run next. A caller on the slow path of a sensor that has posted
//! compares this time with the clock. If the engine is late, the caller sleeps for a millisecond, and the
//! engine's thread gets its processor.
//!
//! - I1. A pause takes no lock, allocates no memory, runs no code of the program, and keeps `errno`. So a
//!   sensor may trip in a signal handler.
//! - I2. A pause takes a millisecond. A thread pauses once in a call, and for at most [`BUDGET`] milliseconds
//!   in [`WINDOW`], one percent. So callers go on if a debugger has stopped the engine's thread.
//! - I3. No thread pauses in the child of a fork, while the engine's thread is off, or within a round.
//!
//! A caller may pause within an operation, and a swap waits for it. So a second pause needs another call.
//!
//! Not promised: a pause. It needs calls on the slow path of an object that has posted, and Linux. A long
//! transfer of another object counts as lateness, too.
//!
//! Cost: a load while the engine is idle, otherwise also a reading of the clock.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use squall_sys::fork;

use super::switch::is_on;

/// Time by which the engine may be late before callers pause.
const PATIENCE: u64 = 3 * MS;
/// Length of a pause.
const PAUSE: Duration = Duration::from_millis(1);
/// Number of milliseconds in a window in which pauses may begin.
const BUDGET: u64 = 100;
const WINDOW: u64 = 10_000;

/// One millisecond in nanoseconds, the unit of all times here.
const MS: u64 = 1_000_000;
/// Bit of a time until which the engine's thread sleeps, if a post wakes it earlier.
const WAKES: u64 = 1;

static ENGINE: Lateness = Lateness::new();
static BEGAN: OnceLock<Instant> = OnceLock::new();

thread_local! {
    /// Has no destructor, so a signal handler may read it.
    static ROLE: Cell<Role> = const { Cell::new(Role::Caller) };
}

/// Time at which the engine's thread should have run, and the budget of pauses.
#[derive(Debug)]
struct Lateness {
    /// Time at which the thread should run next, with the bit [`WAKES`].
    due: AtomicU64,
    /// Start of the window in milliseconds, times 2^16, plus the milliseconds in which pauses began.
    spent: AtomicU64,
    /// Last millisecond in which a pause began.
    last: AtomicU64,
    pauses: AtomicU64,
}

impl Lateness {
    /// No time: the engine's thread sleeps until a post.
    const IDLE: u64 = u64::MAX;

    const fn new() -> Lateness {
        let [spent, last, pauses] = [const { AtomicU64::new(0) }; 3];
        Lateness { due: AtomicU64::new(Lateness::IDLE), spent, last, pauses }
    }

    // Relaxed throughout: the words publish no other data, and a stale value costs a pause or saves one.

    /// Notes that the engine's thread sleeps until `due`. A post wakes it earlier if `wakes`.
    fn sleeps(&self, due: u64, wakes: bool) {
        self.due.store(due & !WAKES | if wakes { WAKES } else { 0 }, Ordering::Relaxed);
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

    /// Pauses if the engine is late. Returns `true` if it did.
    fn pause(&self, now: u64, sleep: impl FnOnce()) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        let pauses = now.saturating_sub(due) >= PATIENCE && self.take(now / MS);
        if pauses {
            sleep();
            self.pauses.fetch_add(1, Ordering::Relaxed);
        }
        pauses
    }

    /// Takes this millisecond from the budget, unless another thread has taken it. Returns `false` if the
    /// budget is used up.
    fn take(&self, now_ms: u64) -> bool {
        if self.last.load(Ordering::Relaxed) == now_ms {
            return true;
        }
        let take = |spent: u64| {
            let (began, count) = (spent >> 16, spent & 0xFFFF);
            if now_ms.saturating_sub(began) >= WINDOW {
                return Some(now_ms << 16 | 1);
            }
            (count < BUDGET).then_some(spent + 1)
        };
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
    /// The engine's thread.
    Engine,
}

/// Marks the calling thread as the engine's.
pub(super) fn become_engine() {
    ROLE.set(Role::Engine);
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

/// If the calling thread is the engine's, notes that it sleeps for a span, or until a post.
pub(super) fn sleeps_for(span: Option<Duration>, wakes: bool) {
    if ROLE.get() != Role::Engine {
        return;
    }
    let due = span.and_then(|span| now()?.checked_add(u64::try_from(span.as_nanos()).ok()?));
    ENGINE.sleeps(due.unwrap_or(Lateness::IDLE), wakes);
}

/// If the calling thread is the engine's, notes that it begins a swap, which should take less than a
/// millisecond.
pub(super) fn swaps() {
    if ROLE.get() == Role::Engine
        && let Some(now) = now()
    {
        ENGINE.sleeps(now.saturating_sub(PATIENCE - MS), false);
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
    if ENGINE.due.load(Ordering::Relaxed) == Lateness::IDLE || !may_pause(is_on()) {
        return;
    }
    if let Some(now) = now() {
        ENGINE.pause(now, sleep);
    }
}

/// Whether the calling thread may pause at all (I3), if the engine's thread is on or off.
fn may_pause(is_on: bool) -> bool {
    is_on && cfg!(any(target_os = "linux", miri)) && ROLE.get() == Role::Caller && !fork::forked()
}

/// Returns how often callers have paused because the engine's thread got no processor. Each pause lasts a
/// millisecond.
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

    /// Has a caller ask at a time in milliseconds. Returns `true` if it pauses.
    fn asks(late: &Lateness, ms: u64) -> bool {
        let slept = Cell::new(false);
        let pauses = late.pause(ms * MS, || slept.set(true));
        assert_eq!(pauses, slept.get());
        pauses
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
    fn pauses_end_after_the_budget_until_the_next_window() {
        let late = Lateness::new();
        late.sleeps(0, false);
        let paused = |from: u64, to: u64| (from..to).filter(|ms| asks(&late, *ms)).count() as u64;
        for window in 1..3 {
            let began = window * WINDOW;
            assert_eq!(paused(began, began + WINDOW / 2), BUDGET);
            assert_eq!(paused(began + WINDOW / 2, began + WINDOW), 0);
        }
    }

    #[test]
    fn threads_that_pause_together_share_the_budget() {
        let late = Lateness::new();
        late.sleeps(0, false);
        for ms in WINDOW..WINDOW + BUDGET {
            assert!((0..50).all(|_| asks(&late, ms)), "{ms}");
        }
        assert!(asks(&late, WINDOW + BUDGET - 1), "this millisecond is paid");
        assert!(!asks(&late, WINDOW + BUDGET));
    }

    #[test]
    fn no_thread_pauses_within_a_round_or_while_the_engine_is_off() {
        // In this program the engine's thread never runs.
        __plant_late();
        pause_if_late();
        {
            let _round = InRound::begin();
            let _inner = InRound::begin();
            assert!(!may_pause(true));
        }
        assert_eq!([false, true].map(may_pause), [false, true]);
        assert_eq!(pauses(), 0);
    }
}
