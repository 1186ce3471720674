//! The work of cases that several libraries do, each in its own way.
//!
//! Each file has an interface that the libraries of a case implement, and the subject that is generic over
//! it. A library implements the interface in `ours_*.rs` or `rivals/`, and the case in `cases/` lists the
//! resulting subjects. So a library does not import a case, and a case imports every library.

pub(crate) mod bag;
pub(crate) mod call;
pub(crate) mod gather;
pub(crate) mod lifecycle;
pub(crate) mod message;
pub(crate) mod miss;
pub(crate) mod object_pool;
pub(crate) mod queue;
pub(crate) mod replace;
pub(crate) mod retire;
pub(crate) mod rpc;
pub(crate) mod taking;
