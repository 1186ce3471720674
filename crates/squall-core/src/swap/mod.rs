//! Hot-swap: another implementation takes a live object's place, with its state, while it is called.
//!
//! [`Swap`] asks for it, [`Replacement`] is what takes the place, and [`StateFormats`], [`RootFormats`] say how state moves; a [`SwapReport`]
//! tells how it went. A [`Factory`] replaces all that it made; [`arbitrate`] puts a function around every call of an object.
//!
//! The protocol is in `README.md` beside this file, and what the models run in `raw/mediator.rs`; the phases are in `run.rs`,
//! the calls that meet them in `calls.rs`.

pub(crate) mod arbiter;
mod factory;
mod report;
mod run;

use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use std::any::TypeId;
use std::collections::BTreeSet;
use std::fmt;
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

/// How long a swap waits for counted calls if nobody says otherwise.
const DRAIN: Duration = Duration::from_millis(20);

/// Swaps the object for `new`, with its state. As [`Swap`] with no limit but that of the phase `Block`.
///
/// # Errors
/// [`SwapError`]; the object serves on as it was.
pub fn swap<I: ?Sized + Interface>(co: Handle<I>, new: Replacement<I>) -> Result<SwapReport, SwapError> {
    Swap::new(co).run(new)
}

/// A swap to be asked for: of which object, and within which limits.
///
/// The calling thread does the work, and waits until it is done. Meanwhile the object is called as ever, but for the
/// time in which its state moves: calls then wait, and run on what serves afterwards. No call is lost or run twice, and
/// those of one thread stay in order.
#[must_use = "a swap is done by `to`"]
pub struct Swap<I: ?Sized + Interface> {
    co: Handle<I>,
    deadline: Option<Instant>,
    drain: Duration,
    cancel: Option<Cancel>,
    state: bool,
}

/// What a swap may take.
pub(crate) struct Limits<'a> {
    pub(crate) deadline: Option<Instant>,
    pub(crate) drain: Duration,
    pub(crate) cancel: Option<&'a Cancel>,
    /// Whether state moves.
    pub(crate) state: bool,
    /// The classes one of which serves; any, if there are none.
    pub(crate) expected: Option<&'a BTreeSet<TypeId>>,
}

impl<I: ?Sized + Interface> Swap<I> {
    /// A swap of this object.
    pub fn new(co: Handle<I>) -> Swap<I> {
        Swap { co, deadline: None, drain: DRAIN, cancel: None, state: true }
    }

    /// The swap is rolled back if it has not ended by then. A step of the users' own, an export or an import, is not
    /// interrupted: the deadline is looked at after it.
    pub fn deadline(mut self, deadline: Instant) -> Swap<I> {
        self.deadline = Some(deadline);
        self
    }

    /// The same, from now: from this call, not from that of [`to`](Swap::run).
    pub fn timeout(self, limit: Duration) -> Swap<I> {
        match Instant::now().checked_add(limit) {
            Some(deadline) => self.deadline(deadline),
            None => self,
        }
    }

    /// How long calls may be kept waiting for those that are in the object: by default 20 ms. There is always such a
    /// bound, since a lock that is held across calls can make these wait for those; the swap is then rolled back.
    pub fn drain_timeout(mut self, limit: Duration) -> Swap<I> {
        self.drain = limit;
        self
    }

    /// The swap is rolled back if this is cancelled meanwhile.
    pub fn cancel_on(mut self, cancel: &Cancel) -> Swap<I> {
        self.cancel = Some(cancel.clone());
        self
    }

    /// No state moves: the new object begins with what it has.
    pub fn without_state(mut self) -> Swap<I> {
        self.state = false;
        self
    }

    /// Swaps the object for `new`, and waits until that serves.
    ///
    /// # Errors
    /// [`SwapError`], whose [`failure`](SwapError::failure) says why: nothing has changed then, the object serves with all
    /// its state, calls that waited have run on it, and `new` was dropped. If the object was destroyed, it is gone.
    /// # Panics
    /// With [`Root::EAGER`](crate::Root::EAGER), if `make_rep` does.
    /// # Cost
    /// A grace period, in which nobody waits, and what moving the state costs, in which its callers do; in proportion to
    /// the representatives. Blocking. Nothing afterwards: a call costs what it cost before.
    /// # Source
    /// Appavoo 2005, chapter 6. Deadlines, cancelling and the way back are ours.
    pub fn run(&self, new: Replacement<I>) -> Result<SwapReport, SwapError> {
        self.to_expecting(new, None)
    }

    /// As `to`, if what serves is of one of these classes.
    fn to_expecting(
        &self,
        new: Replacement<I>,
        expected: Option<&BTreeSet<TypeId>>,
    ) -> Result<SwapReport, SwapError> {
        let limits = Limits {
            deadline: self.deadline,
            drain: self.drain,
            cancel: self.cancel.as_ref(),
            state: self.state,
            expected,
        };
        run::swap(Handle::id(self.co), I::NAME, new.into_object(), &limits)
    }
}

impl<I: ?Sized + Interface> Clone for Swap<I> {
    fn clone(&self) -> Swap<I> {
        Swap { cancel: self.cancel.clone(), ..*self }
    }
}

impl<I: ?Sized + Interface> fmt::Debug for Swap<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Swap").field("co", &self.co).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Cancels swaps, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Cancels nothing yet.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Rolls back the swaps that were given this, those that are under way within about a millisecond. One that has moved
    /// its state already may end all the same; its result says so.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
