//! A search by threads, over any frontier.
//!
//! - I1. `open` counts the subproblems that were put and not finished. A searcher counts the children of a
//!   subproblem before it puts them, and then finishes the subproblem. So `open` is zero only if all are
//!   finished.
//! - I2. An idle searcher has seen an empty frontier after the last put that it knows. A put wakes all.
//! - I3. The last searcher to become idle asks the frontier once more, under the lock. All others wait then,
//!   so an empty answer means that the open subproblems are lost.
//!
//! Progress: a searcher blocks on the lock of the crew only when it is idle, or wakes others.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::{REPORT_EVERY, SearchError, Work, finish, is_empty, open_max, proven};
use crate::frontier::{Frontier, FrontierCounts};
use crate::{BestTour, Instance, Node, Tour};

/// Result of a search by threads.
#[derive(Clone, Debug)]
pub struct Parallel {
    /// The proven optimum.
    pub tour: Arc<Tour>,
    /// Counts of each searcher.
    pub work: Vec<Work>,
    /// Counts of the frontier.
    pub frontier: FrontierCounts,
    /// Time from the first thread's start to the last one's end.
    pub took: Duration,
}

/// State of a running search.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The reporting searcher.
    pub searcher: usize,
    /// Open subproblems.
    pub open: u64,
    /// Subproblems that this searcher has branched.
    pub expanded: u64,
    /// Length of the best tour so far, or `u64::MAX`.
    pub length: u64,
}

/// Shared state of the searchers.
struct Crew<'a> {
    instance: &'a Instance,
    frontier: &'a dyn Frontier,
    best: BestTour,
    open: CachePadded<AtomicU64>,
    /// Number of puts, for idle searchers.
    puts: CachePadded<AtomicU64>,
    /// Number of idle searchers. Changed under the lock of `end`.
    idle: AtomicUsize,
    end: Mutex<Option<Result<(), SearchError>>>,
    changed: Condvar,
    searchers: usize,
}

/// Solves an instance with this many threads. Every 256 branches a searcher calls `report`, and with each new
/// best tour.
///
/// # Errors
/// [`SearchError`] if the frontier loses a subproblem, a searcher panics, or there are too many subproblems.
///
/// # Panics
/// If there is no searcher, or a thread cannot be started.
///
/// ```
/// use squall_tsp::{Locked, parallel, shipped};
///
/// let instance = shipped::find("plane10").unwrap().instance();
/// let found = parallel(&instance, &Locked::default(), 2, &|_| {}).unwrap();
/// assert_eq!(Some(found.tour.length()), instance.stated_optimum());
/// ```
pub fn parallel(
    instance: &Instance,
    frontier: &dyn Frontier,
    searchers: usize,
    report: &(dyn Fn(Progress) + Sync),
) -> Result<Parallel, SearchError> {
    assert!(searchers > 0, "a search has a searcher");
    let crew = Crew {
        instance,
        frontier,
        best: BestTour::new(),
        open: CachePadded::new(AtomicU64::new(0)),
        puts: CachePadded::new(AtomicU64::new(0)),
        idle: AtomicUsize::new(0),
        end: Mutex::new(None),
        changed: Condvar::new(),
        searchers,
    };
    crew.put(0, Node::root(instance).into_iter().collect());
    let began = Instant::now();
    let work: Vec<_> = thread::scope(|scope| {
        let crew = &crew;
        let threads: Vec<_> =
            (0..searchers).map(|searcher| scope.spawn(move || crew.run(searcher, report))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let took = began.elapsed();
    let work = work.into_iter().collect::<Result<Vec<Work>, _>>().map_err(|_| SearchError::Panicked)?;
    crew.lock().clone().expect("all searchers have ended")?;
    if crew.open() > 0 || !is_empty(frontier, searchers) {
        return Err(SearchError::Invented);
    }
    Ok(Parallel { tour: proven(&crew.best), work, frontier: frontier.counts(), took })
}

/// Ends the search for the others if its searcher panics.
struct Panics<'a, 'b>(&'a Crew<'b>);

impl Drop for Panics<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end(&mut self.0.lock(), Err(SearchError::Panicked));
        }
    }
}

type End = Option<Result<(), SearchError>>;

