//! A thread's list of deferred calls. Its owner adds calls without a locked instruction; other threads can
//! still take them.
//!
//! Problem: threads defer a call every few nanoseconds, and also run the calls. But a thread that goes to
//! sleep with ten of them pending must not keep them forever.
//!
//! Idea: a lock biased to its owner. The owner sets `busy` with a plain store and checks whether a taker has
//! the list. A taker sets `taken`, makes the heavy fence, and waits for the owner's few instructions to end.
//!
//! - I1. The owner touches `queue` only while `busy` is 1 and it saw `taken` 0 after setting it. The taker
//!   touches `queue` only while `taken` is 1 and it saw `busy` 0 after the heavy fence. A lock above this
//!   module lets one taker in at a time.
//! - I2. No user code runs and no thread waits while `busy` or `taken` is set.
//! - I3. A batch's moment was marked after its last call was deferred.
//!
//! Argument for I1: the owner stores `busy`, makes a fence, and loads `taken`. The taker stores `taken`,
//! makes a heavy fence, and loads `busy`. By `asym/I1` at least one of them sees the other's store, and then
//! backs off or waits. The release of the thread that leaves pairs with the acquire of the thread that
//! enters.
//!
//! A signal handler that defers while its thread uses the list finds `busy` already 1 and is refused.
//!
//! Progress: the owner is wait-free, except while a taker is at work; a taker waits while the owner is
//! preempted at its list.
//! Cost: deferring adds 24 bytes to a list.
//! Source: biased locking; Vyukov, "Asymmetric reader-writer mutex".

use squall_machine::asym;
use squall_sys::pause;
use squall_sys::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::hint::spin_loop;
use squall_sys::sync::thread::yield_now;
use std::collections::VecDeque;

use super::moment::Moment;
use super::sites;

/// Calls in a batch of [`Kind::Memory`] or [`Kind::Code`]. The calls of a batch share one moment.
pub(crate) const BATCH_CALLS: usize = if cfg!(any(loom, miri)) { 3 } else { 128 };
/// Calls in a batch of [`Kind::Object`].
pub(crate) const BATCH_OBJECTS: usize = if cfg!(any(loom, miri)) { 3 } else { 512 };
/// Bytes that close a batch early.
pub(crate) const BATCH_BYTES: u64 = 256 * 1024;
/// Longest time, in ms, that a thread may have calls pending without running any of them.
const LEFT_BEHIND_MS: u64 = 1000;
/// Running time, in ns, after which a thread that defers no call is taken to do other work.
const OTHER_WORK_NS: u64 = 1_000_000;
/// Empty lists kept for reuse.
const SPARE_LISTS: usize = 2;

/// A deferred call.
#[derive(Debug)]
pub(crate) struct Deferred {
    call: Call,
    data: *mut (),
    /// The memory that `data` holds, as far as known.
    pub(crate) bytes: u32,
    /// Whether the function takes `bytes` as an argument.
    sized: bool,
}

/// The function to call. [`Deferred`] knows which field is valid; an enum would take more room.
#[derive(Clone, Copy)]
union Call {
    plain: unsafe fn(*mut ()),
    sized: unsafe fn(*mut (), u32),
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

const _: () = assert!(size_of::<Deferred>() <= 3 * size_of::<usize>());

// SAFETY: the code that makes a `Deferred` promises that the call may be made once, from any thread.
unsafe impl Send for Deferred {}

impl Deferred {
    /// A call `call(data)`.
    #[inline(always)]
    pub(crate) fn new(call: unsafe fn(*mut ()), data: *mut (), bytes: u32) -> Deferred {
        Deferred { call: Call { plain: call }, data, bytes, sized: false }
    }

    /// A call `call(data, bytes)`.
    #[inline(always)]
    pub(crate) fn sized(call: unsafe fn(*mut (), u32), data: *mut (), bytes: u32) -> Deferred {
        Deferred { call: Call { sized: call }, data, bytes, sized: true }
    }

