//! Stress of directories, and so of the distributed hash table under them. Keys are filled, reserved, used,
//! removed and revoked. Reservations are filled at once, handed to another thread, failed, dropped, or
//! lost in a panic. Threads migrate and die. Tables are discarded, clusters change their size, and
//! directories are destroyed and recreated.
//!
//! Promised (`squall::objects::directory`): a key has one entry at a time, made by one caller. A lookup finds
//! the entry from the end of its fill to the beginning of its removal. Each use is in one sum: that of the
//! removal, or that of the last question. No thread uses a removed entry. An error of a reservation goes to
//! callers that wait for its key. A closure or holder that panics leaves the key as it was. A call fails only
//! if the directory was destroyed. Each entry and part is dropped.
//!
//! - I1. Random choices come from the run's seed, the scheduler's choices do not.
//! - I2. A thread that holds a reservation waits for no key before it has ended or handed over the
//!   reservation. The threads that take reservations never wait for a key. So all waits end.
//! - I3. Steady keys are never revoked. So their entries follow each other, and their sums are exact
//!   (`tracked`). Loose keys are revoked and removed in every way.
//! - I4. Each planned break must end the run with a violation (`breaks`).
//!
//! Not checked: the order between different keys.

mod breaks;
mod contents;
mod counts;
mod handed;
mod threads;
mod tracked;
mod workload;
mod world;

use crate::run::Stress;
use crate::skeleton;
use crate::skeleton::placement::choose_machine;
use workload::DhashWorkload;

pub(super) const STRESS: Stress = Stress {
    name: "dhash",
    about: "a directory makes each entry once, keeps every use, and removes entries everywhere at once",
    run: skeleton::run::<DhashWorkload>,
    threads: |real| {
        choose_machine(real);
        THREADS
    },
};

/// Default number of calling threads. Three more fill handed keys, swap, and own the directories.
const THREADS: usize = 8;
