//! The emulated threads: what each has, when it counts, and when its window is open.
//!
//! Idea: each emulated thread is a thread of the emulator, so that its table needs no lock: the callbacks of an access find
//! it by the processor's index.
//!
//! - I1. `SLOTS[i].own` is null, or the state of the one thread that runs as processor i. That thread alone makes and changes
//!   it; after the callback of its end nobody does.
//! - I2. Another thread touches of a slot no more than `mode` and `marked`, which are atomics and no part of the state; but
//!   of a thread that is `PARKED` in a system call, the table, between setting and clearing `TAKEN`, under the lock.
//! - I3. A thread that is `PARKED` touches nothing of its state until it has cleared that, which it cannot while it is `TAKEN`.
//! - I4. Once a window was opened, nothing counts but in windows: what a table held before is thrown away by its thread, or
//!   told by its head's `window`.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use crate::api::Api;
use crate::format::{LINE_BITS, SITE_BITS, head, insn, window};
use crate::frames::Frames;
use crate::plugin::{Shared, thread_id, with};
use crate::run;
use crate::table::{Access, Table};

/// Threads at once; the emulator uses the numbers of those that ended again. Accesses of more are not seen.
const THREADS_MAX: usize = 16_384;
/// Accesses of a thread between two steps of the epoch.
const EPOCH_ACCESSES: u32 = 512;

/// The mode of a thread, by bits: it counts.
const ON: u8 = 1;
/// What was counted so far does not count.
const STALE: u8 = 2;
/// It is in a system call.
const PARKED: u8 = 4;
/// Meanwhile another thread has its table.
const TAKEN: u8 = 8;

/// What can be seen of a thread by others, and where its state is.
#[repr(align(64))]
pub(crate) struct Slot {
    own: AtomicPtr<Thread>,
    /// `ON`, `STALE`, `PARKED`, `TAKEN`, or several.
    mode: AtomicU8,
    /// Whether it ever marked.
    marked: AtomicBool,
}

static SLOTS: [Slot; THREADS_MAX] = [const {
    Slot { own: AtomicPtr::new(std::ptr::null_mut()), mode: AtomicU8::new(0), marked: AtomicBool::new(false) }
}; THREADS_MAX];
/// Slots from this one on were never used.
static SLOTS_USED: AtomicUsize = AtomicUsize::new(0);
/// A coarse clock: it advances with the accesses of all threads, and says what came before what, roughly.
static EPOCH: AtomicU32 = AtomicU32::new(1);
/// Whether nothing counts but in windows.
static WINDOWS: AtomicBool = AtomicBool::new(false);
/// Threads that are in theirs.
static OPEN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The state of this thread, for a forked child.
    static CURRENT: Cell<*mut Thread> = const { Cell::new(std::ptr::null_mut()) };
}

/// What one thread has.
pub(crate) struct Thread {
    slot: &'static Slot,
    ticks: u32,
    pub(crate) table: Option<Table>,
    pub(crate) number: u32,
    /// Whether it has yet to make its first access, and where in its stack that was, if that is known.
    fresh: bool,
    stack: u64,
    infos: [AccessInfo; INFO_SLOTS],
    api: Api,
    /// How deep in its marks it is.
    depth: u32,
    /// How deep in what the preloaded library does besides; nothing of that counts.
    pub(crate) quiet: u32,
    /// Arguments of the system call that it is in.
    pub(crate) arguments: [u64; 6],
    /// Its frames, where a function is the window, and whether it is about to return.
    frames: Frames,
    returning: bool,
    /// Where it last branched to a helper of the compiler's, if it did.
    helped: u64,
}

pub(crate) fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Advances the coarse clock.
pub(crate) fn tick() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

/// Nothing counts but in windows, from the beginning.
pub(crate) fn count_in_windows_only() {
    WINDOWS.store(true, Ordering::Relaxed);
}

// --- accesses ---

pub(crate) unsafe extern "C" fn on_access(vcpu: c_uint, info: u32, address: u64, site: *mut c_void) {
    match this(vcpu) {
        Some(thread) => thread.access(info, address, site as u64),
        None => run::here().miss_access(),
    }
}

