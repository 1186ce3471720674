//! The plugin: instruments code and handles rare events.
//!
//! Idea: each thread counts its own accesses (`threads`). All other events (new code, threads, mappings,
//! blocks, windows) are rare, and are logged under one lock.
//!
//! - I1. A forked child starts over with its own keeper, log and tables. It forgets the inherited ones, which
//!   belong to the parent, without touching them. The forking thread keeps its window, and blocks stay
//!   allocated; therefore the child's log records the position in the parent's log where it begins.
//! - I2. Accesses of the preloaded library's instructions are not reported. Its calls to other libraries,
//!   except the allocator's own work, lie between `BEGIN_UNCOUNTED` and `END_UNCOUNTED`.
//!
//! Not promised: accesses after `exec`, because the emulator ends there.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::api::{self, Api, Block, Id, Info};
use crate::arch::{Arch, Mark};
use crate::callbacks;
use crate::format::{SITE_BITS, head, insn as insn_kind, record, window};
use crate::lock::Lock;
use crate::log::{Log, Payload};
use crate::regions::{Owner, Regions};
use crate::table::{Ended, Table};
use crate::threads::{self, epoch};
use crate::{helpers, keeper, run, sys};

/// Maximum number of recorded bytes of a path.
const PATH_MAX: usize = 4_096;

static SHARED: Lock<Option<Shared>> = Lock::new(None);

/// State shared by all threads.
pub(crate) struct Shared {
    /// Folder of the files, for the keeper of a forked child.
    folder: &'static CStr,
    pid: u32,
    /// Number of the process in the run.
    process: u32,
    pub(crate) arch: Arch,
    pub(crate) api: Api,
    pub(crate) log: Log,
    pub(crate) guest_base: Option<u64>,
    pub(crate) threads_count: u32,
    /// Tables of ended threads, which are resampled when room runs out, and their current sample.
    pub(crate) ended: Vec<Ended>,
    sampled: u32,
    code: Regions,
    /// Path of the preloaded library, as the kernel reports it.
    preload: Vec<u8>,
    pub(crate) sites: HashMap<Vec<u64>, u32>,
    pub(crate) futexes: HashSet<u64>,
    pub(crate) blocks_cut: bool,
    symbols: Vec<Symbol>,
    windows: Windows,
}

/// A function whose calls are windows.
struct Symbol {
    path: Vec<u8>,
    offset: u64,
    address: Option<u64>,
}

pub(crate) fn with<R>(f: impl FnOnce(&mut Shared) -> R) -> Option<R> {
    SHARED.with(|shared| shared.as_mut().map(f))
}

// --- code ---

/// Instruments a new block of code, which is valid during this call.
pub(crate) fn translate(block: *mut Block) {
    with(|shared| shared.translate(block));
}

