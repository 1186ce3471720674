//! Asymmetric fences: a full barrier that the rare side pays for, so that the frequent side executes no
//! instruction.
//!
//! Problem: a store-load handshake needs a full fence on both sides. (Reader: store "I am in", load the data.
//! Collector: store the data, load the readers' flags.) A full fence costs more than everything else a reader
//! does.
//!
//! Idea: the frequent side restrains only the compiler ([`light`]). The rare side makes every processor that
//! runs a thread of this process pass a full barrier ([`heavy`], by `membarrier`).
//!
//! - I1. Take a light fence L of one thread and a heavy fence H of another. Either everything before L is
//!   visible to everything after H, or everything before H is visible to everything after L.
//! - I2. I1 holds only while [`mode`] is [`Mode::Membarrier`]. In [`Mode::Fence`] the frequent side must
//!   execute `fence(SeqCst)` in place of `light`. The mode is chosen once and never changes: an object may
//!   keep it, and a thread that runs without fences cannot be told to begin.
//!
//! So the choice must foresee the cost of the system call, even if the process has one thread then. The
//! kernel answers a process with one running thread at once, in any configuration. So the call is timed while
//! a second thread runs, which ends before the mode is known (`beside_a_thread`).
//!
//! Not promised: any order between two light fences. Loom, Miri and ThreadSanitizer do not know membarrier,
//! so under them both fences are `fence(SeqCst)`. Two light fences are then stronger than in reality, so a
//! proof must never rely on such a pair.
//!
//! Cost: a light fence is free. A heavy fence is a system call and an interrupt on each processor that runs a
//! thread of the process.
//! Source: membarrier(2); D. Vyukov and P. Lawrence, P1202 "Asymmetric fences"; Desnoyers et al., "User-level
//! implementations of read-copy update", 2012.

pub use squall_sys::membarrier::Unavailable;
use squall_sys::sync::atomic::Ordering;

/// Mechanism of the heavy fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The frequent side needs no instruction; the rare side calls `membarrier`.
    Membarrier,
    /// Both sides execute a full fence.
    Fence(FenceReason),
}

/// Reason for [`Mode::Fence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceReason {
    /// The environment variable `SQUALL_MEMBARRIER` is `off`.
    SwitchedOff,
    /// The kernel has no `membarrier`, or refuses it.
    Unavailable(Unavailable),
    /// The system call takes longer than [`SLOW_NS`] while a second thread runs. The field is its median time
    /// at start, in nanoseconds.
    Slow(u64),
    /// The program runs under a checker that does not know the system call.
    Checker,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mode::Membarrier => f.write_str("membarrier"),
            Mode::Fence(FenceReason::SwitchedOff) => f.write_str("fence (SQUALL_MEMBARRIER=off)"),
            Mode::Fence(FenceReason::Unavailable(why)) => write!(f, "fence ({why})"),
            Mode::Fence(FenceReason::Slow(ns)) => write!(f, "fence (membarrier takes {ns} ns here)"),
            Mode::Fence(FenceReason::Checker) => f.write_str("fence (a checker is running)"),
        }
    }
}

/// Longest acceptable `membarrier` call, in nanoseconds. In some configurations the kernel waits for a
/// scheduler tick of each processor, which takes milliseconds; full fences are then cheaper.
pub const SLOW_NS: u64 = 500_000;

/// True if this build replaces both fences by `fence(SeqCst)`.
pub const CHECKED: bool = cfg!(any(loom, miri, squall_tsan));

