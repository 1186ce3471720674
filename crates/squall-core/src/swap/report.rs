//! Reports of swaps, and the reasons why a swap fails.

use squall_rcu::{PinError, WaitError};
use squall_sys::sync::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::time::{Duration, SystemTime};

use crate::protocol::id::Id;
use crate::protocol::names::{Name, name_of};

/// The phases of a swap, in order.
///
/// ```
/// use squall::swap::SwapPhase;
///
/// assert!(SwapPhase::Block < SwapPhase::Transfer);
/// assert_eq!(SwapPhase::Transfer.to_string(), "transfer");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SwapPhase {
    /// The mediator takes the object's place: up to the moment when every header is suspended. No call waits.
    Attach,
    /// Calls are counted and passed on, until the uncounted calls are over. No call waits.
    Forward,
    /// New calls wait, until the counted calls are over.
    Block,
    /// Every call waits while the state moves.
    Transfer,
    /// The new object takes the place, and the waiting calls continue.
    Complete,
}

impl fmt::Display for SwapPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SwapPhase::Attach => "attach",
            SwapPhase::Forward => "forward",
            SwapPhase::Block => "block",
            SwapPhase::Transfer => "transfer",
            SwapPhase::Complete => "complete",
        })
    }
}

/// The outcome of a swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwapOutcome {
    /// The new object serves.
    Swapped,
    /// The old object serves on with all its state. After [`SwapFailure::Destroyed`] no object serves.
    RolledBack(SwapFailure),
}

/// The report of a swap.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::swap::{Replacement, SwapOutcome, swap};
///
/// let counter = squall::swappable::<dyn Counter, _>(Central::default());
/// let report = swap(counter.handle(), Replacement::root(Spread, squall::ClusterSize::Cpu))?;
/// assert_eq!(report.outcome, SwapOutcome::Swapped);
/// assert_eq!((report.interface, report.parts), ("Counter", 1));
/// println!("{} bytes in {:?}", report.bytes, report.transfer);
/// # Ok::<(), squall::swap::SwapError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SwapReport {
    /// The object's id, under the interface it was made for.
    pub id: Id,
    /// The interface that the object was made for.
    pub interface: &'static str,
    /// The class of the old object.
    pub from: &'static str,
    /// The class of the new object.
    pub to: &'static str,
    /// The time when the swap began.
    pub began: SystemTime,
    /// Duration of [`SwapPhase::Attach`]. The duration of a phase that was not reached is zero.
    pub attach: Duration,
    /// Duration of [`SwapPhase::Forward`].
    pub forward: Duration,
    /// Duration of [`SwapPhase::Block`].
    pub block: Duration,
    /// Duration of [`SwapPhase::Transfer`].
    pub transfer: Duration,
    /// Duration of [`SwapPhase::Complete`].
    pub complete: Duration,
    /// Number of calls that the mediator counted and passed to the old object, modulo 2^32.
    pub forwarded: u64,
    /// Number of calls that waited.
    pub blocked: u64,
    /// The longest time from the moment when a call began to wait to the moment when all could continue. The
    /// time until the system then ran its thread is not included.
    pub longest_pause: Duration,
    /// The pauses of the first [`SwapReport::PAUSES_MAX`] calls that waited. The first calls to wait wait
    /// longest.
    pub pauses: Vec<Duration>,
    /// The format in which the state moved, if it did.
    pub format: Option<&'static str>,
    /// Number of parts in which the state moved.
    pub parts: usize,
    /// Bytes of state that moved, as the formats count them.
    pub bytes: usize,
    /// The outcome.
    pub outcome: SwapOutcome,
}

impl SwapReport {
    /// The greatest number of pauses recorded for a swap.
    pub const PAUSES_MAX: usize = crate::call::mediated::PAUSES_MAX;

    /// Returns the time from the first phase to the end of the last.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::{Replacement, swap};
    ///
    /// let counter = squall::swappable::<dyn Counter, _>(Central::default());
    /// let report = swap(counter.handle(), Replacement::swappable(Central::default()))?;
    /// assert!(report.total() >= report.transfer);
    /// # Ok::<(), squall::swap::SwapError>(())
    /// ```
    pub fn total(&self) -> Duration {
        self.attach + self.forward + self.block + self.transfer + self.complete
    }

    pub(crate) fn new(id: Id, interface: &'static str, from: &'static str, to: &'static str) -> SwapReport {
        SwapReport {
            id,
            interface,
            from,
            to,
            began: SystemTime::now(),
            attach: Duration::ZERO,
            forward: Duration::ZERO,
            block: Duration::ZERO,
            transfer: Duration::ZERO,
            complete: Duration::ZERO,
            forwarded: 0,
            blocked: 0,
            longest_pause: Duration::ZERO,
            pauses: Vec::new(),
            format: None,
            parts: 0,
            bytes: 0,
            outcome: SwapOutcome::Swapped,
        }
    }
}