/// A branch to a helper of the compiler's, at this address.
pub(crate) unsafe extern "C" fn on_helper_call(vcpu: c_uint, address: *mut c_void) {
    if let Some(thread) = this(vcpu) {
        thread.helped = address as u64 & ((1 << SITE_BITS) - 1);
    }
}

/// An access of such a helper's: where the branch to it was.
pub(crate) unsafe extern "C" fn on_helper_access(vcpu: c_uint, info: u32, address: u64, site: *mut c_void) {
    let Some(thread) = this(vcpu) else { return run::here().miss_access() };
    let own = site as u64;
    let kind = own >> SITE_BITS << SITE_BITS;
    let site = if thread.helped == 0 { own } else { kind | thread.helped };
    thread.access(info, address, site);
}

/// An access of an instruction that calls: it stores the return address.
pub(crate) unsafe extern "C" fn on_call_access(vcpu: c_uint, info: u32, address: u64, site: *mut c_void) {
    let Some(thread) = this(vcpu) else { return run::here().miss_access() };
    thread.access(info, address, site as u64);
    if thread.known(info).0 {
        let ended = thread.frames.called(address);
        thread.end_windows(ended);
    }
}

/// An access of an instruction that returns: it loads the return address.
pub(crate) unsafe extern "C" fn on_return_access(vcpu: c_uint, info: u32, address: u64, site: *mut c_void) {
    let Some(thread) = this(vcpu) else { return run::here().miss_access() };
    thread.access(info, address, site as u64);
    let ended = thread.frames.returned(address);
    thread.end_windows(ended);
}

/// The same two, of instructions whose accesses are nobody's.
pub(crate) unsafe extern "C" fn on_quiet_call_access(vcpu: c_uint, info: u32, address: u64, _: *mut c_void) {
    if let Some(thread) = this(vcpu)
        && thread.known(info).0
    {
        let ended = thread.frames.called(address);
        thread.end_windows(ended);
    }
}

pub(crate) unsafe extern "C" fn on_quiet_return_access(vcpu: c_uint, _: u32, address: u64, _: *mut c_void) {
    if let Some(thread) = this(vcpu) {
        let ended = thread.frames.returned(address);
        thread.end_windows(ended);
    }
}

/// A call instruction that stores nothing, with where it returns to.
pub(crate) unsafe extern "C" fn on_call_run(vcpu: c_uint, returns_to: *mut c_void) {
    if let Some(thread) = this(vcpu) {
        let ended = thread.frames.called(returns_to as u64);
        thread.end_windows(ended);
    }
}

/// A return instruction that loads nothing.
pub(crate) unsafe extern "C" fn on_return_run(vcpu: c_uint, _: *mut c_void) {
    if let Some(thread) = this(vcpu) {
        thread.returning = true;
    }
}

/// The first instruction of a block, which may be where a return leads to.
pub(crate) unsafe extern "C" fn on_block_run(vcpu: c_uint, address: *mut c_void) {
    if let Some(thread) = this(vcpu)
        && thread.returning
    {
        thread.returning = false;
        let ended = thread.frames.returned(address as u64);
        thread.end_windows(ended);
    }
}

/// The first instruction of a window's function.
pub(crate) unsafe extern "C" fn on_enter(vcpu: c_uint, _: *mut c_void) {
    if let Some(thread) = this(vcpu)
        && thread.frames.entered()
    {
        thread.begin_window();
    }
}

pub(crate) unsafe extern "C" fn on_begin_mark(vcpu: c_uint, _: *mut c_void) {
    if let Some(thread) = this(vcpu) {
        thread.begin_window();
    }
}

pub(crate) unsafe extern "C" fn on_end_mark(vcpu: c_uint, _: *mut c_void) {
    if let Some(thread) = this(vcpu) {
        thread.end_window();
    }
}

/// What the emulator's number of an access means, asked once for each number.
#[derive(Clone, Copy)]
struct AccessInfo {
    info: u32,
    store: bool,
    bytes: u64,
}

const INFO_SLOTS: usize = 32;

fn info_slot(info: u32) -> usize {
    (info.wrapping_mul(0x9e37_79b9) >> 27) as usize % INFO_SLOTS
}

