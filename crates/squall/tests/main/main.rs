//! Tests of the public interface, in one program.
//!
//! Tests that need a process of their own start this program again (see `common::alone` and `common::again`).
//! `virtual_32` and `virtual_128` are programs of their own, since a process sets its machine once. So is
//! `ui`, since it starts the compiler.
//!
//! Modules share one process. A test that counts misses exactly, or that panics in a drop, takes the matching
//! lock of `common`.

#[path = "../common/mod.rs"]
mod common;

mod errors;
mod gathers;
mod hand_off;
pub mod interfaces;
mod memory;
mod objects;
mod sensors;
mod swap;
