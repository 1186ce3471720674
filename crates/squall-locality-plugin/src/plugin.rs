//! The plugin: what it asks the emulator to be told, and what it does with it.
//!
//! Idea: each emulated thread is a thread of the emulator, so that its table needs no lock: the callbacks of an access find
//! it by the processor's index. Everything else (new code, threads, mappings, blocks, windows) is seldom, and goes under one
//! lock into the log.
//!
//! - I1. `THREADS[i]` is null, or the state of the one thread that runs as processor i. That thread alone makes and changes
//!   it; after the callback of its end nobody does.
//! - I2. Another thread changes no more of a state than `mode`, an atomic.
//! - I3. Once a window was opened, nothing counts but in windows: what a table held before is thrown away by its thread, or
//!   told by its head's `window`.
//! - I4. A forked child starts over: its own log, its own tables. What it inherited is the parent's, and it forgets it
//!   without touching it.
//!
//! Not promised: what a program does after it became another one (`exec`): the emulator does not stay for that.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::api::{self, Api, Block, Id, Info};
use crate::arch::{Arch, Mark};
use crate::calls::{on_call, on_return};
use crate::format::{LINE_BITS, SITE_BITS, head, insn as insn_kind, record, window};
use crate::lock::Lock;
use crate::log::{Log, Payload};
use crate::table::{Access, ENTRIES, Table};

/// Threads at once; the emulator uses the numbers of those that ended again. Accesses of more are not seen.
const THREADS_MAX: usize = 16_384;
/// Accesses of a thread between two steps of the epoch.
const EPOCH_ACCESSES: u32 = 512;
/// Bytes of a path that are written down.
const PATH_MAX: usize = 4_096;

/// The mode of a thread: nothing counts.
const OFF: u8 = 0;
/// It counts.
const ON: u8 = 1;
/// It counts from the next access on, and what was counted so far does not.
const AFRESH: u8 = 2;

static THREADS: [AtomicPtr<Thread>; THREADS_MAX] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; THREADS_MAX];
/// A coarse clock: it advances with the accesses of all threads, and says what came before what, roughly.
static EPOCH: AtomicU32 = AtomicU32::new(1);
/// One line in 2^shift is kept.
static SAMPLE: AtomicU32 = AtomicU32::new(0);
/// Entries at most.
static ENTRIES_MAX: AtomicU64 = AtomicU64::new(u64::MAX);
/// Whether nothing counts but in windows.
static WINDOWS: AtomicBool = AtomicBool::new(false);
/// Threads that are in theirs.
static OPEN: AtomicU32 = AtomicU32::new(0);
/// Accesses of threads beyond the number that can be told apart.
static UNSEEN: AtomicU64 = AtomicU64::new(0);
static SHARED: Lock<Option<Shared>> = Lock::new(None);

/// What one thread has.
pub(crate) struct Thread {
    /// `OFF`, `ON` or `AFRESH`.
    pub(crate) mode: AtomicU8,
    pub(crate) ticks: u32,
    pub(crate) table: Option<Table>,
    pub(crate) number: u32,
    /// Whether it has yet to make its first access.
    pub(crate) fresh: bool,
    pub(crate) infos: [AccessInfo; INFO_SLOTS],
    pub(crate) api: Api,
    /// Whether it ever marked, and how deep in its marks it is.
    pub(crate) marked: bool,
    pub(crate) depth: u32,
    /// Whether what runs is the preloaded library's.
    pub(crate) quiet: bool,
    /// Arguments of the system call that it is in.
    pub(crate) arguments: [u64; 6],
    /// Where the last call instruction returns to, and where those return to that are in the window's function.
    pub(crate) returns_to: u64,
    pub(crate) returns: Vec<u64>,
}

