//! A thread's list of deferred calls: its owner adds without a locked instruction, and others may still take it.
//!
//! Problem: a call is deferred every few nanoseconds by threads that also run them; but a thread that goes to sleep
//! with ten of them pending must not keep them for ever.
//!
//! Idea: a lock biased to its owner. The owner says "I am at it" by a plain store and looks whether someone takes the
//! list; a taker says "I take it", makes the heavy fence, and waits for the owner's few instructions to end.
//!
//! - I1. `queue` is touched by the owner while `busy` is 1 and `taken` was seen 0 after that, or by the taker while
//!   `taken` is 1 and `busy` was seen 0 after the heavy fence. Takers exclude each other by a lock above this module.
//! - I2. No user code runs and nothing waits while `busy` or `taken` is set.
//! - I3. A batch's moment was marked after its last call was deferred.
//!
//! Argument for I1: owner: store `busy`, fence, load `taken`; taker: store `taken`, heavy fence, load `busy`. By
//! `asym/I1` at least one of them sees the other's store, and each then backs off or waits. The release of the one that
//! leaves pairs with the acquire of the one that comes.
//!
//! A signal handler that defers while its thread is at the list finds `busy` already 1 and is refused.
//!
//! Progress: the owner is wait-free but for a taker at work; a taker waits while the owner is preempted at its list.
//! Cost: deferring adds 24 bytes to a list. Source: biased locking; Vyukov, "Asymmetric reader-writer mutex".

use squall_machine::asym;
use squall_sys::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::hint::spin_loop;
use squall_sys::sync::thread::yield_now;
use std::collections::VecDeque;

use super::grace::Moment;
use super::sites;

/// Calls in a batch, which share one moment, of [`Kind::Memory`] and [`Kind::Code`].
pub(crate) const BATCH_CALLS: usize = if cfg!(any(loom, miri)) { 3 } else { 128 };
/// The same, of [`Kind::Object`].
pub(crate) const BATCH_OBJECTS: usize = if cfg!(any(loom, miri)) { 3 } else { 512 };
/// Bytes that close a batch early.
pub(crate) const BATCH_BYTES: usize = 256 * 1024;
/// For how long, in ms, a thread may have calls pending and run none of them.
const LIE_MS: u64 = 1000;
/// How long a thread runs, in ns, that does not defer anything meanwhile because it does something else.
const ELSEWHERE_NS: u64 = 1_000_000;
/// Empty lists kept for reuse.
const SPARE_LISTS: usize = 2;

/// A deferred call.
#[derive(Debug)]
pub(crate) struct Deferred {
    call: Call,
    data: *mut (),
    /// What it holds on to, as far as known.
    pub(crate) bytes: u32,
    /// Whether the call is told that.
    sized: bool,
}

/// What is called: which of both a [`Deferred`] knows, in less room than an enum would take.
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

// SAFETY: whoever makes one promises that the call may be made, once, from any thread.
unsafe impl Send for Deferred {}

impl Deferred {
    /// `call(data)`.
    #[inline(always)]
    pub(crate) fn new(call: unsafe fn(*mut ()), data: *mut (), bytes: u32) -> Deferred {
        Deferred { call: Call { plain: call }, data, bytes, sized: false }
    }

    /// `call(data, bytes)`.
    #[inline(always)]
    pub(crate) fn sized(call: unsafe fn(*mut (), u32), data: *mut (), bytes: u32) -> Deferred {
        Deferred { call: Call { sized: call }, data, bytes, sized: true }
    }

    /// Makes the call.
    ///
    /// # Safety
    /// What whoever made it was promised: it is made once, when nobody can see its data any more.
    #[inline(always)]
    pub(crate) unsafe fn run(self) {
        // SAFETY: 1. the field that was written, as `sized` says. 2. the caller.
        unsafe {
            if self.sized { (self.call.sized)(self.data, self.bytes) } else { (self.call.plain)(self.data) }
        }
    }
}

/// What running a deferred call may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Gives memory back and runs nobody's code, so it can be done anywhere.
    Memory = 0,
    /// Runs code of the user's, so it is done only outside every operation.
    Code = 1,
    /// The same, for what comes and goes by the million: in larger batches, so that fewer looks at lines that all threads
    /// write fall on each.
    Object = 2,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Kind; 3] = [Kind::Memory, Kind::Code, Kind::Object];

    /// Calls in a batch.
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
    pub(crate) moment: Moment,
    pub(crate) calls: Vec<Deferred>,
    pub(crate) bytes: usize,
}

