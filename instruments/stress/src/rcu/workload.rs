//! The RCU stress, as the skeleton runs it: roles of threads, signals, crowds of short threads, and the
//! library's settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use squall_rcu::{on_stall, set_stall_timeout, stats};

use super::bound::{self, Peak};
use super::breaks::Break;
use super::calls::BatchCount;
use super::checks::Before;
use super::leaf::Leaf;
use super::signals;
use super::threads::{Crowd, Role, body, visit};
use super::world::World;
use super::writer::ALL_WAYS;
use crate::run::{Rng, Run, Violation, lock};
use crate::skeleton::cleanup::ProcessSnapshot;
use crate::skeleton::run_state::RunState;
use crate::skeleton::supervisor::{Body, STANDSTILL, Supervised, Supervisor};
use crate::skeleton::worker::Worker;
use crate::skeleton::workload::Workload;

/// Number of threads in a crowd.
const CROWD: u64 = 64;
/// The first stream of random numbers of the visitors.
const VISITORS: u64 = 1 << 48;

pub(crate) struct RcuWorkload {
    world: &'static World,
    /// The role of each worker's current thread.
    roles: Vec<Role>,
    crowds: u64,
    /// Number of leaves that existed before the run.
    leaves: u64,
    before: Option<Before>,
    peak: Peak,
}

impl RcuWorkload {
    /// Starts many threads that do one or two things and end.
    fn crowd(&mut self, supervisor: &mut Supervisor) {
        self.crowds += 1;
        let world = self.world;
        let crowd =
            Arc::new(Crowd { members: CROWD, deferred: AtomicU64::new(0), done: BatchCount::default() });
        let visitors: Vec<_> = (0..CROWD)
            .filter_map(|index| {
                let rng = Rng::new(supervisor.seed, VISITORS + self.crowds * CROWD + index);
                let name = format!("rcu-visitor-{index}");
                let crowd = crowd.clone();
                thread::Builder::new().name(name).spawn(move || visit(world, &crowd, rng)).ok()
            })
            .collect();
        supervisor.threads_started += visitors.len() as u64;
        let since = Instant::now();
        while visitors.iter().any(|visitor| !visitor.is_finished()) || world.visitor_exit_hooks.are_pending()
        {
            if since.elapsed() > STANDSTILL {
                return world.run_state.fail("a thread of a crowd is stuck".to_owned());
            }
            thread::sleep(Duration::from_micros(200));
        }
        if visitors.into_iter().any(|visitor| visitor.join().is_err()) {
            world.run_state.fail("a thread of a crowd has panicked".to_owned());
        }
    }
}

impl Supervised for RcuWorkload {
    const NAME: &'static str = "rcu";

    /// Worker 0 always writes and worker 1 always reads, if there are two. The first thread of all does both.
    fn thread(&mut self, worker: usize, mut rng: Rng) -> Body {
        let role = match (worker, rng.below(4)) {
            (0, _) if self.roles.len() < 2 => Role::Mixed,
            (0, 0..2) => Role::Writer,
            (0, _) | (_, 0) => Role::Mixed,
            (1, _) => Role::Reader,
            (_, 1) => Role::Writer,
            _ => Role::Reader,
        };
        self.roles.resize(self.roles.len().max(worker + 1), role);
        self.roles[worker] = role;
        Box::new(body(self.world, worker, role, rng))
    }

    fn thread_name(&self, worker: usize) -> String {
        format!("rcu-{worker}-{:?}", self.roles[worker]).to_lowercase()
    }

    fn describe(&self, worker: usize) -> String {
        format!("worker {worker} ({:?})", self.roles[worker])
    }

    fn disturb(&mut self, supervisor: &mut Supervisor) {
        for _ in 0..supervisor.rng.below(4) {
            supervisor.any_worker().with_thread(signals::send);
        }
        match supervisor.rng.below(512) {
            0..96 => supervisor.move_any(),
            96..100 => supervisor.pause(),
            100..104 => self.crowd(supervisor),
            104..107 => supervisor.switch_reclaimer(),
            107..110 => set_stall_timeout(Duration::from_millis(1 + supervisor.rng.below(100))),
            _ => {}
        }
        self.world.expect(signals::check(self.world));
    }
}

impl Workload for RcuWorkload {
    const REAL_MACHINE: bool = true;
    type Break = Break;

    fn new(run: &Run, broken: Option<Break>) -> Result<RcuWorkload, Violation> {
        let cannot = |error| Violation(format!("cannot start: no signal handler ({error})"));
        signals::install().map_err(cannot)?;
        let leaves = Leaf::alive();
        let world = World::make(broken, run.threads);
        on_stall(|stall| {
            world.stalls.fetch_add(u64::from(!stall.has_blocked), Ordering::Relaxed);
        });
        Ok(RcuWorkload { world, roles: Vec::new(), crowds: 0, leaves, before: None, peak: Peak::default() })
    }

    fn run_state(&self) -> &'static RunState {
        self.world.run_state
    }

    fn workers(&self) -> &'static [Worker] {
        &self.world.workers
    }

    fn begin(&mut self, _run: &Run) -> Result<(), Violation> {
        self.before = Some(Before::note(self.leaves)?);
        Ok(())
    }

    fn check(&mut self, _before: &ProcessSnapshot) -> Result<(), String> {
        signals::check(self.world)?;
        self.before.as_ref().map_or(Ok(()), |before| before.compare(self.world))?;
        self.peak = bound::check()?;
        Ok(())
    }

    fn report(&self, _elapsed: Duration) -> Vec<(&'static str, u64)> {
        let (world, seen, now) = (self.world, *lock(&self.world.seen), stats());
        let since = |now: u64, before: fn(&Before) -> u64| now - self.before.as_ref().map_or(0, before);
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let mut lines = vec![
            ("operations", seen.operations),
            ("nested operations", seen.nested),
            ("panics caught", seen.panics),
            ("waits refused", seen.refused),
            ("grace periods", since(now.grace_periods, Before::grace_periods)),
        ];
        lines.extend(ALL_WAYS.iter().map(|(way, name)| (*name, count(&world.ways[*way as usize]))));
        lines.extend([
            ("deadlines that passed", count(&world.timeouts)),
            ("deferred calls", world.calls.ran()),
            ("deferred calls panicked", world.calls.panics_planned()),
            ("callers throttled", since(now.throttled, Before::throttled)),
            ("blocks reused", count(&world.freed)),
            ("signals handled", count(&world.handled)),
            ("refused in handlers", count(&world.handled_refused)),
            ("stalls reported", count(&world.stalls)),
            ("crowds", self.crowds),
            ("seen in place (age 0)", seen.ages[0]),
            ("seen removed (age 1)", seen.ages[1]),
            ("seen older", seen.ages[2..].iter().sum()),
            ("bytes of short threads", self.peak.retired),
            ("most of them pending", self.peak.pending),
        ]);
        lines
    }
}
