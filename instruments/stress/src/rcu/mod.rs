//! Read-copy-update, tortured: readers of every kind, writers that use every way to a grace period, and threads that
//! come, go, are moved, are interrupted, pause and crowd.
//!
//! Promised (`squall_rcu`): what an operation has read is not reclaimed while it is open; a deferred call runs exactly
//! once, outside every operation, after a grace period that began after it was deferred; a barrier comes after every
//! call deferred before it.
//!
//! Tried, after Linux's rcutorture: writers replace blocks from a pool whose memory is never freed. A removed block ages
//! by one at its removal and by one for each of ten grace periods, each got in a random way; then it is poisoned and
//! serves again. A reader that sees age 2, poison, or another block's serial number, in a block that it got inside an
//! operation that is still open, has caught the library (`world` says why this is the exact rule). The same is played
//! with values that are really freed, for the sanitizers.
//!
//! - I1. Whatever is random comes from the run's seed; what the scheduler does, does not.
//! - I2. At the end all is accounted for: each deferred call ran once, each block has served again, nothing is pending,
//!   no thread is registered that ended.
//! - I3. `SQUALL_STRESS_BREAK` makes the torture itself break a rule, and it must then fail (`breaks`).
//!
//! A missing fence between two threads shows only while a store waits in a store buffer, so readers fill theirs before
//! some operations (`World::fill_store_buffer`): without the heavy fence of a grace period this fails within a second.
//! Not seen by it: what the processor it runs on forgives (on x86-64 most orderings), and lost wake-ups that the next
//! operation of the thread makes good; those are for the models.
//! Source: McKenney, "RCU torture test operation" (Linux, Documentation/RCU/torture.rst). Deviations: several ways to
//! age at once; blocks age whoever asks, so a block's ten grace periods are ten different questions.

mod breaks;
mod calls;
mod checks;
mod leaf;
mod reader;
mod signals;
mod threads;
mod workload;
mod world;
mod writer;

use crate::run::{Stress, threads_beyond_processors};
use crate::skeleton;
use workload::RcuWorkload;

pub(super) const STRESS: Stress = Stress {
    name: "rcu",
    about: "no reader sees a block age by more than its removal; every deferred call runs once; no trace is left",
    run: skeleton::run::<RcuWorkload>,
    threads: threads_beyond_processors,
};
