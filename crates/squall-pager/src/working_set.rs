//! Working sets: the policy of a process for the number of pages that it keeps in memory.
//!
//! Problem: a process with a fixed limit has too few pages in one phase, and too many in another. Idea: the
//! limit of its page manager follows the rate of its page faults. A process that faults often gets more
//! pages, and one that seldom does gives some back. Its own caches decide by their clocks which pages go. So
//! a decision concerns no other process, and no clock visits the pages of all.
//!
//! - I1. The limit of the page manager is within the bounds of the policy, once the policy was set.
//! - I2. One thread changes the limit at a time. Others go on without waiting.
//!
//! Faults are counted on each processor. A processor adjusts at each 16th fault.
//! Source: Gamsa et al. 1999, §2 (TO-01), and Appavoo 2005, §8.5 (CO-76), leave the policy open. The fault
//! frequency: Chu and Opderbeck, "The Page Fault Frequency Replacement Algorithm", AFIPS 1972. There one rate
//! decides at each fault. Here the mean of several faults does, and two rates with a gap between them prevent
//! that the limit swings.

use squall_core::Handle;
use squall_machine::pervp::PerVpWord;
use squall_objects::pages::{PagePool, PagePoolExt};
use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Number of faults of a processor from one adjustment to the next.
const PERIOD: u64 = 16;
/// The largest number of reclamations of an adjustment.
const RECLAMATIONS: usize = 8;

/// The policy of a process for the pages that it keeps in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkingSet {
    /// A fixed limit.
    Limit {
        /// The largest number of pages, at least 1.
        pages_max: usize,
    },
    /// A limit that follows the rate of page faults.
    FaultRate {
        /// The smallest limit, at least 1.
        pages_min: usize,
        /// The largest limit.
        pages_max: usize,
        /// Faults per second below which the limit falls by an eighth.
        faults_per_s_min: u32,
        /// Faults per second above which the limit rises by a quarter. Larger than `faults_per_s_min`.
        faults_per_s_max: u32,
    },
}

impl WorkingSet {
    /// Returns the bounds of the limit.
    fn bounds(self) -> (usize, usize) {
        match self {
            WorkingSet::Limit { pages_max } => (pages_max, pages_max),
            WorkingSet::FaultRate { pages_min, pages_max, .. } => (pages_min, pages_max),
        }
    }

    fn check(self, manager: impl Fn() -> Arc<str>) -> Result<(), WorkingSetError> {
        let (pages_min, pages_max) = self.bounds();
        if pages_min == 0 {
            return Err(WorkingSetError::NoPages { manager: manager() });
        }
        if pages_min > pages_max {
            return Err(WorkingSetError::Pages { manager: manager(), pages_min, pages_max });
        }
        match self {
            WorkingSet::FaultRate { faults_per_s_min, faults_per_s_max, .. }
                if faults_per_s_min >= faults_per_s_max =>
            {
                Err(WorkingSetError::Rates { manager: manager(), faults_per_s_min, faults_per_s_max })
            }
            _ => Ok(()),
        }
    }

    /// Returns the next limit, after this number of faults in this time.
    fn next_limit(self, limit: usize, faults: u64, elapsed: Duration) -> usize {
        let (pages_min, pages_max) = self.bounds();
        let next = match self {
            WorkingSet::Limit { .. } => limit,
            WorkingSet::FaultRate { faults_per_s_min, faults_per_s_max, .. } => {
                let per_s = u128::from(faults) * 1_000_000_000 / elapsed.as_nanos().max(1);
                if per_s > u128::from(faults_per_s_max) {
                    limit.saturating_add((limit / 4).max(1))
                } else if per_s < u128::from(faults_per_s_min) {
                    limit - (limit / 8).max(1).min(limit)
                } else {
                    limit
                }
            }
        };
        next.clamp(pages_min, pages_max)
    }
}

/// The reason why a working set was refused. The former one stays in force.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkingSetError {
    /// The limit may become 0.
    NoPages {
        /// The page manager of the process.
        manager: Arc<str>,
    },
    /// The smallest limit is larger than the largest.
    Pages {
        /// The page manager of the process.
        manager: Arc<str>,
        /// The smallest limit.
        pages_min: usize,
        /// The largest limit.
        pages_max: usize,
    },
    /// No rate lies between the two.
    Rates {
        /// The page manager of the process.
        manager: Arc<str>,
        /// The rate below which the limit falls.
        faults_per_s_min: u32,
        /// The rate above which it rises.
        faults_per_s_max: u32,
    },
}

impl fmt::Display for WorkingSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkingSetError::NoPages { manager } => {
                write!(f, "a working set of {manager} without pages was refused; allow at least 1 page")
            }
            WorkingSetError::Pages { manager, pages_min, pages_max } => write!(
                f,
                "a working set of {manager} was refused, since its smallest limit of {pages_min} pages is above its largest of {pages_max}"
            ),
            WorkingSetError::Rates { manager, faults_per_s_min, faults_per_s_max } => write!(
                f,
                "a working set of {manager} was refused, since its lower rate of {faults_per_s_min} faults per second is not below its upper rate of {faults_per_s_max}"
            ),
        }
    }
}

