//! Clustered objects: shared objects with one part for each cluster of processors, behind one handle.
//!
//! Invariant of the crate: safe code reaches a representative only through a call, within the call's
//! operation or hold. That representative belongs to the object, the interface and the generation that the
//! handle names.
//!
#![doc = include_str!("../README.md")]

// Loom builds allocate no memory from it.
#[cfg(loom)]
use squall_alloc as _;

// In loom builds only the models use it.
#[cfg_attr(loom, allow(dead_code))]
pub(crate) mod protocol;

#[cfg(not(loom))]
mod call;
#[cfg(not(loom))]
mod object;
#[cfg(not(loom))]
mod observe;
#[cfg(all(test, not(loom)))]
mod paused;
#[cfg(not(loom))]
pub mod swap;

#[cfg(not(loom))]
pub use call::error::{CallError, CallErrorKind};
#[cfg(not(loom))]
pub use call::handle::Handle;
#[cfg(not(loom))]
pub use call::interface::{Extends, Interface, InterfaceOf, Super, interfaces_count, methods_of};
#[cfg(not(loom))]
pub use call::transport::{MessageError, Transport};
#[cfg(not(loom))]
pub use object::context::{Interrupted, RepContext, RepIter};
#[cfg(not(loom))]
pub use object::owned::{Destruction, Owned};
#[cfg(not(loom))]
pub use object::root::{Cleanup, Miss, MissAnswer, RepRef, Root};
#[cfg(not(loom))]
pub use object::shared::{shared, shared_with, swappable, swappable_with, try_shared};
#[cfg(not(loom))]
pub use object::well_known::WellKnown;
#[cfg(not(loom))]
pub use object::wrap;
#[cfg(not(loom))]
#[doc(hidden)]
pub use observe::inspect::__calls_parked;
#[cfg(not(loom))]
pub use observe::inspect::{
    ClassInfo, MediatorInfo, MediatorPhase, ObjectInfo, ObjectState, RepInfo, class_of, count_after, info_of,
    place_of, snapshot, snapshot_after,
};
#[cfg(not(loom))]
pub use observe::tables;
pub use protocol::class::{ObjectKind, Source};
#[cfg(not(loom))]
pub use protocol::create_error::CreateError;
pub use protocol::id::{Id, ParseIdError};
#[cfg(not(loom))]
pub use protocol::links::{LinkError, parts_of, set_part_of, whole_of};
#[cfg(not(loom))]
pub use protocol::memory::RepMemory;
#[cfg(not(loom))]
pub use protocol::names::{Name, NameError, name_of, set_name};

/// Not public: the items that the macro's expansion uses.
#[cfg(not(loom))]
#[doc(hidden)]
pub mod __macro {
    pub use crate::call::answer::{Answer, Carries, Carry, Checked, Gone, Panic, Panics};
    pub use crate::call::blocking::{Arguments, Blocking, CopiedArguments, MovedArguments};
    pub use crate::call::error::CallError;
    pub use crate::call::handle::Handle;
    pub use crate::call::hit::{Action, Hit};
    pub use crate::call::interface::{Extends, Interface, InterfaceOf, Super};
    pub use crate::object::wrap::{Around, Invoked, KeptArguments, SentArguments, Through, Wrap};
    pub use crate::protocol::class::Source;
}
