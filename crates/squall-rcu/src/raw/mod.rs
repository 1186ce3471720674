//! The protocol: records, registry, grace periods, deferred calls. `README.md` beside this file proves it.
//!
//! This module is independent of thread-local storage, of the process-wide instance, and of the public types.

pub(crate) mod defer;
pub(crate) mod domain;
pub(crate) mod grace;
pub(crate) mod moment;
// Under loom only the models use it.
#[cfg_attr(loom, allow(dead_code))]
pub(crate) mod outcome;
pub(crate) mod record;
pub(crate) mod registry;
pub(crate) mod sites;
pub(crate) mod switch;
pub(crate) mod tour;
pub(crate) mod work;

#[cfg(all(test, any(loom, squall_model)))]
mod model;
#[cfg(any(loom, squall_model))]
pub(crate) mod model_access;
