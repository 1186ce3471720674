//! Locks. Invariant of the crate: nobody who waits for a lock is forgotten, whatever is changed, cancelled or timed out
//! meanwhile; and a free lock costs no more than a compare-and-swap.
//!
#![doc = include_str!("../README.md")]

#[cfg(squall_global_alloc)]
use squall_alloc as _;

mod biased;
mod configurable;
mod deadlock;
mod lock;
mod parking;
pub mod requests;
mod rw;
mod steps;
mod two_bit;

pub use biased::{BiasedGuard, BiasedLock};
pub use configurable::{
    Cancel, ConfigurableGuard, ConfigurableLock, LockError, Method, MonitorReading, Order, Release, Request,
    Scheduling, Waiting,
};
#[cfg(not(loom))]
#[doc(hidden)]
pub use lock::zeros_are_free;
pub use lock::{Lock, LockGuard};
#[cfg(not(loom))]
#[doc(hidden)]
pub use rw::readers_known;
#[cfg(not(loom))]
pub use rw::{DistributedReadGuard, DistributedRwLock, DistributedWriteGuard};
#[doc(hidden)]
pub use steps::{Steps, Undisturbed};
pub use two_bit::{LockedPtr, LockedPtrGuard, TwoBitGuard, TwoBits, Word};
