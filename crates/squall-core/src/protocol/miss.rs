//! A miss: a call that found no local translation enters the object's gate and installs a header for its VP.
//!
//! The invariants are those of `object.rs`.

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

/// Makes a built object known under its id.
///
/// # Safety
/// The caller has just built it, under this id, with so many interfaces.
#[inline(always)]
pub(crate) unsafe fn publish(platform: &impl Platform, object: NonNull<Object>, id: Id, interfaces: u32) {
    each(interfaces, move |index| platform.slot(id.slot() + index).publish(object));
}

/// A miss in flight: it keeps the object's destruction from taking stock until it is dropped.
pub(crate) struct InFlight<'a, G: Platform> {
    platform: &'a G,
    object: NonNull<Object>,
    /// Which of the object's interfaces is called.
    index: u32,
}

impl<'a, G: Platform> InFlight<'a, G> {
    /// Enters the gate of an object that the caller keeps alive otherwise, for a call of this interface: it is in one of its
    /// methods, or was sent by a mediator.
    ///
    /// # Safety
    /// The object is valid until the result is dropped, and has so many interfaces.
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
    /// Within an operation, and the result is dropped in it (`object/I1`).
    #[inline(always)]
    pub(crate) unsafe fn enter(platform: &'a G, id: Id) -> Result<InFlight<'a, G>, Absent> {
        let slot = platform.slot(id.slot());
        let occupant = slot.load();
        let Some(found) = object_in(occupant) else { return Err(slot.absent(occupant, id)) };
        // SAFETY: valid within this operation (`object/I1`).
        let object = unsafe { found.as_ref() };
        // The object first, then its generation (`object/I4`): what is compared is its own.
        if object.id.generation() != id.generation() {
            return Err(Absent::Destroyed(None));
        }
        if !object.gate.enter() {
            return Err(Absent::Destroyed(Some(object.class)));
        }
        Ok(InFlight { platform, object: found, index: id.slot() - object.id.slot() })
    }

    /// This was the last one, of an object that died meanwhile.
    #[cold]
    #[inline(never)]
    fn drained(platform: &G, block: NonNull<Object>) {
        // SAFETY: within the operation of the miss.
        let object = unsafe { block.as_ref() };
        if !object.gate.has_moved() {
            clear(platform, object, object.class);
        } else if !sites::MOVE_AWAY.is_weak() {
            // SAFETY: as above.
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

    /// Which of its interfaces is called.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Stores `header` in the table of `vp` (`object/I2`).
    #[inline(always)]
    pub(crate) fn install(&self, vp: usize, header: NonNull<Header>) {
        let object = self.object();
        object.translations.insert(vp, self.platform.vp_limit());
        let entry = self.platform.entry(vp, object.id.slot() + self.index);
        // Release: pairs with the acquire in `hit`: whoever loads the entry sees the header built.
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

/// A mediator's owner, who kept the object by [`Gate::enter_as_owner`], lets it go; and sends it to its grace period, if it died
/// meanwhile and nobody else is in its gate.
///
/// # Safety
/// Once, within an operation.
pub(crate) unsafe fn leave_as_owner(platform: &impl Platform, object: NonNull<Object>) {
    drop(InFlight { platform, object, index: 0 });
}

/// Makes a published representative answer calls, unless the object died meanwhile. Within its gate.
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

/// Lets a hold go.
///
/// # Safety
/// `header` was held, and came from a table or a miss.
pub(crate) unsafe fn release(platform: &impl Platform, held: NonNull<Header>) {
    // SAFETY: the hold keeps it valid, until the release is done; read before it.
    let (object, slot) = unsafe {
        let object = owner_of(held).as_ref().object;
        (object, object.as_ref().id.slot())
    };
    // SAFETY: as above.
    match unsafe { held.as_ref() }.release() {
        Released::NotLast => {}
        // The object may be gone already.
        Released::LastOfSwap => platform.sleepers(slot).signal(u32::MAX),
        Released::Last => {
            // SAFETY: memory quiet waits for this hold to report, so the object is valid.
            if unsafe { object.as_ref() }.count_down(1) {
                platform.after_grace_period(object, Stage::Finish);
            }
        }
    }
}
