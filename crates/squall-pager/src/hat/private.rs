//! Private mappings of frozen files: loads show the file, and stores stay in the mapping.
//!
//! Problem: many workers start from one warmed memory, and each changes a little of it. Copies of the memory
//! cost time and memory for pages that are never changed.
//!
//! Idea: a private mapping has the pages of the cache themselves. The kernel copies a page at the first
//! store, and keeps the copy. So a clone is one mapping, whatever its length.
//!
//! - I1. The file is frozen. So a page has the same bytes whenever it is brought in.
//! - I2. A page of the cache's own window is mapped, and leaves the mapping when the cache discards it. Every
//!   other page is copied into the mapping.
//!
//! Cost: a fault for each page that is touched. No memory for pages that are only read, if the file is
//! mappable.
//! Source: Appavoo 2005, §4.1 (copies of regions), with the kernel's copy on write.

use squall_rcu::Guard;
use squall_sys::uffd::{Modes, Options, Uffd};
use squall_sys::window::{PrivateSpan, Window};
use std::fmt;
use std::os::fd::AsFd as _;
use std::ptr::NonNull;
use std::sync::Arc;

use super::maps::{self, MapError, present};
use crate::access::Access;
use crate::cache::{FileCache, PAGE_BYTES};
use crate::error::PageFault;
use crate::home::{Counted, Home};
use crate::region::{Mapping, SharedCache};
use crate::slot::{Latched, Slot};

/// The kinds of faults of a private mapping. The kernel itself answers stores to mapped pages.
pub(super) const MODES: Modes = Modes { missing: true, minor: true, write_protect: false };

/// A part of a frozen file, for mappings.
pub(super) struct Frozen {
    cache: SharedCache,
    first_page: u64,
    pub(super) bytes: usize,
    /// The memory to map, and the number of the cache that owns it.
    window: Option<(Arc<Window>, u64)>,
    pub(super) home: Arc<Home>,
}

impl Frozen {
    pub(super) fn new(mapping: Mapping) -> Result<Frozen, MapError> {
        let backing = mapping.cache.try_backing().map_err(MapError::Call)?;
        if !backing.is_frozen {
            return Err(MapError::NotFrozen);
        }
        // Waits for threads that had pages pinned when it was frozen.
        mapping.cache.try_freeze().map_err(MapError::Call)?;
        let bytes =
            usize::try_from(mapping.bytes).ok().and_then(|bytes| bytes.checked_next_multiple_of(PAGE_BYTES));
        let end =
            mapping.first_page.checked_mul(PAGE_BYTES as u64).and_then(|at| at.checked_add(mapping.bytes));
        let len = mapping.cache.try_len().map_err(MapError::Call)?;
        let (Some(bytes @ 1..), Some(..)) = (bytes, end.filter(|end| *end <= len)) else {
            return Err(MapError::Range { first_page: mapping.first_page, bytes: mapping.bytes, len });
        };
        let window = backing.window.window.map(|window| (window, backing.home.cache()));
        let (cache, first_page) = (mapping.cache, mapping.first_page);
        Ok(Frozen { cache, first_page, bytes, window, home: backing.home })
    }

    /// Returns the memory to map, and the place of the first byte in it.
    pub(super) fn file(&self) -> Option<(&Window, usize)> {
        self.window.as_ref().map(|(window, _)| (&**window, self.first_page as usize * PAGE_BYTES))
    }

    /// Brings the page at an offset of a mapping of this process to an address.
    fn resolve(&self, uffd: &Uffd, offset: usize, to: usize) -> Result<(), PageFault> {
        let page = self.page(offset);
        match squall_rcu::pin(|guard| self.bring_resident(guard, uffd, page, to)) {
            Some(done) => done,
            None => self.resolve_for(uffd, offset, to),
        }
    }

    /// Brings the page at an offset of a mapping to an address, through the descriptor of another process.
    /// That process may hold the call up, so it runs outside operations.
    pub(super) fn resolve_for(&self, uffd: &Uffd, offset: usize, to: usize) -> Result<(), PageFault> {
        let page = self.page(offset);
        loop {
            let located = self.cache.fault(page, Access::Read)?;
            if let Some(done) = self.bring(uffd, &located.slot, to) {
                return done;
            }
            // Another thread has the latch, or evicts the page.
            std::thread::yield_now();
        }
    }

