//! Integration tests of the parts, in one program.
//!
//! Three programs stay apart, since they change global state: `table_memory` and `queue_memory` count memory,
//! and `dhash_drops` switches the reclaimer thread on and off.
#![cfg(not(loom))]

mod bag;
mod bag_waits;
mod dhash;
mod dhash_reservations;
#[cfg(not(miri))]
mod dhash_sequences;
#[cfg(all(target_os = "linux", not(miri)))]
mod forked;
mod gate;
mod gate_tasks;
mod ids;
mod queue;
mod queue_histories;
mod queue_hostile;
#[cfg(not(miri))]
mod queue_sequences;
mod replicas;
mod table;
mod table_histories;
mod table_limited;
mod table_samples;
