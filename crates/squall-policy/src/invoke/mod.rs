//! Invocation modes: in which thread a call is made, and when.
//!
//! A call is written as a closure that gets the reference, so any method of any object can be invoked in any mode, whether the
//! object has a policy or not:
//!
//! | mode | the call runs | and its caller gets |
//! |---|---|---|
//! | [`synchronous`] | here and now | its result |
//! | [`asynchronous`] | soon, by an executor | a [`Handle`], for later |
//! | [`synchronous_by`], [`asynchronous_by`] | the same, if it can begin by its deadline | the same, and how late it was |
//! | [`event_dependent`] | when others [let it](Event) | a [`Handle`] |
//!
//! In every mode an object that is gone, and a policy that refuses, is an error, and so is a panic: it does not unwind through
//! the caller. What the closure takes with it must outlive the caller in the modes that return before the call is made; an
//! argument that borrows does not compile:
//!
//! ```compile_fail,E0373
//! use squall_policy::invoke::asynchronous;
//! # #[squall_macros::interface(crate = squall_core)]
//! trait Log: Send + Sync {
//!     fn write(&self, text: &str) -> usize;
//! }
//! # struct Lines;
//! # impl Log for Lines { fn write(&self, text: &str) -> usize { text.len() } }
//! # let log: squall_core::Owned<dyn Log> = squall_core::shared(Lines);
//! let text = String::from("a line");
//! let handle = asynchronous(log.co(), |log| log.write(&text));
//! ```
//!
//! The same with what the closure owns:
//!
//! ```
//! use squall_policy::invoke::{asynchronous, synchronous, InvokeError};
//! # #[squall_macros::interface(crate = squall_core)]
//! trait Log: Send + Sync {
//!     fn write(&self, text: &str) -> usize;
//! }
//! # struct Lines;
//! # impl Log for Lines { fn write(&self, text: &str) -> usize { text.len() } }
//! # let log: squall_core::Owned<dyn Log> = squall_core::shared(Lines);
//! let text = String::from("a line");
//! let handle = asynchronous(log.co(), move |log| log.write(&text));
//! assert_eq!(handle.wait()?, 6);
//!
//! let co = log.co();
//! drop(log);
//! assert!(matches!(synchronous(co, |log| log.write("gone")), Err(InvokeError::Call(_))));
//! # Ok::<(), InvokeError>(())
//! ```
//!
//! # Swaps
//!
//! An asynchronous call is made by the thread that runs it, in calls of no other object: it parks while the object's state
//! moves, as any call from outside does, and passes no `Block` on account of who submitted it. So do not wait for a handle
//! inside a method of an object that may be swapped, or its swap waits as long; inside an operation it is an error.
//!
//! # Source
//! KTK §2.1, §2.2 and §3: `InvocationType`, `INVOKE$mode` (KT-08 to KT-10). There a policy chooses the mode by an attribute;
//! here the caller does, since a handle is another type than a result.

pub(crate) mod deadline;
mod error;
mod event;
mod executor;
mod handle;
pub(crate) mod threads;

use squall_core::wrap::catching;
use squall_core::{Handle, Interface};
use std::time::{Duration, Instant};

pub use error::{InvokeError, Payload};
pub use event::{Event, WAITING_MAX};
pub use executor::{Executor, POOL_QUEUE_MAX, Work, pool_size, set_executor, set_pool_size};
pub use handle::PendingCall;
pub use threads::threads;

use executor::execute;
use handle::Runner;

/// A result, and whether it was in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Done<R> {
    /// The result.
    pub value: R,
    /// How long after its deadline it was there.
    pub late: Option<Duration>,
}

/// Calls here and now; what a plain call says by a panic is an error.
///
/// # Errors
/// [`InvokeError::Call`] and [`InvokeError::Panicked`].
/// # Cost
/// A few instructions over the call.
pub fn synchronous<I, R>(co: Handle<I>, f: impl FnOnce(Handle<I>) -> R) -> Result<R, InvokeError>
where
    I: ?Sized + Interface,
{
    catching(|| f(co)).map_err(InvokeError::from)
}

/// Calls here and now, if the call can begin by `deadline`.
///
/// It begins when the method does. An object without a policy begins what it gets; a policy that makes calls wait, as a
/// monitor does, gives up when the time comes. A call under way is never interrupted: it is reported [late](Done::late). The
/// deadline is for calls of `co` that the closure makes, not for what these call.
///
/// # Errors
/// [`InvokeError::TooLate`]: the method did not begin. As [`synchronous`].
/// # Example
/// ```
/// use squall_policy::invoke::{InvokeError, synchronous_by};
/// use squall_policy::{Monitor, governed};
/// use std::sync::mpsc::{Receiver, Sender, channel};
/// use std::time::{Duration, Instant};
///
/// #[squall_macros::interface(crate = squall_core)]
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
/// let desk: squall_core::Owned<dyn Desk> = governed(Monitor::new(), |_| Clerk);
/// let co = desk.co();
/// let ((begin, begun), (end, over)) = (channel(), channel());
/// let other = std::thread::spawn(move || co.serve(Some(begin), Some(over)));
/// begun.recv()?;
/// let soon = Instant::now() + Duration::from_millis(1);
/// let refused = synchronous_by(co, soon, |desk| desk.serve(None, None));
/// assert!(matches!(refused, Err(InvokeError::TooLate)));
/// end.send(())?;
/// other.join().unwrap();
/// let later = Instant::now() + Duration::from_secs(3600);
/// assert_eq!(synchronous_by(co, later, |desk| desk.serve(None, None))?.late, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn synchronous_by<I, R>(
    co: Handle<I>,
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
        let _deadline = deadline::set(Handle::id(co), deadline);
        synchronous(co, f)?
    };
    let late = Instant::now().checked_duration_since(deadline).filter(|late| !late.is_zero());
    Ok(Done { value, late })
}

