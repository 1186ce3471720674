//! Markers and waits: the public interface of grace periods.

use std::fmt;
use std::time::Instant;

use squall_machine::asym::Unavailable;

use crate::raw::grace::{Haste, Limits, Unfinished};
use crate::raw::moment::Moment;
use crate::thread::{DOMAIN, current, in_deferred_call, is_quiet, is_transferring, set_transferring};

/// The reason why a wait for a grace period failed.
///
/// # Example
/// ```
/// use squall::rcu::{WaitError, pin, wait};
/// assert_eq!(pin(|_| wait()), Err(WaitError::InOperation));
/// assert_eq!(wait(), Ok(()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The calling thread is inside an operation, so it would wait for itself.
    InOperation,
    /// The calling thread is running a deferred call, so it would wait for the batch it is running.
    InDeferredCall,
    /// The calling thread is transferring the state of an object for a hot-swap. Calls wait for the transfer,
    /// some of them inside operations.
    InTransfer,
    /// The calling thread is inside [`without_callbacks`](crate::without_callbacks), where it runs no
    /// deferred call.
    Quiet,
    /// The deadline passed first. The grace period or the calls waited for are still under way.
    Timeout,
    /// The process is the child of a fork: the threads to wait for do not exist here. The child may only
    /// exec.
    Forked,
    /// The kernel refuses `membarrier` now, although it worked when the process started. Grace periods can no
    /// longer end, and memory is no longer reclaimed.
    NoFence(Unavailable),
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitError::InOperation => {
                f.write_str("squall-rcu: a wait inside an operation would wait for itself; wait after the operation")
            }
            WaitError::InDeferredCall => {
                f.write_str("squall-rcu: a wait inside a deferred call would wait for itself; wait outside deferred calls")
            }
            WaitError::InTransfer => f.write_str(
                "squall-rcu: a wait during the transfer of an object's state would hold up its callers; wait after the swap",
            ),
            WaitError::Quiet => f.write_str("squall-rcu: deferred calls do not run inside without_callbacks; call this after it has returned"),
            WaitError::Timeout => f.write_str("squall-rcu: the grace period did not end before the deadline; it is still under way"),
            WaitError::Forked => f.write_str("squall-rcu: grace periods do not end in the child of a fork, which may only exec"),
            WaitError::NoFence(why) => write!(f, "squall-rcu: grace periods can no longer end: {why}; run this program with SQUALL_MEMBARRIER=off"),
        }
    }
}

impl std::error::Error for WaitError {}

/// The state of a [`Marker`].
///
/// # Example
/// ```
/// use squall::rcu::{Marker, MarkerState, pin};
/// // The marker cannot elapse before this operation ends.
/// let state = pin(|_| Marker::set().update_and_check().unwrap());
/// assert_eq!(state, MarkerState::Active);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum MarkerState {
    /// Operations that were open when the marker was set may still be open.
    Active,
    /// Every operation that was open when the marker was set has ended.
    Elapsed,
}

/// A point in time. Ask it later whether every operation that was open at that time has ended.
///
/// # Example
/// ```
/// use squall::rcu::{Marker, MarkerState};
/// let marker = Marker::set();
/// while marker.update_and_check().unwrap() == MarkerState::Active {
///     std::thread::yield_now();
/// }
/// ```
/// # Source
/// Appavoo 2005, §5.4.3 (thread markers): `Set` and `updateAndCheck`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marker(pub(crate) Moment);

impl Marker {
    /// Marks this moment. The marker covers everything that the caller unlinked before.
    ///
    /// # Cost
    /// A full fence and a load. Wait-free.
    /// # Example
    /// ```
    /// let marker = squall::rcu::Marker::set();
    /// assert!(squall::rcu::Marker::set() >= marker);
    /// ```
    pub fn set() -> Marker {
        Marker(DOMAIN.grace.mark())
    }

