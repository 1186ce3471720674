//! A miss: finds or makes the representative of the caller's cluster, and installs it in the local table.

use squall_machine::Vp;
use std::ptr::NonNull;

use crate::call::error::{CallError, CallErrorKind};
use crate::protocol::class::{Found, ObjectKind};
use crate::protocol::header::Header;
use crate::protocol::id::Id;
use crate::protocol::mediator::Mediator;
use crate::protocol::miss::InFlight;
use crate::protocol::object::{header, hit, shared_owner};
use crate::protocol::platform::Platform;
use crate::protocol::slot::Absent;
use crate::protocol::tables::{Tables, existing};

/// The outcome of a miss.
pub(super) enum Resolved {
    /// The header of a representative, to be used in the same operation.
    Header(NonNull<Header>),
    /// The call fails.
    Error(CallError),
    /// A mediator, to be asked in the same operation.
    Mediated(NonNull<Mediator>),
}

/// A `Resolved` in one word, which is returned in a register.
///
/// - I1. The word is a pointer. Its low bits give the kind: clear, `ERROR` or `MEDIATED`.
#[must_use]
pub(super) struct Packed(NonNull<()>);

const ERROR: usize = 1;
const MEDIATED: usize = 2;
const _: () = assert!(align_of::<Header>() > 2 && align_of::<Mediator>() > 2 && CallError::ALIGN > 2);

impl Packed {
    #[inline(always)]
    fn header(header: NonNull<Header>) -> Packed {
        Packed(header.cast())
    }

    #[cold]
    fn error(error: CallError) -> Packed {
        Packed(error.into_raw().map_addr(|address| address | ERROR))
    }

    #[cold]
    fn mediated(mediator: NonNull<Mediator>) -> Packed {
        Packed(mediator.cast().map_addr(|address| address | MEDIATED))
    }

    /// Returns the header, if a header was found.
    #[inline(always)]
    pub(super) fn as_header(&self) -> Option<NonNull<Header>> {
        (self.0.addr().get() & (ERROR | MEDIATED) == 0).then_some(self.0.cast())
    }

    pub(super) fn open(self) -> Resolved {
        if let Some(header) = self.as_header() {
            return Resolved::Header(header);
        }
        let tag = self.0.addr().get() & (ERROR | MEDIATED);
        let Some(pointer) = NonNull::new(self.0.as_ptr().map_addr(|address| address - tag)) else {
            unreachable!("the result of a miss is a null pointer with the tag {tag}")
        };
        match tag {
            // SAFETY: made by `error` (I1), and opened once.
            ERROR => Resolved::Error(unsafe { CallError::from_raw(pointer) }),
            _ => Resolved::Mediated(pointer.cast()),
        }
    }
}

/// Finds or makes the representative for the caller's cluster, and installs it. Runs within an operation, in
/// which the caller uses the header.
#[cold]
#[inline(never)]
pub(super) fn resolve(id: Id) -> Packed {
    let forked = || Packed::error(CallError::unnamed(None, id, CallErrorKind::Forked));
    let Some(tables) = existing() else {
        if squall_sys::fork::forked() {
            return forked();
        }
        return Packed::error(CallError::unnamed(None, id, CallErrorKind::NotThere));
    };
    // Read once, so that the entry is stored on the VP that the translation set records.
    // SAFETY: the tables exist, and making them asked for the VP first.
    let vp = match unsafe { Vp::index_at_hand() } {
        at_hand @ 0.. => Vp::new(at_hand as u32),
        _ => {
            // The fast path looked at another entry (`tables/I1`).
            let vp = Vp::current();
            // SAFETY: within the operation of the call.
            if let Some(header) = unsafe { hit(tables.entry(vp.index(), id.slot()), id) } {
                return Packed::header(header);
            }
            vp
        }
    };
    // In a child made by `fork`, operations of objects are refused. Only a child of a bare `clone` gets here.
    if squall_sys::fork::forked() {
        return forked();
    }
    // SAFETY: within the operation of the call.
    match unsafe { InFlight::enter(tables, id) } {
        // SAFETY: within the operation of the call.
        Ok(miss) => match unsafe { answer(&miss, vp, id) } {
            Ok(header) => Packed::header(header),
            Err(error) => Packed::error(error),
        },
        Err(Absent::Mediated(mediator)) => Packed::mediated(mediator),
        Err(absent) => Packed::error(CallError::absent(id, absent)),
    }
}

/// Finds or makes the representative that answers a miss on this VP, and installs it.
///
/// # Safety
/// Within the operation of the call.
#[inline(always)]
pub(crate) unsafe fn answer(
    miss: &InFlight<'_, Tables>,
    vp: Vp,
    id: Id,
) -> Result<NonNull<Header>, CallError> {
    let class = miss.object().class;
    let found = if class.kind == ObjectKind::Shared {
        // SAFETY: an object of that kind, with its whole block.
        Found { owner: unsafe { shared_owner(miss.block()) }, cache: true }
    } else {
        // SAFETY: within the object's gate and an operation.
        unsafe { (class.more.resolve)(miss.block(), vp) }.map_err(|refusal| {
            CallError::unnamed(Some((class.name)()), id, CallErrorKind::Refused(refusal.0))
        })?
    };
    // SAFETY: a representative of this object, which has that interface.
    let header = unsafe { header(found.owner, miss.index()) };
    if found.cache {
        miss.install(vp.index(), header);
    }
    Ok(header)
}
