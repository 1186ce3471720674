//! Objects: creation, distribution over clusters, state, replacement and ownership.
//!
//! The wing stands on `protocol` and `call`. Its files in reading order:
//!
//! - `create.rs`: the beginning and the end of every object. `owned.rs`: the owner, and destruction.
//! - `shared.rs`: objects with one representative.
//! - `root.rs`: the trait that the author of a distributed object implements. `context.rs`: a
//!   representative's access to its root and its peers. `distributed.rs`: objects with a root. `gather.rs`:
//!   walks along the tree of clusters.
//! - `well_known.rs`: objects at fixed ids.
//! - `state.rs`: state, and the formats in which it moves. `replacement.rs`: an object that is about to
//!   replace another one.
//! - `wrap.rs`: wrappers around each method, and calls made by other threads.

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
