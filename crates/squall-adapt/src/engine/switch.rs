//! Switch: whether the engine's thread exists and runs the rounds.

use std::sync::atomic::{AtomicU8, Ordering};

pub(super) const UNASKED: u8 = 0;
pub(super) const RUNNING: u8 = 1;
pub(super) const OFF: u8 = 2;
pub(super) const FAILED: u8 = 3;
/// Switched off, but the thread exists.
pub(super) const PAUSED: u8 = 4;
/// Switched on by the program, but not started.
pub(super) const ALLOWED: u8 = 5;

pub(super) static THREAD: AtomicU8 = AtomicU8::new(UNASKED);

/// Returns `true` if the engine's thread runs the rounds.
pub(super) fn is_on() -> bool {
    THREAD.load(Ordering::Relaxed) == RUNNING
}
