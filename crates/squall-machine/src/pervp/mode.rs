//! In which mode the process runs its per-VP operations, and the one change of mode that can happen later.
//!
//! See `pervp/I3` and `pervp/I4` in the module above for what this must uphold. The states, which only ever advance:
//!
//! ```text
//! UNSET --initialise--> ATOMIC
//!       --initialise--> RESTARTABLE --settle--> (AREA_OFFSET = own; restart all in flight) --> ATOMIC, downgraded
//! ```
//!
//! `settle` takes no lock: each thread that finds the state RESTARTABLE from the atomic path does all of it for itself,
//! so that it may run in a signal handler that interrupted another `settle`.

use crate::machine::machine;
use crate::vp::AREA_OFFSET;
use squall_sys::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use squall_sys::sync::Once;
use squall_sys::apart::Apart;
use squall_sys::rseq::NoArea;
use squall_sys::{area, membarrier, rseq};
use std::fmt;

/// How the process runs its per-VP operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartMode {
    /// By restartable sequences: no lock prefix, no compare-exchange.
    Restartable,
    /// By atomic instructions on the VP's words.
    Atomic {
        /// The reason.
        why: WhyAtomic,
    },
}

/// Why a process runs its per-VP operations by atomic instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyAtomic {
    /// `SQUALL_RSEQ=off`.
    SwitchedOff,
    /// In a virtual topology the kernel does not know which VP a thread is on.
    VirtualTopology,
    /// No form of the sequences for this platform or build.
    Platform,
    /// The C library registered none.
    Library,
    /// The kernel refused them to the thread that asked first.
    Refused,
    /// Some threads have them and one that came later has not, so that all had to give them up.
    Downgraded,
}

impl fmt::Display for RestartMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestartMode::Restartable => f.write_str("restartable"),
            RestartMode::Atomic { why } => write!(f, "atomic ({why})"),
        }
    }
}

impl fmt::Display for WhyAtomic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhyAtomic::SwitchedOff => "SQUALL_RSEQ=off",
            WhyAtomic::VirtualTopology => "virtual topology",
            WhyAtomic::Platform => "no restartable sequences on this platform or in this build",
            WhyAtomic::Library => "the C library registered no restartable sequences",
            WhyAtomic::Refused => "the kernel refused restartable sequences",
            WhyAtomic::Downgraded => "given up while running: a thread has no restartable sequences",
        })
    }
}

const UNSET: u8 = 0;
const RESTARTABLE: u8 = 1;
const SWITCHED_OFF: u8 = 2;
const VIRTUAL: u8 = 3;
const PLATFORM: u8 = 4;
const LIBRARY: u8 = 5;
const REFUSED: u8 = 6;
const DOWNGRADED: u8 = 7;

static STATE: Apart<AtomicU8> = Apart::new(AtomicU8::new(UNSET));

/// The machine's limit, which does not change, where it is read in one load. Stored before `STATE` leaves UNSET.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// Whether the kernel restarts the sequences in flight when it is asked to. Stored before `STATE` leaves UNSET.
static CAN_RESTART: AtomicBool = AtomicBool::new(false);

/// Whether the process runs sequences, or did, and the kernel restarts them when it is asked to, as long as no sandbox is entered
/// where it refuses. Whoever holds a per-VP object may ask; others call [`initialise`] first.
#[inline]
pub(crate) fn can_restart() -> bool {
    // Relaxed: as in `vp_limit`.
    CAN_RESTART.load(Ordering::Relaxed)
}

/// VPs lie below it. Whoever holds a per-VP object may ask; others call [`initialise`] first.
#[inline]
pub(crate) fn vp_limit() -> usize {
    // Relaxed: `initialise` came before, in this thread or in the one that handed the object over.
    LIMIT.load(Ordering::Relaxed)
}

/// Chooses the mode, once per process. When it returns, `AREA_OFFSET` is not 0 and the limit is known.
#[inline]
pub(crate) fn initialise() {
    // Acquire: pairs with the Release store in `choose`. If we see a state, we see the `AREA_OFFSET` and the
    // limit stored before.
    if STATE.load(Ordering::Acquire) == UNSET {
        initialise_once();
    }
}

#[cold]
fn initialise_once() {
    static CHOOSE: Once = Once::new();
    // The topology first and outside `Once`: it is read once of its own accord.
    machine();
    CHOOSE.call_once(|| {
        let (state, offset) = choose();
        LIMIT.store(machine().vp_limit(), Ordering::Relaxed);
        // Release, both: pair with the Acquire loads in `initialise` and `is_settled`.
        AREA_OFFSET.store(offset, Ordering::Release);
        STATE.store(state, Ordering::Release);
    });
}

