//! Address space for per-processor parts: zeroed, with pages allocated on first touch, on the toucher's node.

use std::io;
use std::ptr::NonNull;

/// Reserves zeroed bytes that use no memory until they are touched; a page is then local to the processor
/// that touched it.
///
/// Huge pages are off, because they would tie the parts of neighbouring processors to one node. The memory is
/// left out of core dumps. It is never unmapped.
///
/// # Units
/// `len` in bytes. Both ends are page-aligned if `len` is a multiple of 64 KiB.
/// # Errors
/// The error of mmap(2): no address space left, or a limit on it.
pub fn reserve(len: usize) -> io::Result<NonNull<u8>> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        use crate::system;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new private anonymous mapping, at an address of the kernel's choice: no memory in use is
        // touched.
        let at = unsafe { system::map(std::ptr::null_mut(), len, prot, libc::MAP_NORESERVE)? };
        for advice in [libc::MADV_NOHUGEPAGE, libc::MADV_DONTDUMP] {
            // SAFETY: the mapping made just above; neither advice changes its contents. A kernel without huge
            // pages refuses the first advice, which is then unnecessary.
            let _ = unsafe { system::advise(at, len, advice) };
        }
        NonNull::new(at.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        let layout =
            std::alloc::Layout::from_size_align(len, 4096).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SAFETY: the layout is not of size 0 (checked here).
        let at = if len == 0 { std::ptr::null_mut() } else { unsafe { std::alloc::alloc_zeroed(layout) } };
        NonNull::new(at).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

/// Returns the pages of a part of a [`reserve`] result to the system. The part reads as zeros until it is
/// written again. Concurrent stores by other threads are kept or lost, each as a whole.
///
/// # Units
/// `at` is page-aligned. `len` is in bytes and is rounded up to whole pages.
/// # Errors
/// The error of madvise(2), or `Unsupported` on a system without it. The memory is then unchanged.
/// # Safety
/// The bytes are in one reservation, and zeros are valid for everything in them.
pub unsafe fn discard(at: *mut u8, len: usize) -> io::Result<()> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: by this function's contract.
        unsafe { crate::system::advise(at.cast(), len, libc::MADV_DONTNEED) }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        let _ = (at, len);
        Err(io::ErrorKind::Unsupported.into())
    }
}