/// The state of the thread that runs as this processor, made when it is not there yet; none where there is no room for it.
#[inline]
pub(crate) fn this(vcpu: c_uint) -> Option<&'static mut Thread> {
    let slot = SLOTS.get(vcpu as usize)?;
    let thread = slot.own.load(Ordering::Relaxed);
    if thread.is_null() {
        return begin_thread(vcpu);
    }
    if slot.mode.load(Ordering::Relaxed) & PARKED != 0 {
        slot.unpark();
    }
    // SAFETY: a state that lives until this thread's end (I1), which is the thread that runs this, and is not parked: no
    // other reference into it is used (I2, I3).
    Some(unsafe { &mut *thread })
}

impl Slot {
    /// The thread is out of its system call.
    #[cold]
    #[inline(never)]
    fn unpark(&self) {
        loop {
            let mode = self.mode.load(Ordering::Relaxed);
            if mode & TAKEN != 0 {
                std::thread::yield_now();
                continue;
            }
            // Acquire: pairs with the Release of whoever cleared TAKEN; we then see what became of the table.
            let free = self.mode.compare_exchange(mode, mode & !PARKED, Ordering::Acquire, Ordering::Relaxed);
            if free.is_ok() {
                return;
            }
        }
    }

    /// Keeps only lines of the sample in the table of this thread, if it is in a system call. Under the lock.
    fn resample_parked(&self, sample: u32) {
        let mode = self.mode.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `park`; we then see all that the thread did.
        let taken = mode & PARKED != 0
            && self.mode.compare_exchange(mode, mode | TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !taken {
            return;
        }
        let thread = self.own.load(Ordering::Relaxed);
        if !thread.is_null() {
            // SAFETY: states are freed under the lock, which is held; the table is ours as long as it is TAKEN (I2).
            if let Some(table) = unsafe { &mut (*thread).table } {
                table.resample(sample);
            }
        }
        // Release: pairs with the Acquire in `unpark`.
        self.mode.fetch_and(!TAKEN, Ordering::Release);
    }
}

fn used() -> &'static [Slot] {
    &SLOTS[..SLOTS_USED.load(Ordering::Relaxed)]
}

/// Keeps only lines of this sample in the tables of those that are in system calls. Under the lock.
pub(crate) fn resample_parked(sample: u32) {
    for slot in used() {
        slot.resample_parked(sample);
    }
}

/// Whether there can be a processor of this number, as far as one can see: the emulator gives the lowest that is free, or the next, so that
/// one beyond those there is room for comes after as many others.
pub(crate) fn can_be(vcpu: c_uint) -> bool {
    can_be_after(vcpu as usize, SLOTS_USED.load(Ordering::Relaxed))
}

fn can_be_after(vcpu: usize, used: usize) -> bool {
    // Some may have come and gone without any access.
    vcpu < THREADS_MAX || used >= THREADS_MAX / 2
}

/// The first event of a thread.
#[cold]
#[inline(never)]
fn begin_thread(vcpu: c_uint) -> Option<&'static mut Thread> {
    let thread = with(|shared| {
        let number = shared.threads_count;
        shared.threads_count += 1;
        let slot = &SLOTS[vcpu as usize];
        let windows = WINDOWS.load(Ordering::Relaxed);
        let on = !windows || OPEN.load(Ordering::Relaxed) > 0;
        let thread = Thread {
            slot,
            ticks: EPOCH_ACCESSES,
            table: shared.table(number, if windows { window::OTHERS } else { window::WHOLE }),
            number,
            fresh: true,
            stack: 0,
            infos: [AccessInfo { info: u32::MAX, store: false, bytes: 1 }; INFO_SLOTS],
            api: shared.api,
            depth: 0,
            quiet: 0,
            arguments: [0; 6],
            frames: Frames::new(shared.arch.stores_returns()),
            returning: false,
            helped: 0,
        };
        let thread = Box::into_raw(Box::new(thread));
        // Under the lock, so that whoever opens a window reaches every thread there is, or this one saw it open.
        SLOTS_USED.fetch_max(vcpu as usize + 1, Ordering::Relaxed);
        slot.marked.store(false, Ordering::Relaxed);
        slot.mode.store(if on { ON } else { 0 }, Ordering::Relaxed);
        slot.own.store(thread, Ordering::Relaxed);
        thread
    })?;
    CURRENT.set(thread);
    // SAFETY: it was just made, for this thread.
    Some(unsafe { &mut *thread })
}

