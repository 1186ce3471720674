//! The part of the locality profiler that runs inside the emulator.
//!
//! QEMU's user-mode emulation loads it as a plugin and tells it of every load and store of the emulated program; it counts
//! them, for each thread, line and instruction, in files that outlive whatever happens to the process. `squall-locality`
//! reads those.
//!
//! A plugin is a shared library, and Cargo builds none for another package to carry. So this crate carries its own
//! source ([`SOURCES`]), and the build script of `squall-locality` has the compiler make a library of it, which goes into the
//! binary. As an ordinary crate it is the form of the files ([`format`](mod@format)), and what the usual checks compile and test.
//!
//! - I1. It depends on nothing but the standard library, and one call of the compiler on `lib.rs` makes the plugin.

#[cfg(all(test, squall_global_alloc))]
use squall_alloc as _;

mod api;
pub mod arch;
mod callbacks;
mod calls;
pub mod format;
mod frames;
mod helpers;
mod keeper;
mod lock;
mod log;
pub mod mark;
#[doc(hidden)]
pub mod plugin;
mod regions;
mod run;
mod shared;
mod sys;
mod table;
mod threads;

/// Path and text of each file that the plugin is compiled from, the root first.
pub const SOURCES: &[(&str, &str)] = &[
    ("lib.rs", include_str!("lib.rs")),
    ("api.rs", include_str!("api.rs")),
    ("arch.rs", include_str!("arch.rs")),
    ("callbacks.rs", include_str!("callbacks.rs")),
    ("calls.rs", include_str!("calls.rs")),
    ("format.rs", include_str!("format.rs")),
    ("frames.rs", include_str!("frames.rs")),
    ("helpers.rs", include_str!("helpers.rs")),
    ("keeper.rs", include_str!("keeper.rs")),
    ("lock.rs", include_str!("lock.rs")),
    ("log.rs", include_str!("log.rs")),
    ("mark.rs", include_str!("mark.rs")),
    ("plugin.rs", include_str!("plugin.rs")),
    ("regions.rs", include_str!("regions.rs")),
    ("run.rs", include_str!("run.rs")),
    ("shared.rs", include_str!("shared.rs")),
    ("sys.rs", include_str!("sys.rs")),
    ("table.rs", include_str!("table.rs")),
    ("threads.rs", include_str!("threads.rs")),
];

/// The text of the library that is preloaded into the emulated program.
pub const PRELOAD: &str = include_str!("../preload/preload.rs");
