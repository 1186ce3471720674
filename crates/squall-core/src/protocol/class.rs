//! What objects of one class have in common: names, sizes, and the few functions that know the class's types.
//!
//! - I1. The functions of an object's class are called with that object and with nothing else.

#[cfg(not(loom))]
use std::any::TypeId;
use std::ptr::NonNull;

use crate::protocol::object::Object;
use crate::protocol::reps::Owner;

/// Where something stands in the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file, as the compiler was given it.
    pub file: &'static str,
    /// The line.
    pub line: u32,
}

/// Whether an object has one representative by its nature, or one for each cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectKind {
    /// One representative, made with the object.
    Shared,
    /// A root, and a representative for each cluster that calls.
    Clustered,
}

/// What is done with each representative.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(NonNull<Owner>);

/// A number of bytes, for the account.
pub(crate) const fn bytes(size: usize) -> u32 {
    if size > u32::MAX as usize { u32::MAX } else { size as u32 }
}

/// See the module.
#[derive(Debug)]
#[repr(align(8))]
pub(crate) struct Class {
    /// The name of the author's type.
    pub(crate) name: fn() -> &'static str,
    pub(crate) kind: ObjectKind,
    /// Whether methods may sleep in its objects, so that `More::wake` has something to do.
    #[cfg(not(loom))]
    pub(crate) sleeps: bool,
    pub(crate) interface: &'static str,
    pub(crate) source: Source,
    /// How many interfaces each representative has: the one it is made for and those that it extends.
    pub(crate) interfaces: u32,
    /// Bytes of the object's block, at most so many.
    pub(crate) object_bytes: u32,
    /// Bytes of each representative outside that block.
    pub(crate) rep_bytes: usize,
    /// Bytes of the author's own fields: in the object's block, and in each representative outside it.
    pub(crate) value_bytes: (usize, usize),
    /// Calls the function with each representative there is now.
    ///
    /// # Safety
    /// The object is valid and not closed.
    pub(crate) for_each_rep: unsafe fn(NonNull<Object>, Visit<'_>),
    /// The functions that the model checker's classes do without.
    #[cfg(not(loom))]
    pub(crate) more: More,
}

/// The functions of a class that need the machine.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct More {
    /// The author's type: of the value of a shared object, of the root of others.
    pub(crate) type_id: TypeId,
    /// The interface that it is made for.
    pub(crate) interface_id: TypeId,
    /// Lists the formats of the state.
    pub(crate) formats: fn(&mut super::formats::List),
    /// Tells the object that its state has moved to another one.
    ///
    /// # Safety
    /// Once, when no call is in the object and none will be; it is valid.
    pub(crate) moved: unsafe fn(NonNull<Object>),
    /// Makes the representatives of an eager object.
    ///
    /// # Safety
    /// The object is the caller's, and has its id.
    pub(crate) prepare: unsafe fn(NonNull<Object>) -> Result<(), super::create_error::CreateError>,
    /// Finds or makes the representative for a miss on this VP, or for a part of a state on its way.
    ///
    /// # Safety
    /// Within the object's gate; and an operation, or a transfer to it.
    pub(crate) resolve: unsafe fn(NonNull<Object>, squall_machine::Vp) -> Result<Found, Refusal>,
    /// Wakes those who sleep in the object's methods, because it ends.
    ///
    /// # Safety
    /// The object is valid.
    pub(crate) wake: unsafe fn(NonNull<Object>),
    /// What is done with the object when the grace period after its death has passed; called with its address.
    ///
    /// # Safety
    /// Once, then.
    pub(crate) quiet: unsafe fn(*mut ()),
    /// Drops the representatives and goes on to the root. Memory is quiet.
    ///
    /// # Safety
    /// Once, when memory is quiet.
    pub(crate) finish: unsafe fn(NonNull<Object>),
    /// Drops one representative that was left for its VP.
    ///
    /// # Safety
    /// Once for each that `finish` left.
    pub(crate) drop_rep: unsafe fn(NonNull<crate::protocol::reps::Rep>),
    /// Gives up the object's own link to its root, all representatives being dropped.
    ///
    /// # Safety
    /// Once, after the last representative.
    pub(crate) drop_root: unsafe fn(NonNull<Object>),
}

/// The representative that answers a miss.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) owner: NonNull<Owner>,
    /// Whether the table may keep it.
    pub(crate) cache: bool,
}

/// A root refused a call; why.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal(pub(crate) &'static str);
