//! Inspection: the objects of the process, their states, and their tables.
//!
//! The wing stands on `protocol` and `call`. `inspect.rs` lists objects. `tables.rs` gives access to the
//! translation tables.

pub(crate) mod inspect;
pub mod tables;
