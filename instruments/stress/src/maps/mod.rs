//! Stress of maps, including cached maps, in every form and during swaps between forms. Threads migrate,
//! panic in closures and die. Tables are discarded, clusters change their size, and maps are destroyed and
//! recreated.
//!
//! Promised (`squall::objects::map`, `squall::objects::cached`): each key is a register. A lookup sees the
//! value of its last write, or of a concurrent one. The only writer of a key finds it exactly as it left it,
//! while other threads change other keys and the map. No addition to a value is lost or doubled. A walk sees
//! each lasting entry once. A closure that panics has changed nothing. A call fails only if the map was
//! destroyed. Each value is dropped.
//!
//! - I1. Random choices come from the run's seed, the scheduler's choices do not.
//! - I2. Each thread has keys that only it writes, and a record of its writes (`tracked_map`). Shared keys,
//!   to which all threads add, exist as long as the map.
//! - I3. With writers drained, the whole map is compared with the record.
//! - I4. Each planned break must end the run with a violation (`breaks`).
//!
//! Not checked: whether a walk sees all keys at one moment, which is not promised, and the order between
//! different keys. The recorded histories of `squall-parts` and `squall-objects` check that order.

mod any_map;
mod breaks;
mod counts;
mod threads;
mod token;
mod tracked_map;
mod workload;
mod world;

use crate::run::Stress;
use crate::skeleton;
use crate::skeleton::placement::choose_machine;
use workload::MapsWorkload;

pub(super) const STRESS: Stress = Stress {
    name: "maps",
    about: "a map keeps each key as its writer left it, in every form and across swaps",
    run: skeleton::run::<MapsWorkload>,
    threads: |real| {
        choose_machine(real);
        THREADS
    },
};

/// Default number of calling threads. Two more swap and own the maps.
const THREADS: usize = 8;
