//! Misses: a call without a local translation enters the object's gate and installs a header for its VP.
//!
//! `object.rs` states the invariants.

use squall_sys::sync::atomic::Ordering;
use std::ptr::NonNull;

use super::gate::DrainStatus;
use super::header::{Header, Released};
use super::id::Id;
use super::object::{Object, each, header, owner_of};
use super::platform::{Platform, Stage};
use super::reps::Owner;
use super::sites;
use super::slot::{Absent, object_in};
use super::teardown::{clear, clear_own};

/// Publishes a built object in the slots of its id.
///
/// # Safety
/// The caller has just built the object, under this id and with this number of interfaces.
#[inline(always)]
pub(crate) unsafe fn publish(platform: &impl Platform, object: NonNull<Object>, id: Id, interfaces: u32) {
    each(interfaces, move |index| platform.slot(id.slot() + index).publish(object));
}

/// A miss in flight. Until it is dropped, the object's destruction cannot clear the entries.
pub(crate) struct InFlight<'a, G: Platform> {
    platform: &'a G,
    object: NonNull<Object>,
    /// The interface of the object that is called.
    index: u32,
}

impl<'a, G: Platform> InFlight<'a, G> {
    /// Enters the gate of an object that is kept alive by other means, for a call of interface `index`. The
    /// caller runs in one of the object's methods, or a mediator sent it here.
    ///
    /// # Safety
    /// The object is valid until the result is dropped, and has that many interfaces.
    pub(crate) unsafe fn inside(
        platform: &'a G,
        object: NonNull<Object>,
        index: u32,
    ) -> Option<InFlight<'a, G>> {
        // SAFETY: the caller's promise.
        unsafe { object.as_ref() }.gate.enter().then(|| InFlight { platform, object, index })
    }

    /// Finds the object that `id` refers to, and enters its gate.
    ///
    /// # Safety
    /// The caller is within an operation, and drops the result in it (`object/I1`).
    #[inline(always)]
    pub(crate) unsafe fn enter(platform: &'a G, id: Id) -> Result<InFlight<'a, G>, Absent> {
        let slot = platform.slot(id.slot());
        let occupant = slot.load();
        let Some(found) = object_in(occupant) else { return Err(slot.absent(occupant, id)) };
        // SAFETY: valid within this operation (`object/I1`).
        let object = unsafe { found.as_ref() };
        // Read the object first and the generation inside it afterwards (`object/I4`): the two belong
        // together.
        if object.id.generation() != id.generation() {
            return Err(Absent::Destroyed(None));
        }
        if !object.gate.enter() {
            return Err(Absent::Destroyed(Some(object.class)));
        }
        Ok(InFlight { platform, object: found, index: id.slot() - object.id.slot() })
    }

    /// Continues the destruction of an object that died meanwhile: this was the last miss in its gate.
    #[cold]
    #[inline(never)]
    fn drained(platform: &G, block: NonNull<Object>) {
        // SAFETY: the object is valid within the operation of the miss.
        let object = unsafe { block.as_ref() };
        if !object.gate.has_moved() {
            clear(platform, object, object.class);
        } else if !sites::MOVE_AWAY.is_weak() {
            // SAFETY: the object is valid within the operation of the miss.
            unsafe { clear_own(platform, block) };
        }
        platform.after_grace_period(block, Stage::Quiet);
    }

    /// The object, with its whole block.
    pub(crate) fn block(&self) -> NonNull<Object> {
        self.object
    }

    /// The object.
    pub(crate) fn object(&self) -> &Object {
        // SAFETY: valid within the operation in which this exists (`enter`).
        unsafe { self.object.as_ref() }
    }

    /// The interface that is called.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Stores `header` in the table of `vp` (`object/I2`).
    #[inline(always)]
    pub(crate) fn install(&self, vp: usize, header: NonNull<Header>) {
        let object = self.object();
        object.translations.insert(vp, self.platform.vp_limit());
        let entry = self.platform.entry(vp, object.id.slot() + self.index);
        // Release: pairs with the acquire in `cached`: a call that loads the entry sees the header built.
        entry.store(header.as_ptr(), sites::ENTRY_STORE.order(Ordering::Release));
    }
}

impl<G: Platform> Drop for InFlight<'_, G> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.object().gate.leave() == DrainStatus::Drained {
            Self::drained(self.platform, self.object);
        }
    }
}

/// Leaves the gate that a mediator's owner entered with `Gate::enter_as_owner`.
///
/// If the object has died and the gate is now drained, this also asks for the grace period.
///
/// # Safety
/// Call it once, within an operation.
pub(crate) unsafe fn leave_as_owner(platform: &impl Platform, object: NonNull<Object>) {
    drop(InFlight { platform, object, index: 0 });
}

/// Activates the headers of a published representative, unless the object died meanwhile. The caller is
/// within the object's gate.
///
/// # Safety
/// `owner` precedes the headers of a representative of `object`, which are valid.
pub(crate) unsafe fn activate(object: &Object, owner: NonNull<Owner>) {
    if !sites::ASK_BEFORE_ACTIVE.is_weak() && !object.gate.confirm() {
        return;
    }
    let id = object.id;
    each(object.class.interfaces, move |index| {
        // SAFETY: the caller's promise.
        unsafe { header(owner, index).as_ref() }.activate(id.offset(index).bits());
    });
}

/// Releases a hold.
///
/// # Safety
/// The caller holds `held`, which came from a table or from a miss.
pub(crate) unsafe fn release(platform: &impl Platform, held: NonNull<Header>) {
    // SAFETY: the hold keeps the header valid until the release, so both are read before it.
    let (object, slot) = unsafe {
        let object = owner_of(held).as_ref().object;
        (object, object.as_ref().id.slot())
    };
    // SAFETY: the hold keeps the header valid.
    match unsafe { held.as_ref() }.release() {
        Released::NotLast => {}
        // The object may be freed already.
        Released::LastOfSwap => platform.sleepers(slot).signal(u32::MAX),
        Released::Last => {
            // SAFETY: memory quiet waits for this hold to report, so the object is valid.
            if unsafe { object.as_ref() }.count_down(1) {
                platform.after_grace_period(object, Stage::Finish);
            }
        }
    }
}
