//! Where threads may run, and moving them about.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use squall_machine::{Vp, machine};

use crate::stress::Rng;

/// The processors of this process when the stress began.
pub(crate) struct Home {
    allowed: Vec<usize>,
}

impl Home {
    /// # Errors
    /// The system's.
    pub(crate) fn find() -> std::io::Result<Home> {
        let mask = sched_getaffinity(None)?;
        Ok(Home { allowed: (0..CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)).collect() })
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
