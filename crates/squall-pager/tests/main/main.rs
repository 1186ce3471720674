//! Tests of the pager.
#![cfg(not(loom))]

mod cache;
mod memory;
mod region;
