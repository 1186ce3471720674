//! The crew: who starts the torture's threads anew, moves them, sends them signals, and lets them pause and crowd; and
//! notices when one of them stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use squall_rcu::{ReclaimerState, reclaimer_state, set_patience, set_reclaimer};

use super::calls::Tally;
use super::lives::{Crowd, Role, Slot, start, visit};
use super::reader::Seen;
use super::signals;
use super::world::{World, lock};
use crate::stress::places::Home;
use crate::stress::planned::Planned;
use crate::stress::{Rng, Run, Violation};

/// A thread that begins no step for so long stands still. Steps take milliseconds; on an emulated machine with more
/// processors than the real one, seconds.
const STANDSTILL: Duration = Duration::from_secs(300);
/// Threads of a crowd.
const CROWD: u64 = 64;
/// Streams of random numbers: of this module, and the first of the lives' and the visitors'.
const CREW: u64 = u64::MAX;
const LIVES: u64 = 1 << 32;
const VISITORS: u64 = 1 << 48;

pub(super) struct Crew {
    world: &'static World,
    posts: Vec<Post>,
    home: Home,
    rng: Rng,
    seed: u64,
    /// The reclaimer may be switched on and off: nobody switched it off from outside.
    switchable: bool,
    pub(super) born: u64,
    pub(super) moves: u64,
    pub(super) pauses: u64,
    pub(super) crowds: u64,
    pub(super) switches: u64,
}

/// A slot and who lives there now.
struct Post {
    slot: &'static Slot,
    thread: Option<JoinHandle<()>>,
    lives: u64,
    role: Role,
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
            posts: Vec::new(),
            home,
            rng: run.rng(CREW),
            seed: run.seed,
            switchable: !off && reclaimer_state() != ReclaimerState::Off,
            born: 0,
            moves: 0,
            pauses: 0,
            crowds: 0,
            switches: 0,
        };
        for index in 0..run.threads {
            let slot = world.slot(index);
            let (lives, role) = (0, Role::Mixed);
            crew.posts.push(Post { slot, thread: None, lives, role, beats: 0, since: Instant::now() });
            crew.fill(index);
        }
        Ok(crew)
    }

    /// Starts a life in an empty slot. One slot always writes and one always reads, if there are two.
    fn fill(&mut self, index: usize) {
        let alone = self.posts.len() == 1 && index == 0;
        let post = &mut self.posts[index];
        let mut rng = Rng::new(self.seed, LIVES * (index as u64 + 1) + post.lives);
        let chance = rng.below(4);
        post.role = match (index, chance) {
            (0, 0..2) => Role::Writer,
            (0, _) | (_, 0) => Role::Mixed,
            (1, _) => Role::Reader,
            (_, 1) => Role::Writer,
            _ => Role::Reader,
        };
        if alone {
            post.role = Role::Mixed;
        }
        post.lives += 1;
        let name = format!("rcu-{index}-{:?}", post.role).to_lowercase();
        match start(self.world, post.slot, name, post.role, rng) {
            Ok(thread) => {
                post.thread = Some(thread);
                post.since = Instant::now();
                self.born += 1;
            }
            // The system is out of threads for now: the next round tries again.
            Err(_) => post.thread = None,
        }
    }

    /// Keeps the crew at work until the time is up or somebody is accused.
    pub(super) fn work(&mut self, run: &Run) {
        while !run.is_over() && !self.world.is_stopped() {
            for index in 0..self.posts.len() {
                if self.reap(index) {
                    self.fill(index);
                }
            }
            self.chore();
            if signals::accusation(self.world).is_some() {
                return;
            }
            thread::sleep(Duration::from_micros(200 + self.rng.below(1800)));
        }
    }

    /// Whether the slot is empty; takes note of how its thread ended, or of whether it stands still.
    fn reap(&mut self, index: usize) -> bool {
        let post = &mut self.posts[index];
        let beats = post.slot.beats.load(Ordering::Relaxed);
        if beats != post.beats {
            (post.beats, post.since) = (beats, Instant::now());
        } else if post.since.elapsed() > STANDSTILL {
            self.world.accuse(format!("the thread of slot {index} ({:?}) stands still", post.role));
        }
        let lives = post.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        // Acquire: pairs with the release of the last farewell.
        if lives || post.slot.farewells_due.load(Ordering::Acquire) > 0 {
            return false;
        }
        if let Some(Err(payload)) = post.thread.take().map(JoinHandle::join)
            && !payload.is::<Planned>()
        {
            self.world.accuse(format!("the thread of slot {index} ({:?}) has panicked", post.role));
        }
        true
    }

    /// One random thing to do to the others.
    fn chore(&mut self) {
        let posts = self.posts.len() as u64;
        for _ in 0..self.rng.below(4) {
            self.posts[self.rng.below(posts) as usize].slot.with_thread(signals::send);
        }
        match self.rng.below(512) {
            0..96 => {
                let post = &self.posts[self.rng.below(posts) as usize];
                post.slot.with_thread(|thread| self.home.shuffle(thread, &mut self.rng));
                self.moves += 1;
            }
            96..100 => self.pause(),
            100..104 => self.crowd(),
            104..107 if self.switchable => {
                set_reclaimer(self.switches % 2 == 1);
                self.switches += 1;
            }
            107..110 => set_patience(Duration::from_millis(1 + self.rng.below(100))),
            _ => {}
        }
    }

    fn pause(&mut self) {
        self.pauses += 1;
        self.world.set_paused(true);
        thread::sleep(Duration::from_millis(1 + self.rng.below(10)));
        self.world.set_paused(false);
    }

    /// Many threads come, do a thing or two, and end.
    fn crowd(&mut self) {
        self.crowds += 1;
        let world = self.world;
        let crowd = Arc::new(Crowd { members: CROWD, deferred: AtomicU64::new(0), tally: Tally::default() });
        let visitors: Vec<_> = (0..CROWD)
            .filter_map(|index| {
                let rng = Rng::new(self.seed, VISITORS + self.crowds * CROWD + index);
                let name = format!("rcu-visitor-{index}");
                let crowd = crowd.clone();
                thread::Builder::new().name(name).spawn(move || visit(world, &crowd, rng)).ok()
            })
            .collect();
        self.born += visitors.len() as u64;
        let since = Instant::now();
        // Acquire: pairs with the release of the last farewell.
        let due = || world.visitors_due.load(Ordering::Acquire) > 0;
        while visitors.iter().any(|visitor| !visitor.is_finished()) || due() {
            if since.elapsed() > STANDSTILL {
                return self.world.accuse("a thread of a crowd stands still".to_owned());
            }
            thread::sleep(Duration::from_micros(200));
        }
        if visitors.into_iter().any(|visitor| visitor.join().is_err()) {
            self.world.accuse("a thread of a crowd has panicked".to_owned());
        }
    }

    /// Lets everybody end.
    pub(super) fn dismiss(&mut self) {
        self.world.stop();
        if self.switches % 2 == 1 {
            set_reclaimer(true);
        }
        let since = Instant::now();
        for index in 0..self.posts.len() {
            while !self.reap(index) {
                if since.elapsed() > STANDSTILL {
                    let role = self.posts[index].role;
                    return self.world.accuse(format!("the thread of slot {index} ({role:?}) does not end"));
                }
                thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// What all that ended have seen.
    pub(super) fn seen(&self) -> Seen {
        let mut all = Seen::default();
        self.posts.iter().for_each(|post| all.add(&lock(&post.slot.seen)));
        all
    }
}