impl Shared {
    /// Creates a table for this thread. Returns `None` if there is no room; the loss is counted.
    pub(crate) fn table(&mut self, number: u32, kind: u32) -> Option<Table> {
        let suffix = if kind == window::WHOLE { "" } else { "-w" };
        let name = CString::new(format!("table-{}-{number}{suffix}", self.process)).unwrap_or_default();
        let Ok(table) = Table::create(name, run::current().sample()) else {
            run::current().miss_thread();
            return None;
        };
        table.set_u32(head::PID, self.pid);
        table.set_u32(head::PROCESS, self.process);
        table.set_u32(head::TID, thread_id());
        table.set_u32(head::NUMBER, number);
        table.set_u32(head::WINDOW, kind);
        table.set_u32(head::STARTED, epoch());
        let mut name = [0u8; 16];
        // SAFETY: PR_GET_NAME stores 16 bytes.
        unsafe { sys::call(sys::number::PRCTL, [16, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
        table.set_name(&name);
        Some(table)
    }

    /// Applies a coarser sample to the tables that no running thread maintains.
    pub(crate) fn keep_up(&mut self, sample: u32) {
        if self.sampled >= sample {
            return;
        }
        self.sampled = sample;
        self.log.write(record::SAMPLE, Payload::default().u32(sample).u32(0));
        for ended in &mut self.ended {
            ended.resample(sample);
        }
        threads::resample_parked(sample);
    }

    /// Records the stack of a thread.
    pub(crate) fn note_stack(&mut self, tid: u32, address: u64) {
        self.log.write(record::STACK, Payload::default().u32(tid).u32(0).u64(address));
    }

    fn translate(&mut self, block: *mut Block) {
        // SAFETY: `block` and its instructions belong to the emulator and are valid during this callback.
        let count = unsafe { (self.api.insns_count)(block) };
        for at in 0..count {
            self.instrument(block, at);
        }
    }

    /// Registers the callbacks for one instruction.
    fn instrument(&mut self, block: *mut Block, at: usize) {
        let api = self.api;
        // SAFETY: `block` is valid during this callback, and `at` is below the count.
        let (insn, address, bytes, size) = unsafe {
            let insn = (api.insn)(block, at);
            (insn, (api.address)(insn), (api.bytes)(insn), (api.size)(insn))
        };
        let code: &[u8] = if bytes.is_null() {
            &[]
        } else {
            // SAFETY: in user mode, `bytes` points to the whole instruction in the emulator's memory.
            unsafe { std::slice::from_raw_parts(bytes, size.min(15)) }
        };
        if at == 0 {
            self.note_code(address, bytes as u64);
        }
        let decoded = self.arch.decode(code);
        let site = address & ((1 << SITE_BITS) - 1) | u64::from(decoded.kind) << SITE_BITS;
        let mark: Option<api::OnInsn> = match decoded.mark {
            Some(_) if !matches!(self.windows, Windows::Auto | Windows::Marks) => None,
            Some(Mark::Begin) => Some(threads::on_begin_mark),
            Some(Mark::End) => Some(threads::on_end_mark),
            None => None,
        };
        let counts = self.code.at(address) != Some(Owner::Preload);
        let is_atomic = decoded.kind != insn_kind::PLAIN;
        let mut on_access = counts.then(|| self.access_callback(address, code, is_atomic));
        let on_insn = |f: api::OnInsn, argument: u64| {
            // SAFETY: the callback has the expected type, and treats its argument as a number.
            unsafe { (api.on_insn)(insn, f, api::NO_REGISTERS, argument as *mut c_void) };
        };
        if let Some(mark) = mark {
            on_insn(mark, 0);
        }
        if counts && self.leads_to_helper(address, code) {
            on_insn(threads::on_helper_call, address);
        }
        if self.windows == Windows::Symbols {
            let stores = self.arch.stores_returns();
            if at == 0 && !stores {
                // SAFETY: the callback has the expected type, and treats its argument as a number.
                unsafe {
                    (api.on_block_run)(
                        block,
                        threads::on_block_run,
                        api::NO_REGISTERS,
                        address as *mut c_void,
                    )
                };
            }
            if self.symbols.iter().any(|symbol| symbol.address == Some(address)) {
                on_insn(threads::on_enter, 0);
            }
            match (decoded.call, decoded.ret) {
                (true, _) if stores && counts => on_access = Some(threads::on_call_access),
                (_, true) if stores && counts => on_access = Some(threads::on_return_access),
                (true, _) if stores => on_access = Some(threads::on_quiet_call_access),
                (_, true) if stores => on_access = Some(threads::on_quiet_return_access),
                (true, _) => on_insn(threads::on_call_run, address + size as u64),
                (_, true) => on_insn(threads::on_return_run, 0),
                _ => {}
            }
        }
        let Some(on_access) = on_access else { return };
        // An atomic instruction counts as one write. Some emulators report it once, later ones report both
        // halves.
        let which = if is_atomic { api::WRITES } else { api::READS_AND_WRITES };
        // SAFETY: the callback has the expected type, and treats its argument as a number.
        unsafe { (api.on_access)(insn, on_access, api::NO_REGISTERS, which, site as *mut c_void) };
    }

    /// Callback for the accesses of this instruction. The atomic accesses of a compiler helper count for its
    /// caller.
    fn access_callback(&self, address: u64, code: &[u8], is_atomic: bool) -> api::OnAccess {
        let mut before = [0; helpers::BEFORE];
        let mut inside = |length: usize| {
            let before = &mut before[..length];
            self.read(address.wrapping_sub(length as u64), before) == length && helpers::is_inside(before)
        };
        // The page before may be unmapped; then fewer bytes are inspected.
        let in_page = helpers::BEFORE.min((address & 4095) as usize);
        let may = self.arch == Arch::Arm && helpers::may_be_operation(code, is_atomic);
        if may && (inside(helpers::BEFORE) || inside(in_page)) {
            threads::on_helper_access
        } else {
            threads::on_access
        }
    }

    /// Whether the instruction branches to a compiler helper.
    fn leads_to_helper(&self, address: u64, code: &[u8]) -> bool {
        let mut head = [0; helpers::HEAD];
        let target = if self.arch == Arch::Arm { helpers::target(address, code) } else { None };
        target.is_some_and(|target| {
            let got = self.read(target, &mut head);
            helpers::begins(&head[..got])
        })
    }

    /// Handles new code: determines the emulator's base of the program's memory and reads the mappings, if
    /// unknown.
    fn note_code(&mut self, address: u64, bytes: u64) {
        if self.guest_base.is_none() && bytes != 0 {
            let base = bytes.wrapping_sub(address);
            self.guest_base = Some(base);
            self.note_info();
        }
        if self.code.at(address).is_none() {
            self.note_maps();
            // Code outside all mappings (a page of the emulator) is recorded, so that the mappings are not
            // read again.
            if self.code.at(address).is_none() {
                let page = address & !4095;
                self.code.map(page, page.saturating_add(4096), Owner::Program);
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
        let Ok(text) = keeper::read(c"/proc/thread-self/maps") else { return };
        let base = self.guest_base.unwrap_or(0);
        self.code.clear();
        for (start, end, offset, path) in text.split(|byte| *byte == b'\n').filter_map(mapping) {
            self.note_mapping(start.wrapping_sub(base), end.wrapping_sub(base), offset, path);
        }
        self.log.write(record::MAPS, Payload::default().u32(epoch()).u32(0).bytes(&text));
    }

    /// Records a mapping. Every mapping may hold code, because the emulator maps the program's code without
    /// the right to execute it.
    pub(crate) fn note_mapping(&mut self, start: u64, end: u64, offset: u64, path: &[u8]) {
        let owner = if path == self.preload { Owner::Preload } else { Owner::Program };
        self.code.map(start, end, owner);
        for symbol in &mut self.symbols {
            let here = offset..offset.saturating_add(end.saturating_sub(start));
            if symbol.path == path && here.contains(&symbol.offset) {
                symbol.address = Some(start + (symbol.offset - offset));
            }
        }
    }

    /// Removes a range that was, or is about to be, unmapped.
    pub(crate) fn forget_mapping(&mut self, start: u64, length: u64) {
        self.code.unmap(start, start.saturating_add(length));
    }

    /// Records a mapping that was moved or resized.
    pub(crate) fn move_mapping(&mut self, old: u64, old_length: u64, start: u64, length: u64) {
        let owner = self.code.at(old).unwrap_or(Owner::Program);
        self.forget_mapping(old, old_length);
        self.code.map(start, start.saturating_add(length), owner);
    }

    /// Reads the program's memory. Returns the number of bytes read, which is smaller at an unmapped address.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        let at = address.wrapping_add(self.guest_base.unwrap_or(0));
        usize::try_from(sys::read_memory(self.pid, at as usize, bytes)).unwrap_or(0)
    }

    /// Writes to the program's memory. Returns whether all bytes were written.
    pub(crate) fn store(&self, address: u64, bytes: &[u8]) -> bool {
        let at = address.wrapping_add(self.guest_base.unwrap_or(0));
        usize::try_from(sys::write_memory(self.pid, at as usize, bytes)) == Ok(bytes.len())
    }

    /// Reads the zero-terminated text at this address.
    pub(crate) fn read_text(&self, address: u64) -> Vec<u8> {
        let mut text = Vec::new();
        let mut part = [0; 256];
        while text.len() < PATH_MAX {
            // Stops at the end of the page, because the next one may be unmapped.
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

/// Parses a line of `/proc/self/maps`: start, end, offset and path.
fn mapping(line: &[u8]) -> Option<(u64, u64, u64, &[u8])> {
    let mut words = line.splitn(6, |byte| *byte == b' ');
    let number = |text: &[u8]| u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok();
    let mut range = words.next()?.splitn(2, |byte| *byte == b'-');
    let (start, end) = (number(range.next()?)?, number(range.next()?)?);
    let offset = number(words.nth(1)?)?;
    Some((start, end, offset, words.nth(2).unwrap_or_default().trim_ascii()))
}

// --- forks ---

unsafe extern "C" {
    fn pthread_atfork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> c_int;
    fn getpid() -> c_int;
    fn getppid() -> c_int;
    fn gettid() -> c_int;
}

pub(crate) fn thread_id() -> u32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { gettid() }.cast_unsigned()
}

fn process_id() -> u32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { getpid() }.cast_unsigned()
}

fn parent_id() -> u32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { getppid() }.cast_unsigned()
}

extern "C" fn before_fork() {
    SHARED.hold();
    keeper::hold();
}

extern "C" fn after_fork() {
    keeper::release();
    SHARED.release();
}

extern "C" fn in_child() {
    keeper::release();
    SHARED.release();
    let _ = with(Shared::start_over);
}

fn log_name(process: u32) -> CString {
    CString::new(format!("log-{process}")).unwrap_or_default()
}

impl Shared {
    fn start_over(&mut self) {
        let (parent, parents_bytes) = (self.process, self.log.bytes());
        self.pid = process_id();
        self.process = run::current().new_process();
        self.threads_count = 0;
        self.ended.clear();
        self.sampled = run::current().sample();
        // Without a keeper the child creates no files, and its losses are counted.
        let log = keeper::start(self.folder)
            .and_then(|()| Log::create(log_name(self.process), self.pid, self.process));
        match log {
            Ok(log) => {
                self.log = log;
                // The child inherits blocks, their allocation sites, and futex words.
                self.log.write(record::FORKED, Payload::default().u32(parent).u32(0).u64(parents_bytes));
                self.note_info();
                self.note_maps();
            }
            Err(_) => {
                self.log.stop();
                run::current().miss_process();
            }
        }
        threads::begin_child(self);
    }
}

// --- the beginning ---

/// Selects the accesses that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    /// No windows: all accesses count.
    None,
    /// All accesses until a thread marks, then those between marks.
    Auto,
    /// Accesses between marks.
    Marks,
    /// Accesses in calls of a function.
    Symbols,
    /// Accesses while the profiler lets them count. `true`: from the beginning.
    Told(bool),
}

/// Parses the arguments `folder=PATH,entries=N,window=none|marks|auto|symbols|on|off`.
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
            Some(("window", "on")) => windows = Windows::Told(true),
            Some(("window", "off")) => windows = Windows::Told(false),
            _ => return Err((*argument).to_owned()),
        }
    }
    Ok((folder.ok_or("no folder")?, entries, windows))
}

