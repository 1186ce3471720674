//! Objects: how they are made, spread, replaced and owned.
//!
//! `shared.rs` makes objects with one representative, `distributed.rs` those with one for each cluster, whose root is in
//! `root.rs` and whose representatives see the object by `context.rs`.

pub(crate) mod context;
pub(crate) mod create;
pub(crate) mod distributed;
pub(crate) mod gather;
pub(crate) mod owned;
pub(crate) mod replacement;
pub(crate) mod root;
pub(crate) mod shared;
pub(crate) mod state;
pub(crate) mod well_known;
pub mod wrap;
