//! A tour: the runs of one function, one at each of several stops, by threads that move there.
//!
//! Problem: a run belongs on its processor. A thread that moves there may wait long until it gets that
//! processor. One slow run must not hold up the others.
//!
//! Idea: *runners* claim one stop after the other, move there and run. The *guide*, the thread that began the
//! tour, stays where it is. If a runner does not arrive in time, the guide takes over its stop.
//!
//! ```text
//! claim:     FREE -> CLAIMED. A runner moves there
//! arrive:    CLAIMED -> ENTERED. The runner runs the function
//! take over: FREE -> ENTERED, CLAIMED -> ENTERED. The guide runs the function, at its own place
//! ```
//!
//! - I1. A stop becomes ENTERED once, by an exchange. The thread that made this exchange runs the function,
//!   and then calls [`Tour::end`].
//! - I2. When the guide finds the tour over, all runs have ended, and their effects happen before.
//! - I3. The end of the last run wakes the guide: it signals after its subtraction (`park/I1`).
//!
//! Progress: all steps are lock-free. The guide's wait blocks on runs.

use squall_machine::park::EventCount;
use squall_sys::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use super::sites;

const FREE: u8 = 0;
const CLAIMED: u8 = 1;
const ENTERED: u8 = 2;

/// The stops of a tour, and the place where its guide waits.
pub(crate) struct Tour {
    stops: Box<[AtomicU8]>,
    /// Runs that have not ended.
    left: AtomicUsize,
    over: EventCount,
}

impl Tour {
    /// Begins a tour of `count` stops.
    pub(crate) fn new(count: usize) -> Tour {
        Tour {
            stops: (0..count).map(|_| AtomicU8::new(FREE)).collect(),
            left: AtomicUsize::new(count),
            over: EventCount::new(),
        }
    }

    /// Claims a stop for a runner, which then moves there.
    pub(crate) fn claim(&self) -> Option<usize> {
        // Relaxed, as in `arrive` and `take_over`: only the outcome matters (I1).
        self.stops.iter().position(|stop| {
            stop.compare_exchange(FREE, CLAIMED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        })
    }

    /// Enters a stop that the calling runner has claimed. Returns false if the guide has taken it over.
    #[must_use]
    pub(crate) fn arrive(&self, stop: usize) -> bool {
        self.enter(stop, CLAIMED)
    }

    /// Enters a stop that no runner has entered. Returns whether the caller, the guide, must run there.
    #[must_use]
    pub(crate) fn take_over(&self, stop: usize) -> bool {
        self.enter(stop, FREE) || self.enter(stop, CLAIMED)
    }

    /// Enters a stop that no runner has claimed. The caller, the guide, must run there.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn take_free(&self) -> Option<usize> {
        (0..self.stops.len()).find(|&stop| self.enter(stop, FREE))
    }

    fn enter(&self, stop: usize, from: u8) -> bool {
        let stop = &self.stops[stop];
        if sites::TOUR_ENTER.is_weak() {
            let found = stop.load(Ordering::Relaxed) == from;
            if found {
                stop.store(ENTERED, Ordering::Relaxed);
            }
            return found;
        }
        stop.compare_exchange(from, ENTERED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Ends the run at a stop that the calling thread has entered.
    pub(crate) fn end(&self) {
        // Release: pairs with the acquire in `is_over` (I2). Later subtractions continue the release
        // sequence.
        if self.left.fetch_sub(1, sites::TOUR_END.order(Ordering::Release)) == 1 {
            self.over.signal(1);
        }
    }

    /// Returns whether all runs have ended.
    pub(crate) fn is_over(&self) -> bool {
        // Acquire: pairs with the release in `end` (I2).
        self.left.load(sites::TOUR_OVER.order(Ordering::Acquire)) == 0
    }

    /// Waits until the tour is over, or for about `step`. Returns whether it is over. For the guide.
    pub(crate) fn wait(&self, step: Option<Duration>) -> bool {
        let seen = self.over.prepare();
        if !self.is_over() {
            self.over.wait(seen, step);
        }
        self.is_over()
    }

    /// Returns whether a runner can claim a stop.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn has_free(&self) -> bool {
        self.stops.iter().any(|stop| stop.load(Ordering::Relaxed) == FREE)
    }

    /// Returns the stops that a runner has claimed and not entered.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn claimed(&self) -> impl Iterator<Item = usize> {
        let stops = self.stops.iter().enumerate();
        stops.filter(|(_, stop)| stop.load(Ordering::Relaxed) == CLAIMED).map(|(stop, _)| stop)
    }
}
