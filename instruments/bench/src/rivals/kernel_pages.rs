//! Anonymous memory of the kernel, for the case `page-alloc`.

use std::io;
use std::ptr::{self, NonNull};
use std::slice;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// A private mapping of zeros. The kernel gives it a page of 4 KiB at the first write to each.
#[derive(Debug)]
pub(crate) struct Anonymous {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to no thread, and only this value refers to it.
unsafe impl Send for Anonymous {}

impl Anonymous {
    /// Maps so many bytes. Huge pages are refused, since one fault would give 512 pages.
    pub(crate) fn new(bytes: usize) -> io::Result<Anonymous> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so that no other mapping is replaced.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) }?;
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("the mapping is at null"))?;
        let mapping = Anonymous { at, bytes };
        // SAFETY: the range is the mapping just made. The advice changes no byte of it.
        match unsafe { madvise(at.as_ptr().cast(), bytes, Advice::LinuxNoHugepage) } {
            // A kernel without huge pages refuses the advice.
            Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(mapping),
            Err(error) => Err(error.into()),
        }
    }

    /// Its first address.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.at
    }

    /// Its bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable, writable and filled with zeros by the kernel. It lives as long as
        // `self`, which the result borrows alone. Its size is at most `isize::MAX`, or `mmap` had failed.
        unsafe { slice::from_raw_parts_mut(self.at.as_ptr(), self.bytes) }
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it is left. A failure only leaves it mapped.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
