//! Deferred calls: a retired value is reclaimed once no operation can still see it.
//!
//! Problem: a retirement must be cheap, and memory that waits for reclamation must be bounded. Users' code
//! (`Drop`) must not run in surprising places. The crate must work without a helper thread that the user did
//! not ask for.
//!
//! - I1. A deferred call runs once, after a grace period that began after it was deferred, and never under a
//!   lock or role of this crate. A call of [`Kind::Code`] or [`Kind::Object`] runs at depth zero.
//! - I2. `runs` of a record is odd exactly while its thread is running calls that it took from a list. It
//!   becomes odd before other threads can see that the calls have left the list (inside the list's lock, or
//!   while takers are excluded).
//! - I3. Calls run by a thread are not nested: the calls that a deferred call defers in turn wait for a later
//!   batch.
//! - I4. A thread in a callback-free scope ([`without_callbacks`](crate::without_callbacks)) runs only calls
//!   of [`Kind::Memory`], and does not wait for its bound. It does both once the outermost scope has ended
//!   and it is outside every operation. The transfer of a hot-swap counts as such a scope; after it, the next
//!   closed batch leads to the work.
//!
//! Threads that run the calls, in this order:
//!
//! 1. The thread that deferred them, if its batch is full and it is outside every operation. It checks
//!    whether its oldest batch is ripe, and runs it.
//! 2. The thread that deferred them, inside an operation: calls of [`Kind::Memory`] only.
//! 3. The reclaimer thread (see `reclaimer`). It serves threads that stopped retiring, ended, retire too
//!    little to fill a batch within a second, or retire values with code inside operations.
//! 4. A thread that calls [`reclaim`] or [`barrier`].
//!
//! Bound: a thread that closes a batch waits for a grace period if more than [`LIMIT_CALLS`] calls or
//! [`LIMIT_BYTES`] bytes are pending. It counts its own calls and those of all ended threads (the orphans).
//! Calls of [`Kind::Object`] count apart, up to [`LIMIT_OBJECTS`]. The wait lasts at most [`LIMIT_WAIT`] per
//! batch, because a reader may be waiting for this very thread. A batch closed inside an operation leads to a
//! wait when the thread leaves the operation.
//!
//! A thread may end before it fills a batch. So a thread also waits when it defers its first call, if the
//! orphans alone exceed the bound. A thread past its exit hook has no list that lasts: it waits for its first
//! call, and then once for as many calls as a batch holds.
//!
//! So at most `threads × (LIMIT + one batch)` calls are pending, where `threads` is the largest number of
//! threads registered at once. The calls retired inside single operations come on top. While a reader does
//! not end, so does one batch per `LIMIT_WAIT` and thread.
//!
//! A thread over its bound runs no users' code of ended threads, since it may hold a lock that the code
//! takes. So without the reclaimer, that code has no bound. It waits for [`reclaim`] or [`barrier`].
//!
//! Cost: with `Box<T>`, an addition to a list; per batch ([`Kind::batch_calls`]) at most one grace period,
//! which threads share. Source: Linux's `call_rcu` and `rcu_barrier`; the barrier's two-sided wait is
//! CO-21's.

use std::time::{Duration, Instant};

use crate::counts::COUNTS;
use crate::jobs;
use crate::raw::defer::{BATCH_CALLS, Batch, Deferred, Kind};
use crate::raw::grace::Haste;
use crate::raw::moment::Moment;
use crate::raw::record::{Record, attention};
use crate::registration::with_record;
use crate::run::{
    LIMIT_BYTES, Pending, adopt, first_orphans, has_left_a_batch, orphaned, run, run_all, run_everything,
    take_orphans,
};
use crate::thread::{DOMAIN, in_deferred_call, own_record, postpone};
use crate::wait::{WaitError, may_run, wait_unchecked};

/// Calls that one thread may have pending before it waits, without those of [`Kind::Object`].
const LIMIT_CALLS: u64 = 2048;
/// Calls of [`Kind::Object`] that one thread may have pending before it waits.
const LIMIT_OBJECTS: u64 = 4096;
/// Longest wait of a thread over its bound, per batch.
const LIMIT_WAIT: Duration = Duration::from_millis(50);

