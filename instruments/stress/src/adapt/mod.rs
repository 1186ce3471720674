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

mod book;
mod breaks;
mod crew;
mod errands;
mod kinds;
mod lives;
mod log;
mod people;
mod socket;
mod tally;
mod verdict;
mod world;

use std::time::Instant;

use squall::browse::Builder;
use squall::machine;

use super::crew::Crew;
use super::places::choose_machine;
use super::{Report, Run, Stress, Violation, lock};
use crew::AdaptTorture;
use lives::OTHERS;
use verdict::Before;
use world::{WAVE_COOLDOWN, World};

pub(super) const STRESS: Stress = Stress {
    name: "adapt",
    about: "objects that adapt lose nothing, do not flap, say why, obey, and go back when it is quiet",
    run,
    threads: |real| {
        choose_machine(real);
        THREADS
    },
};

/// Threads that call, unless told; five more steer, own the objects, and read the log.
const THREADS: usize = 8;
/// The stream of random numbers by which the first objects are made.
const FIRST: u64 = super::crew::CREW - 3;

fn run(run: &Run) -> Result<Report, Violation> {
    let _alone = super::alone();
    let broken = super::breaks::asked(&breaks::WAYS)?;
    choose_machine(run.real);
    let mut rng = run.rng(FIRST);
    let socket = std::env::temp_dir().join(format!("squall-stress-{}.sock", std::process::id()));
    let world = World::make(broken, run.threads, OTHERS.len(), socket, &mut rng);
    world.trial.set_paused(true);
    let mut torture = AdaptTorture::new(world);
    let mut crew = Crew::hire(run, &world.trial, world.posts.iter(), &mut torture)?;
    let before = Before::note();
    world.begin(&mut rng);
    let server = Builder::new().path(&world.socket).serve();
    if let Err(error) = &server {
        world.trial.accuse(format!("{} cannot be served: {error}", world.socket.display()));
    }
    let began = Instant::now();
    world.trial.set_paused(false);
    crew.work(run, &mut torture);
    crew.dismiss(&mut torture);
    drop(server);
    let elapsed = began.elapsed();
    let accused = || world.trial.accusation().map_or(Ok(()), |what| Err(Violation(what)));
    accused()?;
    // The log of the run itself, before anything goes back.
    lives::read_the_log(world);
    accused()?;
    let of_wave = lock(&world.log).of_wave;
    let allowed = 1 + elapsed.as_secs() / WAVE_COOLDOWN.as_secs();
    if of_wave > allowed {
        let what =
            format!("the wave was swapped {of_wave} times by its policy, and its cool-down allows {allowed}");
        return Err(Violation(what));
    }
    before.compare(world).map_err(Violation)?;
    world.tally.hand_in();
    let mut lines = world.tally.lines();
    lines.extend(lock(&world.log).lines());
    lines.extend([
        ("threads started", crew.born),
        ("threads moved", crew.moves),
        ("virtual processors", machine().vps().len() as u64),
    ]);
    Ok(Report(lines))
}
