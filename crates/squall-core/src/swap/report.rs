//! What is recorded of a swap, and why one did not happen.

use squall_rcu::{PinError, WaitError};
use squall_sys::sync::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::time::{Duration, SystemTime};

use crate::protocol::id::Id;

/// The steps of a swap, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SwapPhase {
    /// The mediator takes the object's place: up to the first suspended header and the last. Nobody waits.
    Attach,
    /// Calls are counted and passed on, until those that are not counted are over. Nobody waits.
    Forward,
    /// New calls wait, until those that are counted are over.
    Block,
    /// Every call waits, while the state moves.
    Transfer,
    /// The new object takes the place, and those who wait are let go.
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

/// How a swap ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwapOutcome {
    /// The new object serves.
    Swapped,
    /// The old object serves on, with all its state; or none does any more ([`SwapFailure::Destroyed`]).
    RolledBack(SwapFailure),
}

/// A swap, as it went.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SwapReport {
    /// The object, as the interface it was made for.
    pub id: Id,
    /// That interface.
    pub interface: &'static str,
    /// The class that served.
    pub from: &'static str,
    /// The class that was to serve.
    pub to: &'static str,
    /// When it began.
    pub began: SystemTime,
    /// How long each phase took; zero for those that were not reached.
    pub attach: Duration,
    /// See [`SwapPhase::Forward`].
    pub forward: Duration,
    /// See [`SwapPhase::Block`].
    pub block: Duration,
    /// See [`SwapPhase::Transfer`].
    pub transfer: Duration,
    /// See [`SwapPhase::Complete`].
    pub complete: Duration,
    /// Calls that the mediator counted and passed to the old object, modulo 2^32.
    pub forwarded: u64,
    /// Calls that waited.
    pub blocked: u64,
    /// The longest time between the moment when a call began to wait and the moment when all were let go. How long the
    /// system then took to run its thread is not in it.
    pub longest_pause: Duration,
    /// The same for each call that waited: for the first [`SwapReport::PAUSES_MAX`] of them, which waited longest.
    pub pauses: Vec<Duration>,
    /// The format in which the state moved, if it did.
    pub format: Option<&'static str>,
    /// In how many parts.
    pub parts: usize,
    /// Bytes of state that moved, as the formats count them.
    pub bytes: usize,
    /// How it ended.
    pub outcome: SwapOutcome,
}

impl SwapReport {
    /// The most pauses that are recorded of a swap.
    pub const PAUSES_MAX: usize = crate::call::mediated::PAUSES_MAX;

    /// From the first step to the last.
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

/// Why a swap did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwapFailure {
    /// The object was destroyed, before or meanwhile.
    Destroyed,
    /// A well-known object that is not installed yet.
    NotThere,
    /// Another swap of the object is under way.
    Busy,
    /// In an upgrade of a class: it was swapped for another class since.
    Replaced,
    /// Another function arbitrates the object's calls already.
    Arbitrated,
    /// The calling thread is inside an operation: the swap would wait for itself.
    InOperation,
    /// The calling thread is in a method of this object: the swap would wait for itself.
    InMethod,
    /// The calling thread is moving the state of an object.
    InTransfer,
    /// The calling thread runs a deferred call, a drop for example: the swap would wait for itself.
    InDeferredCall,
    /// The reference is of an interface that the object's own one extends: what takes its place must have that one.
    WrongInterface,
    /// The two implementations have no format in common.
    NoCommonFormat,
    /// The interface has no method of the name that was asked for.
    NoSuchMethod,
    /// The time was over in this phase.
    TimedOut(SwapPhase),
    /// It was cancelled in this phase.
    Cancelled(SwapPhase),
    /// An export, an import, or the making of a representative failed.
    TransferFailed,
    /// One of them panicked.
    TransferPanicked,
    /// There is no address space for the tables.
    OutOfMemory,
    /// No grace period can be concluded any more.
    NoFence,
    /// This process is the child of a fork, which may only exec.
    Forked,
    /// From a signal handler that interrupted a cold path of Squall on this thread.
    Reentrant,
}

