//! Memory with faults, for the case `fault`: mappings of the kernel, userfaultfd by hand, and a region of
//! Squall at addresses.
//!
//! - I1. The word at the start of each page has the value that [`Paged::expected`] returns.
//! - I2. The handler of SIGBUS here stands above the one of Squall, and passes it the faults of other memory.
//!   So a fault of `uffd-in-thread` passes no other handler, and one of Squall passes a comparison more.

mod by_hand;
mod by_squall;

pub(crate) use by_hand::{ByThread, InThread};
pub(crate) use by_squall::Region;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::case::Missing;
use crate::rivals::kernel_pages::Anonymous;

pub(crate) const PAGE_BYTES: usize = 4096;

/// Memory with pages that are absent at first.
pub(crate) trait Paged: Sized {
    /// Makes memory of some pages. A fault resolves `batch` of them, if the memory has batches.
    fn new(pages: usize, batch: usize) -> Result<Self, Missing>;

    /// Returns the address of the memory.
    fn start(&self) -> NonNull<u8>;

    /// Returns the first word of a page.
    fn expected(&self, page: usize) -> u64;

    /// Unmaps the memory. No work is left for later, which would disturb other subjects.
    fn end(self) {}
}

/// Touches a page by a load. Returns its first word.
#[inline(always)]
pub(crate) fn load(memory: &impl Paged, page: usize) -> u64 {
    word(memory, page).load(Ordering::Relaxed)
}

/// Touches a page by a store. Returns its first word from before.
#[inline(always)]
pub(crate) fn store(memory: &impl Paged, page: usize) -> u64 {
    word(memory, page).fetch_add(1, Ordering::Relaxed)
}

#[inline(always)]
fn word(memory: &impl Paged, page: usize) -> &AtomicU64 {
    // SAFETY: the case touches pages of the memory alone. The word is aligned, and all accesses of it are
    // atomic.
    unsafe { AtomicU64::from_ptr(memory.start().as_ptr().add(page * PAGE_BYTES).cast()) }
}

/// `kernel-anon`.
pub(crate) struct Kernel {
    _memory: Anonymous,
    start: NonNull<u8>,
}

impl Paged for Kernel {
    fn new(pages: usize, _: usize) -> Result<Kernel, Missing> {
        let memory = Anonymous::new(pages * PAGE_BYTES);
        let mut memory = memory.map_err(|error| Missing(format!("the kernel maps no memory: {error}")))?;
        let start = NonNull::from(memory.bytes()).cast();
        Ok(Kernel { _memory: memory, start })
    }

    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn expected(&self, _: usize) -> u64 {
        0
    }
}

/// A mapping that ends with the value.
struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Maps a file that other mappings share.
    fn of_file(file: &File, bytes: usize) -> Result<Mapping, Missing> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so that no other mapping is replaced.
        let at = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) };
        let at = at.map_err(|error| Missing(format!("the kernel maps no file: {error}")))?;
        Ok(Mapping { at: NonNull::new(at.cast()).expect("the kernel maps no file at null"), bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it is left. A failure only leaves it mapped.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// `mmap`: a mapping of a file in memory, with all its pages. Touches change the file, so each memory has a
/// new one.
pub(crate) struct Mapped(Mapping);

impl Paged for Mapped {
    fn new(pages: usize, _: usize) -> Result<Mapped, Missing> {
        let missing = |error: std::io::Error| Missing(format!("no file in memory: {error}"));
        let file: OwnedFd =
            memfd_create("squall-fault", MemfdFlags::CLOEXEC).map_err(|error| missing(error.into()))?;
        let file = File::from(file);
        for page in 0..pages {
            let mut bytes = [0; PAGE_BYTES];
            bytes[..8].copy_from_slice(&(page as u64).to_ne_bytes());
            file.write_all_at(&bytes, (page * PAGE_BYTES) as u64).map_err(missing)?;
        }
        Ok(Mapped(Mapping::of_file(&file, pages * PAGE_BYTES)?))
    }

    fn start(&self) -> NonNull<u8> {
        self.0.at
    }

    fn expected(&self, page: usize) -> u64 {
        page as u64
    }
}

/// The reason why a subject has no userfaultfd, from the system.
fn refused(error: &squall_sys::uffd::OpenError) -> Missing {
    Missing(error.to_string())
}

/// Runs a constructor once in the process, and returns its result each time.
fn once<T>(
    place: &'static OnceLock<Result<T, Missing>>,
    make: impl FnOnce() -> Result<T, Missing>,
) -> Result<&'static T, Missing> {
    place.get_or_init(make).as_ref().map_err(Clone::clone)
}
