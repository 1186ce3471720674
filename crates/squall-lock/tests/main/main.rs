//! Tests of the locks through their public interfaces.
#![cfg(not(loom))]

mod biased;
mod configurable;
#[cfg(all(target_os = "linux", not(miri)))]
mod forked;
#[cfg(not(miri))]
mod litmus;
mod lock;
mod read_biased;
mod rw;
mod two_bit;
mod vp;
#[cfg(all(debug_assertions, target_os = "linux", not(miri)))]
mod waits;