    /// Makes the call.
    ///
    /// # Safety
    /// The promise made when the call was deferred. The call runs once, after every operation that could see
    /// its data has ended.
    #[inline(always)]
    pub(crate) unsafe fn run(self) {
        // SAFETY: 1. `sized` says which field was written. 2. the caller keeps the promise under which the
        // call was deferred.
        unsafe {
            if self.sized { (self.call.sized)(self.data, self.bytes) } else { (self.call.plain)(self.data) }
        }
    }
}

/// The things that a deferred call may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Frees memory and runs no users' code, so it may run anywhere.
    Memory = 0,
    /// Runs users' code, so it runs only outside every operation.
    Code = 1,
    /// Runs users' code, like `Code`, for objects that come and go by the million. Larger batches spread the
    /// cost of the cache lines that all threads write over more calls.
    Object = 2,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Kind; 3] = [Kind::Memory, Kind::Code, Kind::Object];

    /// Returns the number of calls in a batch.
    pub(crate) const fn batch_calls(self) -> usize {
        match self {
            Kind::Memory | Kind::Code => BATCH_CALLS,
            Kind::Object => BATCH_OBJECTS,
        }
    }
}

/// Calls that may be made once their moment has passed.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) kind: Kind,
    pub(crate) moment: Moment,
    pub(crate) calls: Vec<Deferred>,
    pub(crate) bytes: u64,
}

/// The calls of one kind: the open list, and the closed batches in order.
#[derive(Debug)]
pub(crate) struct Line {
    open: Vec<Deferred>,
    open_bytes: u64,
    closed: VecDeque<Batch>,
    /// Empty lists, with room for a batch.
    spare: Vec<Vec<Deferred>>,
}

/// All deferred calls of a thread.
#[derive(Debug)]
pub(crate) struct Queue {
    lines: [Line; Kind::ALL.len()],
}

/// The biased lock and the queue that it guards.
#[derive(Debug)]
pub(crate) struct Deferrals {
    // Written by the owner.
    busy: AtomicU32,
    // Written by takers.
    taken: AtomicU32,
    // Written by the thread that holds the queue (I1), read by any thread.
    calls: AtomicU64,
    bytes: AtomicU64,
    // Memory of the lists themselves, in bytes. Written and read like `calls`.
    list_bytes: AtomicU64,
    // Written by the owner: batches that it took to run.
    taken_by_owner: AtomicU64,
    // Written by the owner, cleared by the reclaimer: the owner cannot run all of these calls itself.
    asked: AtomicBool,
    // Written by the reclaimer at its last look: batches taken, calls pending, and the time since which the
    // owner has run no pending call, in the reclaimer's ms.
    taken_seen: AtomicU64,
    calls_seen: AtomicU64,
    since_ms: AtomicU64,
    // Written by the reclaimer at its last look: the owner's running time, in ns.
    run_seen: AtomicU64,
    queue: UnsafeCell<Queue>,
}

// SAFETY: one thread at a time touches `queue` (I1), and its contents are `Send`.
unsafe impl Sync for Deferrals {}

/// The list cannot be locked. The caller is a signal handler that interrupted its own thread at the list. Or
/// it is the child of a fork, made while another thread had the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reentrant;

/// The scheduling state of the thread that owns a list.
pub(crate) trait Owner {
    /// Returns how long it has run so far, in ns.
    fn time_run(&self) -> Option<u64>;
    /// Returns whether it would not run even on a free processor.
    fn is_asleep(&self) -> bool;
}

impl Line {
    const fn new() -> Line {
        Line { open: Vec::new(), open_bytes: 0, closed: VecDeque::new(), spare: Vec::new() }
    }

    fn close(&mut self, kind: Kind, moment: Moment) {
        if !self.open.is_empty() {
            let calls = std::mem::replace(&mut self.open, self.spare.pop().unwrap_or_default());
            let bytes = std::mem::take(&mut self.open_bytes);
            self.closed.push_back(Batch { kind, moment, calls, bytes });
        }
    }

    /// Makes room for a batch.
    #[cold]
    fn reserve(&mut self, kind: Kind) {
        // Exactly the room that the batch needs, unless there is more already.
        self.open.reserve_exact(kind.batch_calls() - self.open.len());
    }
}

impl Queue {
    const fn new() -> Queue {
        Queue { lines: [const { Line::new() }; Kind::ALL.len()] }
    }

    /// Adds a call. If the batch is full, closes all open lists with the moment that `mark` returns then
    /// (I3). Returns whether it did.
    #[inline(always)]
    pub(crate) fn push(&mut self, kind: Kind, call: Deferred, mark: impl FnOnce() -> Moment) -> bool {
        let line = &mut self.lines[kind as usize];
        line.open_bytes += u64::from(call.bytes);
        if line.open.len() == line.open.capacity() {
            line.reserve(kind);
        }
        line.open.push(call);
        let full = line.open.len() >= kind.batch_calls() || line.open_bytes >= BATCH_BYTES;
        if full {
            self.close_all(mark);
        }
        full
    }

