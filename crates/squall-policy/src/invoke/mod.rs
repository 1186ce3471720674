//! Invocation modes: the thread on which a call runs, and the time. Feature: `policies`.
//!
//! A call is written as a closure that gets the handle. So any method of any object can be invoked in any
//! mode, with or without a policy:
//!
//! | mode | the call runs | its caller gets |
//! |---|---|---|
//! | [`synchronous`] | here and now | its result |
//! | [`asynchronous`] | soon, on an executor | a [`PendingCall`] |
//! | [`synchronous_by`], [`asynchronous_by`] | if it can begin by its deadline | the same, and its lateness |
//! | [`event_dependent`] | when other threads [release it](Event) | a [`PendingCall`] |
//! | [`call`] | as the attribute [`INVOCATION`] says: synchronous or asynchronous | a [`PendingCall`] |
//! | [`in_mode`] | as the object's policy decides | a [`PendingCall`] |
//!
//! In every mode an error is returned if the object was destroyed, if a policy refuses, or if the method
//! panics: the panic does not unwind through the caller. Modes that return before the call runs need a
//! closure that is `'static`. A borrowed argument does not compile:
//! ```compile_fail,E0373
//! use squall::policy::invoke::asynchronous;
//! # #[squall::interface]
//! trait Log: Send + Sync {
//!     fn write(&self, text: &str) -> usize;
//! }
//! # struct Lines;
//! # impl Log for Lines { fn write(&self, text: &str) -> usize { text.len() } }
//! # let log: squall::Owned<dyn Log> = squall::shared(Lines);
//! let text = String::from("a line");
//! let pending = asynchronous(log.handle(), |log| log.write(&text));
//! ```
//!
//! The closure compiles if it owns the argument:
//!
//! ```
//! use squall::policy::invoke::{asynchronous, synchronous, InvokeError};
//! # #[squall::interface]
//! trait Log: Send + Sync {
//!     fn write(&self, text: &str) -> usize;
//! }
//! # struct Lines;
//! # impl Log for Lines { fn write(&self, text: &str) -> usize { text.len() } }
//! # let log: squall::Owned<dyn Log> = squall::shared(Lines);
//! let text = String::from("a line");
//! let pending = asynchronous(log.handle(), move |log| log.write(&text));
//! assert_eq!(pending.wait()?, 6);
//!
//! let handle = log.handle();
//! drop(log);
//! assert!(matches!(synchronous(handle, |log| log.write("gone")), Err(InvokeError::Call(_))));
//! # Ok::<(), InvokeError>(())
//! ```
//!
//! # Modes of policies
//!
//! A policy adds modes: it lists them in [`Policy::MODES`](crate::Policy::MODES), and
//! [`Policy::invoke_mode`](crate::Policy::invoke_mode) gets each call as a [`Dispatch`]. The policy runs the
//! call, passes it to a thread, keeps it for later, or refuses it. [`Monitor`](crate::Monitor) has the mode
//! [`TRY`], in which a call does not wait. [`Task`](crate::Task) and [`ThreadedAdt`](crate::ThreadedAdt) make
//! asynchronous calls on their own threads. For a mode of one's own, see [`Dispatch`].
//!
//! Attributes and deadlines belong to the call: [`call`] and [`in_mode`] take along those given to it. A
//! thread that runs a call for another one adds nothing of its own.
//!
//! # Swaps
//!
//! The thread that runs an asynchronous call makes it outside any other call. So it parks while the object's
//! state moves, like every call from outside. It gets no exemption because of its submitter. Waiting for a
//! [`PendingCall`] inside a method delays a swap of that method's object as long. Inside an operation,
//! waiting is an error.
//!
//! # Source
//! KTK §2.1, §2.2, §3 and §4: `InvocationType`, `INVOKE$mode` (KT-08 to KT-10). In KTK an attribute can make
//! each call asynchronous. Here the caller writes [`call`], because a pending result has another type than a
//! result.

pub(crate) mod context;
mod dispatch;
mod error;
mod event;
mod executor;
pub(crate) mod governed;
mod handle;
mod invoker;
mod mode;
pub(crate) mod threads;

use squall_core::wrap::catching;
use squall_core::{Handle, Interface};
use std::time::{Duration, Instant};

pub use dispatch::Dispatch;
pub use error::{InvokeError, Payload, Unknown};
pub use event::{Event, WAITING_MAX};
pub use executor::{Executor, POOL_QUEUE_MAX, Work, pool_size, set_executor, set_pool_size};
pub use handle::PendingCall;
pub use invoker::{INVOCATION, Invocation, Invoker, call, in_mode, in_mode_named};
pub(crate) use mode::check_modes;
pub use mode::{ASYNCHRONOUS, Mode, TRY};
pub use threads::threads;

use executor::execute;
use handle::Runner;

