//! The beginning and the end of every object, whatever its class.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::class::Class;
use crate::error::CreateError;
use crate::ground::{Tables, WELL_KNOWN, existing, tables};
use crate::husks::room;
use crate::id::Id;
use crate::interface::Interface;
use crate::owned::Owned;
use crate::raw::object::{self, Object};
use crate::reference::CoRef;

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
    tables: &'static Tables,
    place: Place,
    class: &'static Class,
    pub(crate) id: Id,
    /// Room for a block of `layout`.
    pub(crate) block: NonNull<u8>,
    layout: Layout,
}

impl Drop for Created {
    /// The object was not built.
    #[cold]
    fn drop(&mut self) {
        // SAFETY: nobody has it.
        unsafe { dealloc(self.block.as_ptr(), room(self.layout)) };
        // Nobody has seen the id either, but a place is used under each generation once.
        if matches!(self.place, Place::Here) && self.tables.advance(self.id, self.class) {
            self.tables.give_back(self.id.slot(), self.class.interfaces);
        }
    }
}

/// Takes an id for an object of this class, and room for its block.
#[inline(always)]
pub(crate) fn begin(place: Place, class: &'static Class, layout: Layout) -> Result<Created, CreateError> {
    if let Place::Here = place
        && class.interfaces == 1
        && !squall_sys::fork::forked()
        && let Some(tables) = existing()
        && let Some((id, block)) = tables.husks.take(layout)
    {
        return Ok(Created { tables, place, class, id, block, layout });
    }
    begin_anew(place, class, layout)
}

#[cold]
#[inline(never)]
fn begin_anew(place: Place, class: &'static Class, layout: Layout) -> Result<Created, CreateError> {
    if squall_sys::fork::forked() {
        return Err(CreateError::Forked);
    }
    let tables = tables()?;
    let id = match place {
        Place::Here => tables.take(class.interfaces)?,
        Place::Taken(id) => id,
    };
    // SAFETY: the layout is not of size 0: it holds an object.
    let block = unsafe { alloc(room(layout)) };
    let block = NonNull::new(block).unwrap_or_else(|| handle_alloc_error(room(layout)));
    Ok(Created { tables, place, class, id, block, layout })
}

impl Created {
    /// Makes the object known that was built in the room.
    #[inline(always)]
    pub(crate) fn publish<I: ?Sized + Interface>(self) -> Owned<I> {
        // SAFETY: an object of that class was built there under this id.
        unsafe { object::publish(self.tables, self.block.cast(), self.id, self.class.interfaces) };
        let id = self.id;
        std::mem::forget(self);
        Owned::new(CoRef::new(id))
    }
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
    object.free_extra(tables);
    let (id, class) = (object.id, object.class);
    if id.slot() < WELL_KNOWN {
        tables.vacate(id, class);
    } else if tables.advance(id, class) {
        if class.interfaces == 1
            && let Some(home) = tables.home(id.slot())
            // SAFETY: the caller's own, and the slot has just been advanced to this id.
            && unsafe { tables.husks.keep(block, layout, id.next(), home) }
        {
            return;
        }
        tables.give_back(id.slot(), class.interfaces);
    }
    // SAFETY: the caller's own, and in no husk.
    unsafe { dealloc(block.as_ptr().cast(), room(layout)) };
}

#[cold]
#[track_caller]
pub(crate) fn refuse(interface: &str, error: &CreateError) -> ! {
    panic!("cannot make an object of interface {interface}: {error}")
}
