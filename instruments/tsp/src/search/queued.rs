//! A search by threads over Squall's queue, which tells the end of the work itself.
//!
//! - I1. A searcher puts the children of a subproblem before it finishes that one. So the queue is done only
//!   if all are finished.
//! - I2. A searcher that panics closes the queue. The others end then, and the search returns an error.
//! - I3. The search counts subproblems too: as many are finished as were put.

use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use super::{Parallel, Progress, REPORT_EVERY, SearchError, Work, finish, is_empty, open_max, proven};
use crate::frontier::Queued;
use crate::{BestTour, Frontier, Instance, Node};

/// Solves an instance with this many threads, as [`parallel`](super::parallel) does. Searchers wait in the
/// queue, and the queue detects the end.
///
/// # Errors
/// [`SearchError`] if the queue loses a subproblem, a searcher panics, or there are too many subproblems.
///
/// # Panics
/// If there is no searcher, or a thread cannot be started.
///
/// ```
/// use squall_tsp::{Form, Queued, queued, shipped};
///
/// let instance = shipped::find("plane10").unwrap().instance();
/// let found = queued(&instance, &Queued::new(Form::Ring, 2), 2, &|_| {}).unwrap();
/// assert_eq!(Some(found.tour.length()), instance.stated_optimum());
/// ```
pub fn queued(
    instance: &Instance,
    frontier: &Queued,
    searchers: usize,
    report: &(dyn Fn(Progress) + Sync),
) -> Result<Parallel, SearchError> {
    assert!(searchers > 0, "a search has a searcher");
    let crew = Crew { instance, frontier, best: BestTour::new(), error: Mutex::new(None) };
    let root = Node::root(instance);
    let mut put = root.iter().count() as u64;
    root.into_iter().for_each(|root| frontier.put(0, root));
    let began = Instant::now();
    let ended: Vec<_> = thread::scope(|scope| {
        let crew = &crew;
        let threads: Vec<_> =
            (0..searchers).map(|searcher| scope.spawn(move || crew.run(searcher, report))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let took = began.elapsed();
    let ended = ended.into_iter().collect::<Result<Vec<_>, _>>().map_err(|_| SearchError::Panicked)?;
    if let Some(error) = crew.error.into_inner().unwrap_or_else(|poison| poison.into_inner()) {
        return Err(error);
    }
    put += ended.iter().map(|ended| ended.put).sum::<u64>();
    let work: Vec<Work> = ended.into_iter().map(|ended| ended.work).collect();
    let finished = work.iter().map(|work| work.expanded + work.pruned).sum();
    match put.checked_sub(finished) {
        Some(0) if is_empty(frontier, searchers) => {}
        Some(open) if open > 0 => return Err(SearchError::Lost { open }),
        _ => return Err(SearchError::Invented),
    }
    Ok(Parallel { tour: proven(&crew.best), work, frontier: frontier.counts(), took })
}

/// Shared state of the searchers.
struct Crew<'a> {
    instance: &'a Instance,
    frontier: &'a Queued,
    best: BestTour,
    /// Set before the queue is closed.
    error: Mutex<Option<SearchError>>,
}

/// Counts of a searcher at its end.
#[derive(Default)]
struct Ended {
    work: Work,
    put: u64,
}

/// Ends the search for the others if its searcher panics.
struct Panics<'a, 'b>(&'a Crew<'b>);

impl Drop for Panics<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(SearchError::Panicked);
        }
    }
}

impl Crew<'_> {
    /// Ends the search with an error.
    fn fail(&self, error: SearchError) {
        self.error.lock().unwrap_or_else(|poison| poison.into_inner()).get_or_insert(error);
        self.frontier.close();
    }

    fn run(&self, searcher: usize, report: &(dyn Fn(Progress) + Sync)) -> Ended {
        let _panics = Panics(self);
        let queue = self.frontier;
        let mut ended = Ended::default();
        loop {
            // A wait costs more than a get, so it comes after a get that found the queue empty.
            let (node, unfinished) = match queue.take(searcher) {
                Some(taken) => taken,
                None => {
                    ended.work.waits += 1;
                    match queue.take_wait(searcher) {
                        Some(taken) => taken,
                        None => return ended,
                    }
                }
            };
            if queue.is_closed() {
                return ended;
            }
            queue.count_get(searcher);
            let work = &mut ended.work;
            let (expanded, tours) = (work.expanded, work.tours);
            let children = finish(node, self.instance, &self.best, work);
            ended.put += children.len() as u64;
            children.into_iter().for_each(|child| queue.put(searcher, child));
            queue.finish(searcher, unfinished);
            let is_due = work.expanded > expanded && work.expanded.is_multiple_of(REPORT_EVERY);
            if is_due || work.tours > tours {
                let open = queue.len() as u64;
                report(Progress { searcher, open, expanded: work.expanded, length: self.best.length() });
                if open > open_max(self.instance) {
                    self.fail(SearchError::TooManyOpen { open });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontier::Form;
    use crate::shipped;

    #[test]
    fn each_shipped_instance_has_its_optimum_in_each_form() {
        for it in shipped::ALL {
            let instance = it.instance();
            for form in Form::ALL {
                let found = queued(&instance, &Queued::new(form, 3), 3, &|_| {}).expect("an optimum");
                assert_eq!(Some(found.tour.length()), instance.stated_optimum(), "{}, {form:?}", it.file);
                let finished: u64 = found.work.iter().map(|work| work.expanded + work.pruned).sum();
                assert_eq!(found.frontier.gets, finished, "{}, {form:?}", it.file);
            }
        }
    }

    #[test]
    fn a_panic_of_a_searcher_prevents_a_proof_and_ends_the_others() {
        let instance = shipped::find("plane14").expect("it is shipped").instance();
        for form in Form::ALL {
            for searchers in [1, 3] {
                // The report of the first tour panics.
                let frontier = Queued::new(form, searchers);
                let found = queued(&instance, &frontier, searchers, &|_| panic!("a planted panic"));
                assert_eq!(found.map(|it| it.tour), Err(SearchError::Panicked), "{form:?}, {searchers}");
            }
        }
    }
}
