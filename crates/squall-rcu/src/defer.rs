//! Deferred calls: what a thread retires is reclaimed when no operation can still see it.
//!
//! Problem: retiring must cost little, memory waiting for reclamation must be bounded, users' code (`Drop`) must not run
//! in surprising places, and none of it may need a thread that nobody asked for.
//!
//! - I1. A deferred call runs once, at depth zero if it is [`Kind::Code`], after a grace period that began after it was
//!   deferred; never under a lock or role of this crate.
//! - I2. `runs` of a record is odd exactly while its thread is running calls that it took from a list; it becomes odd
//!   before the calls are out of the list for others to see (at the list, or while takers are excluded).
//! - I3. Calls run by a thread are not nested: what a deferred call defers in turn waits for a later batch.
//! - I4. A thread in a quiet scope ([`quietly`](crate::quietly)) runs no call but of [`Kind::Memory`], and does not wait for its
//!   bound: it does so when the outermost scope has ended, and it is outside every operation.
//!
//! Who runs them, in this order: (1) the thread that deferred them, when its batch is full and it is outside every
//! operation: it looks at whether its oldest batch is ripe, and runs it; (2) inside an operation, `Memory` calls only;
//! (3) the reclaimer thread (see `reclaimer`), for threads that stopped retiring, ended, retire too little to fill a batch
//! within a second, or retire code inside operations; (4) whoever calls [`reclaim`] or [`barrier`].
//!
//! Bound: a thread that has more than [`LIMIT_CALLS`] calls ([`LIMIT_OBJECTS`] of [`Kind::Object`], which are counted
//! apart) or [`LIMIT_BYTES`] bytes pending when it closes a batch
//! waits for a grace period, at most [`LIMIT_WAIT`] per batch (a reader may be waiting for this very thread), and inside
//! an operation only when it leaves it. So what is pending is at most `threads × (LIMIT + one batch)`, plus what is
//! retired inside single operations, plus one batch per `LIMIT_WAIT` and thread while a reader does not end.
//!
//! Cost: with `Box<T>`, an addition to a list; per batch ([`Kind::batch_calls`]) a grace period at most, which threads
//! share. Source: Linux's `call_rcu` and `rcu_barrier`; the barrier's two-sided wait is CO-21's.

use squall_sys::sync::Mutex;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::op::{DOMAIN, is_quiet, own_record, put_off};
use crate::raw::defer::{BATCH_CALLS, Batch, Deferred, Kind};
use crate::raw::grace::{Haste, Moment};
use crate::raw::record::{Record, attention};
use crate::stats::COUNTS;
use crate::wait::{WaitError, after, may_wait, wait_unchecked};

/// Calls that one thread may have pending before it waits.
const LIMIT_CALLS: u64 = 2048;
/// The same, of [`Kind::Object`], apart from the others.
const LIMIT_OBJECTS: u64 = 4096;
/// Bytes that one thread may have pending before it waits.
pub(crate) const LIMIT_BYTES: u64 = 16 << 20;
/// The longest such wait, per batch.
pub(crate) const LIMIT_WAIT: Duration = Duration::from_millis(50);

/// What a batch may spend on a grace period's fence, in ns, before it waits for other batches to share it.
const FENCE_NS_PER_BATCH: u64 = 4000;
/// The most batches of a thread that wait for each other: half its bound.
const BATCHES_PER_FENCE: u64 = LIMIT_CALLS / 2 / BATCH_CALLS as u64;
/// How often a thread over its bound looks whether the reclaimer has done its part.
const BOUND_POLL: Duration = Duration::from_micros(200);

/// Batches of threads that ended.
static ORPHANS: Mutex<Vec<Batch>> = Mutex::new(Vec::new());

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Drops `value` once every operation that is open now has ended.
///
/// The drop happens later: on this thread in a later call of this function outside every operation, in [`reclaim`] or
/// [`barrier`], or on the reclaimer thread, which comes for what a thread lets lie: after some tens of milliseconds if it
/// sleeps or does something else, after a second at most if it goes on retiring little by little. If `T` needs no drop,
/// only memory is given back, and that may happen anywhere. At the end of the process what is pending is not dropped:
/// call [`barrier`] if it must be.
///
/// A caller who retires faster than readers let go is made to wait (see the module's bound). In a forked child, and in
/// a signal handler that interrupts this function on the same thread, `value` is leaked (the latter is counted).
///
/// A box that readers may still be reading must not exist as a `Box`, which says that nobody else has the value: hand
/// its pointer to [`retire_raw`] instead.
///
/// # Cost
/// An addition to a list of the thread's own. Lock-free but for the bound's wait.
/// # Example
/// ```
/// squall_rcu::retire(Box::new([0_u8; 64]));
/// squall_rcu::barrier().unwrap();
/// ```
#[inline]
pub fn retire<T: Send + 'static>(value: Box<T>) {
    // SAFETY: the box just taken apart, which this function owned.
    unsafe { retire_raw(Box::into_raw(value)) }
}

