//! Marks that delimit the accesses to count.
//!
//! Each mark is one instruction without effect, so a marked program runs unchanged outside the profiler:
//!
//! | | begin | end |
//! |---|---|---|
//! | x86-64 | `nopl 0x01555153(%rax,%rax,1)`: `0f 1f 84 00 53 51 55 01` | last byte `02` |
//! | aarch64 | `movz xzr, #0x5351`: `3f 6a 8a d2` | `movz xzr, #0x5352`: `5f 6a 8a d2` |
//!
//! A thread that marks counts between its own marks. A thread that never marks counts while any other thread
//! is between marks. Pairs may nest, and a thread may use many.
//!
//! - I1. A mark changes no register, no flag and no memory, and the compiler moves no access across it.

use std::arch::asm;

/// Starts counting the accesses of this thread.
#[inline(always)]
pub fn begin() {
    // SAFETY: an instruction without effect (I1).
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(".byte 0x0f, 0x1f, 0x84, 0x00, 0x53, 0x51, 0x55, 0x01", options(nostack, preserves_flags));
    }
    // SAFETY: an instruction without effect (I1).
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(".inst 0xd28a6a3f", options(nostack, preserves_flags));
    }
}

/// Stops counting the accesses of this thread.
#[inline(always)]
pub fn end() {
    // SAFETY: an instruction without effect (I1).
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(".byte 0x0f, 0x1f, 0x84, 0x00, 0x53, 0x51, 0x55, 0x02", options(nostack, preserves_flags));
    }
    // SAFETY: an instruction without effect (I1).
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(".inst 0xd28a6a5f", options(nostack, preserves_flags));
    }
}