/// What all threads share.
pub(crate) struct Shared {
    pub(crate) folder: PathBuf,
    pub(crate) pid: u32,
    pub(crate) arch: Arch,
    pub(crate) api: Api,
    pub(crate) log: Log,
    pub(crate) memory: File,
    pub(crate) guest_base: Option<u64>,
    pub(crate) threads_count: u32,
    /// Ended threads' tables, for when room is wanted.
    pub(crate) ended: Vec<PathBuf>,
    pub(crate) code: Vec<(u64, u64)>,
    pub(crate) sites: HashMap<Vec<u64>, u32>,
    pub(crate) futexes: HashMap<u64, ()>,
    pub(crate) blocks: u64,
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) windows: Windows,
}

/// A function whose calls are windows.
pub(crate) struct Symbol {
    path: Vec<u8>,
    offset: u64,
    address: Option<u64>,
}

pub(crate) fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Advances the coarse clock.
pub(crate) fn tick() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn with<R>(f: impl FnOnce(&mut Shared) -> R) -> Option<R> {
    SHARED.with(|shared| shared.as_mut().map(f))
}

// --- accesses ---

unsafe extern "C" fn on_access(vcpu: c_uint, info: u32, address: u64, site: *mut c_void) {
    let Some(thread) = this(vcpu) else { return };
    if thread.fresh {
        thread.note_stack(address);
    }
    let mode = thread.mode.load(Ordering::Relaxed);
    if mode != ON {
        if mode == OFF {
            return;
        }
        thread.start_afresh();
    }
    if thread.quiet {
        return;
    }
    thread.ticks -= 1;
    if thread.ticks == 0 {
        thread.tick();
    }
    let known = thread.infos[info_slot(info)];
    let known = if known.info == info { known } else { thread.ask(info) };
    let (store, bytes) = (known.store, known.bytes);
    let Some(table) = &mut thread.table else { return };
    let (line, at) = (address >> LINE_BITS, address & ((1 << LINE_BITS) - 1));
    let mask = if bytes >= 64 { u64::MAX } else { (1 << bytes) - 1 };
    let access = Access { line, site: site as u64, bytes: mask << at, store, epoch: epoch() };
    table.count(access);
    if at + bytes > 64 {
        let site = access.site | u64::from(insn_kind::CROSSES) << SITE_BITS;
        table.count(Access { line: line.wrapping_add(1), site, bytes: mask >> (64 - at), ..access });
    }
}

/// What the emulator's number of an access means, asked once for each number.
#[derive(Clone, Copy)]
pub(crate) struct AccessInfo {
    info: u32,
    store: bool,
    bytes: u64,
}

const INFO_SLOTS: usize = 32;

fn info_slot(info: u32) -> usize {
    (info.wrapping_mul(0x9e37_79b9) >> 27) as usize % INFO_SLOTS
}

/// The state of the thread that runs as this processor, made when it is not there yet.
#[inline]
pub(crate) fn this(vcpu: c_uint) -> Option<&'static mut Thread> {
    let Some(slot) = THREADS.get(vcpu as usize) else {
        UNSEEN.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    let thread = slot.load(Ordering::Relaxed);
    // SAFETY: null, or a state that lives until this thread's end (I1), which is the thread that runs this: no other
    // reference to it is used, but for the atomic `mode` (I2).
    match unsafe { thread.as_mut() } {
        Some(thread) => Some(thread),
        None => begin_thread(vcpu),
    }
}

/// The first access of a thread.
#[cold]
#[inline(never)]
fn begin_thread(vcpu: c_uint) -> Option<&'static mut Thread> {
    let thread = with(|shared| {
        let number = shared.threads_count;
        shared.threads_count += 1;
        let windows = WINDOWS.load(Ordering::Relaxed);
        let on = !windows || OPEN.load(Ordering::Relaxed) > 0;
        let mut thread = Thread {
            mode: AtomicU8::new(if on { ON } else { OFF }),
            ticks: EPOCH_ACCESSES,
            table: None,
            number,
            fresh: true,
            infos: [AccessInfo { info: u32::MAX, store: false, bytes: 1 }; INFO_SLOTS],
            api: shared.api,
            marked: false,
            depth: 0,
            quiet: false,
            arguments: [0; 6],
            returns_to: 0,
            returns: Vec::new(),
        };
        thread.table = shared.table(number, if windows { window::OTHERS } else { window::WHOLE });
        let thread = Box::into_raw(Box::new(thread));
        // Under the lock, so that whoever opens a window reaches every thread there is, or this one saw it open.
        THREADS[vcpu as usize].store(thread, Ordering::Relaxed);
        thread
    })?;
    // SAFETY: it was just made, for this thread.
    Some(unsafe { &mut *thread })
}