/// As [`retire`], for a value that operations which are open now may still be reading.
///
/// # Safety
/// 1. `value` came from [`Box::into_raw`], and nobody else will free it.
/// 2. No operation that begins after this call can reach it: every path to it was cut before.
/// # Example
/// ```
/// use std::sync::atomic::{AtomicPtr, Ordering};
/// let shared = AtomicPtr::new(Box::into_raw(Box::new(1)));
/// let old = shared.swap(Box::into_raw(Box::new(2)), Ordering::AcqRel);
/// // SAFETY: from `Box::into_raw`, and the exchange cut the only path to it.
/// unsafe { squall_rcu::retire_raw(old) };
/// # squall_rcu::barrier().unwrap();
/// # drop(unsafe { Box::from_raw(shared.into_inner()) });
/// ```
#[inline]
pub unsafe fn retire_raw<T: Send + 'static>(value: *mut T) {
    let kind = if std::mem::needs_drop::<T>() { Kind::Code } else { Kind::Memory };
    add(kind, free::<T>, value.cast(), bytes_of::<T>());
}

/// Not public: as [`retire_raw`], for a value whose drop does nothing but give memory back, though it has one. That is then done
/// where it is done for values without a drop: anywhere, on the thread that retired it.
///
/// # Safety
/// As of [`retire_raw`].
#[doc(hidden)]
#[inline]
pub unsafe fn __retire_memory<T: Send + 'static>(value: *mut T) {
    add(Kind::Memory, free::<T>, value.cast(), bytes_of::<T>());
}

/// # Safety
/// Called once, with a box that nobody else has.
unsafe fn free<T>(data: *mut ()) {
    // SAFETY: the one call of a `Deferred`, whose data is the box that `retire_raw` was given, after the grace
    // period that its contract's second point asks for: nobody has a reference to it now.
    drop(unsafe { Box::from_raw(data.cast::<T>()) });
}

fn bytes_of<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(u32::MAX)
}

/// Calls `f` once every operation that is open now has ended. As [`retire`] otherwise.
///
/// # Cost
/// As [`retire`], and an allocation.
pub fn defer<F: FnOnce() + Send + 'static>(f: F) {
    unsafe fn call<F: FnOnce()>(data: *mut ()) {
        // SAFETY: the one call of a `Deferred`, whose data is the box that `defer` took apart.
        let f = unsafe { Box::from_raw(data.cast::<F>()) };
        f();
    }
    add(Kind::Code, call::<F>, Box::into_raw(Box::new(f)).cast(), bytes_of::<F>());
}

/// Calls `call(data)` once every operation that is open now has ended. As [`defer`], without its allocation.
///
/// # Units
/// `bytes`: what `data` holds on to, for the bound on what may be pending.
/// # Safety
/// 1. `call(data)` may be called once, on any thread, outside every operation.
/// 2. If `call` frees what operations may be reading: no operation that begins after this call can reach it.
/// # Source
/// liburcu's `call_rcu`.
#[inline]
pub unsafe fn defer_raw(call: unsafe fn(*mut ()), data: *mut (), bytes: usize) {
    add(Kind::Code, call, data, u32::try_from(bytes).unwrap_or(u32::MAX));
}

/// Not public: as [`defer_raw`], for what comes and goes by the million.
///
/// # Safety
/// As of [`defer_raw`].
#[doc(hidden)]
#[inline(never)]
pub unsafe fn __defer_object(call: unsafe fn(*mut ()), data: *mut (), bytes: u32) {
    add_plain(Kind::Object, call, data, bytes);
}

