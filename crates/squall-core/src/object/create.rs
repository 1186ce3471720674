//! The beginning and the end of every object, whatever its class.

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
use crate::protocol::object::{self, Object};
use crate::protocol::platform::Platform;
use crate::protocol::recycle::room;
use crate::protocol::tables::{WELL_KNOWN, existing, tables};

/// Where an object's id comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The range of the VP where the caller is.
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
    /// The object was not built.
    #[cold]
    fn drop(&mut self) {
        // SAFETY: nobody has it.
        unsafe { memory::give(self.block, room(self.layout)) };
        // Nobody has seen the id either, but a place is used under each generation once.
        if matches!(self.place, Place::Here)
            && let Some(tables) = existing()
            && tables.advance(self.id, self.class)
        {
            tables.give_back(self.id.slot(), self.class.interfaces);
        }
    }
}

/// Room for an object without an id, until it is forgotten.
pub(crate) struct Room {
    layout: Layout,
    pub(crate) block: NonNull<u8>,
}

impl Room {
    pub(crate) fn new(layout: Layout) -> Room {
        Room { layout, block: memory::take(room(layout)) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: nobody has it.
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
    // Put together here, where the class and the layout are constants.
    Ok(Created { place, class, layout, id, block })
}

/// What an object left on this VP, if there is anything that will do.
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
    let id = match place {
        Place::Here => tables.take(interfaces)?,
        Place::Taken(id) => id,
    };
    Ok((id, memory::take(room)))
}

impl Created {
    /// Makes the object known that was built in the room.
    #[inline(always)]
    pub(crate) fn publish<I: ?Sized + Interface>(self) -> Owned<I> {
        // From here on nothing can fail, and nobody need know what there was to give back.
        let Created { class, id, block, .. } = *ManuallyDrop::new(self);
        if let Some(tables) = existing() {
            // SAFETY: an object of that class was built there under this id.
            unsafe { publish(tables, block.cast(), id, class.interfaces) };
        }
        Owned::new(Handle::new(id))
    }
}

/// Gives an object that has none an id, and makes it known.
///
/// # Safety
/// It is the caller's, of this class, and nobody has seen it.
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

/// Ends an object whose parts are all dropped: its id may be used again (`object/I4`), and so may its block.
///
/// # Safety
/// Once. The block is of this layout, from [`begin`]; nobody uses it any more.
#[inline(always)]
pub(crate) unsafe fn end(block: NonNull<Object>, layout: Layout) {
    let Some(tables) = existing() else { return };
    // SAFETY: the caller's own now.
    let object = unsafe { &mut *block.as_ptr() };
    object.free_extra(tables.vp_limit());
    let (id, class) = (object.id, object.class);
    if object.gate.has_moved() {
        // Its id is another object's, or was never its own.
    } else if id.slot() < WELL_KNOWN {
        tables.vacate(id, class);
    } else if tables.advance(id, class) {
        if class.interfaces == 1
            && let Some(home) = tables.home(id.slot())
            // SAFETY: the caller's own, and the slot has just been advanced to this id.
            && unsafe { tables.recycled.keep(block, layout, id.next(), home) }
        {
            return;
        }
        tables.give_back(id.slot(), class.interfaces);
    }
    // SAFETY: the caller's own, and in no husk.
    unsafe { memory::give(block.cast(), room(layout)) };
}

#[cold]
#[track_caller]
pub(crate) fn refuse(interface: &str, error: &CreateError) -> ! {
    panic!("cannot make an object of interface {interface}: {error}")
}
