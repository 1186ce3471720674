//! A search by many searchers that one thread steps in turns.
//!
//! Each round, each searcher takes subproblems until it has branched one, or the frontier is empty. The
//! counts are equal in each run.

use std::sync::Arc;

use super::{SearchError, Work, finish, is_empty, open_max, proven};
use crate::frontier::{Frontier, FrontierCounts};
use crate::{BestTour, Instance, Node, Tour};

/// Result of a stepped search.
#[derive(Clone, Debug)]
pub struct Stepped {
    /// The proven optimum.
    pub tour: Arc<Tour>,
    /// Counts of all searchers.
    pub work: Work,
    /// Counts of the frontier.
    pub frontier: FrontierCounts,
    /// Rounds until the end.
    pub rounds: u64,
    /// Branched subproblems with a bound that was not below the optimum. The best order has few.
    pub useless: u64,
}

/// Solves an instance with searchers that take turns. For objects see [`Form::can_step`](crate::Form).
///
/// # Errors
/// [`SearchError`] if the frontier loses a subproblem, or there are too many.
///
/// # Panics
/// If there is no searcher.
///
/// ```
/// use squall_tsp::{Form, Instance, Queued, stepped};
///
/// let instance = Instance::new("three", vec![0, 1, 9, 9, 0, 1, 1, 9, 0]).unwrap();
/// let found = stepped(&instance, &Queued::new(Form::Ring, 2), 2).unwrap();
/// assert_eq!(found.tour.length(), 3);
/// ```
pub fn stepped(
    instance: &Instance,
    frontier: &dyn Frontier,
    searchers: usize,
) -> Result<Stepped, SearchError> {
    let mut steps = Steps::begin(instance, frontier);
    while !steps.is_over() {
        steps.turn(instance, frontier, searchers)?;
    }
    steps.end(frontier, searchers)
}

/// A search in progress.
pub(super) struct Steps {
    best: BestTour,
    work: Work,
    rounds: u64,
    /// Bounds of the branched subproblems.
    bounds: Vec<u64>,
    open: u64,
}

impl Steps {
    /// Puts the first subproblem.
    pub(super) fn begin(instance: &Instance, frontier: &dyn Frontier) -> Steps {
        let root = Node::root(instance);
        let open = root.iter().count() as u64;
        root.into_iter().for_each(|root| frontier.put(0, root));
        Steps { best: BestTour::new(), work: Work::default(), rounds: 0, bounds: Vec::new(), open }
    }

    /// Whether all subproblems are finished.
    pub(super) fn is_over(&self) -> bool {
        self.open == 0
    }

    /// Steps each searcher once.
    pub(super) fn turn(
        &mut self,
        instance: &Instance,
        frontier: &dyn Frontier,
        searchers: usize,
    ) -> Result<(), SearchError> {
        assert!(searchers > 0, "a search has a searcher");
        let (before, open_before) = (self.work, self.open);
        for searcher in 0..searchers {
            self.step(instance, frontier, searcher)?;
        }
        self.rounds += 1;
        let (work, open) = (self.work, self.open);
        if open > open_max(instance) {
            return Err(SearchError::TooManyOpen { open });
        }
        let is_idle = (before.expanded, before.pruned) == (work.expanded, work.pruned);
        if is_idle && open == open_before {
            return Err(SearchError::Lost { open });
        }
        Ok(())
    }

    /// Takes subproblems for a searcher until it has branched one, or the frontier is empty.
    fn step(
        &mut self,
        instance: &Instance,
        frontier: &dyn Frontier,
        searcher: usize,
    ) -> Result<(), SearchError> {
        let expanded = self.work.expanded;
        while self.work.expanded == expanded {
            let Some(node) = frontier.get(searcher) else {
                self.work.waits += 1;
                break;
            };
            let bound = node.bound();
            let children = finish(node, instance, &self.best, &mut self.work);
            if self.work.expanded > expanded {
                self.bounds.push(bound);
            }
            let open = (self.open + children.len() as u64).checked_sub(1);
            self.open = open.ok_or(SearchError::Invented)?;
            children.into_iter().for_each(|child| frontier.put(searcher, child));
        }
        Ok(())
    }

    /// Returns the result of a search that is over.
    pub(super) fn end(self, frontier: &dyn Frontier, searchers: usize) -> Result<Stepped, SearchError> {
        if !is_empty(frontier, searchers) {
            return Err(SearchError::Invented);
        }
        let tour = proven(&self.best);
        let useless = self.bounds.iter().filter(|bound| **bound >= tour.length()).count() as u64;
        let (work, rounds) = (self.work, self.rounds);
        Ok(Stepped { tour, work, frontier: frontier.counts(), rounds, useless })
    }
}
