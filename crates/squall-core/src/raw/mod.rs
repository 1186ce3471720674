//! The protocol of objects: `README.md` beside this file has states, steps and proof.

pub(crate) mod gate;
pub(crate) mod graves;
pub(crate) mod header;
pub(crate) mod kill;
pub(crate) mod mediator;
pub(crate) mod membership;
pub(crate) mod object;
pub(crate) mod reps;
pub(crate) mod sites;
pub(crate) mod slot;
pub(crate) mod translations;

#[cfg(all(test, any(loom, squall_model)))]
mod model;
