//! Locks, tortured: threads that migrate, give up, are cancelled, panic inside, and die after they have waited, while the
//! attributes of the locks change all the time and every step of their protocols may be held up.
//!
//! Promised (`squall::lock`): one is inside, or several who read; what was done inside is seen by the next; who waits is not
//! forgotten, whatever happens to the others; a wait ends when it is cancelled or its time is over, and not before; a panic
//! frees the lock. A request counter that is stopped has no request inside.
//!
//! - I1. Whatever is random comes from the run's seed; what the scheduler does, does not.
//! - I2. What is inside is one number, kept in three places (`sections/I1`).
//! - I3. Somebody watches for waits that should have ended (`watch`).
//! - I4. At the end each lock has counted the sections that the threads say they did, and is free.
//! - I5. `SQUALL_STRESS_BREAK` makes the torture itself break a rule, and it must then fail (`breaks`).
//!
//! Each lock is there as it ships, and with [`Disturbed`](disturbed::Disturbed) steps: the same code, held up at
//! random wherever its next action depends on what it saw before. That is where wake-ups are lost. And each of these is
//! there twice, once behind a [`Turnstile`](turnstile::Turnstile): a wake-up that was lost shows where nobody else comes. It shows best in
//! [`duels`], which a few threads fight beside the crowd.
//!
//! Not seen: what the processor forgives on which it runs. The models are to find the rest.

mod breaks;
mod counts;
mod disturbed;
mod duels;
mod gates;
mod lock_types;
mod sections;
mod slots;
mod threads;
mod turnstile;
mod watch;
mod workload;
mod world;

use crate::run::Stress;
use crate::skeleton;
use crate::skeleton::placement::choose_machine;
use workload::LocksWorkload;

pub(super) const STRESS: Stress = Stress {
    name: "locks",
    about: "locks admit no thread that must wait, and forget no waiter, even if others give up, panic or die",
    run: skeleton::run::<LocksWorkload>,
    threads: |real| {
        choose_machine(real);
        THREADS
    },
};

/// Default number of threads.
const THREADS: usize = 12;
