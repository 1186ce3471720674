//! Digests: sums of records, for a reader that polls.
//!
//! - I1. A record is counted in an aggregate, or as missed. Dropped records are counted too.
//! - I2. A digest holds at most `groups_max` aggregates.
//! - I3. A digest ends when its reader has not taken it for the idle limit. Then it keeps no thread emitting.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use squall_sys::fork::forked;

use super::batch::{Aggregate, Batch, Key};
use super::centre::{self, Reader};

#[derive(Debug)]
pub(super) struct Totals {
    groups_max: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    groups: HashMap<Key, Aggregate>,
    dropped: u64,
    missed: u64,
    /// Time of the last take.
    since: Instant,
    idle_max: Duration,
    closed: bool,
}

impl Totals {
    pub(super) fn new(groups_max: usize, idle_max: Duration) -> Totals {
        let state = State {
            groups: HashMap::new(),
            dropped: 0,
            missed: 0,
            since: Instant::now(),
            idle_max,
            closed: false,
        };
        Totals { groups_max: groups_max.max(1), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        squall_sys::sync::lock(&self.state, "a digest")
    }

    pub(super) fn add(&self, batch: &Batch) {
        let state = &mut *self.state();
        state.dropped += batch.dropped();
        for one in batch.aggregates() {
            if let Some(known) = state.groups.get_mut(&one.key()) {
                known.add(one);
            } else if state.groups.len() < self.groups_max {
                state.groups.insert(one.key(), *one);
            } else {
                state.missed += one.count;
            }
        }
    }

    /// Returns the time at which the digest ends unless it is taken (I3), if the clock reaches that far.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        let state = self.state();
        state.since.checked_add(state.idle_max)
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
    }
}

/// Sums of the records since the previous take. Returned by [`Digest::take`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sums {
    /// Time since the previous take, or since the subscription.
    pub span: Duration,
    /// The aggregates by kind, object and codes, in the order of the kinds' names; large counts come first.
    pub aggregates: Vec<Aggregate>,
    /// Records lost because their thread's buffer was full.
    pub dropped: u64,
    /// Records left out because the digest had no room for another aggregate.
    pub missed: u64,
}

/// A subscription that keeps sums instead of records. Created by
/// [`subscribe_digest`](super::subscribe_digest).
///
/// ```
/// use squall::policy::monitor::{self, Kind, Object};
/// use std::time::Duration;
///
/// static REFILL: Kind = Kind::new("pool.refill", ["items", ""]);
/// let digest = monitor::subscribe_digest(100, Duration::from_secs(60))?;
/// monitor::emit(&REFILL, Object::number(7), [32, 0]);
/// monitor::emit(&REFILL, Object::number(7), [10, 0]);
/// let sums = digest.take().expect("it is open");
/// assert_eq!((sums.aggregates[0].count, sums.aggregates[0].sums[0]), (2, 42));
/// assert_eq!((sums.dropped, sums.missed), (0, 0));
/// assert!(digest.take().expect("it is open").aggregates.is_empty());
/// # Ok::<(), monitor::MonitorError>(())
/// ```
#[derive(Debug)]
pub struct Digest {
    pub(super) totals: Arc<Totals>,
}

impl Digest {
    /// Takes the sums since the previous take, unless the digest has ended. First gathers the records that
    /// were written on this thread, and on threads that synchronised with it.
    pub fn take(&self) -> Option<Sums> {
        if forked() {
            return None;
        }
        centre::collect();
        let mut state = self.totals.state();
        if state.closed {
            return None;
        }
        let now = Instant::now();
        let span = now.saturating_duration_since(std::mem::replace(&mut state.since, now));
        let groups = std::mem::take(&mut state.groups);
        let (dropped, missed) = (std::mem::take(&mut state.dropped), std::mem::take(&mut state.missed));
        drop(state);
        let mut aggregates: Vec<Aggregate> = groups.into_values().collect();
        aggregates.sort_by_key(|one| (one.kind.name(), std::cmp::Reverse(one.count), one.object, one.codes));
        Some(Sums { span, aggregates, dropped, missed })
    }

    /// Sets the idle limit, which counts from the last take.
    pub fn set_idle_max(&self, idle_max: Duration) {
        if !forked() {
            self.totals.state().idle_max = idle_max;
            centre::call();
        }
    }

    /// Ends the digest. Ending the last subscription switches the monitor off.
    pub fn close(&self) {
        centre::unsubscribe(&Reader::Digest(Arc::clone(&self.totals)));
    }
}

impl Drop for Digest {
    fn drop(&mut self) {
        self.close();
    }
}
