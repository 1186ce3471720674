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

/// Reserves `count` rows of `len` bytes each, whose beginnings are `stride` bytes apart, like [`reserve`].
/// Addresses between the rows are not reserved, and other mappings may lie there. If no place for the rows is
/// found, reserves them with the addresses between them. Returns the first row.
///
/// # Units
/// `len` and `stride` in bytes, multiples of 64 KiB; `len` is at most `stride`.
/// # Errors
/// The error of mmap(2).
pub fn reserve_rows(count: usize, stride: usize, len: usize) -> io::Result<NonNull<u8>> {
    #[cfg(all(target_os = "linux", not(miri)))]
    if len < stride {
        let rows = rows::reserve(count, stride, len);
        if !matches!(&rows, Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable) {
            return rows;
        }
    }
    let _ = len;
    reserve(count.checked_mul(stride).ok_or(io::ErrorKind::OutOfMemory)?)
}

#[cfg(all(target_os = "linux", not(miri)))]
mod rows {
    use std::ffi::c_void;
    use std::io;
    use std::ptr::NonNull;

    use crate::system;

    /// Number of places that are tried.
    const TRIES: usize = 64;

    pub(super) fn reserve(count: usize, stride: usize, len: usize) -> io::Result<NonNull<u8>> {
        let all = count.checked_mul(stride).ok_or(io::ErrorKind::OutOfMemory)?;
        let anywhere = super::reserve(len)?.as_ptr().cast::<c_void>();
        // SAFETY: the mapping made just above, which no other code knows.
        unsafe { system::unmap(anywhere, len)? };
        // The kernel allocates downwards, so the addresses below are usually free.
        for away in 1..=TRIES {
            let Some(first) = away.checked_mul(all).and_then(|away| anywhere.addr().checked_sub(away)) else {
                break;
            };
            if let Some(first) = rows_at(first, count, stride, len)? {
                return Ok(first);
            }
        }
        Err(io::ErrorKind::AddrNotAvailable.into())
    }

    /// Reserves all rows from this address on. Returns `None` if other mappings are in the way.
    fn rows_at(first: usize, count: usize, stride: usize, len: usize) -> io::Result<Option<NonNull<u8>>> {
        let place = |row: usize| std::ptr::without_provenance_mut::<c_void>(first + row * stride);
        let mut found = None;
        for row in 0..count {
            let flags = libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: the flag keeps mappings in use. An older kernel takes the address as a hint.
            let at = unsafe { system::map(place(row), len, libc::PROT_READ | libc::PROT_WRITE, flags) };
            let at = match at {
                Ok(at) if at.addr() == place(row).addr() => at,
                other => {
                    if let Ok(elsewhere) = other {
                        // SAFETY: mapped just now; no other code knows the address.
                        unsafe { system::unmap(elsewhere, len)? };
                    }
                    for made in 0..row {
                        // SAFETY: as above.
                        unsafe { system::unmap(place(made), len)? };
                    }
                    return match other {
                        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                        _ => Ok(None),
                    };
                }
            };
            for advice in [libc::MADV_NOHUGEPAGE, libc::MADV_DONTDUMP] {
                // SAFETY: as in `reserve`.
                let _ = unsafe { system::advise(at, len, advice) };
            }
            found = found.or(NonNull::new(at.cast()));
        }
        Ok(found)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        #[cfg_attr(squall_asan, ignore = "the sanitizer takes the addresses below")]
        fn rows_lie_apart_and_leave_the_addresses_between_them() {
            const STRIDE: usize = 128 << 20;
            const LEN: usize = 64 << 10;
            let first = reserve(3, STRIDE, LEN).expect("addresses");
            for row in 0..3 {
                // SAFETY: the last byte of a row.
                let last = unsafe { first.byte_add(row * STRIDE + LEN - 1) };
                // SAFETY: as above; no other thread knows it.
                unsafe {
                    assert_eq!(last.read(), 0);
                    last.write(1);
                }
            }
            let second = rows_at(first.addr().get(), 3, STRIDE, LEN).expect("no other error");
            assert!(second.is_none(), "the first row is in the way");
        }
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
