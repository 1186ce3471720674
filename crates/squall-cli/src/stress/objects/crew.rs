//! The crew: who starts the torture's threads anew, moves them, lets them pause, wakes sleepers by destroying what they
//! sleep in, and notices when one of them stands still.

use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use squall::rcu::{ReclaimerState, reclaimer_state, set_reclaimer};

use super::lives::{Post, start};
use super::owner;
use super::world::World;
use crate::stress::places::Home;
use crate::stress::planned::Planned;
use crate::stress::{Rng, Run, Violation};

/// A thread that begins no step for so long stands still. Steps take milliseconds; on an emulated machine with more
/// processors than the real one, seconds.
const STANDSTILL: Duration = Duration::from_secs(300);
/// Streams of random numbers: of this module, and the first of the lives'.
const CREW: u64 = u64::MAX;
const LIVES: u64 = 1 << 32;

pub(super) struct Crew {
    world: &'static World,
    places: Vec<Place>,
    home: Home,
    rng: Rng,
    seed: u64,
    /// The reclaimer may be switched on and off: nobody switched it off from outside.
    switchable: bool,
    pub(super) born: u64,
    pub(super) moves: u64,
    pub(super) pauses: u64,
    pub(super) switches: u64,
}

/// A post and who lives there now.
struct Place {
    post: &'static Post,
    thread: Option<JoinHandle<()>>,
    lives: u64,
    beats: u64,
    since: Instant,
}

impl Crew {
    /// Starts the first lives, which wait at the world's gate.
    pub(super) fn hire(run: &Run, world: &'static World) -> Result<Crew, Violation> {
        let home = Home::find().map_err(|error| {
            Violation(format!("cannot start: the affinity mask cannot be read ({error})"))
        })?;
        let off = std::env::var_os("SQUALL_RECLAIMER").is_some_and(|value| value == "off");
        let mut crew = Crew {
            world,
            places: Vec::new(),
            home,
            rng: run.rng(CREW),
            seed: run.seed,
            switchable: !off && reclaimer_state() != ReclaimerState::Off,
            born: 0,
            moves: 0,
            pauses: 0,
            switches: 0,
        };
        for (index, post) in world.posts.iter().enumerate() {
            crew.places.push(Place { post, thread: None, lives: 0, beats: 0, since: Instant::now() });
            crew.fill(index);
        }
        Ok(crew)
    }

    /// Starts a life at an empty post.
    fn fill(&mut self, index: usize) {
        let place = &mut self.places[index];
        let rng = Rng::new(self.seed, LIVES * (index as u64 + 1) + place.lives);
        place.lives += 1;
        place.since = Instant::now();
        // Where the system is out of threads for now, the next round tries again.
        place.thread = start(self.world, place.post, format!("objects-{index}"), rng).ok();
        self.born += u64::from(place.thread.is_some());
    }

    /// Keeps the crew at work until the time is up or somebody is accused.
    pub(super) fn work(&mut self, run: &Run) {
        while !run.is_over() && !self.world.is_stopped() {
            for index in 0..self.places.len() {
                if self.reap(index) {
                    self.fill(index);
                }
            }
            self.chore();
            thread::sleep(Duration::from_micros(200 + self.rng.below(1800)));
        }
    }

    /// Whether the post is empty; takes note of how its thread ended, or of whether it stands still.
    fn reap(&mut self, index: usize) -> bool {
        let place = &mut self.places[index];
        let beats = place.post.beats.load(Ordering::Relaxed);
        if beats != place.beats {
            (place.beats, place.since) = (beats, Instant::now());
        } else if place.since.elapsed() > STANDSTILL {
            self.world.accuse(format!("the thread of post {index} stands still"));
        }
        if place.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return false;
        }
        if let Some(Err(payload)) = place.thread.take().map(JoinHandle::join)
            && !payload.is::<Planned>()
        {
            self.world.accuse(format!("the thread of post {index} has panicked"));
        }
        true
    }

    /// One random thing to do to the others.
    fn chore(&mut self) {
        match self.rng.below(512) {
            0..96 => {
                let place = &self.places[self.rng.below(self.places.len() as u64) as usize];
                place.post.with_thread(|thread| self.home.shuffle(thread, &mut self.rng));
                self.moves += 1;
            }
            96..100 => {
                self.pauses += 1;
                self.world.set_paused(true);
                thread::sleep(Duration::from_millis(1 + self.rng.below(10)));
                self.world.set_paused(false);
            }
            100..103 if self.switchable => {
                set_reclaimer(self.switches % 2 == 1);
                self.switches += 1;
            }
            // All others may sleep in methods by now.
            103..200 => owner::destroy_any(self.world, &mut self.rng),
            _ => {}
        }
    }

    /// Lets everybody end.
    pub(super) fn dismiss(&mut self) {
        self.world.stop();
        if self.switches % 2 == 1 {
            set_reclaimer(true);
        }
        let since = Instant::now();
        // Acquire: pairs with the release of the last farewell.
        let farewells_due = || self.world.farewells_due.load(Ordering::Acquire);
        while self.places.iter().any(|place| place.thread.as_ref().is_some_and(|t| !t.is_finished()))
            || farewells_due() > 0
        {
            if since.elapsed() > STANDSTILL {
                return self.world.accuse("a thread does not end".to_owned());
            }
            // Somebody may sleep in one of them.
            self.clear_board();
            thread::sleep(Duration::from_micros(200));
        }
        for index in 0..self.places.len() {
            self.reap(index);
        }
        self.clear_board();
    }

    /// Destroys whatever is in the vaults.
    fn clear_board(&self) {
        let mut rng = Rng::new(self.seed, CREW - 1);
        for slot in self.world.board.slots() {
            if let Some(held) = self.world.board.take(slot, None) {
                owner::end(self.world, &mut rng, held);
            }
        }
    }
}
