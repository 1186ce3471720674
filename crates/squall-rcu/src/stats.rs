//! What there is to know about the process's operations and deferred calls.

use squall_sync::atomic::{AtomicU64, Ordering};

use squall_machine::asym;

use crate::op::DOMAIN;
use crate::raw::record::Record;

/// Events that happen seldom; each counter is written by whoever meets the event.
pub(crate) struct Counts {
    pub(crate) leaked: AtomicU64,
    pub(crate) panicked: AtomicU64,
    pub(crate) throttled: AtomicU64,
}

pub(crate) static COUNTS: Counts =
    Counts { leaked: AtomicU64::new(0), panicked: AtomicU64::new(0), throttled: AtomicU64::new(0) };

/// A snapshot of the process's read-copy-update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Threads registered now.
    pub threads: usize,
    /// Records made: the largest number of threads that were registered at once, rounded up to a chunk.
    pub records: usize,
    /// Memory per registered thread, in bytes, besides what it has pending and [`Stats::list_bytes`].
    pub bytes_per_thread: usize,
    /// Memory of the lists of deferred calls of all threads, in bytes: at most about 3 KiB per batch of 128 pending or
    /// kept for reuse, and 12 KiB per batch of 512 objects; given back when a thread lies idle.
    pub list_bytes: u64,
    /// Deferred calls that have not been taken to run.
    pub pending_calls: u64,
    /// What they hold on to, in bytes, as far as known.
    pub pending_bytes: u64,
    /// Grace periods that ended.
    pub grace_periods: u64,
    /// Threads asleep until a grace period ends.
    pub sleepers: u32,
    /// Values leaked because they were retired by a signal handler that interrupted a retirement.
    pub leaked: u64,
    /// Deferred calls that panicked.
    pub panicked: u64,
    /// How often a thread was over its bound and had to wait.
    pub throttled: u64,
    /// How the asymmetric fence is made.
    pub fence: asym::Mode,
}

/// A snapshot of the process's read-copy-update.
///
/// # Cost
/// One look at every record. Not a consistent snapshot: each number is right for some moment during the call.
pub fn stats() -> Stats {
    let (records, threads) = DOMAIN.registry.counts();
    let (mut pending_calls, mut pending_bytes) = crate::defer::orphaned();
    let mut list_bytes = 0;
    DOMAIN.registry.for_each(|record| {
        list_bytes += record.deferrals.room();
        let (calls, bytes) = record.deferrals.pending();
        pending_calls += calls;
        pending_bytes += bytes;
    });
    Stats {
        threads,
        records,
        bytes_per_thread: size_of::<Record>(),
        list_bytes,
        pending_calls,
        pending_bytes,
        grace_periods: DOMAIN.grace.completed(),
        sleepers: DOMAIN.grace.sleepers(),
        leaked: COUNTS.leaked.load(Ordering::Relaxed),
        panicked: COUNTS.panicked.load(Ordering::Relaxed),
        throttled: COUNTS.throttled.load(Ordering::Relaxed),
        fence: asym::mode(),
    }
}
