//! The emulated threads: their state, when they count, and their windows.
//!
//! Idea: each emulated thread is a thread of the emulator, so its table needs no lock. Callbacks find the
//! table by the processor's index.
//!
//! - I1. `SLOTS[i].own` is null or the state of the single thread that runs as processor i. Only that thread
//!   creates and changes it; after the callback of the thread's end, no thread does.
//! - I2. Other threads access only `mode` and `marked` of a slot, which are atomic and not part of the state.
//!   One exception: for a thread that is `PARKED` in a system call, they access the table between setting and
//!   clearing `TAKEN`, under the lock.
//! - I3. A `PARKED` thread accesses its state only after clearing `PARKED`, which it cannot do while `TAKEN`
//!   is set.
//! - I4. Once a window was opened, accesses count only in windows. Earlier contents of a table are discarded
//!   by its thread, or recognised by `window` in its head.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use crate::api::Api;
use crate::format::{LINE_BITS, SITE_BITS, head, insn, window};
use crate::frames::Frames;
use crate::plugin::{Shared, thread_id, with};
use crate::run;
use crate::table::{Access, Table};

/// Maximum number of concurrent threads; the emulator reuses numbers of ended threads. Accesses of further
/// threads are counted as unseen.
const THREADS_MAX: usize = 16_384;
/// Accesses of a thread between two steps of the epoch.
const EPOCH_ACCESSES: u32 = 512;

/// Bits of a thread's mode. This one: the thread counts.
const ON: u8 = 1;
/// Earlier counts of the table are invalid.
const STALE: u8 = 2;
/// The thread is in a system call.
const PARKED: u8 = 4;
/// Another thread currently uses the parked thread's table.
const TAKEN: u8 = 8;

/// The part of a thread that others can access, and the pointer to its state.
#[repr(align(64))]
pub(crate) struct Slot {
    own: AtomicPtr<Thread>,
    /// Combination of `ON`, `STALE`, `PARKED` and `TAKEN`.
    mode: AtomicU8,
    /// Whether the thread ever marked.
    marked: AtomicBool,
}

static SLOTS: [Slot; THREADS_MAX] = [const {
    Slot { own: AtomicPtr::new(std::ptr::null_mut()), mode: AtomicU8::new(0), marked: AtomicBool::new(false) }
}; THREADS_MAX];
/// Number of slots used so far; later ones were never used.
static SLOTS_USED: AtomicUsize = AtomicUsize::new(0);
/// Coarse clock. It advances with the accesses of all threads and gives an approximate order.
static EPOCH: AtomicU32 = AtomicU32::new(1);
/// Whether accesses count only in windows.
static WINDOWS: AtomicBool = AtomicBool::new(false);
/// Whether the profiler lets no access count. Written under the lock.
static PAUSED: AtomicBool = AtomicBool::new(false);
/// Number of threads inside their windows.
static OPEN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// State of this thread, for a forked child.
    static CURRENT: Cell<*mut Thread> = const { Cell::new(std::ptr::null_mut()) };
}

/// State of one thread.
pub(crate) struct Thread {
    slot: &'static Slot,
    ticks: u32,
    pub(crate) table: Option<Table>,
    pub(crate) number: u32,
    /// Whether the first access is yet to come, and its stack address, if known.
    fresh: bool,
    stack: u64,
    infos: [AccessInfo; INFO_SLOTS],
    api: Api,
    /// Nesting depth of its marks.
    depth: u32,
    /// Nesting depth of work for the preloaded library, which does not count.
    pub(crate) quiet: u32,
    /// Arguments of the current system call.
    pub(crate) arguments: [u64; 6],
    /// Stack frames, if a function is the window, and whether a return is in progress.
    frames: Frames,
    returning: bool,
    /// Address of the last branch to a compiler helper, or 0.
    helped: u64,
}

pub(crate) fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Advances the coarse clock.
pub(crate) fn tick() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

/// Makes accesses count only in windows, from the beginning.
pub(crate) fn count_in_windows_only() {
    WINDOWS.store(true, Ordering::Relaxed);
}

/// Pauses or resumes the counts of all threads, as the profiler wants. Runs at each system call.
pub(crate) fn follow_pause() {
    let paused = run::current().is_paused();
    if paused == PAUSED.load(Ordering::Relaxed) {
        return;
    }
    with(|_| {
        PAUSED.store(paused, Ordering::Relaxed);
        for slot in used().iter().filter(|slot| !slot.own.load(Ordering::Relaxed).is_null()) {
            if paused {
                slot.mode.fetch_and(!ON, Ordering::Relaxed);
            } else {
                slot.mode.fetch_or(ON, Ordering::Relaxed);
            }
        }
    });
}