/// Has the call made by the program's [executor](set_executor), or by a thread of the pool, and returns at once.
///
/// The pool's threads are named `squall-invoke`, started when there is something to do and no more than
/// [`set_pool_size`] says, and sleep without wake-ups while there is nothing. With a size of zero, or more than
/// [`POOL_QUEUE_MAX`] invocations waiting, the call is made here, before this returns.
///
/// # Cost
/// Two allocations, and what the executor costs.
/// # Example
/// ```
/// use squall_policy::invoke::asynchronous;
/// # use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// # #[squall_macros::interface(crate = squall_core)]
/// trait Hits: Send + Sync {
///     fn add(&self, n: u64) -> u64;
/// }
/// # struct Count(AtomicU64);
/// # impl Hits for Count { fn add(&self, n: u64) -> u64 { self.0.fetch_add(n, Relaxed) + n } }
/// # let hits: squall_core::Owned<dyn Hits> = squall_core::shared(Count(AtomicU64::new(0)));
/// let slow = asynchronous(hits.co(), |hits| hits.add(5));
/// // Other work; then
/// assert_eq!(slow.wait()?, 5);
/// # Ok::<(), squall_policy::invoke::InvokeError>(())
/// ```
pub fn asynchronous<I, R>(co: Handle<I>, f: impl FnOnce(Handle<I>) -> R + Send + 'static) -> PendingCall<R>
where
    I: ?Sized + Interface,
    R: Send + 'static,
{
    let (runner, handle) = Runner::new(move || synchronous(co, f));
    execute(runner.into_work());
    handle
}

/// As [`asynchronous`], by this executor.
pub fn asynchronous_on<I, R>(
    executor: &impl Executor,
    co: Handle<I>,
    f: impl FnOnce(Handle<I>) -> R + Send + 'static,
) -> PendingCall<R>
where
    I: ?Sized + Interface,
    R: Send + 'static,
{
    let (runner, handle) = Runner::new(move || synchronous(co, f));
    executor.execute(runner.into_work());
    handle
}

/// As [`asynchronous`], if the call can begin by `deadline`: see [`synchronous_by`].
pub fn asynchronous_by<I, R>(
    co: Handle<I>,
    deadline: Instant,
    f: impl FnOnce(Handle<I>) -> R + Send + 'static,
) -> PendingCall<Done<R>>
where
    I: ?Sized + Interface,
    R: Send + 'static,
{
    let (runner, handle) = Runner::new(move || synchronous_by(co, deadline, f));
    execute(runner.into_work());
    handle
}

/// As [`asynchronous`], once `event` lets it: others decide by that whether the call is made, when, and how many.
///
/// # Errors
/// By the handle: [`InvokeError::Cancelled`], [`InvokeError::Dropped`] if the event is, [`InvokeError::Full`].
/// # Example
/// Throttling in an emergency:
/// ```
/// use squall_policy::invoke::{Event, InvokeError, event_dependent};
/// # #[squall_macros::interface(crate = squall_core)]
/// trait Mail: Send + Sync {
///     fn send(&self, n: u64) -> u64;
/// }
/// # struct Post;
/// # impl Mail for Post { fn send(&self, n: u64) -> u64 { n } }
/// # let mail: squall_core::Owned<dyn Mail> = squall_core::shared(Post);
/// let calm = Event::new();
/// let handles: Vec<_> = (0..3).map(|n| event_dependent(&calm, mail.co(), move |mail| mail.send(n))).collect();
/// assert_eq!(calm.waiting(), 3);
/// calm.signal();
/// calm.cancel();
/// let mut results = handles.into_iter().map(|handle| handle.wait());
/// assert_eq!(results.next().unwrap()?, 0);
/// assert!(results.all(|result| matches!(result, Err(InvokeError::Cancelled))));
/// # Ok::<(), InvokeError>(())
/// ```
pub fn event_dependent<I, R>(
    event: &Event,
    co: Handle<I>,
    f: impl FnOnce(Handle<I>) -> R + Send + 'static,
) -> PendingCall<R>
where
    I: ?Sized + Interface,
    R: Send + 'static,
{
    let (runner, handle) = Runner::new(move || synchronous(co, f));
    event.admit(Box::new(runner));
    handle
}