/// The reason why a swap failed.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::swap::{Replacement, SwapFailure, swap};
///
/// let counter = squall::swappable::<dyn Counter, _>(Central::default());
/// let inside = squall::rcu::pin(|_| swap(counter.handle(), Replacement::swappable(Central::default())));
/// assert_eq!(inside.unwrap_err().failure(), SwapFailure::InOperation);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwapFailure {
    /// The object was destroyed, before or during the swap.
    Destroyed,
    /// The object is well-known and is not installed yet.
    NotThere,
    /// Another swap of the object is in progress.
    Busy,
    /// In an upgrade of a class: the object was swapped for another class after the factory listed it.
    Replaced,
    /// Another function already arbitrates the object's calls.
    Arbitrated,
    /// The calling thread is inside an operation: the swap would wait for itself.
    InOperation,
    /// The calling thread is in a method of this object: the swap would wait for itself.
    InMethod,
    /// The calling thread is moving the state of an object.
    InTransfer,
    /// The calling thread runs a deferred call, such as a drop: the swap would wait for itself.
    InDeferredCall,
    /// The handle is of an interface that the object's own interface extends. The replacement must have the
    /// object's own interface.
    WrongInterface,
    /// The two implementations have no state format in common.
    NoCommonFormat,
    /// The interface has no method of the given name.
    NoSuchMethod,
    /// The time limit expired in this phase.
    TimedOut(SwapPhase),
    /// The swap was cancelled in this phase.
    Cancelled(SwapPhase),
    /// An export, an import or the making of a representative failed.
    TransferFailed,
    /// An export, an import or the making of a representative panicked.
    TransferPanicked,
    /// There is no memory for the new object, or no address space for the tables.
    OutOfMemory,
    /// Grace periods have become impossible in this process.
    NoFence,
    /// The process is the child of a fork, which may only exec.
    Forked,
    /// The call comes from a signal handler that interrupted a slow path of Squall on this thread.
    Reentrant,
}

impl fmt::Display for SwapFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SwapFailure::Destroyed => {
                f.write_str("the object was destroyed; keep its owner as long as it is used")
            }
            SwapFailure::NotThere => {
                f.write_str("the object is not installed yet; install it first (`WellKnown`)")
            }
            SwapFailure::Busy => f.write_str("another swap of the object is in progress; try again after it"),
            SwapFailure::Replaced => {
                f.write_str("the object was swapped for another class after the factory listed it")
            }
            SwapFailure::Arbitrated => {
                f.write_str("another function arbitrates the calls of the object; drop its `Arbiter` first")
            }
            SwapFailure::InOperation => {
                f.write_str("a swap inside an operation would wait for itself; swap outside operations")
            }
            SwapFailure::InMethod => f.write_str(
                "a swap inside a method of the same object would wait for itself; swap outside its methods",
            ),
            SwapFailure::InTransfer => {
                f.write_str("this thread moves the state of an object; swap from another thread")
            }
            SwapFailure::InDeferredCall => {
                f.write_str("a swap inside a deferred call or a drop would wait for itself; swap outside")
            }
            SwapFailure::WrongInterface => f.write_str(
                "the handle is of an extended interface; use a handle of the object's own interface",
            ),
            SwapFailure::NoCommonFormat => {
                f.write_str("the two implementations have no state format in common")
            }
            SwapFailure::NoSuchMethod => f.write_str("the interface has no such method"),
            SwapFailure::TimedOut(phase) => {
                write!(
                    f,
                    "the time limit expired in phase {phase}; allow more time, or shorten the calls of the object"
                )
            }
            SwapFailure::Cancelled(phase) => write!(f, "the swap was cancelled in phase {phase}"),
            SwapFailure::TransferFailed => f.write_str("the state could not be moved"),
            SwapFailure::TransferPanicked => f.write_str("moving the state panicked"),
            SwapFailure::OutOfMemory => f.write_str(
                "there is no memory for the new object or the tables; free memory or raise the limits",
            ),
            SwapFailure::NoFence => f.write_str(
                "grace periods have become impossible in this process; run it with SQUALL_MEMBARRIER=off",
            ),
            SwapFailure::Forked => f.write_str("this is the child of a fork, which may only exec"),
            SwapFailure::Reentrant => f.write_str(
                "a signal handler interrupted a slow path of Squall on this thread; swap outside handlers",
            ),
        }
    }
}

impl From<PinError> for SwapFailure {
    fn from(error: PinError) -> SwapFailure {
        match error {
            PinError::Forked => SwapFailure::Forked,
            PinError::Reentrant => SwapFailure::Reentrant,
        }
    }
}

