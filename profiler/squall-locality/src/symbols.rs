//! Resolves addresses to functions, files and lines with inlined frames, and to static variables.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::Error;

/// One frame of a code location: a function, possibly inlined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[non_exhaustive]
pub struct Frame {
    /// Name of the function, without its hash. Without symbols: name of the file and address in it.
    pub function: String,
    /// Source file, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in the source file, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl Frame {
    /// Whether the frame belongs to the standard library or to an allocator. Reports prefer other frames.
    #[must_use]
    pub fn is_library(&self) -> bool {
        const CRATES: &[&str] = &[
            "core::",
            "std::",
            "alloc::",
            "<core::",
            "<std::",
            "<alloc::",
            "__rust",
            "__rdl",
            "hashbrown::",
            "<hashbrown::",
        ];
        /// Libraries, and the dynamic loader. Most have only the names of exported functions.
        const FILES: &[&str] =
            &["libc.so", "libc-", "ld-linux", "ld-musl", "libstdc++.so", "libgcc_s.so", "preload.so"];
        let file = self.file.as_deref().unwrap_or("");
        file.starts_with("/rustc/")
            || file.starts_with("/rust/deps/")
            || file.contains("/rustlib/src/rust/library/")
            || CRATES.iter().any(|name| self.function.starts_with(name))
            || ["malloc", "calloc", "realloc", "free", "posix_memalign", "aligned_alloc"]
                .contains(&self.function.as_str())
            || FILES.iter().any(|name| self.function.starts_with(name) && self.function.contains("+0x"))
    }
}

/// Full names of lock types and lock functions: the standard library's, the C library's, and those of common
/// crates. Only whole names match, so `block` or `clock` do not.
const LOCKS: &[&str] = &[
    "Mutex",
    "RawMutex",
    "RawFairMutex",
    "FairMutex",
    "ReentrantLock",
    "ReentrantMutex",
    "RawReentrantMutex",
    "RwLock",
    "RawRwLock",
    "SpinMutex",
    "SpinLock",
    "Spinlock",
    "TicketMutex",
    "TicketLock",
    "Once",
    "OnceLock",
    "OnceCell",
    "LazyLock",
    "Semaphore",
    "lock",
    "try_lock",
    "unlock",
    "lock_slow",
    "unlock_slow",
    "lock_contended",
    "lock_shared",
    "lock_exclusive",
    "unlock_shared",
    "unlock_exclusive",
    "spin_lock",
    "spin_unlock",
    "pthread_mutex_lock",
    "pthread_mutex_trylock",
    "pthread_mutex_timedlock",
    "pthread_mutex_unlock",
    "pthread_mutex_unlock_usercnt",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_tryrdlock",
    "pthread_rwlock_wrlock",
    "pthread_rwlock_trywrlock",
    "pthread_rwlock_unlock",
    "pthread_spin_lock",
    "pthread_spin_trylock",
    "pthread_spin_unlock",
    "pthread_once",
    "pthread_once_slow",
    "lll_lock_wait",
    "lll_lock_wait_private",
    "lll_lock_wake",
    "sem_wait",
    "sem_trywait",
    "sem_timedwait",
    "sem_post",
];

/// Files of the standard library with its atomics and its locks. With `debug = "line-tables-only"` inlined
/// functions have bare names (`swap`, `read`), and only the file identifies them.
const ATOMICS_FILES: &[&str] = &["library/core/src/sync/atomic", "library/core/src/intrinsics/"];
const LOCKS_FILES: &[&str] = &[
    "library/std/src/sys/sync/mutex/",
    "library/std/src/sys/sync/rwlock/",
    "library/std/src/sys/sync/once/",
];

/// Whether the function belongs to an atomic type and only wraps the instruction.
fn is_atomic_function(frame: &Frame) -> bool {
    const NAMES: &[&str] =
        &["core::sync::atomic::", "<core::sync::atomic::", "core::intrinsics::", "std::__atomic_base"];
    NAMES.iter().any(|name| frame.function.starts_with(name)) || is_in(frame, ATOMICS_FILES)
}

