//! The benchmark cases of Squall, each with its rivals, and the harness that runs them.
//!
//! A *case* is one piece of work. A *subject* does that work in one way: ours, a rival's, or a baseline that
//! is subtracted. All subjects of a case run in one process, in short slices. Their order rotates from round
//! to round, so that a disturbance of the machine affects all subjects alike. `docs/benchmarks.md` explains
//! how the figures are made. The names and the printed rows are a contract that scripts rely on.
//!
//! - I1. A subject does exactly the operations it is asked for. A result that can be checked (a counter's
//!   sum) is checked; a failed check ends the run with an error.
//!
//! The crate depends neither on the command line nor on the terminal.

#![deny(unsafe_code)]

/// Runs the programs of the repository's README as a test of this crate, which has all its dependencies.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

/// Runs the programs of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../GUIDE.md")]
mod guide {}

mod case;
mod cases;
mod exact;
mod gate;
mod harness;
mod latch;
mod objects;
mod ours_adapt;
mod ours_bag;
mod ours_cache;
mod ours_call;
mod ours_cluster;
mod ours_core;
mod ours_gate;
mod ours_link;
mod ours_lock;
mod ours_machine;
mod ours_map;
mod ours_message;
mod ours_pager;
mod ours_queue;
mod ours_rcu;
mod ours_read_mostly;
mod ours_ship;
mod ours_swap;
mod ours_touch;
mod report;
mod rivals;
mod uncounted;
mod work;

pub mod env;
pub mod pool;

pub use case::{Case, Missing, Role, Variant};
pub use cases::browse::browsed_program;
pub use cases::call_process::{CALL_SERVER, call_server};
#[cfg(feature = "net")]
pub use cases::net::{NET_PROGRAM, net_program};
pub use cases::{all, find};
pub use exact::run_exact;
pub use harness::{
    Outcome, Plan, RunError, Step, SubjectResult, TICK_NS, Table, busy_ticks, process_cpu_ns, run_case,
};
pub use report::{Row, Text, rows};
pub use rivals::allocators::{Owned, in_child};
