//! Prefetch of cache lines.

/// Size of a cache line in bytes, on the processors that Squall supports.
pub const LINE: usize = 64;

/// Prefetches the cache line of this address for reading. Any address is allowed, because memory is not
/// accessed.
///
/// # Cost
/// One instruction; free on architectures without it.
#[inline(always)]
pub fn line(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which does not fault; every processor of this architecture has it (SSE).
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint, which does not fault.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = at;
}

/// Prefetches the cache line of this address for writing, like [`line()`]. The line's current owner may send
/// it early.
#[inline(always)]
pub fn line_to_write(at: *mut u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which does not fault; a processor without it ignores it.
    unsafe {
        std::arch::asm!("prefetchw byte ptr [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint, which does not fault.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_address_may_be_given() {
        for at in [std::ptr::null(), std::ptr::without_provenance(usize::MAX), b"here".as_ptr()] {
            super::line(at);
            super::line_to_write(at.cast_mut());
        }
    }
}