fn is_in(frame: &Frame, files: &[&str]) -> bool {
    frame.file.as_ref().is_some_and(|path| files.iter().any(|file| path.contains(file)))
}

/// Whether the function that performs the atomic operation belongs to a lock. `frames` has the innermost
/// frame first. Outer frames are callers and do not count: code that runs under a lock is not the lock.
#[must_use]
pub fn is_lock_function(frames: &[Frame]) -> bool {
    let own = frames.iter().find(|frame| !is_atomic_function(frame));
    own.is_some_and(|frame| {
        let path = without_types(&frame.function);
        let words = path.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        // The C library exports the same function under several names with leading underscores.
        words.map(|word| word.trim_start_matches('_')).any(|word| LOCKS.contains(&word))
            || is_in(frame, LOCKS_FILES)
    })
}

/// Removes generic arguments and parameters from a function's path: `<a::Lock<T> as b::Raw>::take` becomes
/// `a::Lock as b::Raw::take`.
fn without_types(name: &str) -> String {
    let kept = i32::from(name.starts_with('<'));
    let mut depth = 0;
    let mut path = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            '(' if !path.is_empty() => break,
            _ if depth <= kept => path.push(letter),
            _ => {}
        }
    }
    path
}

/// A function whose calls can be a window.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Function {
    /// Name of the function.
    pub name: String,
    /// File offset of its first instruction.
    pub offset: u64,
}

/// Finds the functions of `program` called `name`: a full name, mangled or demangled, or the end of a path.
///
/// # Errors
/// If the program cannot be read or has no such function. The error lists similar names.
pub fn functions(program: &Path, name: &str) -> Result<Vec<Function>, Error> {
    let bytes = std::fs::read(program).map_err(|e| Error(format!("{}: {e}", program.display())))?;
    let file = object::File::parse(&*bytes).map_err(|e| Error(format!("{}: {e}", program.display())))?;
    let segments: Vec<(u64, u64, u64)> = file
        .segments()
        .map(|segment| {
            let (offset, length) = segment.file_range();
            (segment.address(), offset, length)
        })
        .collect();
    let (mut found, mut alike) = (Vec::new(), Vec::new());
    let last = name.rsplit("::").next().unwrap_or(name);
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let Ok(raw) = symbol.name() else { continue };
        if symbol.kind() != SymbolKind::Text || symbol.address() == 0 {
            continue;
        }
        let plain = demangle(raw);
        let offset = segments.iter().find_map(|(address, offset, length)| {
            let into = symbol.address().checked_sub(*address)?;
            (into < *length).then_some(offset + into)
        });
        let Some(offset) = offset else { continue };
        let bare = without_arguments(&plain);
        let wanted = [&*plain, bare].iter().any(|full| *full == name || full.ends_with(&format!("::{name}")));
        if raw == name || wanted {
            if !found.iter().any(|known: &Function| known.offset == offset) {
                found.push(Function { name: plain, offset });
            }
        } else if plain.contains(last) && alike.len() < 5 {
            alike.push(plain);
        }
    }
    if found.is_empty() {
        let alike =
            if alike.is_empty() { String::new() } else { format!("; similar names: {}", alike.join(", ")) };
        let program = program.display();
        return Err(Error(format!("{program} has no function {name} (or all its calls are inlined){alike}")));
    }
    Ok(found)
}

/// Removes the generic arguments at the end of a name.
fn without_arguments(name: &str) -> &str {
    let mut depth = 0;
    for (at, letter) in name.char_indices().rev() {
        match letter {
            // Part of `->` in a function type.
            '>' if name[..at].ends_with('-') => {}
            '>' => depth += 1,
            '<' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if letter == '<' { name[..at].strip_suffix("::").unwrap_or(name) } else { name };
        }
    }
    name
}

