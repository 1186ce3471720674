//! Creation and end of objects of every class.

use squall_sys::sync::atomic::Ordering;
use std::alloc::Layout;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::call::handle::Handle;
use crate::call::interface::Interface;
use crate::object::owned::Owned;
use crate::protocol::class::Class;
use crate::protocol::create_error::CreateError;
use crate::protocol::id::Id;
use crate::protocol::memory;
use crate::protocol::miss::publish;
use crate::protocol::names;
use crate::protocol::object::{self, Object};
use crate::protocol::platform::Platform;
use crate::protocol::recycle::room;
use crate::protocol::tables::{WELL_KNOWN, existing, tables};

/// The origin of an object's id.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The range of the calling thread's VP.
    Here,
    /// A well-known slot, which the caller has taken.
    Taken(Id),
}

/// An id and room for an object that is being built.
#[must_use]
pub(crate) struct Created {
    place: Place,
    class: &'static Class,
    layout: Layout,
    pub(crate) id: Id,
    /// Room for a block of `layout`.
    pub(crate) block: NonNull<u8>,
}

impl Drop for Created {
    /// Returns the id and the room, since the object was not built.
    #[cold]
    fn drop(&mut self) {
        // SAFETY: ours alone.
        unsafe { memory::give(self.block, room(self.layout)) };
        // No thread has seen the id either, but a slot uses each generation once.
        if matches!(self.place, Place::Here)
            && let Some(tables) = existing()
            && tables.advance(self.id, self.class)
        {
            tables.give_back(self.id.slot(), self.class.interfaces);
        }
    }
}

/// Returns the calling thread's VP as the place of a replacement.
pub(crate) fn place_here() -> u16 {
    // The tables refuse machines with more VPs (`Slot::home`).
    u16::try_from(squall_machine::Vp::current().index() + 1).unwrap_or(0)
}

/// The new object of a swap, with its class. Without an object if there was no memory.
pub(crate) type ToCome = (&'static Class, Option<NonNull<Object>>);

/// Room for an object without an id; freed unless it is forgotten.
pub(crate) struct Room {
    layout: Layout,
    pub(crate) block: NonNull<u8>,
}

impl Room {
    /// Allocates the room, if there is memory.
    pub(crate) fn try_new(layout: Layout) -> Option<Room> {
        Some(Room { layout, block: memory::try_take(room(layout))? })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: ours alone.
        unsafe { memory::give(self.block, room(self.layout)) };
    }
}

/// Takes an id for an object of this class, and room for its block.
#[inline(always)]
pub(crate) fn begin(place: Place, class: &'static Class, layout: Layout) -> Result<Created, CreateError> {
    let (id, block) = match take_husk(place, class, layout) {
        Some(husk) => husk,
        None => take_anew(place, class.interfaces, room(layout))?,
    };
    // Assembled here, where the class and the layout are constants.
    Ok(Created { place, class, layout, id, block })
}

/// Takes the id and the block of an ended object of this VP, if one fits.
#[inline(always)]
fn take_husk(place: Place, class: &'static Class, layout: Layout) -> Option<(Id, NonNull<u8>)> {
    if !matches!(place, Place::Here) || class.interfaces != 1 || squall_sys::fork::forked() {
        return None;
    }
    existing()?.recycled.take(layout)
}

#[cold]
#[inline(never)]
fn take_anew(place: Place, interfaces: u32, room: Layout) -> Result<(Id, NonNull<u8>), CreateError> {
    if squall_sys::fork::forked() {
        return Err(CreateError::Forked);
    }
    let tables = tables()?;
    // Before the id, which cannot be returned unused.
    let block = memory::try_take(room).ok_or_else(CreateError::no_memory)?;
    let id = match place {
        Place::Here => tables.take(interfaces),
        Place::Taken(id) => Ok(id),
    };
    // SAFETY: ours alone.
    id.map(|id| (id, block)).inspect_err(|_| unsafe { memory::give(block, room) })
}

impl Created {
    /// Publishes the object that was built in the room.
    #[inline(always)]
    pub(crate) fn publish<I: ?Sized + Interface>(self) -> Owned<I> {
        // From here on every step succeeds, so the values needed for a rollback are dropped.
        let Created { class, id, block, .. } = *ManuallyDrop::new(self);
        if let Some(tables) = existing() {
            // SAFETY: an object of that class was built there under this id.
            unsafe { publish(tables, block.cast(), id, class.interfaces) };
        }
        Owned::new(Handle::new(id))
    }
}

/// Gives an id to an object without one, and publishes it.
///
/// # Safety
/// The object belongs to the caller, is of this class, and no other code has seen it.
pub(crate) unsafe fn adopt(block: NonNull<Object>, class: &'static Class) -> Result<Id, CreateError> {
    if squall_sys::fork::forked() {
        return Err(CreateError::Forked);
    }
    let tables = tables()?;
    let id = tables.take(class.interfaces)?;
    // SAFETY: the caller's promise.
    unsafe {
        (*block.as_ptr()).id = id;
        block.as_ref().gate.resume();
        object::for_each_header(block, class, |header| header.resume(id.offset(header.index()).bits()));
        publish(tables, block, id, class.interfaces);
    }
    Ok(id)
}

/// Ends an object after all its parts were dropped: its id may be used again (`object/I4`), and so may its
/// block.
///
/// # Safety
/// Called once. The block has this layout and comes from [`begin`]; no other code uses it.
#[inline(always)]
pub(crate) unsafe fn end(block: NonNull<Object>, layout: Layout) {
    let Some(tables) = existing() else { return };
    // SAFETY: ours alone now.
    let object = unsafe { &mut *block.as_ptr() };
    object.free_extra(tables.vp_limit());
    let (id, class) = (object.id, object.class);
    let has_moved = object.gate.has_moved();
    // Relaxed: ordered by the grace period (`names/I1`).
    if !has_moved && tables.slot(id.slot()).listed.load(Ordering::Relaxed) == names::mark(id) {
        names::end(id);
    }
    if has_moved {
        // The id belongs to another object, or never belonged to this one.
    } else if id.slot() < WELL_KNOWN {
        tables.vacate(id, class);
    } else if tables.advance(id, class) {
        if class.interfaces == 1
            && let Some(home) = tables.home(id.slot())
            // SAFETY: ours alone, and the slot has just been advanced to this id.
            && unsafe { tables.recycled.keep(block, layout, id.next(), home) }
        {
            return;
        }
        tables.give_back(id.slot(), class.interfaces);
    }
    // SAFETY: ours alone, and not kept for recycling.
    unsafe { memory::give(block.cast(), room(layout)) };
}

#[cold]
#[track_caller]
pub(crate) fn refuse(interface: &str, error: &CreateError) -> ! {
    panic!("cannot make an object of interface {interface}: {error}")
}
