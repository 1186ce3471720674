//! Calls that meet a mediator: the mediator counts them, passes them on, lets them wait or rejects them.

use squall_machine::Vp;
use squall_machine::park::{EventCount, Seen};
use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use std::ptr::NonNull;
use std::time::Instant;

use crate::call::arbitration::Arbitration;
use crate::call::error::{CallError, CallErrorKind};
use crate::call::frames::{TRANSFER, in_transfer, passes};
use crate::call::resolve::answer;
use crate::protocol::class::Class;
use crate::protocol::header::Header;
use crate::protocol::id::Id;
use crate::protocol::mediation::{ask, leave};
use crate::protocol::mediator::{Admission, Mediator};
use crate::protocol::miss::InFlight;
use crate::protocol::object::{Object, entry_of};
use crate::protocol::platform::Platform;
use crate::protocol::sleepers::sleepers;
use crate::protocol::tables::{Tables, existing};

/// The number of calls per swap for which the pause is recorded.
pub(crate) const PAUSES_MAX: usize = 32;

/// A mediator with the data that the models do not use.
#[repr(C)]
pub(crate) struct Full {
    pub(crate) mediator: Mediator,
    /// The function that calls go through, if any.
    pub(crate) arbitration: Option<Arc<Arbitration>>,
    /// The class of the new object of a swap. The object itself may be freed while others look at the
    /// mediator.
    pub(crate) replacement: Option<&'static Class>,
    pub(crate) began: Instant,
    // The number of calls that waited. Written by those calls.
    pub(crate) parked: AtomicU64,
    /// The times when the first of them began to wait: nanoseconds since `began`, plus one.
    pub(crate) parked_at: [AtomicU64; PAUSES_MAX],
}

impl Full {
    pub(crate) fn new(
        mediator: Mediator,
        arbitration: Option<Arc<Arbitration>>,
        replacement: Option<&'static Class>,
    ) -> Box<Full> {
        Box::new(Full {
            mediator,
            arbitration,
            replacement,
            began: Instant::now(),
            parked: AtomicU64::new(0),
            parked_at: [const { AtomicU64::new(0) }; PAUSES_MAX],
        })
    }

    /// Returns the `Full` that begins with this mediator.
    ///
    /// # Safety
    /// It is the beginning of a `Full`, as every mediator outside models is, and valid for `'a`.
    pub(crate) unsafe fn of<'a>(mediator: NonNull<Mediator>) -> &'a Full {
        // SAFETY: the caller's promise.
        unsafe { mediator.cast::<Full>().as_ref() }
    }

    fn note_park(&self) {
        let index = self.parked.fetch_add(1, Ordering::Relaxed);
        if let Some(place) = usize::try_from(index).ok().and_then(|index| self.parked_at.get(index)) {
            place.store(self.began.elapsed().as_nanos() as u64 + 1, Ordering::Relaxed);
        }
    }
}

/// Frees a mediator that is in no slot, once no call can use it.
///
/// # Safety
/// Called once, by the thread that installed the mediator or took it out.
pub(crate) unsafe fn retire(mediator: NonNull<Mediator>) {
    unsafe fn free(full: *mut ()) {
        // SAFETY: the box of `Full::new`, which is unreachable now.
        drop(unsafe { Box::from_raw(full.cast::<Full>()) });
    }
    // SAFETY: 1. `free` runs once, on any thread. 2. The mediator is in no slot.
    unsafe { squall_rcu::defer_raw(free, mediator.as_ptr().cast(), size_of::<Full>()) };
}

/// The outcome for a call that met a mediator.
pub(crate) enum Met {
    /// The call goes on.
    Pass(Pass),
    /// The call leaves its operation, waits at this place, and begins again.
    Park(Park),
    /// The call fails.
    Error(CallError),
}

/// A call that goes on, within the operation in which it met the mediator.
pub(crate) struct Pass {
    pub(crate) header: NonNull<Header>,
    pub(crate) object: NonNull<Object>,
    arbitration: Option<NonNull<Arc<Arbitration>>>,
    // Dropped when the call is over, or when it holds its representative.
    counted: Option<Counted>,
}

impl Pass {
    /// Whether the mediator has counted the call.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted.is_some()
    }

    /// Returns the arbitration that the call goes through.
    ///
    /// # Safety
    /// Used only within the operation.
    pub(crate) unsafe fn arbitration<'a>(&self) -> Option<&'a Arc<Arbitration>> {
        // SAFETY: inside the mediator, which is valid in the operation.
        self.arbitration.map(|arbitration| unsafe { arbitration.as_ref() })
    }
}

