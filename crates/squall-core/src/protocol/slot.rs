//! The slots of the global table.
//!
//! - I1. The first slot of an object decides. One exchange takes an object or a mediator out of it, and puts
//!   in a mediator, an object or a tag. The thread that puts in a tag ends the object, or leaves that to the
//!   mediator's owner. A thread that puts in a mediator changes the other slots afterwards. A thread that
//!   puts in an object has changed them before. So while an object is in the first slot, the others are its
//!   own. Only the owner of a mediator and a destroyer change any of them. A tag stays until the object is
//!   over.

use squall_sys::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, Ordering};
use std::ptr::{self, NonNull};

use super::mediator::Mediator;
use super::object::Object;
use super::sites;
use crate::protocol::class::Class;
use crate::protocol::id::Id;

/// One slot of the global table.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slot {
    /// Null, an [`Object`], a [`Mediator`] with the bit [`MEDIATED`], or a class with the bit [`TAG`]. A
    /// tagged class means that its object died; [`OVER`] is set as well once the object's id is free.
    occupant: AtomicPtr<()>,
    /// Generation of the occupant, or of the next one if the slot is free. Written by the slot's current
    /// owner: its creator, then the thread that frees it.
    pub(crate) generation: AtomicU32,
    /// The VP that the slot belongs to, plus one; 0 before a VP takes it (`tables/I2`). Beside the words that
    /// the end of an object writes, so that no line of another VP is read for it.
    pub(crate) home: AtomicU16,
    /// A mark of the last generation that was given a name or a link ([`names`](super::names)), or 0.
    #[cfg(not(loom))]
    pub(crate) listed: AtomicU16,
}

const TAG: usize = 1;
const OVER: usize = 2;
const MEDIATED: usize = 4;
const MARKS: usize = TAG | OVER | MEDIATED;
const _: () = assert!(align_of::<Class>() > MARKS && align_of::<Mediator>() > MARKS);
const _: () = assert!(align_of::<Object>() > MARKS);
#[cfg(all(not(loom), target_pointer_width = "64"))]
const _: () = assert!(size_of::<Slot>() == 16);

/// The decoded occupant of a slot.
pub(crate) enum Occupant {
    /// No object has been here, or the slot is vacant.
    Empty,
    /// An object of this class died. True once its id is free.
    Gone(&'static Class, bool),
    /// An object, valid within the operation that found it (`object/I1`). The pointer may be used for the
    /// whole block.
    Object(NonNull<Object>),
    /// A mediator in front of an object. Valid within the operation that found it (`object/I1`).
    Mediated(NonNull<Mediator>),
}

impl Slot {
    #[cfg(all(test, any(loom, squall_model)))]
    pub(crate) fn new() -> Slot {
        Slot {
            occupant: AtomicPtr::new(ptr::null_mut()),
            generation: AtomicU32::new(1),
            home: AtomicU16::new(0),
            #[cfg(not(loom))]
            listed: AtomicU16::new(0),
        }
    }

    #[inline(always)]
    pub(super) fn load(&self) -> *mut () {
        // Acquire: pairs with the release in `publish` and `exchange`: the occupant is fully built. Pairs
        // with `vacate`, `retire` and `advance`: the generation is the one that the null or the class belongs
        // to.
        self.occupant.load(sites::SLOT_LOAD.order(Ordering::Acquire))
    }

    /// Returns the object that `id` refers to. The caller is within an operation, and the result is valid in
    /// it (`object/I1`).
    #[cfg(not(loom))]
    pub(crate) fn find(&self, id: Id) -> Result<NonNull<Object>, Absent> {
        let occupant = self.load();
        let Some(found) = object_in(occupant) else { return Err(self.absent(occupant, id)) };
        // SAFETY: valid within this operation (`object/I1`).
        let same = unsafe { found.as_ref() }.id.generation() == id.generation();
        if same { Ok(found) } else { Err(Absent::Destroyed(None)) }
    }

    /// Returns the current occupant.
    pub(crate) fn occupant(&self) -> Occupant {
        decode(self.load())
    }

    /// Says why `id` leads to no object, given `found`, which is not an object. The caller's id was issued,
    /// so the slot has that object or a later occupant.
    #[cold]
    #[inline(never)]
    pub(super) fn absent(&self, found: *mut (), id: Id) -> Absent {
        // A generation of 0 means that the generations are used up; the subtraction makes that later than all
        // of them.
        let here = self.generation.load(Ordering::Relaxed).wrapping_sub(1);
        let asked = id.generation().wrapping_sub(1);
        match decode(found) {
            Occupant::Mediated(mediator) => {
                // SAFETY: valid within the operation of the caller (`object/I1`).
                let same = unsafe { mediator.as_ref() }.id.generation() == id.generation();
                if same { Absent::Mediated(mediator) } else { Absent::Destroyed(None) }
            }
            // The object is being reclaimed. Or it was the last one here, so the slot has the next
            // generation.
            Occupant::Gone(class, over) if here == asked.wrapping_add(u32::from(over)) => {
                Absent::Destroyed(Some(class))
            }
            // A well-known slot has the generation of its next occupant before there is one, and while the
            // last one goes.
            Occupant::Gone(..) if here < asked => Absent::NotThere,
            Occupant::Empty if here <= asked => Absent::NotThere,
            _ => Absent::Destroyed(None),
        }
    }

