//! Calls that meet a mediator: they are counted, passed on, parked or refused.

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
use crate::protocol::header::Header;
use crate::protocol::id::Id;
use crate::protocol::mediation::{ask, leave};
use crate::protocol::mediator::{Admission, Mediator};
use crate::protocol::miss::InFlight;
use crate::protocol::object::{Object, entry_of};
use crate::protocol::platform::Platform;
use crate::protocol::sleepers::sleepers;
use crate::protocol::tables::{Tables, existing};

/// Calls whose pause is recorded, of each swap.
pub(crate) const PAUSES_MAX: usize = 32;

/// A mediator with what is not the models' business.
#[repr(C)]
pub(crate) struct Full {
    pub(crate) mediator: Mediator,
    /// The function by way of which calls go, if there is one.
    pub(crate) arbitration: Option<Arc<Arbitration>>,
    pub(crate) began: Instant,
    // Written by calls that park.
    pub(crate) parked: AtomicU64,
    /// When the first of them did, in nanoseconds since `began`, plus one.
    pub(crate) parked_at: [AtomicU64; PAUSES_MAX],
}

impl Full {
    pub(crate) fn new(mediator: Mediator, arbitration: Option<Arc<Arbitration>>) -> Box<Full> {
        Box::new(Full {
            mediator,
            arbitration,
            began: Instant::now(),
            parked: AtomicU64::new(0),
            parked_at: [const { AtomicU64::new(0) }; PAUSES_MAX],
        })
    }

    /// The whole of which this is the beginning.
    ///
    /// # Safety
    /// It is one, as all are outside models; valid for `'a`.
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

/// Frees a mediator that is in no slot any more, when no call can use it.
///
/// # Safety
/// Once, by whoever put it there, or took it out.
pub(crate) unsafe fn retire(mediator: NonNull<Mediator>) {
    unsafe fn free(full: *mut ()) {
        // SAFETY: the box of `Full::new`, which nobody can reach any more.
        drop(unsafe { Box::from_raw(full.cast::<Full>()) });
    }
    // SAFETY: 1. once, anywhere. 2. It is in no slot.
    unsafe { squall_rcu::defer_raw(free, mediator.as_ptr().cast(), size_of::<Full>()) };
}

/// What becomes of a call that met a mediator.
pub(crate) enum Met {
    /// It goes on.
    Pass(Pass),
    /// It leaves its operation, waits there, and begins again.
    Park(Park),
    /// It does not happen.
    Error(CallError),
}

/// A call that goes on, within the operation in which it met the mediator.
pub(crate) struct Pass {
    pub(crate) header: NonNull<Header>,
    pub(crate) object: NonNull<Object>,
    arbitration: Option<NonNull<Arc<Arbitration>>>,
    // Dropped when the call is over, or holds its representative.
    counted: Option<Counted>,
}

impl Pass {
    /// Whether a mediator has counted it.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted.is_some()
    }

    /// What arbitrates it.
    ///
    /// # Safety
    /// Within the operation, for as long as it.
    pub(crate) unsafe fn arbitration<'a>(&self) -> Option<&'a Arc<Arbitration>> {
        // SAFETY: in the mediator, which is valid in the operation.
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

/// Where and since when a call parks.
pub(crate) struct Park {
    sleepers: &'static EventCount,
    seen: Seen,
}

impl Park {
    /// Waits until the swap is over, or something else happens. Outside the operation of the call.
    pub(crate) fn wait(self) {
        self.sleepers.wait(self.seen, None);
    }
}

/// What a call of `id` does that met this mediator. `again` says that it has parked before.
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
        Ok(Admission::Parked) => unreachable!("who parks has seen why"),
        Err(seen) => {
            if !again {
                full.note_park();
            }
            return Met::Park(Park { sleepers: tables.sleepers(this.id.slot()), seen });
        }
    };
    // SAFETY: valid within this operation: in a slot when it began, or counted, or what the mediator sends calls to.
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

/// The representative of the caller's cluster, active or not.
///
/// # Safety
/// Within an operation in which the object is valid. It has the interface of this index under this id.
unsafe fn header_of(
    tables: &'static Tables,
    object: NonNull<Object>,
    id: Id,
    index: u32,
) -> Result<NonNull<Header>, CallError> {
    let vp = Vp::current();
    // What an earlier call of this VP installed, so that nothing is written.
    // SAFETY: within the operation.
    if let Some(header) = unsafe { entry_of(tables.entry(vp.index(), id.slot()), object, index) } {
        return Ok(header);
    }
    // SAFETY: valid within the operation.
    match unsafe { InFlight::inside(tables, object, index) } {
        // SAFETY: within its gate and an operation.
        Some(miss) => unsafe { answer(&miss, vp, id) },
        None => {
            // SAFETY: as above.
            let class = (unsafe { object.as_ref() }.class.name)();
            Err(CallError::unnamed(Some(class), id, CallErrorKind::Destroyed))
        }
    }
}

/// An object was destroyed by a thread that found this mediator in its slot: those who wait err at once.
///
/// # Safety
/// Within the operation in which the caller took the mediator out of the slot, once. `ownerless` says whether the caller is
/// its owner now (`mediator/I3`).
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
