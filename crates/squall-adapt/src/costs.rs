//! Costs of this machine's instructions and line transfers, and the warnings of a slow mode.
//!
//! Problem: the forms of an object differ by locked instructions, fences, additions to a processor's own
//! word, and cache lines that move between processors. The ratio of these costs depends on the machine, and
//! on the mode that the kernel allows. Idea: the first estimate measures the instructions. Contended locks
//! measure the transfers as they happen ([`squall_machine::transfer`]). Policies express their constants in
//! these units.
//!
//! - I1. The measurement starts no thread, and ends after `TIME_MAX`, apart from the time in which the
//!   system runs other threads. A cost is the least of many short batches, since other load only adds to it.
//! - I2. Each cost lies within a factor of eight of the `REFERENCE`'s.
//! - I3. On a virtual topology the costs are the reference's, so that the decisions of tests depend on their
//!   calls alone.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use squall_machine::asym::{self, FenceReason, Mode};
use squall_machine::pervp::{AtomicReason, BiasedWord, RestartMode, restart_mode};
use squall_machine::{Vp, machine, transfer};

use crate::settings::Settings;

/// Longest time of the measurement.
const TIME_MAX: Duration = Duration::from_millis(1);
/// Instructions of a batch, and batches of each cost.
const BATCH: u32 = 256;
const BATCHES: u32 = 32;
/// Batches that are measured even if other threads take the time: some of them meet no other load.
const BATCHES_MIN: u32 = 8;
/// Factor by which a cost may differ from the reference's (I2).
const FACTOR_MAX: f64 = 8.0;

/// Costs of instructions and line transfers that tell the forms of an object apart, in nanoseconds.
///
/// ```
/// let costs = squall::adapt::costs::measured();
/// assert!(costs.locked_ns > 0.0 && costs.operation_ns >= 0.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MachineCosts {
    /// A multiplication that needs the result of the one before: the unit of plain work. About a nanosecond
    /// at 3 GHz.
    pub multiply_ns: f64,
    /// A locked addition to a word in the own cache.
    pub locked_ns: f64,
    /// An addition to the own processor's word: restartable, or locked without restartable sequences.
    pub local_add_ns: f64,
    /// A full fence.
    pub fence_ns: f64,
    /// The fences of an operation: two full fences without `membarrier`, otherwise zero.
    pub operation_ns: f64,
    /// The transfer of a cache line between two processors. The reference's until contended locks of the
    /// process have measured it.
    pub transfer_ns: f64,
}

/// Costs of the machine on which the constants of the policies were measured, in the mode with restartable
/// sequences and `membarrier`.
pub const REFERENCE: MachineCosts = MachineCosts {
    multiply_ns: 1.0,
    locked_ns: 5.5,
    local_add_ns: 0.4,
    fence_ns: 5.5,
    operation_ns: 0.0,
    transfer_ns: 25.0,
};

/// Work of a call, as numbers of the units of [`MachineCosts`].
///
/// ```
/// use squall::adapt::costs::{REFERENCE, Work};
///
/// let write = Work { multiplies: 9.0, locked: 2.0, operations: 1.0 };
/// assert_eq!(write.ns(&REFERENCE), 9.0 + 2.0 * REFERENCE.locked_ns);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Plain work, in multiplications.
    pub multiplies: f64,
    /// Locked instructions.
    pub locked: f64,
    /// Operations opened: 1, or 0 for a call without one.
    pub operations: f64,
}

impl Work {
    /// Returns the time of the work, in nanoseconds.
    pub fn ns(&self, costs: &MachineCosts) -> f64 {
        let Work { multiplies, locked, operations } = *self;
        multiplies * costs.multiply_ns + locked * costs.locked_ns + operations * costs.operation_ns
    }
}

/// Returns the costs of this machine, in the mode of this process. The first call measures those of
/// instructions.
///
/// # Cost
/// The first call takes at most a millisecond of the calling thread.
pub fn measured() -> MachineCosts {
    static INSTRUCTIONS: OnceLock<MachineCosts> = OnceLock::new();
    let is_reference = cfg!(miri) || machine().is_virtual();
    let instructions = INSTRUCTIONS.get_or_init(|| {
        let costs = if is_reference { REFERENCE } else { MachineCosts::of_times(measure()) };
        costs.in_mode(restart_mode() == RestartMode::Restartable, is_fenced())
    });
    instructions.with_transfer(if is_reference { None } else { transfer::cost() })
}

