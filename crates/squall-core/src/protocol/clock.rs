//! A clock that costs a few instructions, for the age of objects.
//!
//! Problem: reading the system's clock takes longer than making an object. Idea: the processor's own counter is kept as it
//! is, coarsely, and turned into seconds when somebody asks, by how far it came since the first object of the process.
//!
//! Not promised: more than that ages are about right: a counter may differ between processors, or stop when a machine
//! sleeps. Cost: one instruction, and a shift.

use std::time::{Duration, Instant};

/// A tick is so many counts, as a power of two: tens of milliseconds.
const SHIFT: u32 = if cfg!(target_arch = "x86_64") { 26 } else { 20 };

/// The counter now, in ticks, modulo 2^32: years.
#[inline]
pub(crate) fn ticks() -> u32 {
    (counter() >> SHIFT) as u32
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has it. A system that forbids it to programs breaks the C library's clock, too.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
fn counter() -> u64 {
    let count: u64;
    // SAFETY: reads the virtual counter, which Linux lets programs read.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags))
    };
    count
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
#[inline(always)]
fn counter() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64)
}

/// When the first object was made, on both clocks.
#[derive(Debug)]
pub(crate) struct Epoch {
    ticks: u32,
    instant: Instant,
}

impl Epoch {
    /// Now.
    pub(crate) fn now() -> Epoch {
        Epoch { ticks: ticks(), instant: Instant::now() }
    }

    /// How long ago `then` was.
    pub(crate) fn since(&self, then: u32) -> Duration {
        let now = ticks();
        let all = now.wrapping_sub(self.ticks);
        // Counters of two processors may differ by a tick.
        let part = now.wrapping_sub(then).min(all);
        if all == 0 {
            Duration::ZERO
        } else {
            self.instant.elapsed().mul_f64(f64::from(part) / f64::from(all))
        }
    }
}
