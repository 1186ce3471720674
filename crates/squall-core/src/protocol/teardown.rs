//! The teardown of an object: leaves its slots, shuts its gate, poisons its headers and clears its entries.
//!
//! The first slot decides which thread tears down an object (`slot/I1`). Its gate decides when the entries
//! are cleared (`gate/I2`).

use squall_sys::sync::atomic::Ordering;
use std::ptr::{self, NonNull};

use super::gate::DrainStatus;
use super::mediator::{Mediator, Phase};
use super::object::{Object, each, entry_of, for_each_header};
use super::platform::Platform;
use super::sites;
use super::slot::{Occupant, decode, object_in};
use crate::protocol::class::Class;
use crate::protocol::id::Id;

/// The result of [`kill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Killed {
    /// Another call had ended the object before.
    Before,
    /// The call ended the object. If it is drained, the caller leaves its operation and calls
    /// [`Platform::after_grace_period`] with [`Stage::Quiet`](super::platform::Stage::Quiet). Otherwise the
    /// last miss in flight does so.
    Ended { object: NonNull<Object>, drained: bool },
    /// Like `Ended`, and a mediator was in the slot. The caller wakes the threads that wait for it. If it is
    /// `ownerless`, the caller frees it after a grace period.
    Mediated { object: NonNull<Object>, drained: bool, mediator: NonNull<Mediator>, ownerless: bool },
}

/// Ends the object with this id. Every call that begins after this function returned fails. If another call
/// of `kill` was first, that one may still be running.
///
/// # Safety
/// The caller is within an operation: the last miss may send the object to its grace period while this
/// function still uses it.
#[inline(always)]
pub(crate) unsafe fn kill(platform: &impl Platform, id: Id) -> Killed {
    let slot = platform.slot(id.slot());
    let found = slot.load();
    let Some(block) = object_in(found) else {
        // SAFETY: the caller's promise.
        return unsafe { kill_mediated(platform, id) };
    };
    // SAFETY: valid within this operation (`object/I1`).
    let class = unsafe { block.as_ref() }.class;
    // Take it out before the gate is shut: from then on a miss in flight may drain the gate (`object/I1`).
    let taken = if sites::RETIRE_FIRST.is_weak() { found } else { slot.take(class) };
    if taken != found {
        // SAFETY: the caller's promise; the occupant was taken out by this call.
        return unsafe { kill_taken(platform, id, taken) };
    }
    // SAFETY: taken out by this call, in this operation.
    let killed = unsafe { kill_object(platform, block, class) };
    if sites::RETIRE_FIRST.is_weak() {
        slot.take(class);
    }
    killed
}

/// Ends an object that is no longer in its first slot.
///
/// # Safety
/// The conditions of [`kill`] hold. The caller took the object, or its mediator, out of the slot. `class` is
/// the object's class.
#[inline(always)]
pub(crate) unsafe fn kill_object(
    platform: &impl Platform,
    block: NonNull<Object>,
    class: &'static Class,
) -> Killed {
    // SAFETY: the caller's promise.
    let object = unsafe { block.as_ref() };
    retire_rest(platform, object.id, class);
    let shut = object.gate.kill();
    debug_assert!(shut != DrainStatus::AlreadyDead, "an object was taken out of its slot twice");
    for_each_header(block, class, |header| header.poison());
    let drained = shut == DrainStatus::Drained;
    if drained {
        clear(platform, object, class);
    }
    Killed::Ended { object: block, drained }
}

/// Tags the object's slots, except the first.
#[inline(always)]
fn retire_rest(platform: &impl Platform, id: Id, class: &'static Class) {
    #[cold]
    #[inline(never)]
    fn rest(platform: &impl Platform, id: Id, class: &'static Class) {
        (1..class.interfaces).for_each(|index| platform.slot(id.slot() + index).retire(class));
    }
    if class.interfaces > 1 {
        rest(platform, id, class);
    }
}

