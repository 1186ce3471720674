//! The torture's own part of the crew's work.

use std::io;
use std::thread::JoinHandle;

use super::lives::{Role, doing, start};
use super::world::World;
use crate::Rng;
use crate::crew::{Crew, Torture};

/// Threads that swap; one more meddles, and the others call.
pub(super) const SWAPPERS: usize = 2;
pub(super) const OTHERS: usize = SWAPPERS + 1;

pub(super) struct SwapTorture(pub(super) &'static World);

impl SwapTorture {
    fn role(&self, post: usize) -> Role {
        match self.0.posts.len() - post {
            1 => Role::Meddles,
            2..=OTHERS => Role::Swaps,
            _ => Role::Calls,
        }
    }
}

impl Torture for SwapTorture {
    fn start(&mut self, post: usize, rng: Rng) -> io::Result<JoinHandle<()>> {
        start(self.0, post, self.role(post), rng)
    }

    fn name(&self, post: usize) -> String {
        format!("post {post}")
    }

    fn chore(&mut self, crew: &mut Crew) {
        match crew.rng.below(512) {
            0..64 => crew.move_any(),
            64..66 => crew.pause(),
            66..69 => crew.switch_reclaimer(),
            _ => {}
        }
    }

    /// Destroys whatever there is: somebody may sleep in it.
    fn let_end(&mut self, _crew: &Crew) {
        self.0.last.cancel();
        self.0.end();
    }

    fn scene(&self) -> String {
        let posts = 0..self.0.posts.len();
        let scene: Vec<String> =
            posts.map(|post| format!("{post} {:?}: {}", self.role(post), doing(self.0, post))).collect();
        format!("; {}", scene.join("; "))
    }
}
