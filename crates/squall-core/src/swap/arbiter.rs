//! Arbiters: a user's function around every call of an object, or of one method.
//!
//! - I1. A call that begins after the return of [`arbitrate`] and before [`Arbiter::detach`] goes through the
//!   function, whichever implementation serves. A call that begins after the return of `detach` bypasses it.
//!   Calls of methods with names that end in `_unarbitrated` always bypass it.
//! - I2. An arbitrating mediator is freed by its owner (`mediator/I3`).
//!
//! Cost: see [`arbitrate`].
//! Source: CO-17, K42 §8.3: arbiters, families of objects that are interposed.

use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicBool, Ordering, fence};
use squall_sys::sync::thread;
use std::fmt;
use std::ptr::NonNull;

use crate::call::arbitration::{Arbitration, Call, Function, is_exempt};
use crate::call::handle::Handle;
use crate::call::interface::{Interface, methods_of};
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

/// Keeps a function attached to an object's calls, until it is dropped or [detached](Arbiter::detach).
///
/// The function stays attached across swaps of the object. Methods with names that end in `_unarbitrated`
/// bypass it.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::swap::arbitrate;
/// use std::sync::{Arc, atomic::{AtomicUsize, Ordering::Relaxed}};
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let calls = Arc::new(AtomicUsize::new(0));
/// let seen = Arc::clone(&calls);
/// let arbiter = arbitrate(counter.handle(), move |_| _ = seen.fetch_add(1, Relaxed))?;
/// counter.add(1);
/// arbiter.detach();
/// counter.add(1);
/// assert_eq!(calls.load(Relaxed), 1);
/// # Ok::<(), squall::swap::SwapError>(())
/// ```
#[must_use = "the function is detached when this is dropped"]
pub struct Arbiter {
    id: Id,
    /// Empty if the function stays for good.
    arbitration: Option<Arc<Arbitration>>,
}