impl Thread {
    #[inline]
    fn access(&mut self, info: u32, address: u64, site: u64) {
        if self.fresh {
            self.note_stack(address);
        }
        let mode = self.slot.mode.load(Ordering::Relaxed);
        if mode != ON {
            if mode & ON == 0 {
                return;
            }
            self.start_afresh();
        }
        if self.quiet > 0 {
            return;
        }
        self.ticks -= 1;
        if self.ticks == 0 {
            self.tick();
        }
        let (store, bytes) = self.known(info);
        let Some(table) = &mut self.table else { return run::here().miss_access() };
        let (line, at) = (address >> LINE_BITS, address & ((1 << LINE_BITS) - 1));
        let mask = if bytes >= 64 { u64::MAX } else { (1 << bytes) - 1 };
        let access = Access { line, site, bytes: mask << at, store, epoch: epoch() };
        table.count(access);
        if at + bytes > 64 {
            let site = access.site | u64::from(insn::CROSSES) << SITE_BITS;
            table.count(Access { line: line.wrapping_add(1), site, bytes: mask >> (64 - at), ..access });
        }
    }

    /// Whether an access of this number stores, and how many bytes it is of.
    #[inline]
    fn known(&mut self, info: u32) -> (bool, u64) {
        let known = &self.infos[info_slot(info)];
        if known.info == info { (known.store, known.bytes) } else { self.ask(info) }
    }

    #[cold]
    #[inline(never)]
    fn ask(&mut self, info: u32) -> (bool, u64) {
        // SAFETY: both functions only look at the number that the emulator gave.
        let (store, shift) = unsafe { ((self.api.is_store)(info), (self.api.size_shift)(info)) };
        let bytes = 1 << (shift & 7);
        self.infos[info_slot(info)] = AccessInfo { info, store, bytes };
        (store, bytes)
    }

    /// The first access of a process's first thread is to its stack; that of others is said by whoever made them.
    #[cold]
    #[inline(never)]
    fn note_stack(&mut self, address: u64) {
        self.fresh = false;
        if self.number == 0 {
            self.stack = address;
            // Under the lock, which is not held in a callback of an access.
            with(|shared| shared.note_stack(thread_id(), address));
        }
    }

    /// Every few hundred accesses.
    #[cold]
    #[inline(never)]
    fn tick(&mut self) {
        self.ticks = EPOCH_ACCESSES;
        tick();
        run::here().sample_less_if_full();
        self.keep_up();
        if let Some(table) = &self.table {
            table.settle();
        }
    }

    /// Drops what is not in the sample any more, here, and where no thread runs that would.
    fn keep_up(&mut self) {
        let sample = run::here().sample();
        let Some(table) = &mut self.table else { return };
        if table.sample() < sample {
            table.resample(sample);
            with(|shared| shared.keep_up(sample));
        }
    }

    /// From here on it is in a system call. The last that a callback does.
    pub(crate) fn park(&mut self) {
        self.keep_up();
        // Release: pairs with the Acquire in `resample_parked`.
        self.slot.mode.fetch_or(PARKED, Ordering::Release);
    }

    /// What was counted so far was before any window, or before this thread's first.
    #[cold]
    #[inline(never)]
    fn start_afresh(&mut self) {
        let kind = self.kind();
        with(|shared| {
            if let Some(table) = self.table.take() {
                table.discard();
            }
            self.table = shared.table(self.number, kind);
        });
        self.slot.mode.fetch_and(!STALE, Ordering::Relaxed);
    }

    /// What a table of this thread's counts.
    fn kind(&self) -> u32 {
        match (WINDOWS.load(Ordering::Relaxed), self.slot.marked.load(Ordering::Relaxed)) {
            (false, _) => window::WHOLE,
            (true, true) => window::OWN,
            (true, false) => window::OTHERS,
        }
    }

    fn begin_window(&mut self) {
        self.depth += 1;
        if self.depth > 1 {
            return;
        }
        let first = !self.slot.marked.swap(true, Ordering::Relaxed);
        with(|_| {
            // Those that never marked count while a window is open, and start over at the first, whenever they next count.
            let fresh = !WINDOWS.swap(true, Ordering::Relaxed);
            let open = OPEN.fetch_add(1, Ordering::Relaxed) == 0;
            if fresh || open {
                let bits = if fresh { ON | STALE } else { ON };
                others(self.slot, |mode| mode.fetch_or(bits, Ordering::Relaxed));
            }
        });
        if first {
            self.start_afresh();
        }
        self.slot.mode.fetch_or(ON, Ordering::Relaxed);
    }

