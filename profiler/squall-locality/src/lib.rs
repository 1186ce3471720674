#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

#[cfg(squall_global_alloc)]
use squall_alloc as _;

pub mod emulator;
pub mod lines;
mod mappings;
pub mod model;
pub mod objects;
pub mod read;
pub mod report;
pub mod run;
mod shown;
pub mod symbols;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Error of the profiler: a text that names the object, the reason, and where it helps the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Selects the accesses that count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// Count all accesses until a thread marks; from then on, only accesses between marks.
    #[default]
    Auto,
    /// Count all accesses and ignore marks.
    Whole,
    /// Count accesses between marks.
    Marks,
    /// Count accesses inside calls of this function.
    Function(String),
    /// Count accesses while this switch is on.
    Switch(Arc<Switch>),
}

/// A switch that turns counting on and off while the program runs.
///
/// Each process of the program follows it at its next system call.
#[derive(Debug)]
pub struct Switch {
    wanted: AtomicBool,
    is_on: AtomicBool,
}

/// Only the same switch is equal.
impl PartialEq for Switch {
    fn eq(&self, other: &Switch) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Switch {}

impl Switch {
    /// Creates a switch.
    #[must_use]
    pub const fn new(on: bool) -> Switch {
        Switch { wanted: AtomicBool::new(on), is_on: AtomicBool::new(on) }
    }

    /// Turns counting on or off, within 50 ms. Does nothing after the run.
    pub fn set(&self, on: bool) {
        self.wanted.store(on, Ordering::Relaxed);
    }

    /// Whether the processes of the program see the switch on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        // Acquire: pairs with the Release in `follow`. The caller sees the change of the page, too.
        self.is_on.load(Ordering::Acquire)
    }

    /// Applies the wanted state by `apply`, which returns whether it could.
    pub(crate) fn follow(&self, apply: impl FnOnce(bool) -> bool) {
        let wanted = self.wanted.load(Ordering::Relaxed);
        if wanted != self.is_on.load(Ordering::Relaxed) && apply(wanted) {
            // Release: pairs with the Acquire in `is_on`.
            self.is_on.store(wanted, Ordering::Release);
        }
    }
}

/// Bytes per entry, including its share of the index.
const ENTRY_BYTES_ALL: u64 = 96;

/// Default memory for the counts, in MiB.
pub const MEMORY_MIB: u64 = 768;

/// Returns the number of entries that fit into this many MiB.
#[must_use]
pub const fn entries_of(memory_mib: u64) -> u64 {
    memory_mib.saturating_mul(1 << 20) / ENTRY_BYTES_ALL
}

/// Options of a run. Start with [`Options::new`] and change fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Program to run.
    pub program: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<OsString>,
    /// Accesses that count.
    pub window: Window,
    /// Upper limit for the entries of all tables together. Above it, lines are sampled.
    pub entries_max: u64,
    /// Time after which the program and all its processes are killed.
    pub timeout: Option<Duration>,
    /// Number of a signal, stored by the caller to stop the run; 0 while the run may continue. [`run::run`]
    /// then sends the signal to the program, ends all its processes, and returns the counts made so far.
    pub stop: Option<Arc<AtomicUsize>>,
    /// Whether this process has no other children until the run is over.
    ///
    /// If so, orphaned processes of the program become its children (`PR_SET_CHILD_SUBREAPER`). They are then
    /// found when the run is stopped, even if they changed their environment. If the run ends by itself, a
    /// process that outlives it stays a child of this process.
    pub no_other_children: bool,
    /// Whether to preload the library that reports heap blocks.
    pub preload: bool,
    /// Path or name of the emulator. If empty, `SQUALL_EMULATOR` or a lookup in `PATH` decides.
    pub emulator: Option<PathBuf>,
    /// More arguments for the emulator.
    pub emulator_arguments: Vec<OsString>,
    /// More plugins for the emulator, with their arguments.
    pub plugins: Vec<OsString>,
    /// Whether the program's stdout is discarded.
    pub quiet: bool,
    /// Whether the program's stdout goes to stderr.
    pub stdout_to_stderr: bool,
}

impl Options {
    /// Options for this program without arguments, with the defaults of `squall locality` and two
    /// differences: the program inherits stdout, and this process may have other children.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Options {
        Options {
            program: program.into(),
            arguments: Vec::new(),
            window: Window::Auto,
            entries_max: entries_of(MEMORY_MIB),
            timeout: None,
            stop: None,
            no_other_children: false,
            preload: true,
            emulator: None,
            emulator_arguments: Vec::new(),
            plugins: Vec::new(),
            quiet: false,
            stdout_to_stderr: false,
        }
    }
}
