//! Stress of read-copy-update: readers of every kind, writers that use every way to a grace period, and
//! threads that start, end, move, are interrupted, pause and come in crowds.
//!
//! Promised (`squall_rcu`): data read in an operation is not reclaimed while the operation is open. A
//! deferred call runs exactly once, outside every operation, after a grace period that began after it was
//! deferred. A barrier comes after every call deferred before it.
//!
//! Tried, after Linux's rcutorture: writers replace blocks from a pool whose memory is never freed. A removed
//! block ages by one at its removal, and by one for each of ten grace periods, each obtained in a random way.
//! Then it is poisoned and reused. A reader holds a block inside an open operation. If it sees age 2, poison,
//! or another serial number in it, the library is broken (`world` explains the exact rule). The same is done
//! with values that are really freed, for the sanitizers.
//!
//! - I1. Random choices come from the run's seed, the scheduler's choices do not.
//! - I2. At the end everything is accounted for. Each deferred call ran once, each block was reused, no call
//!   is pending, and no ended thread is registered.
//! - I3. After that, pending memory stays within its bound although a reader stalls and threads end
//!   (`bound`).
//! - I4. Each planned break must end the run with a violation (`breaks`).
//!
//! A missing fence between two threads shows only while a store waits in a store buffer. So readers fill
//! theirs before some operations (`World::fill_store_buffer`). Without the heavy fence of a grace period,
//! this stress fails within a second.
//! Not detected: reorderings that the processor of the run does not perform (on x86-64 most), and lost
//! wake-ups that the thread's next operation repairs. The models cover them.
//! Source: McKenney, "RCU torture test operation" (Linux, Documentation/RCU/torture.rst). Deviations: several
//! ways to age at once. Any thread may age a block, so its ten grace periods are requested in ten different
//! ways.

mod bound;
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
