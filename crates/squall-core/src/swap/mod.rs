//! Hot-swap: another implementation takes the place of a live object, with its state, while threads call it.
//!
//! The wing stands on all others. Its files in reading order:
//!
//! - `mod.rs`: [`Swap`] asks for a swap. [`Replacement`] is the object that takes the place. [`StateFormats`]
//!   and [`RootFormats`] describe how state moves.
//! - `run.rs`: the phases of a swap. `rest.rs`: the last phases for a task.
//! - `report.rs`: the [`SwapReport`] of a swap, and the reasons why one fails.
//! - `arbiter.rs`: [`arbitrate`] puts a function around every call of an object.
//! - `factory.rs`: a [`Factory`] replaces all objects that it made.
//!
//! `README.md` beside this file has the protocol and its proof. The models run `protocol/mediator.rs`; calls
//! meet a swap in `call/mediated.rs`.

pub(crate) mod arbiter;
mod factory;
mod records;
mod report;
mod rest;
mod run;

use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use std::any::TypeId;
use std::fmt;
use std::future::Future;
use std::time::{Duration, Instant};

use crate::call::handle::Handle;
use crate::call::interface::Interface;

pub use crate::call::arbitration::Call;
pub use crate::object::replacement::Replacement;
pub use crate::object::state::{RootFormats, State, StateFormats, Whole};
pub use crate::protocol::formats::{Format, Transferred};
pub use arbiter::{Arbiter, arbitrate, arbitrate_method, arbitrate_object};
pub use factory::{Factory, Upgraded};
pub use report::{SwapError, SwapFailure, SwapOutcome, SwapPhase, SwapReport, recent};

/// The default time limit for the phase `Block`.
const DRAIN: Duration = Duration::from_millis(20);

/// Swaps the object for `new` and moves its state. Uses [`Swap`] with its defaults: no deadline, and 20 ms
/// for the phase `Block`.
///
/// # Errors
/// [`SwapError`]; the old object serves on unchanged.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::ClusterSize;
/// use squall::swap::{Replacement, swap};
///
/// let counter = squall::swappable::<dyn Counter, _>(Central::default());
/// counter.add(5);
/// let report = swap(counter.handle(), Replacement::root(Spread, ClusterSize::Cpu))?;
/// assert_eq!((report.parts, counter.get()), (1, 5));
/// # Ok::<(), squall::swap::SwapError>(())
/// ```
pub fn swap<I: ?Sized + Interface>(handle: Handle<I>, new: Replacement<I>) -> Result<SwapReport, SwapError> {
    Swap::new(handle).run(new)
}

/// A request for a swap: the object, and the limits.
///
/// The thread that calls [`run`](Swap::run) does the work and waits until it is done. Other threads go on
/// calling the object. Their calls wait in two phases: while the earlier calls end, at most for
/// [`drain_timeout`](Swap::drain_timeout), and while the state moves, which has no limit. They then run on
/// the implementation that serves afterwards. No call is lost or runs twice, and the calls of one thread stay
/// in order.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::swap::{Replacement, Swap};
/// use std::time::Duration;
///
/// let counter = squall::swappable::<dyn Counter, _>(Central::default());
/// counter.add(5);
/// let report = Swap::new(counter.handle())
///     .timeout(Duration::from_secs(1))
///     .drain_timeout(Duration::from_millis(50))
///     .run(Replacement::root(Spread, squall::ClusterSize::Cpu))?;
/// println!("callers waited at most {:?}", report.longest_pause);
/// # Ok::<(), squall::swap::SwapError>(())
/// ```
#[must_use = "this only describes a swap; `run` performs it"]
pub struct Swap<I: ?Sized + Interface> {
    handle: Handle<I>,
    deadline: Option<Instant>,
    drain: Duration,
    cancel: Option<Cancel>,
    state: bool,
}

/// The limits of a swap.
pub(crate) struct Limits {
    pub(crate) deadline: Option<Instant>,
    pub(crate) drain: Duration,
    pub(crate) cancel: Option<Cancel>,
    /// Set when the task that waits for the swap has gone.
    pub(crate) abandoned: Option<Cancel>,
    /// Whether state moves.
    pub(crate) state: bool,
}

impl<I: ?Sized + Interface> Swap<I> {
    /// Makes a request for a swap of this object, without a deadline.
    pub fn new(handle: Handle<I>) -> Swap<I> {
        Swap { handle, deadline: None, drain: DRAIN, cancel: None, state: true }
    }

