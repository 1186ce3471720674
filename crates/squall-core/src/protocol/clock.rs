//! A clock that costs a few instructions, for the age of objects.
//!
//! Problem: reading the system's clock takes longer than creating an object.
//!
//! Idea: store the processor's own counter, at low resolution. Convert it to seconds on request, by its rate
//! since the first object of the process.
//!
//! Not promised: exact ages. The counter may differ between processors, or stop while the machine sleeps.
//!
//! Cost: one instruction and a shift.

use std::time::{Duration, Instant};

/// Counts per tick, as a power of two: a tick is tens of milliseconds.
const SHIFT: u32 = if cfg!(target_arch = "x86_64") { 26 } else { 20 };

/// The current tick, modulo 2^32, which wraps after years.
#[inline]
pub(crate) fn ticks() -> u32 {
    (counter() >> SHIFT) as u32
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction. A system that forbids it also breaks the C
    // library's clock.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
fn counter() -> u64 {
    let count: u64;
    // SAFETY: reads the virtual counter, which Linux makes readable.
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

/// The creation time of the first object, on both clocks.
#[derive(Debug)]
pub(crate) struct Epoch {
    ticks: u32,
    instant: Instant,
}

impl Epoch {
    /// Takes the current time.
    pub(crate) fn now() -> Epoch {
        Epoch { ticks: ticks(), instant: Instant::now() }
    }

    /// The time since `then`.
    pub(crate) fn since(&self, then: u32) -> Duration {
        let now = ticks();
        let all = now.wrapping_sub(self.ticks);
        // The counters of two processors may differ by a tick.
        let part = now.wrapping_sub(then).min(all);
        if all == 0 {
            Duration::ZERO
        } else {
            self.instant.elapsed().mul_f64(f64::from(part) / f64::from(all))
        }
    }
}
