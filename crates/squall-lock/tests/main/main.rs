//! Tests of the locks through their public interfaces.
#![cfg(not(loom))]

mod biased;
mod configurable;
mod lock;
mod rw;
mod two_bit;
