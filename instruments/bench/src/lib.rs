//! The benchmark cases of Squall, each with its rivals, and the harness that runs them.
//!
//! A *case* is one piece of work. A *subject* does that work in one way: ours, a rival's, or a baseline that is
//! subtracted. All subjects of a case run in one process, in short slices, in an order that rotates from round to
//! round, so that whatever disturbs the machine disturbs all of them alike. How the figures are made is told in
//! `docs/benchmarks.md`; the names and the rows that are printed are a contract that scripts rely on.
//!
//! Invariant of the crate: a subject does exactly the operations it is asked for, and where the result can be
//! checked (a counter's sum) it is checked; a run whose check fails is an error, not a figure.
//!
//! Does not know: the command line, the terminal.

#![deny(unsafe_code)]

/// The first page of the repository, whose program is run by the tests of this crate: it has all that the page uses.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod first_page {}

mod case;
mod cases;
mod exact;
mod gate;
mod harness;
mod latch;
mod objects;
mod ours_adapt;
mod ours_cell;
mod ours_core;
mod ours_lock;
mod ours_machine;
mod ours_map;
mod ours_rcu;
mod ours_requests;
mod ours_swap;
mod report;
mod rivals;
mod uncounted;

pub mod env;

pub use case::{Case, Missing, Role, Variant};
pub use cases::{all, find};
pub use exact::run_exact;
pub use harness::{Outcome, Plan, RunError, Step, SubjectResult, Table, run_case};
pub use report::{Row, Text, rows};
pub use rivals::allocators::{Owned, in_child};

/// The example of the repository's README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