/// Not public: calls `call(data, bytes)` once every operation that is open now has ended, anywhere, as memory is given back.
///
/// # Safety
/// As of [`defer_raw`]; and the call gives memory back, and runs nobody's code.
#[doc(hidden)]
#[inline(never)]
pub unsafe fn __defer_memory(call: unsafe fn(*mut (), u32), data: *mut (), bytes: u32) {
    #[cold]
    #[inline(never)]
    fn slowly(call: unsafe fn(*mut (), u32), data: *mut (), bytes: u32) {
        add_slowly(Kind::Memory, Deferred::sized(call, data, bytes));
    }
    if !add_at_once(Kind::Memory, Deferred::sized(call, data, bytes)) {
        slowly(call, data, bytes);
    }
}

#[inline(never)]
fn add(kind: Kind, call: unsafe fn(*mut ()), data: *mut (), bytes: u32) {
    add_plain(kind, call, data, bytes);
}

#[inline(always)]
fn add_plain(kind: Kind, call: unsafe fn(*mut ()), data: *mut (), bytes: u32) {
    #[cold]
    #[inline(never)]
    fn slowly(kind: Kind, call: unsafe fn(*mut ()), data: *mut (), bytes: u32) {
        add_slowly(kind, Deferred::new(call, data, bytes));
    }
    if !add_at_once(kind, Deferred::new(call, data, bytes)) {
        slowly(kind, call, data, bytes);
    }
}

/// Adds a call where that is nothing but to write it down: most are. Returns whether. What else there may be to do is
/// [`add_slowly`]'s, called last and through a function with the caller's own parameters, so that nothing is saved for it.
#[inline(always)]
fn add_at_once(kind: Kind, call: Deferred) -> bool {
    own_record().is_some_and(|record| DOMAIN.defer_at_once(record, kind, call))
}

fn add_slowly(kind: Kind, call: Deferred) {
    if own_record().is_none() && crate::op::register().is_err() {
        return;
    }
    // A thread past its exit hook is registered only within an operation: it has no list of its own then.
    let Some(record) = own_record() else { return adopt_one(call) };
    let Ok(added) = DOMAIN.defer(record, kind, call) else {
        COUNTS.leaked.fetch_add(1, squall_sys::sync::atomic::Ordering::Relaxed);
        return;
    };
    if added.first {
        crate::reclaimer::announce();
    }
    if added.closed {
        closed(record);
    }
}

#[inline(never)]
fn closed(record: &'static Record) {
    if RUNNING.get() {
        return;
    }
    let inside = record.depth() > 0;
    if inside {
        record.owe(attention::DEFERRED);
    }
    if inside || put_off(record) {
        if oldest_of(record, &[Kind::Code, Kind::Object]).is_some() {
            // Users' code is not run at the end of an operation, nor of a quiet scope.
            record.deferrals.want();
        }
        help(record, Kind::Memory);
        return;
    }
    if over_bound(record)
        && let Some(oldest) = oldest_of(record, &[Kind::Code, Kind::Object])
    {
        COUNTS.throttled.fetch_add(1, squall_sys::sync::atomic::Ordering::Relaxed);
        // An error leaves it pending: `keep_bound` sees that.
        let _ = wait_unchecked(oldest, Haste::Normal, after(LIMIT_WAIT));
    }
    help_all(record);
    keep_bound(record);
}

/// The oldest moment that a closed batch of these kinds waits for.
fn oldest_of(record: &Record, kinds: &[Kind]) -> Option<Moment> {
    kinds.iter().filter_map(|&kind| DOMAIN.oldest(record, kind)).map(|(moment, _)| moment).min()
}

/// What a thread owes when it leaves an operation in which it closed a batch: memory, the bound, and users' code only
/// where no reclaimer may do that.
pub(crate) fn after_operation(record: &'static Record) {
    if RUNNING.get() {
        return;
    }
    if put_off(record) {
        help(record, Kind::Memory);
        return;
    }
    help_if_allowed(record);
    keep_bound(record);
}

/// Runs the ripe batches of the calling thread, without waiting.
fn help_all(record: &'static Record) {
    Kind::ALL.into_iter().for_each(|kind| help(record, kind));
}

/// The same, but users' code only where no reclaimer may run that.
fn help_if_allowed(record: &'static Record) {
    if crate::reclaimer::allowed() { help(record, Kind::Memory) } else { help_all(record) }
}