    /// Rolls the swap back if it has not ended by the deadline. The deadline is checked between the exports
    /// and imports, which are not interrupted.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::{Replacement, Swap, SwapFailure};
    /// use std::time::Instant;
    ///
    /// let counter = squall::swappable::<dyn Counter, _>(Central::default());
    /// let late = Swap::new(counter.handle()).deadline(Instant::now());
    /// let error = late.run(Replacement::swappable(Central::default())).unwrap_err();
    /// assert!(matches!(error.failure(), SwapFailure::TimedOut(_)));
    /// counter.add(1); // the old object serves on
    /// ```
    pub fn deadline(mut self, deadline: Instant) -> Swap<I> {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the deadline to this time from now. The time starts with this call, not with [`run`](Swap::run).
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::{Replacement, Swap};
    /// use std::time::Duration;
    ///
    /// let counter = squall::swappable::<dyn Counter, _>(Central::default());
    /// let swap = Swap::new(counter.handle()).timeout(Duration::from_secs(10));
    /// swap.run(Replacement::swappable(Central::default()))?;
    /// # Ok::<(), squall::swap::SwapError>(())
    /// ```
    pub fn timeout(self, limit: Duration) -> Swap<I> {
        match Instant::now().checked_add(limit) {
            Some(deadline) => self.deadline(deadline),
            None => self,
        }
    }

    /// Sets the time limit for the phase `Block`, in which calls wait for the calls that are still in the
    /// object. Default: 20 ms.
    ///
    /// The limit always exists, since a lock that is held across calls can cause a deadlock between the
    /// waiting calls and those in the object. When it expires, the swap is rolled back.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::{Replacement, Swap};
    /// use std::time::Duration;
    ///
    /// let counter = squall::swappable::<dyn Counter, _>(Central::default());
    /// let swap = Swap::new(counter.handle()).drain_timeout(Duration::from_millis(100));
    /// swap.run(Replacement::swappable(Central::default()))?;
    /// # Ok::<(), squall::swap::SwapError>(())
    /// ```
    pub fn drain_timeout(mut self, limit: Duration) -> Swap<I> {
        self.drain = limit;
        self
    }

    /// Rolls the swap back if `cancel` is cancelled before the swap has ended.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::{Cancel, Replacement, Swap};
    ///
    /// let counter = squall::swappable::<dyn Counter, _>(Central::default());
    /// let cancel = Cancel::new();
    /// let swap = Swap::new(counter.handle()).cancel_on(&cancel);
    /// cancel.cancel();
    /// assert!(swap.run(Replacement::swappable(Central::default())).is_err());
    /// ```
    pub fn cancel_on(mut self, cancel: &Cancel) -> Swap<I> {
        self.cancel = Some(cancel.clone());
        self
    }

    /// Moves no state: the new object keeps its initial state.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::{Replacement, Swap};
    ///
    /// let counter = squall::shared::<dyn Counter, _>(Central::default());
    /// counter.add(5);
    /// Swap::new(counter.handle()).without_state().run(Replacement::shared(Central::default()))?;
    /// assert_eq!(counter.get(), 0);
    /// # Ok::<(), squall::swap::SwapError>(())
    /// ```
    pub fn without_state(mut self) -> Swap<I> {
        self.state = false;
        self
    }

    /// Swaps the object for `new`, and blocks the thread until `new` serves. A task uses
    /// [`run_async`](Swap::run_async), or a thread for blocking work.
    ///
    /// # Errors
    /// [`SwapError`]; its [`failure`](SwapError::failure) gives the reason. The old object then serves on
    /// with all its state, waiting calls have run on it, and `new` was dropped. If the reason is that the
    /// object was destroyed, it is gone.
    /// # Panics
    /// With [`Root::EAGER`](crate::Root::EAGER), if `make_rep` panics.
    /// # Cost
    /// A grace period, during which no call waits. Then the transfer of the state, during which callers wait.
    /// Proportional to the representatives. Blocking. After the swap, calls cost as much as before.
    /// # Source
    /// Appavoo 2005, chapter 6. Deadlines, cancelling and rollback are new.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::{Replacement, Swap};
    ///
    /// let counter = squall::swappable::<dyn Counter, _>(Central::default());
    /// counter.add(5);
    /// Swap::new(counter.handle()).run(Replacement::root(Spread, squall::ClusterSize::Core))?;
    /// assert_eq!(counter.get(), 5);
    /// # Ok::<(), squall::swap::SwapError>(())
    /// ```
    pub fn run(&self, new: Replacement<I>) -> Result<SwapReport, SwapError> {
        self.run_expecting(new, None)
    }

    /// Swaps the object for `new` like [`run`](Swap::run), for a task. The future needs no particular
    /// runtime. A poll blocks its thread in two cases only. While the reclaimer is
    /// [forbidden](squall_rcu::set_reclaimer), it waits for a grace period. If the system refuses the thread
    /// named below, it does the work of that thread.
    ///
    /// The first poll begins the swap. While the task waits for the calls that began before, other calls go
    /// on. A thread `squall-swap` then does the rest: it waits for the last calls, at most for
    /// [`drain_timeout`](Swap::drain_timeout), and moves the state. So the exports and imports run there.
    /// The thread inherits the processor affinity of the thread that polls.
    ///
    /// If the future is dropped before it is ready, the swap is cancelled as by [`Cancel::cancel`]. The drop
    /// does not wait for the thread, which lives on until it has ended the swap. If the process ends first,
    /// an export or import may be cut off.
    ///
    /// The deadline, and a [`Cancel`], are checked only by the rest of the swap. So use a timer of the
    /// runtime as the limit. If the future is leaked before the rest has begun, the swap never ends, and
    /// other swaps of the object fail.
    ///
    /// # Errors
    /// The errors of [`run`](Swap::run).
    /// # Panics
    /// A poll, as [`run`](Swap::run) does.
    /// # Cost
    /// The cost of [`run`](Swap::run), and the start of a thread.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::{Replacement, Swap, SwapError};
    /// use squall::{ClusterSize, Handle};
    ///
    /// async fn spread(counter: Handle<dyn Counter>) -> Result<(), SwapError> {
    ///     // With tokio: tokio::time::timeout(limit, Swap::new(counter).run_async(…)).await
    ///     Swap::new(counter).run_async(Replacement::root(Spread, ClusterSize::Cpu)).await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn run_async(
        &self,
        new: Replacement<I>,
    ) -> impl Future<Output = Result<SwapReport, SwapError>> + Send + use<I> {
        let swap = self.clone();
        async move { swap.run_expecting_async(new, None).await }
    }

