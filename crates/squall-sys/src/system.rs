//! System calls through the C library, with its error numbers as `io::Error`.
//!
//! Problem: rustix has safe forms of these calls, but compiling it costs a seventh of the build of a small
//! program. Squall needs about fifteen calls.
//!
//! - I1. Each function leaves the calling thread's `errno` as it was, because the caller of an allocation may
//!   be about to read it.
//! - I2. No function allocates: an allocator is built on them.
#![cfg(all(target_os = "linux", not(miri)))]

use std::ffi::{CStr, c_int, c_long, c_void};
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

/// Processors that an affinity mask can hold, as in the C library's `cpu_set_t`.
pub(crate) const CPUS_MAX: usize = 1024;
const WORD_BITS: usize = libc::c_ulong::BITS as usize;

/// Runs `f` and restores `errno` (I1).
pub(crate) fn quietly<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: the calling thread's own `errno`, which lives as long as the thread.
    unsafe {
        let errno = libc::__errno_location();
        let before = errno.read();
        let result = f();
        errno.write(before);
        result
    }
}

/// Turns a result of which -1 stands for an error into a `Result`.
pub(crate) fn answered(result: impl Into<c_long>) -> io::Result<c_long> {
    match result.into() {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Returns the descriptor that `f` opens, as its owner. A result of -1 stands for an error.
///
/// # Safety
/// `f` returns a descriptor that it opened and that no other code owns, or -1 with `errno` set.
pub(crate) unsafe fn opened(f: impl FnOnce() -> c_int) -> io::Result<OwnedFd> {
    quietly(|| {
        let descriptor = f();
        if descriptor == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: open and without another owner, by our caller's contract.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    })
}

/// Maps private anonymous memory at an address of the kernel's choice, near `hint`, with mmap(2).
///
/// `flags` are additional ones.
/// # Safety
/// With `MAP_FIXED`, the range holds no memory in use.
pub(crate) unsafe fn map(
    hint: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
) -> io::Result<*mut c_void> {
    quietly(|| {
        // SAFETY: a new mapping touches no memory in use; with `MAP_FIXED`, by our caller's contract.
        let at =
            unsafe { libc::mmap(hint, len, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags, -1, 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at) }
    })
}

/// Unmaps whole pages with munmap(2).
///
/// # Safety
/// The pages are the caller's, and no longer used.
pub(crate) unsafe fn unmap(at: *mut c_void, len: usize) -> io::Result<()> {
    // SAFETY: passed on.
    quietly(|| answered(unsafe { libc::munmap(at, len) })).map(drop)
}

/// Gives whole pages advice with madvise(2).
///
/// # Safety
/// The pages are the caller's. If the advice changes their contents, these are no longer needed.
pub(crate) unsafe fn advise(at: *mut c_void, len: usize, advice: c_int) -> io::Result<()> {
    // SAFETY: passed on.
    quietly(|| answered(unsafe { libc::madvise(at, len, advice) })).map(drop)
}

/// Returns the size of a page in bytes, if the C library tells.
pub(crate) fn page_bytes() -> Option<usize> {
    // SAFETY: sysconf(3) with a name that it knows.
    usize::try_from(quietly(|| unsafe { libc::sysconf(libc::_SC_PAGESIZE) })).ok()
}

/// Reads the beginning of a file into `text`, and returns the number of bytes read.
pub(crate) fn read_file(path: &CStr, text: &mut [u8]) -> io::Result<usize> {
    use std::io::Read as _;
    let path = std::ffi::OsStr::from_bytes(path.to_bytes());
    // std copies a short path to the stack, so that this allocates no memory (I2).
    quietly(|| std::fs::File::open(path)?.read(text))
}

/// True if a file with this path exists.
pub(crate) fn exists(path: &CStr) -> bool {
    // SAFETY: access(2) with a C string.
    quietly(|| unsafe { libc::access(path.as_ptr(), libc::F_OK) == 0 })
}

/// A set of processors, as sched_setaffinity(2) takes it.
pub(crate) struct Cpus([libc::c_ulong; CPUS_MAX / WORD_BITS]);

impl Cpus {
    /// The empty set.
    pub(crate) const fn new() -> Cpus {
        Cpus([0; CPUS_MAX / WORD_BITS])
    }

    /// Adds a processor. One above [`CPUS_MAX`] is ignored.
    pub(crate) fn add(&mut self, cpu: usize) {
        if let Some(word) = self.0.get_mut(cpu / WORD_BITS) {
            *word |= 1 << (cpu % WORD_BITS);
        }
    }

    /// Iterates over the processors of the set, upwards.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        (0..CPUS_MAX).filter(|cpu| self.0[cpu / WORD_BITS] >> (cpu % WORD_BITS) & 1 != 0)
    }

    /// Returns the processors that the calling thread may run on.
    pub(crate) fn allowed() -> io::Result<Cpus> {
        let mut cpus = Cpus::new();
        // SAFETY: sched_getaffinity(2) with a place of our own and its size.
        quietly(|| unsafe {
            answered(libc::sched_getaffinity(0, size_of_val(&cpus.0), cpus.0.as_mut_ptr().cast()))
        })?;
        Ok(cpus)
    }

    /// Restricts the calling thread to the processors of the set.
    pub(crate) fn restrict(&self) -> io::Result<()> {
        // SAFETY: sched_setaffinity(2) with a set of our own and its size.
        quietly(|| unsafe {
            answered(libc::sched_setaffinity(0, size_of_val(&self.0), self.0.as_ptr().cast()))
        })
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_calls_leave_errno_alone() {
        // SAFETY: this thread's own `errno`.
        unsafe { libc::__errno_location().write(77) };
        // SAFETY: a mapping of no bytes, and of an address without a mapping, is refused.
        unsafe {
            assert!(map(std::ptr::null_mut(), 0, libc::PROT_NONE, 0).is_err());
            assert!(unmap(std::ptr::without_provenance_mut(1), 4096).is_err());
            assert!(advise(std::ptr::without_provenance_mut(1), 4096, libc::MADV_DONTNEED).is_err());
        }
        assert!(read_file(c"/nonexistent", &mut [0]).is_err());
        assert!(!exists(c"/nonexistent") && exists(c"/"));
        assert!(Cpus::new().restrict().is_err());
        // SAFETY: this thread's own `errno`.
        assert_eq!(unsafe { libc::__errno_location().read() }, 77);
    }

    #[test]
    fn a_set_of_processors_keeps_its_members() {
        let mut cpus = Cpus::new();
        for cpu in [0, 63, 64, CPUS_MAX - 1, CPUS_MAX] {
            cpus.add(cpu);
        }
        assert_eq!(cpus.iter().collect::<Vec<_>>(), [0, 63, 64, CPUS_MAX - 1]);
        assert!(Cpus::allowed().unwrap().iter().next().is_some());
    }
}
