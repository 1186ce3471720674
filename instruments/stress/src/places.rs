//! Where threads may run, and moving them about.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use squall_machine::topology::VirtualSpec;
use squall_machine::{Machine, Vp, machine};

use super::{Rng, Violation};

/// The machine, unless another is asked for: 64 VPs in four levels.
const TOPOLOGY: [u32; 4] = [2, 2, 8, 2];

/// Makes the machine a virtual one, if nobody has said what it is to be and it is not in use yet.
pub(crate) fn choose_machine(real: bool) {
    let asked = std::env::var_os("SQUALL_TOPOLOGY").is_some_and(|value| !value.is_empty());
    if asked || real {
        return;
    }
    let [nodes, caches, cores, threads] = TOPOLOGY;
    if let Ok(spec) = VirtualSpec::new(nodes, caches, cores, threads) {
        // Refused where it is in use: then it is what it is.
        let _ = Machine::set_virtual(spec);
    }
}

/// The processors of this process when the stress began.
pub(crate) struct Home {
    allowed: Vec<usize>,
}

impl Home {
    /// # Errors
    /// The system's.
    pub(crate) fn find() -> Result<Home, Violation> {
        let mask = sched_getaffinity(None).map_err(|error| {
            Violation(format!("cannot start: the affinity mask cannot be read ({error})"))
        })?;
        Ok(Home { allowed: (0..CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)).collect() })
    }

    /// Leaves a thread (the calling one, if none is named) one random processor, or now and then all of them.
    pub(crate) fn confine(&self, thread: Option<Pid>, rng: &mut Rng) {
        let mut mask = CpuSet::new();
        if rng.one_in(4) {
            self.allowed.iter().for_each(|&cpu| mask.set(cpu));
        } else {
            mask.set(self.allowed[rng.below(self.allowed.len() as u64) as usize]);
        }
        // The processor may have gone offline, or the thread ended, meanwhile: then nothing moves.
        let _ = sched_setaffinity(thread, &mask);
    }

    /// Leaves a thread a random subset of the processors: often all, never none.
    pub(crate) fn shuffle(&self, thread: Pid, rng: &mut Rng) {
        let mut mask = CpuSet::new();
        let all = rng.one_in(3);
        self.allowed.iter().filter(|_| all || rng.one_in(2)).for_each(|&cpu| mask.set(cpu));
        if mask.count() == 0 {
            mask.set(self.allowed[rng.below(self.allowed.len() as u64) as usize]);
        }
        // Refused where all of them went offline meanwhile: then the thread stays where it is.
        let _ = sched_setaffinity(Some(thread), &mask);
    }
}

/// In a virtual topology, gives the calling thread another VP.
pub(crate) fn hop(rng: &mut Rng) {
    if machine().is_virtual() {
        let vp = rng.below(machine().vp_limit() as u64) as u32;
        // A VP that this topology lacks is refused, and the thread stays where it is.
        let _ = Vp::assign_current(Vp::new(vp));
    }
}
