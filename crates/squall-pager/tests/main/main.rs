//! Integration tests of sources, on the machine's own processors.
#![cfg(not(any(loom, miri)))]

mod common;
mod source;
mod source_failures;
