//! The ends of the calls of a stub: each is used by one call at a time, and kept for the next one.
//!
//! - I1. Calls on different processors use different lists of idle stations. A list has a limit, so memory
//!   follows the calls that run at the same time, and not the threads.
//! - I2. No station is made or dropped under a lock.
//! - I3. A station that is dropped leaves its session with the server to a later one. So a burst of calls
//!   opens no further sessions when it comes again.

use crate::envelope::Key;
use squall_machine::machine;
use squall_sys::padded::CachePadded;
use squall_sys::sync::{Mutex, lock};

const IDLE: &str = "the idle stations of a stub";
const SESSIONS: &str = "the sessions of a stub without a station";

/// The most sessions without a station. A server keeps no more.
const SESSIONS_MAX: usize = 4096;

/// The idle stations of a stub.
pub(crate) struct Stations<S> {
    /// By the processor of the stub's representative (I1).
    clusters: Box<[CachePadded<Mutex<Vec<S>>>]>,
    /// The most idle stations of a processor.
    idle_max: usize,
    /// Sessions without a station (I3).
    sessions: Mutex<Vec<Key>>,
}

impl<S> Stations<S> {
    pub(crate) fn new(idle_max: usize) -> Stations<S> {
        Stations::with_clusters(machine().vp_limit().max(1), idle_max)
    }

    pub(crate) fn with_clusters(count: usize, idle_max: usize) -> Stations<S> {
        let clusters = (0..count).map(|_| CachePadded::new(Mutex::new(Vec::new()))).collect();
        Stations { clusters, idle_max, sessions: Mutex::new(Vec::new()) }
    }

    fn idle(&self, region: usize) -> &Mutex<Vec<S>> {
        &self.clusters[region % self.clusters.len()]
    }

    /// Takes an idle station, if there is one.
    pub(crate) fn take(&self, region: usize) -> Option<S> {
        lock(self.idle(region), IDLE).pop()
    }

    /// Keeps a station for the next call. Returns it if there are enough.
    pub(crate) fn give_back(&self, region: usize, station: S) -> Option<S> {
        let mut idle = lock(self.idle(region), IDLE);
        if idle.len() < self.idle_max {
            idle.push(station);
            return None;
        }
        Some(station)
    }

    /// Keeps the session of a station that is dropped (I3).
    pub(crate) fn keep_session(&self, session: Key) {
        let mut sessions = lock(&self.sessions, SESSIONS);
        if sessions.len() < SESSIONS_MAX {
            sessions.push(session);
        }
    }

    /// Takes a session for a new station, if one was kept.
    pub(crate) fn take_session(&self) -> Option<Key> {
        lock(&self.sessions, SESSIONS).pop()
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
        assert_eq!(stations.give_back(0, 7), None);
        assert_eq!(stations.take(1), None, "each processor has its own");
        assert_eq!(stations.take(2), Some(7));
        let surplus: Vec<i32> = (0..6).filter_map(|station| stations.give_back(2, station)).collect();
        assert_eq!(surplus, [4, 5]);
        assert_eq!((stations.count(0), stations.count(1)), (4, 0));
    }
}
