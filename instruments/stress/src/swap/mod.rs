//! Stress of hot-swap. Objects call each other in pairs, in chains and around rings, and are swapped back and
//! forth without a pause. Swaps fail, panic, time out, are cancelled and overlap. Objects are destroyed
//! during swaps and recreated, tables are discarded, and arbiters and factories come and go.
//!
//! Promised (`squall::swap`): no call is lost, doubled, or out of order within its thread. A swap that does
//! not happen has a reason and changes nothing. A destroyed object does not answer. Every part is dropped
//! once. No thread waits forever.
//!
//! - I1. Random choices come from the run's seed, the scheduler's choices do not.
//! - I2. At the end everything is accounted for. The last state has the marks of all calls (`record/I2`).
//!   Every implementation and each of its representatives was dropped once. No object is known, and no call
//!   is pending.
//! - I3. Each planned break must end the run with a violation (`breaks`).
//!
//! How violations are detected: each call leaves a numbered mark in the object's state (`marks`). A long call
//! leaves another one at its end. The state moves with the swaps, so each call sees at once whether all
//! earlier marks are there. The allowed results of a swap follow from its planned fault and from concurrent
//! actions (`swaps`). An arbiter leaves its number in the caller's thread, so that each call knows the
//! arbiter it passed (`arbiters`).
//!
//! Not detected: reorderings that the processor of the run does not perform. The models cover them.
//! Source: as for `objects`; EX-K13 and EX-K14 are its pattern.

mod arbiters;
mod attach;
mod breaks;
mod caller;
mod counts;
mod creation;
mod disturb;
mod faults;
mod implementation;
mod interfaces;
mod marks;
pub(super) mod memory;
mod methods;
mod record;
mod swaps;
mod threads;
mod times;
mod variants;
mod workload;
mod world;

use crate::run::Stress;
use crate::skeleton;
use crate::skeleton::placement::choose_machine;
use workload::SwapWorkload;

pub(super) const STRESS: Stress = Stress {
    name: "swap",
    about: "no call is lost, doubled or out of order while objects are swapped; a swap that fails changes nothing",
    run: skeleton::run::<SwapWorkload>,
    threads: |real| {
        choose_machine(real);
        THREADS
    },
};

/// Default number of calling threads. Three more swap and disturb.
const THREADS: usize = 8;
