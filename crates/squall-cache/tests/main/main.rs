//! Tests of caches.
#![cfg(not(loom))]

mod bounds;
mod changes;
mod hostile;
mod loads;
mod policies;
mod removals;
mod reservations;
mod times;
