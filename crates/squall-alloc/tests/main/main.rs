//! Tests of the public interface, in one program.
//!
//! A process sets its address space up once, and the figures of the allocator are those of the process. Tests
//! that need a process of their own therefore start this program again (see `support`). `tests/global` is a
//! program of its own, because its global allocator is the tested one.
#![cfg(not(loom))]

#[cfg(feature = "allocator-api2")]
mod collections;
#[cfg(not(miri))]
mod decay;
// Not with Squall's global allocator: the program itself would be without memory.
#[cfg(not(any(miri, squall_global_alloc)))]
mod last_resort;
mod model;
// Not with Squall's global allocator: the program itself would be without memory.
#[cfg(not(any(miri, squall_global_alloc)))]
mod no_memory;
mod placement;
#[path = "../sequences_common/mod.rs"]
mod sequences_common;
mod support;
#[cfg(not(miri))]
mod wrong_frees;
