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

mod book;
mod breaks;
mod kinds;
mod lives;
mod tally;
mod token;
mod world;

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use squall::machine;
use squall::rcu::barrier;

use super::crew::{Crew, Torture};
use super::places::choose_machine;
use super::settle::until_nothing_is_left;
use super::{Report, Rng, Run, Stress, Violation};
use lives::{OTHERS, Role};
use world::World;

pub(super) const STRESS: Stress = Stress {
    name: "maps",
    about: "a map keeps each key as its writer left it, in every form and from form to form",
    run,
    threads: |real| {
        choose_machine(real);
        THREADS
    },
};

/// Threads that call, unless told; two more swap the maps and own them.
const THREADS: usize = 8;
/// The stream of random numbers by which the first maps are made.
const FIRST: u64 = super::crew::CREW - 5;
/// Barriers at the end, at most, and between two of them.
const ROUNDS: u32 = 1_000;
const PAUSE: Duration = Duration::from_millis(5);

struct MapsTorture {
    world: &'static World,
}

impl Torture for MapsTorture {
    fn start(&mut self, post: usize, rng: Rng) -> io::Result<JoinHandle<()>> {
        lives::start(self.world, post, self.role(post), rng)
    }

    fn name(&self, post: usize) -> String {
        format!("post {post}, which {:?}", self.role(post))
    }

    fn chore(&mut self, crew: &mut Crew) {
        match crew.rng.below(512) {
            0..48 => crew.move_any(),
            48 => crew.pause(),
            49..51 => crew.switch_reclaimer(),
            _ => {}
        }
    }
}

impl MapsTorture {
    fn role(&self, post: usize) -> Role {
        post.checked_sub(self.world.callers).map_or(Role::Calls, |other| OTHERS[other])
    }
}

fn run(run: &Run) -> Result<Report, Violation> {
    let _alone = super::alone();
    let broken = super::breaks::asked(&breaks::WAYS)?;
    choose_machine(run.real);
    let world = World::make(broken, run.threads);
    world.trial.set_paused(true);
    let mut torture = MapsTorture { world };
    let mut crew = Crew::hire(run, &world.trial, world.posts.iter(), &mut torture)?;
    world.fill(&mut run.rng(FIRST));
    world.trial.set_paused(false);
    crew.work(run, &mut torture);
    crew.dismiss(&mut torture);
    world.end();
    world.trial.accusation().map_or(Ok(()), |what| Err(Violation(what)))?;
    let settle = || {
        // Representatives are dropped where they were made, by whoever comes by there.
        thread::sleep(PAUSE);
        barrier().map(drop).map_err(|error| format!("a barrier at the end erred: {error}"))
    };
    let left = || match world.alive() {
        0 => None,
        alive => Some(format!("{alive} values were not dropped, and all maps are gone")),
    };
    until_nothing_is_left(ROUNDS, settle, left).map_err(Violation)?;
    world.tally.hand_in();
    let mut lines = world.tally.lines();
    lines.extend([
        ("threads started", crew.born),
        ("threads moved", crew.moves),
        ("virtual processors", machine().vps().len() as u64),
    ]);
    Ok(Report(lines))
}