/// A result, and how late it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Done<R> {
    /// The result.
    pub value: R,
    /// Time between the deadline and the result; absent if the result was in time.
    pub late: Option<Duration>,
}

/// Calls here and now. Errors that a plain call reports by a panic are returned.
///
/// # Errors
/// [`InvokeError::Call`] and [`InvokeError::Panicked`].
/// # Cost
/// A few instructions over the call.
///
/// ```
/// use squall::policy::invoke::{InvokeError, synchronous};
/// # #[squall::interface]
/// # trait Mail: Send + Sync { fn send(&self, n: u64) -> u64; }
/// # struct Post;
/// # impl Mail for Post { fn send(&self, n: u64) -> u64 { n } }
/// # let mail: squall::Owned<dyn Mail> = squall::shared(Post);
/// let handle = mail.handle();
/// assert_eq!(synchronous(handle, |mail| mail.send(7))?, 7);
/// drop(mail);
/// assert!(matches!(synchronous(handle, |mail| mail.send(7)), Err(InvokeError::Call(_))));
/// # Ok::<(), InvokeError>(())
/// ```
pub fn synchronous<I, R>(handle: Handle<I>, f: impl FnOnce(Handle<I>) -> R) -> Result<R, InvokeError>
where
    I: ?Sized + Interface,
{
    catching(|| f(handle)).map_err(InvokeError::from)
}

/// Calls here and now, if the call can begin by `deadline`.
///
/// A call begins when its method begins. An object without a policy begins each call at once. A policy that
/// makes calls wait, such as a monitor, gives up at the deadline. A running call is never interrupted, but
/// reported as [late](Done::late). The deadline applies to the closure's calls of `handle`, but not to calls
/// that these make.
///
/// # Errors
/// [`InvokeError::TooLate`]: the method did not begin. [`InvokeError::Call`] and [`InvokeError::Panicked`].
/// # Example
/// ```
/// use squall::policy::invoke::{InvokeError, synchronous_by};
/// use squall::policy::{Monitor, governed};
/// use std::sync::mpsc::{Receiver, Sender, channel};
/// use std::time::{Duration, Instant};
///
/// #[squall::interface]
/// trait Desk: Send + Sync {
///     #[blocking]
///     fn serve(&self, begun: Option<Sender<()>>, over: Option<Receiver<()>>);
/// }
/// struct Clerk;
/// impl Desk for Clerk {
///     fn serve(&self, begun: Option<Sender<()>>, over: Option<Receiver<()>>) {
///         drop(begun.map(|begun| begun.send(())));
///         drop(over.map(|over| over.recv()));
///     }
/// }
///
/// let desk: squall::Owned<dyn Desk> = governed(Monitor::new(), |_| Clerk);
/// let handle = desk.handle();
/// let ((begin, begun), (end, over)) = (channel(), channel());
/// let other = std::thread::spawn(move || handle.serve(Some(begin), Some(over)));
/// begun.recv()?;
/// let soon = Instant::now() + Duration::from_millis(1);
/// let refused = synchronous_by(handle, soon, |desk| desk.serve(None, None));
/// assert!(matches!(refused, Err(InvokeError::TooLate)));
/// end.send(())?;
/// other.join().unwrap();
/// let later = Instant::now() + Duration::from_secs(3600);
/// assert_eq!(synchronous_by(handle, later, |desk| desk.serve(None, None))?.late, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn synchronous_by<I, R>(
    handle: Handle<I>,
    deadline: Instant,
    f: impl FnOnce(Handle<I>) -> R,
) -> Result<Done<R>, InvokeError>
where
    I: ?Sized + Interface,
{
    if Instant::now() >= deadline {
        return Err(InvokeError::TooLate);
    }
    let value = {
        let _deadline = context::set_deadline(Handle::id(handle), deadline);
        synchronous(handle, f)?
    };
    let late = Instant::now().checked_duration_since(deadline).filter(|late| !late.is_zero());
    Ok(Done { value, late })
}

/// Passes the call to the program's [executor](set_executor), or to the pool, and returns at once.
///
/// The pool starts a thread named `squall-invoke` when there is work, up to [`set_pool_size`] threads. Idle
/// threads sleep without wake-ups. With a size of zero, or with more than [`POOL_QUEUE_MAX`] invocations
/// queued, the calling thread runs the call before this returns.
///
/// # Cost
/// Two allocations, and the cost of the executor.
/// # Example
/// ```
/// use squall::policy::invoke::asynchronous;
/// # use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// # #[squall::interface]
/// trait Hits: Send + Sync {
///     fn add(&self, n: u64) -> u64;
/// }
/// # struct Count(AtomicU64);
/// # impl Hits for Count { fn add(&self, n: u64) -> u64 { self.0.fetch_add(n, Relaxed) + n } }
/// # let hits: squall::Owned<dyn Hits> = squall::shared(Count(AtomicU64::new(0)));
/// let slow = asynchronous(hits.handle(), |hits| hits.add(5));
/// // Other work; then
/// assert_eq!(slow.wait()?, 5);
/// # Ok::<(), squall::policy::invoke::InvokeError>(())
/// ```
pub fn asynchronous<I, R>(
    handle: Handle<I>,
    f: impl FnOnce(Handle<I>) -> R + Send + 'static,
) -> PendingCall<R>
where
    I: ?Sized + Interface,
    R: Send + 'static,
{
    let (runner, pending) = Runner::new(move || synchronous(handle, f));
    execute(runner.into_work());
    pending
}

