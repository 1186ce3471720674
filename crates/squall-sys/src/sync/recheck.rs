//! Waiting for another thread's step that takes a few instructions, unless that thread is descheduled.

use super::{hint, thread};

/// Pauses, yields or sleeps between two checks: longer, the more checks came before. `round` counts from 1.
pub fn wait(round: u32) {
    const PAUSES: u32 = if cfg!(loom) { 0 } else { 64 };
    const YIELDS: u32 = if cfg!(loom) { u32::MAX } else { 128 };
    if round <= PAUSES {
        hint::spin_loop();
    } else if round <= YIELDS {
        thread::yield_now();
    } else {
        // A waiter of high priority must not keep the other thread from running.
        #[cfg(not(loom))]
        thread::sleep(std::time::Duration::from_micros(100));
    }
}
