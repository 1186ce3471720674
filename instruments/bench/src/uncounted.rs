//! Time inside an operation's loop that does not count: it is timed and subtracted. External instruments do
//! not count its accesses.
//!
//! It covers work between operations that is not part of them: making new objects before each batch of first
//! calls, or a sleep before a spaced operation.

use std::cell::Cell;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use squall_locality_plugin::mark;

/// Uncounted time in nanoseconds, by two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uncounted {
    /// Wall time.
    pub(crate) wall_ns: u64,
    /// Processor time, for threads that share a processor.
    pub(crate) cpu_ns: u64,
}

thread_local! {
    static SO_FAR: Cell<Uncounted> = const { Cell::new(Uncounted { wall_ns: 0, cpu_ns: 0 }) };
}

/// Runs `f` and excludes its time and its accesses.
pub(crate) fn uncounted<R>(f: impl FnOnce() -> R) -> R {
    // The loop is between marks (`exact.rs`). Outside the profiler, marks have no effect.
    mark::end();
    let (wall, cpu) = (Instant::now(), thread_cpu_ns());
    let result = f();
    let so_far = SO_FAR.get();
    SO_FAR.set(Uncounted {
        wall_ns: so_far.wall_ns + u64::try_from(wall.elapsed().as_nanos()).unwrap_or(0),
        cpu_ns: so_far.cpu_ns + thread_cpu_ns().saturating_sub(cpu),
    });
    mark::begin();
    result
}

/// Returns and resets the uncounted time of the calling thread.
pub(crate) fn take_uncounted() -> Uncounted {
    SO_FAR.take()
}

/// Processor time of the calling thread, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncounted_time_is_per_thread_and_taken_once() {
        assert_eq!(uncounted(|| 7), 7);
        std::thread::spawn(|| assert_eq!(take_uncounted(), Uncounted::default())).join().expect("it is");
        assert!(take_uncounted().wall_ns > 0);
        assert_eq!(take_uncounted(), Uncounted::default());
    }
}
