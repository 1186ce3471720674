//! The slow path of a call: an action that is not quick, a miss, or a mediator in the slot.

use squall_sys::sync::Arc;
use std::ptr::NonNull;

use crate::call::answer::Answer;
use crate::call::arbitration::Arbitration;
use crate::call::error::{CallError, CallErrorKind};
use crate::call::frames::{Again, Frame};
use crate::call::handle::Handle;
use crate::call::hit::{Act, Hit};
use crate::call::interface::Interface;
use crate::call::mediated::{self, Met};
use crate::call::resolve::{Resolved, resolve};
use crate::protocol::header::Header;
use crate::protocol::mediator::Mediator;
use crate::protocol::object::hit;
use crate::protocol::tables::entry_here;

/// Performs an action that is not quick, up to the end of the operation. Out of line and without return to
/// the fast path, so that the fast path keeps no values for afterwards, not even the header's address.
#[inline(never)]
#[track_caller]
pub(super) fn run_slow<I: ?Sized + Interface, R>(
    entered: squall_rcu::Entered,
    handle: Handle<I>,
    method: &'static str,
    act: impl Act<I, R>,
    gone: impl Answer<R>,
) -> R {
    // SAFETY: an object has or had this id (`handle/I1`), so the tables exist. The header is used within the
    // operation (`handle/I2`).
    match unsafe { hit(entry_here(handle.bits_id().slot()), handle.bits_id()) } {
        Some(header) => {
            // SAFETY: a header of this id (`handle/I1`), found in the operation.
            let hit = unsafe { Hit::new(entered.guard(), header, entered.turn()) };
            act.act(entered.guard(), hit)
        }
        None => miss(entered, handle, method, act, gone),
    }
}

/// Performs an action out of line, with one copy of its code for all slow paths.
///
/// # Safety
/// The conditions of [`Hit::new`] hold.
#[inline(never)]
unsafe fn run_out_of_line<I: ?Sized, R>(
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
    handle: Handle<I>,
    method: &'static str,
    act: impl Act<I, R>,
    gone: impl Answer<R>,
) -> R {
    match resolve(handle.bits_id()).open() {
        // SAFETY: a header of this id (`handle/I1`), used in the operation (`handle/I2`).
        Resolved::Header(header) => unsafe { run_out_of_line(act, &entered, header) },
        Resolved::Error(error) => {
            drop(entered);
            gone.answer(error.of(I::NAME, method))
        }
        Resolved::Mediated(mediator) => meet_mediator(entered, mediator, handle, method, act, gone),
    }
}

/// Makes a call that met a mediator.
#[cold]
#[inline(never)]
#[track_caller]
fn meet_mediator<I: ?Sized + Interface, R>(
    mut entered: squall_rcu::Entered,
    mut mediator: NonNull<Mediator>,
    handle: Handle<I>,
    method: &'static str,
    act: impl Act<I, R>,
    gone: impl Answer<R>,
) -> R {
    let mut again = false;
    let error = loop {
        // SAFETY: found in this operation.
        match unsafe { mediated::meet(handle.bits_id(), mediator, again) } {
            Met::Pass(pass) => {
                let mut frame = Frame::new(pass.object, Again::Never);
                let _in_frame = pass.is_counted().then(|| frame.enter());
                // SAFETY: a header of this id (`handle/I1`), used in the operation (`handle/I2`).
                let f = || unsafe { run_out_of_line(act, &entered, pass.header) };
                // SAFETY: the mediator is valid in this operation, and so is the data it points to.
                let arbitration = unsafe { pass.arbitration() }.map(Arc::as_ref);
                match arbitrated(arbitration, handle, method, f) {
                    Ok(result) => return result,
                    Err(error) => break error,
                }
            }
            Met::Park(park) => {
                // An outermost operation ends here. An inner one stays open; the swap's time limit covers
                // that case.
                drop(entered);
                park.wait();
                // SAFETY: dropped before this function returns or unwinds.
                entered = match unsafe { squall_rcu::__enter(handle.bits_id().bits()) } {
                    Ok(entered) => entered,
                    Err(error) => return gone.answer(refused(handle, method, error)),
                };
                match resolve(handle.bits_id()).open() {
                    Resolved::Header(header) => {
                        // SAFETY: a header of this id (`handle/I1`), used in the operation (`handle/I2`).
                        return unsafe { run_out_of_line(act, &entered, header) };
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

/// Makes a call, through its arbitration if there is one.
pub(super) fn arbitrated<I: ?Sized + Interface, R>(
    arbitration: Option<&Arbitration>,
    handle: Handle<I>,
    method: &'static str,
    f: impl FnOnce() -> R,
) -> Result<R, CallError> {
    match arbitration {
        Some(arbitration) if arbitration.is_of(method) => {
            arbitration.call(I::NAME, handle.bits_id(), method, f).map_err(|error| error.of(I::NAME, method))
        }
        _ => Ok(f()),
    }
}

#[cold]
#[inline(never)]
pub(super) fn refused<I: ?Sized + Interface>(
    handle: Handle<I>,
    method: &'static str,
    error: squall_rcu::PinError,
) -> CallError {
    let reason = match error {
        squall_rcu::PinError::Forked => CallErrorKind::Forked,
        squall_rcu::PinError::Reentrant => CallErrorKind::Reentrant,
    };
    CallError::new(I::NAME, None, handle.bits_id(), method, reason)
}
