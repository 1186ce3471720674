//! Asymmetric fences: a full barrier whose cost lies with the side that is rarely there.
//!
//! Problem: a store-load handshake (reader: store "I am in", load the data; collector: store the data, load "who is
//! in?") needs a full fence on both sides, and a full fence costs more than all else that a reader does.
//!
//! Idea: the frequent side stops only the compiler ([`light`]); the rare side makes every processor that runs a thread
//! of this process pass a full barrier ([`heavy`], by `membarrier`).
//!
//! - I1. For a light fence L of one thread and a heavy fence H of another, either all that precedes L in its thread is
//!   visible to all that follows H, or all that precedes H is visible to all that follows L.
//! - I2. I1 holds only while [`mode`] is [`Mode::Membarrier`]. In [`Mode::Fence`] the frequent side must execute
//!   `fence(SeqCst)` where it would have called `light`. The mode is chosen once and never changes.
//!
//! Not promised: anything between two light fences. Under a model checker, Miri and ThreadSanitizer, which know no
//! membarrier, both are `fence(SeqCst)`; that is stronger than reality between two light fences, so a proof must never
//! rely on such a pair.
//!
//! Cost: light none, heavy a system call and an interrupt on each processor that runs a thread of ours.
//! Source: membarrier(2); D. Vyukov and P. Lawrence, P1202 "Asymmetric fences"; Desnoyers et al., "User-level
//! implementations of read-copy update", 2012.

use squall_sync::atomic::Ordering;
pub use squall_sys::membarrier::Unavailable;

/// How the heavy fence is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The frequent side needs no instruction; the rare side calls `membarrier`.
    Membarrier,
    /// Both sides execute a full fence.
    Fence(Why),
}

/// Why [`Mode::Fence`] was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// `SQUALL_MEMBARRIER=off`.
    SwitchedOff,
    /// The system call cannot be used.
    Unavailable(Unavailable),
    /// The system call takes longer than [`SLOW_NS`], in nanoseconds (median of the trials at start).
    Slow(u64),
    /// A checker is running, which does not know the system call.
    Checker,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mode::Membarrier => f.write_str("membarrier"),
            Mode::Fence(Why::SwitchedOff) => f.write_str("fence (SQUALL_MEMBARRIER=off)"),
            Mode::Fence(Why::Unavailable(why)) => write!(f, "fence ({why})"),
            Mode::Fence(Why::Slow(ns)) => write!(f, "fence (membarrier takes {ns} ns here)"),
            Mode::Fence(Why::Checker) => f.write_str("fence (a checker is running)"),
        }
    }
}

/// A `membarrier` slower than this, in nanoseconds, is not used: the kernel falls back to waiting for a scheduler tick
/// of each processor in some configurations, which takes milliseconds.
pub const SLOW_NS: u64 = 500_000;

/// Whether this build replaces both fences by `fence(SeqCst)`.
pub const CHECKED: bool = cfg!(any(loom, miri, squall_tsan));

/// The frequent side of the handshake. Pairs with [`heavy`] (I1); costs no instruction outside checkers.
#[inline(always)]
pub fn light() {
    #[cfg(any(loom, miri, squall_tsan))]
    squall_sync::atomic::fence(Ordering::SeqCst);
    #[cfg(not(any(loom, miri, squall_tsan)))]
    squall_sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// The frequent side of the handshake in either mode: [`light`], or the full fence that I2 asks for if `fenced`. For paths
/// that can afford to ask.
#[inline(always)]
pub fn light_or_full(fenced: bool) {
    if fenced {
        // Partner: `fence(SeqCst)` in `heavy` (I2).
        squall_sync::atomic::fence(Ordering::SeqCst);
    } else {
        light();
    }
}

/// The rare side of the handshake. Pairs with [`light`], or with `fence(SeqCst)` in [`Mode::Fence`] (I1, I2).
///
/// # Errors
/// [`Unavailable`] if `membarrier` worked when the mode was chosen and is refused now (a sandbox was entered since). No
/// fence can then be assumed, so whoever asked must not go on to free anything.
pub fn heavy() -> Result<(), Unavailable> {
    // In either mode: orders what this thread did before against what it does after, and pairs with `fence(SeqCst)` of
    // the frequent side in `Mode::Fence`.
    squall_sync::atomic::fence(Ordering::SeqCst);
    match mode() {
        Mode::Membarrier => squall_sys::membarrier::barrier(),
        Mode::Fence(_) => Ok(()),
    }
}

/// The mode in use; the first call chooses it.
#[cfg(any(loom, miri, squall_tsan))]
pub fn mode() -> Mode {
    Mode::Fence(Why::Checker)
}

/// The mode in use; the first call chooses it (`SQUALL_MEMBARRIER=off` forces the fence).
///
/// # Cost
/// One load after the first call, which makes a few system calls.
#[cfg(not(any(loom, miri, squall_tsan)))]
pub fn mode() -> Mode {
    static MODE: squall_sync::sync::OnceLock<Mode> = squall_sync::sync::OnceLock::new();
    *MODE.get_or_init(choose)
}

#[cfg(not(any(loom, miri, squall_tsan)))]
fn choose() -> Mode {
    const TRIALS: usize = 5;
    if std::env::var_os("SQUALL_MEMBARRIER").is_some_and(|value| value == "off") {
        return Mode::Fence(Why::SwitchedOff);
    }
    if let Err(why) = squall_sys::membarrier::register() {
        return Mode::Fence(Why::Unavailable(why));
    }
    let mut trials_ns = [0; TRIALS];
    for trial in &mut trials_ns {
        let start = std::time::Instant::now();
        if let Err(why) = squall_sys::membarrier::barrier() {
            return Mode::Fence(Why::Unavailable(why));
        }
        *trial = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }
    trials_ns.sort_unstable();
    let median_ns = trials_ns[TRIALS / 2];
    if median_ns > SLOW_NS { Mode::Fence(Why::Slow(median_ns)) } else { Mode::Membarrier }
}