/// One kind of calls, open list and closed batches in order.
#[derive(Debug)]
pub(crate) struct Line {
    open: Vec<Deferred>,
    open_bytes: usize,
    closed: VecDeque<Batch>,
    /// Empty lists, with room for a batch.
    spare: Vec<Vec<Deferred>>,
}

/// All that a thread has deferred.
#[derive(Debug)]
pub(crate) struct Queue {
    lines: [Line; Kind::ALL.len()],
}

/// The biased lock and what it guards.
#[derive(Debug)]
pub(crate) struct Deferrals {
    // Written by the owner.
    busy: AtomicU32,
    // Written by takers.
    taken: AtomicU32,
    // Written by whoever is at the queue (I1), read by anyone.
    calls: AtomicU64,
    bytes: AtomicU64,
    // As above: bytes of room in the lists themselves.
    room: AtomicU64,
    // Written by the owner: batches it took to run.
    taken_by_owner: AtomicU64,
    // Written by the owner, cleared by the reclaimer: the owner cannot run all of this itself.
    wanted: AtomicBool,
    // Written by the reclaimer: batches taken and calls pending when it last looked, and since when it has seen the owner
    // run none of what was pending, in its own ms.
    taken_seen: AtomicU64,
    calls_seen: AtomicU64,
    since_ms: AtomicU64,
    // The same: how long the owner had run then, in ns.
    run_seen: AtomicU64,
    queue: UnsafeCell<Queue>,
}

// SAFETY: `queue` is touched by one thread at a time (I1), and what it holds is `Send`.
unsafe impl Sync for Deferrals {}

/// The caller interrupted itself at its own list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reentrant;

/// What is known of the thread that owns a list.
pub(crate) trait Owner {
    /// For how long it has run so far, in ns.
    fn time_run(&self) -> Option<u64>;
    /// Whether it would not run even if there were a processor for it.
    fn is_asleep(&self) -> bool;
}

impl Line {
    const fn new() -> Line {
        Line { open: Vec::new(), open_bytes: 0, closed: VecDeque::new(), spare: Vec::new() }
    }

    fn close(&mut self, moment: Moment) {
        if !self.open.is_empty() {
            let calls = std::mem::replace(&mut self.open, self.spare.pop().unwrap_or_default());
            let bytes = std::mem::take(&mut self.open_bytes);
            self.closed.push_back(Batch { moment, calls, bytes });
        }
    }

    /// Room for a batch.
    #[cold]
    fn reserve(&mut self, kind: Kind) {
        // All that will be needed, unless there is more room already.
        self.open.reserve_exact(kind.batch_calls() - self.open.len());
    }
}

impl Queue {
    const fn new() -> Queue {
        Queue { lines: [const { Line::new() }; Kind::ALL.len()] }
    }

