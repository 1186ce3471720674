//! Time within an operation's loop that does not count: it is clocked and taken out.
//!
//! For what has to be done between operations and is not part of them: objects that are made anew before each batch of
//! first calls, a sleep that lets the scheduler deal anew.

use std::cell::Cell;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Time that does not count, in nanoseconds, by two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uncounted {
    /// As on the wall.
    pub(crate) wall_ns: u64,
    /// Of the processor, for threads that share it with others.
    pub(crate) cpu_ns: u64,
}

thread_local! {
    static SO_FAR: Cell<Uncounted> = const { Cell::new(Uncounted { wall_ns: 0, cpu_ns: 0 }) };
}

/// Runs `f`, the time of which does not count.
pub(crate) fn uncounted<R>(f: impl FnOnce() -> R) -> R {
    let (wall, cpu) = (Instant::now(), thread_cpu_ns());
    let result = f();
    let so_far = SO_FAR.get();
    SO_FAR.set(Uncounted {
        wall_ns: so_far.wall_ns + u64::try_from(wall.elapsed().as_nanos()).unwrap_or(0),
        cpu_ns: so_far.cpu_ns + thread_cpu_ns().saturating_sub(cpu),
    });
    result
}

/// What did not count in the calling thread since this was last asked.
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
    fn what_was_taken_is_gone_and_other_threads_have_their_own() {
        assert_eq!(uncounted(|| 7), 7);
        std::thread::spawn(|| assert_eq!(take_uncounted(), Uncounted::default())).join().expect("it is");
        assert!(take_uncounted().wall_ns > 0);
        assert_eq!(take_uncounted(), Uncounted::default());
    }
}
