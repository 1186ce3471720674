//! The end of an object: out of its slots, its gate shut, its headers poisoned, its entries cleared.
//!
//! Who does it is decided in the first slot (`slot/I1`), and when its entries are cleared by its gate (`gate/I2`).

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

/// What [`kill`] led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Killed {
    /// It had ended before.
    Before,
    /// This one has. If it is drained the caller goes on, outside its operation: [`Platform::after_grace_period`] with
    /// [`Stage::Quiet`]. Else misses are in flight, the last of which goes on.
    Ended { object: NonNull<Object>, drained: bool },
    /// The same, and a mediator was there. The caller wakes those who wait for it; if it is `ownerless`, it frees it after a
    /// grace period.
    Mediated { object: NonNull<Object>, drained: bool, mediator: NonNull<Mediator>, ownerless: bool },
}

/// Ends the object of this id: from the return of this call on, every call that begins errs. If another call of this
/// function was first, that one may still be at it.
///
/// # Safety
/// Within an operation: the last miss may send the object to its grace period while this function is still using it.
#[inline(always)]
pub(crate) unsafe fn kill(platform: &impl Platform, id: Id) -> Killed {
    let slot = platform.slot(id.slot());
    let found = slot.load();
    let Some(block) = object_in(found) else {
        // SAFETY: passed on.
        return unsafe { kill_mediated(platform, id) };
    };
    // SAFETY: valid within this operation (`object/I1`).
    let class = unsafe { block.as_ref() }.class;
    // Before the gate is shut, since from then on a miss in flight may drain it (`object/I1`).
    let taken = if sites::RETIRE_FIRST.is_weak() { found } else { slot.take(class) };
    if taken != found {
        // SAFETY: passed on.
        return unsafe { kill_taken(platform, id, taken) };
    }
    // SAFETY: taken out by us, in this operation.
    let killed = unsafe { kill_object(platform, block, class) };
    if sites::RETIRE_FIRST.is_weak() {
        slot.take(class);
    }
    killed
}

/// Ends an object that nobody finds in its first slot any more.
///
/// # Safety
/// As of [`kill`], by whoever took it out, or whoever did it for its mediator. `class` is its class.
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

/// Takes the object out of its slots but the first.
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

/// [`kill`], where it finds no object.
#[cold]
#[inline(never)]
unsafe fn kill_mediated(platform: &impl Platform, id: Id) -> Killed {
    let slot = platform.slot(id.slot());
    let class = match slot.occupant() {
        // SAFETY: valid within this operation (`object/I1`).
        Occupant::Object(object) => unsafe { object.as_ref() }.class,
        // SAFETY: as above.
        Occupant::Mediated(mediator) => unsafe { mediator.as_ref().class() },
        Occupant::Nobody | Occupant::Gone(..) => return Killed::Before,
    };
    // SAFETY: passed on.
    unsafe { kill_taken(platform, id, slot.take(class)) }
}

/// [`kill`], where what it took out is not what it found at first.
#[cold]
#[inline(never)]
unsafe fn kill_taken(platform: &impl Platform, id: Id, taken: *mut ()) -> Killed {
    match decode(taken) {
        // SAFETY: valid within this operation (`object/I1`), and taken out by us.
        Occupant::Object(block) => unsafe { kill_object(platform, block, block.as_ref().class) },
        Occupant::Mediated(mediator) => {
            // SAFETY: as above.
            let (this, class) = unsafe { (mediator.as_ref(), mediator.as_ref().class()) };
            retire_rest(platform, id, class);
            let phase = this.condemn();
            let winner = if phase == Phase::Complete { this.new.unwrap_or(this.old) } else { this.old };
            // SAFETY: valid within this operation: a mediator's owner keeps the old one by its gate.
            match unsafe { kill_object(platform, winner, winner.as_ref().class) } {
                Killed::Ended { object, drained } => {
                    Killed::Mediated { object, drained, mediator, ownerless: phase == Phase::Arbitrate }
                }
                killed => killed,
            }
        }
        Occupant::Nobody | Occupant::Gone(..) => Killed::Before,
    }
}

/// Ends an object whose id is another one's, or never was its own. It is sent to its grace period by whoever leaves its gate
/// last, the mediator's owner at the latest.
///
/// # Safety
/// Once, by a mediator's owner, in whose gate it is.
pub(crate) unsafe fn move_away(object: NonNull<Object>) {
    // SAFETY: the caller keeps it.
    let shut = unsafe { object.as_ref() }.gate.move_away();
    debug_assert!(shut == DrainStatus::Pending, "an object was moved that nobody keeps");
}

/// The same, of an object that [`move_away`] has ended: only those entries that are its own.
///
/// # Safety
/// Within an operation.
pub(super) unsafe fn clear_own(platform: &impl Platform, block: NonNull<Object>) {
    // SAFETY: valid, as the caller sends it to its grace period.
    let object = unsafe { block.as_ref() };
    object.for_each_translation(platform.vp_limit(), move |vp| {
        each(object.class.interfaces, move |index| {
            let entry = platform.entry(vp, object.id.slot() + index);
            // SAFETY: the caller's promise.
            if let Some(header) = unsafe { entry_of(entry, block, index) } {
                // Relaxed: as in `clear`. If it fails, another one's is there.
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

/// Clears the entries (`object/I3`). Whoever calls this sends the object to its grace period next.
#[inline(always)]
pub(super) fn clear(platform: &impl Platform, object: &Object, class: &'static Class) {
    if !sites::CLEAR_ENTRIES.is_weak() {
        let (interfaces, first) = (class.interfaces, object.id.slot());
        object.for_each_translation(platform.vp_limit(), move |vp| {
            each(interfaces, move |index| {
                // Relaxed: ordered before the grace period by its beginning. No miss stores any more (gate/I2).
                platform.entry(vp, first + index).store(ptr::null_mut(), Ordering::Relaxed);
            });
        });
    }
}
