//! Tests of caches, regions and processes. They need no files, so Miri runs them too.
#![cfg(not(loom))]

mod adaptive;
mod cache;
mod hostile;
mod memory;
mod region;