    fn end_windows(&mut self, count: usize) {
        for _ in 0..count {
            self.end_window();
        }
    }

    fn end_window(&mut self) {
        if self.depth == 0 {
            return;
        }
        self.depth -= 1;
        if self.depth > 0 {
            return;
        }
        self.slot.mode.fetch_and(!ON, Ordering::Relaxed);
        if let Some(table) = &self.table {
            table.settle();
        }
        with(|_| close(self.slot));
    }
}

/// One window less. Under the lock.
fn close(slot: &Slot) {
    if OPEN.fetch_sub(1, Ordering::Relaxed) == 1 {
        others(slot, |mode| mode.fetch_and(!ON, Ordering::Relaxed));
    }
}

/// Does this to the mode of every thread that never marked, `this` excepted. Under the lock.
fn others(this: &Slot, f: impl Fn(&AtomicU8) -> u8) {
    for slot in used() {
        let there = !slot.own.load(Ordering::Relaxed).is_null() && !std::ptr::eq(slot, this);
        // Whoever marks at this moment sets its own mode afterwards.
        if there && !slot.marked.load(Ordering::Relaxed) {
            f(&slot.mode);
        }
    }
}

// --- the end ---

/// The thread of this number is over; or one begins, and an end that was not told is made up for, since the number is used again all the
/// same.
pub(crate) fn end_thread(vcpu: c_uint) {
    let Some(slot) = SLOTS.get(vcpu as usize) else { return };
    with(|shared| {
        let thread = slot.own.swap(std::ptr::null_mut(), Ordering::Relaxed);
        if thread.is_null() {
            return;
        }
        if CURRENT.get() == thread {
            CURRENT.set(std::ptr::null_mut());
        }
        // SAFETY: it came from a box, and is in its slot no longer: its thread runs no further callback (I1), and others
        // look at it under the lock only, which is held.
        let thread = unsafe { Box::from_raw(thread) };
        if thread.depth > 0 {
            close(slot);
        }
        if let Some(table) = thread.table {
            table.settle();
            table.set_u32(head::ENDED, epoch().max(1));
            shared.ended.push(table.end());
        }
    });
}

// --- forks ---

/// In a forked child: forgets all threads but the one that forked, which goes on, in its window if it was in one, with a
/// table of its own. Before anything else runs there; under the lock.
pub(crate) fn begin_child(shared: &mut Shared) {
    let current = CURRENT.get();
    for slot in used() {
        if slot.own.load(Ordering::Relaxed) != current {
            // Forgotten, not freed: in the midst of what its thread did when the process was copied.
            slot.own.store(std::ptr::null_mut(), Ordering::Relaxed);
        }
    }
    OPEN.store(0, Ordering::Relaxed);
    if current.is_null() {
        return;
    }
    // SAFETY: the state of this thread, which is the one that forked, and in no callback of an access.
    let thread = unsafe { &mut *current };
    if let Some(table) = thread.table.take() {
        table.forget();
    }
    thread.number = shared.threads_count;
    shared.threads_count += 1;
    thread.fresh = false;
    if thread.stack != 0 {
        shared.note_stack(thread_id(), thread.stack);
    }
    let inside = thread.depth > 0;
    OPEN.store(u32::from(inside), Ordering::Relaxed);
    let on = inside || !WINDOWS.load(Ordering::Relaxed);
    thread.slot.mode.store(if on { ON } else { 0 }, Ordering::Relaxed);
    thread.table = shared.table(thread.number, thread.kind());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_beyond_the_room_there_is_can_be_where_there_are_many_threads_alone() {
        assert!(can_be_after(0, 0) && can_be_after(THREADS_MAX - 1, 0));
        // An identity, or a pointer, that is taken for a processor.
        assert!(!can_be_after(THREADS_MAX, 8) && !can_be_after(0x5555_6000, 8));
        assert!(can_be_after(THREADS_MAX, THREADS_MAX));
    }
}
