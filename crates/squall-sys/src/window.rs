//! A file in memory without a fixed content: the pages of a cache that programs map. Linux only.
//!
//! Problem: a page has several addresses. One is the pager's own, through which it fills the page before any
//! program sees it. The others are those of regions, where a program loads and stores.
//!
//! Idea: the pages are those of a file without a name (memfd). Its owner maps all of it once, the *window*.
//! Further mappings are *spans*. A page that is discarded leaves every span and the window at one moment, in
//! all processes. A *private span* has the file's pages until they are written: a write makes a copy, which
//! belongs to the span alone, and which no discard takes away.
//!
//! - I1. The window and each span map the same file, and stay mapped while their owner lives.
//! - I2. The file has a fixed size, so no access beyond its end is possible.
//! - I3. The child of a fork has no spans. There, absent pages would be zeros, without a fault.
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

/// A mapping, which its owner unmaps.
#[derive(Debug)]
struct Mapped {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the value owns its mapping, which belongs to no thread.
unsafe impl Send for Mapped {}
// SAFETY: shared methods only return addresses or make system calls.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps a part of a file, or fresh memory if there is no file.
    fn new(
        file: Option<BorrowedFd<'_>>,
        offset: usize,
        len: usize,
        flags: libc::c_int,
    ) -> io::Result<Mapped> {
        let flags = if file.is_none() { flags | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE } else { flags };
        let file = file.map_or(-1, |file| file.as_raw_fd());
        let at = quietly(|| {
            // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
            let at = unsafe { libc::mmap(ptr::null_mut(), len, USABLE, flags, file, offset as _) };
            if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at) }
        })?;
        Ok(Mapped { at: NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?, len })
    }

    /// Keeps the mapping out of the children of a fork (I3).
    fn out_of_children(self) -> io::Result<Mapped> {
        // SAFETY: the value's own mapping, of which this process loses nothing.
        unsafe { system::advise(self.at.as_ptr().cast(), self.len, libc::MADV_DONTFORK)? };
        Ok(self)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the value's own mapping. If it fails, the addresses stay mapped.
        let _ = unsafe { system::unmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// A file in memory, mapped as a whole.
#[derive(Debug)]
pub struct Window {
    map: Mapped,
    file: OwnedFd,
}

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
        // Other users may not open it for writing.
        // SAFETY: fchmod(2) on a file of our own.
        quietly(|| answered(unsafe { libc::fchmod(file.as_raw_fd(), 0o400) }))?;
        Ok(Window { map: Mapped::new(Some(file.as_fd()), 0, len, libc::MAP_SHARED)?, file })
    }

    /// Returns the address of a byte of the window.
    ///
    /// # Panics
    /// If `len` bytes at `offset` are not within the file.
    #[inline]
    pub fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.map.len);
        assert!(fits, "{len} bytes at {offset} are not within the {} bytes of the window", self.map.len);
        // SAFETY: within the mapping.
        unsafe { self.map.at.add(offset) }
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
        let map = Mapped::new(Some(self.file.as_fd()), offset, len, libc::MAP_SHARED)?;
        Ok(Span { map: map.out_of_children()?, _window: self.clone() })
    }

    /// Opens the file again for reading alone, for another process to map.
    ///
    /// # Errors
    /// The error of open(2): /proc is not mounted, or there are too many open files.
    pub fn read_only(&self) -> io::Result<OwnedFd> {
        Ok(std::fs::File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?.into())
    }
}

impl AsFd for Window {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A further mapping of a part of a [`Window`].
#[derive(Debug)]
pub struct Span {
    map: Mapped,
    _window: Arc<Window>,
}

impl Span {
    /// Returns the first address.
    pub fn at(&self) -> NonNull<u8> {
        self.map.at
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a mapping without bytes cannot be made")]
    pub fn len(&self) -> usize {
        self.map.len
    }

    /// Takes whole pages out of this mapping. The file keeps them, and the next access faults.
    ///
    /// # Errors
    /// The error of madvise(2).
    ///
    /// # Panics
    /// If the pages are not within the mapping.
    pub fn forget(&self, offset: usize, len: usize) -> io::Result<()> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.map.len);
        assert!(fits, "{len} bytes at {offset} are not within the {} bytes of the span", self.map.len);
        // SAFETY: the value's own mapping of a shared file, whose bytes stay as they are.
        unsafe { system::advise(self.map.at.as_ptr().add(offset).cast(), len, libc::MADV_DONTNEED) }
    }
}

/// A private mapping of a part of a [`Window`], of this process or of another one. A write to a page makes a
/// copy of it, for this span alone.
#[derive(Debug)]
pub struct PrivateSpan(Mapped);

impl PrivateSpan {
    /// Maps a part of a file, or fresh memory if there is no file.
    ///
    /// # Errors
    /// The error of mmap(2) or madvise(2).
    pub fn map(file: Option<BorrowedFd<'_>>, offset: usize, len: usize) -> io::Result<PrivateSpan> {
        Ok(PrivateSpan(Mapped::new(file, offset, len, libc::MAP_PRIVATE)?.out_of_children()?))
    }

    /// Returns the first address.
    pub fn at(&self) -> NonNull<u8> {
        self.0.at
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a mapping without bytes cannot be made")]
    pub fn len(&self) -> usize {
        self.0.len
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
        // SAFETY: as above, in the private span too.
        unsafe {
            let file = window.read_only().unwrap();
            let private = PrivateSpan::map(Some(file.as_fd()), PAGE, 2 * PAGE).unwrap();
            let (first, second) = (private.at().as_ptr(), private.at().as_ptr().add(PAGE));
            window.at(PAGE, PAGE).as_ptr().write_volatile(5);
            window.at(2 * PAGE, PAGE).as_ptr().write_volatile(6);
            assert_eq!((first.read_volatile(), second.read_volatile()), (5, 6));
            first.write_volatile(8);
            assert_eq!((window.at(PAGE, PAGE).as_ptr().read_volatile(), private.len()), (5, 2 * PAGE));
            window.discard(PAGE, 2 * PAGE).unwrap();
            assert_eq!((first.read_volatile(), second.read_volatile()), (8, 0), "a written page stays");
        }
        assert!(Window::create(0).is_err());
        let beyond = std::panic::catch_unwind(|| window.at(4 * PAGE, 1));
        assert!(beyond.is_err());
    }
}
