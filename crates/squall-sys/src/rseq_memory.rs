//! Address space for per-processor parts: zeroed, given out page by page on first touch, on the toucher's node.

use std::io;
use std::ptr::NonNull;

/// A run of zeroed bytes that costs no memory until it is touched; the page is then local to the processor that
/// touched it. No huge pages, which would tie the parts of neighbouring processors to one node; not in core dumps.
///
/// It is never given back.
///
/// # Units
/// `len`: bytes; page-aligned at both ends if it is a multiple of 64 KiB.
/// # Errors
/// That of mmap(2): no address space left, or a limit on it.
pub fn reserve(len: usize) -> io::Result<NonNull<u8>> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        // SAFETY: a new private anonymous mapping, at an address of the kernel's choice: no memory in use is touched.
        let at = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        for advice in [Advice::LinuxNoHugepage, Advice::LinuxDontDump] {
            // SAFETY: the mapping made just above; neither advice changes what it holds. A kernel without huge pages
            // refuses the first, which then says nothing new.
            let _ = unsafe { madvise(at, len, advice) };
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

/// Gives back the pages of a part of what [`reserve`] returned: it reads as zeros from here on, until it is written again.
/// Stores by other threads meanwhile are kept or lost, each as a whole.
///
/// # Units
/// `len`: bytes. Both ends are rounded to pages by the system's rules: `at` must be page-aligned, `len` is rounded up.
/// # Errors
/// That of madvise(2), and always where there is none: nothing was changed then.
/// # Safety
/// The bytes lie in one reservation, and zeros are good values for all that is in them.
pub unsafe fn discard(at: *mut u8, len: usize) -> io::Result<()> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: the caller's promise.
        unsafe { rustix::mm::madvise(at.cast(), len, rustix::mm::Advice::LinuxDontNeed)? };
        Ok(())
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        let _ = (at, len);
        Err(io::ErrorKind::Unsupported.into())
    }
}
