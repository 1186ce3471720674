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
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// Why a program could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Which accesses count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// All, until a thread marks; from then on, what is between marks.
    #[default]
    Auto,
    /// All, whatever is marked.
    Whole,
    /// What is between marks.
    Marks,
    /// What is done in calls of this function.
    Function(String),
}

/// Bytes that an entry takes, its share of the index included.
const ENTRY_BYTES_ALL: u64 = 96;

/// Memory for the counts, in MiB, if nobody says otherwise.
pub const MEMORY_MIB: u64 = 768;

/// Entries that so many MiB have room for.
#[must_use]
pub const fn entries_of(memory_mib: u64) -> u64 {
    memory_mib.saturating_mul(1 << 20) / ENTRY_BYTES_ALL
}

/// What to run, and how: [`Options::new`], and then what is to be otherwise.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Which accesses count.
    pub window: Window,
    /// Entries of all tables at most; above that, lines are sampled.
    pub entries_max: u64,
    /// Kill it, and all that it made, after so long.
    pub timeout: Option<Duration>,
    /// End it, and all that it made, once this is the number of a signal, which it is sent before: for whoever is to end itself, and still
    /// wants the report.
    pub stop: Option<Arc<AtomicUsize>>,
    /// Whether this process has no other children, and has none until the run is over. What the program's processes leave behind becomes its
    /// children then (`PR_SET_CHILD_SUBREAPER`), and is found when the run is to end, whatever it did to its environment; what outlives a run
    /// that ends by itself stays this process's child, as long as this process is there.
    pub alone: bool,
    /// Whether to preload the library that tells of blocks.
    pub preload: bool,
    /// The emulator; the one on the path if none.
    pub emulator: Option<PathBuf>,
    /// More arguments for the emulator.
    pub emulator_arguments: Vec<OsString>,
    /// More plugins for the emulator, with their arguments.
    pub plugins: Vec<OsString>,
    /// Whether what the program prints is thrown away.
    pub quiet: bool,
    /// Whether what the program prints goes to stderr.
    pub stdout_to_stderr: bool,
}

impl Options {
    /// To run this program without arguments, as `squall locality` does where it is told nothing else; but what the program prints
    /// goes where this process's goes, and this process may have other children.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Options {
        Options {
            program: program.into(),
            arguments: Vec::new(),
            window: Window::Auto,
            entries_max: entries_of(MEMORY_MIB),
            timeout: None,
            stop: None,
            alone: false,
            preload: true,
            emulator: None,
            emulator_arguments: Vec::new(),
            plugins: Vec::new(),
            quiet: false,
            stdout_to_stderr: false,
        }
    }
}
