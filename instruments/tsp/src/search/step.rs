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

/// Solves an instance with searchers that take turns.
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
    assert!(searchers > 0, "a search has a searcher");
    let (best, mut work, mut rounds) = (BestTour::new(), Work::default(), 0);
    let mut bounds = Vec::new();
    let mut open = 0_u64;
    if let Some(root) = Node::root(instance) {
        frontier.put(0, root);
        open = 1;
    }
    while open > 0 {
        let (before, open_before) = (work, open);
        for searcher in 0..searchers {
            let expanded = work.expanded;
            while work.expanded == expanded {
                let Some(node) = frontier.get(searcher) else {
                    work.waits += 1;
                    break;
                };
                let bound = node.bound();
                let children = finish(node, instance, &best, &mut work);
                if work.expanded > expanded {
                    bounds.push(bound);
                }
                open = (open + children.len() as u64).checked_sub(1).ok_or(SearchError::Invented)?;
                children.into_iter().for_each(|child| frontier.put(searcher, child));
            }
        }
        rounds += 1;
        if open > open_max(instance) {
            return Err(SearchError::TooManyOpen { open });
        }
        let is_idle = (before.expanded, before.pruned) == (work.expanded, work.pruned);
        if is_idle && open == open_before {
            return Err(SearchError::Lost { open });
        }
    }
    if !is_empty(frontier, searchers) {
        return Err(SearchError::Invented);
    }
    let tour = proven(&best);
    let useless = bounds.iter().filter(|bound| **bound >= tour.length()).count() as u64;
    Ok(Stepped { tour, work, frontier: frontier.counts(), rounds, useless })
}
