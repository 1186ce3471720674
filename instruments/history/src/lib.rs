//! Evidence that what many threads do at once could have been done one after the other.
//!
//! Problem: a test of a concurrent object that looks at the end only misses what was wrong on the way.
//! Idea: [`record`] what each thread asked and was answered, and what it knew to be over when it asked; then search an order of
//! all calls that keeps what was known and in which a sequential [`Spec`] gives the same answers ([`check`]). If there is none, the
//! object is wrong, whatever the specification's author or the scheduler meant.
//!
//! [`maps`] is the load: checks that any concurrent map can be put through, by one trait.
//!
//! Limits: the search is exponential. It is cut where nobody was inside ([`history`]), it never goes twice through the same set of
//! calls in the same state, and it says so when it gives up. A history that passes shows nothing about the others.
//!
//! Source: Herlihy and Wing, "Linearizability", 1990; Wing and Gong, "Testing and verifying concurrent objects", 1993; Lowe,
//! "Testing for linearizability", 2017 (the memory of what was searched); Horn and Kroening, "Faster linearizability checking via
//! P-compositionality", 2015 (the split by key).
#![forbid(unsafe_code)]

#[cfg(squall_global_alloc)]
use squall_alloc as _;

pub mod check;
pub mod history;
pub mod maps;
pub mod record;
pub mod rng;
pub mod spec;

pub use check::{Checker, Refused};
pub use history::{Call, Event, History};
pub use record::{Log, logs};
pub use spec::{At, Keyed, Spec};