impl Thread {
    #[cold]
    #[inline(never)]
    fn ask(&mut self, info: u32) -> AccessInfo {
        // SAFETY: both functions only look at the number that the emulator gave.
        let (store, shift) = unsafe { ((self.api.is_store)(info), (self.api.size_shift)(info)) };
        let known = AccessInfo { info, store, bytes: 1 << (shift & 7) };
        self.infos[info_slot(info)] = known;
        known
    }

    /// The first access of a process's first thread is to its stack; that of others is said by whoever made them.
    #[cold]
    #[inline(never)]
    fn note_stack(&mut self, address: u64) {
        self.fresh = false;
        if self.number == 0 {
            // Under the lock, which is not held in a callback of an access.
            with(|shared| {
                shared.log.write(record::STACK, Payload::default().u32(thread_id()).u32(0).u64(address));
            });
        }
    }

    /// Every few hundred accesses.
    #[cold]
    #[inline(never)]
    fn tick(&mut self) {
        self.ticks = EPOCH_ACCESSES;
        tick();
        if ENTRIES.load(Ordering::Relaxed) > ENTRIES_MAX.load(Ordering::Relaxed) {
            with(Shared::sample_less);
        }
        let sample = SAMPLE.load(Ordering::Relaxed);
        if let Some(table) = &mut self.table {
            table.resample(sample);
            table.settle();
        }
    }

    /// What was counted so far was before any window, or before this thread's first.
    #[cold]
    #[inline(never)]
    fn start_afresh(&mut self) {
        let kind = if self.marked { window::OWN } else { window::OTHERS };
        with(|shared| {
            if let Some(table) = self.table.take() {
                table.discard();
            }
            self.table = shared.table(self.number, kind);
        });
        self.mode.store(ON, Ordering::Relaxed);
    }

    fn begin_window(&mut self) {
        self.depth += 1;
        if self.depth > 1 {
            return;
        }
        let first = !self.marked;
        self.marked = true;
        with(|_| {
            // Those that never marked count while a window is open, and start over at the first.
            let fresh = !WINDOWS.swap(true, Ordering::Relaxed);
            let open = OPEN.fetch_add(1, Ordering::Relaxed) == 0;
            if fresh || open {
                others(|mode| mode.store(if fresh { AFRESH } else { ON }, Ordering::Relaxed), self);
            }
        });
        if first {
            self.start_afresh();
        }
        self.mode.store(ON, Ordering::Relaxed);
    }

    fn end_window(&mut self) {
        if self.depth == 0 {
            return;
        }
        self.depth -= 1;
        if self.depth > 0 {
            return;
        }
        self.mode.store(OFF, Ordering::Relaxed);
        if let Some(table) = &self.table {
            table.settle();
        }
        with(|_| {
            if OPEN.fetch_sub(1, Ordering::Relaxed) == 1 {
                others(|mode| mode.store(OFF, Ordering::Relaxed), self);
            }
        });
    }
}

/// Does this to the mode of every thread that never marked, `this` excepted. Under the lock.
fn others(f: impl Fn(&AtomicU8), this: &Thread) {
    for slot in &THREADS {
        let thread = slot.load(Ordering::Relaxed);
        if thread.is_null() || std::ptr::eq(thread, this) {
            continue;
        }
        // SAFETY: states are freed under the lock, which is held. Only the atomic mode and the mark are looked at; a mark
        // that is being set at this moment leaves either value, and whoever sets it sets its own mode afterwards.
        unsafe {
            if !(&raw const (*thread).marked).read_volatile() {
                f(&(*thread).mode);
            }
        }
    }
}

// --- threads ---

