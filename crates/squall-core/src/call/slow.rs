//! The slow path of a call: an action that is not quick, a miss, or a mediator in the slot.

use squall_sys::sync::Arc;
use std::ptr::NonNull;

use crate::call::answer::Answer;
use crate::call::arbitration::Arbitration;
use crate::call::error::{CallError, CallErrorKind};
use crate::call::frames::{Again, Frame};
use crate::call::handle::Handle;
use crate::call::hit::{Action, Hit};
use crate::call::interface::Interface;
use crate::call::mediated::{self, Met};
use crate::call::resolve::{Packed, Resolved, resolve};
use crate::protocol::header::Header;
use crate::protocol::id::Id;
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
    action: impl Action<I, R>,
    gone: impl Answer<R>,
) -> R {
    // SAFETY: the id of a handle. The header is used within the operation (`handle/I2`).
    match unsafe { header_here(handle.bits_id()) } {
        // SAFETY: a header of this id (`handle/I1`), found in the operation.
        Some(header) => unsafe { run_out_of_line(action, &entered, header) },
        None => miss(entered, handle, method, action, gone),
    }
}

/// Returns the header in the local table's entry for this id.
///
/// # Safety
/// The id of a handle.
#[inline(never)]
unsafe fn header_here(id: Id) -> Option<NonNull<Header>> {
    // SAFETY: an object has or had this id (`handle/I1`), so the tables exist.
    unsafe { hit(entry_here(id.slot()), id) }
}

/// Performs an action out of line, with one copy of its code for all slow paths.
///
/// # Safety
/// The conditions of [`Hit::new`] hold.
#[inline(never)]
unsafe fn run_out_of_line<I: ?Sized, R>(
    action: impl Action<I, R>,
    entered: &squall_rcu::Entered,
    header: NonNull<Header>,
) -> R {
    // SAFETY: the caller.
    action.run_slow(entered.guard(), unsafe { Hit::new(entered.guard(), header, entered.turn()) })
}

/// Runs the action of a call on the representative with this header, once, within the operation.
///
/// The slow path gets the action in this form, so that it is compiled once for all calls.
type Run<'a> = &'a mut dyn FnMut(&squall_rcu::Entered, NonNull<Header>);

#[cold]
#[inline(never)]
#[track_caller]
pub(super) fn miss<I: ?Sized + Interface, R>(
    entered: squall_rcu::Entered,
    handle: Handle<I>,
    method: &'static str,
    action: impl Action<I, R>,
    gone: impl Answer<R>,
) -> R {
    let resolved = resolve(handle.bits_id());
    match resolved.as_header() {
        // SAFETY: a header of this id (`handle/I1`), used in the operation (`handle/I2`).
        Some(header) => unsafe { run_out_of_line(action, &entered, header) },
        None => call_otherwise(entered, resolved, handle, method, action, gone),
    }
}

/// Makes a call for which no header was found.
#[cold]
#[inline(never)]
#[track_caller]
fn call_otherwise<I: ?Sized + Interface, R>(
    entered: squall_rcu::Entered,
    resolved: Packed,
    handle: Handle<I>,
    method: &'static str,
    action: impl Action<I, R>,
    gone: impl Answer<R>,
) -> R {
    let (mut action, mut result) = (Some(action), None);
    let mut run = |entered: &squall_rcu::Entered, header: NonNull<Header>| {
        if let Some(action) = action.take() {
            // SAFETY: `run_otherwise` passes a header of this id (`handle/I1`), used in the operation
            // (`handle/I2`).
            result = Some(unsafe { run_out_of_line(action, entered, header) });
        }
    };
    if let Err(error) = run_otherwise(entered, resolved, handle.bits_id(), I::NAME, method, &mut run) {
        return gone.answer(error);
    }
    match result {
        Some(result) => result,
        None => made_without_action(I::NAME, method),
    }
}

#[cold]
fn made_without_action(interface: &'static str, method: &'static str) -> ! {
    unreachable!("a call of {interface}.{method} was made without its action")
}

/// Makes a call for which no header was found. `run` gets a header of this id, within an operation, if the
/// call succeeds.
fn run_otherwise(
    entered: squall_rcu::Entered,
    resolved: Packed,
    id: Id,
    interface: &'static str,
    method: &'static str,
    run: Run<'_>,
) -> Result<(), CallError> {
    match resolved.open() {
        Resolved::Header(header) => {
            run(&entered, header);
            Ok(())
        }
        Resolved::Error(error) => {
            drop(entered);
            Err(error.of(interface, method))
        }
        Resolved::Mediated(mediator) => meet_mediator(entered, mediator, id, interface, method, run),
    }
}

/// Makes a call that met a mediator. `run` gets a header of this id, within an operation, if the call
/// succeeds.
fn meet_mediator(
    mut entered: squall_rcu::Entered,
    mut mediator: NonNull<Mediator>,
    id: Id,
    interface: &'static str,
    method: &'static str,
    run: Run<'_>,
) -> Result<(), CallError> {
    let mut again = false;
    loop {
        // SAFETY: found in this operation.
        match unsafe { mediated::meet(id, mediator, again) } {
            Met::Pass(pass) => {
                let mut frame = Frame::new(pass.object, Again::Never);
                let _in_frame = pass.is_counted().then(|| frame.enter());
                // SAFETY: the mediator is valid in this operation, and so is the data it points to.
                let arbitration = unsafe { pass.arbitration() }.map(Arc::as_ref);
                return arbitrated(arbitration, id, interface, method, &mut || run(&entered, pass.header));
            }
            Met::Park(park) => {
                // An outermost operation ends here. An inner one stays open; the swap's time limit covers
                // that case.
                drop(entered);
                park.wait();
                // SAFETY: dropped before this function returns or unwinds.
                entered = unsafe { squall_rcu::__enter(id.bits()) }
                    .map_err(|error| refused(id, interface, method, error))?;
                match resolve(id).open() {
                    Resolved::Header(header) => {
                        run(&entered, header);
                        return Ok(());
                    }
                    Resolved::Mediated(next) => {
                        again = next == mediator;
                        mediator = next;
                    }
                    Resolved::Error(error) => return Err(error.of(interface, method)),
                }
            }
            Met::Error(error) => return Err(error.of(interface, method)),
        }
    }
}

/// Makes a call by `run`, through its arbitration if there is one.
pub(super) fn arbitrated(
    arbitration: Option<&Arbitration>,
    id: Id,
    interface: &'static str,
    method: &'static str,
    run: &mut dyn FnMut(),
) -> Result<(), CallError> {
    match arbitration {
        Some(arbitration) if arbitration.is_of(method) => {
            arbitration.call(interface, id, method, run).map_err(|error| error.of(interface, method))
        }
        _ => {
            run();
            Ok(())
        }
    }
}

#[cold]
#[inline(never)]
pub(super) fn refused(
    id: Id,
    interface: &'static str,
    method: &'static str,
    error: squall_rcu::PinError,
) -> CallError {
    let reason = match error {
        squall_rcu::PinError::Forked => CallErrorKind::Forked,
        squall_rcu::PinError::Reentrant => CallErrorKind::Reentrant,
    };
    CallError::new(interface, None, id, method, reason)
}