    /// Swaps like `run`, if the serving object is of one of these classes.
    fn run_expecting(
        &self,
        new: Replacement<I>,
        expected: Option<&[TypeId]>,
    ) -> Result<SwapReport, SwapError> {
        self.begin(new, expected)?.end()
    }

    /// Swaps like `run_async`, if the serving object is of one of these classes.
    async fn run_expecting_async(
        &self,
        new: Replacement<I>,
        expected: Option<&[TypeId]>,
    ) -> Result<SwapReport, SwapError> {
        self.begin(new, expected)?.end_in_task().await
    }

    /// Not public: returns whether this thread may run the swap, for a caller that lets another thread run
    /// it.
    ///
    /// # Errors
    /// The error that [`run`](Swap::run) would return at once, because of the state of this thread.
    #[doc(hidden)]
    pub fn __may_run(&self) -> Result<(), SwapError> {
        let id = Handle::id(self.handle);
        run::may_swap(id).map_err(|failure| SwapError::new(I::NAME, id, failure))
    }

    /// Begins a swap, if the serving object is of one of the expected classes, or if none are named.
    fn begin(&self, new: Replacement<I>, expected: Option<&[TypeId]>) -> Result<run::Begun, SwapError> {
        let limits = Limits {
            deadline: self.deadline,
            drain: self.drain,
            cancel: self.cancel.clone(),
            abandoned: None,
            state: self.state,
        };
        let id = Handle::id(self.handle);
        let new = new.into_object().ok_or_else(|| SwapError::new(I::NAME, id, SwapFailure::OutOfMemory))?;
        run::Begun::new(id, I::NAME, new, limits, expected)
    }
}

impl<I: ?Sized + Interface> Clone for Swap<I> {
    fn clone(&self) -> Swap<I> {
        Swap { cancel: self.cancel.clone(), ..*self }
    }
}

impl<I: ?Sized + Interface> fmt::Debug for Swap<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Swap")
            .field("handle", &self.handle)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// Cancels swaps, from any thread.
///
/// ```
/// let cancel = squall::swap::Cancel::new();
/// let from_elsewhere = cancel.clone();
/// std::thread::spawn(move || from_elsewhere.cancel()).join().unwrap();
/// assert!(cancel.is_cancelled());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Makes a value that has not been cancelled.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Rolls back the swaps that were given this value, those in progress within about a millisecond. A swap
    /// that has already moved its state may complete; its result says so.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`cancel`](Cancel::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
