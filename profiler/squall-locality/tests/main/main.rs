//! Integration tests of the profiler, in one program.
//!
//! - Without an emulator: `forks`, `forms`, `judging`, `model`, `stream`, `streams`.
//! - With an emulator: `aarch64`, `emulators`, `guests`, `known`, `places`, `whose`. They profile the
//!   examples. If a requirement is missing, a test prints SKIP and passes. A requirement listed in
//!   `SQUALL_TEST_NEEDS` makes it fail instead.

mod aarch64;
mod common;
mod emulators;
mod files;
mod forks;
mod forms;
mod guests;
mod judging;
mod known;
mod model;
mod places;
mod stream;
mod stream_common;
#[cfg(not(miri))]
mod streams;
mod whose;
