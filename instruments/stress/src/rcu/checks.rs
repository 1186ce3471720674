//! The checks at the end, after all threads have ended.

use squall_machine::machine;
use squall_rcu::{
    RcuStats, ReclaimerState, RunOn, WaitError, barrier, quiescent_do, reclaimer_state, stats, wait,
};

use super::leaf::Leaf;
use super::world::{BLOCKS, GENERATIONS, World};
use crate::run::Violation;
use crate::skeleton::cleanup::drain_until_clean;

/// Number of barriers until no call is pending. Each runs the calls deferred before it. A removed block needs
/// at most one per generation. A call that defers another one needs one more.
const BARRIERS: u32 = 4 * GENERATIONS;

/// Counts of the process before the run.
pub(super) struct Before {
    stats: RcuStats,
    reclaimer: bool,
    leaves: u64,
}

impl Before {
    pub(super) fn note(leaves: u64) -> Result<Before, Violation> {
        let reclaimer = reclaimer_state() == ReclaimerState::Running;
        squall_rcu::register().map_err(|error| Violation(format!("cannot start: {error}")))?;
        Ok(Before { stats: stats(), reclaimer, leaves })
    }

    pub(super) fn grace_periods(&self) -> u64 {
        self.stats.grace_periods
    }

    pub(super) fn throttled(&self) -> u64 {
        self.stats.throttled
    }

    /// Compares the process with its state before the run.
    ///
    /// # Errors
    /// Describes the first violation.
    pub(super) fn compare(&self, world: &'static World) -> Result<(), String> {
        let drain = || drain(world).map_err(|error| format!("at the end: {error}"));
        drain_until_clean(BARRIERS, drain, || self.left(world))?;
        let now = stats();
        let panicked = now.panicked - self.stats.panicked;
        if panicked != world.calls.panics_planned() {
            let planned = world.calls.panics_planned();
            return Err(format!("{panicked} deferred calls panicked, but {planned} panics were planned"));
        }
        if now.leaked != self.stats.leaked {
            return Err(format!("{} values were leaked", now.leaked - self.stats.leaked));
        }
        if now.grace_periods == self.stats.grace_periods {
            return Err("no grace period has ended".to_owned());
        }
        Ok(())
    }

    /// Describes a remaining trace of the run, if any.
    fn left(&self, world: &World) -> Option<String> {
        if let Some(difference) = world.calls.difference() {
            return Some(difference);
        }
        let blocks = world.blocks_accounted();
        if blocks != BLOCKS {
            return Some(format!("{blocks} of {BLOCKS} blocks are free or in place"));
        }
        let leaves = Leaf::alive() - self.leaves;
        if leaves != 1 {
            return Some(format!("{leaves} values of an Rcu are alive, but only the one in place should be"));
        }
        let now = stats();
        let reclaimer = reclaimer_state() == ReclaimerState::Running;
        let threads = self.stats.threads + usize::from(reclaimer && !self.reclaimer);
        if now.threads > threads {
            return Some(format!("{} threads are registered, but only {threads} exist", now.threads));
        }
        if now.pending_calls + now.pending_bytes != 0 {
            return Some(format!(
                "{} deferred calls and {} bytes are pending",
                now.pending_calls, now.pending_bytes
            ));
        }
        (now.sleepers != 0).then(|| format!("{} threads wait for a grace period", now.sleepers))
    }
}

/// Runs everything that is pending, and ages removed blocks.
fn drain(world: &'static World) -> Result<(), WaitError> {
    quiescent_do(machine().vps(), RunOn::Any, |_| {})?.wait()?;
    barrier()?;
    let removed = world.pick_up(BLOCKS);
    wait()?;
    world.give(removed.into_iter().filter_map(|removed| world.grow_older(removed)));
    Ok(())
}