unsafe extern "C" fn on_start(_: Id, vcpu: c_uint) {
    // An end that was not told: the number is used again all the same.
    end_thread(vcpu);
}

unsafe extern "C" fn on_end(_: Id, vcpu: c_uint) {
    end_thread(vcpu);
}

fn end_thread(vcpu: c_uint) {
    let Some(slot) = THREADS.get(vcpu as usize) else { return };
    with(|shared| {
        let thread = slot.swap(std::ptr::null_mut(), Ordering::Relaxed);
        if thread.is_null() {
            return;
        }
        // SAFETY: it came from a box, and is in the table no longer: its thread runs no further callback (I1), and others
        // look at it under the lock only, which is held.
        let thread = unsafe { Box::from_raw(thread) };
        if thread.depth > 0 && OPEN.fetch_sub(1, Ordering::Relaxed) == 1 {
            others(|mode| mode.store(OFF, Ordering::Relaxed), &thread);
        }
        if let Some(table) = thread.table {
            table.settle();
            table.set_u32(head::ENDED, epoch().max(1));
            shared.ended.push(table.end());
        }
    });
}

// --- code ---

unsafe extern "C" fn on_block(_: Id, block: *mut Block) {
    with(|shared| shared.translate(block));
}

unsafe extern "C" fn on_begin_mark(vcpu: c_uint, _: *mut c_void) {
    if let Some(thread) = this(vcpu) {
        thread.begin_window();
    }
}

unsafe extern "C" fn on_end_mark(vcpu: c_uint, _: *mut c_void) {
    if let Some(thread) = this(vcpu) {
        thread.end_window();
    }
}

/// A call instruction, with where it returns to.
unsafe extern "C" fn on_call_insn(vcpu: c_uint, returns_to: *mut c_void) {
    if let Some(thread) = this(vcpu) {
        thread.returns_to = returns_to as u64;
    }
}

/// The first instruction of a window's function.
unsafe extern "C" fn on_enter(vcpu: c_uint, _: *mut c_void) {
    if let Some(thread) = this(vcpu) {
        let returns_to = thread.returns_to;
        thread.returns.push(returns_to);
        thread.begin_window();
    }
}

/// The first instruction of a block, one that may be where a call returns to.
unsafe extern "C" fn on_block_run(vcpu: c_uint, address: *mut c_void) {
    if let Some(thread) = this(vcpu)
        && thread.returns.last() == Some(&(address as u64))
    {
        thread.returns.pop();
        thread.end_window();
    }
}

impl Shared {
    /// A new table for this thread.
    fn table(&mut self, number: u32, kind: u32) -> Option<Table> {
        let name = match kind {
            window::WHOLE => format!("table-{}-{number}", self.pid),
            _ => format!("table-{}-{number}-w", self.pid),
        };
        let table = Table::create(&self.folder.join(name), SAMPLE.load(Ordering::Relaxed)).ok()?;
        table.set_u32(head::PID, self.pid);
        table.set_u32(head::TID, thread_id());
        table.set_u32(head::NUMBER, number);
        table.set_u32(head::WINDOW, kind);
        table.set_u32(head::STARTED, epoch());
        if let Ok(name) = std::fs::read("/proc/thread-self/comm") {
            table.set_name(name.trim_ascii_end());
        }
        Some(table)
    }

    /// There are too many entries: half of the lines from here on, everywhere.
    fn sample_less(&mut self) {
        if ENTRIES.load(Ordering::Relaxed) <= ENTRIES_MAX.load(Ordering::Relaxed) {
            return;
        }
        let shift = SAMPLE.load(Ordering::Relaxed) + 1;
        if shift >= 30 {
            return;
        }
        SAMPLE.store(shift, Ordering::Relaxed);
        self.log.write(record::SAMPLE, Payload::default().u32(shift).u32(0));
        let ended = std::mem::take(&mut self.ended);
        for path in &ended {
            crate::table::resample_file(path, shift);
        }
        self.ended = ended;
    }

