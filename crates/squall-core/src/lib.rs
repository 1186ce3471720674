//! Clustered objects. Invariant of the crate: safe code reaches a representative only through a call, within the
//! operation or the hold of that call, and the representative it reaches is of the object, the interface and the
//! generation that the reference names.
//!
#![doc = include_str!("../README.md")]

// Under loom nobody asks it for memory.
#[cfg(loom)]
use squall_alloc as _;

// Under loom the models alone use them.
#[cfg_attr(loom, allow(dead_code))]
pub(crate) mod class;
#[cfg_attr(loom, allow(dead_code))]
pub(crate) mod id;
#[cfg_attr(loom, allow(dead_code))]
pub(crate) mod raw;

#[cfg(not(loom))]
mod context;
#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod create;
#[cfg(not(loom))]
mod death;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod gather;
#[cfg(not(loom))]
mod ground;
#[cfg(not(loom))]
mod hit;
#[cfg(not(loom))]
mod husks;
#[cfg(not(loom))]
mod inspect;
#[cfg(not(loom))]
mod interface;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod lent;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod multi;
#[cfg(not(loom))]
mod owned;
#[cfg(not(loom))]
mod reference;
#[cfg(not(loom))]
mod root;
#[cfg(not(loom))]
mod single;
#[cfg(not(loom))]
mod stall;
#[cfg(not(loom))]
pub mod swap;
#[cfg(not(loom))]
pub mod tables;
#[cfg(not(loom))]
mod well_known;
#[cfg(not(loom))]
pub mod wrap;

#[cfg(not(loom))]
pub use context::{RepContext, Interrupted, RepIter};
pub use class::{ObjectKind, Source};
#[cfg(not(loom))]
pub use error::{CallError, CreateError, CallErrorKind};
pub use id::{Id, NoId};
#[cfg(not(loom))]
pub use inspect::{ClassInfo, ObjectInfo, ObjectState, RepInfo, class_of, info_of, snapshot};
#[cfg(not(loom))]
pub use interface::{Extends, Interface, InterfaceOf, Super, interfaces_count};
#[cfg(not(loom))]
pub use memory::RepMemory;
#[cfg(not(loom))]
pub use owned::{Destruction, Owned};
#[cfg(not(loom))]
pub use reference::Handle;
#[cfg(not(loom))]
pub use root::{Cleanup, RepRef, Miss, MissAnswer, Root};
#[cfg(not(loom))]
pub use single::{shared, shared_with, swappable, swappable_with, try_shared};
#[cfg(not(loom))]
pub use well_known::WellKnown;

/// Not public: what the code that the macro writes uses.
#[cfg(not(loom))]
#[doc(hidden)]
pub mod __macro {
    pub use crate::class::Source;
    pub use crate::error::CallError;
    pub use crate::hit::{Act, Hit};
    pub use crate::interface::{Extends, Interface, InterfaceOf, Super};
    pub use crate::lent::{Lender, Lends, Lent};
    pub use crate::reference::{
        Answer, Arguments, Blocking, Carries, Carry, Checked, Handle, CopiedArguments, Gone, MovedArguments,
        Panic, Panics,
    };
    pub use crate::wrap::{Around, Invoked, KeptArguments, SentArguments, Through, Wrap};
}