fn help(record: &'static Record, kind: Kind) {
    while let Some((oldest, batches)) = DOMAIN.oldest(record, kind) {
        let mut passed = DOMAIN.grace.passed();
        if passed < oldest {
            if batches < enough(kind) || squall_sys::fork::forked() {
                return;
            }
            if !matches!(DOMAIN.grace.poll(&DOMAIN.registry, oldest), Ok(true)) {
                return;
            }
            passed = DOMAIN.grace.passed();
        }
        let Some(batch) = DOMAIN.pop(record, kind, passed, || record.begin_run()) else { return };
        let list = run(batch);
        record.end_run();
        DOMAIN.recycle(record, kind, list);
    }
}

/// How many closed batches make a thread ask for a grace period.
fn enough(kind: Kind) -> usize {
    match kind {
        // Where the fence is dear, more calls share it.
        Kind::Memory | Kind::Code => {
            (DOMAIN.grace.fence_ns() / FENCE_NS_PER_BATCH).clamp(1, BATCHES_PER_FENCE) as usize
        }
        // As many share it as ever do of the others; and in the time of one batch somebody else may have asked, so that one
        // grace period serves many threads.
        Kind::Object => 2,
    }
}

fn over_bound(record: &Record) -> bool {
    let (calls, bytes) = record.deferrals.pending();
    if calls <= LIMIT_CALLS && bytes <= LIMIT_BYTES {
        return false;
    }
    let objects = DOMAIN.pending_of(record, Kind::Object);
    // Another thread may take some in between.
    calls.saturating_sub(objects) > LIMIT_CALLS || objects > LIMIT_OBJECTS || bytes > LIMIT_BYTES
}

/// Waits, outside every operation, until this thread is within its bound again or [`LIMIT_WAIT`] is over.
#[cold]
fn keep_bound(record: &'static Record) {
    if !over_bound(record) || squall_sys::fork::forked() {
        return;
    }
    COUNTS.throttled.fetch_add(1, squall_sys::sync::atomic::Ordering::Relaxed);
    let deadline = after(LIMIT_WAIT);
    let oldest = oldest_of(record, &Kind::ALL);
    // An error means that nothing can be freed now: what is pending stays pending and is counted.
    if oldest.is_some_and(|oldest| wait_unchecked(oldest, Haste::Normal, deadline).is_err()) {
        return;
    }
    help_if_allowed(record);
    if !crate::reclaimer::allowed() {
        return;
    }
    // What remains is users' code, for the reclaimer.
    record.deferrals.want();
    crate::reclaimer::urge();
    while over_bound(record) && deadline.is_some_and(|deadline| Instant::now() < deadline) {
        squall_sys::sync::thread::sleep(BOUND_POLL);
    }
}

/// Runs the calls of a batch, whose moment has passed. Returns the empty list.
fn run(mut batch: Batch) -> Vec<Deferred> {
    let nested = RUNNING.replace(true);
    let mut calls = batch.calls.drain(..);
    // Begun again after each call that panics, so that the others cost nothing more.
    let run_rest = |calls: &mut std::vec::Drain<'_, Deferred>| {
        for call in calls {
            // SAFETY: the call is made once (it left the list), and its moment has passed: nobody can still see its data.
            unsafe { call.run() };
        }
    };
    while let Err(payload) = catch_unwind(AssertUnwindSafe(|| run_rest(&mut calls))) {
        // The panic was the deferred call's; whoever happens to run it is not to blame. The hook has told it. The payload is
        // leaked: its drop is the caller's code too, and could panic here.
        std::mem::forget(payload);
        COUNTS.panicked.fetch_add(1, squall_sys::sync::atomic::Ordering::Relaxed);
    }
    drop(calls);
    RUNNING.set(nested);
    batch.calls
}

/// Runs `f` as a deferred call is run: what may not be done in one may not be done in `f`, above all waiting for others.
pub(crate) fn as_deferred<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            RUNNING.set(self.0);
        }
    }
    let _restore = Restore(RUNNING.replace(true));
    f()
}

/// Whether the calling thread is inside a deferred call.
pub(crate) fn in_deferred_call() -> bool {
    RUNNING.get()
}

/// Takes over what a thread has deferred that is about to lose its record.
pub(crate) fn adopt_from(record: &Record) {
    let rest = DOMAIN.take_own(record, || record.begin_run());
    adopt(rest);
    record.end_run();
}

fn adopt(batches: Vec<Batch>) {
    if batches.is_empty() {
        return;
    }
    orphans().extend(batches);
    crate::reclaimer::announce();
}

