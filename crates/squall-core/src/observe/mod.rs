//! Inspection: which objects there are, what they are doing, and what their tables hold.

pub(crate) mod inspect;
pub mod tables;