    /// Adds a call if there is room for it and it does not fill the batch. Returns whether it was added.
    #[inline(always)]
    pub(crate) fn push_fast(&mut self, kind: Kind, call: Deferred) -> bool {
        let line = &mut self.lines[kind as usize];
        let bytes = line.open_bytes + u64::from(call.bytes);
        let calls = line.open.len();
        let within = calls < line.open.capacity() && calls + 1 < kind.batch_calls() && bytes < BATCH_BYTES;
        if within {
            line.open_bytes = bytes;
            line.open.push(call);
        }
        within
    }

    /// Closes the open lists of all kinds, with one moment. So a kind that a thread seldom defers does not
    /// wait for its own batch to fill while the thread reclaims another kind.
    #[cold]
    #[inline(never)]
    fn close_all(&mut self, mark: impl FnOnce() -> Moment) {
        let moment = mark();
        Kind::ALL.into_iter().for_each(|kind| self.lines[kind as usize].close(kind, moment));
    }

    /// Returns the moment of the oldest closed batch of this kind, and the number of closed batches.
    pub(crate) fn oldest(&self, kind: Kind) -> Option<(Moment, usize)> {
        let closed = &self.lines[kind as usize].closed;
        closed.front().map(|batch| (batch.moment, closed.len()))
    }

    /// Takes the oldest closed batch of this kind if its moment is at most `passed`.
    pub(crate) fn pop(&mut self, kind: Kind, passed: Moment) -> Option<Batch> {
        let closed = &mut self.lines[kind as usize].closed;
        if closed.front()?.moment > passed {
            return None;
        }
        closed.pop_front()
    }

    /// Closes the open lists, each with the moment that `mark` returns. Returns the latest moment that a
    /// batch waits for.
    pub(crate) fn close(&mut self, mark: impl Fn() -> Moment) -> Option<Moment> {
        for kind in Kind::ALL {
            let line = &mut self.lines[kind as usize];
            if !line.open.is_empty() {
                line.close(kind, mark());
            }
        }
        self.lines.iter().filter_map(|line| line.closed.back()).map(|batch| batch.moment).max()
    }

    /// Closes the open lists and takes every batch.
    pub(crate) fn take_all(&mut self, mark: impl Fn() -> Moment) -> Vec<Batch> {
        let mut all = Vec::new();
        self.close(mark);
        for line in &mut self.lines {
            all.extend(line.closed.drain(..));
            line.spare = Vec::new();
        }
        all
    }

    /// Frees the room of empty lists, for a thread that has stopped using them.
    pub(crate) fn trim(&mut self) {
        for line in &mut self.lines {
            line.spare = Vec::new();
            if line.open.is_empty() {
                line.open = Vec::new();
            }
            if line.closed.is_empty() {
                line.closed = VecDeque::new();
            }
        }
    }

    /// Returns the memory of the lists themselves, in bytes.
    fn list_bytes(&self) -> u64 {
        let (mut calls, mut batches) = (0, 0);
        for line in &self.lines {
            calls += line.spare.iter().map(Vec::capacity).sum::<usize>();
            calls +=
                line.open.capacity() + line.closed.iter().map(|batch| batch.calls.capacity()).sum::<usize>();
            batches += line.closed.capacity();
        }
        (calls * size_of::<Deferred>() + batches * size_of::<Batch>()) as u64
    }

    /// Keeps an emptied list for reuse.
    pub(crate) fn recycle(&mut self, kind: Kind, mut list: Vec<Deferred>) {
        list.clear();
        let spare = &mut self.lines[kind as usize].spare;
        if spare.len() < SPARE_LISTS && list.capacity() == kind.batch_calls() {
            spare.push(list);
        }
    }

    /// Returns the number of calls of this kind.
    pub(crate) fn calls_of(&self, kind: Kind) -> u64 {
        let line = &self.lines[kind as usize];
        (line.open.len() + line.closed.iter().map(|batch| batch.calls.len()).sum::<usize>()) as u64
    }

    fn totals(&self) -> (u64, u64) {
        let bytes = |line: &Line| line.open_bytes + line.closed.iter().map(|b| b.bytes).sum::<u64>();
        let calls = Kind::ALL.into_iter().map(|kind| self.calls_of(kind)).sum();
        (calls, self.lines.iter().map(bytes).sum())
    }
}

