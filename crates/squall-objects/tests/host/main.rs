//! Integration tests on the processors of the host.
//!
//! A process can set its machine once, so tests on virtual machines are the programs `main` and `ranking`.
#![cfg(not(any(loom, miri)))]

#[macro_use]
#[path = "../common/maps.rs"]
mod maps;
#[path = "../common/sequences.rs"]
mod interpreters;
#[path = "../common/touchy.rs"]
mod touchy;

mod as_std;
mod biased;
mod gate;
mod gate_tasks;
mod lock;
mod map;
mod map_limits;
mod map_suites;
mod sequences;
mod sizes;