    /// Returns whether the marker has elapsed, as far as already known. Starts no work.
    ///
    /// # Cost
    /// One load. Wait-free.
    /// # Example
    /// ```
    /// use squall::rcu::{Marker, MarkerState};
    /// let marker = Marker::set();
    /// marker.wait().unwrap();
    /// assert_eq!(marker.check(), MarkerState::Elapsed);
    /// ```
    pub fn check(&self) -> MarkerState {
        if DOMAIN.grace.elapsed(self.0) { MarkerState::Elapsed } else { MarkerState::Active }
    }

    /// Returns whether the marker has elapsed, after doing all work towards it that is possible without
    /// waiting.
    ///
    /// May be called inside an operation, but the marker cannot elapse before that operation ends.
    ///
    /// # Errors
    /// [`WaitError::Forked`], [`WaitError::NoFence`].
    /// # Cost
    /// One load if the marker has elapsed. Otherwise, at most once per grace period: a heavy fence and a read
    /// of every registered thread's record. Then one read per operation that was open. Lock-free.
    /// # Example
    /// ```
    /// use squall::rcu::{Marker, MarkerState};
    /// let marker = Marker::set();
    /// // Poll between other work, without ever blocking.
    /// while marker.update_and_check()? == MarkerState::Active {
    ///     std::thread::yield_now();
    /// }
    /// # Ok::<(), squall::rcu::WaitError>(())
    /// ```
    pub fn update_and_check(&self) -> Result<MarkerState, WaitError> {
        if DOMAIN.grace.elapsed(self.0) {
            return Ok(MarkerState::Elapsed);
        }
        if squall_sys::fork::forked() {
            return Err(WaitError::Forked);
        }
        let elapsed = DOMAIN.grace.poll(&DOMAIN.registry, self.0).map_err(WaitError::NoFence)?;
        Ok(if elapsed { MarkerState::Elapsed } else { MarkerState::Active })
    }

    /// Blocks the thread until the marker has elapsed. A task uses [`wait_async`](Marker::wait_async).
    ///
    /// # Errors
    /// The errors of [`wait`].
    /// # Example
    /// ```
    /// let marker = squall::rcu::Marker::set();
    /// // Other work goes here: the grace period may end meanwhile.
    /// marker.wait().unwrap();
    /// ```
    pub fn wait(&self) -> Result<(), WaitError> {
        wait_for(self.0, Haste::Normal, None)
    }

    /// Blocks the thread until the marker has elapsed, but no longer than `deadline`. A task puts a timer of
    /// its runtime around [`wait_async`](Marker::wait_async).
    ///
    /// # Errors
    /// The errors of [`wait`], and [`WaitError::Timeout`].
    /// # Example
    /// ```
    /// use std::time::{Duration, Instant};
    /// let marker = squall::rcu::Marker::set();
    /// marker.wait_until(Instant::now() + Duration::from_secs(10)).unwrap();
    /// ```
    pub fn wait_until(&self, deadline: Instant) -> Result<(), WaitError> {
        wait_for(self.0, Haste::Normal, Some(deadline))
    }
}

/// Blocks the thread until every operation that is open now has ended. A task uses
/// [`wait_async`](crate::wait_async).
///
/// Threads that wait at the same time share the work. A wait beside a busy reader on another processor takes
/// little more than one `membarrier`. If a reader stays inside, the caller spins briefly and then sleeps.
///
/// # Errors
/// [`WaitError::InOperation`], [`WaitError::InDeferredCall`], [`WaitError::InTransfer`],
/// [`WaitError::Forked`], [`WaitError::NoFence`].
/// # Cost
/// The cost of [`Marker::update_and_check`], and sleep. Blocks on readers. The thread that does the work may
/// be preempted: this delays the other waiters but cannot make a wait end too early.
/// # Source
/// Appavoo 2005, §5.4.3. Deviation: demand-driven, and one pass instead of two generation swaps (see
/// `src/raw/README.md`).
/// # Example
/// ```
/// use std::sync::atomic::{AtomicPtr, Ordering};
/// use squall::rcu::{pin, wait};
/// let shared = AtomicPtr::new(Box::into_raw(Box::new(1)));
/// let read = || pin(|_| unsafe { *shared.load(Ordering::Acquire) });
/// assert_eq!(read(), 1);
/// let old = shared.swap(Box::into_raw(Box::new(2)), Ordering::AcqRel);
/// wait().unwrap();
/// // Every operation that could have seen `old` has ended, so this thread owns it again.
/// drop(unsafe { Box::from_raw(old) });
/// assert_eq!(read(), 2);
/// # drop(unsafe { Box::from_raw(shared.into_inner()) });
/// ```
pub fn wait() -> Result<(), WaitError> {
    wait_for(DOMAIN.grace.mark(), Haste::Normal, None)
}

