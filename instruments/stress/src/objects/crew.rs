//! The torture's own part of the crew's work: to destroy objects, and so to wake who sleeps in them.

use std::io;
use std::thread::JoinHandle;

use super::lives::start;
use super::owner;
use super::world::World;
use crate::Rng;
use crate::crew::{CREW, Crew, Torture};

/// The stream of random numbers by which objects are destroyed at the end.
const LAST: u64 = CREW - 1;

pub(super) struct ObjectsTorture(pub(super) &'static World);

impl Torture for ObjectsTorture {
    fn start(&mut self, index: usize, rng: Rng) -> io::Result<JoinHandle<()>> {
        start(self.0, &self.0.posts[index], format!("objects-{index}"), rng)
    }

    fn name(&self, index: usize) -> String {
        format!("post {index}")
    }

    fn chore(&mut self, crew: &mut Crew) {
        match crew.rng.below(512) {
            0..96 => crew.move_any(),
            96..100 => crew.pause(),
            100..103 => crew.switch_reclaimer(),
            // All others may sleep in methods by now.
            103..200 => owner::destroy_any(self.0, &mut crew.rng),
            _ => {}
        }
    }

    /// Destroys whatever is in the vaults: somebody may sleep in it.
    fn let_end(&mut self, crew: &Crew) {
        let ObjectsTorture(world) = self;
        let mut rng = Rng::new(crew.seed, LAST);
        for slot in world.board.slots() {
            if let Some(held) = world.board.take(slot, None) {
                owner::end(world, &mut rng, held);
            }
        }
    }
}
