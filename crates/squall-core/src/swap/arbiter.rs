//! Arbiters: a function of the user's around every call of an object, or of one method.
//!
//! - I1. From the return of [`arbitrate`] to that of [`Arbiter::detach`] every call of the object that begins goes by way of
//!   the function, whatever serves it; from then on none.
//! - I2. An arbitrating mediator is freed by its owner (`mediator/I3`).
//!
//! Cost: see [`arbitrate`]. Source: CO-17, K42 §8.3: arbiters, families of objects that are interposed.

use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicBool, Ordering, fence};
use squall_sys::sync::thread;
use std::fmt;
use std::ptr::NonNull;

use crate::call::arbitration::{Arbitration, Call, Function};
use crate::call::handle::Handle;
use crate::call::interface::{Interface, find_method};
use crate::call::mediated::{Full, retire};
use crate::protocol::id::Id;
use crate::protocol::mediation::{Attach, attach, detach};
use crate::protocol::mediator::{Mediator, Phase};
use crate::protocol::miss::leave_as_owner;
use crate::protocol::object::Object;
use crate::protocol::platform::Platform;
use crate::protocol::slot::Absent;
use crate::protocol::tables::{Tables, existing};
use crate::swap::report::{SwapError, SwapFailure};

/// A function that arbitrates an object's calls, until this is dropped or [detached](Arbiter::detach).
///
/// It outlives swaps of the object: the one that takes the place is arbitrated, too.
#[must_use = "the function is detached when this is dropped"]
pub struct Arbiter {
    id: Id,
    /// None if it is kept.
    arbitration: Option<Arc<Arbitration>>,
}