/// Cost of a grace period's fence that one batch may cause alone, in ns. A dearer fence is shared by several
/// batches.
const FENCE_NS_PER_BATCH: u64 = 4000;
/// The most batches of one thread that wait for each other: half its bound.
const BATCHES_PER_FENCE: u64 = LIMIT_CALLS / 2 / BATCH_CALLS as u64;
/// Interval at which a thread over its bound checks whether the reclaimer has run its calls.
const BOUND_POLL: Duration = Duration::from_micros(200);

/// Drops `value` once every operation that is open now has ended.
///
/// The drop runs on this thread or on the reclaimer thread. This thread drops pending values in a later call
/// of `retire` outside every operation, in [`reclaim`], or in [`barrier`]. The reclaimer drops the values of
/// a thread that sleeps or turns to other work after some tens of milliseconds. If a thread goes on retiring
/// at a low rate, the reclaimer drops its values after a second at most.
///
/// If `T` needs no drop, only memory is freed, and any thread may free it at any point. Values still pending
/// when the process ends are not dropped; call [`barrier`] first if they must be.
///
/// A caller that retires faster than readers leave is made to wait: at most 50 ms per batch, once more than
/// 2,048 values or 16 MiB are pending. The values of this thread and of ended threads count. A value counts
/// with `size_of::<T>()` bytes, without the memory that it owns elsewhere. If it owns much, call
/// [`retire_with_size`]. In a forked child `value` is leaked. In a signal handler that interrupts this
/// function on the same thread `value` is leaked and counted.
///
/// This function never runs the `Drop` of a value that another thread retired. So without the reclaimer the
/// bound does not limit such values of ended threads: see [`set_reclaimer`](crate::set_reclaimer).
///
/// A box that readers may still be reading must not exist as a `Box`, since a `Box` claims unique ownership.
/// Pass its pointer to [`retire_raw`] instead.
///
/// # Cost
/// An addition to the thread's own list. Lock-free, except for the bound's wait.
/// # Example
/// ```
/// squall::rcu::retire(Box::new([0_u8; 64]));
/// squall::rcu::barrier().unwrap();
/// ```
#[inline]
pub fn retire<T: Send + 'static>(value: Box<T>) {
    // SAFETY: the pointer comes from a box that this function owned.
    unsafe { retire_raw(Box::into_raw(value)) }
}

/// Drops `value` once every operation that is open now has ended, like [`retire`], and counts it with `bytes`
/// bytes.
///
/// # Units
/// `bytes`: all memory that the drop frees, such as the value and its heap. Counted towards the bound of
/// [`retire`] and in [`RcuStats::pending_bytes`](crate::RcuStats::pending_bytes). Above 4 GiB, it counts as
/// 4 GiB.
/// # Example
/// ```
/// let list: Vec<u64> = Vec::with_capacity(1_000_000);
/// let bytes = size_of_val(&list) + list.capacity() * size_of::<u64>();
/// squall::rcu::retire_with_size(Box::new(list), bytes);
/// squall::rcu::barrier().unwrap();
/// ```
#[inline]
pub fn retire_with_size<T: Send + 'static>(value: Box<T>, bytes: usize) {
    // SAFETY: the pointer comes from a box that this function owned.
    unsafe { retire_raw_with_size(Box::into_raw(value), bytes) }
}

/// Drops `*value` once every operation that is open now has ended. Operations may still be reading it.
///
/// Everything else is as in [`retire`].
///
/// # Safety
/// 1. `value` came from [`Box::into_raw`], and no other code will free it.
/// 2. Every path to `value` was cut before, so that no operation that begins after this call can reach it.
/// # Example
/// ```
/// use std::sync::atomic::{AtomicPtr, Ordering};
/// let shared = AtomicPtr::new(Box::into_raw(Box::new(1)));
/// let old = shared.swap(Box::into_raw(Box::new(2)), Ordering::AcqRel);
/// // SAFETY: from `Box::into_raw`, and the exchange cut the only path to it.
/// unsafe { squall::rcu::retire_raw(old) };
/// # squall::rcu::barrier().unwrap();
/// # drop(unsafe { Box::from_raw(shared.into_inner()) });
/// ```
#[inline]
pub unsafe fn retire_raw<T: Send + 'static>(value: *mut T) {
    add(kind_of::<T>(), free::<T>, value.cast(), bytes_of::<T>());
}

