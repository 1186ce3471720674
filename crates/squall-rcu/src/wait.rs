//! Markers and waiting: the grace periods of the process for whoever needs one.

use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};

use squall_machine::asym::Unavailable;

use crate::op::{DOMAIN, in_operation};
use crate::raw::grace::{Haste, Limits, Moment, Unfinished};

/// Why a grace period could not be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The calling thread is inside an operation and would wait for itself.
    InOperation,
    /// The calling thread is running a deferred call, whose own batch it would wait for.
    InDeferredCall,
    /// The calling thread moves the state of an object for a hot-swap, and calls wait for it meanwhile, some of them inside
    /// operations.
    InTransfer,
    /// The calling thread is in [`quietly`](crate::quietly), where it runs no deferred call.
    Quiet,
    /// The deadline passed first. What was waited for is still under way.
    Timeout,
    /// This process is the child of a fork: the threads it would wait for do not exist here. It may only exec.
    Forked,
    /// `membarrier` worked when the process started and is refused now, so no grace period can be concluded any more.
    /// Nothing is reclaimed from here on.
    NoFence(Unavailable),
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitError::InOperation => {
                f.write_str("squall-rcu: waiting inside an operation would wait for itself")
            }
            WaitError::InDeferredCall => {
                f.write_str("squall-rcu: waiting inside a deferred call would wait for itself")
            }
            WaitError::InTransfer => f.write_str(
                "squall-rcu: waiting while the state of an object is moved would hold up its callers",
            ),
            WaitError::Quiet => f.write_str("squall-rcu: no deferred call runs within quietly"),
            WaitError::Timeout => f.write_str("squall-rcu: the grace period did not end before the deadline"),
            WaitError::Forked => f.write_str("squall-rcu: no grace period ends in the child of a fork"),
            WaitError::NoFence(why) => write!(f, "squall-rcu: no grace period can be concluded: {why}"),
        }
    }
}

impl std::error::Error for WaitError {}

/// What a [`Marker`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum MarkerState {
    /// Operations that were open when the marker was set may still be.
    Active,
    /// Every operation that was open when the marker was set has ended.
    Elapsed,
}

/// A point in time, to be asked later whether every operation that was open then has ended: K42's thread marker.
///
/// # Example
/// ```
/// use squall_rcu::{Marker, MarkerState};
/// let marker = Marker::set();
/// while marker.update_and_check().unwrap() == MarkerState::Active {
///     std::thread::yield_now();
/// }
/// ```
/// # Source
/// Appavoo 2005, §5.4.3: `Set` and `updateAndCheck`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marker(pub(crate) Moment);

impl Marker {
    /// Marks this moment. What the caller cut off from readers before is covered.
    ///
    /// # Cost
    /// A full fence and a load. Wait-free.
    pub fn set() -> Marker {
        Marker(DOMAIN.grace.mark())
    }

    /// Whether the marker has elapsed, as far as anybody has found out. Starts nothing.
    ///
    /// # Cost
    /// One load. Wait-free.
    pub fn check(&self) -> MarkerState {
        if DOMAIN.grace.elapsed(self.0) { MarkerState::Elapsed } else { MarkerState::Active }
    }

    /// Whether the marker has elapsed; does, without waiting, what can be done now to find out. May be called inside an
    /// operation, which then holds up the answer.
    ///
    /// # Errors
    /// [`WaitError::Forked`], [`WaitError::NoFence`].
    /// # Cost
    /// One load if it has. Else, at most once per grace period, a heavy fence and a look at every registered thread's
    /// record; and a look at those that were inside an operation then. Lock-free.
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

    /// Waits until the marker has elapsed.
    ///
    /// # Errors
    /// As [`wait`].
    pub fn wait(&self) -> Result<(), WaitError> {
        wait_for(self.0, Haste::Normal, None)
    }

