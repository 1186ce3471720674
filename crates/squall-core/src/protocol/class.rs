//! Classes: names, sizes, and the functions that know the types of an object's class.
//!
//! - I1. The functions of an object's class are called with that object only.

#[cfg(not(loom))]
use std::any::TypeId;
use std::ptr::NonNull;

use crate::protocol::object::Object;
use crate::protocol::reps::Owner;

/// A position in the source code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file name, as passed to the compiler.
    pub file: &'static str,
    /// The line number.
    pub line: u32,
}

/// The kind of an object: with one representative, or with one for each cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectKind {
    /// One representative, made with the object.
    Shared,
    /// A root, and a representative for each cluster that calls.
    Clustered,
}

/// The function to call with each representative.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(NonNull<Owner>);

/// Converts a number of bytes for the accounting, with saturation.
pub(crate) const fn bytes(size: usize) -> u32 {
    if size > u32::MAX as usize { u32::MAX } else { size as u32 }
}

/// The class of an object. See the module.
#[derive(Debug)]
#[repr(align(8))]
pub(crate) struct Class {
    /// The name of the author's type.
    pub(crate) name: fn() -> &'static str,
    pub(crate) kind: ObjectKind,
    /// Whether methods of its objects may sleep, so that `More::wake` is needed.
    #[cfg(not(loom))]
    pub(crate) sleeps: bool,
    pub(crate) interface: &'static str,
    pub(crate) source: Source,
    /// The number of interfaces of each representative: its own and the inherited ones.
    pub(crate) interfaces: u32,
    /// Upper bound of the bytes of the object's block.
    pub(crate) object_bytes: u32,
    /// Bytes of each representative outside that block.
    pub(crate) rep_bytes: usize,
    /// Bytes of the author's own fields: in the object's block, and in each representative outside it.
    pub(crate) value_bytes: (usize, usize),
    /// Calls the function with each current representative.
    ///
    /// # Safety
    /// The object is valid and not closed.
    pub(crate) for_each_rep: unsafe fn(NonNull<Object>, Visit<'_>),
    /// The functions that the classes of the models omit.
    #[cfg(not(loom))]
    pub(crate) more: More,
}

/// The functions of a class that need the machine.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct More {
    /// The author's type: of the value of a shared object, or of the root of any other.
    pub(crate) type_id: TypeId,
    /// The interface that the object was made for.
    pub(crate) interface_id: TypeId,
    /// Lists the state formats.
    pub(crate) formats: fn(&mut super::formats::List),
    /// Tells the object that its state has moved to another object.
    ///
    /// # Safety
    /// Called once, with a valid object, when no call is in it and no later call can enter it.
    pub(crate) moved: unsafe fn(NonNull<Object>),
    /// Makes the representatives of an eager object.
    ///
    /// # Safety
    /// The object belongs to the caller, and has its id.
    pub(crate) prepare: unsafe fn(NonNull<Object>) -> Result<(), super::create_error::CreateError>,
    /// Finds or makes the representative for a miss on this VP, or for a part of a state in transfer.
    ///
    /// # Safety
    /// The caller is within the object's gate, and in an operation or in a transfer to the object.
    pub(crate) resolve: unsafe fn(NonNull<Object>, squall_machine::Vp) -> Result<Found, Refusal>,
    /// Wakes the threads that sleep in the object's methods, because the object ends.
    ///
    /// # Safety
    /// The object is valid.
    pub(crate) wake: unsafe fn(NonNull<Object>),
    /// Handles the end of the grace period after the object's death. Called with the object's address.
    ///
    /// # Safety
    /// Called once, after that grace period.
    pub(crate) quiet: unsafe fn(*mut ()),
    /// Drops the representatives and continues with the root.
    ///
    /// # Safety
    /// Called once, when no thread holds a representative any more (step E1 of `README.md`).
    pub(crate) finish: unsafe fn(NonNull<Object>),
    /// Drops one representative from the drop queue of its VP.
    ///
    /// # Safety
    /// Called once for each representative that `finish` queued.
    pub(crate) drop_rep: unsafe fn(NonNull<crate::protocol::reps::Rep>),
    /// Gives up the object's own link to its root, after all representatives were dropped.
    ///
    /// # Safety
    /// Called once, after the last representative.
    pub(crate) drop_root: unsafe fn(NonNull<Object>),
}

/// The representative that answers a miss.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) owner: NonNull<Owner>,
    /// Whether a VP's table may cache the representative.
    pub(crate) cache: bool,
}

/// A root refused a call, for this reason.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal(pub(crate) &'static str);
