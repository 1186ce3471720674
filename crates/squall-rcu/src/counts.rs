//! Counters of the process's rare events.

use squall_sys::sync::atomic::AtomicU64;

/// Counters of rare events. The thread that meets the event increments its counter.
pub(crate) struct Counts {
    pub(crate) leaked: AtomicU64,
    pub(crate) panicked: AtomicU64,
    pub(crate) throttled: AtomicU64,
}

pub(crate) static COUNTS: Counts =
    Counts { leaked: AtomicU64::new(0), panicked: AtomicU64::new(0), throttled: AtomicU64::new(0) };
