//! A call that was shipped, and its result.

use super::cargo::Panic;
use super::inbox::Ticket;
use super::vps::{VpInbox, waiting};
use crate::unpark::{Unpark, park_until};
use squall_sys::fork::forked;
use squall_sys::sync::{Mutex, hint, lock, thread};
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
    /// The result was waited for inside an operation, where a thread must not wait. A call that no thread had
    /// begun was cancelled.
    InOperation,
    /// The process is the child of a fork, which has no thread to serve the call.
    Forked,
    /// The inbox of the cluster was full. For calls to many clusters; the closure did not run there.
    Full,
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
            ShipError::Full => f.write_str("the inbox of the cluster was full; ship the call again later"),
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
/// If it is dropped, the call is cancelled if no thread has begun it; otherwise the call goes on, and its
/// result is dropped on the thread that runs it. [`detach`](PendingCall::detach) lets the call run in any
/// case. The future needs no particular runtime.
///
/// # Example
/// ```
/// use squall::ship::ship;
/// use squall::Vp;
/// use std::time::Duration;
///
/// let mut call = ship(Vp::new(0), || 6 * 7).map_err(|_| "the inbox is full")?;
/// let result = loop {
///     if let Some(result) = call.wait_timeout(Duration::from_millis(10)) {
///         break result;
///     }
/// };
/// assert_eq!(result.unwrap(), 42);
/// # Ok::<(), &'static str>(())
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
    /// The inbox was asked for a server, and may have one (`vps/I2`).
    asked: bool,
    result: PhantomData<fn() -> R>,
}

// The result is moved out of the slot by value, and no part of this is pinned.
impl<R: Send + 'static> Unpin for PendingCall<R> {}

/// Converts the result of a call.
pub(super) fn outcome<R>(result: Result<R, Panic>) -> Result<R, ShipError> {
    result.map_err(|payload| ShipError::Panicked(Payload::new(payload)))
}

impl<R> Sent<R> {
    /// Asks for a server, once.
    fn ask(&mut self) -> bool {
        self.asked = self.asked || self.to.ask();
        self.asked
    }

    fn is_done(&self) -> bool {
        self.to.inbox.is_done(&self.ticket)
    }
}

impl<R: Send + 'static> PendingCall<R> {
    pub(super) fn done(result: Result<R, Panic>) -> PendingCall<R> {
        PendingCall(State::Done(outcome(result)))
    }

    /// The ticket is that of a call with a result of type `R`.
    pub(super) fn sent(to: &'static VpInbox, ticket: Ticket, asked: bool) -> PendingCall<R> {
        PendingCall(State::Sent(Sent { to, ticket, asked, result: PhantomData }))
    }

    /// Returns whether the result is there.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            State::Done(_) => true,
            State::Sent(sent) => !forked() && sent.is_done(),
            State::Taken => false,
        }
    }

    /// Returns the result if it is there, and takes it.
    ///
    /// # Panics
    /// If the result was taken before.
    pub fn try_take(&mut self) -> Option<Result<R, ShipError>> {
        let finished = match &mut self.0 {
            State::Done(_) => true,
            State::Sent(_) if forked() => return Some(Err(ShipError::Forked)),
            State::Sent(sent) => {
                let done = sent.is_done();
                if !done && !sent.ask() {
                    run_here(sent);
                    true
                } else {
                    done
                }
            }
            State::Taken => panic!("the result of a shipped call was taken before"),
        };
        finished.then(|| self.take())
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
    /// [`ShipError`].
    pub fn wait(mut self) -> Result<R, ShipError> {
        self.block(None).unwrap_or(Err(ShipError::InOperation))
    }

    /// Blocks the thread until the result is there, for at most `limit`. Without a result the call goes on.
    ///
    /// # Panics
    /// If the result was taken before.
    pub fn wait_timeout(&mut self, limit: Duration) -> Option<Result<R, ShipError>> {
        let deadline = Instant::now().checked_add(limit);
        self.block(deadline)
    }

    /// Blocks the thread until the result is there, or until `deadline`. Without a result the call goes on.
    ///
    /// # Panics
    /// If the result was taken before.
    pub fn wait_until(&mut self, deadline: Instant) -> Option<Result<R, ShipError>> {
        self.block(Some(deadline))
    }

    /// Lets the call run, also if no thread has begun it, and drops its result.
    pub fn detach(mut self) {
        if let State::Sent(sent) = std::mem::replace(&mut self.0, State::Taken) {
            detach(sent);
        }
    }

    fn block(&mut self, deadline: Option<Instant>) -> Option<Result<R, ShipError>> {
        if let Some(result) = self.try_wait() {
            return Some(result);
        }
        let State::Sent(sent) = &self.0 else { return None };
        waiting(|| {
            if !sent.to.inbox.watch(&sent.ticket, &Unpark::waker()) {
                park_until(deadline, || sent.is_done());
            }
        });
        if self.is_finished() { Some(self.take()) } else { None }
    }

    /// Looks for the result without sleeping, and prepares a sleep.
    fn try_wait(&mut self) -> Option<Result<R, ShipError>> {
        if let State::Sent(sent) = &self.0
            && !forked()
        {
            if squall_rcu::in_operation() && !sent.is_done() {
                return Some(Err(ShipError::InOperation));
            }
            let spins = if sent.to.is_served() { SPINS } else { 0 };
            for _ in 0..spins {
                if sent.is_done() {
                    break;
                }
                hint::spin_loop();
            }
        }
        self.try_take()
    }
}

/// Runs a call on the sender's thread, since no thread serves its target. If one has begun it after all,
/// waits for that one.
fn run_here<R>(sent: &Sent<R>) {
    match sent.to.inbox.take_back(&sent.ticket) {
        Some(call) => sent.to.inbox.run(call),
        None => {
            while !sent.is_done() {
                thread::yield_now();
            }
        }
    }
}

/// Gives up a result, and lets the call run.
pub(super) fn detach_ticket(to: &'static VpInbox, ticket: Ticket, asked: bool) {
    if forked() {
        return;
    }
    if !asked
        && !to.ask()
        && let Some(call) = to.inbox.take_back(&ticket)
    {
        to.inbox.run(call);
    }
    to.inbox.detach(ticket);
}

fn detach<R>(sent: Sent<R>) {
    detach_ticket(sent.to, sent.ticket, sent.asked);
}

impl<R: Send + 'static> Future for PendingCall<R> {
    type Output = Result<R, ShipError>;

    /// # Panics
    /// If the result was taken before.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R, ShipError>> {
        let this = self.get_mut();
        if let Some(result) = this.try_take() {
            return Poll::Ready(result);
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
            && let Err(ticket) = sent.to.inbox.cancel(sent.ticket)
        {
            sent.to.inbox.detach(ticket);
        }
    }
}

impl<R: Send + 'static> fmt::Debug for PendingCall<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCall").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}
