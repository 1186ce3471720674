//! Integration tests, on the machine's own processors.
#![cfg(not(any(loom, miri)))]

mod cache;
mod common;
mod memory;
mod region;
mod source;
mod source_failures;