    fn translate(&mut self, block: *mut Block) {
        let api = self.api;
        // SAFETY: `block` is the emulator's, for the length of this callback, and so are its instructions.
        let count = unsafe { (api.insns_count)(block) };
        let by_symbol = self.windows == Windows::Symbols;
        let by_mark = matches!(self.windows, Windows::Auto | Windows::Marks);
        for at in 0..count {
            // SAFETY: as above; `at` is below the count.
            let (insn, address, bytes, size) = unsafe {
                let insn = (api.insn)(block, at);
                (insn, (api.address)(insn), (api.bytes)(insn), (api.size)(insn))
            };
            let code: &[u8] = if bytes.is_null() {
                &[]
            } else {
                // SAFETY: in user mode this is where the instruction lies in the emulator's memory, whole.
                unsafe { std::slice::from_raw_parts(bytes, size.min(15)) }
            };
            if at == 0 {
                self.note_code(address, bytes as u64);
                if by_symbol {
                    // SAFETY: as above; the callback has the type that is asked for.
                    unsafe {
                        (api.on_block_run)(block, on_block_run, api::NO_REGISTERS, address as *mut c_void)
                    };
                }
            }
            let decoded = self.arch.decode(code);
            let site = address & ((1 << SITE_BITS) - 1) | u64::from(decoded.kind) << SITE_BITS;
            let mark: Option<api::OnInsn> = match decoded.mark {
                Some(Mark::Begin) if by_mark => Some(on_begin_mark),
                Some(Mark::End) if by_mark => Some(on_end_mark),
                _ => None,
            };
            // An atomic instruction is one access, a write: some emulators tell of it once, later ones of its halves.
            let which = if decoded.kind == insn_kind::PLAIN { api::READS_AND_WRITES } else { api::WRITES };
            // SAFETY: the callbacks have the types that are asked for, and what they are given is a number to them.
            unsafe {
                if let Some(mark) = mark {
                    (api.on_insn)(insn, mark, api::NO_REGISTERS, std::ptr::null_mut());
                }
                if by_symbol {
                    if self.symbols.iter().any(|symbol| symbol.address == Some(address)) {
                        (api.on_insn)(insn, on_enter, api::NO_REGISTERS, std::ptr::null_mut());
                    }
                    if decoded.call {
                        let returns_to = address + size as u64;
                        (api.on_insn)(insn, on_call_insn, api::NO_REGISTERS, returns_to as *mut c_void);
                    }
                }
                (api.on_access)(insn, on_access, api::NO_REGISTERS, which, site as *mut c_void);
            }
        }
    }

    /// New code: where the emulator keeps the program's memory, and what is mapped, when that is not yet known.
    fn note_code(&mut self, address: u64, bytes: u64) {
        if self.guest_base.is_none() && bytes != 0 {
            let base = bytes.wrapping_sub(address);
            self.guest_base = Some(base);
            self.note_info();
        }
        if !self.code.iter().any(|(start, end)| (*start..*end).contains(&address)) {
            self.note_maps();
            // What is code and in no mapping (a page of the emulator's own) is not asked for again.
            if !self.code.iter().any(|(start, end)| (*start..*end).contains(&address)) {
                self.code.push((address & !4095, (address & !4095) + 4096));
            }
        }
    }

    fn note_info(&mut self) {
        let name: &[u8] = match self.arch {
            Arch::X86 => b"x86_64",
            Arch::Arm => b"aarch64",
        };
        let payload =
            Payload::default().u64(self.guest_base.unwrap_or(0)).u32(parent_id()).u32(0).bytes(name);
        self.log.write(record::INFO, payload);
    }

    fn note_maps(&mut self) {
        let Ok(text) = std::fs::read_to_string("/proc/self/maps") else { return };
        let base = self.guest_base.unwrap_or(0);
        self.code.clear();
        for line in text.lines() {
            let Some((start, end, code, offset, path)) = mapping(line) else { continue };
            let (start, end) = (start.wrapping_sub(base), end.wrapping_sub(base));
            // The emulator maps the program's code without the right to run it.
            let _ = code;
            self.code.push((start, end));
            for symbol in &mut self.symbols {
                if symbol.path == path.as_bytes() && (offset..offset + (end - start)).contains(&symbol.offset)
                {
                    symbol.address = Some(start + (symbol.offset - offset));
                }
            }
        }
        self.log.write(record::MAPS, Payload::default().u32(epoch()).u32(0).bytes(text.as_bytes()));
    }

