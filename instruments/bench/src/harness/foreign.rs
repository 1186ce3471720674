//! Detects load of other programs during a measurement.
//!
//! Two sensors are needed, since each has a blind spot.
//!
//! - A slice in which each measured thread has its own processor. The lost time is wall time less processor
//!   time, for each thread that was preempted at least once. Time used by other threads of this process is
//!   subtracted. The sensor is exact to the microsecond. It detects no load if threads share processors or
//!   subjects block.
//! - A round: time in which the measured processors were busy or stolen (`/proc/stat`), less the time of this
//!   process. It always works, but the file counts in hundredths of a second.
//!
//! Not promised: that a slice without a finding was undisturbed. Other users of shared caches and memory are
//! not detected; medians and pairing limit their effect.

use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

/// A slice is disturbed if the measured threads lost more than this part of their time.
const SLICE_LOST: f64 = 0.02;
/// The lost time must also exceed this, in nanoseconds, so that one short kernel thread does not disturb a
/// slice.
const SLICE_LOST_NS_MIN: f64 = 100_000.0;
/// A round is disturbed if more than this part of the processors' time went to other programs.
const ROUND_LOST: f64 = 0.08;
/// Length of a tick of `/proc/stat`, in nanoseconds; the kernel's USER_HZ is 100 on x86-64 and aarch64.
pub const TICK_NS: f64 = 10_000_000.0;

/// Processor time of this process, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

/// Number of preemptions of the calling thread so far.
pub(crate) fn preemptions() -> u64 {
    std::fs::read_to_string("/proc/thread-self/status")
        .map_or(0, |s| field(&s, "nonvoluntary_ctxt_switches:"))
}

/// The number after `name` in a `/proc/*/status` text.
pub(crate) fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Time lost by one measured thread in a slice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lost {
    /// Wall time between the two clock readings; processor time of the thread beside it.
    pub(crate) wall_ns: f64,
    pub(crate) cpu_ns: f64,
    /// Processor time of the thread in the whole slice, with warm-up and gates.
    pub(crate) slice_cpu_ns: f64,
    pub(crate) preempted: bool,
}

/// The sensor of a slice: starts with the processor time of the whole process, to subtract its other threads.
pub(crate) struct SliceWatch {
    process_ns: u64,
}

impl SliceWatch {
    pub(crate) fn begin() -> SliceWatch {
        SliceWatch { process_ns: process_cpu_ns() }
    }

    /// `elsewhere_ns` is the processor time since the start of child processes that belong to the work.
    pub(crate) fn disturbed(&self, threads: &[Lost], elsewhere_ns: u64) -> bool {
        slice_disturbed(threads, (process_cpu_ns() - self.process_ns + elsewhere_ns) as f64)
    }
}

fn slice_disturbed(threads: &[Lost], process_ns: f64) -> bool {
    let measured: f64 = threads.iter().map(|t| t.slice_cpu_ns).sum();
    let ours = (process_ns - measured).max(0.0);
    let wall: f64 = threads.iter().map(|t| t.wall_ns).sum();
    let lost: f64 = threads.iter().filter(|t| t.preempted).map(|t| (t.wall_ns - t.cpu_ns).max(0.0)).sum();
    let foreign = lost - ours;
    foreign > SLICE_LOST * wall && foreign > SLICE_LOST_NS_MIN
}

/// The sensor of a round.
pub(crate) struct RoundWatch<'a> {
    processors: &'a [usize],
    since: Instant,
    process_ns: u64,
    busy_ticks: Option<u64>,
}

impl RoundWatch<'_> {
    /// Watches the measured processors.
    pub(crate) fn begin(processors: &[usize]) -> RoundWatch<'_> {
        let (since, process_ns) = (Instant::now(), process_cpu_ns());
        RoundWatch { processors, since, process_ns, busy_ticks: busy_ticks(processors) }
    }

    pub(crate) fn disturbed(&self) -> bool {
        self.disturbed_beside(0)
    }

    /// `elsewhere_ns` is as in [`SliceWatch::disturbed`].
    pub(crate) fn disturbed_beside(&self, elsewhere_ns: u64) -> bool {
        let (Some(before), Some(after)) = (self.busy_ticks, busy_ticks(self.processors)) else {
            return false;
        };
        let count = self.processors.len() as f64;
        let busy = after.saturating_sub(before) as f64 * TICK_NS;
        let ours = (process_cpu_ns() - self.process_ns + elsewhere_ns) as f64;
        let wall = self.since.elapsed().as_nanos() as f64 * count;
        // Each processor's count may be wrong by one tick.
        busy - ours > ROUND_LOST * wall + TICK_NS * count
    }
}

/// Ticks of [`TICK_NS`] in which one of `processors` was busy or stolen. `None` without `/proc/stat`.
pub fn busy_ticks(processors: &[usize]) -> Option<u64> {
    parse_stat(&std::fs::read_to_string("/proc/stat").ok()?, processors)
}

fn parse_stat(text: &str, processors: &[usize]) -> Option<u64> {
    let of = |cpu: &usize| {
        let name = format!("cpu{cpu} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name))?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|n| n.parse().ok()).collect();
        // Fields: user nice system idle iowait irq softirq steal. Guest time is inside user.
        Some([0, 1, 2, 5, 6, 7].iter().filter_map(|&i| ticks.get(i)).sum::<u64>())
    };
    processors.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_stat_is_read_as_the_kernel_writes_it() {
        let text =
            "cpu  10 1 5 1000 7 2 3 4 9 0\ncpu0 5 0 2 500 3 1 1 2 4 0\ncpu1 5 1 3 500 4 1 2 2 5 0\nintr 1\n";
        assert_eq!(parse_stat(text, &[1]), Some(5 + 1 + 3 + 1 + 2 + 2));
        assert_eq!(parse_stat(text, &[0, 1]), Some(5 + 2 + 1 + 1 + 2 + 14));
        assert_eq!(parse_stat(text, &[0, 7]), None);
    }

    #[test]
    fn status_fields_are_found_by_their_whole_name() {
        let status = "voluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t34\n";
        assert_eq!(field(status, "voluntary_ctxt_switches:"), 12);
        assert_eq!(field(status, "nonvoluntary_ctxt_switches:"), 34);
        assert_eq!(field(status, "absent:"), 0);
    }

    #[test]
    fn lost_time_counts_preemption_by_other_processes_only() {
        let blocked = Lost { wall_ns: 2e7, cpu_ns: 1e6, slice_cpu_ns: 1e6, preempted: false };
        let preempted = Lost { preempted: true, ..blocked };
        assert!(!slice_disturbed(&[blocked], 1e6));
        assert!(slice_disturbed(&[preempted], 1e6));
        // Another thread of this process used the lost time.
        assert!(!slice_disturbed(&[preempted], 2e7));
    }
}
