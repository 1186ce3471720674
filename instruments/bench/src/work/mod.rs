//! The work of those cases that several libraries do in their own ways.
//!
//! Each file has the interface of a library in a case, and the subject that is generic over it. A library
//! implements the interface in `ours_*.rs` or `rivals/`, and the case in `cases/` lists the resulting
//! subjects. So a library does not import a case, and a case imports every library.

pub(crate) mod call;
pub(crate) mod gather;
pub(crate) mod lifecycle;
pub(crate) mod miss;
pub(crate) mod replace;
pub(crate) mod retire;