// --- accesses ---

pub(crate) unsafe extern "C" fn on_access(vcpu: c_uint, info: u32, address: u64, site: *mut c_void) {
    match current_thread(vcpu) {
        Some(thread) => thread.access(info, address, site as u64),
        None => run::current().miss_access(),
    }
}

/// A branch to a compiler helper, at this address.
pub(crate) unsafe extern "C" fn on_helper_call(vcpu: c_uint, address: *mut c_void) {
    if let Some(thread) = current_thread(vcpu) {
        thread.helped = address as u64 & ((1 << SITE_BITS) - 1);
    }
}

/// An access of a compiler helper; it counts at the branch to the helper.
pub(crate) unsafe extern "C" fn on_helper_access(vcpu: c_uint, info: u32, address: u64, site: *mut c_void) {
    let Some(thread) = current_thread(vcpu) else { return run::current().miss_access() };
    let own = site as u64;
    let kind = own >> SITE_BITS << SITE_BITS;
    let site = if thread.helped == 0 { own } else { kind | thread.helped };
    thread.access(info, address, site);
}

/// An access of a call instruction, which stores the return address.
pub(crate) unsafe extern "C" fn on_call_access(vcpu: c_uint, info: u32, address: u64, site: *mut c_void) {
    let Some(thread) = current_thread(vcpu) else { return run::current().miss_access() };
    thread.access(info, address, site as u64);
    if thread.known(info).0 {
        let ended = thread.frames.called(address);
        thread.end_windows(ended);
    }
}

/// An access of a return instruction, which loads the return address.
pub(crate) unsafe extern "C" fn on_return_access(vcpu: c_uint, info: u32, address: u64, site: *mut c_void) {
    let Some(thread) = current_thread(vcpu) else { return run::current().miss_access() };
    thread.access(info, address, site as u64);
    let ended = thread.frames.returned(address);
    thread.end_windows(ended);
}

/// An access of a call instruction of the preloaded library, which is not counted.
pub(crate) unsafe extern "C" fn on_quiet_call_access(vcpu: c_uint, info: u32, address: u64, _: *mut c_void) {
    if let Some(thread) = current_thread(vcpu)
        && thread.known(info).0
    {
        let ended = thread.frames.called(address);
        thread.end_windows(ended);
    }
}

pub(crate) unsafe extern "C" fn on_quiet_return_access(vcpu: c_uint, _: u32, address: u64, _: *mut c_void) {
    if let Some(thread) = current_thread(vcpu) {
        let ended = thread.frames.returned(address);
        thread.end_windows(ended);
    }
}

/// A call instruction without an access, with its return address.
pub(crate) unsafe extern "C" fn on_call_run(vcpu: c_uint, returns_to: *mut c_void) {
    if let Some(thread) = current_thread(vcpu) {
        let ended = thread.frames.called(returns_to as u64);
        thread.end_windows(ended);
    }
}

/// A return instruction without an access.
pub(crate) unsafe extern "C" fn on_return_run(vcpu: c_uint, _: *mut c_void) {
    if let Some(thread) = current_thread(vcpu) {
        thread.returning = true;
    }
}

/// The first instruction of a block, possibly the target of a return.
pub(crate) unsafe extern "C" fn on_block_run(vcpu: c_uint, address: *mut c_void) {
    if let Some(thread) = current_thread(vcpu)
        && thread.returning
    {
        thread.returning = false;
        let ended = thread.frames.returned(address as u64);
        thread.end_windows(ended);
    }
}

/// The first instruction of a window function.
pub(crate) unsafe extern "C" fn on_enter(vcpu: c_uint, _: *mut c_void) {
    if let Some(thread) = current_thread(vcpu)
        && thread.frames.entered()
    {
        thread.begin_window();
    }
}

pub(crate) unsafe extern "C" fn on_begin_mark(vcpu: c_uint, _: *mut c_void) {
    if let Some(thread) = current_thread(vcpu) {
        thread.begin_window();
    }
}

pub(crate) unsafe extern "C" fn on_end_mark(vcpu: c_uint, _: *mut c_void) {
    if let Some(thread) = current_thread(vcpu) {
        thread.end_window();
    }
}

/// Decoded form of the emulator's access description; the emulator is asked once per distinct value.
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

/// State of the thread on this processor, created on its first event. `None` if there is no room.
#[inline]
pub(crate) fn current_thread(vcpu: c_uint) -> Option<&'static mut Thread> {
    let slot = SLOTS.get(vcpu as usize)?;
    let thread = slot.own.load(Ordering::Relaxed);
    if thread.is_null() {
        return begin_thread(vcpu);
    }
    if slot.mode.load(Ordering::Relaxed) & PARKED != 0 {
        slot.unpark();
    }
    // SAFETY: the state lives until this thread's end (I1). This thread is the running one and is not parked,
    // so no other reference into the state is in use (I2, I3).
    Some(unsafe { &mut *thread })
}

