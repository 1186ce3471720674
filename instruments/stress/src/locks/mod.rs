//! Stress of locks. Threads migrate, give up, are cancelled, panic inside, and die after they have waited.
//! Meanwhile the attributes of the locks change, and every step of their protocols may be delayed.
//!
//! Promised (`squall::lock`): one thread is inside, or several readers. The next holder sees the effects of
//! the previous one. A waiter is not forgotten when other threads give up, panic or die. A wait ends when it
//! is cancelled or its time is over, and not before. A panic frees the lock. A stopped request counter has no
//! request inside.
//!
//! - I1. Random choices come from the run's seed, the scheduler's choices do not.
//! - I2. The guarded state is one number, kept in three places (`sections/I1`).
//! - I3. The watch finds waits that should have ended (`watch`).
//! - I4. At the end each lock has counted the sections that the threads reported, and is free.
//! - I5. Each planned break must end the run with a violation (`breaks`).
//!
//! Each lock exists as shipped, and with [`Disturbed`](disturbed::Disturbed) steps. The second is the same
//! code, delayed at random wherever its next action depends on an earlier observation. Faults at such places
//! lose wake-ups. A lost wake-up shows only if no further thread comes, so each lock also exists behind a
//! [`Turnstile`](turnstile::Turnstile). It shows best in the [`duels`], for which each lock has a few threads
//! of its own.
//!
//! Not detected: reorderings that the processor of the run does not perform. The models cover them.

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