/// Returns `true` if each operation executes full fences.
fn is_fenced() -> bool {
    !matches!(asym::mode(), Mode::Membarrier | Mode::Fence(FenceReason::Checker))
}

impl MachineCosts {
    /// Returns the costs for times that [`measure`] returned (I2).
    fn of_times([multiply, locked, local_add, fence]: [f64; 4]) -> MachineCosts {
        MachineCosts {
            multiply_ns: near(multiply, REFERENCE.multiply_ns),
            locked_ns: near(locked, REFERENCE.locked_ns),
            local_add_ns: near(local_add, REFERENCE.local_add_ns),
            fence_ns: near(fence, REFERENCE.fence_ns),
            ..REFERENCE
        }
    }

    /// Returns these costs in a mode.
    fn in_mode(self, is_restartable: bool, is_fenced: bool) -> MachineCosts {
        MachineCosts {
            local_add_ns: if is_restartable { self.local_add_ns } else { self.locked_ns },
            operation_ns: if is_fenced { 2.0 * self.fence_ns } else { 0.0 },
            ..self
        }
    }

    /// Returns these costs with the measured cost of a transfer, if there is one.
    fn with_transfer(self, measured_ns: Option<f64>) -> MachineCosts {
        let transfer_ns = measured_ns.map_or(self.transfer_ns, |ns| near(ns, REFERENCE.transfer_ns));
        MachineCosts { transfer_ns, ..self }
    }

    /// Returns these costs with those that the settings of an object replace.
    pub(crate) fn with(self, settings: &Settings) -> MachineCosts {
        let or = |set: f64, measured: f64| if set > 0.0 { set } else { measured };
        let locked_ns = or(settings.locked_ns, self.locked_ns);
        // Without restartable sequences an addition to the own word is a locked one.
        let is_locked = self.local_add_ns >= self.locked_ns;
        let fence_ns = or(settings.fence_ns, self.fence_ns);
        MachineCosts {
            locked_ns,
            local_add_ns: if is_locked { locked_ns } else { self.local_add_ns },
            fence_ns,
            operation_ns: if self.operation_ns > 0.0 { 2.0 * fence_ns } else { 0.0 },
            transfer_ns: or(settings.transfer_ns, self.transfer_ns),
            ..self
        }
    }
}

/// Returns a cost within the factor of the reference's (I2).
fn near(ns: f64, reference: f64) -> f64 {
    ns.clamp(reference / FACTOR_MAX, reference * FACTOR_MAX)
}

/// Measures the times of a multiplication, a locked addition, an addition to the own word, and a fence, in
/// nanoseconds (I1). The addition is restartable if the process has restartable sequences.
fn measure() -> [f64; 4] {
    let began = Instant::now();
    let word = AtomicU64::new(0);
    let mut factor = 1_u64;
    let mut least = [f64::INFINITY; 4];
    for number in 1..=BATCHES {
        // Anew, since the thread may have moved to another processor.
        let own = BiasedWord::new(Vp::current());
        let batch = [
            time(|| factor = black_box(factor.wrapping_mul(6_364_136_223_846_793_005))),
            // Relaxed, and a fence without a partner: no other thread uses the word.
            time(|| _ = black_box(word.fetch_add(1, Ordering::Relaxed))),
            time(|| own.add(1)),
            time(|| {
                word.store(1, Ordering::Relaxed);
                fence(Ordering::SeqCst);
            }),
        ];
        least.iter_mut().zip(batch).for_each(|(least, ns)| *least = least.min(ns));
        if number >= BATCHES_MIN && began.elapsed() > TIME_MAX / 2 {
            break;
        }
    }
    least
}

/// Returns the time of one call in a batch, in nanoseconds.
fn time(mut call: impl FnMut()) -> f64 {
    let began = Instant::now();
    (0..BATCH).for_each(|_| call());
    began.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
}

