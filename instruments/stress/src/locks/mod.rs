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
mod crew;
mod disturbed;
mod duels;
mod gates;
mod kinds;
mod lives;
mod sections;
mod slots;
mod tally;
mod turnstile;
mod watch;
mod world;

use std::sync::atomic::Ordering;
use std::time::Instant;

use squall::machine;

use super::crew::Crew;
use super::places::choose_machine;
use super::{Report, Run, Stress, Violation};
use crew::LocksTorture;
use duels::Duels;
use kinds::{Came, How};
use world::{Guard, Place, World};

pub(super) const STRESS: Stress = Stress {
    name: "locks",
    about: "locks let nobody in who must wait, and forget nobody who waits, whoever gives up, panics or dies",
    run,
    threads: |real| {
        choose_machine(real);
        THREADS
    },
};

/// Threads, unless told.
const THREADS: usize = 12;

fn run(run: &Run) -> Result<Report, Violation> {
    let _alone = super::alone();
    let broken = super::breaks::asked(&breaks::WAYS)?;
    choose_machine(run.real);
    let world = World::make(broken, run.threads);
    let mut torture = LocksTorture::new(world);
    let duels = Duels::start(run, world)?;
    let mut crew = Crew::hire(run, world.trial, world.posts.iter(), &mut torture)?;
    crew.work(run, &mut torture);
    crew.dismiss(&mut torture);
    let duels = duels.end(world);
    let accused = || world.trial.accusation().map_or(Ok(()), |what| Err(Violation(what)));
    accused()?;
    world.places.iter().try_for_each(compare)?;
    let mut lines = world.tally.lines();
    lines.extend([
        ("rounds of duels", duels),
        ("threads started", crew.born),
        ("threads moved", crew.moves),
        ("virtual processors", machine().vps().len() as u64),
    ]);
    Ok(Report(lines))
}

/// When all threads have ended (I4).
fn compare(place: &Place) -> Result<(), Violation> {
    let mut word = None;
    let soon = Instant::now();
    let came = match &place.guard {
        Guard::One(lock) => lock.enter(&How::Until(soon), &mut |counted| word = Some(*counted)),
        Guard::Several(lock) => lock.write(&How::Until(soon), &mut |counted| word = Some(*counted)),
        Guard::Gate(gate) => {
            return gate.compare().map_err(|what| Violation(format!("{}: {what}", gate.name())));
        }
    };
    let told = place.told.load(Ordering::Relaxed);
    if came != Came::Inside {
        return Err(Violation(format!("{}: it is not free, and all threads have ended", place.name())));
    }
    if word != Some(told) {
        let what = format!("{}: {word:?} sections counted, {told} told", place.name());
        return Err(Violation(what));
    }
    if let Guard::One(lock) = &place.guard
        && !lock.is_whole()
    {
        return Err(Violation(format!("{}: what lies beside it in its word has changed", place.name())));
    }
    Ok(())
}
