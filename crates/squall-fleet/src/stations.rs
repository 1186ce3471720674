//! The ends of the calls of a stub: each is used by one call at a time, and kept for the next one.
//!
//! - I1. Calls on different processors use different lists of idle stations. A list has a limit, so memory
//!   follows the calls that run at the same time, and not the threads.
//! - I2. No station is made or dropped under a lock.

use squall_machine::machine;
use squall_sys::padded::CachePadded;
use squall_sys::sync::{Mutex, lock};

const IDLE: &str = "the idle stations of a stub";

/// The idle stations of a stub.
pub(crate) struct Stations<S> {
    /// By the processor of the stub's representative (I1).
    clusters: Box<[CachePadded<Mutex<Vec<S>>>]>,
    /// The most idle stations of a processor.
    idle_max: usize,
}

impl<S> Stations<S> {
    pub(crate) fn new(idle_max: usize) -> Stations<S> {
        Stations::with_clusters(machine().vp_limit().max(1), idle_max)
    }

    pub(crate) fn with_clusters(count: usize, idle_max: usize) -> Stations<S> {
        let clusters = (0..count).map(|_| CachePadded::new(Mutex::new(Vec::new()))).collect();
        Stations { clusters, idle_max }
    }

    fn idle(&self, region: usize) -> &Mutex<Vec<S>> {
        &self.clusters[region % self.clusters.len()]
    }

    /// Takes an idle station, if there is one.
    pub(crate) fn take(&self, region: usize) -> Option<S> {
        lock(self.idle(region), IDLE).pop()
    }

    /// Keeps a station for the next call. Drops it if there are enough.
    pub(crate) fn give_back(&self, region: usize, station: S) {
        let mut idle = lock(self.idle(region), IDLE);
        let surplus = if idle.len() < self.idle_max {
            idle.push(station);
            None
        } else {
            Some(station)
        };
        drop(idle);
        drop(surplus);
    }

    /// Returns the number of idle stations of a processor.
    #[cfg(test)]
    pub(crate) fn count(&self, region: usize) -> usize {
        lock(self.idle(region), IDLE).len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn idle_stations_are_used_again_and_have_a_limit() {
        let stations = Stations::with_clusters(2, 4);
        stations.give_back(0, 7);
        assert_eq!(stations.take(1), None, "each processor has its own");
        assert_eq!(stations.take(2), Some(7));
        (0..6).for_each(|station| stations.give_back(2, station));
        assert_eq!((stations.count(0), stations.count(1)), (4, 0));
    }
}