    /// Bytes of the program's memory; fewer, or none, where nothing is mapped.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        let at = address.wrapping_add(self.guest_base.unwrap_or(0));
        self.memory.read_at(bytes, at).unwrap_or(0)
    }

    /// The text at this address, up to its zero.
    pub(crate) fn read_text(&self, address: u64) -> Vec<u8> {
        let mut text = Vec::new();
        let mut part = [0; 256];
        while text.len() < PATH_MAX {
            // Not beyond the page: the next may not be there.
            let here = address + text.len() as u64;
            let length = part.len().min(4096 - (here & 4095) as usize);
            let got = self.read(here, &mut part[..length]);
            let end = part[..got].iter().position(|byte| *byte == 0);
            text.extend_from_slice(&part[..end.unwrap_or(got)]);
            if end.is_some() || got == 0 {
                break;
            }
        }
        text
    }
}

/// Start, end, whether it is code, offset and path of a line of `/proc/self/maps`.
fn mapping(line: &str) -> Option<(u64, u64, bool, u64, &str)> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let offset = words.next()?;
    let path = words.nth(2).unwrap_or("").trim();
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?, rights.contains('x'), number(offset)?, path))
}

// --- forks ---

unsafe extern "C" {
    fn pthread_atfork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> c_int;
    fn getpid() -> c_int;
    fn getppid() -> c_int;
    fn gettid() -> c_int;
}

fn thread_id() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { gettid() }.cast_unsigned()
}

fn process_id() -> u32 {
    // SAFETY: as above.
    unsafe { getpid() }.cast_unsigned()
}

fn parent_id() -> u32 {
    // SAFETY: as above.
    unsafe { getppid() }.cast_unsigned()
}

extern "C" fn before_fork() {
    SHARED.hold();
}

extern "C" fn after_fork() {
    SHARED.release();
}

extern "C" fn in_child() {
    SHARED.release();
    for slot in &THREADS {
        // Forgotten, not freed: the tables are the parent's (I4).
        slot.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
    ENTRIES.store(0, Ordering::Relaxed);
    OPEN.store(0, Ordering::Relaxed);
    let _ = with(Shared::start_over);
}

impl Shared {
    fn start_over(&mut self) {
        self.pid = process_id();
        self.threads_count = 0;
        self.ended.clear();
        self.sites.clear();
        self.futexes.clear();
        self.blocks = 0;
        let log = Log::create(&self.folder.join(format!("log-{}", self.pid)), self.pid);
        if let (Ok(log), Ok(memory)) = (log, File::open("/proc/self/mem")) {
            self.log = log;
            self.memory = memory;
            self.note_info();
            self.note_maps();
        }
    }
}

// --- the beginning ---

/// Which accesses count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    /// All.
    None,
    /// All until a thread marks, then those between marks.
    Auto,
    /// Those between marks.
    Marks,
    /// Those in calls of a function.
    Symbols,
}

/// The arguments: `folder=PATH,entries=N,window=none|marks|auto|symbols`.
fn arguments(arguments: &[&str]) -> Result<(PathBuf, u64, Windows), String> {
    let (mut folder, mut entries, mut windows) = (None, u64::MAX, Windows::Auto);
    for argument in arguments {
        match argument.split_once('=') {
            Some(("folder", path)) => folder = Some(PathBuf::from(path)),
            Some(("entries", number)) => entries = number.parse().map_err(|_| format!("entries={number}"))?,
            Some(("window", "none")) => windows = Windows::None,
            Some(("window", "auto")) => windows = Windows::Auto,
            Some(("window", "marks")) => windows = Windows::Marks,
            Some(("window", "symbols")) => windows = Windows::Symbols,
            _ => return Err((*argument).to_owned()),
        }
    }
    Ok((folder.ok_or("no folder")?, entries, windows))
}