impl Error for WorkingSetError {}

/// The policy of a process, in force.
pub(crate) struct Policy {
    /// Whether faults count.
    is_rated: AtomicBool,
    faults: PerVpWord,
    state: Mutex<State>,
}

struct State {
    setting: WorkingSet,
    /// The last adjustment, and the number of faults at that time.
    since: Instant,
    faults: u64,
}

impl Policy {
    pub(crate) fn new(pages_max: usize) -> Policy {
        let state = State { setting: WorkingSet::Limit { pages_max }, since: Instant::now(), faults: 0 };
        Policy { is_rated: AtomicBool::new(false), faults: PerVpWord::new(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn setting(&self) -> WorkingSet {
        self.state().setting
    }

    /// Returns whether faults count. If not, their cost is this load.
    pub(crate) fn is_rated(&self) -> bool {
        // Relaxed: faults that count too late, or too long, do no harm.
        self.is_rated.load(Ordering::Relaxed)
    }

    /// Counts a fault. Returns whether the thread is to adjust the limit.
    pub(crate) fn count(&self) -> bool {
        let counted = self.faults.update(|faults| Some(faults.wrapping_add(1)));
        counted.is_some_and(|(_, before)| before.wrapping_add(1).is_multiple_of(PERIOD))
    }

    pub(crate) fn set(&self, setting: WorkingSet, pool: Handle<dyn PagePool>) -> Result<(), WorkingSetError> {
        setting.check(|| {
            let id = Handle::id(pool);
            match squall_core::name_of(id) {
                Some(name) => format!("the page manager {name}").into(),
                None => format!("the page manager {id}").into(),
            }
        })?;
        // No deferred call of the program runs under the lock: it may ask for the working set.
        let limit = squall_rcu::without_callbacks(|| {
            let mut state = self.state();
            *state = State { setting, since: Instant::now(), faults: self.faults.sum() };
            self.is_rated.store(matches!(setting, WorkingSet::FaultRate { .. }), Ordering::Relaxed);
            let (pages_min, pages_max) = setting.bounds();
            let limit = pool.max_pages().clamp(pages_min, pages_max);
            pool.set_max_pages(limit);
            limit
        });
        give_back(pool, limit);
        Ok(())
    }

    /// Adjusts the limit to the faults since the last adjustment. Does nothing while another thread does so.
    pub(crate) fn adjust(&self, pool: Handle<dyn PagePool>) {
        // As in `set`.
        if let Some(limit) = squall_rcu::without_callbacks(|| self.change_limit(pool)) {
            give_back(pool, limit);
        }
    }

    /// Sets the next limit. Returns it if it is another one.
    fn change_limit(&self, pool: Handle<dyn PagePool>) -> Option<usize> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            // Each change of the state is whole.
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let (now, faults) = (Instant::now(), self.faults.sum());
        let limit = pool.max_pages();
        let since = (faults.wrapping_sub(state.faults), now.saturating_duration_since(state.since));
        let next = state.setting.next_limit(limit, since.0, since.1);
        (state.since, state.faults) = (now, faults);
        (next != limit).then(|| {
            pool.set_max_pages(next);
            next
        })
    }
}

/// Gives pages beyond the limit of a page manager back. Called without the lock: it runs code of the program.
fn give_back(pool: Handle<dyn PagePool>, pages: usize) {
    for _ in 0..RECLAMATIONS {
        // Free pages first. A reclamation makes more of them.
        let excess = pool.used().saturating_sub(pages);
        let missing = excess - pool.give_up(excess).min(excess);
        if missing == 0 || pool.reclaim(missing) == 0 {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATED: WorkingSet =
        WorkingSet::FaultRate { pages_min: 10, pages_max: 100, faults_per_s_min: 5, faults_per_s_max: 20 };

    #[test]
    fn co_76_the_limit_follows_the_rate_of_faults() {
        let next = |limit, faults, ms| RATED.next_limit(limit, faults, Duration::from_millis(ms));
        // 21 faults in a second are above the band, 20 and 5 within it, and 4 below it.
        assert_eq!([21, 20, 5, 4].map(|faults| next(40, faults, 1000)), [50, 40, 40, 35]);
        assert_eq!([next(40, 10, 100), next(40, 10, 10_000)], [50, 35]);
        // The bounds hold, and so do they for a limit that was outside of them.
        assert_eq!([next(90, 99, 1), next(11, 0, 1000), next(10, 0, 1000)], [100, 10, 10]);
        assert_eq!([next(500, 10, 1000), next(0, 10, 1000)], [100, 10]);
        // A small limit changes by a page.
        let small =
            WorkingSet::FaultRate { pages_min: 1, pages_max: 4, faults_per_s_min: 1, faults_per_s_max: 2 };
        assert_eq!(small.next_limit(2, 9, Duration::ZERO), 3);
        assert_eq!(small.next_limit(2, 0, Duration::ZERO), 1);
    }

    #[test]
    fn co_76_a_fixed_limit_stays() {
        let fixed = WorkingSet::Limit { pages_max: 7 };
        assert_eq!([0, 1000].map(|faults| fixed.next_limit(7, faults, Duration::from_secs(1))), [7, 7]);
    }
}
