//! Checks recorded concurrent histories for linearizability.
//!
//! Problem: a test that looks only at the final state of a concurrent object misses errors on the way. Idea:
//! [`record`] each thread's calls, their answers, and the calls known to be over when each call began. Then
//! search for an order of all calls that respects this knowledge and in which a sequential [`Spec`] gives the
//! same answers ([`check`]). If no such order exists, the object is wrong.
//!
//! [`maps`] generates the load: checks for any concurrent map that implements a trait. [`tasks`] runs futures
//! in tests.
//!
//! Limits: the search is exponential. It is divided where no call is in progress ([`history`]). It never
//! visits the same set of calls with the same state twice, and reports when it gives up. A history that
//! passes proves nothing about other histories.
//!
//! Source: Herlihy and Wing, "Linearizability", 1990; Wing and Gong, "Testing and verifying concurrent
//! objects", 1993; Lowe, "Testing for linearizability", 2017 (memoised search); Horn and Kroening, "Faster
//! linearizability checking via P-compositionality", 2015 (split by key).
#![forbid(unsafe_code)]

#[cfg(squall_global_alloc)]
use squall_alloc as _;

pub mod check;
pub mod history;
pub mod maps;
pub mod record;
pub mod rng;
pub mod spec;
pub mod tasks;

pub use check::{Checker, Refused};
pub use history::{Call, Event, History};
pub use record::{Log, logs};
pub use spec::{At, Keyed, Spec};
