//! The pool of a fleet for C programs: the functions of the header `squall_pool.h`.
//!
//! Problem: a C program passes wrong pointers, old handles and negative sizes, and knows no panic. Idea: a
//! handle is a number that looks like a pointer. The library never follows it, but looks it up.
//!
//! - I1. Each call of C returns the value that the header gives for its result, also after a panic.
//! - I2. No number of a handle comes twice in a process, so an old handle is unknown.
//! - I3. No lock of this crate is held while a node or a pool is called.
//! - I4. All `unsafe` code lies in `ffi`. It reads and writes memory of the caller during a call alone.
//!
//! Not promised: a check of the memory behind the pointers of a caller, besides null.
//! Cost: a lock of the table of handles for each call, besides the cost of the pool.
//! Source: Wentzlaff 2012, Listings 4.1 to 4.4 (DP-01 to DP-11).

#![deny(unsafe_code)]
#![cfg(all(target_os = "linux", not(miri), not(loom)))]

mod calls;
mod failure;
#[allow(unsafe_code)]
mod ffi;
mod options;
mod table;

pub use ffi::*;