impl fmt::Display for SwapFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SwapFailure::Destroyed => f.write_str("the object was destroyed"),
            SwapFailure::NotThere => f.write_str("the object is not installed"),
            SwapFailure::Busy => f.write_str("another swap of it is under way"),
            SwapFailure::Replaced => f.write_str("another class has taken its place since"),
            SwapFailure::Arbitrated => f.write_str("another function arbitrates its calls"),
            SwapFailure::InOperation => {
                f.write_str("asked for inside an operation, it would wait for itself")
            }
            SwapFailure::InMethod => {
                f.write_str("asked for inside a method of the same object, it would wait for itself")
            }
            SwapFailure::InTransfer => f.write_str("asked for by a thread that moves the state of an object"),
            SwapFailure::InDeferredCall => {
                f.write_str("asked for inside a deferred call or a drop, it would wait for itself")
            }
            SwapFailure::WrongInterface => {
                f.write_str("the reference is of an interface that the object's own one extends")
            }
            SwapFailure::NoCommonFormat => f.write_str("the two have no format of state in common"),
            SwapFailure::NoSuchMethod => f.write_str("the interface has no such method"),
            SwapFailure::TimedOut(phase) => write!(f, "the time was over in its phase {phase}"),
            SwapFailure::Cancelled(phase) => write!(f, "cancelled in its phase {phase}"),
            SwapFailure::TransferFailed => f.write_str("the state could not be moved"),
            SwapFailure::TransferPanicked => f.write_str("moving the state panicked"),
            SwapFailure::OutOfMemory => f.write_str("no address space for the tables of objects"),
            SwapFailure::NoFence => f.write_str("no grace period can be concluded"),
            SwapFailure::Forked => f.write_str("this is the child of a fork, which may only exec"),
            SwapFailure::Reentrant => f.write_str("a signal handler interrupted a cold path on this thread"),
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

/// A swap that did not happen: whatever served before serves on. The implementation that was to take its place was dropped;
/// where the swap was asked for inside an operation, later and outside.
pub struct SwapError(Box<Details>);

struct Details {
    interface: &'static str,
    id: Id,
    failure: SwapFailure,
    detail: Option<Box<dyn Error + Send + Sync>>,
    report: Option<SwapReport>,
}

impl SwapError {
    pub(crate) fn new(interface: &'static str, id: Id, failure: SwapFailure) -> SwapError {
        SwapError(Box::new(Details { interface, id, failure, detail: None, report: None }))
    }

    pub(crate) fn because(mut self, detail: Option<Box<dyn Error + Send + Sync>>) -> SwapError {
        self.0.detail = detail;
        self
    }

    pub(crate) fn with(mut self, report: SwapReport) -> SwapError {
        self.0.report = Some(report);
        self
    }

    /// The object.
    pub fn id(&self) -> Id {
        self.0.id
    }

    /// Why.
    pub fn failure(&self) -> SwapFailure {
        self.0.failure
    }

    /// How far it came, if it began.
    pub fn report(&self) -> Option<&SwapReport> {
        self.0.report.as_ref()
    }
}

impl fmt::Display for SwapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "swap of {}#{}", self.0.interface, self.0.id)?;
        if let Some(report) = &self.0.report {
            write!(f, " from {} to {}", report.from, report.to)?;
        }
        write!(f, ": {}", self.0.failure)?;
        match &self.0.detail {
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

/// So many swaps are remembered.
const RECENT_MAX: usize = 256;

static RECENT: Mutex<VecDeque<SwapReport>> = Mutex::new(VecDeque::new());

/// The last swaps of this process, the latest last: at most 256, those that were rolled back among them. Those that were
/// refused before they began are not.
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
    // Nothing panics under this lock but a failed allocation, which leaves the list whole.
    RECENT.lock().unwrap_or_else(|poison| poison.into_inner())
}
