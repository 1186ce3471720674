//! Stress of adaptation. Adaptive counters change their forms under random loads. Meanwhile operators freeze
//! and thaw them, set valid and invalid attributes, swap them by hand, count and arbitrate their calls, and
//! discard tables. They do so from inside and over the socket. Objects are destroyed and recreated.
//!
//! Promised (`squall::adapt`): no addition is lost or doubled. Every swap is in the log with its reason. Two
//! swaps of one object by its policy are a cool-down apart, and all are within the budget. A frozen object
//! keeps its form. An invalid setting is refused and changes nothing. When the load ends, all objects shrink,
//! with their memory, and the engine sleeps. Calls in all modes of invocation (`invocations`) and objects of
//! the four kinds (`kinds`) run beside them; swaps must not disturb them either.
//!
//! - I1. Random choices come from the run's seed, the scheduler's choices do not.
//! - I2. At each moment a sum lies between the additions done before it and the additions begun until then
//!   (`tracked_counter`). Without concurrent additions it is exact.
//! - I3. The program's own log of decisions is checked (`log`), also against the log of swaps.
//! - I4. Each planned break must end the run with a violation (`breaks`).
//!
//! Two objects have loads of their own. The wave alternates much faster than its cool-down, so it must keep
//! its form. The seesaw alternates so slowly that its policy follows it, unless it is frozen.
//!
//! Not detected: a bad decision. The adaptation cases of `squall bench` measure that.

mod breaks;
mod checks;
mod counts;
mod invocations;
mod kinds;
mod log;
mod operators;
mod socket;
mod threads;
mod tracked_counter;
mod workload;
mod world;

use crate::run::Stress;
use crate::skeleton;
use crate::skeleton::placement::choose_machine;
use workload::AdaptWorkload;

pub(super) const STRESS: Stress = Stress {
    name: "adapt",
    about: "adaptive objects lose no call, do not oscillate, give reasons, obey commands, and shrink when idle",
    run: skeleton::run::<AdaptWorkload>,
    threads: |real| {
        choose_machine(real);
        THREADS
    },
};

/// Default number of calling threads. Five more steer the objects, own them, and read the log.
const THREADS: usize = 8;
