//! The QEMU plugin of the locality profiler, and the format of its files.
//!
//! QEMU's user-mode emulator loads the plugin and reports every load and store of the emulated program. The
//! plugin counts them per thread, line and instruction, in files that survive a crash of the process.
//! `squall-locality` reads these files.
//!
//! A plugin is a shared library, which Cargo cannot embed into another package. This crate therefore carries
//! its own source ([`SOURCES`]). The build script of `squall-locality` compiles it and embeds the library
//! into the binary. As an ordinary crate it provides the file format ([`format`](mod@format)), and is checked
//! and tested as usual.
//!
//! - I1. The crate depends only on the standard library. A single call of `rustc` on `lib.rs` builds the
//!   plugin.

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

/// Path and text of each source file of the plugin, root first.
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

/// Source of the library that is preloaded into the emulated program.
pub const PRELOAD: &str = include_str!("../preload/preload.rs");