/// Reads the file `symbols` in the folder. Each line has an offset in hexadecimal, a blank, and the path of
/// the file.
fn symbols(folder: &std::path::Path) -> Vec<Symbol> {
    let text = std::fs::read_to_string(folder.join("symbols")).unwrap_or_default();
    let symbol = |line: &str| {
        let (offset, path) = line.split_once(' ')?;
        let offset = u64::from_str_radix(offset, 16).ok()?;
        Some(Symbol { path: path.as_bytes().to_vec(), offset, address: None })
    };
    text.lines().filter_map(symbol).collect()
}

fn install(id: Id, version: c_int, target: &str, words: &[&str]) -> Result<(), String> {
    let arch = Arch::named(target).ok_or_else(|| format!("programs for {target} are not supported"))?;
    let lacks = |name: &str| format!("the emulator has no {name}");
    let api = Api::find().map_err(lacks)?;
    let (folder, entries, windows) = arguments(words)?;
    let symbols = if windows == Windows::Symbols { symbols(&folder) } else { Vec::new() };
    // If the path is unknown, no code is attributed to the preloaded library.
    let preload = std::fs::canonicalize(folder.join("preload.so")).unwrap_or_default();
    let pid = process_id();
    let folder = CString::new(folder.into_os_string().into_encoded_bytes()).map_err(|e| e.to_string())?;
    // Leaked, because every forked child needs it.
    let folder: &'static CStr = Box::leak(folder.into_boxed_c_str());
    let failed = |what: &str, error: isize| {
        let error = std::io::Error::from_raw_os_error(error as i32);
        format!("{what} in {}: {error}", folder.to_string_lossy())
    };
    keeper::start(folder).map_err(|e| failed("cannot start the keeper thread", e))?;
    run::begin(entries).map_err(|e| failed("cannot create the page of the run", e))?;
    let process = run::current().new_process();
    let log = Log::create(log_name(process), pid, process).map_err(|e| failed("cannot create a log", e))?;
    if matches!(windows, Windows::Marks | Windows::Symbols) {
        threads::count_in_windows_only();
    }
    let shared = Shared {
        folder,
        pid,
        process,
        arch,
        api,
        log,
        guest_base: None,
        threads_count: 0,
        ended: Vec::new(),
        sampled: 0,
        code: Regions::default(),
        preload: preload.into_os_string().into_encoded_bytes(),
        sites: HashMap::new(),
        futexes: HashSet::new(),
        blocks_cut: false,
        symbols,
        windows,
    };
    SHARED.with(|state| *state = Some(shared));
    if windows == Windows::Told(false) {
        run::current().pause();
        threads::follow_pause();
    }
    // SAFETY: the handlers only access statics.
    unsafe { pthread_atfork(before_fork, after_fork, in_child) };
    callbacks::register(id, version).map_err(lacks)
}

