//! The torture's own part of the crew's work: what its threads are for, signals, crowds, and the library's settings.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use squall_rcu::set_stall_timeout;

use super::calls::Tally;
use super::lives::{Crowd, Role, start, visit};
use super::signals;
use super::world::World;
use crate::Rng;
use crate::crew::{Crew, STANDSTILL, Torture};

/// Threads of a crowd.
const CROWD: u64 = 64;
/// The first stream of random numbers of the visitors.
const VISITORS: u64 = 1 << 48;

pub(super) struct RcuTorture {
    world: &'static World,
    /// What lives in each slot that somebody has lived in.
    roles: Vec<Role>,
    pub(super) crowds: u64,
}

impl RcuTorture {
    pub(super) fn new(world: &'static World) -> RcuTorture {
        RcuTorture { world, roles: Vec::new(), crowds: 0 }
    }

    /// Many threads come, do a thing or two, and end.
    fn crowd(&mut self, crew: &mut Crew) {
        self.crowds += 1;
        let world = self.world;
        let crowd = Arc::new(Crowd { members: CROWD, deferred: AtomicU64::new(0), tally: Tally::default() });
        let visitors: Vec<_> = (0..CROWD)
            .filter_map(|index| {
                let rng = Rng::new(crew.seed, VISITORS + self.crowds * CROWD + index);
                let name = format!("rcu-visitor-{index}");
                let crowd = crowd.clone();
                thread::Builder::new().name(name).spawn(move || visit(world, &crowd, rng)).ok()
            })
            .collect();
        crew.born += visitors.len() as u64;
        let since = Instant::now();
        while visitors.iter().any(|visitor| !visitor.is_finished()) || world.visitors_farewells.are_due() {
            if since.elapsed() > STANDSTILL {
                return world.trial.accuse("a thread of a crowd stands still".to_owned());
            }
            thread::sleep(Duration::from_micros(200));
        }
        if visitors.into_iter().any(|visitor| visitor.join().is_err()) {
            world.trial.accuse("a thread of a crowd has panicked".to_owned());
        }
    }
}

impl Torture for RcuTorture {
    /// One slot always writes and one always reads, if there are two; the first life of all does both.
    fn start(&mut self, index: usize, mut rng: Rng) -> io::Result<JoinHandle<()>> {
        let role = match (index, rng.below(4)) {
            (0, _) if self.roles.len() < 2 => Role::Mixed,
            (0, 0..2) => Role::Writer,
            (0, _) | (_, 0) => Role::Mixed,
            (1, _) => Role::Reader,
            (_, 1) => Role::Writer,
            _ => Role::Reader,
        };
        self.roles.resize(self.roles.len().max(index + 1), role);
        self.roles[index] = role;
        let name = format!("rcu-{index}-{role:?}").to_lowercase();
        start(self.world, &self.world.slots[index], name, role, rng)
    }

    fn name(&self, index: usize) -> String {
        format!("slot {index} ({:?})", self.roles[index])
    }

    fn chore(&mut self, crew: &mut Crew) {
        for _ in 0..crew.rng.below(4) {
            crew.any_post().with_thread(signals::send);
        }
        match crew.rng.below(512) {
            0..96 => crew.move_any(),
            96..100 => crew.pause(),
            100..104 => self.crowd(crew),
            104..107 => crew.switch_reclaimer(),
            107..110 => set_stall_timeout(Duration::from_millis(1 + crew.rng.below(100))),
            _ => {}
        }
        if signals::accusation(self.world).is_some() {
            self.world.trial.stop();
        }
    }
}
