//! Clones of memory, for the case `clone-memory`. The first word of each page is its number plus one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use squall::objects::pages::{self, PagePool, Supply};
use squall::pager::cache::{self, FileCache, FileCacheExt};
use squall::pager::region::{Mapping, SharedCache};
use squall::pager::{hat, source};
use squall::{Handle, Owned};

use super::faults::PAGE_BYTES;
use super::kernel_pages::Anonymous;
use crate::case::Missing;

/// Memory that can be cloned.
pub(crate) trait Clones: Send + Sync + Sized {
    fn new(pages: usize) -> Result<Self, Missing>;

    /// Makes a clone, and ends it.
    fn clone_once(&self);

    /// Changes a page of a clone. Returns the number in the clone before, and in the parent afterwards.
    fn change(&self, page: usize) -> (u64, u64);
}

/// Returns a file in memory, written and frozen.
fn warm(pages: usize) -> Result<(SharedCache, Owned<dyn PagePool>), Missing> {
    let pool = pages::distributed(Supply::system(pages + 1024));
    let bytes = (pages * PAGE_BYTES) as u64;
    let form = cache::Form::Partitioned { partitions: 64, shift: 6 };
    let file = cache::mappable(form, source::zero_fill(bytes), pool.handle());
    let file = file.map_err(|error| Missing(format!("no memory can be mapped: {error}")))?;
    for page in 0..pages as u64 {
        let mut frame = file.pin_mut(page).map_err(|error| Missing(error.to_string()))?;
        frame[..8].copy_from_slice(&(page + 1).to_ne_bytes());
    }
    file.freeze();
    Ok((Arc::new(file), pool))
}

fn number(file: Handle<dyn FileCache>, page: usize) -> u64 {
    let frame = file.pin(page as u64).expect("the page is in memory");
    u64::from_ne_bytes(frame[..8].try_into().expect("eight bytes"))
}

/// `squall-mapped`. Fields drop in this order.
pub(crate) struct Mapped {
    file: SharedCache,
    _pool: Owned<dyn PagePool>,
}

impl Mapped {
    fn map(&self) -> Result<hat::PrivateMapped, hat::MapError> {
        // SAFETY: the case touches the memory outside of locks.
        unsafe { hat::map_private(Mapping::new(self.file.clone())) }
    }
}

impl Clones for Mapped {
    fn new(pages: usize) -> Result<Mapped, Missing> {
        let (file, pool) = warm(pages)?;
        let mapped = Mapped { file, _pool: pool };
        match mapped.map() {
            Ok(_) => Ok(mapped),
            Err(error) => Err(Missing(error.to_string())),
        }
    }

    fn clone_once(&self) {
        drop(self.map().expect("it was mapped before"));
    }

    fn change(&self, page: usize) -> (u64, u64) {
        let clone = self.map().expect("it was mapped before");
        // SAFETY: an aligned word of the mapping, which lives as long as the reference.
        let word = unsafe { AtomicU64::from_ptr(clone.as_ptr().as_ptr().add(page * PAGE_BYTES).cast()) };
        (word.swap(u64::MAX, Ordering::Relaxed), number(self.file.handle(), page))
    }
}

/// `squall-pinned`. Fields drop in this order.
pub(crate) struct Pinned {
    file: SharedCache,
    pool: Owned<dyn PagePool>,
}

impl Pinned {
    fn copy(&self) -> Owned<dyn FileCache> {
        let source = source::zero_fill(self.file.len());
        cache::copy_of(self.file.clone(), cache::Form::Shared, source, self.pool.handle())
    }
}

impl Clones for Pinned {
    fn new(pages: usize) -> Result<Pinned, Missing> {
        let (file, pool) = warm(pages)?;
        Ok(Pinned { file, pool })
    }

    fn clone_once(&self) {
        drop(self.copy());
    }

    fn change(&self, page: usize) -> (u64, u64) {
        let copy = self.copy();
        let seen = number(copy.handle(), page);
        copy.pin_mut(page as u64).expect("a page is free")[..8].fill(0xFF);
        (seen, number(self.file.handle(), page))
    }
}

/// `fork`.
pub(crate) struct Fork {
    memory: Anonymous,
}

// SAFETY: shared references only read the memory, which no thread writes.
unsafe impl Sync for Fork {}

impl Fork {
    fn word(&self, page: usize) -> *mut u64 {
        // SAFETY: within the mapping.
        unsafe { self.memory.start().as_ptr().add(page * PAGE_BYTES).cast() }
    }

    /// Runs `child` in a child process, and returns its exit status.
    fn fork(child: impl FnOnce() -> u8) -> i32 {
        // SAFETY: the child touches the memory alone, and ends without destructors.
        match unsafe { libc::fork() } {
            // SAFETY: as above.
            0 => unsafe { libc::_exit(child().into()) },
            -1 => panic!("no child: {}", std::io::Error::last_os_error()),
            process => {
                let mut status = 0;
                // SAFETY: a child of this process, and a place for its status.
                while unsafe { libc::waitpid(process, &raw mut status, 0) } == -1 {}
                assert!(libc::WIFEXITED(status), "a signal ended the child");
                libc::WEXITSTATUS(status)
            }
        }
    }
}

impl Clones for Fork {
    fn new(pages: usize) -> Result<Fork, Missing> {
        let memory = Anonymous::new(pages * PAGE_BYTES);
        let mut memory = memory.map_err(|error| Missing(format!("no memory: {error}")))?;
        for (page, bytes) in memory.bytes().chunks_exact_mut(PAGE_BYTES).enumerate() {
            bytes[..8].copy_from_slice(&(page as u64 + 1).to_ne_bytes());
        }
        Ok(Fork { memory })
    }

    fn clone_once(&self) {
        assert_eq!(Fork::fork(|| 0), 0);
    }

    fn change(&self, page: usize) -> (u64, u64) {
        let (word, expected) = (self.word(page), page as u64 + 1);
        let right = Fork::fork(|| {
            // SAFETY: an aligned word. The child has one thread.
            let seen = unsafe { word.replace(u64::MAX) };
            u8::from(seen == expected)
        });
        // SAFETY: an aligned word, which no thread writes.
        (if right == 1 { expected } else { 0 }, unsafe { word.read() })
    }
}
