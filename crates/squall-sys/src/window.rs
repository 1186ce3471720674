//! A file in memory without a fixed content: the pages of a cache that programs map. Linux only.
//!
//! Problem: a page has several addresses. One is the pager's own, through which it fills the page before any
//! program sees it. The others are those of regions, where a program loads and stores.
//!
//! Idea: the pages are those of a file without a name (memfd). Its owner maps all of it once, the *window*.
//! Further mappings are *spans*. A page that is discarded leaves every span and the window at one moment, in
//! all processes.
//!
//! - I1. The window and each span map the same file, and stay mapped while their owner lives.
//! - I2. The file has a fixed size, so no access beyond its end is possible.
//!
//! Not promised: memory. A page comes into being when it is first touched, and touching one fails like that
//! of any page if there is no memory.
//! Cost: the file has memory for its touched pages alone. A discard is a system call.
//! Source: memfd_create(2), fallocate(2), madvise(2).
#![cfg(all(target_os = "linux", not(miri)))]

use crate::system::{self, answered, opened, quietly};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

const USABLE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// A file in memory, mapped as a whole.
#[derive(Debug)]
pub struct Window {
    at: NonNull<u8>,
    len: usize,
    file: OwnedFd,
}

// SAFETY: the value owns its mapping and its file, which belong to no thread.
unsafe impl Send for Window {}
// SAFETY: shared methods only compute addresses or make system calls.
unsafe impl Sync for Window {}

impl Window {
    /// Creates a file of `len` bytes of zeros, and maps it.
    ///
    /// # Errors
    /// The error of memfd_create(2), ftruncate(2) or mmap(2). `InvalidInput` if `len` is 0 or above the
    /// largest size of a file.
    pub fn create(len: usize) -> io::Result<Window> {
        let length = libc::off_t::try_from(len).ok().filter(|length| *length > 0);
        let length = length.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: memfd_create(2) with a C string. It returns a new descriptor or -1.
        let file = unsafe { opened(|| libc::memfd_create(c"squall-pages".as_ptr(), libc::MFD_CLOEXEC))? };
        // SAFETY: ftruncate(2) on a file of our own.
        quietly(|| answered(unsafe { libc::ftruncate(file.as_raw_fd(), length) }))?;
        let at = map(file.as_fd(), 0, len)?;
        Ok(Window { at, len, file })
    }

    /// Returns the address of a byte of the window.
    ///
    /// # Panics
    /// If `len` bytes at `offset` are not within the file.
    #[inline]
    pub fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits, "{len} bytes at {offset} are not within the {} bytes of the window", self.len);
        // SAFETY: within the mapping.
        unsafe { self.at.add(offset) }
    }

    /// Discards whole pages, in the window and in every span.
    ///
    /// # Errors
    /// The error of fallocate(2).
    ///
    /// # Safety
    /// No reference to the bytes exists. Code that accesses the pages in spans agrees that they may vanish.
    pub unsafe fn discard(&self, offset: usize, len: usize) -> io::Result<()> {
        const MODE: libc::c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        self.at(offset, len);
        let file = self.file.as_raw_fd();
        // SAFETY: the file's own pages, by our caller's contract. The numbers are within the file's size.
        quietly(|| answered(unsafe { libc::fallocate(file, MODE, offset as _, len as _) })).map(drop)
    }

    /// Maps a part of the file again.
    ///
    /// # Errors
    /// The error of mmap(2).
    ///
    /// # Panics
    /// If the part is not within the file.
    pub fn span(self: &Arc<Window>, offset: usize, len: usize) -> io::Result<Span> {
        self.at(offset, len);
        Ok(Span { at: map(self.file.as_fd(), offset, len)?, len, _window: self.clone() })
    }
}

impl AsFd for Window {
    /// Returns the file, for another process to map.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the value's own mapping. If it fails, the addresses stay mapped.
        let _ = unsafe { system::unmap(self.at.as_ptr().cast(), self.len) };
    }
}

fn map(file: BorrowedFd<'_>, offset: usize, len: usize) -> io::Result<NonNull<u8>> {
    let at = quietly(|| {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let at = unsafe {
            libc::mmap(ptr::null_mut(), len, USABLE, libc::MAP_SHARED, file.as_raw_fd(), offset as _)
        };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at) }
    })?;
    NonNull::new(at.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// A further mapping of a part of a [`Window`].
#[derive(Debug)]
pub struct Span {
    at: NonNull<u8>,
    len: usize,
    _window: Arc<Window>,
}

// SAFETY: the value owns its mapping, which belongs to no thread.
unsafe impl Send for Span {}
// SAFETY: shared methods only return addresses or make system calls.
unsafe impl Sync for Span {}

impl Span {
    /// Returns the first address.
    pub fn at(&self) -> NonNull<u8> {
        self.at
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a mapping without bytes cannot be made")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Takes whole pages out of this mapping. The file keeps them, and the next access faults.
    ///
    /// # Errors
    /// The error of madvise(2).
    ///
    /// # Panics
    /// If the pages are not within the mapping.
    pub fn forget(&self, offset: usize, len: usize) -> io::Result<()> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits, "{len} bytes at {offset} are not within the {} bytes of the span", self.len);
        // SAFETY: the value's own mapping of a shared file, whose bytes stay as they are.
        unsafe { system::advise(self.at.as_ptr().add(offset).cast(), len, libc::MADV_DONTNEED) }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        // SAFETY: the value's own mapping. If it fails, the addresses stay mapped.
        let _ = unsafe { system::unmap(self.at.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_an_address_in_each_mapping_until_it_is_discarded() {
        const PAGE: usize = 1 << 16;
        let window = Arc::new(Window::create(4 * PAGE).unwrap());
        let span = window.span(PAGE, 2 * PAGE).unwrap();
        let (own, other) = (window.at(2 * PAGE, PAGE).as_ptr(), span.at().as_ptr().wrapping_add(PAGE));
        // SAFETY: both are addresses of the same mapped page, which no other code uses.
        unsafe {
            own.write_volatile(7);
            assert_eq!(other.read_volatile(), 7);
            span.forget(PAGE, PAGE).unwrap();
            assert_eq!(other.read_volatile(), 7, "the file keeps its page");
            window.discard(2 * PAGE, PAGE).unwrap();
            assert_eq!((own.read_volatile(), other.read_volatile()), (0, 0));
        }
        assert!(Window::create(0).is_err());
        let beyond = std::panic::catch_unwind(|| window.at(4 * PAGE, 1));
        assert!(beyond.is_err());
    }
}
