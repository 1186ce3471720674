//! Adaptation, tortured: counters that change their forms by themselves, under loads that change at random, while people
//! freeze and thaw them, set their attributes rightly and wrongly, swap them by hand, count and arbitrate their calls and
//! throw tables away, from inside and over the socket, and objects are destroyed and made anew.
//!
//! Promised (`squall::adapt`): no addition is lost or made twice; every swap is in the log with its reason; two swaps of one
//! object by its policy are a cool-down apart, all of them within the budget; what is frozen stays as it is; what is wrong is
//! refused and changes nothing; when it is quiet all go back, with their memory, and the engine sleeps. Beside them, calls in
//! all modes of invocation (`errands`), and objects of the four kinds (`kinds`), which swaps must not disturb either.
//!
//! - I1. Whatever is random comes from the run's seed; what the scheduler does, does not.
//! - I2. At each moment a sum lies between what was added before and what was begun (`book`), and is exact when nobody adds.
//! - I3. The program's own log of decisions is the witness (`log`), and the log of swaps the witness against it.
//! - I4. `SQUALL_STRESS_BREAK` makes the torture itself break a rule, and it must then fail (`breaks`).
//!
//! Two objects have loads of their own: the wave alternates much faster than its cool-down, so that it must be left alone;
//! the seesaw alternates so slowly that its policy follows it, but where it is frozen.
//!
//! Not seen: whether a decision was a good one, which is for `squall bench adapt`.

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
    about: "adaptive objects lose no call, do not flap, explain themselves, obey, and shrink when idle",
    run: skeleton::run::<AdaptWorkload>,
    threads: |real| {
        choose_machine(real);
        THREADS
    },
};

/// Default number of calling threads. Five more steer the objects, own them, and read the log.
const THREADS: usize = 8;