/// Frequent side of the handshake. Pairs with [`heavy`] (I1). Costs no instruction outside checkers.
#[inline(always)]
pub fn light() {
    #[cfg(any(loom, miri, squall_tsan))]
    squall_sys::sync::atomic::fence(Ordering::SeqCst);
    #[cfg(not(any(loom, miri, squall_tsan)))]
    squall_sys::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Frequent side of the handshake in either mode: the full fence of I2 if `fenced`, else [`light`]. Meant for
/// paths that can afford the branch.
#[inline(always)]
pub fn light_or_full(fenced: bool) {
    if fenced {
        // Partner: `fence(SeqCst)` in `heavy` (I2).
        squall_sys::sync::atomic::fence(Ordering::SeqCst);
    } else {
        light();
    }
}

/// Rare side of the handshake. Pairs with [`light`], or with `fence(SeqCst)` in [`Mode::Fence`] (I1, I2).
///
/// # Errors
/// [`Unavailable`] if `membarrier` worked when the mode was chosen and is refused now, because the process
/// has entered a sandbox since. The fence has then not happened, so the caller must not free memory that
/// readers may use.
pub fn heavy() -> Result<(), Unavailable> {
    // Needed in either mode. Orders this thread's earlier accesses before its later ones, and pairs with the
    // `fence(SeqCst)` of the frequent side in `Mode::Fence`.
    squall_sys::sync::atomic::fence(Ordering::SeqCst);
    match mode() {
        Mode::Membarrier => squall_sys::membarrier::barrier(),
        Mode::Fence(_) => Ok(()),
    }
}

/// Not public: makes each processor pass a full barrier after [`heavy`] was refused, and restarts the
/// restartable sequences of all processors.
///
/// Sequences that began before this call have ended or start anew. Without `membarrier` both hold only as far
/// as `squall_sys::rseq::restart_everywhere` says. In a model a fence never fails, so the function does
/// nothing there.
#[doc(hidden)]
#[cold]
pub fn visit_processors() {
    #[cfg(not(loom))]
    squall_sys::rseq::restart_everywhere(crate::machine().vp_limit());
}

/// Returns the mode in use. A checker build always uses fences.
#[cfg(any(loom, miri, squall_tsan))]
pub fn mode() -> Mode {
    Mode::Fence(FenceReason::Checker)
}

/// Returns the mode in use. The first call chooses it; `SQUALL_MEMBARRIER=off` forces [`Mode::Fence`].
///
/// # Cost
/// One load after the first call. The first call runs a thread, `squall-fence`, to time the system call: for
/// about 0.15 ms, or for some milliseconds on a busy machine. It starts no thread if fences are forced.
#[cfg(not(any(loom, miri, squall_tsan)))]
pub fn mode() -> Mode {
    static MODE: squall_sys::sync::OnceLock<Mode> = squall_sys::sync::OnceLock::new();
    *MODE.get_or_init(choose)
}

#[cfg(not(any(loom, miri, squall_tsan)))]
fn choose() -> Mode {
    if std::env::var_os("SQUALL_MEMBARRIER").is_some_and(|value| value == "off") {
        return Mode::Fence(FenceReason::SwitchedOff);
    }
    // Before the second thread exists, so that the kernel need not wait for other threads.
    let registered = squall_sys::membarrier::register();
    let chosen = registered.and_then(|()| choose_by_cost(barrier_ns));
    chosen.unwrap_or_else(|why| Mode::Fence(FenceReason::Unavailable(why)))
}

/// Calls `membarrier`. Returns the time that it took, in nanoseconds.
#[cfg(not(any(loom, miri, squall_tsan)))]
fn barrier_ns() -> Result<u64, Unavailable> {
    let start = std::time::Instant::now();
    squall_sys::membarrier::barrier()?;
    Ok(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// Chooses the mode by the times that `barrier_ns` returns while a second thread runs.
#[cfg(not(any(loom, miri, squall_tsan)))]
fn choose_by_cost(mut barrier_ns: impl FnMut() -> Result<u64, Unavailable>) -> Result<Mode, Unavailable> {
    /// If the first calls are slow, the reason may be a busy machine.
    const ROUNDS: usize = 2;
    beside_a_thread(|| {
        let mut least_ns = u64::MAX;
        for _ in 0..ROUNDS {
            least_ns = least_ns.min(median(&mut barrier_ns)?);
            if least_ns <= SLOW_NS {
                return Ok(Mode::Membarrier);
            }
        }
        Ok(Mode::Fence(FenceReason::Slow(least_ns)))
    })
}

/// Returns the median result of a few calls.
#[cfg(not(any(loom, miri, squall_tsan)))]
fn median(barrier_ns: &mut impl FnMut() -> Result<u64, Unavailable>) -> Result<u64, Unavailable> {
    const TRIALS: usize = 5;
    let mut trials_ns = [0; TRIALS];
    for trial in &mut trials_ns {
        *trial = barrier_ns()?;
    }
    trials_ns.sort_unstable();
    Ok(trials_ns[TRIALS / 2])
}

/// Runs `f` while a second thread of this process runs, if the system starts one. The thread takes no
/// signals, and has ended when this function returns.
#[cfg(not(any(loom, miri, squall_tsan)))]
fn beside_a_thread<R>(f: impl FnOnce() -> R) -> R {
    use squall_sys::sync::atomic::AtomicBool;
    use squall_sys::sync::hint::spin_loop;
    use squall_sys::sync::{Barrier, thread};
    const SPINS: usize = 64;
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (begun, stopped) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        let stop = Stop(&stopped);
        let run = || {
            begun.wait();
            while !stopped.load(Ordering::Relaxed) {
                (0..SPINS).for_each(|_| spin_loop());
                // The caller may have this processor alone, at the same real-time priority.
                thread::yield_now();
            }
        };
        let builder = thread::Builder::new().name("squall-fence".to_owned());
        let thread = squall_sys::signals::without_signals(|| builder.spawn_scoped(scope, run)).ok();
        if thread.is_some() {
            begun.wait();
        }
        let result = f();
        drop(stop);
        // A scope waits for the thread's function, but not for its end.
        let _ = thread.map(|thread| thread.join());
        result
    })
}

#[cfg(all(test, target_os = "linux", not(any(loom, miri, squall_tsan))))]
mod tests {
    use super::*;

    /// Returns whether the thread that [`beside_a_thread`] starts runs, or waits for a processor. Looks many
    /// times, since an emulator lets a thread wait for its own locks now and then.
    fn a_second_thread_runs() -> bool {
        const LOOKS: usize = 10_000;
        (0..LOOKS).any(|_| {
            squall_sys::sync::thread::yield_now();
            std::fs::read_dir("/proc/self/task").unwrap().any(|task| {
                let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
                stat.contains("(squall-fence) R")
            })
        })
    }

    // The kernel answers at once if the process has one running thread.
    #[test]
    fn a_call_that_is_slow_only_beside_a_second_thread_leads_to_fences() {
        let slow = || Ok(if a_second_thread_runs() { 2 * SLOW_NS } else { 165 });
        assert_eq!(choose_by_cost(slow), Ok(Mode::Fence(FenceReason::Slow(2 * SLOW_NS))));
    }

    #[test]
    fn one_busy_moment_does_not_lead_to_fences() {
        let mut times_ns = [2 * SLOW_NS; 5].into_iter().chain([1000; 5]);
        assert_eq!(choose_by_cost(|| Ok(times_ns.next().unwrap())), Ok(Mode::Membarrier));
    }

    #[test]
    fn a_refused_call_is_an_error() {
        let refused = Unavailable::Refused(1);
        assert_eq!(choose_by_cost(|| Err(refused)), Err(refused));
    }
}
