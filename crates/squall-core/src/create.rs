//! The beginning and the end of every object, whatever its class.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::error::CreateError;
use crate::ground::{Tables, existing, tables};
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

/// An id for an object that is being built.
#[must_use]
pub(crate) struct Created {
    tables: &'static Tables,
    place: Place,
    interfaces: u32,
    pub(crate) id: Id,
    /// Memory of the layout asked for, from an object that ended here; taken by whoever builds the object.
    block: Option<NonNull<u8>>,
    layout: Layout,
}

impl Drop for Created {
    /// The object was not built.
    fn drop(&mut self) {
        if matches!(self.place, Place::Here) {
            self.tables.give_back(self.id, self.interfaces, None);
        }
        if let Some(block) = self.block {
            // SAFETY: nobody has it.
            unsafe { dealloc(block.as_ptr(), self.layout) };
        }
    }
}

/// Takes an id for an object of so many interfaces, and room for its block.
pub(crate) fn begin(place: Place, interfaces: u32, layout: Layout) -> Result<Created, CreateError> {
    if squall_sys::fork::forked() {
        return Err(CreateError::Forked);
    }
    let tables = tables()?;
    let (id, block) = match place {
        Place::Here => tables.take(interfaces, layout)?,
        Place::Taken(id) => (id, None),
    };
    Ok(Created { tables, place, interfaces, id, block, layout })
}

impl Created {
    /// Room of the layout asked for. The caller frees it, or has it kept by [`end`].
    pub(crate) fn allocate(&mut self) -> NonNull<u8> {
        self.block.take().unwrap_or_else(|| {
            // SAFETY: the layout is not of size 0: it holds an object.
            let block = unsafe { alloc(self.layout) };
            NonNull::new(block).unwrap_or_else(|| handle_alloc_error(self.layout))
        })
    }

    /// Makes the object known.
    pub(crate) fn publish<I: ?Sized + Interface>(self, object: NonNull<Object>) -> Owned<I> {
        debug_assert!(self.block.is_none(), "the room was not used");
        object::publish(self.tables, object);
        let id = self.id;
        std::mem::forget(self);
        Owned::new(CoRef::new(id))
    }
}

/// Ends an object whose parts are all dropped: its id may be used again (`object/I4`), and so may its block.
///
/// # Safety
/// Once. The block is of this layout, from [`Created::allocate`]; nobody uses it any more.
pub(crate) unsafe fn end(object: NonNull<Object>, layout: Layout) {
    let Some(tables) = existing() else { return };
    // SAFETY: the caller's own now.
    unsafe {
        (*object.as_ptr()).free_extra(tables);
        let (id, interfaces) = (object.as_ref().id, object.as_ref().class.interfaces);
        if let Some(block) = tables.give_back(id, interfaces, Some((object.cast(), layout))) {
            dealloc(block.as_ptr(), layout);
        }
    }
}

#[cold]
#[track_caller]
pub(crate) fn refuse(interface: &str, error: &CreateError) -> ! {
    panic!("cannot make an object of interface {interface}: {error}")
}