/// Sends every call of the object by way of `function`: for tracing, counting, the injection of faults, admission.
///
/// `function` runs in the place of the method, in its caller's thread, and where that runs: inside an operation, in which it
/// must not block, unless the method is marked `#[blocking]`. If it panics, so does the call. Calls that it makes itself
/// are arbitrated as well, if they are of the same object.
///
/// # Errors
/// [`SwapError`]: the object is gone, another function arbitrates it, a swap of it is under way, the reference is of an
/// interface that the object's own one extends.
/// # Cost
/// Nothing to other objects, and nothing when it is detached. Each call of the object, of any method, takes the way of a
/// miss, which writes nothing that others write: some tens of nanoseconds. To attach or detach is in proportion to the
/// representatives. No call waits. Progress: lock-free, but for a function that is just being attached or detached by
/// another thread.
/// # Source
/// Appavoo 2005, §8.3.
pub fn arbitrate<I: ?Sized + Interface>(
    co: Handle<I>,
    function: impl Fn(&mut Call<'_>) + Send + Sync + 'static,
) -> Result<Arbiter, SwapError> {
    begin(I::NAME, Handle::id(co), None, Box::new(function))
}

/// As [`arbitrate`], of an object whose interface the caller does not know: of one that [`snapshot`](crate::snapshot) found,
/// say.
///
/// # Errors
/// As [`arbitrate`].
pub fn arbitrate_object(
    id: Id,
    function: impl Fn(&mut Call<'_>) + Send + Sync + 'static,
) -> Result<Arbiter, SwapError> {
    let interface = crate::observe::inspect::class_of(id).map_or("an object", |class| class.interface);
    begin(interface, id, None, Box::new(function))
}

/// As [`arbitrate`], for calls of one method, which may be one of an interface that this one extends.
///
/// # Errors
/// As [`arbitrate`], and [`SwapFailure::NoSuchMethod`].
/// # Cost
/// As [`arbitrate`]: calls of the other methods take the longer way, too.
pub fn arbitrate_method<I: ?Sized + Interface>(
    co: Handle<I>,
    method: &str,
    function: impl Fn(&mut Call<'_>) + Send + Sync + 'static,
) -> Result<Arbiter, SwapError> {
    let Some(method) = find_method::<I>(method) else {
        let error = SwapError::new(I::NAME, Handle::id(co), SwapFailure::NoSuchMethod);
        return Err(error.because(Some(format!("{method}()").into())));
    };
    begin(I::NAME, Handle::id(co), Some(method), Box::new(function))
}

fn begin(
    interface: &'static str,
    id: Id,
    method: Option<&'static str>,
    function: Function,
) -> Result<Arbiter, SwapError> {
    let refuse = |failure| SwapError::new(interface, id, failure);
    if squall_sys::fork::forked() {
        return Err(refuse(SwapFailure::Forked));
    }
    let Some(tables) = existing() else { return Err(refuse(SwapFailure::NotThere)) };
    let arbitration = Arc::new(Arbitration { function, method, live: AtomicBool::new(true) });
    for _ in 0..TRIES {
        // SAFETY: within an operation.
        let put = || unsafe { put_before(tables, id, &arbitration) };
        if squall_rcu::try_pin(|_| put()).unwrap_or_else(|error| Err(error.into())).map_err(refuse)? {
            return Ok(Arbiter { id, arbitration: Some(arbitration) });
        }
        thread::yield_now();
    }
    Err(refuse(SwapFailure::Busy))
}

/// How often one waits for an arbitration that comes or goes, which takes a few instructions of another thread.
pub(crate) const TRIES: usize = 10_000;

/// What the mediator in an object's first slot is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Business {
    /// A swap.
    Swap,
    /// An arbitration.
    Arbitration,
    /// One that is not yet, or not any more: in a moment something else is there.
    Passing,
}

impl Business {
    pub(crate) fn of(mediator: &Mediator) -> Business {
        match (mediator.phase(), mediator.new) {
            (Phase::Arbitrate, _) => Business::Arbitration,
            (Phase::Forward | Phase::RolledBack, None) => Business::Passing,
            _ => Business::Swap,
        }
    }
}

/// Puts a mediator that arbitrates before the object of this id. Returns whether it is there: if not, it may be tried again.
///
/// # Safety
/// Within an operation.
unsafe fn put_before(tables: &Tables, id: Id, arbitration: &Arc<Arbitration>) -> Result<bool, SwapFailure> {
    loop {
        // SAFETY: the caller's promise; what is found is valid in the operation.
        let object = match unsafe { serving(tables, id) }? {
            Serving::Alone(object) => object,
            Serving::Mediated(mediator) => {
                // SAFETY: as above.
                return match Business::of(unsafe { mediator.as_ref() }) {
                    Business::Swap => Err(SwapFailure::Busy),
                    Business::Arbitration => Err(SwapFailure::Arbitrated),
                    Business::Passing => Ok(false),
                };
            }
        };
        // SAFETY: valid in the operation.
        if !unsafe { object.as_ref() }.gate.enter_as_owner() {
            return Err(SwapFailure::Destroyed);
        }
        let mediator = Mediator::new(id, object, None, Phase::Forward);
        let full = NonNull::from(Box::leak(Full::new(mediator, Some(Arc::clone(arbitration)))));
        // SAFETY: just built, and freed by its owner (`mediator/I3`); the object is kept meanwhile, once.
        let put = unsafe {
            let put = attach(tables, full.cast());
            leave_as_owner(tables, object);
            put
        };
        match put {
            Attach::Attached => return Ok(true),
            // SAFETY: from `leak`; nobody has seen it.
            Attach::Occupied => drop(unsafe { Box::from_raw(full.as_ptr()) }),
            Attach::Doomed => {
                // SAFETY: ours, and in no slot.
                unsafe { retire(full.cast()) };
                return Err(SwapFailure::Destroyed);
            }
        }
    }
}

/// What is in the slot of an object.
pub(crate) enum Serving {
    Alone(NonNull<Object>),
    Mediated(NonNull<Mediator>),
}

/// What is in the slot of this id, which must be that of an object's own interface.
///
/// # Safety
/// Within an operation.
pub(crate) unsafe fn serving(tables: &Tables, id: Id) -> Result<Serving, SwapFailure> {
    let (found, own) = match tables.slot(id.slot()).find(id) {
        // SAFETY: valid within this operation.
        Ok(object) => (Serving::Alone(object), unsafe { object.as_ref() }.id),
        // SAFETY: as above.
        Err(Absent::Mediated(mediator)) => (Serving::Mediated(mediator), unsafe { mediator.as_ref() }.id),
        Err(Absent::Destroyed(_)) => return Err(SwapFailure::Destroyed),
        Err(Absent::NotThere) => return Err(SwapFailure::NotThere),
    };
    if own == id { Ok(found) } else { Err(SwapFailure::WrongInterface) }
}

/// Takes the mediator of a detached arbitration away, unless a swap is under way, which then does.
pub(crate) fn take_away(tables: &Tables, id: Id, arbitration: &Arc<Arbitration>) {
    // SeqCst: pairs with the fence after a swap has put such a mediator there: it sees that this is detached, or we see the
    // mediator.
    fence(Ordering::SeqCst);
    let _ = squall_rcu::try_pin(|_| {
        // SAFETY: within this operation; what is found is valid, and a `Full`.
        unsafe {
            let Ok(Serving::Mediated(mediator)) = serving(tables, id) else { return };
            let is_this =
                Full::of(mediator).arbitration.as_ref().is_some_and(|there| Arc::ptr_eq(there, arbitration));
            if is_this && detach(tables, mediator) {
                retire(mediator);
            }
        }
    });
}

impl Arbiter {
    /// The object.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Takes the function away: calls that begin after this returned do not meet it. As dropping this.
    pub fn detach(self) {}

    /// Leaves the function in place for as long as the object lives.
    pub fn keep(mut self) {
        self.arbitration = None;
    }
}

impl Drop for Arbiter {
    fn drop(&mut self) {
        let Some(arbitration) = &self.arbitration else { return };
        arbitration.live.store(false, Ordering::Relaxed);
        if let Some(tables) = existing()
            && !squall_sys::fork::forked()
        {
            take_away(tables, self.id, arbitration);
        }
    }
}

impl fmt::Debug for Arbiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arbiter({})", self.id)
    }
}