/// Entry point: the emulator calls it after loading the library.
///
/// # Safety
/// Only the emulator may call it. `info` and the `count` texts at `words` are valid during the call.
#[cfg_attr(squall_plugin, unsafe(no_mangle))]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const c_void,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    let text = |at: *const c_char| {
        // SAFETY: a zero-terminated text of the emulator.
        unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
    };
    let info = info.cast::<Info>();
    // SAFETY: `info` is valid during the call; the fields used here exist in every version.
    let (target, version, system) =
        unsafe { (text((*info).target), (*info).version_now, (*info).whole_system) };
    let words: Vec<String> = (0..usize::try_from(count).unwrap_or(0))
        // SAFETY: there are `count` of them.
        .map(|at| text(unsafe { *words.add(at) }))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // Without this file, the starter of the emulator assumes that the plugin was rejected, and starts the
    // program again.
    let met = arguments(&words).and_then(|(folder, ..)| {
        let path = folder.join(MET);
        std::fs::write(&path, []).map_err(|error| format!("{}: {error}", path.display()))
    });
    let done = if system {
        Err("this is not user-mode emulation".to_owned())
    } else {
        met.and_then(|()| install(id, version, &target, &words))
    };
    match done {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("squall-locality-plugin: {why}");
            1
        }
    }
}

/// Name of the library for emulators with interface version 7 or later. Any other name is for earlier
/// versions.
pub const NAME_7: &str = "plugin-7.so";

/// Name of an empty file in the folder, created when the emulator has accepted the plugin.
pub const MET: &str = "met";

/// Interface version, which the emulator reads before it calls [`qemu_plugin_install`].
#[cfg_attr(squall_plugin, unsafe(no_mangle), used)]
#[allow(non_upper_case_globals, reason = "the emulator's name")]
pub static qemu_plugin_version: AtomicU32 = AtomicU32::new(1);

/// Runs when the library is loaded, before the emulator reads the version.
#[cfg_attr(squall_plugin, used, unsafe(link_section = ".init_array"))]
#[cfg_attr(not(squall_plugin), allow(dead_code, reason = "used only in the library"))]
static ON_LOAD: extern "C" fn() = {
    extern "C" fn on_load() {
        qemu_plugin_version.store(api::version().cast_unsigned(), Ordering::Relaxed);
    }
    on_load
};
