//! The torture's own part of the crew's work: it watches, and moves the crowd from lock to lock.

use std::io;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use super::lives::start;
use super::watch::Watch;
use super::world::World;
use crate::Rng;
use crate::crew::{Crew, Torture};

pub(super) struct LocksTorture {
    world: &'static World,
    watch: Watch,
}

impl LocksTorture {
    pub(super) fn new(world: &'static World) -> LocksTorture {
        LocksTorture { world, watch: Watch::new(world) }
    }
}

impl Torture for LocksTorture {
    fn start(&mut self, post: usize, rng: Rng) -> io::Result<JoinHandle<()>> {
        start(self.world, post, rng)
    }

    fn name(&self, post: usize) -> String {
        format!("post {post}")
    }

    fn scene(&self) -> String {
        let waits =
            self.world.slots.iter().enumerate().filter_map(|(post, slot)| Some((post, slot.waits()?)));
        let said = waits.map(|(post, wait)| {
            format!("; post {post} waits for {}, {:?}", self.world.places[wait.place()].name(), wait.limit())
        });
        said.collect()
    }

    fn chore(&mut self, crew: &mut Crew) {
        self.watch.look();
        match crew.rng.below(256) {
            0..8 => self.world.move_front(&mut crew.rng),
            8..40 => crew.move_any(),
            40 => crew.pause(),
            41..43 => crew.switch_reclaimer(),
            _ => {}
        }
    }

    fn let_end(&mut self, _crew: &Crew) {
        self.watch.look();
    }

    fn is_hopeless(&self) -> bool {
        self.world.has_lost.load(Ordering::Relaxed)
    }
}
