//! The protocol: records, registry, grace periods, deferred calls. What is proved in the crate's README is here, and
//! nothing here knows of thread-local storage, of a process-wide instance, or of the public types.

pub(crate) mod defer;
pub(crate) mod domain;
pub(crate) mod grace;
pub(crate) mod record;
pub(crate) mod registry;
pub(crate) mod sites;
pub(crate) mod work;

#[cfg(all(test, any(loom, squall_model)))]
mod model;
#[cfg(any(loom, squall_model))]
pub(crate) mod model_door;