impl Crew<'_> {
    /// Ignores poison: a panic of the frontier under the lock leaves the state complete.
    fn lock(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn open(&self) -> u64 {
        // Acquire: pairs with the AcqRel of `run`. A zero shows all finished subproblems and their tours.
        self.open.load(Ordering::Acquire)
    }

    /// Sets the result of the search, and wakes all. The first error remains.
    fn end(&self, state: &mut End, result: Result<(), SearchError>) {
        if !matches!(state, Some(Err(_))) {
            *state = Some(result);
        }
        self.changed.notify_all();
    }

    /// Puts subproblems, and wakes idle searchers.
    fn put(&self, searcher: usize, nodes: Vec<Node>) {
        if nodes.is_empty() {
            return;
        }
        // Relaxed: the parent of these subproblems is open, so no searcher sees a zero meanwhile.
        self.open.fetch_add(nodes.len() as u64, Ordering::Relaxed);
        nodes.into_iter().for_each(|node| self.frontier.put(searcher, node));
        // SeqCst: a handshake with `wait`, which counts itself idle and then reads `puts`. One of the two
        // sees the other's change.
        self.puts.fetch_add(1, Ordering::SeqCst);
        // SeqCst: the second half of that handshake.
        if self.idle.load(Ordering::SeqCst) > 0 {
            // The lock orders this after the check of a searcher that is about to wait.
            drop(self.lock());
            self.changed.notify_all();
        }
    }

    /// Searches until the end.
    fn run(&self, searcher: usize, report: &(dyn Fn(Progress) + Sync)) -> Work {
        let _panics = Panics(self);
        let mut work = Work::default();
        loop {
            // Acquire: pairs with the SeqCst increment of `put`. A get after it sees the subproblems of all
            // counted puts.
            let puts = self.puts.load(Ordering::Acquire);
            let node = match self.frontier.get(searcher) {
                Some(node) => node,
                None => {
                    work.waits += 1;
                    match self.wait(searcher, puts) {
                        Waited::Found(node) => node,
                        Waited::Again => continue,
                        Waited::End => return work,
                    }
                }
            };
            let (expanded, tours) = (work.expanded, work.tours);
            let children = finish(node, self.instance, &self.best, &mut work);
            self.put(searcher, children);
            // AcqRel: pairs with the Acquire of `open`, through the decrements of other searchers.
            let Some(open) = self.open.fetch_sub(1, Ordering::AcqRel).checked_sub(1) else {
                self.end(&mut self.lock(), Err(SearchError::Invented));
                return work;
            };
            let is_due = work.expanded > expanded && work.expanded.is_multiple_of(REPORT_EVERY);
            if is_due || work.tours > tours {
                report(Progress { searcher, open, expanded: work.expanded, length: self.best.length() });
            }
            if open == 0 {
                self.end(&mut self.lock(), Ok(()));
                return work;
            }
            if open > open_max(self.instance) {
                self.end(&mut self.lock(), Err(SearchError::TooManyOpen { open }));
                return work;
            }
            if is_due && self.lock().is_some() {
                return work;
            }
        }
    }

    /// Waits for another put than those seen, or for the end.
    fn wait(&self, searcher: usize, seen: u64) -> Waited {
        let mut state = self.lock();
        // SeqCst: pairs with `put`; see there.
        let idle = self.idle.fetch_add(1, Ordering::SeqCst) + 1;
        let waited = loop {
            if state.is_some() {
                break Waited::End;
            }
            // SeqCst: pairs with `put`; see there.
            if self.puts.load(Ordering::SeqCst) != seen {
                break Waited::Again;
            }
            if idle == self.searchers {
                // All others are idle, and this lock keeps them so (I3).
                match self.frontier.get(searcher) {
                    Some(node) => break Waited::Found(node),
                    None => {
                        let result = match self.open() {
                            0 => Ok(()),
                            open => Err(SearchError::Lost { open }),
                        };
                        self.end(&mut state, result);
                        break Waited::End;
                    }
                }
            }
            state = self.changed.wait(state).unwrap_or_else(|poison| poison.into_inner());
        };
        // Relaxed: changed under the lock, and a put that sees the old count wakes in vain.
        self.idle.fetch_sub(1, Ordering::Relaxed);
        waited
    }
}

/// Result of a wait.
enum Waited {
    /// The frontier had a subproblem after all.
    Found(Node),
    /// There was a put.
    Again,
    /// The search has ended.
    End,
}
