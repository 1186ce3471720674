//! Frontiers: the open subproblems of a search, as searchers share them.
//!
//! A search is written against [`Frontier`]. [`Fragments`] is the reference: KTK's forms of the queue behind
//! plain locks.

mod fragments;

pub use fragments::{Fragments, Model};

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
    /// Gets from the searcher's own fragment.
    pub local_gets: u64,
    /// Gets from another fragment.
    pub remote_gets: u64,
    /// Puts into another fragment.
    pub remote_puts: u64,
    /// Subproblems that the frontier moved between fragments.
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