/// Returns a sentence for each mode of this process that is much slower than the usual one: the reason, the
/// cost, and the remedy.
///
/// The engine reports them once as an event of `tracing`, when the first adaptive object is created.
///
/// ```
/// squall::adapt::costs::warnings().iter().for_each(|warning| eprintln!("{warning}"));
/// ```
pub fn warnings() -> Vec<String> {
    let rseq = match restart_mode() {
        RestartMode::Restartable | RestartMode::Atomic { why: AtomicReason::VirtualTopology } => None,
        RestartMode::Atomic { why } => Some(format!(
            "no restartable sequences ({why}): an addition to a processor's own word takes a locked instruction; \
             allow rseq(2), and use a C library that registers it"
        )),
    };
    let fence = match asym::mode() {
        Mode::Membarrier | Mode::Fence(FenceReason::Checker) => None,
        mode => Some(format!(
            "no asymmetric {mode}: each operation executes two full fences, and no lock has an owner; allow \
             membarrier(2)"
        )),
    };
    rseq.into_iter().chain(fence).collect()
}

/// Reports the [`warnings`] as events, once in a process.
#[cfg(feature = "tracing")]
pub(crate) fn announce() {
    static ANNOUNCE: std::sync::Once = std::sync::Once::new();
    ANNOUNCE.call_once(|| {
        for warning in warnings() {
            tracing::warn!(target: "squall::adapt", warning, "Squall runs in a slow mode");
        }
    });
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn announce() {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings;

    #[test]
    fn costs_follow_the_mode() {
        let costs = |is_restartable, is_fenced| {
            let costs = MachineCosts::in_mode(REFERENCE, is_restartable, is_fenced);
            (costs.local_add_ns, costs.operation_ns)
        };
        assert_eq!(costs(true, false), (REFERENCE.local_add_ns, 0.0));
        assert_eq!(costs(false, true), (REFERENCE.locked_ns, 2.0 * REFERENCE.fence_ns));
    }

    #[test]
    fn a_setting_replaces_a_measured_cost_in_each_mode() {
        settings::ALL.set(&settings::LOCKED, 40.0).unwrap();
        let id = squall_core::Id::from_parts(1, 1).unwrap();
        let settings = Settings::of(id);
        settings::ALL.unset(settings::LOCKED.name()).unwrap();
        let costs = |is_restartable| MachineCosts::in_mode(REFERENCE, is_restartable, true).with(&settings);
        assert_eq!((costs(true).locked_ns, costs(true).local_add_ns), (40.0, REFERENCE.local_add_ns));
        assert_eq!((costs(false).local_add_ns, costs(false).operation_ns), (40.0, 2.0 * REFERENCE.fence_ns));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it times instructions")]
    fn each_time_is_measured() {
        let times = measure();
        assert!(times.iter().all(|ns| ns.is_finite() && *ns > 0.0), "{times:?}");
    }

    #[test]
    fn an_implausible_time_counts_as_the_nearest_plausible_one() {
        let costs = MachineCosts::of_times([0.0, 1e9, 0.4, f64::INFINITY]);
        assert_eq!((costs.multiply_ns, costs.locked_ns), (0.125, 44.0));
        assert_eq!((costs.local_add_ns, costs.fence_ns), (0.4, 44.0));
        assert_eq!(REFERENCE.with_transfer(Some(0.0)).transfer_ns, 3.125);
        assert_eq!(REFERENCE.with_transfer(None), REFERENCE);
    }

    #[test]
    fn a_measured_time_decides_between_two_forms() {
        let lock = Work { multiplies: 4.0, locked: 2.0, operations: 0.0 };
        let copy = Work { multiplies: 12.0, locked: 0.0, operations: 0.0 };
        let is_lock_cheaper = |times| {
            let costs = MachineCosts::of_times(times);
            lock.ns(&costs) < copy.ns(&costs)
        };
        assert!(is_lock_cheaper([1.0, 2.0, 0.4, 2.0]));
        assert!(!is_lock_cheaper([1.0, 20.0, 0.4, 20.0]), "locked instructions are expensive");
        assert!(is_lock_cheaper([4.0, 12.0, 0.4, 12.0]), "plain work is as slow");
    }
}
