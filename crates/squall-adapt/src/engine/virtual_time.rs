//! Virtual time: the engine on a clock that a test moves.
//!
//! Problem: a test of an adaptive object must wait until the engine has seen a load, and the load depends on
//! the threads that the system lets run. Idea: one thread holds the engine. It moves the clock step by step,
//! makes the calls of each step, and runs the rounds that fall due, as the engine's thread would.
//!
//! - I1. While a `VirtualTime` exists, only the thread that holds it runs rounds.
//! - I2. At most one exists in a process. A second [`VirtualTime::start`] waits for the end of the first.

use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::clock;
use super::{Action, Rounds, pause_thread, resume_thread};

static HOLDER: Mutex<()> = Mutex::new(());

/// Holds the adaptation engine on virtual time: decisions of a test depend on its calls alone, and neither on
/// the machine's speed nor on other programs.
///
/// For tests of adaptive objects and of [families](crate::family). While the value exists, the engine's
/// thread pauses, [`turn`](super::turn) does nothing on other threads, and the engine's clock stands still.
/// [`run`](VirtualTime::run) moves the clock, calls a *load* for each step, and runs the rounds that fall due
/// in that time. The load makes the calls of a step, for example each from a
/// [`Vp::with_vp`](squall_machine::Vp::with_vp). Swaps and grace periods happen for real, and take no virtual
/// time.
///
/// A swap that takes longer than its [deadline](crate::settings::DEADLINE) of real time is still rolled back.
/// Set a deadline of a minute in tests.
///
/// ```
/// use squall::adapt::engine::VirtualTime;
/// use std::cell::Cell;
/// use std::rc::Rc;
/// use std::time::Duration;
///
/// let mut time = VirtualTime::start();
/// let milliseconds = Rc::new(Cell::new(0));
/// let count = Rc::clone(&milliseconds);
/// time.set_load(move |_span| count.set(count.get() + 1));
/// time.run(Duration::from_secs(1));
/// assert_eq!(milliseconds.get(), 1000);
/// ```
#[derive(Debug)]
pub struct VirtualTime {
    rounds: Rounds,
    /// State of the engine's thread before, to be restored.
    thread: u8,
    _holder: MutexGuard<'static, ()>,
    /// The load belongs to this thread.
    _not_send: PhantomData<*const ()>,
}

impl VirtualTime {
    /// Stops the engine's clock and pauses its thread, until the value is dropped.
    ///
    /// Waits for a round in progress, and for the end of another `VirtualTime`.
    pub fn start() -> VirtualTime {
        let holder = HOLDER.lock().unwrap_or_else(|poison| poison.into_inner());
        let thread = pause_thread(clock::begin_virtual);
        VirtualTime { rounds: Rounds::default(), thread, _holder: holder, _not_send: PhantomData }
    }

    /// Sets the load: a function that makes the calls of a span of at most one millisecond.
    ///
    /// A round lets time pass between its readings. The load is called in that time, too, on this thread. If
    /// the load panics, it is dropped, and [`run`](VirtualTime::run) panics after the round.
    pub fn set_load(&mut self, load: impl FnMut(Duration) + 'static) {
        clock::set_load(Some(Box::new(load)));
    }

    /// Removes the load, so that time passes without calls.
    pub fn clear_load(&mut self) {
        clock::set_load(None);
    }

    /// Returns the time of the engine's clock.
    pub fn now(&self) -> Duration {
        clock::now()
    }

    /// Returns `true` if the engine's thread would sleep until an object posts: no round is due, now or
    /// later.
    pub fn is_idle(&self) -> bool {
        super::next_action() == Action::Wait(None)
    }

    /// Lets a span of virtual time pass. Runs the rounds that fall due in it.
    ///
    /// # Panics
    /// If the load panics.
    pub fn run(&mut self, span: Duration) {
        self.run_until(span, || false);
    }

    /// Lets virtual time pass until `condition` is `true`, for at most `limit`. Returns `true` if it became
    /// so.
    ///
    /// Checks the condition before the first step, and after each step and round.
    ///
    /// # Panics
    /// If the load panics.
    pub fn run_until(&mut self, limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
        let end = clock::now() + limit;
        loop {
            if condition() {
                return true;
            }
            let left = end.saturating_sub(clock::now());
            if left.is_zero() {
                return false;
            }
            match super::next_action() {
                Action::Round => {
                    if let Err(pause) = self.rounds.run(super::turn) {
                        clock::advance(pause.min(left));
                    }
                }
                Action::Wait(wait) => clock::advance(wait.unwrap_or(left).min(left)),
                Action::Pause(pause) => clock::advance(pause.min(left)),
            }
            if let Some(panic) = clock::take_panic() {
                resume_unwind(panic);
            }
        }
    }
}

impl Drop for VirtualTime {
    fn drop(&mut self) {
        self.clear_load();
        drop(clock::take_panic());
        clock::end_virtual();
        resume_thread(self.thread);
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::{advance, now, sleep};
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    #[test]
    fn a_panic_of_the_load_reaches_the_test_also_from_a_round() {
        let mut time = VirtualTime::start();
        time.set_load(|_| panic!("the load failed"));
        // A round sleeps like this. The round goes on.
        let before = time.now();
        sleep(Duration::from_millis(3));
        assert_eq!(time.now() - before, Duration::from_millis(3));
        let caught = catch_unwind(AssertUnwindSafe(|| time.run(Duration::from_millis(1))));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"the load failed"));
        time.run(Duration::from_millis(1));
    }

    #[test]
    fn other_threads_run_no_round_on_virtual_time() {
        let time = VirtualTime::start();
        let before = time.now();
        let elsewhere = thread::spawn(|| (clock::is_held_elsewhere(), super::super::turn()));
        assert_eq!(elsewhere.join().unwrap(), (true, 0));
        assert_eq!((time.now(), clock::is_held_elsewhere()), (before, false));
    }

    #[test]
    fn the_clock_never_goes_back() {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = Duration::ZERO;
                    while !over.load(Ordering::Relaxed) {
                        let time = now();
                        assert!(time >= last, "{time:?} after {last:?}");
                        last = time;
                    }
                });
            }
            for _ in 0..if cfg!(miri) { 5 } else { 2000 } {
                let _time = VirtualTime::start();
                advance(Duration::from_millis(2));
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
