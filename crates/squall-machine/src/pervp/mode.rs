//! The mode in which the process runs its per-VP operations, and the only later change of that mode.
//!
//! The invariants `pervp/I3` and `pervp/I4` in the parent module depend on this file. The states, which only
//! ever advance:
//!
//! ```text
//! UNSET --initialise--> ATOMIC
//!       --initialise--> RESTARTABLE --settle--> (AREA_OFFSET = own; restart all in flight) --> ATOMIC, downgraded
//! ```
//!
//! `settle` takes no lock. Each thread that comes from the atomic path and finds the state RESTARTABLE does
//! all the steps itself. So `settle` may run in a signal handler that interrupted another `settle`.

use crate::current::AREA_OFFSET;
use crate::machine::machine;
use squall_sys::padded::CachePadded;
use squall_sys::rseq::NoArea;
use squall_sys::sync::Once;
use squall_sys::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use squall_sys::{area, membarrier, rseq};
use std::fmt;

/// Mode in which the process runs its per-VP operations.
///
/// # Example
/// ```
/// use squall::pervp::{RestartMode, restart_mode};
///
/// match restart_mode() {
///     RestartMode::Restartable => println!("plain instructions"),
///     RestartMode::Atomic { why } => println!("atomic instructions: {why}"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartMode {
    /// Restartable sequences: no lock prefix, no compare-exchange.
    Restartable,
    /// Atomic instructions on the VP's words.
    Atomic {
        /// Reason for this mode.
        why: AtomicReason,
    },
}

/// Reason why a process runs its per-VP operations by atomic instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicReason {
    /// The environment variable `SQUALL_RSEQ` is `off`.
    SwitchedOff,
    /// The topology is virtual, so the kernel does not know which VP a thread is on.
    VirtualTopology,
    /// The sequences do not exist for this platform or build.
    Platform,
    /// The C library registered no restartable sequences.
    Library,
    /// The kernel refused restartable sequences to the thread that asked first.
    Refused,
    /// A later thread had no restartable sequences, so all threads had to give them up.
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

impl fmt::Display for AtomicReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AtomicReason::SwitchedOff => "SQUALL_RSEQ=off",
            AtomicReason::VirtualTopology => "virtual topology",
            AtomicReason::Platform => "no restartable sequences on this platform or in this build",
            AtomicReason::Library => "the C library registered no restartable sequences",
            AtomicReason::Refused => "the kernel refused restartable sequences",
            AtomicReason::Downgraded => "given up while running: a thread has no restartable sequences",
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

static STATE: CachePadded<AtomicU8> = CachePadded::new(AtomicU8::new(UNSET));

/// The machine's VP limit, which never changes, readable in one load. Stored before `STATE` leaves UNSET.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// True if the kernel restarts the sequences in flight on request. Stored before `STATE` leaves UNSET.
static CAN_RESTART: AtomicBool = AtomicBool::new(false);

/// True if the process runs or ran sequences, and the kernel restarts them on request. A sandbox entered
/// later may still refuse the request. Callers without a per-VP object must call [`initialise`] first.
#[inline]
pub(crate) fn can_restart() -> bool {
    // Relaxed: ordered by `initialise`, as in `vp_limit`.
    CAN_RESTART.load(Ordering::Relaxed)
}

/// Upper limit of VP indices. Callers without a per-VP object must call [`initialise`] first.
#[inline]
pub(crate) fn vp_limit() -> usize {
    // Relaxed: `initialise` came before, in this thread or in the thread that handed over the object.
    LIMIT.load(Ordering::Relaxed)
}

/// Chooses the mode, once per process. After it returns, `AREA_OFFSET` is not 0 and the limit is known.
#[inline]
pub(crate) fn initialise() {
    // Acquire: pairs with the Release store of `STATE` in `initialise_once`. A thread that sees a state also
    // sees the `AREA_OFFSET` and the limit stored before it.
    if STATE.load(Ordering::Acquire) == UNSET {
        initialise_once();
    }
}

#[cold]
fn initialise_once() {
    static CHOOSE: Once = Once::new();
    // The topology comes first and outside `Once`, because it has a once-cell of its own.
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
        // ThreadSanitizer does not see the accesses of assembly.
        return (PLATFORM, own);
    }
    match rseq::registered_area() {
        Ok(offset) => {
            // The registration lets `settle` give the mode up, and lets gates close. Without it the kernel
            // refuses the restart call: `settle` then uses another way, and gates are never opened.
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

/// Returns the mode in which this process runs its per-VP operations. It can change once, from restartable to
/// atomic.
///
/// # Example
/// ```
/// println!("per-VP operations: {}", squall::pervp::restart_mode());
/// ```
pub fn restart_mode() -> RestartMode {
    initialise();
    // Acquire: pairs with the Release stores in `initialise_once` and `give_up`.
    let why = match STATE.load(Ordering::Acquire) {
        RESTARTABLE => return RestartMode::Restartable,
        SWITCHED_OFF => AtomicReason::SwitchedOff,
        VIRTUAL => AtomicReason::VirtualTopology,
        PLATFORM => AtomicReason::Platform,
        LIBRARY => AtomicReason::Library,
        REFUSED => AtomicReason::Refused,
        _ => AtomicReason::Downgraded,
    };
    RestartMode::Atomic { why }
}

/// True if the mode was chosen and has no sequences, so that [`settle`] has no work left.
#[inline]
pub(crate) fn is_settled() -> bool {
    // Acquire: pairs with the Release store in `give_up`. All stores committed by sequences are then visible.
    !matches!(STATE.load(Ordering::Acquire), UNSET | RESTARTABLE)
}

/// Gives restartable mode up if it is on. Every atomic operation calls it first. After it returns, no
/// restartable sequence is in flight or will ever commit.
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
    // 1. Sequences that begin after this store see the negative `cpu_id` of our own block and take the atomic
    //    path. SeqCst: the partner is the barrier of step 2, which orders this store before every later read
    //    of `AREA_OFFSET` by other threads.
    AREA_OFFSET.store(area::own_offset(), Ordering::SeqCst);
    // 2. Sequences in flight restart, and read `AREA_OFFSET` again inside (pervp/I4). Each processor also
    //    passes a barrier, which makes the stores of its earlier sequences visible to this thread.
    rseq::restart_everywhere(vp_limit());
    // 3. Release: pairs with the Acquire load in `is_settled`, for threads that skip 1 and 2 because of this
    //    store.
    STATE.store(DOWNGRADED, Ordering::Release);
}

/// For tests: gives restartable sequences up now, as the first thread without a registration would.
#[doc(hidden)]
pub fn force_downgrade() {
    settle();
}

/// For tests: runs the restartable instructions on our own block, as processor `cpu`, where the kernel has no
/// sequences.
///
/// # Safety
/// No other thread of the process, and no signal handler of this thread, uses per-VP operations.
#[doc(hidden)]
pub unsafe fn pretend_restartable(cpu: u32) {
    initialise();
    assert!((cpu as usize) < vp_limit(), "VP {cpu} does not exist; VP indices are below {}", vp_limit());
    // SAFETY: passed on from this function's contract.
    unsafe { area::pretend_registered(cpu.cast_signed()) };
    CAN_RESTART.store(true, Ordering::Relaxed);
    // SeqCst without a partner: by contract no other thread runs.
    AREA_OFFSET.store(area::own_offset(), Ordering::SeqCst);
    STATE.store(RESTARTABLE, Ordering::SeqCst);
}