impl From<WaitError> for SwapFailure {
    fn from(error: WaitError) -> SwapFailure {
        match error {
            WaitError::InOperation => SwapFailure::InOperation,
            WaitError::InDeferredCall => SwapFailure::InDeferredCall,
            WaitError::InTransfer => SwapFailure::InTransfer,
            WaitError::Timeout => SwapFailure::TimedOut(SwapPhase::Forward),
            WaitError::Forked => SwapFailure::Forked,
            _ => SwapFailure::NoFence,
        }
    }
}

/// A swap that failed. The implementation that served before serves on. The replacement was dropped; if the
/// swap was requested inside an operation, it is dropped later and outside.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::swap::{Replacement, SwapFailure, swap};
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default()); // its state cannot move
/// let error = swap(counter.handle(), Replacement::swappable(Central::default())).unwrap_err();
/// assert_eq!(error.failure(), SwapFailure::NoCommonFormat);
/// assert!(error.report().is_none()); // it failed before the first phase
/// ```
pub struct SwapError(Box<Details>);

struct Details {
    /// Begins the text: the act that failed.
    act: &'static str,
    interface: &'static str,
    id: Id,
    name: Option<Name>,
    failure: SwapFailure,
    detail: Option<Box<dyn Error + Send + Sync>>,
    report: Option<SwapReport>,
}

impl SwapError {
    pub(crate) fn new(interface: &'static str, id: Id, failure: SwapFailure) -> SwapError {
        let name = name_of(id);
        SwapError(Box::new(Details { act: "swap", interface, id, name, failure, detail: None, report: None }))
    }

    /// Makes the error of an arbiter that was not attached.
    pub(crate) fn of_arbiter(interface: &'static str, id: Id, failure: SwapFailure) -> SwapError {
        let mut error = SwapError::new(interface, id, failure);
        error.0.act = "arbitration";
        error
    }

    pub(crate) fn because(mut self, detail: Option<Box<dyn Error + Send + Sync>>) -> SwapError {
        self.0.detail = detail;
        self
    }

    pub(crate) fn with(mut self, report: SwapReport) -> SwapError {
        self.0.report = Some(report);
        self
    }

    /// Returns the id of the object.
    pub fn id(&self) -> Id {
        self.0.id
    }

    /// Returns the name that the program gave the object, if it did ([`Owned::named`](crate::Owned::named)).
    pub fn name(&self) -> Option<&Name> {
        self.0.name.as_ref()
    }

    /// Returns the reason.
    pub fn failure(&self) -> SwapFailure {
        self.0.failure
    }

    /// Returns the report, if the swap reached its first phase.
    pub fn report(&self) -> Option<&SwapReport> {
        self.0.report.as_ref()
    }
}

impl fmt::Display for SwapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { act, interface, id, name, failure, detail, report } = &*self.0;
        write!(f, "{act} of {interface}#{id}")?;
        if let Some(name) = name {
            write!(f, " {name:?}")?;
        }
        if let Some(report) = report {
            write!(f, " from {} to {}", report.from, report.to)?;
        }
        write!(f, ": {failure}")?;
        match detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for SwapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SwapError({self})")
    }
}

impl Error for SwapError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.detail.as_deref().map(|detail| detail as &(dyn Error + 'static))
    }
}

/// The number of swaps that are remembered.
const RECENT_MAX: usize = 256;

static RECENT: Mutex<VecDeque<SwapReport>> = Mutex::new(VecDeque::new());

/// Returns the last swaps of this process, the latest last: at most 256, including those that were rolled
/// back. Swaps that failed before the first phase are not included.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::swap::{Replacement, recent, swap};
///
/// let counter = squall::swappable::<dyn Counter, _>(Central::default());
/// swap(counter.handle(), Replacement::swappable(Central::default()))?;
/// assert_eq!(recent().last().unwrap().interface, "Counter");
/// # Ok::<(), squall::swap::SwapError>(())
/// ```
pub fn recent() -> Vec<SwapReport> {
    if squall_sys::fork::forked() {
        return Vec::new();
    }
    lock().iter().cloned().collect()
}

pub(crate) fn remember(report: &SwapReport) {
    let report = report.clone();
    let mut recent = lock();
    let forgotten = if recent.len() >= RECENT_MAX { recent.pop_front() } else { None };
    recent.push_back(report);
    drop(recent);
    drop(forgotten);
}

fn lock() -> MutexGuard<'static, VecDeque<SwapReport>> {
    // A panic under this lock comes only from a failed allocation, which leaves the list intact.
    RECENT.lock().unwrap_or_else(|poison| poison.into_inner())
}
