//! Locks that are cheap while they are free and degrade gracefully under contention.
//!
//! - I1. Every waiter is woken or ends its own wait, even if attributes change or other waiters leave.
//! - I2. Taking a free lock costs at most one compare-and-swap.
//!
#![doc = include_str!("../README.md")]

#[cfg(squall_global_alloc)]
use squall_alloc as _;

mod biased;
#[cfg(feature = "adaptive-lock")]
mod configurable;
mod deadlock;
mod forked;
mod lock;
// Some wake-ups are for the configurable lock alone.
#[cfg_attr(not(feature = "adaptive-lock"), allow(dead_code, unused_imports))]
mod parking;
mod records;
mod rw;
mod steps;
mod two_bit;
mod vp;

pub use biased::{BiasedGuard, BiasedLock};
#[cfg(feature = "adaptive-lock")]
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
pub use rw::{
    DistributedReadGuard, DistributedRwLock, DistributedWriteGuard, ReadBiasedReadGuard, ReadBiasedRwLock,
    ReadBiasedWriteGuard,
};
#[doc(hidden)]
pub use steps::{NoSteps, Steps};
pub use two_bit::{LockedPtr, LockedPtrGuard, TwoBitGuard, TwoBits, Word};
#[doc(hidden)]
#[cfg(loom)]
#[doc(hidden)]
pub use vp::Vp as ModelVp;
pub use vp::{VpLock, VpLockGuard};