impl Slot {
    /// Ends the parked mode after a system call.
    #[cold]
    #[inline(never)]
    fn unpark(&self) {
        loop {
            let mode = self.mode.load(Ordering::Relaxed);
            if mode & TAKEN != 0 {
                std::thread::yield_now();
                continue;
            }
            // Acquire: pairs with the Release of the thread that cleared TAKEN, so that this thread sees its
            // changes to the table.
            let free = self.mode.compare_exchange(mode, mode & !PARKED, Ordering::Acquire, Ordering::Relaxed);
            if free.is_ok() {
                return;
            }
        }
    }

    /// Applies a coarser sample to the table of this thread, if it is in a system call. The caller holds the
    /// lock.
    fn resample_parked(&self, sample: u32) {
        let mode = self.mode.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `park`, so that this thread sees everything the parked thread
        // did.
        let taken = mode & PARKED != 0
            && self.mode.compare_exchange(mode, mode | TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !taken {
            return;
        }
        let thread = self.own.load(Ordering::Relaxed);
        if !thread.is_null() {
            // SAFETY: states are freed under the lock, which the caller holds. The table is ours while TAKEN
            // is set (I2).
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

/// Applies a coarser sample to the tables of all threads in system calls. The caller holds the lock.
pub(crate) fn resample_parked(sample: u32) {
    for slot in used() {
        slot.resample_parked(sample);
    }
}

/// Whether this can be the number of a processor. The emulator assigns the lowest free number, so a number
/// beyond `THREADS_MAX` requires about as many threads.
pub(crate) fn is_possible(vcpu: c_uint) -> bool {
    is_possible_after(vcpu as usize, SLOTS_USED.load(Ordering::Relaxed))
}

fn is_possible_after(vcpu: usize, used: usize) -> bool {
    // Half suffices, because some threads may have come and gone without an access.
    vcpu < THREADS_MAX || used >= THREADS_MAX / 2
}

/// Handles the first event of a thread.
#[cold]
#[inline(never)]
fn begin_thread(vcpu: c_uint) -> Option<&'static mut Thread> {
    let thread = with(|shared| {
        let number = shared.threads_count;
        shared.threads_count += 1;
        let slot = &SLOTS[vcpu as usize];
        let windows = WINDOWS.load(Ordering::Relaxed);
        let on = !PAUSED.load(Ordering::Relaxed) && (!windows || OPEN.load(Ordering::Relaxed) > 0);
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
        // Under the lock: a thread that opens a window either reaches this thread, or this thread saw the
        // window open.
        SLOTS_USED.fetch_max(vcpu as usize + 1, Ordering::Relaxed);
        slot.marked.store(false, Ordering::Relaxed);
        slot.mode.store(if on { ON } else { 0 }, Ordering::Relaxed);
        slot.own.store(thread, Ordering::Relaxed);
        thread
    })?;
    CURRENT.set(thread);
    // SAFETY: just created, for this thread.
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
            self.replace_table();
        }
        if self.quiet > 0 {
            return;
        }
        self.ticks -= 1;
        if self.ticks == 0 {
            self.tick();
        }
        let (store, bytes) = self.known(info);
        let Some(table) = &mut self.table else { return run::current().miss_access() };
        let (line, at) = (address >> LINE_BITS, address & ((1 << LINE_BITS) - 1));
        let mask = if bytes >= 64 { u64::MAX } else { (1 << bytes) - 1 };
        let access = Access { line, site, bytes: mask << at, store, epoch: epoch() };
        table.count(access);
        if at + bytes > 64 {
            let site = access.site | u64::from(insn::CROSSES) << SITE_BITS;
            table.count(Access { line: line.wrapping_add(1), site, bytes: mask >> (64 - at), ..access });
        }
    }

    /// Decodes an access: whether it is a store, and its size in bytes.
    #[inline]
    fn known(&mut self, info: u32) -> (bool, u64) {
        let known = &self.infos[info_slot(info)];
        if known.info == info { (known.store, known.bytes) } else { self.ask(info) }
    }

    #[cold]
    #[inline(never)]
    fn ask(&mut self, info: u32) -> (bool, u64) {
        // SAFETY: both functions only read the number.
        let (store, shift) = unsafe { ((self.api.is_store)(info), (self.api.size_shift)(info)) };
        let bytes = 1 << (shift & 7);
        self.infos[info_slot(info)] = AccessInfo { info, store, bytes };
        (store, bytes)
    }

    /// The first access of the first thread goes to its stack. For other threads, the system call that
    /// creates them gives the stack.
    #[cold]
    #[inline(never)]
    fn note_stack(&mut self, address: u64) {
        self.fresh = false;
        if self.number == 0 {
            self.stack = address;
            // Takes the lock, which a callback of an access does not hold.
            with(|shared| shared.note_stack(thread_id(), address));
        }
    }

    /// Runs once every [`EPOCH_ACCESSES`] accesses.
    #[cold]
    #[inline(never)]
    fn tick(&mut self) {
        self.ticks = EPOCH_ACCESSES;
        tick();
        run::current().sample_less_if_full();
        self.keep_up();
        if let Some(table) = &self.table {
            table.settle();
        }
    }

    /// Applies a coarser sample to this thread's table, and to tables that no running thread maintains.
    fn keep_up(&mut self) {
        let sample = run::current().sample();
        let Some(table) = &mut self.table else { return };
        if table.sample() < sample {
            table.resample(sample);
            with(|shared| shared.keep_up(sample));
        }
    }

    /// Enters the parked mode for a system call. Must be the last action of a callback.
    pub(crate) fn park(&mut self) {
        self.keep_up();
        // Release: pairs with the Acquire in `resample_parked`.
        self.slot.mode.fetch_or(PARKED, Ordering::Release);
    }

    /// Replaces the table. Its counts came before any window, or before this thread's first window.
    #[cold]
    #[inline(never)]
    fn replace_table(&mut self) {
        let kind = self.kind();
        with(|shared| {
            if let Some(table) = self.table.take() {
                table.discard();
            }
            self.table = shared.table(self.number, kind);
        });
        self.slot.mode.fetch_and(!STALE, Ordering::Relaxed);
    }

    /// Window state of this thread's table.
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
            // Threads that never marked count while a window is open. At the first window of the run, each of
            // them discards its table when it next counts.
            let fresh = !WINDOWS.swap(true, Ordering::Relaxed);
            let open = OPEN.fetch_add(1, Ordering::Relaxed) == 0;
            if fresh || open {
                let bits = if fresh { ON | STALE } else { ON };
                for_each_unmarked(self.slot, |mode| mode.fetch_or(bits, Ordering::Relaxed));
            }
        });
        if first {
            self.replace_table();
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

/// Counts down the open windows. The caller holds the lock.
fn close(slot: &Slot) {
    if OPEN.fetch_sub(1, Ordering::Relaxed) == 1 {
        for_each_unmarked(slot, |mode| mode.fetch_and(!ON, Ordering::Relaxed));
    }
}

/// Applies `f` to the mode of every thread that never marked, except `this`. The caller holds the lock.
fn for_each_unmarked(this: &Slot, f: impl Fn(&AtomicU8) -> u8) {
    for slot in used() {
        let there = !slot.own.load(Ordering::Relaxed).is_null() && !std::ptr::eq(slot, this);
        // A thread that marks at this moment sets its own mode afterwards.
        if there && !slot.marked.load(Ordering::Relaxed) {
            f(&slot.mode);
        }
    }
}

// --- the end ---

/// Ends the thread with this number. Also called at the start of a thread, to make up for an end that was not
/// reported before the number was reused.
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
        // SAFETY: it came from a box and is no longer in its slot. Its thread runs no further callback (I1),
        // and others access it only under the lock, which is held.
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

/// In a forked child: forgets all threads except the one that forked. That thread continues with a new table,
/// and in its window if it was in one. Runs first in the child, under the lock.
pub(crate) fn begin_child(shared: &mut Shared) {
    let current = CURRENT.get();
    for slot in used() {
        if slot.own.load(Ordering::Relaxed) != current {
            // Leaked on purpose: the fork may have caught its thread in the middle of a change.
            slot.own.store(std::ptr::null_mut(), Ordering::Relaxed);
        }
    }
    OPEN.store(0, Ordering::Relaxed);
    if current.is_null() {
        return;
    }
    // SAFETY: the state of this thread, which forked and is in no callback of an access.
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
    let on = inside || !WINDOWS.load(Ordering::Relaxed) && !PAUSED.load(Ordering::Relaxed);
    thread.slot.mode.store(if on { ON } else { 0 }, Ordering::Relaxed);
    thread.table = shared.table(thread.number, thread.kind());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_processor_numbers_require_many_threads() {
        assert!(is_possible_after(0, 0) && is_possible_after(THREADS_MAX - 1, 0));
        // A plugin id or a pointer mistaken for a processor number.
        assert!(!is_possible_after(THREADS_MAX, 8) && !is_possible_after(0x5555_6000, 8));
        assert!(is_possible_after(THREADS_MAX, THREADS_MAX));
    }
}