/// The file `symbols` in the folder: an offset in hexadecimal, a blank, and the path of the file, on each line.
fn symbols(folder: &std::path::Path) -> Vec<Symbol> {
    let text = std::fs::read_to_string(folder.join("symbols")).unwrap_or_default();
    let symbol = |line: &str| {
        let (offset, path) = line.split_once(' ')?;
        let offset = u64::from_str_radix(offset, 16).ok()?;
        Some(Symbol { path: path.as_bytes().to_vec(), offset, address: None })
    };
    text.lines().filter_map(symbol).collect()
}

fn install(id: Id, target: &str, words: &[&str]) -> Result<(), String> {
    let arch = Arch::named(target).ok_or_else(|| format!("programs of {target} are not understood"))?;
    let api = Api::find().map_err(|name| format!("the emulator has no {name}"))?;
    let (folder, entries, windows) = arguments(words)?;
    let pid = process_id();
    let log = Log::create(&folder.join(format!("log-{pid}")), pid).map_err(|e| e.to_string())?;
    let memory = File::open("/proc/self/mem").map_err(|e| e.to_string())?;
    let symbols = if windows == Windows::Symbols { symbols(&folder) } else { Vec::new() };
    ENTRIES_MAX.store(entries, Ordering::Relaxed);
    WINDOWS.store(matches!(windows, Windows::Marks | Windows::Symbols), Ordering::Relaxed);
    let shared = Shared {
        folder,
        pid,
        arch,
        api,
        log,
        memory,
        guest_base: None,
        threads_count: 0,
        ended: Vec::new(),
        code: Vec::new(),
        sites: HashMap::new(),
        futexes: HashMap::new(),
        blocks: 0,
        symbols,
        windows,
    };
    SHARED.with(|state| *state = Some(shared));
    // SAFETY: the callbacks have the types that are asked for; those of the fork only touch statics.
    unsafe {
        pthread_atfork(before_fork, after_fork, in_child);
        (api.on_start)(id, on_start);
        (api.on_end)(id, on_end);
        (api.on_block)(id, on_block);
        (api.on_call)(id, on_call);
        (api.on_return)(id, on_return);
    }
    Ok(())
}

/// What the emulator calls when it has loaded the library.
///
/// # Safety
/// To be called by the emulator: `info` and the `count` texts at `words` are valid meanwhile.
#[cfg_attr(squall_plugin, unsafe(no_mangle))]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const c_void,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    let text = |at: *const c_char| {
        // SAFETY: a text of the emulator's, which ends with a zero.
        unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
    };
    let info = info.cast::<Info>();
    // SAFETY: valid meanwhile; the fields that are looked at are those of every version.
    let (target, system) = unsafe { (text((*info).target), (*info).whole_system) };
    let words: Vec<String> = (0..usize::try_from(count).unwrap_or(0))
        // SAFETY: there are `count` of them.
        .map(|at| text(unsafe { *words.add(at) }))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done =
        if system { Err("this is not user-mode emulation".to_owned()) } else { install(id, &target, &words) };
    match done {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("squall-locality-plugin: {why}");
            1
        }
    }
}

/// The version of the interface, which the emulator reads before it calls [`qemu_plugin_install`].
#[cfg_attr(squall_plugin, unsafe(no_mangle), used)]
#[allow(non_upper_case_globals, reason = "the emulator's name")]
pub static qemu_plugin_version: AtomicU32 = AtomicU32::new(1);

/// Run when the library is loaded, before the version is read.
#[cfg_attr(squall_plugin, used, unsafe(link_section = ".init_array"))]
#[cfg_attr(not(squall_plugin), allow(dead_code, reason = "for the library alone"))]
static ON_LOAD: extern "C" fn() = {
    extern "C" fn on_load() {
        qemu_plugin_version.store(api::version().cast_unsigned(), Ordering::Relaxed);
    }
    on_load
};
