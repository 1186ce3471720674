//! Runs of deferred calls, and the orphans: calls of threads that have ended.
//!
//! `defer/I1` to `defer/I3` say how calls are run. A user's panic ends one call, not the run.
//!
//! - I1. A thread that takes orphans to run them has made its `runs` odd before it locks `ORPHANS`
//!   (`defer/I2`).
//! - I2. `ORPHANED` holds the sums of `ORPHANS`. It is written under the lock of `ORPHANS` and read without.

use squall_sys::pause;
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use squall_sys::sync::{Mutex, MutexGuard};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::counts::COUNTS;
use crate::raw::defer::{BATCH_BYTES, BATCH_CALLS, Batch, Deferred, Kind};
use crate::raw::grace::Haste;
use crate::raw::moment::Moment;
use crate::raw::record::Record;
use crate::thread::{DOMAIN, as_deferred};
use crate::wait::{WaitError, wait_unchecked};

/// Bytes that one thread may have pending before it waits.
pub(crate) const LIMIT_BYTES: u64 = 16 << 20;

/// Batches of threads that have ended, by their kind.
static ORPHANS: Mutex<Orphans> = Mutex::new([const { Vec::new() }; Kind::ALL.len()]);
/// The sums of `ORPHANS` (I2).
static ORPHANED: Sums =
    Sums { calls: AtomicU64::new(0), objects: AtomicU64::new(0), bytes: AtomicU64::new(0) };

type Orphans = [Vec<Batch>; Kind::ALL.len()];

struct Sums {
    /// All calls, those of [`Kind::Object`] included.
    calls: AtomicU64,
    objects: AtomicU64,
    bytes: AtomicU64,
}

/// A number of pending calls, and the memory that they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    /// All calls, those of [`Kind::Object`] included.
    pub(crate) calls: u64,
    /// Calls of [`Kind::Object`].
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

impl Pending {
    fn of(batches: &[Batch]) -> Pending {
        let mut sum = Pending::default();
        for batch in batches {
            let calls = batch.calls.len() as u64;
            sum.calls += calls;
            sum.objects += if batch.kind == Kind::Object { calls } else { 0 };
            sum.bytes += batch.bytes;
        }
        sum
    }
}

