//! Huge pages, on kernels that grant them on request.

use std::ptr::NonNull;

/// Smallest size worth a request, in bytes: two huge pages of the usual size, so that at least one is whole.
pub const LEAST: usize = 4 << 20;

/// Asks the kernel for huge pages in this memory. Ignored below [`LEAST`], and on systems without huge pages.
///
/// Useful for large tables with random access, where each small page costs a TLB miss, which takes longer
/// than the data access. The contents stay unchanged, and the effect shows only in time. Untouched memory is
/// then allocated and cleared in steps of a huge page, at first touch.
///
/// # Safety
/// The memory is the caller's: an allocation, or a part of one.
/// # Cost
/// A system call.
/// # Source
/// madvise(2), MADV_HUGEPAGE.
pub unsafe fn prefer(start: NonNull<u8>, len: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    if len >= LEAST {
        const PAGE: usize = 2 << 20;
        let skip = start.as_ptr().align_offset(PAGE);
        let len = len.saturating_sub(skip) / PAGE * PAGE;
        if len > 0 {
            // SAFETY: a part of the caller's memory, in whole pages of every size; advice changes no
            // contents.
            let at = unsafe { start.add(skip) };
            // SAFETY: the same part of the caller's memory.
            let _ = unsafe { crate::system::advise(at.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (start, len);
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn advice_keeps_the_contents() {
        let mut memory = vec![7u8; 3 * LEAST + 5];
        // SAFETY: the vector's own memory.
        unsafe { prefer(NonNull::new(memory.as_mut_ptr()).unwrap(), memory.len()) };
        assert!(memory.iter().all(|&byte| byte == 7));
        memory.fill(8);
        assert!(memory.iter().all(|&byte| byte == 8));
    }
}
