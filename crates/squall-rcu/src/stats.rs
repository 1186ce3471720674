//! Statistics of the process's operations and deferred calls.

use squall_sys::sync::atomic::Ordering;

use squall_machine::asym;

use crate::counts::COUNTS;
use crate::raw::record::Record;
use crate::thread::DOMAIN;

/// A snapshot of the process's RCU state. [`stats`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RcuStats {
    /// Threads registered now.
    pub threads: usize,
    /// Records allocated: the largest number of threads registered at once, rounded up to a chunk.
    pub records: usize,
    /// Memory per registered thread, in bytes, without its pending values and [`RcuStats::list_bytes`].
    pub bytes_per_thread: usize,
    /// Memory of all threads' lists of deferred calls, in bytes: at most about 3 KiB per batch of 128 calls
    /// and 12 KiB per batch of 512 objects. Counts batches that are pending or kept for reuse. An idle
    /// thread's lists are freed.
    pub list_bytes: u64,
    /// Deferred calls that no thread has taken to run yet.
    pub pending_calls: u64,
    /// Memory held by the pending calls, in bytes, as stated when they were deferred. A retired value counts
    /// with the size of its type, unless [`retire_with_size`](crate::retire_with_size) stated another one.
    pub pending_bytes: u64,
    /// Grace periods that have ended.
    pub grace_periods: u64,
    /// Threads asleep until a grace period ends.
    pub sleepers: u32,
    /// Values leaked because a signal handler retired them while it interrupted a retirement.
    pub leaked: u64,
    /// Deferred calls that panicked.
    pub panicked: u64,
    /// Times that a thread had to wait because it and the ended threads exceeded the bound on pending calls.
    pub throttled: u64,
    /// How the asymmetric fence is implemented, and why.
    pub fence: asym::Mode,
}

/// Returns a snapshot of the process's RCU state.
///
/// The snapshot is not consistent: each number was right at some moment during the call.
///
/// # Cost
/// Reads every record.
/// # Example
/// ```
/// let before = squall::rcu::stats();
/// squall::rcu::wait().unwrap();
/// assert!(squall::rcu::stats().grace_periods > before.grace_periods);
/// ```
pub fn stats() -> RcuStats {
    let (records, threads) = DOMAIN.registry.counts();
    let orphaned = crate::run::orphaned();
    let (mut pending_calls, mut pending_bytes) = (orphaned.calls, orphaned.bytes);
    let mut list_bytes = 0;
    DOMAIN.registry.for_each(|record| {
        list_bytes += record.deferrals.list_bytes();
        let (calls, bytes) = record.deferrals.pending();
        pending_calls += calls;
        pending_bytes += bytes;
    });
    RcuStats {
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
