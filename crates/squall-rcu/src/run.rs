//! Runs of deferred calls, and the orphans: calls of threads that have ended.
//!
//! `defer/I1` to `defer/I3` say how calls are run. A user's panic ends one call, not the run.

use squall_sys::sync::{Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::counts::COUNTS;
use crate::raw::defer::{Batch, Deferred};
use crate::raw::grace::Haste;
use crate::raw::record::Record;
use crate::thread::{DOMAIN, as_deferred};
use crate::wait::{WaitError, wait_unchecked};

/// Bytes that one thread may have pending before it waits.
pub(crate) const LIMIT_BYTES: u64 = 16 << 20;

/// Batches of threads that have ended.
static ORPHANS: Mutex<Vec<Batch>> = Mutex::new(Vec::new());

/// Runs the calls of a ripe batch. Returns the empty list for reuse.
pub(crate) fn run(mut batch: Batch) -> Vec<Deferred> {
    let mut calls = batch.calls.drain(..);
    // Called again after each call that panics, so that calls that do not panic cost no `catch_unwind` of
    // their own.
    let run_rest = |calls: &mut std::vec::Drain<'_, Deferred>| {
        for call in calls {
            // SAFETY: the call left the list, so it is made once. Its moment has passed, so no operation can
            // still see its data.
            unsafe { call.run() };
        }
    };
    as_deferred(|| {
        while let Err(payload) = catch_unwind(AssertUnwindSafe(|| run_rest(&mut calls))) {
            // The panic belongs to the deferred call, not to the thread that happens to run it. The panic
            // hook has reported it. The payload is leaked: its drop is the caller's code too, and could panic
            // here.
            std::mem::forget(payload);
            COUNTS.panicked.fetch_add(1, squall_sys::sync::atomic::Ordering::Relaxed);
        }
    });
    drop(calls);
    batch.calls
}

/// Takes over the deferred calls of a thread that is about to lose its record. Returns whether there were
/// any; the caller then announces them to the reclaimer.
#[must_use]
pub(crate) fn adopt_from(record: &Record) -> bool {
    let rest = DOMAIN.take_own(record, || record.begin_run());
    let any = adopt(rest);
    record.end_run();
    any
}

/// Adds batches to the orphans. Returns whether there were any; the caller then announces them to the
/// reclaimer.
#[must_use]
pub(crate) fn adopt(batches: Vec<Batch>) -> bool {
    let any = !batches.is_empty();
    if any {
        orphans().extend(batches);
    }
    any
}

/// Locks the orphans.
pub(crate) fn orphans() -> MutexGuard<'static, Vec<Batch>> {
    ORPHANS.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Returns the number of calls and bytes left by threads that have ended. In the child of a fork, where the
/// lock may be held for ever, both are 0.
pub(crate) fn orphaned() -> (u64, u64) {
    if squall_sys::fork::forked() {
        return (0, 0);
    }
    let orphans = orphans();
    let calls = orphans.iter().map(|batch| batch.calls.len()).sum::<usize>();
    let bytes = orphans.iter().map(|batch| batch.bytes).sum::<usize>();
    (calls as u64, bytes as u64)
}

/// Waits until the calls of the chosen threads and of ended threads are ripe, and runs those that are still
/// pending then.
///
/// Calls stay in their list until they are ripe. Until then they stay counted, and their owner may run them
/// first. Then this function calls `enter`, and keeps the result while the calls run. If `enter` returns
/// `None`, the calls stay in their lists, and their owners ask for the reclaimer again.
pub(crate) fn run_everything<P>(
    record: &'static Record,
    choose: impl FnMut(&Record) -> bool,
    enter: impl FnOnce() -> Option<P>,
) -> Result<u64, WaitError> {
    let chosen = DOMAIN.choose(choose);
    let closed = DOMAIN.close(&chosen).map_err(WaitError::NoFence)?;
    let orphaned = orphans().iter().map(|batch| batch.moment).max();
    let latest = closed.max(orphaned);
    if let Some(latest) = latest {
        wait_unchecked(latest, Haste::Normal, None)?;
    } else if chosen.is_empty() {
        return Ok(0);
    }
    let Some(_permission) = enter() else {
        // The choice has cleared the requests of these owners.
        chosen.iter().for_each(|chosen| chosen.deferrals.ask_reclaimer());
        return Ok(0);
    };
    let mut orphaned = Vec::new();
    let taken = DOMAIN.take_ripe(&chosen, || {
        record.begin_run();
        orphaned.extend(orphans().extract_if(.., |batch| Some(batch.moment) <= latest));
    });
    // If the fence was refused just now, the lists were not touched. The orphaned calls are ripe all the
    // same.
    let calls = run_all(orphaned);
    let taken = taken.map(run_all);
    record.end_run();
    taken.map(|taken| taken + calls).map_err(WaitError::NoFence)
}

/// Runs the calls of these ripe batches. Returns the number of calls.
pub(crate) fn run_all(batches: Vec<Batch>) -> u64 {
    let mut calls = 0;
    for batch in batches {
        calls += batch.calls.len() as u64;
        drop(run(batch));
    }
    calls
}