    fn page(&self, offset: usize) -> u64 {
        self.first_page + (offset / PAGE_BYTES) as u64
    }

    fn bring_resident(
        &self,
        guard: &Guard,
        uffd: &Uffd,
        page: u64,
        to: usize,
    ) -> Option<Result<(), PageFault>> {
        self.bring(uffd, self.cache.handle().try_find(guard, page).ok()??.0, to)
    }

    fn bring(&self, uffd: &Uffd, slot: &Slot, to: usize) -> Option<Result<(), PageFault>> {
        if self.window.as_ref().is_some_and(|(_, owner)| *owner == slot.cache()) {
            return slot.try_show(|| {
                // SAFETY: the addresses are a private mapping of this file, and its readers find the bytes of
                // the file.
                present(unsafe { uffd.resume(to, PAGE_BYTES, Options::default()) }).map(drop)
            });
        }
        let Latched::Frame(frame) = slot.try_read() else { return None };
        // SAFETY: the frame's bytes, which no thread writes while it is held. The mapping's readers find the
        // bytes of the file.
        Some(present(unsafe { uffd.copy(to, frame.as_ptr(), PAGE_BYTES, Options::default()) }).map(drop))
    }
}

/// A private mapping in this process.
pub(super) struct Private {
    span: PrivateSpan,
    uffd: &'static Uffd,
    frozen: Frozen,
}

impl Private {
    pub(super) fn contains(&self, address: usize) -> bool {
        address.checked_sub(self.span.at().addr().get()).is_some_and(|offset| offset < self.span.len())
    }

    pub(super) fn resolve(&self, address: usize) -> Result<(), PageFault> {
        let start = self.span.at().addr().get();
        let offset = (address - start) / PAGE_BYTES * PAGE_BYTES;
        self.frozen.resolve(self.uffd, offset, start + offset)
    }
}

/// A frozen file at addresses of this process, with the stores of this mapping. Dropping it unmaps the
/// addresses, and its changes are lost.
pub struct PrivateMapped(Arc<Private>, #[expect(dead_code, reason = "it counts the mapping")] Counted);

impl PrivateMapped {
    /// Returns the first address.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.0.span.at()
    }

    /// Returns the length in bytes, a multiple of the page size.
    #[expect(clippy::len_without_is_empty, reason = "a mapping without bytes cannot be made")]
    pub fn len(&self) -> usize {
        self.0.span.len()
    }
}

impl fmt::Debug for PrivateMapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("PrivateMapped");
        debug.field("at", &self.as_ptr()).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Drop for PrivateMapped {
    fn drop(&mut self) {
        if squall_sys::fork::forked() {
            // As for a `Mapped`.
            return;
        }
        maps::remove(|map| matches!(map, maps::Map::Private(map) if Arc::ptr_eq(map, &self.0)));
        // The last share unmaps the addresses, which ends their registration.
    }
}

/// Maps a part of a file. The handler is there.
pub(super) fn map(mapping: Mapping) -> Result<PrivateMapped, MapError> {
    let uffd = maps::uffd()?;
    let frozen = Frozen::new(mapping)?;
    let span = match frozen.file() {
        Some((window, at)) => PrivateSpan::map(Some(window.as_fd()), at, frozen.bytes),
        None => PrivateSpan::map(None, 0, frozen.bytes),
    };
    let span = span.map_err(|error| MapError::System(Arc::new(error)))?;
    // Fresh memory has no minor faults.
    let modes = Modes { minor: frozen.file().is_some(), ..MODES };
    // SAFETY: a new mapping. Users agreed to faults, and the descriptor stays open.
    unsafe { uffd.register(span.at().addr().get(), span.len(), modes) }.map_err(MapError::Register)?;
    let counted = Counted::new(frozen.home.clone(), |home| &home.private);
    let map = Arc::new(Private { span, uffd, frozen });
    maps::add(maps::Map::Private(map.clone()));
    Ok(PrivateMapped(map, counted))
}