    /// Adds a call; closes the batch when it is full, with the moment that `mark` gives then (I3). Returns whether.
    #[inline(always)]
    pub(crate) fn push(&mut self, kind: Kind, call: Deferred, mark: impl FnOnce() -> Moment) -> bool {
        let line = &mut self.lines[kind as usize];
        line.open_bytes += call.bytes as usize;
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

    /// Adds a call if there is room for it and the batch does not become full by it. Returns whether.
    #[inline(always)]
    pub(crate) fn push_within(&mut self, kind: Kind, call: Deferred) -> bool {
        let line = &mut self.lines[kind as usize];
        let bytes = line.open_bytes + call.bytes as usize;
        let calls = line.open.len();
        let within = calls < line.open.capacity() && calls + 1 < kind.batch_calls() && bytes < BATCH_BYTES;
        if within {
            line.open_bytes = bytes;
            line.open.push(call);
        }
        within
    }

    /// Closes what is open of every kind, with one moment: what a thread defers seldom is not to wait for its own kind to
    /// fill a batch while the thread reclaims another.
    #[cold]
    #[inline(never)]
    fn close_all(&mut self, mark: impl FnOnce() -> Moment) {
        let moment = mark();
        self.lines.iter_mut().for_each(|line| line.close(moment));
    }

    /// The moment of the oldest closed batch of this kind, and how many closed ones there are.
    pub(crate) fn oldest(&self, kind: Kind) -> Option<(Moment, usize)> {
        let closed = &self.lines[kind as usize].closed;
        closed.front().map(|batch| (batch.moment, closed.len()))
    }

    /// Takes the oldest closed batch of this kind if its moment is at most `passed`.
    pub(crate) fn pop(&mut self, kind: Kind, passed: Moment) -> Option<Batch> {
        let closed = &mut self.lines[kind as usize].closed;
        closed.pop_front_if(|batch| batch.moment <= passed)
    }

    /// Closes what is open, with the moment that `mark` gives. Returns the latest moment that anything waits for.
    pub(crate) fn close(&mut self, mark: impl Fn() -> Moment) -> Option<Moment> {
        for line in &mut self.lines {
            if !line.open.is_empty() {
                line.close(mark());
            }
        }
        self.lines.iter().filter_map(|line| line.closed.back()).map(|batch| batch.moment).max()
    }

    /// Closes what is open and takes everything.
    pub(crate) fn take_all(&mut self, mark: impl Fn() -> Moment) -> Vec<Batch> {
        let mut all = Vec::new();
        self.close(mark);
        for line in &mut self.lines {
            all.extend(line.closed.drain(..));
            line.spare = Vec::new();
        }
        all
    }

    /// Gives back the room of empty lists, for a thread that has let them lie.
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

    /// Bytes of room in the lists themselves.
    fn room(&self) -> u64 {
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

    /// Calls of this kind.
    pub(crate) fn calls_of(&self, kind: Kind) -> u64 {
        let line = &self.lines[kind as usize];
        (line.open.len() + line.closed.iter().map(|batch| batch.calls.len()).sum::<usize>()) as u64
    }

    fn totals(&self) -> (u64, u64) {
        let bytes = |line: &Line| line.open_bytes + line.closed.iter().map(|b| b.bytes).sum::<usize>();
        let calls = Kind::ALL.into_iter().map(|kind| self.calls_of(kind)).sum();
        let bytes = self.lines.iter().map(bytes).sum::<usize>();
        (calls, bytes as u64)
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
            room: AtomicU64::new(0),
            taken_by_owner: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
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
            room: AtomicU64::new(0),
            taken_by_owner: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            taken_seen: AtomicU64::new(0),
            calls_seen: AtomicU64::new(0),
            since_ms: AtomicU64::new(0),
            run_seen: AtomicU64::new(0),
            queue: UnsafeCell::new(Queue::new()),
        }
    }

    /// Calls `f` at the list, for the owner of the record. `fenced` as of `asym/I2`.
    #[inline(always)]
    pub(crate) fn as_owner<R>(&self, fenced: bool, f: impl FnOnce(&mut Queue) -> R) -> Result<R, Reentrant> {
        if self.busy.load(Ordering::Relaxed) != 0 {
            return Err(Reentrant);
        }
        self.owner_enter(fenced);
        // SAFETY: I1, and `f` cannot come back here: `busy` is 1, so it would be refused.
        let result = self.queue.with_mut(|queue| f(unsafe { &mut *queue }));
        // Release: pairs with the acquire in `take`.
        self.busy.store(0, sites::OWNER_RELEASE.order(Ordering::Release));
        Ok(result)
    }

    /// The same where that takes no waiting; else `None`, and `f` was not called. So short that what a caller does otherwise
    /// can be a function of its own, for which nothing has to be kept.
    #[inline(always)]
    pub(crate) fn as_owner_at_once<R>(&self, fenced: bool, f: impl FnOnce(&mut Queue) -> R) -> Option<R> {
        if self.busy.load(Ordering::Relaxed) != 0 {
            return None;
        }
        // SAFETY: I1 as above; nobody took it.
        let result = self.owner_tries(fenced).then(|| self.queue.with_mut(|queue| f(unsafe { &mut *queue })));
        // Release: pairs with the acquire in `take`.
        self.busy.store(0, sites::OWNER_RELEASE.order(Ordering::Release));
        result
    }

    #[inline(always)]
    fn owner_enter(&self, fenced: bool) {
        if !self.owner_tries(fenced) {
            self.owner_waits(fenced);
        }
    }

    #[inline(always)]
    fn owner_tries(&self, fenced: bool) -> bool {
        self.busy.store(1, Ordering::Relaxed);
        if !sites::OWNER_FENCE.is_weak() {
            // Partner: the heavy fence between `begin_take` and `take` (argument for I1).
            asym::light_or_full(fenced);
        }
        // Acquire: pairs with the release in `end_take`.
        self.taken.load(Ordering::Acquire) == 0
    }

    #[cold]
    #[inline(never)]
    fn owner_waits(&self, fenced: bool) {
        loop {
            // Release: pairs with the acquire in `take`.
            self.busy.store(0, Ordering::Release);
            while self.taken.load(Ordering::Relaxed) != 0 {
                yield_now();
            }
            if self.owner_tries(fenced) {
                return;
            }
        }
    }

    /// First half of taking: says so. The caller, the only taker there is, then makes the heavy fence, calls
    /// [`Deferrals::take`] if that worked, and [`Deferrals::end_take`] in any case.
    pub(crate) fn begin_take(&self) {
        // Relaxed: the heavy fence that follows orders it; partner: the fence in `owner_enter`.
        self.taken.store(1, Ordering::Relaxed);
    }

    /// Calls `f` at the list, for a taker between its heavy fence and [`Deferrals::end_take`].
    pub(crate) fn take<R>(&self, f: impl FnOnce(&mut Queue) -> R) -> R {
        let mut spins = 0_u32;
        // Acquire: pairs with the release in `as_owner`.
        while self.busy.load(Ordering::Acquire) != 0 {
            spins += 1;
            // The owner is within a few instructions, or was preempted there.
            if spins.is_multiple_of(64) || cfg!(loom) { yield_now() } else { spin_loop() }
        }
        // SAFETY: I1.
        self.queue.with_mut(|queue| f(unsafe { &mut *queue }))
    }

    /// Lets the owner go on.
    pub(crate) fn end_take(&self) {
        // Release: pairs with the acquire in `owner_enter`.
        self.taken.store(0, sites::TAKE_RELEASE.order(Ordering::Release));
    }

    /// Notes what the queue holds now; for whoever is at it.
    pub(crate) fn note(&self, queue: &Queue) {
        let (calls, bytes) = queue.totals();
        self.calls.store(calls, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.room.store(queue.room(), Ordering::Relaxed);
    }

    /// Notes one more call, for the owner at its list. Returns how many there are now.
    #[inline(always)]
    pub(crate) fn note_push(&self, bytes: u32) -> u64 {
        let calls = self.calls.load(Ordering::Relaxed) + 1;
        self.calls.store(calls, Ordering::Relaxed);
        self.bytes.store(self.bytes.load(Ordering::Relaxed) + u64::from(bytes), Ordering::Relaxed);
        calls
    }

    /// Whether any are pending, for the owner.
    #[inline(always)]
    pub(crate) fn has_some(&self) -> bool {
        self.calls.load(Ordering::Relaxed) != 0
    }

    /// Bytes of room in the lists, as of the last time a batch was taken, or all of it was seen.
    pub(crate) fn room(&self) -> u64 {
        self.room.load(Ordering::Relaxed)
    }

    /// Calls and bytes pending here.
    pub(crate) fn pending(&self) -> (u64, u64) {
        (self.calls.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Notes that the owner took a batch to run.
    pub(crate) fn note_taken(&self) {
        self.taken_by_owner.store(self.taken_by_owner.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The owner asks for the reclaimer: it cannot run all of this itself.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Whether the owner lets what is pending lie, for the one who asks: the reclaimer, at `now_ms`. It does if it said so,
    /// if it has run nothing of it for [`LIE_MS`], or if it has neither added nor run anything since the last time though it
    /// had the time ([`had_time`](Deferrals::had_time)), or sleeps.
    pub(crate) fn lies(&self, now_ms: u64, owner: &impl Owner) -> bool {
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
        let wanted = self.wanted.load(Ordering::Relaxed);
        if wanted {
            self.wanted.store(false, Ordering::Relaxed);
        }
        let lain = now_ms.saturating_sub(self.since_ms.load(Ordering::Relaxed));
        let lies = wanted
            || lain >= LIE_MS
            || (!ran && before == calls && (self.had_time(owner) || owner.is_asleep()));
        if lies {
            // It is relieved of it, and has as long again.
            self.since_ms.store(now_ms, Ordering::Relaxed);
        }
        lies
    }

    /// Notes that there is nothing, for the one who asks.
    pub(crate) fn note_empty(&self) {
        if self.calls_seen.load(Ordering::Relaxed) != 0 {
            self.calls_seen.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the owner has run for [`ELSEWHERE_NS`] since this was last asked.
    fn had_time(&self, owner: &impl Owner) -> bool {
        let Some(run) = owner.time_run() else { return false };
        let before = self.run_seen.load(Ordering::Relaxed);
        self.run_seen.store(run, Ordering::Relaxed);
        before != 0 && run.saturating_sub(before) >= ELSEWHERE_NS
    }
}