/// Passes the call to this executor, and returns at once, like [`asynchronous`].
///
/// ```
/// use squall::policy::invoke::{Work, asynchronous_on};
/// # #[squall::interface]
/// # trait Mail: Send + Sync { fn send(&self, n: u64) -> u64; }
/// # struct Post;
/// # impl Mail for Post { fn send(&self, n: u64) -> u64 { n } }
/// # let mail: squall::Owned<dyn Mail> = squall::shared(Post);
/// let at_once = |work: Work| work();
/// assert_eq!(asynchronous_on(&at_once, mail.handle(), |mail| mail.send(7)).wait()?, 7);
/// # Ok::<(), squall::policy::invoke::InvokeError>(())
/// ```
pub fn asynchronous_on<I, R>(
    executor: &impl Executor,
    handle: Handle<I>,
    f: impl FnOnce(Handle<I>) -> R + Send + 'static,
) -> PendingCall<R>
where
    I: ?Sized + Interface,
    R: Send + 'static,
{
    let (runner, pending) = Runner::new(move || synchronous(handle, f));
    executor.execute(runner.into_work());
    pending
}

/// Passes the call to the program's executor, or to the pool, and returns at once, like [`asynchronous`]. The
/// call must begin by `deadline`, as in [`synchronous_by`].
///
/// # Errors
/// Through the [`PendingCall`]: [`InvokeError::TooLate`] if the call did not begin by the deadline.
///
/// ```
/// use squall::policy::invoke::asynchronous_by;
/// use std::time::{Duration, Instant};
/// # #[squall::interface]
/// # trait Mail: Send + Sync { fn send(&self, n: u64) -> u64; }
/// # struct Post;
/// # impl Mail for Post { fn send(&self, n: u64) -> u64 { n } }
/// # let mail: squall::Owned<dyn Mail> = squall::shared(Post);
/// let deadline = Instant::now() + Duration::from_secs(3600);
/// let done = asynchronous_by(mail.handle(), deadline, |mail| mail.send(7)).wait()?;
/// assert_eq!((done.value, done.late), (7, None));
/// # Ok::<(), squall::policy::invoke::InvokeError>(())
/// ```
pub fn asynchronous_by<I, R>(
    handle: Handle<I>,
    deadline: Instant,
    f: impl FnOnce(Handle<I>) -> R + Send + 'static,
) -> PendingCall<Done<R>>
where
    I: ?Sized + Interface,
    R: Send + 'static,
{
    let (runner, pending) = Runner::new(move || synchronous_by(handle, deadline, f));
    execute(runner.into_work());
    pending
}

/// Passes the call to the program's executor, or to the pool, once `event` releases it. Returns like
/// [`asynchronous`], without waiting for the event.
///
/// # Errors
/// Through the [`PendingCall`]: [`InvokeError::Cancelled`], [`InvokeError::Full`], and
/// [`InvokeError::Dropped`] if the event is dropped.
/// # Example
/// Throttling in an emergency:
/// ```
/// use squall::policy::invoke::{Event, InvokeError, event_dependent};
/// # #[squall::interface]
/// trait Mail: Send + Sync {
///     fn send(&self, n: u64) -> u64;
/// }
/// # struct Post;
/// # impl Mail for Post { fn send(&self, n: u64) -> u64 { n } }
/// # let mail: squall::Owned<dyn Mail> = squall::shared(Post);
/// let calm = Event::new();
/// let pending: Vec<_> = (0..3).map(|n| event_dependent(&calm, mail.handle(), move |mail| mail.send(n))).collect();
/// assert_eq!(calm.waiting(), 3);
/// calm.signal();
/// calm.cancel();
/// let mut results = pending.into_iter().map(|call| call.wait());
/// assert_eq!(results.next().unwrap()?, 0);
/// assert!(results.all(|result| matches!(result, Err(InvokeError::Cancelled))));
/// # Ok::<(), InvokeError>(())
/// ```
pub fn event_dependent<I, R>(
    event: &Event,
    handle: Handle<I>,
    f: impl FnOnce(Handle<I>) -> R + Send + 'static,
) -> PendingCall<R>
where
    I: ?Sized + Interface,
    R: Send + 'static,
{
    let (runner, pending) = Runner::new(move || synchronous(handle, f));
    event.admit(Box::new(runner));
    pending
}
