//! The beginning and the end of every object, whatever its class.

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
    pub(crate) seconds: u32,
}

impl Drop for Created {
    /// The object was not built.
    fn drop(&mut self) {
        if matches!(self.place, Place::Here) {
            self.tables.give_back(self.id, self.interfaces);
        }
    }
}

/// Takes an id for an object of so many interfaces.
pub(crate) fn begin(place: Place, interfaces: u32) -> Result<Created, CreateError> {
    if squall_sys::fork::forked() {
        return Err(CreateError::Forked);
    }
    let tables = tables()?;
    let id = match place {
        Place::Here => tables.take(interfaces)?,
        Place::Taken(id) => id,
    };
    Ok(Created { tables, place, interfaces, id, seconds: tables.seconds() })
}

impl Created {
    /// Makes the object known.
    pub(crate) fn publish<I: ?Sized + Interface>(self, object: NonNull<Object>) -> Owned<I> {
        object::publish(self.tables, object);
        let id = self.id;
        std::mem::forget(self);
        Owned::new(CoRef::new(id))
    }
}

/// Ends an object whose parts are all dropped: its id may be used again (`object/I4`).
///
/// # Safety
/// Once; its block is freed next.
pub(crate) unsafe fn end(object: NonNull<Object>) {
    let Some(tables) = existing() else { return };
    // SAFETY: the caller's own now.
    unsafe {
        (*object.as_ptr()).free_extra(tables);
        tables.give_back(object.as_ref().id, object.as_ref().class.interfaces);
    }
}

#[cold]
#[track_caller]
pub(crate) fn refuse(interface: &str, error: &CreateError) -> ! {
    panic!("cannot make an object of interface {interface}: {error}")
}
