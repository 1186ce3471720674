//! The call: from a handle to a method of a representative.
//!
//! `handle.rs` has the fast path. `slow.rs` and `resolve.rs` handle a miss, `mediated.rs` a swap on the way, `blocking.rs`
//! methods that may block. `interface.rs`, `layout.rs` and `view.rs` say what a call finds behind a header.

pub(crate) mod answer;
pub(crate) mod arbitration;
pub(crate) mod blocking;
pub(crate) mod error;
pub(crate) mod frames;
pub(crate) mod handle;
pub(crate) mod hit;
pub(crate) mod interface;
pub(crate) mod layout;
pub(crate) mod mediated;
pub(crate) mod resolve;
pub(crate) mod slow;
pub(crate) mod view;
