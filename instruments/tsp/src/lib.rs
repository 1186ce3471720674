#![forbid(unsafe_code)]
//! The travelling salesman, solved by branch and bound over a shared queue, with a proof of the optimum.
//!
//! A [`tsplib`] file becomes an [`Instance`]. [`Node`] is a subproblem with the bound of Little, Murty,
//! Sweeney and Karel. [`exact`] computes the optimum of a small instance by a dynamic program.

#[cfg(squall_global_alloc)]
use squall_alloc as _;

mod best;
pub mod exact;
mod frontier;
mod instance;
mod node;
#[cfg(test)]
mod random;
mod search;
pub mod shipped;
mod svg;
mod tour;
pub mod tsplib;

pub use best::{BestTour, Offer};
pub use frontier::{Form, Frontier, FrontierCounts, Lock, Locked, Queued, priority};
pub use instance::{CITIES_MAX, CITIES_MIN, Instance, InstanceError, WEIGHT_MAX};
pub use node::{Branch, Node};
pub use search::{
    Adapted, Costs, Modelled, Parallel, Progress, SearchError, Stepped, Work, modelled, parallel, queued,
    stepped, stepped_adaptive,
};
pub use svg::svg;
pub use tour::{Tour, TourError};