/// Sends every call of the object through `function`: for tracing, counting, fault injection or admission
/// control.
///
/// `function` runs in place of the method, on the caller's thread. It runs inside an operation and must not
/// block, unless the method is marked `#[blocking]`. If it panics, the call panics. Calls of the same object
/// that `function` makes go through it, too. Methods with names that end in `_unarbitrated` bypass it: they
/// end the work of an earlier call.
///
/// # Errors
/// [`SwapError`] if the object is gone, if another function arbitrates it, or while it is being swapped. Also
/// if the handle's interface is one that the object's own interface extends.
/// # Cost
/// Other objects pay nothing. This object pays only while the function is attached. Each call of the object,
/// of any method, takes the slow path, which writes no shared data: some tens of nanoseconds. Attaching and
/// detaching cost in proportion to the representatives. No call waits. Progress: lock-free, except while
/// another thread attaches or detaches a function.
/// # Source
/// Appavoo 2005, §8.3.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::swap::arbitrate;
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let _arbiter = arbitrate(counter.handle(), |call| {
///     call.proceed();
///     println!("{}.{} is done", call.interface(), call.method());
/// })?;
/// counter.add(1);
/// # Ok::<(), squall::swap::SwapError>(())
/// ```
pub fn arbitrate<I: ?Sized + Interface>(
    handle: Handle<I>,
    function: impl Fn(&mut Call<'_>) + Send + Sync + 'static,
) -> Result<Arbiter, SwapError> {
    begin(I::NAME, Handle::id(handle), None, Box::new(function))
}

/// Like [`arbitrate`], for an object of unknown interface, such as one found by
/// [`snapshot`](crate::snapshot).
///
/// # Errors
/// [`SwapError`] for the reasons stated at [`arbitrate`].
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{Handle, swap::arbitrate_object};
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let _arbiter = arbitrate_object(Handle::id(counter.handle()), |call| call.refuse("closed"))?;
/// assert!(counter.try_get().is_err());
/// # Ok::<(), squall::swap::SwapError>(())
/// ```
pub fn arbitrate_object(
    id: Id,
    function: impl Fn(&mut Call<'_>) + Send + Sync + 'static,
) -> Result<Arbiter, SwapError> {
    let interface = crate::observe::inspect::class_of(id).map_or("an object", |class| class.interface);
    begin(interface, id, None, Box::new(function))
}

/// Like [`arbitrate`], for the calls of one method. The method may belong to an interface that this one
/// extends.
///
/// # Errors
/// [`SwapError`] for the reasons stated at [`arbitrate`], and [`SwapFailure::NoSuchMethod`], also for a
/// method with a name that ends in `_unarbitrated`.
/// # Cost
/// The cost of [`arbitrate`]: calls of the other methods take the slow path, too.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::swap::arbitrate_method;
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let _arbiter = arbitrate_method(counter.handle(), "add", |call| call.refuse("read-only"))?;
/// assert!(counter.try_add(1).is_err());
/// assert_eq!(counter.get(), 0);
/// # Ok::<(), squall::swap::SwapError>(())
/// ```
pub fn arbitrate_method<I: ?Sized + Interface>(
    handle: Handle<I>,
    method: &str,
    function: impl Fn(&mut Call<'_>) + Send + Sync + 'static,
) -> Result<Arbiter, SwapError> {
    let mut methods = methods_of::<I>();
    methods.retain(|name| !is_exempt(name));
    let Some(method) = methods.iter().copied().find(|name| *name == method) else {
        let error = SwapError::of_arbiter(I::NAME, Handle::id(handle), SwapFailure::NoSuchMethod);
        let detail = format!("`{method}`; its methods are {}", methods.join(", "));
        return Err(error.because(Some(detail.into())));
    };
    begin(I::NAME, Handle::id(handle), Some(method), Box::new(function))
}

fn begin(
    interface: &'static str,
    id: Id,
    method: Option<&'static str>,
    function: Function,
) -> Result<Arbiter, SwapError> {
    let refuse = |failure| SwapError::of_arbiter(interface, id, failure);
    if squall_sys::fork::forked() {
        return Err(refuse(SwapFailure::Forked));
    }
    let Some(tables) = existing() else { return Err(refuse(SwapFailure::NotThere)) };
    let arbitration = Arc::new(Arbitration { function, method, live: AtomicBool::new(true) });
    for _ in 0..TRIES {
        // SAFETY: within an operation.
        let put = || unsafe { put_before(tables, id, &arbitration) };
        if squall_rcu::__try_pin(|_| put()).unwrap_or_else(|error| Err(error.into())).map_err(refuse)? {
            return Ok(Arbiter { id, arbitration: Some(arbitration) });
        }
        thread::yield_now();
    }
    Err(refuse(SwapFailure::Busy))
}

/// The number of attempts while another thread attaches or detaches an arbitration, which takes that thread a
/// few instructions.
pub(crate) const TRIES: usize = 10_000;

/// The purpose of the mediator in an object's first slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Business {
    /// A swap.
    Swap,
    /// An arbitration.
    Arbitration,
    /// An arbitration that is being attached or detached: another occupant follows in a moment.
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

/// Installs an arbitrating mediator in front of the object of this id. Returns false if the caller should try
/// again.
///
/// # Safety
/// Within an operation.
unsafe fn put_before(tables: &Tables, id: Id, arbitration: &Arc<Arbitration>) -> Result<bool, SwapFailure> {
    loop {
        // SAFETY: the caller's promise; the result is valid in the operation.
        let object = match unsafe { serving(tables, id) }? {
            Serving::Alone(object) => object,
            Serving::Mediated(mediator) => {
                // SAFETY: valid in the operation.
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
        let full = NonNull::from(Box::leak(Full::new(mediator, Some(Arc::clone(arbitration)), None)));
        // SAFETY: just built, and freed by its owner (`mediator/I3`); the object is kept meanwhile, once.
        let put = unsafe {
            let put = attach(tables, full.cast());
            leave_as_owner(tables, object);
            put
        };
        match put {
            Attach::Attached => return Ok(true),
            // SAFETY: from `leak`; unseen by other threads.
            Attach::Occupied => drop(unsafe { Box::from_raw(full.as_ptr()) }),
            Attach::Doomed => {
                // SAFETY: ours, and in no slot.
                unsafe { retire(full.cast()) };
                return Err(SwapFailure::Destroyed);
            }
        }
    }
}

/// The occupant of an object's slot.
pub(crate) enum Serving {
    Alone(NonNull<Object>),
    Mediated(NonNull<Mediator>),
}

/// Returns the occupant of the slot of this id, which must be the id of an object's own interface.
///
/// # Safety
/// Within an operation.
pub(crate) unsafe fn serving(tables: &Tables, id: Id) -> Result<Serving, SwapFailure> {
    // An id from text may lie beyond the tables.
    if id.slot() >= tables.slots_end() {
        return Err(SwapFailure::NotThere);
    }
    let (found, own) = match tables.slot(id.slot()).find(id) {
        // SAFETY: valid within this operation.
        Ok(object) => (Serving::Alone(object), unsafe { object.as_ref() }.id),
        // SAFETY: valid within this operation.
        Err(Absent::Mediated(mediator)) => (Serving::Mediated(mediator), unsafe { mediator.as_ref() }.id),
        Err(Absent::Destroyed(_)) => return Err(SwapFailure::Destroyed),
        Err(Absent::NotThere) => return Err(SwapFailure::NotThere),
    };
    if own == id { Ok(found) } else { Err(SwapFailure::WrongInterface) }
}

/// Takes away the mediator of a detached arbitration. If a swap is in progress, the swap does it.
pub(crate) fn take_away(tables: &Tables, id: Id, arbitration: &Arc<Arbitration>) {
    // SeqCst: pairs with the fence after a swap has installed such a mediator. Either the swap sees that this
    // arbitration is detached, or this thread sees the mediator.
    fence(Ordering::SeqCst);
    let _ = squall_rcu::__try_pin(|_| {
        // SAFETY: within this operation; the mediator found is valid, and a `Full`.
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
    /// Returns the id of the object.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Detaches the function, like dropping the arbiter. Calls that begin after the return bypass the
    /// function.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::arbitrate;
    ///
    /// let counter = squall::shared::<dyn Counter, _>(Central::default());
    /// let arbiter = arbitrate(counter.handle(), |call| call.refuse("closed"))?;
    /// assert!(counter.try_get().is_err());
    /// arbiter.detach();
    /// assert!(counter.try_get().is_ok());
    /// # Ok::<(), squall::swap::SwapError>(())
    /// ```
    pub fn detach(self) {}

    /// Leaves the function attached for the rest of the object's life.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::arbitrate;
    ///
    /// let counter = squall::shared::<dyn Counter, _>(Central::default());
    /// arbitrate(counter.handle(), |call| call.refuse("closed for good"))?.keep();
    /// assert!(counter.try_get().is_err());
    /// # Ok::<(), squall::swap::SwapError>(())
    /// ```
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
