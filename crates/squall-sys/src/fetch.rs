//! Lines that are wanted soon.

/// Bytes that a processor fetches at once, on those that we know.
pub const LINE: usize = 64;

/// Has the processor fetch the line in which this address is, to read it soon. Any address may be given: nothing is accessed.
///
/// # Cost
/// An instruction; none where the architecture is not known.
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

/// As [`line()`], of a line that is going to be written: whoever has it may send it already.
#[inline(always)]
pub fn line_to_write(at: *mut u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which does not fault; a processor without it does nothing.
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
