//! Tests of the public interface, in one program.
//!
//! Tests that need a process of their own start this program again (see `support`): a process sets its
//! address space up once, and the figures of the allocator are those of the whole process. `tests/global` is
//! a program of its own, because its global allocator is the tested one.

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