impl Deferrals {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Deferrals {
        Deferrals {
            busy: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            list_bytes: AtomicU64::new(0),
            taken_by_owner: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            taken_seen: AtomicU64::new(0),
            calls_seen: AtomicU64::new(0),
            since_ms: AtomicU64::new(0),
            run_seen: AtomicU64::new(0),
            queue: UnsafeCell::new(Queue::new()),
        }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Deferrals {
        Deferrals {
            busy: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            list_bytes: AtomicU64::new(0),
            taken_by_owner: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            taken_seen: AtomicU64::new(0),
            calls_seen: AtomicU64::new(0),
            since_ms: AtomicU64::new(0),
            run_seen: AtomicU64::new(0),
            queue: UnsafeCell::new(Queue::new()),
        }
    }

    /// Calls `f` with the locked list, for the owner of the record. `fenced` says whether a full fence is
    /// needed (`asym/I2`).
    #[inline(always)]
    pub(crate) fn as_owner<R>(&self, fenced: bool, f: impl FnOnce(&mut Queue) -> R) -> Result<R, Reentrant> {
        if self.busy.load(Ordering::Relaxed) != 0 {
            return Err(Reentrant);
        }
        if !self.owner_enter(fenced) {
            return Err(Reentrant);
        }
        // SAFETY: by I1 the owner holds the queue. `f` cannot call this function again: `busy` is 1, so it
        // would be refused.
        let result = self.queue.with_mut(|queue| f(unsafe { &mut *queue }));
        // Release: pairs with the acquire in `take`.
        self.busy.store(0, sites::OWNER_RELEASE.order(Ordering::Release));
        Ok(result)
    }

    /// Calls `f` with the locked list if that takes no waiting; otherwise returns `None` without calling `f`.
    /// Short enough to inline, so that a caller can move its slow path to another function without saving
    /// registers for it.
    #[inline(always)]
    pub(crate) fn try_as_owner<R>(&self, fenced: bool, f: impl FnOnce(&mut Queue) -> R) -> Option<R> {
        if self.busy.load(Ordering::Relaxed) != 0 {
            return None;
        }
        // SAFETY: by I1 the owner holds the queue: `owner_try_enter` saw `taken` 0. `f` cannot enter again,
        // since `busy` is 1.
        let result =
            self.owner_try_enter(fenced).then(|| self.queue.with_mut(|queue| f(unsafe { &mut *queue })));
        // Release: pairs with the acquire in `take`.
        self.busy.store(0, sites::OWNER_RELEASE.order(Ordering::Release));
        result
    }

    #[inline(always)]
    fn owner_enter(&self, fenced: bool) -> bool {
        self.owner_try_enter(fenced) || self.owner_enter_slow(fenced)
    }

    #[inline(always)]
    fn owner_try_enter(&self, fenced: bool) -> bool {
        self.busy.store(1, Ordering::Relaxed);
        if cfg!(test) {
            pause::point("busy");
        }
        if !sites::OWNER_FENCE.is_weak() {
            // Pairs with the heavy fence between `begin_take` and `take` (argument for I1).
            asym::light_or_full(fenced);
        }
        // Acquire: pairs with the release in `end_take`.
        self.taken.load(Ordering::Acquire) == 0
    }

    /// Waits for the taker. Returns false in the child of a fork, where the taker does not exist.
    #[cold]
    #[inline(never)]
    fn owner_enter_slow(&self, fenced: bool) -> bool {
        loop {
            // Release: pairs with the acquire in `take`.
            self.busy.store(0, Ordering::Release);
            while self.taken.load(Ordering::Relaxed) != 0 {
                if squall_sys::fork::forked() {
                    return false;
                }
                yield_now();
            }
            if self.owner_try_enter(fenced) {
                return true;
            }
        }
    }

    /// First half of taking: announces the taker. The caller is the only taker. It then makes the heavy
    /// fence, calls [`Deferrals::take`] if the fence succeeded, and calls [`Deferrals::end_take`] in any
    /// case.
    pub(crate) fn begin_take(&self) {
        // Relaxed: the heavy fence that follows orders it; that fence pairs with the one in
        // `owner_try_enter`.
        self.taken.store(1, Ordering::Relaxed);
    }

    /// Calls `f` with the locked list, for a taker between its heavy fence and [`Deferrals::end_take`].
    pub(crate) fn take<R>(&self, f: impl FnOnce(&mut Queue) -> R) -> R {
        let mut spins = 0_u32;
        // Acquire: pairs with the release in `as_owner`.
        while self.busy.load(Ordering::Acquire) != 0 {
            spins += 1;
            // The owner is within a few instructions, or was preempted there.
            if spins.is_multiple_of(64) || cfg!(loom) { yield_now() } else { spin_loop() }
        }
        // SAFETY: by I1 the taker holds the queue: `taken` is 1, and `busy` was 0 after the heavy fence.
        self.queue.with_mut(|queue| f(unsafe { &mut *queue }))
    }

