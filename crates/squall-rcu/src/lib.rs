//! Read-copy-update (RCU) for the whole process.
//!
//! Guarantee of the crate: if a thread cuts every path to an object, sets a marker, and finds the marker
//! elapsed, then no operation can still reach the object.
//!
#![doc = include_str!("../README.md")]

#[cfg(squall_global_alloc)]
use squall_alloc as _;

pub(crate) mod raw;

#[cfg(not(loom))]
mod arc;
#[cfg(all(debug_assertions, not(loom)))]
mod blocking;
#[cfg(not(loom))]
mod cell;
#[cfg(not(loom))]
mod counts;
#[cfg(not(loom))]
mod defer;
#[cfg(not(loom))]
mod jobs;
#[cfg(not(loom))]
mod leave;
#[cfg(all(test, not(loom)))]
mod paused;
#[cfg(not(loom))]
mod pin;
#[cfg(not(loom))]
mod quiescent;
#[cfg(not(loom))]
mod reclaimer;
#[cfg(not(loom))]
mod registration;
#[cfg(not(loom))]
mod run;
#[cfg(not(loom))]
mod runners;
#[cfg(not(loom))]
mod served;
#[cfg(not(loom))]
mod stall;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod tasks;
#[cfg(not(loom))]
mod thread;
#[cfg(not(loom))]
mod wait;

#[cfg(not(loom))]
pub use arc::RcuArc;
#[cfg(not(loom))]
pub use cell::Rcu;
#[cfg(not(loom))]
pub use defer::{
    __defer_memory, __defer_object, __retire_memory, barrier, defer, defer_raw, reclaim, retire, retire_raw,
    retire_raw_with_size, retire_with_size,
};
#[cfg(not(loom))]
pub use jobs::RunOn;
#[cfg(not(loom))]
#[doc(hidden)]
pub use leave::{
    OnLeave as __OnLeave, call_on_leave as __call_on_leave, may_serve as __may_serve,
    serve_unless as __serve_unless,
};
#[cfg(not(loom))]
#[doc(hidden)]
pub use pin::{__callback_free, __enter, __pin, __try_pin, CallbackFree, Entered};
#[cfg(not(loom))]
pub use pin::{Guard, in_operation, pin, register, try_pin, without_callbacks};
#[cfg(not(loom))]
pub use quiescent::{PendingRun, quiescent_do};
#[doc(hidden)]
pub use raw::outcome::Outcome as __Outcome;
#[cfg(not(loom))]
pub use reclaimer::{ReclaimerState, reclaimer_state, set_reclaimer};
#[cfg(not(loom))]
pub use runners::Quiescent;
#[cfg(not(loom))]
#[doc(hidden)]
pub use served::{State as __State, hide_from_served as __hide_from_served, run_served as __run_served};
#[cfg(not(loom))]
#[doc(hidden)]
pub use stall::{__name_tags, __object_of_operation};
#[cfg(not(loom))]
pub use stall::{Stall, on_stall, set_stall_timeout};
#[cfg(not(loom))]
pub use stats::{RcuStats, stats};
#[cfg(not(loom))]
#[doc(hidden)]
pub use tasks::__round_async;
#[cfg(not(loom))]
pub use tasks::{barrier_async, wait_async};
#[cfg(not(loom))]
pub use thread::PinError;
#[cfg(not(loom))]
#[doc(hidden)]
pub use wait::{__may_wait, __set_transferring};
#[cfg(not(loom))]
pub use wait::{Marker, MarkerState, WaitError, wait, wait_expedited, wait_until};

/// Not public: the protocol, for the models of the crates above.
#[cfg(any(loom, squall_model))]
#[doc(hidden)]
pub mod __model {
    pub use crate::raw::model_access::{ENTER_FENCE, Quiescence, Reader};
}
