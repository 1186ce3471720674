//! A call that was shipped, and its result.

use super::cargo::Panic;
use super::inbox::Ticket;
use super::vps::{VpInbox, note_look, waiting};
use crate::unpark::{Unpark, park_until};
use squall_rcu::{__run_served as run_served, WaitError};
use squall_sys::fork::forked;
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::{Mutex, hint, lock};
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The number of looks for the result before a thread sleeps, if a thread of the program serves the VP.
const SPINS: usize = 200;

/// The reason why a shipped call has no result.
///
/// # Example
/// ```
/// use squall::ship::{ShipError, ship};
///
/// let call = ship(squall::Vp::current(), || panic!("no such file")).ok().unwrap();
/// match call.wait() {
///     Err(ShipError::Panicked(payload)) => assert_eq!(payload.message(), "no such file"),
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum ShipError {
    /// The closure panicked.
    Panicked(Payload),
    /// The result was waited for inside an operation, where a thread must not wait.
    InOperation,
    /// The result was waited for in another place where a thread must not wait: in a deferred call, or in the
    /// transfer of an object's state.
    MayNotWait(WaitError),
    /// The process is the child of a fork, which has no thread to serve the call.
    Forked,
    /// The inbox of the cluster was full. For calls to many clusters; the closure did not run there.
    Full,
    /// The system refused a thread to serve the call. For calls to many clusters and calls that are awaited;
    /// the closure did not run.
    NoThread,
}

impl fmt::Display for ShipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShipError::Panicked(payload) => write!(f, "the shipped call panicked: {}", payload.message()),
            ShipError::InOperation => {
                f.write_str("a shipped call was waited for inside an operation; wait for it outside")
            }
            ShipError::Forked => {
                f.write_str("a shipped call cannot end in the child of a fork, which may only exec")
            }
            ShipError::MayNotWait(error) => write!(f, "a shipped call was waited for: {error}"),
            ShipError::Full => f.write_str("the inbox of the cluster was full; ship the call again later"),
            ShipError::NoThread => f.write_str(
                "a shipped call did not run: no thread could be started to serve it; ship it again later",
            ),
        }
    }
}

impl std::error::Error for ShipError {}

/// The payload of a panic.
pub struct Payload(Mutex<Box<dyn Any + Send>>);

impl Payload {
    pub(super) fn new(payload: Panic) -> Payload {
        Payload(Mutex::new(payload))
    }

    /// Returns the panic's message, or `no message` if the payload is not text.
    pub fn message(&self) -> String {
        let payload = lock(&self.0, "the payload of a panic");
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
    }

    /// Returns the payload itself.
    pub fn into_inner(self) -> Box<dyn Any + Send> {
        self.0.into_inner().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Resumes the panic on this thread.
    pub fn resume(self) -> ! {
        std::panic::resume_unwind(self.into_inner())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({:?})", self.message())
    }
}

/// A shipped call. [Wait](PendingCall::wait) for its result, [poll](PendingCall::try_take) it, or await it.
///
/// If it is dropped, the call is cancelled if no thread has begun it. Otherwise the call goes on, and its
/// result is dropped, as a rule on the thread that runs it. [`detach`](PendingCall::detach) lets the call run
/// in any case. The future needs no particular runtime.
///
/// Each way to look for the result asks for a thread that serves the call, unless one was asked for before.
///
/// A call has a slot of the inbox. Taking the result frees the slot. Dropping the pending call frees it at
/// once, or at the end of a call that runs. A pending call that is kept with its result, or leaked, keeps its
/// slot for as long. So 64 of them make an inbox full.
///
/// In a shipped closure, a thread that polls another call counts as waiting until the closure returns. So
/// `block_on` of calls in a circle works. Squall does not see other waits, as for
/// a message in a channel. If a closure waits so for a call to its own VP, both may wait for ever.
///
/// # Example
/// ```
/// use squall::ship::ship;
/// use squall::Vp;
/// use std::time::Duration;
///
/// let mut call = ship(Vp::new(0), || 6 * 7)?;
/// let result = loop {
///     if let Some(result) = call.wait_timeout(Duration::from_millis(10)) {
///         break result;
///     }
/// };
/// assert_eq!(result?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a call that no thread has begun is cancelled if this is dropped"]
pub struct PendingCall<R: Send + 'static>(State<R>);

enum State<R> {
    Done(Result<R, ShipError>),
    Sent(Sent<R>),
    Taken,
}

struct Sent<R> {
    to: &'static VpInbox,
    ticket: Ticket,
    /// The inbox was asked for a server, and may have one (`vps/I2`). Relaxed: no other data depends on it.
    asked: AtomicBool,
    result: PhantomData<fn() -> R>,
}

// The result is moved out of the slot by value, and no part of this is pinned.
impl<R: Send + 'static> Unpin for PendingCall<R> {}

/// Converts the result of a call.
pub(super) fn outcome<R>(result: Result<R, Panic>) -> Result<R, ShipError> {
    result.map_err(|payload| ShipError::Panicked(Payload::new(payload)))
}

impl<R> Sent<R> {
    /// Asks for a server, once. Returns false if there may be none.
    fn ask(&self) -> bool {
        if self.asked.load(Ordering::Relaxed) {
            return true;
        }
        let may_be_served = self.to.ask();
        self.asked.store(may_be_served, Ordering::Relaxed);
        may_be_served
    }