    /// Hands the list back to the owner.
    pub(crate) fn end_take(&self) {
        // Release: pairs with the acquire in `owner_try_enter`.
        self.taken.store(0, sites::TAKE_RELEASE.order(Ordering::Release));
    }

    /// Updates the counters from the queue. For the thread that holds the queue.
    pub(crate) fn update_counts(&self, queue: &Queue) {
        let (calls, bytes) = queue.totals();
        self.calls.store(calls, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.list_bytes.store(queue.list_bytes(), Ordering::Relaxed);
    }

    /// Counts one more call, for the owner that holds its list. Returns the new number of calls.
    #[inline(always)]
    pub(crate) fn count_push(&self, bytes: u32) -> u64 {
        let calls = self.calls.load(Ordering::Relaxed) + 1;
        self.calls.store(calls, Ordering::Relaxed);
        self.bytes.store(self.bytes.load(Ordering::Relaxed) + u64::from(bytes), Ordering::Relaxed);
        calls
    }

    /// Returns whether calls are pending, for the owner.
    #[inline(always)]
    pub(crate) fn has_pending(&self) -> bool {
        self.calls.load(Ordering::Relaxed) != 0
    }

    /// Returns the memory of the lists, in bytes, as of the last time that a batch was taken or the lists
    /// were visited.
    pub(crate) fn list_bytes(&self) -> u64 {
        self.list_bytes.load(Ordering::Relaxed)
    }

    /// Returns the calls and bytes pending here.
    pub(crate) fn pending(&self) -> (u64, u64) {
        (self.calls.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Counts a batch that the owner took to run.
    pub(crate) fn count_taken(&self) {
        self.taken_by_owner.store(self.taken_by_owner.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Asks for the reclaimer: the owner cannot run all of the pending calls itself.
    pub(crate) fn ask_reclaimer(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Returns whether the owner has left its pending calls behind, as judged by the reclaimer at `now_ms`.
    ///
    /// It has in one of three cases. (a) It asked for the reclaimer. (b) It has run no call for
    /// [`LEFT_BEHIND_MS`]. (c) It has neither added nor run a call since the last check, although it had the
    /// time ([`had_time`](Deferrals::had_time)) or is asleep.
    pub(crate) fn is_left_behind(&self, now_ms: u64, owner: &impl Owner) -> bool {
        let (taken, calls) =
            (self.taken_by_owner.load(Ordering::Relaxed), self.calls.load(Ordering::Relaxed));
        let ran = self.taken_seen.load(Ordering::Relaxed) != taken;
        let before = self.calls_seen.load(Ordering::Relaxed);
        if ran {
            self.taken_seen.store(taken, Ordering::Relaxed);
        }
        if before != calls {
            self.calls_seen.store(calls, Ordering::Relaxed);
        }
        if ran || (before == 0 && calls > 0) {
            self.since_ms.store(now_ms, Ordering::Relaxed);
        }
        let asked = self.asked.load(Ordering::Relaxed);
        if asked {
            self.asked.store(false, Ordering::Relaxed);
        }
        let idle_ms = now_ms.saturating_sub(self.since_ms.load(Ordering::Relaxed));
        let left_behind = asked
            || idle_ms >= LEFT_BEHIND_MS
            || (!ran && before == calls && (self.had_time(owner) || owner.is_asleep()));
        if left_behind {
            // The reclaimer takes the calls now, so the time starts again.
            self.since_ms.store(now_ms, Ordering::Relaxed);
        }
        left_behind
    }

    /// Notes that the list is empty, for the reclaimer.
    pub(crate) fn note_empty(&self) {
        if self.calls_seen.load(Ordering::Relaxed) != 0 {
            self.calls_seen.store(0, Ordering::Relaxed);
        }
    }

    /// Returns whether the owner has run for [`OTHER_WORK_NS`] since the last call of this function.
    fn had_time(&self, owner: &impl Owner) -> bool {
        let Some(run) = owner.time_run() else { return false };
        let before = self.run_seen.load(Ordering::Relaxed);
        self.run_seen.store(run, Ordering::Relaxed);
        before != 0 && run.saturating_sub(before) >= OTHER_WORK_NS
    }
}