    #[inline]
    pub(super) fn publish(&self, object: NonNull<Object>) {
        // Release: pairs with the acquire in `load`: the object is seen built.
        self.occupant.store(object.as_ptr().cast(), sites::SLOT_STORE.order(Ordering::Release));
    }

    /// Prepares the slot for its next occupant (`object/I4`). Returns false if the generation would wrap:
    /// then the slot is not used again.
    #[inline]
    pub(crate) fn advance(&self, generation: u32, class: &'static Class) -> bool {
        let next =
            if sites::NEXT_GENERATION.is_weak() { Some(generation) } else { generation.checked_add(1) };
        // Also read by the thread that takes the slot, under the lock of its list. Misses with a stale id
        // read it too; for them both values mean that the object is gone.
        // Release: pairs with the acquire in `Destruction::is_complete`, which must see the drops done.
        self.generation.store(next.unwrap_or(0), Ordering::Release);
        // Release: pairs with the acquire in `load`: a thread that sees `OVER` sees this generation or a
        // later one. A thread that sees the generation first reports no class.
        self.occupant.store(tagged(class, TAG | OVER), sites::SLOT_OVER.order(Ordering::Release));
        next.is_some()
    }

    /// Makes a well-known slot vacant.
    pub(crate) fn vacate(&self) {
        // Release: pairs with the acquire in `load`: a thread that sees null also sees the next generation,
        // so it recognises a stale handle.
        self.occupant.store(ptr::null_mut(), sites::SLOT_VACATE.order(Ordering::Release));
    }

    pub(super) fn retire(&self, class: &'static Class) {
        // Release: pairs with the acquire in `load`: a thread that sees this class sees its generation. For
        // threads that look only for the object, `kill_object` releases the store to the thread that drains
        // the gate.
        self.occupant.store(tagged(class, TAG), sites::SLOT_RETIRE.order(Ordering::Release));
    }

    /// Puts a tag into a first slot, like `retire` (I1). Returns the previous occupant.
    #[inline(always)]
    pub(super) fn take(&self, class: &'static Class) -> *mut () {
        // Acquire: as in `load`, for the occupant taken out. No release is needed: the exchange continues the
        // release sequence of that occupant, which was stored after the generation.
        self.occupant.swap(tagged(class, TAG), sites::SLOT_TAKE.order(Ordering::Acquire))
    }

    /// Replaces `from` by `to` (I1). Returns whether `from` was there.
    pub(super) fn exchange(&self, from: *mut (), to: *mut ()) -> bool {
        // Release: pairs with the acquire in `load`: the new occupant is seen built.
        let order = sites::SLOT_STORE.order(Ordering::Release);
        self.occupant.compare_exchange(from, to, order, Ordering::Relaxed).is_ok()
    }
}

/// Returns the slot word of an object.
pub(crate) fn object_word(object: NonNull<Object>) -> *mut () {
    object.as_ptr().cast()
}

/// Returns the slot word of a mediator.
pub(crate) fn mediator_word(mediator: NonNull<Mediator>) -> *mut () {
    mediator.as_ptr().cast::<()>().map_addr(|address| address | MEDIATED)
}

/// Returns the object in a slot word, if there is one.
#[inline(always)]
pub(super) fn object_in(occupant: *mut ()) -> Option<NonNull<Object>> {
    NonNull::new(occupant.cast::<Object>()).filter(|_| occupant.addr() & (TAG | MEDIATED) == 0)
}

/// Decodes a slot word.
pub(super) fn decode(occupant: *mut ()) -> Occupant {
    if occupant.is_null() {
        return Occupant::Empty;
    }
    if let Some(object) = object_in(occupant) {
        return Occupant::Object(object);
    }
    let place = occupant.map_addr(|address| address & !MARKS);
    if occupant.addr() & MEDIATED != 0
        && let Some(mediator) = NonNull::new(place.cast())
    {
        return Occupant::Mediated(mediator);
    }
    let class = place.cast::<Class>();
    // SAFETY: a tagged occupant is the address of a static class plus the tag bits (`retire`, `advance`).
    Occupant::Gone(unsafe { &*class }, occupant.addr() & OVER != 0)
}

#[inline(always)]
fn tagged(class: &'static Class, tag: usize) -> *mut () {
    ptr::from_ref(class).cast_mut().cast::<()>().map_addr(|address| address | tag)
}

/// The reason why a slot has no object to call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Absent {
    /// No object has been here yet.
    NotThere,
    /// The object was destroyed. Carries its class if the slot still has it.
    Destroyed(Option<&'static Class>),
    /// A mediator must be asked. It is valid in the operation of the call.
    Mediated(NonNull<Mediator>),
}