    fn is_done(&self) -> bool {
        self.to.inbox.is_done(&self.ticket)
    }

    /// Cancels the call, unless a thread has begun it.
    fn cancel(self) -> Result<(), Self> {
        let Sent { to, ticket, asked, result } = self;
        to.inbox.cancel(ticket).map_err(|ticket| Sent { to, ticket, asked, result })
    }

    /// Looks for the result without a wait. If it is absent, asks for a server.
    fn look(&self) -> Look {
        if self.is_done() {
            return Look::Done;
        }
        let may_be_served = self.ask();
        note_look();
        if may_be_served { Look::Pending } else { Look::Unserved }
    }
}

/// The outcome of a look for a result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Done,
    Pending,
    /// Pending, and no thread could be started to serve the call.
    Unserved,
}

/// Checks whether the calling thread may wait. In the child of a fork a result may be there.
pub(super) fn may_wait() -> Result<(), ShipError> {
    match squall_rcu::__may_wait() {
        Ok(()) | Err(WaitError::Forked) => Ok(()),
        Err(WaitError::InOperation) => Err(ShipError::InOperation),
        Err(error) => Err(ShipError::MayNotWait(error)),
    }
}

impl<R: Send + 'static> PendingCall<R> {
    pub(super) fn done(result: Result<R, Panic>) -> PendingCall<R> {
        PendingCall(State::Done(outcome(result)))
    }

    /// The ticket is that of a call with a result of type `R`.
    pub(super) fn sent(to: &'static VpInbox, ticket: Ticket, asked: bool) -> PendingCall<R> {
        PendingCall(State::Sent(Sent { to, ticket, asked: AtomicBool::new(asked), result: PhantomData }))
    }

    /// Returns whether the result is there.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            State::Done(_) => true,
            State::Sent(sent) => !forked() && sent.look() == Look::Done,
            State::Taken => false,
        }
    }

    /// Returns the result if it is there, and takes it.
    ///
    /// # Panics
    /// If the result was taken before.
    pub fn try_take(&mut self) -> Option<Result<R, ShipError>> {
        self.look().map_or_else(Some, |look| (look == Look::Done).then(|| self.take()))
    }

    /// Looks for the result. In the child of a fork returns the error of the call.
    fn look(&mut self) -> Result<Look, Result<R, ShipError>> {
        match &self.0 {
            State::Done(_) => Ok(Look::Done),
            State::Sent(_) if forked() => Err(Err(ShipError::Forked)),
            State::Sent(sent) => Ok(sent.look()),
            State::Taken => panic!("the result of a shipped call was taken before"),
        }
    }

    /// Takes the result, which is there.
    fn take(&mut self) -> Result<R, ShipError> {
        match std::mem::replace(&mut self.0, State::Taken) {
            State::Done(result) => result,
            State::Sent(Sent { to, ticket, .. }) => {
                // SAFETY: the call's result has the type `R` (`sent`), and is there.
                outcome(unsafe { to.inbox.take_result(ticket) })
            }
            State::Taken => panic!("the result of a shipped call was taken before"),
        }
    }

    /// Blocks the thread until the result is there.
    ///
    /// If the system refuses a thread to serve the target, the calling thread runs the call.
    ///
    /// # Errors
    /// [`ShipError`]. Where the thread must not wait, that is an error also if the result is there. A call
    /// that no thread has begun is cancelled then.
    ///
    /// # Panics
    /// If the result was taken before, for example by [`wait_timeout`](Self::wait_timeout).
    pub fn wait(mut self) -> Result<R, ShipError> {
        self.block(None).unwrap_or(Err(ShipError::Forked))
    }

    /// Blocks the thread until the result is there, for at most `limit`. Without a result the call goes on.
    ///
    /// Returns [`ShipError::InOperation`] or [`ShipError::MayNotWait`] where the thread must not wait, and
    /// leaves the call as it is. If the system refuses a thread to serve the target, the calling thread runs
    /// the call, however long that takes.
    ///
    /// # Panics
    /// If the result was taken before.
    pub fn wait_timeout(&mut self, limit: Duration) -> Option<Result<R, ShipError>> {
        let deadline = Instant::now().checked_add(limit);
        self.block(deadline)
    }

    /// Blocks the thread until the result is there, or until `deadline`. Otherwise like
    /// [`wait_timeout`](PendingCall::wait_timeout).
    ///
    /// # Panics
    /// If the result was taken before.
    pub fn wait_until(&mut self, deadline: Instant) -> Option<Result<R, ShipError>> {
        self.block(Some(deadline))
    }

    /// Lets the call run, also if no thread has begun it, and drops its result. The call is lost if the
    /// process ends before.
    ///
    /// If the system refuses a thread to serve the target, the call waits for a thread that serves there by
    /// itself, or for the next call to that VP.
    pub fn detach(mut self) {
        if let State::Sent(sent) = std::mem::replace(&mut self.0, State::Taken)
            && !forked()
        {
            sent.ask();
            sent.to.inbox.detach(sent.ticket);
        }
    }

    fn block(&mut self, deadline: Option<Instant>) -> Option<Result<R, ShipError>> {
        if let Err(error) = may_wait() {
            return Some(Err(error));
        }
        if let State::Sent(sent) = &self.0
            && !forked()
        {
            sent.wait(deadline);
        }
        self.try_take()
    }
}