    /// Waits until the marker has elapsed, at most until `deadline`.
    ///
    /// # Errors
    /// As [`wait`], and [`WaitError::Timeout`].
    pub fn wait_until(&self, deadline: Instant) -> Result<(), WaitError> {
        wait_for(self.0, Haste::Normal, Some(deadline))
    }
}

/// Waits until every operation that is open now has ended.
///
/// All who wait at the same time share the work. With a busy reader on another processor this takes a `membarrier` and
/// a little; it sleeps after a short spin when a reader stays.
///
/// # Errors
/// [`WaitError::InOperation`], [`WaitError::InDeferredCall`], [`WaitError::Forked`], [`WaitError::NoFence`].
/// # Cost
/// Nothing if no thread was ever registered but a fence; otherwise as [`Marker::update_and_check`], and sleep. Blocks
/// on readers; whichever thread does the work can be stalled without harm to correctness, not to others' latency.
/// # Source
/// Appavoo 2005, §5.4.3. Deviation: demand-driven, and one pass instead of two generation swaps (see `src/raw/README.md`).
pub fn wait() -> Result<(), WaitError> {
    wait_for(DOMAIN.grace.mark(), Haste::Normal, None)
}

/// As [`wait`], and spins much longer before it sleeps: for a caller who has a processor to spare.
///
/// # Errors
/// As [`wait`].
pub fn wait_expedited() -> Result<(), WaitError> {
    wait_for(DOMAIN.grace.mark(), Haste::Expedited, None)
}

/// As [`wait`], at most until `deadline`.
///
/// # Errors
/// As [`wait`], and [`WaitError::Timeout`].
pub fn wait_until(deadline: Instant) -> Result<(), WaitError> {
    wait_for(DOMAIN.grace.mark(), Haste::Normal, Some(deadline))
}

/// Whether the calling thread may wait for a grace period.
pub(crate) fn may_wait() -> Result<(), WaitError> {
    if in_operation() {
        return Err(WaitError::InOperation);
    }
    if crate::defer::in_deferred_call() {
        return Err(WaitError::InDeferredCall);
    }
    if MOVES_STATE.get() {
        return Err(WaitError::InTransfer);
    }
    if squall_sys::fork::forked() {
        return Err(WaitError::Forked);
    }
    Ok(())
}

thread_local! {
    // No destructor, so it can be read at any time.
    static MOVES_STATE: Cell<bool> = const { Cell::new(false) };
}

/// Not public: says whether this thread moves the state of an object from now on, so that it may not wait. Returns whether
/// it did before.
#[doc(hidden)]
pub fn __moves_state(whether: bool) -> bool {
    MOVES_STATE.replace(whether)
}

/// Not public: whether the calling thread may wait for a grace period, for whoever is to wait later.
///
/// # Errors
/// As [`wait`] would refuse it.
#[doc(hidden)]
pub fn __may_wait() -> Result<(), WaitError> {
    may_wait()
}

fn wait_for(moment: Moment, haste: Haste, deadline: Option<Instant>) -> Result<(), WaitError> {
    may_wait()?;
    wait_unchecked(moment, haste, deadline)
}

/// As the public waits, for a caller that has made sure that it is outside operations and not in a fork's child.
pub(crate) fn wait_unchecked(
    moment: Moment,
    haste: Haste,
    deadline: Option<Instant>,
) -> Result<(), WaitError> {
    let limits = Limits { haste, deadline, patience: crate::stall::patience() };
    loop {
        match DOMAIN.grace.wait(&DOMAIN.registry, moment, limits) {
            Ok(()) => return Ok(()),
            // The driver's role is given up here, so the handler runs under nothing of ours.
            Err(Unfinished::Stalled(holdup)) => crate::stall::report(&holdup),
            Err(Unfinished::Timeout) => return Err(WaitError::Timeout),
            Err(Unfinished::NoFence(why)) => return Err(WaitError::NoFence(why)),
        }
    }
}

/// A deadline this far from now.
pub(crate) fn after(limit: Duration) -> Option<Instant> {
    Instant::now().checked_add(limit)
}