/// A call that a mediator has counted.
struct Counted {
    mediator: NonNull<Mediator>,
    tables: &'static Tables,
}

impl Drop for Counted {
    fn drop(&mut self) {
        // SAFETY: within the operation in which the mediator was found.
        leave(self.tables, unsafe { self.mediator.as_ref() });
    }
}

/// The event count where a call waits, and its state when the call decided to wait.
pub(crate) struct Park {
    sleepers: &'static EventCount,
    seen: Seen,
}

impl Park {
    /// Waits until the swap is over or another event is signalled. Called outside the call's operation.
    pub(crate) fn wait(self) {
        self.sleepers.wait(self.seen, None);
    }
}

/// Asks the mediator how to treat a call of `id`. `again` says that the call has waited before.
///
/// # Safety
/// Within an operation, in which the mediator was found in the slot of this id.
#[cold]
#[inline(never)]
pub(crate) unsafe fn meet(id: Id, mediator: NonNull<Mediator>, again: bool) -> Met {
    let Some(tables) = existing() else {
        return Met::Error(CallError::unnamed(None, id, CallErrorKind::NotThere));
    };
    // SAFETY: valid within this operation.
    let (this, full) = unsafe { (mediator.as_ref(), Full::of(mediator)) };
    // SAFETY: valid within this operation.
    let class = || (unsafe { this.class() }.name)();
    let (object, counted) = match ask(tables, this, passes) {
        Ok(Admission::Counted) => (this.old, Some(Counted { mediator, tables })),
        Ok(Admission::To(object)) => (object, None),
        Ok(Admission::Arbitrated) => (this.old, None),
        Ok(Admission::Doomed) => {
            return Met::Error(CallError::unnamed(Some(class()), id, CallErrorKind::Destroyed));
        }
        Ok(Admission::Parked) | Err(_) if in_transfer() => {
            // SAFETY: on the stack of `transferring`, below us.
            if let Some(parked) = unsafe { TRANSFER.get().as_ref() } {
                parked.set(true);
            }
            return Met::Error(CallError::unnamed(Some(class()), id, CallErrorKind::InTransfer));
        }
        Ok(Admission::Parked) => unreachable!("a call is to wait, but `ask` prepared no sleep for it"),
        Err(seen) => {
            if !again {
                full.note_park();
            }
            return Met::Park(Park { sleepers: tables.sleepers(this.id.slot()), seen });
        }
    };
    // SAFETY: valid within this operation: the object was in a slot when it began, or the call is counted, or
    // the mediator sends calls to it.
    match unsafe { header_of(tables, object, id, id.slot() - this.id.slot()) } {
        Ok(header) => Met::Pass(Pass {
            header,
            object,
            arbitration: full
                .arbitration
                .as_ref()
                .filter(|arbitration| arbitration.is_live())
                .map(NonNull::from),
            counted,
        }),
        Err(error) => Met::Error(error),
    }
}

/// Returns the header of the representative of the caller's cluster, active or not.
///
/// # Safety
/// Within an operation in which the object is valid. The interface with this index has this id.
unsafe fn header_of(
    tables: &'static Tables,
    object: NonNull<Object>,
    id: Id,
    index: u32,
) -> Result<NonNull<Header>, CallError> {
    let vp = Vp::current();
    // First look for an entry that an earlier call of this VP installed, so that no memory is written.
    // SAFETY: within the operation.
    if let Some(header) = unsafe { entry_of(tables.entry(vp.index(), id.slot()), object, index) } {
        return Ok(header);
    }
    // SAFETY: valid within the operation.
    match unsafe { InFlight::inside(tables, object, index) } {
        // SAFETY: within the object's gate and an operation.
        Some(miss) => unsafe { answer(&miss, vp, id) },
        None => {
            // SAFETY: valid within the operation.
            let class = (unsafe { object.as_ref() }.class.name)();
            Err(CallError::unnamed(Some(class), id, CallErrorKind::Destroyed))
        }
    }
}

/// Wakes the calls that wait at this mediator, after its object was destroyed; they fail. The destroying
/// thread found the mediator in the slot and calls this.
///
/// # Safety
/// Within the operation in which the caller took the mediator out of the slot; called once. `ownerless` says
/// whether the caller is now its owner (`mediator/I3`).
#[cold]
#[inline(never)]
pub(crate) unsafe fn doomed(mediator: NonNull<Mediator>, ownerless: bool) {
    // SAFETY: valid within this operation.
    sleepers(unsafe { mediator.as_ref() }.id.slot()).signal(u32::MAX);
    if ownerless {
        // SAFETY: ours, and in no slot.
        unsafe { retire(mediator) };
    }
}
