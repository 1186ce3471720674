//! Placement of threads: the simulated machine, processors and VPs.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use squall::{Id, tables};
use squall_machine::topology::VirtualSpec;
use squall_machine::{Machine, Vp, machine};

use crate::run::{Rng, Violation};

/// The simulated machine: 64 VPs in four levels.
const TOPOLOGY: [u32; 4] = [2, 2, 8, 2];

/// Simulates a virtual machine, unless SQUALL_TOPOLOGY is set, `real` is set, or the machine is already in
/// use.
pub(crate) fn choose_machine(real: bool) {
    let asked = std::env::var_os("SQUALL_TOPOLOGY").is_some_and(|value| !value.is_empty());
    if asked || real {
        return;
    }
    let [nodes, caches, cores, threads] = TOPOLOGY;
    if let Ok(spec) = VirtualSpec::new(nodes, caches, cores, threads) {
        // Refused if the machine is in use; the run then uses it as it is.
        let _ = Machine::set_virtual(spec);
    }
}

/// Discards translation tables: all of them, those of one VP, or, mostly, the page of this object on one VP.
pub(crate) fn discard_tables(id: Id, rng: &mut Rng) {
    let vp = Vp::new(rng.below(machine().vp_limit() as u64) as u32);
    match rng.below(8) {
        0 => tables::discard_all(),
        1..4 => tables::discard(vp),
        _ => tables::discard_page_of(vp, id),
    }
}

/// The allowed processors of this process when the stress began.
pub(crate) struct AllowedCpus {
    allowed: Vec<usize>,
}

impl AllowedCpus {
    /// Reads the affinity mask of the calling thread.
    ///
    /// # Errors
    /// The mask cannot be read.
    pub(crate) fn find() -> Result<AllowedCpus, Violation> {
        let mask = sched_getaffinity(None).map_err(|error| {
            Violation(format!("cannot start: the affinity mask cannot be read ({error})"))
        })?;
        Ok(AllowedCpus { allowed: (0..CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)).collect() })
    }

    /// Confines a thread to one random processor, or now and then allows all. `None` is the calling thread.
    pub(crate) fn confine(&self, thread: Option<Pid>, rng: &mut Rng) {
        let mut mask = CpuSet::new();
        if rng.one_in(4) {
            self.allowed.iter().for_each(|&cpu| mask.set(cpu));
        } else {
            mask.set(self.allowed[rng.below(self.allowed.len() as u64) as usize]);
        }
        // Fails without effect if the processor went offline or the thread ended meanwhile.
        let _ = sched_setaffinity(thread, &mask);
    }

    /// Allows a thread a random, non-empty subset of the processors; often all.
    pub(crate) fn shuffle(&self, thread: Pid, rng: &mut Rng) {
        let mut mask = CpuSet::new();
        let all = rng.one_in(3);
        self.allowed.iter().filter(|_| all || rng.one_in(2)).for_each(|&cpu| mask.set(cpu));
        if mask.count() == 0 {
            mask.set(self.allowed[rng.below(self.allowed.len() as u64) as usize]);
        }
        // Fails without effect if all of them went offline meanwhile.
        let _ = sched_setaffinity(Some(thread), &mask);
    }
}

/// Assigns a random VP to the calling thread, if the topology is virtual.
pub(crate) fn switch_vp(rng: &mut Rng) {
    if machine().is_virtual() {
        let vp = rng.below(machine().vp_limit() as u64) as u32;
        // Fails without effect if the topology lacks the VP.
        let _ = Vp::assign_current(Vp::new(vp));
    }
}
