//! Searches for the optimum, with a proof.
//!
//! - I1. A search claims an optimum only if each subproblem that it put was taken and finished. A searcher
//!   that panics, or a frontier that loses or repeats a subproblem, ends the search with an error.
//! - I2. A subproblem is dropped only if its bound is not below the length of the best tour.
//!
//! By the invariants of a node, the best tour is then the shortest of all.

mod adaptive;
mod modelled;
mod parallel;
mod queued;
mod step;
#[cfg(test)]
mod tests;

pub use adaptive::{Adapted, stepped_adaptive};
pub use modelled::{Costs, Modelled, modelled};
pub use parallel::{Parallel, Progress, parallel};
pub use queued::queued;
pub use step::{Stepped, stepped};

use std::fmt;
use std::sync::Arc;

use crate::{BestTour, Branch, Frontier, Instance, Node, Tour};

/// Largest memory of the open subproblems of one search, in bytes.
const OPEN_BYTES_MAX: usize = if cfg!(test) { 64 << 20 } else { 1 << 30 };

/// A search that proves no optimum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchError {
    /// The frontier returned fewer subproblems than were put.
    Lost {
        /// The number of missing subproblems.
        open: u64,
    },
    /// The frontier returned, or still has, more subproblems than were put.
    Invented,
    /// A searcher panicked.
    Panicked,
    /// There are more open subproblems than fit into the memory of a search.
    TooManyOpen {
        /// The number of open subproblems.
        open: u64,
    },
}

impl fmt::Display for SearchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SearchError::Lost { open } => {
                write!(
                    f,
                    "the frontier lost {open} subproblems, so no optimum is proven; report this as a bug"
                )
            }
            SearchError::Invented => {
                write!(
                    f,
                    "the frontier returned a subproblem twice, so no optimum is proven; report this as a bug"
                )
            }
            SearchError::Panicked => {
                write!(f, "a searcher panicked, so no optimum is proven; its message is above")
            }
            SearchError::TooManyOpen { open } => write!(
                f,
                "{open} subproblems are open, and more do not fit into {} MiB; solve a problem with fewer cities",
                OPEN_BYTES_MAX >> 20
            ),
        }
    }
}

impl std::error::Error for SearchError {}

/// The most open subproblems of an instance.
fn open_max(instance: &Instance) -> u64 {
    (OPEN_BYTES_MAX / Node::bytes_max(instance.cities())) as u64
}

/// Branched subproblems of a searcher between two reports.
const REPORT_EVERY: u64 = 256;

/// Counts of a searcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Subproblems that were branched.
    pub expanded: u64,
    /// Subproblems that were dropped by their bound after a get.
    pub pruned: u64,
    /// Complete tours that were found.
    pub tours: u64,
    /// Gets that found the frontier empty.
    pub waits: u64,
}

impl Work {
    /// Adds the counts of another searcher.
    #[must_use]
    pub fn and(self, other: Work) -> Work {
        Work {
            expanded: self.expanded + other.expanded,
            pruned: self.pruned + other.pruned,
            tours: self.tours + other.tours,
            waits: self.waits + other.waits,
        }
    }
}

/// Finishes a subproblem: branches it, or drops it by its bound. Returns the children.
fn finish(node: Node, instance: &Instance, best: &BestTour, work: &mut Work) -> Vec<Node> {
    if node.bound() >= best.length() {
        work.pruned += 1;
        return Vec::new();
    }
    work.expanded += 1;
    match node.branch(instance) {
        Branch::Tour(tour) => {
            work.tours += 1;
            let _ = best.offer(tour);
            Vec::new()
        }
        Branch::Children(mut children) => {
            let length = best.length();
            children.retain(|child| child.bound() < length);
            children
        }
    }
}

/// Whether the frontier has no subproblem at the end of a search.
fn is_empty(frontier: &dyn Frontier, searchers: usize) -> bool {
    (0..searchers).all(|searcher| frontier.get(searcher).is_none())
}

/// The proven optimum at the end of a search in which all subproblems were finished.
fn proven(best: &BestTour) -> Arc<Tour> {
    best.tour().expect("a complete matrix has a tour, and each of its subproblems was finished")
}