/// Demangles a Rust or C++ name and drops the hash. C names stay unchanged: demanglers would take `f` for
/// `float`.
#[must_use]
pub fn demangle(raw: &str) -> String {
    let mangled = |marks: &[&str]| marks.iter().any(|mark| raw.starts_with(mark));
    if mangled(&["_R", "__R", "_ZN", "__ZN"])
        && let Ok(rust) = rustc_demangle::try_demangle(raw)
    {
        return format!("{rust:#}");
    }
    if mangled(&["_Z", "__Z"])
        && let Some(name) = cpp_demangle::Symbol::new(raw).ok().and_then(|symbol| symbol.demangle().ok())
    {
        return name;
    }
    raw.to_owned()
}

/// A static variable.
#[derive(Clone, Debug)]
struct Datum {
    address: u64,
    size: u64,
    name: String,
}

/// Symbols of one mapped file.
struct Module {
    loader: Option<Loader>,
    /// Segments with their link-time address: address, file offset, length in the file, length in memory.
    segments: Vec<(u64, u64, u64, u64)>,
    /// Static variables, sorted by address.
    data: Vec<Datum>,
}

/// Maximum size in bytes of a file that is read for symbols.
const MODULE_BYTES_MAX: u64 = 8 << 30;

/// Whether the file is a regular ELF file of acceptable size. Programs also map devices and large data files.
fn has_symbols(path: &Path) -> bool {
    let of_size = std::fs::metadata(path)
        .is_ok_and(|meta| meta.is_file() && (1..=MODULE_BYTES_MAX).contains(&meta.len()));
    let mut magic = [0; 4];
    of_size
        && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *b"\x7fELF"
}

impl Module {
    fn open(path: &Path) -> Module {
        let mut module = Module { loader: None, segments: Vec::new(), data: Vec::new() };
        if !has_symbols(path) {
            return module;
        }
        module.loader = Loader::new(path).ok();
        let Ok(bytes) = std::fs::read(path) else { return module };
        let Ok(file) = object::File::parse(&*bytes) else { return module };
        for segment in file.segments() {
            let (offset, length) = segment.file_range();
            module.segments.push((segment.address(), offset, length, segment.size()));
        }
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if symbol.kind() == SymbolKind::Data && symbol.size() > 0 {
                let name = symbol.name().map(demangle).unwrap_or_default();
                module.data.push(Datum { address: symbol.address(), size: symbol.size(), name });
            }
        }
        module.data.sort_by_key(|datum| datum.address);
        module
    }

    /// Converts a file offset to a link-time address.
    fn own_address(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|(address, start, length, _)| {
            let into = offset.checked_sub(*start)?;
            (into < *length).then(|| address.wrapping_add(into))
        })
    }
}

/// Symbols of mapped files, read on first use.
#[derive(Default)]
pub struct Symbols {
    modules: HashMap<PathBuf, Module>,
    frames: HashMap<(PathBuf, u64), Vec<Frame>>,
}

impl Symbols {
    fn module(&mut self, path: &Path) -> &Module {
        self.modules.entry(path.to_path_buf()).or_insert_with(|| Module::open(path))
    }

    /// Frames of the instruction at this file offset, innermost first. An unknown function gets the name of
    /// the file and the address in it, as in `server+0x1a2b`.
    pub fn frames(&mut self, path: &Path, offset: u64) -> Vec<Frame> {
        if let Some(known) = self.frames.get(&(path.to_path_buf(), offset)) {
            return known.clone();
        }
        let module = self.module(path);
        let mut frames = find_frames(module, offset);
        if frames.is_empty() {
            frames.push(Frame::default());
        }
        for frame in frames.iter_mut().filter(|frame| frame.function.is_empty()) {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            frame.function = format!("{file}+{:#x}", module.own_address(offset).unwrap_or(offset));
        }
        self.frames.insert((path.to_path_buf(), offset), frames.clone());
        frames
    }

    /// Names of all static variables that overlap these bytes.
    pub fn data_in(&mut self, path: &Path, base: u64, start: u64, bytes: u64) -> Vec<String> {
        let module = self.module(path);
        let Some(first) =
            module.segments.iter().map(|(address, offset, ..)| address.wrapping_sub(*offset)).min()
        else {
            return Vec::new();
        };
        let own = start.wrapping_sub(base).wrapping_add(first);
        let at = module.data.partition_point(|datum| datum.address < own.saturating_add(bytes));
        let overlaps = |datum: &&Datum| datum.address.saturating_add(datum.size) > own;
        let mut names: Vec<String> = module.data[..at]
            .iter()
            .rev()
            .take(32)
            .filter(overlaps)
            .map(|datum| datum.name.clone())
            .collect();
        names.reverse();
        names.dedup();
        names
    }

