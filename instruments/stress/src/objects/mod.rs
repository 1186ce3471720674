//! Stress of clustered objects. More threads than virtual processors start and end all the time. They create
//! objects of every class, publish handles, call through any handle they ever saw, and destroy the objects
//! they own at any moment, also from inside methods and drops. Meanwhile tables are discarded and values
//! panic.
//!
//! Promised (`squall`): a call reaches the object that its handle names, or fails. A call that begins after
//! `destroy` returned fails. No part is dropped while a call is inside it; each part is dropped once; a root
//! is dropped after all its representatives. A panic reaches only its own caller. No addition is lost.
//!
//! - I1. Random choices come from the run's seed, the scheduler's choices do not.
//! - I2. At the end everything is accounted for. Each object made was dropped with all its parts, each once.
//!   No object is known, and no call is pending.
//! - I3. Each planned break must end the run with a violation (`breaks`).
//!
//! How violations are detected: each object has a page in the `ledger`, which outlives it. Each
//! representative holds the serial number of its object and a word that says whether it is alive
//! (`rep_core`). Each handle travels with the number of its object. Every answer is compared with that number
//! and with the progress of the destruction before the call (`caller`). For half of the objects callers pass
//! a gate, so that the owner can drain them and compare the total exactly (`owner`).
//!
//! Not detected: reorderings that the processor of the run does not perform. A short call contains no fence
//! of the stress, and some begin with a full store buffer, so that a missing fence can show. The models cover
//! the rest.
//! Source: like `rcu`, McKenney's torture test of read-copy-update; the board is ours.

mod board;
mod breaks;
mod caller;
mod classes;
mod counts;
mod drops;
mod interfaces;
mod ledger;
mod methods;
mod owner;
mod rep_core;
mod reps;
mod threads;
mod workload;
mod world;

use squall::machine;

use crate::run::Stress;
use crate::skeleton;
use crate::skeleton::placement::choose_machine;
use workload::ObjectsWorkload;

pub(super) const STRESS: Stress = Stress {
    name: "objects",
    about: "a call reaches its object or fails; every part is dropped once, and never under a call; no addition is lost",
    run: skeleton::run::<ObjectsWorkload>,
    threads,
};

/// Default number of threads beyond the VPs.
const THREADS_BEYOND: usize = 8;

fn threads(real: bool) -> usize {
    choose_machine(real);
    machine().vps().len() + THREADS_BEYOND
}
