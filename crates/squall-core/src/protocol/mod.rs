//! The protocol of objects: ids, headers, slots, tables, misses, mediators and destruction.
//!
//! It knows no type of users. `README.md` beside this file has the states, the steps and the proof.

#[cfg(not(loom))]
pub(crate) mod claims;
pub(crate) mod class;
#[cfg(not(loom))]
pub(crate) mod clock;
#[cfg(not(loom))]
pub(crate) mod create_error;
#[cfg(not(loom))]
pub(crate) mod destroy;
pub(crate) mod drop_queue;
#[cfg(not(loom))]
pub(crate) mod formats;
pub(crate) mod gate;
pub(crate) mod header;
pub(crate) mod id;
#[cfg(not(loom))]
pub(crate) mod links;
pub(crate) mod mediation;
pub(crate) mod mediator;
pub(crate) mod membership;
#[cfg(not(loom))]
pub(crate) mod memory;
pub(crate) mod miss;
#[cfg(not(loom))]
pub(crate) mod names;
pub(crate) mod object;
pub(crate) mod platform;
#[cfg(not(loom))]
pub(crate) mod recycle;
pub(crate) mod reps;
pub(crate) mod sites;
#[cfg(not(loom))]
pub(crate) mod sleepers;
pub(crate) mod slot;
#[cfg(not(loom))]
pub(crate) mod stall;
#[cfg(not(loom))]
pub(crate) mod tables;
pub(crate) mod teardown;
pub(crate) mod translations;

#[cfg(all(test, any(loom, squall_model)))]
mod model;