/// Waits like [`wait`], but spins much longer before it sleeps. For callers with a processor to spare.
///
/// # Errors
/// The errors of [`wait`].
/// # Example
/// ```
/// squall::rcu::wait_expedited().unwrap();
/// ```
pub fn wait_expedited() -> Result<(), WaitError> {
    wait_for(DOMAIN.grace.mark(), Haste::Expedited, None)
}

/// Blocks the thread until every operation that is open now has ended, but no longer than `deadline`. A task
/// puts a timer of its runtime around [`wait_async`](crate::wait_async).
///
/// # Errors
/// The errors of [`wait`], and [`WaitError::Timeout`].
/// # Example
/// ```
/// use squall::rcu::{WaitError, wait_until};
/// use std::time::{Duration, Instant};
/// match wait_until(Instant::now() + Duration::from_secs(10)) {
///     Ok(()) => println!("every earlier operation has ended"),
///     Err(WaitError::Timeout) => println!("a reader is still inside"),
///     Err(error) => panic!("{error}"),
/// }
/// ```
pub fn wait_until(deadline: Instant) -> Result<(), WaitError> {
    wait_for(DOMAIN.grace.mark(), Haste::Normal, Some(deadline))
}

/// Checks whether the calling thread may wait for a grace period.
pub(crate) fn may_wait() -> Result<(), WaitError> {
    if current().depth() > 0 {
        return Err(WaitError::InOperation);
    }
    if in_deferred_call() {
        return Err(WaitError::InDeferredCall);
    }
    if is_transferring() {
        return Err(WaitError::InTransfer);
    }
    if squall_sys::fork::forked() {
        return Err(WaitError::Forked);
    }
    Ok(())
}

/// Checks whether the calling thread may run deferred calls, and wait for them.
pub(crate) fn may_run() -> Result<(), WaitError> {
    may_wait()?;
    if is_quiet() { Err(WaitError::Quiet) } else { Ok(()) }
}

/// Not public: declares whether this thread is transferring the state of an object from now on, and so may
/// not wait. Until it ends, deferred calls with users' code do not run on this thread. Returns the previous
/// value.
#[doc(hidden)]
pub fn __set_transferring(whether: bool) -> bool {
    set_transferring(whether)
}

/// Not public: checks whether the calling thread may wait for a grace period, for code that will wait later.
///
/// # Errors
/// The errors of [`wait`], except `NoFence`.
#[doc(hidden)]
pub fn __may_wait() -> Result<(), WaitError> {
    may_wait()
}

fn wait_for(moment: Moment, haste: Haste, deadline: Option<Instant>) -> Result<(), WaitError> {
    may_wait()?;
    wait_unchecked(moment, haste, deadline)
}

/// Waits after one check, for a forked child, in place of those of [`may_wait`]. The caller has checked that
/// it is outside operations.
pub(crate) fn wait_unchecked(
    moment: Moment,
    haste: Haste,
    deadline: Option<Instant>,
) -> Result<(), WaitError> {
    if squall_sys::fork::forked() {
        return Err(WaitError::Forked);
    }
    let limits = Limits { haste, deadline, stall_timeout: crate::stall::stall_timeout() };
    loop {
        match DOMAIN.grace.wait(&DOMAIN.registry, moment, limits) {
            Ok(()) => return Ok(()),
            // The driver has given up its role here, so the handler runs without any lock or role of this
            // crate.
            Err(Unfinished::Stalled(holdup)) => crate::stall::report(&holdup),
            Err(Unfinished::Timeout) => return Err(WaitError::Timeout),
            Err(Unfinished::NoFence(why)) => return Err(WaitError::NoFence(why)),
        }
    }
}
