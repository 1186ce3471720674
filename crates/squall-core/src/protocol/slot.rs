//! The slots of the global table: who is there, or was.
//!
//! - I1. The first slot of an object decides: an object or a mediator gives way in it by one exchange, to a mediator, to an
//!   object, or to a tag. Who took it out by a tag ends the object, or leaves that to the mediator. Who puts a mediator there
//!   changes the other slots afterwards, and who puts an object there has changed them before: so while an object is in the
//!   first slot, the others are its own, and nobody but a mediator's owner, and a destroyer, changes any of them. A tag stays
//!   until the object is over.

use squall_sys::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::ptr::{self, NonNull};

use super::mediator::Mediator;
use super::object::Object;
use super::sites;
use crate::protocol::class::Class;
use crate::protocol::id::Id;

/// A place of the global table.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slot {
    /// Null, an [`Object`], a [`Mediator`] with [`MEDIATED`], or after its death its class with [`TAG`], and with [`OVER`] once
    /// its id is free.
    occupant: AtomicPtr<()>,
    /// That of the occupant, or else of the next one. Written by whoever owns the slot: its creator, then whoever frees it.
    pub(crate) generation: AtomicU32,
}

const TAG: usize = 1;
const OVER: usize = 2;
const MEDIATED: usize = 4;
const MARKS: usize = TAG | OVER | MEDIATED;
const _: () = assert!(align_of::<Class>() > MARKS && align_of::<Mediator>() > MARKS);
const _: () = assert!(align_of::<Object>() > MARKS);

/// What is in a slot.
pub(crate) enum Occupant {
    /// Nothing yet.
    Nobody,
    /// One of this class was; whether its id is free.
    Gone(&'static Class, bool),
    /// An object, valid within the operation in which it was found (`object/I1`). The pointer is good for its whole block.
    Object(NonNull<Object>),
    /// What stands before an object, valid as one.
    Mediated(NonNull<Mediator>),
}

impl Slot {
    #[cfg(all(test, any(loom, squall_model)))]
    pub(crate) fn new() -> Slot {
        Slot { occupant: AtomicPtr::new(ptr::null_mut()), generation: AtomicU32::new(1) }
    }

    #[inline(always)]
    pub(super) fn load(&self) -> *mut () {
        // Acquire: pairs with the release in `publish` and `exchange`, what is seen is fully built; with that in `vacate`; and
        // with those in `retire` and `advance`, the generation is the one that the class is of.
        self.occupant.load(sites::SLOT_LOAD.order(Ordering::Acquire))
    }

    /// The object that `id` refers to. Within an operation, in which what is found is valid (`object/I1`).
    #[cfg(not(loom))]
    pub(crate) fn find(&self, id: Id) -> Result<NonNull<Object>, Absent> {
        let occupant = self.load();
        let Some(found) = object_in(occupant) else { return Err(self.absent(occupant, id)) };
        // SAFETY: valid within this operation (`object/I1`).
        let same = unsafe { found.as_ref() }.id.generation() == id.generation();
        if same { Ok(found) } else { Err(Absent::Destroyed(None)) }
    }

    /// What is there now.
    pub(crate) fn occupant(&self) -> Occupant {
        decode(self.load())
    }

    /// Why `id` leads to no object, where this was found, which is none. Whoever has the id of an object finds that one, or
    /// what came after.
    #[cold]
    #[inline(never)]
    pub(super) fn absent(&self, found: *mut (), id: Id) -> Absent {
        // 0 when the generations are used up: later than all of them.
        let here = self.generation.load(Ordering::Relaxed).wrapping_sub(1);
        let asked = id.generation().wrapping_sub(1);
        match decode(found) {
            Occupant::Mediated(mediator) => {
                // SAFETY: valid within the operation of the caller (`object/I1`).
                let same = unsafe { mediator.as_ref() }.id.generation() == id.generation();
                if same { Absent::Mediated(mediator) } else { Absent::Destroyed(None) }
            }
            // Being reclaimed; or the last one that was here, so the slot names the next.
            Occupant::Gone(class, over) if here == asked.wrapping_add(u32::from(over)) => {
                Absent::Destroyed(Some(class))
            }
            // A well-known slot names its next occupant before there is one, and while the last one goes.
            Occupant::Gone(..) if here < asked => Absent::NotThere,
            Occupant::Nobody if here <= asked => Absent::NotThere,
            _ => Absent::Destroyed(None),
        }
    }

