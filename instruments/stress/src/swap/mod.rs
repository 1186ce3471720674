//! Hot-swap, tortured: objects that call each other in pairs, in chains and around rings, swapped back and forth without a
//! pause, while swaps fail, panic, time out, are cancelled and meet each other, objects are destroyed in the midst of them
//! and made anew, tables are thrown away, and arbiters and factories come and go.
//!
//! Promised (`squall::swap`): no call is lost, made twice, or out of order within its thread; a swap that does not happen
//! has a reason and changes nothing; what is destroyed answers no more; everything is dropped once; nobody waits for ever.
//!
//! - I1. Whatever is random comes from the run's seed; what the scheduler does, does not.
//! - I2. At the end all is accounted for: the state that served last has the marks of all calls (`life/I2`), every
//!   implementation and each of its representatives was dropped once, no object is known, and nothing is pending.
//! - I3. `SQUALL_STRESS_BREAK` makes the torture itself break a rule, and it must then fail (`breaks`).
//!
//! How it is seen: each call of a thread leaves a numbered mark in the object's state (`marks`), those that take long one
//! more when they end, and the state moves with the swaps; so each call sees at once whether all before it are there. What a
//! swap may end with follows from what was planned for it and from who disturbed it (`swaps`). An arbiter leaves its number
//! in its caller's thread, so that each call knows by way of what it went (`via`).
//!
//! Not seen: what the processor forgives on which it runs. The models are to find the rest.
//! Source: as for `objects`; EX-K13 and EX-K14 are its pattern.

mod arbiters;
mod breaks;
mod caller;
mod counts;
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
