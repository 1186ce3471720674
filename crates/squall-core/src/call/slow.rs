//! The slow path of a call: a miss, or a mediator on the way.

use squall_sys::sync::Arc;
use std::ptr::NonNull;

use crate::call::answer::Answer;
use crate::call::arbitration::Arbitration;
use crate::call::error::{CallError, CallErrorKind};
use crate::call::frames::{Again, Frame};
use crate::call::hit::{Act, Hit};
use crate::call::interface::Interface;
use crate::call::mediated::{self, Met};
use crate::call::resolve::{Resolved, resolve};
use crate::protocol::header::Header;
use crate::protocol::id::Id;
use crate::protocol::mediator::Mediator;
use crate::protocol::object::hit;
use crate::protocol::tables::entry_here;

/// What is not soon done, to the end of the operation: so that the way of a hit, from which nothing comes back here, keeps nothing for after it;
/// not even where the header is.
#[inline(never)]
#[track_caller]
pub(super) fn act_at_length<I: ?Sized + Interface, R>(
    entered: squall_rcu::Entered,
    id: Id,
    method: &'static str,
    act: impl Act<I, R>,
    gone: impl Answer<R>,
) -> R {
    // SAFETY: as in `__call_act`: the tables exist, and the header is used within the operation (`handle/I2`).
    match unsafe { hit(entry_here(id.slot()), id) } {
        // SAFETY: a header of this id (`handle/I1`), found in the operation.
        Some(header) => {
            act.act(entered.guard(), unsafe { Hit::new(entered.guard(), header, entered.turn()) })
        }
        None => miss(entered, id, method, act, gone),
    }
}

/// The same away from the way of a hit, once for all the ways on which it is done so.
///
/// # Safety
/// As of [`Hit::new`].
#[inline(never)]
unsafe fn act_apart<I: ?Sized, R>(
    act: impl Act<I, R>,
    entered: &squall_rcu::Entered,
    header: NonNull<Header>,
) -> R {
    // SAFETY: the caller.
    act.act(entered.guard(), unsafe { Hit::new(entered.guard(), header, entered.turn()) })
}

#[cold]
#[inline(never)]
#[track_caller]
pub(super) fn miss<I: ?Sized + Interface, R>(
    entered: squall_rcu::Entered,
    id: Id,
    method: &'static str,
    act: impl Act<I, R>,
    gone: impl Answer<R>,
) -> R {
    match resolve(id).open() {
        // SAFETY: a header of this id (`handle/I1`), used in the operation (`handle/I2`).
        Resolved::Header(header) => unsafe { act_apart(act, &entered, header) },
        Resolved::Error(error) => {
            drop(entered);
            gone.answer(error.of(I::NAME, method))
        }
        Resolved::Mediated(mediator) => meet_mediator(entered, mediator, id, method, act, gone),
    }
}

/// A call that met a mediator.
#[cold]
#[inline(never)]
#[track_caller]
fn meet_mediator<I: ?Sized + Interface, R>(
    mut entered: squall_rcu::Entered,
    mut mediator: NonNull<Mediator>,
    id: Id,
    method: &'static str,
    act: impl Act<I, R>,
    gone: impl Answer<R>,
) -> R {
    let mut again = false;
    let error = loop {
        // SAFETY: found in this operation.
        match unsafe { mediated::meet(id, mediator, again) } {
            Met::Pass(pass) => {
                let mut frame = Frame::new(pass.object, Again::Never);
                let _in_frame = pass.is_counted().then(|| frame.enter());
                // SAFETY: a header of this id (`handle/I1`), used in the operation (`handle/I2`).
                let f = || unsafe { act_apart(act, &entered, pass.header) };
                // SAFETY: the mediator is valid in this operation, and so is what it points to.
                let arbitration = unsafe { pass.arbitration() }.map(Arc::as_ref);
                match arbitrated::<I, _>(arbitration, id, method, f) {
                    Ok(result) => return result,
                    Err(error) => break error,
                }
            }
            Met::Park(park) => {
                // The outermost operation ends here. An inner one stays, and the swap has a bound.
                drop(entered);
                park.wait();
                // SAFETY: dropped before this returns or unwinds.
                entered = match unsafe { squall_rcu::__enter(id.bits()) } {
                    Ok(entered) => entered,
                    Err(error) => return gone.answer(refused::<I>(id, method, error)),
                };
                match resolve(id).open() {
                    Resolved::Header(header) => {
                        // SAFETY: as in `miss`.
                        return unsafe { act_apart(act, &entered, header) };
                    }
                    Resolved::Mediated(next) => {
                        again = next == mediator;
                        mediator = next;
                    }
                    Resolved::Error(error) => break error,
                }
            }
            Met::Error(error) => break error,
        }
    };
    drop(entered);
    gone.answer(error.of(I::NAME, method))
}

/// Makes a call, by way of what arbitrates it.
pub(super) fn arbitrated<I: ?Sized + Interface, R>(
    arbitration: Option<&Arbitration>,
    id: Id,
    method: &'static str,
    f: impl FnOnce() -> R,
) -> Result<R, CallError> {
    match arbitration {
        Some(arbitration) if arbitration.is_of(method) => {
            arbitration.call(I::NAME, id, method, f).map_err(|error| error.of(I::NAME, method))
        }
        _ => Ok(f()),
    }
}

#[cold]
#[inline(never)]
pub(super) fn refused<I: ?Sized + Interface>(
    id: Id,
    method: &'static str,
    error: squall_rcu::PinError,
) -> CallError {
    let reason = match error {
        squall_rcu::PinError::Forked => CallErrorKind::Forked,
        squall_rcu::PinError::Reentrant => CallErrorKind::Reentrant,
    };
    CallError::new(I::NAME, None, id, method, reason)
}
