//! Maps, tortured: cached ones too, in every form, and from form to form, while threads migrate, panic in closures and die, tables of
//! references are thrown away, clusters change their size, and maps are destroyed and made anew.
//!
//! Promised (`squall::objects::map`, `squall::objects::cached`): each key is a register: whoever looks at it sees what its last writer put there, or
//! what is being put there just then; who alone writes a key finds it exactly as it left it, whatever others do to other
//! keys, and to the map; no addition to a value is lost or made twice; a walk sees once what is there all the time; a closure
//! that panics has changed nothing; a call errs only where the map was destroyed; and each value is dropped.
//!
//! - I1. Whatever is random comes from the run's seed; what the scheduler does, does not.
//! - I2. Each thread has keys that it alone writes, and a book of what it wrote (`book`); keys that all add to are there from
//!   a map's beginning to its end.
//! - I3. When a map is closed, nobody writes, and all of it is compared with its book.
//! - I4. `SQUALL_STRESS_BREAK` makes the torture itself break a rule, and it must then fail (`breaks`).
//!
//! Not seen: whether walks see each key at one moment, which they do not promise; order between different keys. For these
//! there are the recorded histories of `squall-parts` and `squall-objects`.

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
    about: "a map keeps each key as its writer left it, in every form and from form to form",
    run: skeleton::run::<MapsWorkload>,
    threads: |real| {
        choose_machine(real);
        THREADS
    },
};

/// Default number of calling threads. Two more swap and own the maps.
const THREADS: usize = 8;
