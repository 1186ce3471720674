//! Integration tests on a virtual machine of 32 VPs.
//!
//! A process can set its machine once, so tests of other machines are other programs: `host` runs on the real
//! processors, and `ranking` runs on a virtual machine of four nodes.
#![cfg(not(any(loom, miri)))]

#[macro_use]
#[path = "../common/maps.rs"]
mod maps;
#[path = "../common/sequences_distributed.rs"]
mod interpreters;
#[path = "../common/touchy.rs"]
mod touchy;

mod adaptive;
mod bag;
mod bag_bounded;
mod bag_waits;
mod cached;
mod common;
mod directory;
mod directory_reservations;
mod engine;
mod ids;
mod map_adaptive;
mod map_clones;
// Sanitizers enlarge the stack.
#[cfg(not(any(squall_asan, squall_tsan)))]
mod map_large;
mod map_object;
mod map_panics;
mod map_reentry;
mod map_replicated;
mod named;
mod own_types;
mod pages;
mod pool;
mod queue;
mod queue_waits;
mod read_mostly;
mod reasons;
mod sequences_distributed;
mod ship;