impl<R> Sent<R> {
    /// Waits for the result, or until `deadline`. The caller may wait.
    fn wait(&self, deadline: Option<Instant>) {
        let spins = if self.to.is_served() { SPINS } else { 0 };
        for _ in 0..spins {
            if self.is_done() {
                return;
            }
            hint::spin_loop();
        }
        if self.is_done() {
            return;
        }
        if !self.ask()
            && let Some(call) = self.to.inbox.take_back(&self.ticket)
        {
            // Nobody else may ever run it.
            run_served(|| self.to.inbox.run(call));
            return;
        }
        let sleep = || {
            if !self.to.inbox.watch(&self.ticket, &Unpark::waker()) {
                park_until(deadline, || self.is_done());
            }
        };
        waiting(|| self.is_done(), sleep);
    }
}

impl<R: Send + 'static> Future for PendingCall<R> {
    type Output = Result<R, ShipError>;

    /// If the system refuses a thread to serve the call, the result is [`ShipError::NoThread`].
    ///
    /// # Panics
    /// If the result was taken before.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R, ShipError>> {
        let this = self.get_mut();
        let look = match this.look() {
            Ok(look) => look,
            Err(result) => return Poll::Ready(result),
        };
        if look == Look::Unserved
            && let State::Sent(sent) = std::mem::replace(&mut this.0, State::Taken)
        {
            match sent.cancel() {
                // No thread would wake the task.
                Ok(()) => return Poll::Ready(Err(ShipError::NoThread)),
                Err(sent) => this.0 = State::Sent(sent),
            }
        }
        match &this.0 {
            State::Sent(sent) if !sent.to.inbox.watch(&sent.ticket, context.waker()) => Poll::Pending,
            _ => Poll::Ready(this.take()),
        }
    }
}

impl<R: Send + 'static> Drop for PendingCall<R> {
    fn drop(&mut self) {
        let State::Sent(sent) = std::mem::replace(&mut self.0, State::Taken) else { return };
        if !forked()
            && let Err(sent) = sent.cancel()
        {
            sent.to.inbox.detach(sent.ticket);
        }
    }
}

impl<R: Send + 'static> fmt::Debug for PendingCall<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_finished = match &self.0 {
            State::Done(_) => true,
            State::Sent(sent) => sent.is_done(),
            State::Taken => false,
        };
        f.debug_struct("PendingCall").field("is_finished", &is_finished).finish_non_exhaustive()
    }
}