fn choose() -> (u8, isize) {
    let own = area::own_offset();
    if machine().is_virtual() {
        return (VIRTUAL, own);
    }
    if std::env::var_os("SQUALL_RSEQ").is_some_and(|value| value == "off") {
        return (SWITCHED_OFF, own);
    }
    if cfg!(squall_tsan) {
        // The sanitizer does not see what assembly does.
        return (PLATFORM, own);
    }
    match rseq::registered_area() {
        Ok(offset) => {
            // Needed to give the mode up (`settle`), which has another way if this is refused or switched off, and to close
            // gates, which are then never opened: without the registration the kernel refuses the call.
            if std::env::var_os("SQUALL_MEMBARRIER").is_none_or(|value| value != "off") {
                CAN_RESTART.store(membarrier::register_restart().is_ok(), Ordering::Relaxed);
            }
            (RESTARTABLE, offset)
        }
        Err(NoArea::Platform) => (PLATFORM, own),
        Err(NoArea::Library) => (LIBRARY, own),
        Err(NoArea::Thread(_)) => (REFUSED, own),
    }
}

/// The mode in which this process runs its per-VP operations. It can change once, from restartable to atomic.
pub fn restart_mode() -> RestartMode {
    initialise();
    // Acquire: pairs with the Release stores in `initialise_once` and `give_up`.
    let why = match STATE.load(Ordering::Acquire) {
        RESTARTABLE => return RestartMode::Restartable,
        SWITCHED_OFF => WhyAtomic::SwitchedOff,
        VIRTUAL => WhyAtomic::VirtualTopology,
        PLATFORM => WhyAtomic::Platform,
        LIBRARY => WhyAtomic::Library,
        REFUSED => WhyAtomic::Refused,
        _ => WhyAtomic::Downgraded,
    };
    RestartMode::Atomic { why }
}

/// Whether [`settle`] has nothing to do: the mode was chosen, and has no sequences.
#[inline]
pub(crate) fn is_settled() -> bool {
    // Acquire: pairs with the Release store in `give_up`. Everything that sequences committed is then visible.
    !matches!(STATE.load(Ordering::Acquire), UNSET | RESTARTABLE)
}

/// Called first by every atomic operation: when it returns, no restartable sequence is in flight or will ever commit.
#[inline]
pub(crate) fn settle() {
    if !is_settled() {
        give_up();
    }
}

#[cold]
fn give_up() {
    initialise();
    // Acquire: pairs with the Release store at the end, by another thread that gave up.
    if STATE.load(Ordering::Acquire) != RESTARTABLE {
        return;
    }
    // 1. Sequences that begin after this see our own block's negative `cpu_id` and take the atomic path. SeqCst: the
    //    partner is the barrier of 2, which orders this store before every later read of `AREA_OFFSET` elsewhere.
    AREA_OFFSET.store(area::own_offset(), Ordering::SeqCst);
    // 2. Those in flight restart, and read `AREA_OFFSET` again inside (pervp/I4). The barrier that each processor
    //    passes also makes what earlier sequences stored there visible to us.
    rseq::restart_everywhere(vp_limit());
    // 3. Release: pairs with the Acquire load in `is_settled`, for threads that skip 1 and 2 because of this store.
    STATE.store(DOWNGRADED, Ordering::Release);
}

/// For tests: gives restartable sequences up now, as the first thread without registration would.
#[doc(hidden)]
pub fn force_downgrade() {
    settle();
}

/// For tests: runs the restartable instructions on our own block, as processor `cpu`, where the kernel has none.
///
/// # Safety
/// No other thread of the process uses per-VP operations, and neither do the signal handlers of this one.
#[doc(hidden)]
pub unsafe fn pretend_restartable(cpu: u32) {
    initialise();
    assert!((cpu as usize) < vp_limit(), "no such VP");
    // SAFETY: passed on from this function's contract.
    unsafe { area::pretend_registered(cpu.cast_signed()) };
    CAN_RESTART.store(true, Ordering::Relaxed);
    // SeqCst without a partner: the contract says that this thread is alone.
    AREA_OFFSET.store(area::own_offset(), Ordering::SeqCst);
    STATE.store(RESTARTABLE, Ordering::SeqCst);
}
