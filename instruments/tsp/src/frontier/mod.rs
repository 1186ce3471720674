//! Frontiers: the open subproblems of a search, as searchers share them.
//!
//! A search is written against [`Frontier`]. [`Queued`] is Squall's queue in one of its forms. [`Locked`] is
//! the reference: one heap of std under one lock.

mod form;
mod locked;
mod object;
mod queued;

pub use form::Form;
pub use locked::{Lock, Locked};
pub use queued::Queued;

use crate::Node;

/// The open subproblems of a search.
///
/// A subproblem that was put is returned by one `get`. While no other searcher is in a call, a `get` of any
/// searcher finds a subproblem if there is one.
pub trait Frontier: Sync {
    /// Adds a subproblem on behalf of a searcher.
    fn put(&self, searcher: usize, node: Node);

    /// Removes a subproblem for a searcher: a good one, as the frontier orders them.
    fn get(&self, searcher: usize) -> Option<Node>;

    /// The counts of all calls so far.
    fn counts(&self) -> FrontierCounts;
}

/// Counts of a frontier's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrontierCounts {
    /// Gets that returned a subproblem.
    pub gets: u64,
    /// Gets from a heap of another searcher, if the frontier counts them. One heap for all is that of the
    /// first searcher.
    pub remote_gets: Option<u64>,
    /// Subproblems that balancing moved to another searcher's heap.
    pub moved: u64,
}

/// The priority of a subproblem; the least comes first. Of equal bounds, the one with fewer open arcs comes
/// first, since it is nearer to a tour.
#[must_use]
pub fn priority(node: &Node) -> u64 {
    const OPEN_BITS: u32 = 8;
    const { assert!(crate::CITIES_MAX < 1 << OPEN_BITS) };
    node.bound() << OPEN_BITS | node.open() as u64
}