    /// Whether the address lies in a segment of the file, including zeroed data beyond the mapped file
    /// contents.
    pub fn reaches(&mut self, path: &Path, base: u64, address: u64) -> bool {
        let module = self.module(path);
        let Some(first) =
            module.segments.iter().map(|(address, offset, ..)| address.wrapping_sub(*offset)).min()
        else {
            return false;
        };
        let own = address.wrapping_sub(base).wrapping_add(first);
        module
            .segments
            .iter()
            .any(|(start, _, _, size)| own.checked_sub(*start).is_some_and(|into| into < *size))
    }
}

fn find_frames(module: &Module, offset: u64) -> Vec<Frame> {
    let (Some(loader), Some(address)) = (&module.loader, module.own_address(offset)) else {
        return Vec::new();
    };
    let mut frames = Vec::new();
    if let Ok(mut found) = loader.find_frames(address) {
        while let Ok(Some(frame)) = found.next() {
            let name =
                frame.function.as_ref().and_then(|name| name.raw_name().ok().map(|raw| demangle(&raw)));
            let (file, line) = match &frame.location {
                Some(location) => (location.file.map(str::to_owned), location.line),
                None => (None, None),
            };
            frames.push(Frame { function: name.unwrap_or_default(), file, line });
        }
    }
    if let Some(last) = frames.last_mut()
        && last.function.is_empty()
    {
        last.function = loader.find_symbol(address).map(demangle).unwrap_or_default();
    }
    if frames.is_empty()
        && let Some(symbol) = loader.find_symbol(address)
    {
        frames.push(Frame { function: demangle(symbol), ..Frame::default() });
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_without_symbols_is_named_by_its_file_and_address() {
        let program = std::env::current_exe().expect("the path of this program");
        let own = functions(&program, "demangle").expect("it is a function of this program");
        let stripped = std::env::temp_dir().join(format!("squall-stripped-{}", std::process::id()));
        let mut bytes = std::fs::read(&program).expect("a file");
        // Offset, number and names of the sections in the head of the file. Symbols lie in sections.
        bytes[0x28..0x30].fill(0);
        bytes[0x3c..0x40].fill(0);
        std::fs::write(&stripped, bytes).expect("a file");
        let mut symbols = Symbols::default();
        let named = symbols.frames(&program, own[0].offset);
        assert!(named.iter().any(|frame| frame.function.contains("demangle")), "{named:?}");
        let frames = symbols.frames(&stripped, own[0].offset);
        std::fs::remove_file(&stripped).expect("it is there");
        let name = format!("squall-stripped-{}+0x", std::process::id());
        assert!(frames.len() == 1 && frames[0].function.starts_with(&name), "{frames:?}");
        assert!(frames[0].file.is_none() && !frames[0].is_library());
        let other = symbols.frames(Path::new("/proc/self/status"), 0x1a2b);
        assert_eq!(other, [Frame { function: "status+0x1a2b".to_owned(), file: None, line: None }]);
        assert!(Frame { function: "libc.so.6+0x9d0".to_owned(), ..Frame::default() }.is_library());
    }

    #[test]
    fn c_names_are_unchanged() {
        // A demangler accepts each of these: C++ types, or Rust paths without their underscore.
        for name in ["f", "i", "j", "main", "St", "RSA_new", "RNvC3foo3bar", "ZN3foo3barE", "", "_", "_exit"]
        {
            assert_eq!(demangle(name), name);
        }
        assert_eq!(demangle("_ZN3foo3barEv"), "foo::bar()");
        assert_eq!(
            demangle("_ZN4core3ops8function6FnOnce9call_once17h0123456789abcdefE"),
            "core::ops::function::FnOnce::call_once"
        );
        assert_eq!(demangle("_RNvC6_123foo3bar"), "123foo::bar");
    }

    #[test]
    fn locks_are_recognised_by_whole_function_names() {
        let frames = |names: &[&str]| -> Vec<Frame> {
            names.iter().map(|name| Frame { function: (*name).into(), ..Frame::default() }).collect()
        };
        let of_a_lock = |names: &[&str]| is_lock_function(&frames(names));
        let exchange = "core::sync::atomic::AtomicU32::compare_exchange";
        assert!(of_a_lock(&[exchange, "std::sys::sync::mutex::futex::Mutex::lock", "app::main"]));
        assert!(of_a_lock(&["<parking_lot::raw_mutex::RawMutex as lock_api::mutex::RawMutex>::lock"]));
        assert!(of_a_lock(&["dashmap::lock::RawRwLock::lock_exclusive"]));
        assert!(of_a_lock(&["___pthread_mutex_lock"]) && of_a_lock(&["std::mutex::lock()"]));
        for name in
            ["app::next_block", "clock", "app::clock::tick", "unblocked", "wall_clock_update", "app::lockers"]
        {
            assert!(!of_a_lock(&[exchange, name]), "{name}");
        }
        // Neither callers under a lock nor generic arguments make a function a lock.
        assert!(!of_a_lock(&[exchange, "app::push", "std::sys::sync::mutex::futex::Mutex::lock"]));
        assert!(!of_a_lock(&["<app::Stack<std::sync::Mutex<u8>>>::push"]));
        assert!(!of_a_lock(&["app::push::<std::sync::Mutex<u8>>"]) && !of_a_lock(&[]));
    }

    #[test]
    fn locks_are_recognised_by_file_if_functions_have_no_path() {
        let library = "/rustc/0123456789abcdef/library";
        let frame = |function: &str, file: &str| Frame {
            function: function.into(),
            file: Some(file.into()),
            line: Some(1),
        };
        let atomics = [
            frame("atomic_swap<u32>", &format!("{library}/core/src/sync/atomic.rs")),
            frame("swap", &format!("{library}/core/src/sync/atomic.rs")),
            frame("atomic_xchg<u32>", &format!("{library}/core/src/intrinsics/mod.rs")),
        ];
        let of_a_lock = |own: Frame| is_lock_function(&[&atomics[..], &[own]].concat());
        let sync = format!("{library}/std/src/sys/sync");
        assert!(of_a_lock(frame("unlock", &format!("{sync}/mutex/futex.rs"))));
        assert!(of_a_lock(frame("read", &format!("{sync}/rwlock/futex.rs"))));
        assert!(of_a_lock(frame("app::Lock::lock", "src/main.rs")));
        assert!(!of_a_lock(frame("read", "src/main.rs")));
        assert!(!of_a_lock(frame("read", &format!("{library}/std/src/io/mod.rs"))));
        assert!(!is_lock_function(&atomics), "an atomic by itself");
    }

    #[test]
    fn only_regular_elf_files_are_read() {
        for path in ["/dev/zero", "/dev/null", "/", "/no/such/file", "/proc/self/maps"] {
            assert!(!has_symbols(Path::new(path)), "{path}");
            let frames = Symbols::default().frames(Path::new(path), 0);
            assert!(frames.len() == 1 && frames[0].function.ends_with("+0x0"), "{path}: {frames:?}");
        }
        assert!(has_symbols(&std::env::current_exe().expect("a test is a program")));
    }

    #[test]
    fn generic_arguments_at_the_end_are_removed() {
        assert_eq!(without_arguments("known::work"), "known::work");
        assert_eq!(without_arguments("known::work::<known::run::{closure#0}>"), "known::work");
        assert_eq!(without_arguments("a::f::<fn(u8) -> Vec<u8>>"), "a::f");
        assert_eq!(without_arguments("<a::B<u8> as C>::f"), "<a::B<u8> as C>::f");
        assert_eq!(without_arguments("<a::B<u8> as C>"), "<a::B<u8> as C>");
        assert_eq!(without_arguments(""), "");
    }
}
