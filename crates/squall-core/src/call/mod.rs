//! The call: from a handle to a method of a representative.
//!
//! The wing stands on `protocol` only. Its files in reading order:
//!
//! - `interface.rs`: interfaces, and how a representative writes a header for each of them. `layout.rs`: the
//!   parts of a representative's block. `view.rs`: views, the pointers published behind the headers.
//! - `handle.rs`: the handle. `fast.rs`: the fast path. `hit.rs`: a representative that a call found.
//!   `slow.rs`: the slow path. `resolve.rs`: a miss.
//! - `answer.rs` and `error.rs`: the result of a call that did not reach an object. `transport.rs`: failures
//!   between processes. `travel.rs`: errors that travel.
//! - `blocking.rs`: methods marked `#[blocking]`, which hold their object by a count.
//! - `frames.rs`: the calls a thread is in. `mediated.rs`: calls that meet a mediator. `arbitration.rs`: a
//!   user's function around each call.

pub(crate) mod answer;
pub(crate) mod arbitration;
pub(crate) mod blocking;
pub(crate) mod error;
pub(crate) mod fast;
pub(crate) mod frames;
pub(crate) mod handle;
pub(crate) mod hit;
pub(crate) mod interface;
pub(crate) mod layout;
pub(crate) mod mediated;
pub(crate) mod resolve;
pub(crate) mod slow;
pub(crate) mod transport;
#[cfg(feature = "serde")]
mod travel;
pub(crate) mod view;
