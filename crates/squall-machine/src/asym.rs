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
//!   execute `fence(SeqCst)` in place of `light`. The mode is chosen once and never changes.
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
    /// The system call takes longer than [`SLOW_NS`]. The field is its median time at start, in nanoseconds.
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
/// One load after the first call, which makes a few system calls.
#[cfg(not(any(loom, miri, squall_tsan)))]
pub fn mode() -> Mode {
    static MODE: squall_sys::sync::OnceLock<Mode> = squall_sys::sync::OnceLock::new();
    *MODE.get_or_init(choose)
}

#[cfg(not(any(loom, miri, squall_tsan)))]
fn choose() -> Mode {
    const TRIALS: usize = 5;
    if std::env::var_os("SQUALL_MEMBARRIER").is_some_and(|value| value == "off") {
        return Mode::Fence(FenceReason::SwitchedOff);
    }
    if let Err(why) = squall_sys::membarrier::register() {
        return Mode::Fence(FenceReason::Unavailable(why));
    }
    let mut trials_ns = [0; TRIALS];
    for trial in &mut trials_ns {
        let start = std::time::Instant::now();
        if let Err(why) = squall_sys::membarrier::barrier() {
            return Mode::Fence(FenceReason::Unavailable(why));
        }
        *trial = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }
    trials_ns.sort_unstable();
    let median_ns = trials_ns[TRIALS / 2];
    if median_ns > SLOW_NS { Mode::Fence(FenceReason::Slow(median_ns)) } else { Mode::Membarrier }
}
