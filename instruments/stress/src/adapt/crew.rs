//! The torture's own part of the crew's work: it changes the loads.

use std::io;
use std::thread::JoinHandle;
use std::time::Instant;

use squall::adapt::engine;

use super::lives::{OTHERS, Role, start, turn_the_waves};
use super::world::{SEESAW_HALF, WAVE_HALF, World};
use crate::Rng;
use crate::crew::{Crew, Torture};

pub(super) struct AdaptTorture {
    world: &'static World,
    wave: Instant,
    seesaw: Instant,
}

impl AdaptTorture {
    pub(super) fn new(world: &'static World) -> AdaptTorture {
        AdaptTorture { world, wave: Instant::now(), seesaw: Instant::now() }
    }

    fn role(&self, post: usize) -> Role {
        post.checked_sub(self.world.callers).map_or(Role::Calls, |other| OTHERS[other])
    }
}

impl Torture for AdaptTorture {
    fn start(&mut self, post: usize, rng: Rng) -> io::Result<JoinHandle<()>> {
        start(self.world, post, self.role(post), rng)
    }

    fn name(&self, post: usize) -> String {
        format!("post {post}, which {:?}", self.role(post))
    }

    fn chore(&mut self, crew: &mut Crew) {
        let now = Instant::now();
        let (wave, seesaw) = (now - self.wave >= WAVE_HALF, now - self.seesaw >= SEESAW_HALF);
        turn_the_waves(self.world, wave, seesaw);
        if wave {
            self.wave = now;
        }
        if seesaw {
            self.seesaw = now;
        }
        match crew.rng.below(512) {
            0..10 => self.world.change(&mut crew.rng),
            10..56 => crew.move_any(),
            56 => crew.pause(),
            57..59 => crew.switch_reclaimer(),
            // Where the engine has no thread, somebody has to look.
            59..80 if engine::thread_state() != engine::EngineState::Running => drop(engine::turn()),
            _ => {}
        }
    }
}