fn adopt_one(call: Deferred) {
    let bytes = call.bytes as usize;
    adopt(vec![Batch { moment: DOMAIN.grace.mark(), calls: vec![call], bytes }]);
}

fn orphans() -> squall_sys::sync::MutexGuard<'static, Vec<Batch>> {
    ORPHANS.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Calls and bytes of threads that have ended.
pub(crate) fn orphaned() -> (u64, u64) {
    let orphans = orphans();
    let calls = orphans.iter().map(|batch| batch.calls.len()).sum::<usize>();
    let bytes = orphans.iter().map(|batch| batch.bytes).sum::<usize>();
    (calls as u64, bytes as u64)
}

/// Whether the calling thread may run deferred calls, and wait for them.
fn may_run() -> Result<(), WaitError> {
    may_wait()?;
    if is_quiet() { Err(WaitError::Quiet) } else { Ok(()) }
}

/// Runs what can be run now of what this thread and ended threads have deferred, without waiting. Returns how many
/// calls ran.
///
/// # Errors
/// As [`wait`](crate::wait()), but for the deadline; and [`WaitError::Quiet`].
pub fn reclaim() -> Result<u64, WaitError> {
    may_run()?;
    crate::op::with_record(reclaim_with).map_err(|_| WaitError::Forked)?
}

fn reclaim_with(record: &'static Record) -> Result<u64, WaitError> {
    let mut batches = DOMAIN.take_own(record, || record.begin_run());
    let own = batches.iter().map(|batch| batch.moment).max();
    let oldest_orphan = orphans().iter().map(|batch| batch.moment).min();
    let asked = own.max(oldest_orphan);
    let polled = asked.map(|moment| DOMAIN.grace.poll(&DOMAIN.registry, moment));
    let passed = DOMAIN.grace.passed();
    batches.extend(orphans().extract_if(.., |batch| batch.moment <= passed));
    let (ripe, rest): (Vec<_>, Vec<_>) = batches.into_iter().partition(|batch| batch.moment <= passed);
    // Before the run ends, so that a barrier finds them in one place or the other (I2).
    adopt(rest);
    let calls = run_all(ripe);
    record.end_run();
    polled.transpose().map_err(WaitError::NoFence)?;
    Ok(calls)
}

/// Waits until every call that any thread had deferred when this was called has run. Returns how many of them ran here.
///
/// # Errors
/// As [`wait`](crate::wait()), but for the deadline; and [`WaitError::Quiet`].
/// # Cost
/// A heavy fence, a grace period, and the calls themselves. Blocks on readers and on deferred calls under way elsewhere.
/// # Source
/// Linux's `rcu_barrier`.
pub fn barrier() -> Result<u64, WaitError> {
    may_run()?;
    if !crate::reclaimer::allowed() {
        crate::quiescent::run_jobs();
    }
    crate::op::with_record(barrier_with).map_err(|_| WaitError::Forked)?
}

fn barrier_with(record: &'static Record) -> Result<u64, WaitError> {
    let mut calls = 0;
    // Twice: what was in no list the first time (I2) was being run, and has been when the wait is over, or was on its
    // way to the orphans, from where nothing goes back to a list.
    for _ in 0..2 {
        calls += run_everything(record, |_| true)?;
        DOMAIN.registry.for_each(|other| other.wait_run_end());
    }
    Ok(calls)
}

/// Waits until what the chosen threads and the ended ones have deferred is ripe, and runs what is left of it then.
/// Nothing leaves its list before: what waits is counted, and its owner may run it first.
pub(crate) fn run_everything(
    record: &'static Record,
    choose: impl FnMut(&Record) -> bool,
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
    let mut orphaned = Vec::new();
    let taken = DOMAIN.take_ripe(&chosen, || {
        record.begin_run();
        orphaned.extend(orphans().extract_if(.., |batch| Some(batch.moment) <= latest));
    });
    // If the fence was refused just now, the lists were not touched; what was orphaned is ripe all the same.
    let calls = run_all(orphaned);
    let taken = taken.map(run_all);
    record.end_run();
    taken.map(|taken| taken + calls).map_err(WaitError::NoFence)
}

fn run_all(batches: Vec<Batch>) -> u64 {
    let mut calls = 0;
    for batch in batches {
        calls += batch.calls.len() as u64;
        drop(run(batch));
    }
    calls
}