    #[inline]
    pub(super) fn publish(&self, object: NonNull<Object>) {
        // Release: pairs with the acquire in `load`.
        self.occupant.store(object.as_ptr().cast(), sites::SLOT_STORE.order(Ordering::Release));
    }

    /// Makes the slot ready for its next occupant (`object/I4`). Returns whether it can have one: a generation that would wrap ends it.
    #[inline]
    pub(crate) fn advance(&self, generation: u32, class: &'static Class) -> bool {
        let next =
            if sites::NEXT_GENERATION.is_weak() { Some(generation) } else { generation.checked_add(1) };
        // Also read by whoever takes the slot, by the lock of its list; and by misses that compare it with a stale
        // id, to whom either value says that the object is gone.
        // Release: pairs with the acquire in `Destruction::is_complete`, for which the drops are over then.
        self.generation.store(next.unwrap_or(0), Ordering::Release);
        // Release: pairs with the acquire in `load`: who finds it over finds the generation after it, or a later one. Who
        // finds the generation first forgets the class.
        self.occupant.store(tagged(class, TAG | OVER), sites::SLOT_OVER.order(Ordering::Release));
        next.is_some()
    }

    /// Forgets who was there.
    pub(crate) fn vacate(&self) {
        // Release: pairs with the acquire in `load`: who finds nobody finds the generation of
        // the next, by which a stale reference knows itself.
        self.occupant.store(ptr::null_mut(), sites::SLOT_VACATE.order(Ordering::Release));
    }

    pub(super) fn retire(&self, class: &'static Class) {
        // Release: pairs with the acquire in `load`: who finds this class finds the generation that it is of. For those
        // who ask for nothing but the object `kill_object` releases the store to whoever drains the gate.
        self.occupant.store(tagged(class, TAG), sites::SLOT_RETIRE.order(Ordering::Release));
    }

    /// As `retire`, of a first slot (I1). Returns what was there.
    #[inline(always)]
    pub(super) fn take(&self, class: &'static Class) -> *mut () {
        // Acquire: as `load`, of what is taken. No release: the exchange goes on with that of what it takes out, which was put
        // there after the generation was written.
        self.occupant.swap(tagged(class, TAG), sites::SLOT_TAKE.order(Ordering::Acquire))
    }

    /// Puts `to` where `from` is (I1). Returns whether it was.
    pub(super) fn exchange(&self, from: *mut (), to: *mut ()) -> bool {
        // Release: pairs with the acquire in `load`: what is put there is fully built.
        let order = sites::SLOT_STORE.order(Ordering::Release);
        self.occupant.compare_exchange(from, to, order, Ordering::Relaxed).is_ok()
    }
}

/// What is put into slots in an object's place, or back.
pub(crate) fn object_word(object: NonNull<Object>) -> *mut () {
    object.as_ptr().cast()
}

/// The same, of a mediator.
pub(crate) fn mediator_word(mediator: NonNull<Mediator>) -> *mut () {
    mediator.as_ptr().cast::<()>().map_addr(|address| address | MEDIATED)
}

/// The object in the word of a slot, if it is one.
#[inline(always)]
pub(super) fn object_in(occupant: *mut ()) -> Option<NonNull<Object>> {
    NonNull::new(occupant.cast::<Object>()).filter(|_| occupant.addr() & (TAG | MEDIATED) == 0)
}

/// What the word of a slot means.
pub(super) fn decode(occupant: *mut ()) -> Occupant {
    if occupant.is_null() {
        return Occupant::Nobody;
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
    // SAFETY: a tagged occupant is the address of a static class, plus the tags (`retire`, `advance`).
    Occupant::Gone(unsafe { &*class }, occupant.addr() & OVER != 0)
}

#[inline(always)]
fn tagged(class: &'static Class, tag: usize) -> *mut () {
    ptr::from_ref(class).cast_mut().cast::<()>().map_addr(|address| address | tag)
}

/// Why there is no object to call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Absent {
    /// Nothing was ever there, or not yet.
    NotThere,
    /// It was destroyed; its class, if the slot remembers it.
    Destroyed(Option<&'static Class>),
    /// There is a mediator to ask, valid in the operation of the call.
    Mediated(NonNull<Mediator>),
}