/// Drops `*value` like [`retire_raw`], and counts it with `bytes` bytes, as in [`retire_with_size`].
///
/// # Safety
/// The conditions of [`retire_raw`].
/// # Example
/// ```
/// let text = Box::into_raw(Box::new("x".repeat(1_000_000)));
/// // SAFETY: from `Box::into_raw`, and no operation can reach it.
/// unsafe { squall::rcu::retire_raw_with_size(text, size_of::<String>() + 1_000_000) };
/// # squall::rcu::barrier().unwrap();
/// ```
#[inline]
pub unsafe fn retire_raw_with_size<T: Send + 'static>(value: *mut T, bytes: usize) {
    add(kind_of::<T>(), free::<T>, value.cast(), clamp(bytes));
}

/// Not public. Retires a value like [`retire_raw`], for a type with a `Drop` that only frees memory. As for
/// values without a drop, the drop may then run inside an operation.
///
/// # Safety
/// The conditions of [`retire_raw`]. The drop of `T` must only free memory.
#[doc(hidden)]
#[inline]
pub unsafe fn __retire_memory<T: Send + 'static>(value: *mut T) {
    add(Kind::Memory, free::<T>, value.cast(), bytes_of::<T>());
}

/// # Safety
/// Called once, with a box that has no other owner.
unsafe fn free<T>(data: *mut ()) {
    // SAFETY: the only call of a `Deferred`; its data is the box given to `retire_raw`. The grace period that
    // point 2 of that contract relies on has ended, so no reference to the box exists now.
    drop(unsafe { Box::from_raw(data.cast::<T>()) });
}

fn kind_of<T>() -> Kind {
    if std::mem::needs_drop::<T>() { Kind::Code } else { Kind::Memory }
}

fn bytes_of<T>() -> u32 {
    clamp(size_of::<T>())
}

fn clamp(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Calls `f` once every operation that is open now has ended.
///
/// `f` runs outside every operation, on this thread or on the reclaimer thread, at the times at which
/// [`retire`] would drop a value. The bound of [`retire`] applies.
///
/// # Cost
/// The cost of [`retire`], and an allocation.
/// # Example
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// let ran = Arc::new(AtomicBool::new(false));
/// let sets = ran.clone();
/// squall::rcu::defer(move || sets.store(true, Ordering::Relaxed));
/// squall::rcu::barrier().unwrap();
/// assert!(ran.load(Ordering::Relaxed));
/// ```
pub fn defer<F: FnOnce() + Send + 'static>(f: F) {
    unsafe fn call<F: FnOnce()>(data: *mut ()) {
        // SAFETY: the only call of a `Deferred`; its data is the box that `defer` took apart.
        let f = unsafe { Box::from_raw(data.cast::<F>()) };
        f();
    }
    add(Kind::Code, call::<F>, Box::into_raw(Box::new(f)).cast(), bytes_of::<F>());
}

/// Calls `call(data)` once every operation that is open now has ended. Like [`defer`], but without an
/// allocation.
///
/// # Units
/// `bytes`: the memory that `data` holds, counted towards the bound on pending calls.
/// # Safety
/// 1. `call(data)` may be called once, on any thread, outside every operation.
/// 2. If `call` frees memory that operations may be reading, no operation that begins after this call can
///    reach it.
/// # Source
/// liburcu's `call_rcu`.
/// # Example
/// ```
/// unsafe fn free(data: *mut ()) {
///     // SAFETY: called once, with the pointer that the caller took from a box.
///     drop(unsafe { Box::from_raw(data.cast::<u64>()) });
/// }
/// let data = Box::into_raw(Box::new(7_u64));
/// // SAFETY: `free` may run once on any thread, and no operation can reach `data`.
/// unsafe { squall::rcu::defer_raw(free, data.cast(), size_of::<u64>()) };
/// # squall::rcu::barrier().unwrap();
/// ```
#[inline]
pub unsafe fn defer_raw(call: unsafe fn(*mut ()), data: *mut (), bytes: usize) {
    add(Kind::Code, call, data, clamp(bytes));
}

/// Not public. Defers a call like [`defer_raw`], for objects created and destroyed by the million. Such calls
/// have larger batches and a bound of their own ([`Kind::Object`]).
///
/// # Safety
/// The conditions of [`defer_raw`].
#[doc(hidden)]
#[inline(never)]
pub unsafe fn __defer_object(call: unsafe fn(*mut ()), data: *mut (), bytes: u32) {
    add_plain(Kind::Object, call, data, bytes);
}

