//! The marks by which a program says between where and where its accesses count.
//!
//! Each is one instruction that does nothing, so that a marked program runs as before when nobody looks:
//!
//! | | begin | end |
//! |---|---|---|
//! | x86-64 | `nopl 0x01555153(%rax,%rax,1)`: `0f 1f 84 00 53 51 55 01` | the same with `02` as its last byte |
//! | aarch64 | `movz xzr, #0x5351`: `3f 6a 8a d2` | `movz xzr, #0x5352`: `5f 6a 8a d2` |
//!
//! What a thread does between its marks counts, and, while any thread is between its own, what threads do that never
//! marked. Pairs may nest, and a thread may have many.
//!
//! - I1. A mark changes no register, no flag and no memory, and the compiler moves no access across it.

use std::arch::asm;

/// From here on, what this thread does counts.
#[inline(always)]
pub fn begin() {
    // SAFETY: an instruction without effect (I1).
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(".byte 0x0f, 0x1f, 0x84, 0x00, 0x53, 0x51, 0x55, 0x01", options(nostack, preserves_flags));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(".inst 0xd28a6a3f", options(nostack, preserves_flags));
    }
}

/// Up to here, what this thread does counts.
#[inline(always)]
pub fn end() {
    // SAFETY: an instruction without effect (I1).
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(".byte 0x0f, 0x1f, 0x84, 0x00, 0x53, 0x51, 0x55, 0x02", options(nostack, preserves_flags));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(".inst 0xd28a6a5f", options(nostack, preserves_flags));
    }
}
