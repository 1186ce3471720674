//! Subject `squall` of the cases that count, and the harness's questions to the machine.

use squall_machine::pervp::PerVpWord;
use squall_machine::{Vp, machine};

use crate::case::Missing;
use crate::env;
use crate::rivals::counters::Count;

/// `squall`: one word per VP, added to by a restartable sequence, or atomically in the fallback.
pub(crate) struct PerVp(PerVpWord);

impl Count for PerVp {
    fn new(_: usize) -> PerVp {
        PerVp(PerVpWord::new())
    }

    fn add(&self, _: usize, ops: u64, mut between: impl FnMut()) {
        if ops == 0 {
            // Touches the VP's page for the first time.
            self.0.add(0);
        }
        for _ in 0..ops {
            self.0.add(1);
            between();
        }
    }

    fn sum(&self) -> u64 {
        self.0.sum()
    }
}

/// Whether the threads are given VPs of a virtual topology.
pub(crate) fn is_virtual() -> bool {
    machine().is_virtual()
}

/// Gives the calling thread the VP of measured thread `thread`, in a virtual topology.
pub(crate) fn assign_vp(thread: usize) {
    if is_virtual() {
        let vp = (thread % machine().vp_limit()) as u32;
        Vp::assign_current(Vp::new(vp)).expect("the VP cannot be assigned");
    }
}

/// Number of processors to run on: those of the virtual topology, or those of the machine that this process
/// may use.
pub(crate) fn processors_count() -> usize {
    if is_virtual() { machine().vp_limit() } else { env::processors().len() }
}

/// Runs `f` on the processor with this index among the usable ones.
pub(crate) fn on_processor<R: Send>(index: usize, f: impl FnOnce() -> R + Send) -> Result<R, Missing> {
    if is_virtual() {
        let vp = u32::try_from(index).map_or(Vp::new(u32::MAX), Vp::new);
        return Vp::with_vp(vp, f).map_err(|error| Missing(error.to_string()));
    }
    let processors = env::processors();
    let Some(place) = processors.get(index..=index) else {
        return Err(Missing(format!("there are {} processors", processors.len())));
    };
    // A thread of its own, so that the caller stays on its processor.
    std::thread::scope(|scope| {
        let there = scope.spawn(|| env::pin(place).then(f));
        there
            .join()
            .expect("the measured function panicked")
            .ok_or_else(|| Missing(format!("cannot run on processor {}", place[0])))
    })
}