/// Not public. Calls `call(data, bytes)` once every operation that is open now has ended. The call may run on
/// any thread, even inside an operation ([`Kind::Memory`]).
///
/// # Safety
/// The conditions of [`defer_raw`]. The call must only free memory, and run no users' code.
#[doc(hidden)]
#[inline(never)]
pub unsafe fn __defer_memory(call: unsafe fn(*mut (), u32), data: *mut (), bytes: u32) {
    #[cold]
    #[inline(never)]
    fn slow(call: unsafe fn(*mut (), u32), data: *mut (), bytes: u32) {
        add_slow(Kind::Memory, Deferred::sized(call, data, bytes));
    }
    if !add_fast(Kind::Memory, Deferred::sized(call, data, bytes)) {
        slow(call, data, bytes);
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
    fn slow(kind: Kind, call: unsafe fn(*mut ()), data: *mut (), bytes: u32) {
        add_slow(kind, Deferred::new(call, data, bytes));
    }
    if !add_fast(kind, Deferred::new(call, data, bytes)) {
        slow(kind, call, data, bytes);
    }
}

/// Adds a call if that takes only a write to the list, as it mostly does. Returns whether it was added.
///
/// [`add_slow`] handles the other cases. It is called last, through a function with the caller's own
/// parameters, so that the fast path saves no registers for it.
#[inline(always)]
fn add_fast(kind: Kind, call: Deferred) -> bool {
    own_record().is_some_and(|record| DOMAIN.defer_fast(record, kind, call))
}

fn add_slow(kind: Kind, call: Deferred) {
    if own_record().is_none() && with_record(|_| ()).is_err() {
        return;
    }
    // A thread past its exit hook is registered only within an operation, so it has no list of its own here.
    let Some(record) = own_record() else { return adopt_one(kind, call) };
    let Ok(added) = DOMAIN.defer(record, kind, call) else {
        COUNTS.leaked.fetch_add(1, squall_sys::sync::atomic::Ordering::Relaxed);
        return;
    };
    if added.first {
        crate::reclaimer::announce();
    }
    if added.closed {
        batch_closed(record);
    } else if added.first && exceeds_bound(orphaned()) {
        orphans_over_bound(record);
    }
}

/// Returns whether the calling thread runs no deferred calls and keeps no bound: inside a deferred call, and
/// in the child of a fork.
fn leaves_work_undone() -> bool {
    in_deferred_call() || squall_sys::fork::forked()
}

/// Keeps the bound for a thread that has deferred its first call while the orphans exceed the bound.
#[cold]
fn orphans_over_bound(record: &'static Record) {
    // A thread past its exit hook has a new list in each operation.
    let is_due = !record.is_temporary() || has_left_a_batch();
    if !is_due || leaves_work_undone() {
        return;
    }
    if record.depth() > 0 {
        record.owe(attention::DEFERRED);
    } else if !postpone(record) {
        keep_bound(record, None);
    }
}

#[inline(never)]
fn batch_closed(record: &'static Record) {
    if leaves_work_undone() {
        return;
    }
    let inside = record.depth() > 0;
    if inside {
        record.owe(attention::DEFERRED);
    }
    if inside || postpone(record) {
        if oldest_of(record, &[Kind::Code, Kind::Object]).is_some() {
            // Users' code does not run at the end of an operation or of a callback-free scope.
            record.deferrals.ask_reclaimer();
        }
        run_ripe(record, Kind::Memory);
        return;
    }
    let mut deadline = None;
    if over_bound(record)
        && let Some(oldest) = oldest_of(record, &[Kind::Code, Kind::Object])
    {
        deadline = Some(begin_throttle());
        // On an error the calls stay pending, and `keep_bound` handles them.
        let _ = wait_unchecked(oldest, Haste::Normal, deadline);
    }
    run_all_ripe(record);
    keep_bound(record, deadline);
}

/// Counts a wait for the bound. Returns its deadline.
fn begin_throttle() -> Instant {
    COUNTS.throttled.fetch_add(1, squall_sys::sync::atomic::Ordering::Relaxed);
    Instant::now() + LIMIT_WAIT
}

/// Returns the oldest moment that a closed batch of these kinds waits for.
fn oldest_of(record: &Record, kinds: &[Kind]) -> Option<Moment> {
    kinds.iter().filter_map(|&kind| DOMAIN.oldest(record, kind)).map(|(moment, _)| moment).min()
}

/// Does the work that a thread owes when it leaves an operation in which it closed a batch. It frees memory
/// and keeps the bound, and runs users' code only if the reclaimer may not.
pub(crate) fn after_operation(record: &'static Record) {
    if leaves_work_undone() {
        return;
    }
    if postpone(record) {
        run_ripe(record, Kind::Memory);
        return;
    }
    run_ripe_if_allowed(record);
    keep_bound(record, None);
}

/// Runs the ripe batches of the calling thread, without waiting.
fn run_all_ripe(record: &'static Record) {
    Kind::ALL.into_iter().for_each(|kind| run_ripe(record, kind));
}

/// Runs the ripe batches of the calling thread, without waiting; users' code only if the reclaimer may not
/// run it.
fn run_ripe_if_allowed(record: &'static Record) {
    if crate::reclaimer::allowed() { run_ripe(record, Kind::Memory) } else { run_all_ripe(record) }
}

fn run_ripe(record: &'static Record, kind: Kind) {
    while let Some((oldest, batches)) = DOMAIN.oldest(record, kind) {
        let mut passed = DOMAIN.grace.passed();
        if passed < oldest {
            if batches < batches_per_grace_period(kind) {
                return;
            }
            if !matches!(DOMAIN.grace.poll(&DOMAIN.registry, oldest), Ok(true)) {
                return;
            }
            passed = DOMAIN.grace.passed();
        }
        let Some(batch) = DOMAIN.pop(record, kind, passed, || record.begin_run()) else { return };
        let list = run(batch, || ());
        record.end_run();
        DOMAIN.recycle(record, kind, list);
    }
}

/// Returns the number of closed batches at which a thread asks for a grace period.
fn batches_per_grace_period(kind: Kind) -> usize {
    match kind {
        // If the fence is dear, more calls share it.
        Kind::Memory | Kind::Code => {
            (DOMAIN.grace.fence_ns() / FENCE_NS_PER_BATCH).clamp(1, BATCHES_PER_FENCE) as usize
        }
        // Two batches of objects hold as many calls as `BATCHES_PER_FENCE` batches of the other kinds. While
        // one batch fills, another thread may ask too, so that one grace period serves many threads.
        Kind::Object => 2,
    }
}

/// Returns whether the calling thread's calls and the orphans exceed the bound.
fn over_bound(record: &Record) -> bool {
    let (calls, bytes) = record.deferrals.pending();
    let Pending { calls: orphans, objects, bytes: orphan_bytes } = orphaned();
    let (calls, bytes) = (calls + orphans, bytes + orphan_bytes);
    if calls <= LIMIT_CALLS && bytes <= LIMIT_BYTES {
        return false;
    }
    let objects = objects + DOMAIN.pending_of(record, Kind::Object);
    exceeds_bound(Pending { calls, objects, bytes })
}

fn exceeds_bound(pending: Pending) -> bool {
    let Pending { calls, objects, bytes } = pending;
    // Another thread may take some calls between the loads of the numbers.
    calls.saturating_sub(objects) > LIMIT_CALLS || objects > LIMIT_OBJECTS || bytes > LIMIT_BYTES
}

/// Waits until this thread and the orphans are within the bound again, at most until `deadline`, if the wait
/// has begun already, or for [`LIMIT_WAIT`]. The caller is outside every operation.
#[cold]
fn keep_bound(record: &'static Record, deadline: Option<Instant>) {
    if !over_bound(record) {
        return;
    }
    let deadline = deadline.unwrap_or_else(begin_throttle);
    let oldest = oldest_of(record, &Kind::ALL).into_iter().chain(first_orphans()).min();
    // On an error no memory can be freed now: the calls stay pending and are counted.
    if oldest.is_some_and(|oldest| wait_unchecked(oldest, Haste::Normal, Some(deadline)).is_err()) {
        return;
    }
    run_ripe_if_allowed(record);
    if !crate::reclaimer::allowed() {
        free_orphans(record);
        return;
    }
    // The calls still pending are users' code, for the reclaimer.
    record.deferrals.ask_reclaimer();
    crate::reclaimer::wake();
    while over_bound(record) && Instant::now() < deadline {
        squall_sys::sync::thread::sleep(BOUND_POLL);
    }
}

/// Runs the ripe orphans of [`Kind::Memory`]. The caller may hold a lock that the drops of other threads'
/// values take, so it leaves the others.
fn free_orphans(record: &Record) {
    record.begin_run();
    run_all(take_orphans(&[Kind::Memory], DOMAIN.grace.passed()), || ());
    record.end_run();
}

/// Hands the call of a thread without a list of its own to the reclaimer.
fn adopt_one(kind: Kind, call: Deferred) {
    let bytes = u64::from(call.bytes);
    hand_over(vec![Batch { kind, moment: DOMAIN.grace.mark(), calls: vec![call], bytes }]);
    if may_run().is_ok() && exceeds_bound(orphaned()) && has_left_a_batch() {
        // On an error no memory can be freed now.
        let _ = with_record(|record| keep_bound(record, None));
    }
}

/// Hands batches to the reclaimer, or to the next [`barrier`] or [`reclaim`].
fn hand_over(batches: Vec<Batch>) {
    if adopt(batches) {
        crate::reclaimer::announce();
    }
}

/// Runs the ripe deferred calls of this thread and of ended threads, without waiting. Returns the number of
/// calls run.
///
/// # Errors
/// The errors of [`wait`](crate::wait()), and [`WaitError::Quiet`].
/// # Example
/// ```
/// squall::rcu::retire(Box::new(1));
/// // Runs at most the calls that are ripe now, and does not wait.
/// let ran = squall::rcu::reclaim().unwrap();
/// println!("{ran} deferred calls ran");
/// ```
pub fn reclaim() -> Result<u64, WaitError> {
    may_run()?;
    with_record(reclaim_with).map_err(|_| WaitError::Forked)?
}

fn reclaim_with(record: &'static Record) -> Result<u64, WaitError> {
    let mut batches = DOMAIN.take_own(record, || record.begin_run());
    let own = batches.iter().map(|batch| batch.moment).max();
    let asked = own.max(first_orphans());
    let polled = asked.map(|moment| DOMAIN.grace.poll(&DOMAIN.registry, moment));
    let passed = DOMAIN.grace.passed();
    batches.extend(take_orphans(&Kind::ALL, passed));
    let (ripe, rest): (Vec<_>, Vec<_>) = batches.into_iter().partition(|batch| batch.moment <= passed);
    // Before the run ends, so that a barrier finds each call either in a list or in a run (I2).
    hand_over(rest);
    let calls = run_all(ripe, || ());
    record.end_run();
    polled.transpose().map_err(WaitError::NoFence)?;
    Ok(calls)
}

/// Waits until every call that any thread deferred before this call has run. Waits also for every
/// [quiescent-do](crate::quiescent_do) that has begun until then: for its runs, the drop of its captures, and
/// the calls that these deferred.
///
/// Returns the number of calls run on this thread. Blocks the thread; a task uses
/// [`barrier_async`](crate::barrier_async).
///
/// # Errors
/// The errors of [`wait`](crate::wait()), and [`WaitError::Quiet`].
/// # Cost
/// A heavy fence, a grace period, and the calls themselves. Blocks on readers, and on deferred calls that
/// other threads are running.
/// # Source
/// Linux's `rcu_barrier`.
/// # Example
/// ```
/// use squall::rcu::{WaitError, barrier, pin, retire, stats};
/// retire(Box::new(vec![1, 2, 3]));
/// barrier().unwrap();
/// assert_eq!(stats().pending_calls, 0);
/// assert_eq!(pin(|_| barrier()), Err(WaitError::InOperation));
/// ```
pub fn barrier() -> Result<u64, WaitError> {
    may_run()?;
    if !crate::reclaimer::allowed() {
        jobs::run_jobs(jobs::Workers::Caller, || Some(()));
    }
    let run_calls =
        || with_record(|record| barrier_with(record, || Some(()), || ())).map_err(|_| WaitError::Forked)?;
    let ended = jobs::ended_runs();
    let mut calls = run_calls()?;
    jobs::wait_for_runs()?;
    // Runs that ended meanwhile may have deferred calls, as drops do.
    if jobs::ended_runs() != ended {
        calls += run_calls()?;
    }
    Ok(calls)
}

/// Runs the calls of all threads. They run only while the result of `enter` is kept. Calls `between` after
/// each of them.
pub(crate) fn barrier_with<P>(
    record: &'static Record,
    enter: impl Fn() -> Option<P>,
    between: fn(),
) -> Result<u64, WaitError> {
    let mut calls = 0;
    // Two passes. The first pass may miss a call that was in no list (I2). If the call was being run, it has
    // run when the wait is over. If a thread was moving it to the orphans, the second pass finds it: calls
    // never return from the orphans to a list.
    for _ in 0..2 {
        calls += run_everything(record, |_| true, &enter, between)?;
        DOMAIN.registry.for_each(|other| other.wait_run_end());
    }
    Ok(calls)
}