/// Runs the calls of a ripe batch, and `between` after each. Returns the empty list for reuse.
pub(crate) fn run(mut batch: Batch, between: impl Fn()) -> Vec<Deferred> {
    let mut calls = batch.calls.drain(..);
    // Called again after each call that panics, so that calls that do not panic cost no `catch_unwind` of
    // their own.
    let run_rest = |calls: &mut std::vec::Drain<'_, Deferred>| {
        for call in calls {
            // SAFETY: the call left the list, so it is made once. Its moment has passed, so no operation can
            // still see its data.
            unsafe { call.run() };
            between();
        }
    };
    as_deferred(|| {
        while let Err(payload) = catch_unwind(AssertUnwindSafe(|| run_rest(&mut calls))) {
            // The panic belongs to the deferred call, not to the thread that happens to run it. The panic
            // hook has reported it. The payload is leaked: its drop is the caller's code too, and could panic
            // here.
            std::mem::forget(payload);
            COUNTS.panicked.fetch_add(1, Ordering::Relaxed);
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

thread_local! {
    /// Calls and bytes that this thread has added to the orphans since [`has_left_a_batch`] was last true.
    /// Begins with a batch.
    static LEFT: Cell<(u64, u64)> = const { Cell::new((BATCH_CALLS as u64, 0)) };
}

/// Returns whether the calling thread has left as many calls to the orphans as a batch holds, since this
/// function last returned true. The first call returns true.
pub(crate) fn has_left_a_batch() -> bool {
    let (calls, bytes) = LEFT.get();
    let full = calls >= BATCH_CALLS as u64 || bytes >= BATCH_BYTES;
    if full {
        LEFT.set((0, 0));
    }
    full
}

/// Adds batches to the orphans. Returns whether there were any; the caller then announces them to the
/// reclaimer.
#[must_use]
pub(crate) fn adopt(batches: Vec<Batch>) -> bool {
    let any = !batches.is_empty();
    if any {
        if cfg!(test) {
            pause::point("adopt");
        }
        let added = Pending::of(&batches);
        LEFT.set((LEFT.get().0 + added.calls, LEFT.get().1 + added.bytes));
        let mut orphans = orphans();
        batches.into_iter().for_each(|batch| orphans[batch.kind as usize].push(batch));
        // Relaxed, here and in `take_orphans`: a bound needs no order. The fences of `work/I1` order the
        // reclaimer's last look.
        ORPHANED.calls.fetch_add(added.calls, Ordering::Relaxed);
        ORPHANED.objects.fetch_add(added.objects, Ordering::Relaxed);
        ORPHANED.bytes.fetch_add(added.bytes, Ordering::Relaxed);
    }
    any
}

/// Takes the orphans of these kinds whose moment is at most `passed`, for a caller that has begun a run (I1).
pub(crate) fn take_orphans(kinds: &[Kind], passed: Moment) -> Vec<Batch> {
    let mut orphans = orphans();
    let mut taken = Vec::new();
    for &kind in kinds {
        taken.extend(orphans[kind as usize].extract_if(.., |batch| batch.moment <= passed));
    }
    let sum = Pending::of(&taken);
    ORPHANED.calls.fetch_sub(sum.calls, Ordering::Relaxed);
    ORPHANED.objects.fetch_sub(sum.objects, Ordering::Relaxed);
    ORPHANED.bytes.fetch_sub(sum.bytes, Ordering::Relaxed);
    drop(orphans);
    if cfg!(test) {
        pause::point("orphans taken");
    }
    taken
}

/// Returns the moment that the first orphans wait for. Others wait for an earlier one only if their thread
/// ended later.
pub(crate) fn first_orphans() -> Option<Moment> {
    orphans().iter().filter_map(|batches| batches.first()).map(|batch| batch.moment).min()
}

fn orphans() -> MutexGuard<'static, Orphans> {
    ORPHANS.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Returns the calls left by threads that have ended.
pub(crate) fn orphaned() -> Pending {
    let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
    Pending { calls: read(&ORPHANED.calls), objects: read(&ORPHANED.objects), bytes: read(&ORPHANED.bytes) }
}

/// Waits until the calls of the chosen threads and of ended threads are ripe, and runs those that are still
/// pending then.
///
/// Calls stay in their list until they are ripe. Until then they stay counted, and their owner may run them
/// first. Then this function calls `enter`, and keeps the result while the calls run. It calls `between`
/// after each of them. If `enter` returns `None`, the calls stay in their lists, and their owners ask for the
/// reclaimer again.
pub(crate) fn run_everything<P>(
    record: &'static Record,
    choose: impl FnMut(&Record) -> bool,
    enter: impl FnOnce() -> Option<P>,
    between: fn(),
) -> Result<u64, WaitError> {
    let chosen = DOMAIN.choose(choose);
    let closed = DOMAIN.close(&chosen).map_err(WaitError::NoFence)?;
    let orphaned = orphans().iter().flatten().map(|batch| batch.moment).max();
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
        orphaned = latest.map_or_else(Vec::new, |latest| take_orphans(&Kind::ALL, latest));
    });
    // If the fence was refused just now, the lists were not touched. The orphaned calls are ripe all the
    // same.
    let calls = run_all(orphaned, between);
    let taken = taken.map(|taken| run_all(taken, between));
    record.end_run();
    taken.map(|taken| taken + calls).map_err(WaitError::NoFence)
}

/// Runs the calls of these ripe batches, and `between` after each. Returns the number of calls.
pub(crate) fn run_all(batches: Vec<Batch>, between: impl Fn()) -> u64 {
    let mut calls = 0;
    for batch in batches {
        calls += batch.calls.len() as u64;
        drop(run(batch, &between));
    }
    calls
}