/// The slow path of [`kill`]: the first slot has no object.
#[cold]
#[inline(never)]
unsafe fn kill_mediated(platform: &impl Platform, id: Id) -> Killed {
    let slot = platform.slot(id.slot());
    let class = match slot.occupant() {
        // SAFETY: valid within this operation (`object/I1`).
        Occupant::Object(object) => unsafe { object.as_ref() }.class,
        // SAFETY: valid within this operation (`object/I1`).
        Occupant::Mediated(mediator) => unsafe { mediator.as_ref().class() },
        Occupant::Empty | Occupant::Gone(..) => return Killed::Before,
    };
    // SAFETY: the caller's promise; the occupant is taken out here.
    unsafe { kill_taken(platform, id, slot.take(class)) }
}

/// The slow path of [`kill`] after the exchange, for any occupant.
///
/// # Safety
/// The conditions of [`kill`] hold. The caller took `taken` out of the first slot.
#[cold]
#[inline(never)]
unsafe fn kill_taken(platform: &impl Platform, id: Id, taken: *mut ()) -> Killed {
    match decode(taken) {
        // SAFETY: valid within this operation (`object/I1`), and taken out by the caller.
        Occupant::Object(block) => unsafe { kill_object(platform, block, block.as_ref().class) },
        Occupant::Mediated(mediator) => {
            // SAFETY: valid within this operation (`object/I1`).
            let (this, class) = unsafe { (mediator.as_ref(), mediator.as_ref().class()) };
            retire_rest(platform, id, class);
            let phase = this.condemn();
            let winner = if phase == Phase::Complete { this.new.unwrap_or(this.old) } else { this.old };
            // SAFETY: valid within this operation: a mediator's owner is in the gate of the old object.
            match unsafe { kill_object(platform, winner, winner.as_ref().class) } {
                Killed::Ended { object, drained } => {
                    Killed::Mediated { object, drained, mediator, ownerless: phase == Phase::Arbitrate }
                }
                killed => killed,
            }
        }
        Occupant::Empty | Occupant::Gone(..) => Killed::Before,
    }
}

/// Ends an object that lost its id to another one, or never had one. The last thread that leaves the object's
/// gate, at the latest the mediator's owner, asks for the object's grace period.
///
/// # Safety
/// The mediator's owner, which is in the object's gate, calls this once.
pub(crate) unsafe fn move_away(object: NonNull<Object>) {
    // SAFETY: the caller is in its gate.
    let shut = unsafe { object.as_ref() }.gate.move_away();
    debug_assert!(shut == DrainStatus::Pending, "an object was moved without an owner in its gate");
}

/// Clears the entries of an object that [`move_away`] has ended, and leaves those of the other object in
/// place.
///
/// # Safety
/// The caller is within an operation.
pub(super) unsafe fn clear_own(platform: &impl Platform, block: NonNull<Object>) {
    // SAFETY: valid: the caller has not sent it to its grace period yet.
    let object = unsafe { block.as_ref() };
    object.for_each_translation(platform.vp_limit(), move |vp| {
        each(object.class.interfaces, move |index| {
            let entry = platform.entry(vp, object.id.slot() + index);
            // SAFETY: the caller's promise.
            if let Some(header) = unsafe { entry_of(entry, block, index) } {
                // Relaxed: as in `clear`. On failure the entry belongs to another object.
                let _ = entry.compare_exchange(
                    header.as_ptr(),
                    ptr::null_mut(),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
            }
        });
    });
}

/// Clears the entries (`object/I3`). The caller sends the object to its grace period next.
#[inline(always)]
pub(super) fn clear(platform: &impl Platform, object: &Object, class: &'static Class) {
    if !sites::CLEAR_ENTRIES.is_weak() {
        let (interfaces, first) = (class.interfaces, object.id.slot());
        object.for_each_translation(platform.vp_limit(), move |vp| {
            each(interfaces, move |index| {
                // Relaxed: the beginning of the grace period orders it. No miss stores an entry any more
                // (`gate/I2`).
                platform.entry(vp, first + index).store(ptr::null_mut(), Ordering::Relaxed);
            });
        });
    }
}
