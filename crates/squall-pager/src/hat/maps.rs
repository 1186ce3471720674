//! Mappings of windows, and their registration for faults.
//!
//! - I1. A mapping is registered for every kind of fault before a thread can know its address, and is in the
//!   list of its cache before a page can be in it. So each page in a mapping was put there by `resolve`.
//! - I2. A mapping is in the list of all mappings while its addresses are mapped, so the handler finds it.

use squall_core::{CallError, Handle};
use squall_rcu::{Guard, Rcu};
use squall_sys::uffd::{Features, Modes, OpenError, Options, RangeError, Reason, Uffd};
use squall_sys::window::Span;
use std::error::Error;
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::private::Private;
use crate::access::Access;
use crate::cache::{FileCache, PAGE_BYTES};
use crate::error::PageFault;
use crate::home::{Home, Translate};
use crate::region::Region;
use crate::slot::Slot;

/// A mapping of a region at addresses.
#[derive(Debug)]
pub(super) struct Translation {
    span: Span,
    /// The number of the page at the first address.
    first_page: u64,
    uffd: &'static Uffd,
    region: Handle<dyn Region>,
    /// Number of pages that a fault brings in.
    read_ahead: AtomicUsize,
}

impl Translation {
    fn start(&self) -> usize {
        self.span.at().addr().get()
    }

    fn contains(&self, address: usize) -> bool {
        address.checked_sub(self.start()).is_some_and(|offset| offset < self.span.len())
    }

    /// Returns the address of a page, if it is mapped here.
    fn address(&self, number: u64) -> Option<usize> {
        let offset = number.checked_sub(self.first_page)?.checked_mul(PAGE_BYTES as u64)?;
        (offset < self.span.len() as u64).then(|| self.start() + offset as usize)
    }

    fn forget_pages(&self, number: u64, pages: u64) {
        let first = number.max(self.first_page) - self.first_page;
        let all = (self.span.len() / PAGE_BYTES) as u64;
        let count = (number.saturating_add(pages))
            .saturating_sub(self.first_page + first)
            .min(all.saturating_sub(first));
        if count > 0 {
            // It can only fail for memory that is locked, which a mapping is not.
            let _ = self.span.forget(first as usize * PAGE_BYTES, count as usize * PAGE_BYTES);
        }
    }

    /// Brings the page at an address into the mapping, and its block as far as possible.
    pub(super) fn resolve(&self, address: usize, access: Access) -> Result<(), PageFault> {
        let offset = (address - self.start()) / PAGE_BYTES * PAGE_BYTES;
        // Relaxed: any value will do.
        let pages = self.read_ahead.load(Ordering::Relaxed);
        if pages == 1 {
            return self.resolve_page(offset, access);
        }
        let block = offset / (pages * PAGE_BYTES) * (pages * PAGE_BYTES);
        let others = || (block..self.span.len()).step_by(PAGE_BYTES).take(pages).filter(|at| *at != offset);
        for other in others() {
            // A failure concerns the thread that wants that page.
            let _ = self.region.try_read_ahead(other as u64);
        }
        // The wanted page is last. So the others do not evict it, however few pages the memory has.
        self.resolve_page(offset, access)?;
        squall_rcu::pin(|guard| self.show_others(guard, others()));
        Ok(())
    }

    /// Maps the resident ones of some pages for reading.
    fn show_others(&self, guard: &Guard, offsets: impl Iterator<Item = usize>) {
        let mut run = Run { first: 0, slots: [None; READ_AHEAD_MAX], len: 0 };
        for offset in offsets {
            if run.end() != offset {
                self.show_run(&mut run);
                run.first = offset;
            }
            match self.region.try_find(guard, offset as u64) {
                Ok(Some(found)) => run.push(found.0),
                _ => {
                    self.show_run(&mut run);
                    run.first = offset + PAGE_BYTES;
                }
            }
        }
        self.show_run(&mut run);
    }

    /// Maps pages that follow each other for reading, by one call of the kernel if none of them is mapped.
    fn show_run(&self, run: &mut Run<'_>) {
        let (start, len) = (self.start() + run.first, run.len * PAGE_BYTES);
        latched(&run.slots[..run.len], &mut || {
            let mut done = 0;
            while done < len {
                match self.resume(start + done, len - done) {
                    Ok(_) => break,
                    Err(error) if error.reason() == Reason::Present => done += error.done() + PAGE_BYTES,
                    // The threads that want the pages meet the error.
                    Err(_) => break,
                }
            }
        });
        *run = Run { first: run.end(), slots: [None; READ_AHEAD_MAX], len: 0 };
    }

    /// Brings the page at an offset into the mapping.
    fn resolve_page(&self, offset: usize, access: Access) -> Result<(), PageFault> {
        let at = self.start() + offset;
        loop {
            if access == Access::Read
                && let Some(shown) = squall_rcu::pin(|guard| self.show_resident(guard, offset as u64, at))
            {
                return shown;
            }
            let located = self.region.fault(offset as u64, access)?;
            let done = match access {
                Access::Read => located.slot.try_show(|| self.show(at)),
                Access::Write => located.slot.open(|| self.open(at)),
            };
            if let Some(done) = done {
                return done;
            }
            // Another thread has the latch, or evicts the page.
            std::thread::yield_now();
        }
    }

    fn show_resident(&self, guard: &Guard, offset: u64, at: usize) -> Option<Result<(), PageFault>> {
        self.region.try_find(guard, offset).ok()??.0.try_show(|| self.show(at))
    }

    /// Maps a page for reading. Called under its latch.
    fn show(&self, at: usize) -> Result<(), PageFault> {
        present(self.resume(at, PAGE_BYTES)).map(drop)
    }

    /// Maps pages for reading. Called under their latches.
    fn resume(&self, at: usize, len: usize) -> Result<usize, RangeError> {
        let options = Options { write_protected: true, ..Options::default() };
        // SAFETY: the mapping is of this cache, and its readers find the bytes of the file.
        unsafe { self.uffd.resume(at, len, options) }
    }

    /// Maps a page for writing. Called under its latch for writing.
    fn open(&self, at: usize) -> Result<(), PageFault> {
        // SAFETY: as in `show`.
        if !present(unsafe { self.uffd.resume(at, PAGE_BYTES, Options::default()) })? {
            // It was there, and is write-protected.
            self.uffd.write_protect(at, PAGE_BYTES, false, Options::default()).map_err(PageFault::Mapping)?;
        }
        Ok(())
    }
}

impl Translate for Translation {
    fn protect(&self, number: u64) {
        if let Some(at) = self.address(number)
            && self.uffd.write_protect(at, PAGE_BYTES, true, Options::default()).is_err()
        {
            // Every access faults then.
            self.forget_pages(number, 1);
        }
    }

    fn forget(&self, number: u64, pages: u64) {
        self.forget_pages(number, pages);
    }
}

/// The largest number of pages that a fault brings in.
const READ_AHEAD_MAX: usize = 64;

/// Resident pages that follow each other.
struct Run<'o> {
    /// The offset of the first one.
    first: usize,
    slots: [Option<&'o Slot>; READ_AHEAD_MAX],
    len: usize,
}

impl<'o> Run<'o> {
    fn end(&self) -> usize {
        self.first + self.len * PAGE_BYTES
    }

    fn push(&mut self, slot: &'o Slot) {
        self.slots[self.len] = Some(slot);
        self.len += 1;
    }
}

/// Calls `show` under the latches of all these slots, unless another thread has one of them.
fn latched(slots: &[Option<&Slot>], show: &mut dyn FnMut()) {
    match slots.split_first() {
        None => show(),
        Some((Some(slot), rest)) => _ = slot.try_show(|| latched(rest, show)),
        Some((None, _)) => {}
    }
}

/// Returns false if the page was in the mapping before.
pub(super) fn present(resumed: Result<usize, RangeError>) -> Result<bool, PageFault> {
    match resumed {
        Ok(_) => Ok(true),
        Err(error) if error.reason() == Reason::Present => Ok(false),
        Err(error) => Err(PageFault::Mapping(error)),
    }
}

/// A mapping in this process.
#[derive(Clone)]
pub(super) enum Map {
    Shared(Arc<Translation>),
    Private(Arc<Private>),
}

impl Map {
    fn contains(&self, address: usize) -> bool {
        match self {
            Map::Shared(map) => map.contains(address),
            Map::Private(map) => map.contains(address),
        }
    }

    /// Brings the page at an address into the mapping.
    pub(super) fn resolve(&self, address: usize, access: Access) -> Result<(), PageFault> {
        match self {
            Map::Shared(map) => map.resolve(address, access),
            Map::Private(map) => map.resolve(address),
        }
    }
}

/// All mappings.
fn all() -> &'static Rcu<Vec<Map>> {
    static ALL: OnceLock<Rcu<Vec<Map>>> = OnceLock::new();
    ALL.get_or_init(|| Rcu::new(Box::default()))
}

pub(super) fn add(map: Map) {
    all().update(|maps| maps.iter().cloned().chain([map.clone()]).collect());
}

/// Removes a mapping, which `is_it` recognises.
pub(super) fn remove(is_it: impl Fn(&Map) -> bool) {
    all().update(|maps| maps.iter().filter(|map| !is_it(map)).cloned().collect());
}

/// Returns the mapping of an address.
pub(super) fn find(address: usize) -> Option<Map> {
    squall_rcu::pin(|guard| all().load(guard).iter().find(|map| map.contains(address)).cloned())
}

/// The descriptor for all mappings of this process.
pub(super) fn uffd() -> Result<&'static Uffd, MapError> {
    static UFFD: OnceLock<Result<Uffd, Arc<OpenError>>> = OnceLock::new();
    let opened = UFFD.get_or_init(|| {
        let wanted = Features::SIGBUS
            | Features::MINOR_SHMEM
            | Features::PAGEFAULT_FLAG_WP
            | Features::MISSING_SHMEM
            | Features::WP_HUGETLBFS_SHMEM;
        Uffd::open(wanted).map_err(Arc::new)
    });
    opened.as_ref().map_err(|error| MapError::Refused(error.clone()))
}

/// A region at addresses of this process. Dropping it unmaps the addresses.
///
/// A touch of a page brings it in. If that fails, the thread gets SIGBUS, as at a file that was cut short,
/// and the reason is written to standard error.
pub struct Mapped {
    map: Arc<Translation>,
    /// `map`, as the list of the cache has it.
    listed: Arc<dyn Translate>,
    home: Arc<Home>,
}

impl Mapped {
    /// Returns the first address.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.map.span.at()
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a mapping without bytes cannot be made")]
    pub fn len(&self) -> usize {
        self.map.span.len()
    }

    /// Sets the number of pages that a fault brings in. The default is 1.
    ///
    /// A fault brings in the block of that many pages around it, aligned by its size. Pages beside the wanted
    /// one come only if memory and source allow it at once. They are mapped for reading, so the first store
    /// to one of them is a fault too.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", not(miri)))] {
    /// # use std::sync::Arc;
    /// # use squall::objects::pages::{self, Supply};
    /// # use squall::pager::region::{self, Mapping};
    /// use squall::pager::{cache, hat, source};
    ///
    /// # let memory = pages::distributed(Supply::system(64));
    /// # let pool = memory.handle();
    /// let file = Arc::new(cache::mappable(cache::Form::Shared, source::zero_fill(1 << 20), pool)?);
    /// let region = region::with_form(region::Form::Shared, 0, Mapping::new(file.clone()));
    /// // SAFETY: this thread holds no lock while it touches the memory.
    /// if let Ok(mapped) = unsafe { hat::map(region.handle()) } {
    ///     mapped.set_read_ahead(16);
    ///     assert_eq!(unsafe { mapped.as_ptr().read() }, 0);
    ///     assert_eq!(squall::pager::cache::FileCache::sensors(&file.handle()).fills, 16);
    /// }
    /// # }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// If `pages` is no power of two, or more than 64.
    pub fn set_read_ahead(&self, pages: usize) {
        assert!(
            pages.is_power_of_two() && pages <= READ_AHEAD_MAX,
            "a fault of a mapped region cannot bring in {pages} pages; choose a power of two up to {READ_AHEAD_MAX}"
        );
        self.map.read_ahead.store(pages, Ordering::Relaxed);
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapped").field("at", &self.as_ptr()).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if squall_sys::fork::forked() {
            // The child of a fork has no mapping, and can change no list.
            return;
        }
        self.home.remove_map(&self.listed);
        remove(|map| matches!(map, Map::Shared(map) if Arc::ptr_eq(map, &self.map)));
        // The last share unmaps the addresses, which ends their registration.
    }
}

/// The reason why a region cannot be mapped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum MapError {
    /// The system refuses userfaultfd, or lacks a feature of it.
    Refused(Arc<OpenError>),
    /// The cache has its pages in a pool. Make it by [`cache::mappable`](crate::cache::mappable).
    NotMappable,
    /// The file may still be written. Freeze it before: [`FileCache::freeze`].
    NotFrozen,
    /// The file has no such part, or the part has no bytes.
    Range {
        /// The number of the first page.
        first_page: u64,
        /// The length of the part in bytes.
        bytes: u64,
        /// The length of the file in bytes.
        len: u64,
    },
    /// The handler of faults could not be installed, or the addresses not be mapped.
    System(Arc<io::Error>),
    /// The addresses could not be registered.
    Register(RangeError),
    /// An object was destroyed, or refuses calls.
    Call(CallError),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Refused(error) => write!(f, "cannot map a region: {error}"),
            MapError::NotMappable => f.write_str(
                "cannot map a region: its file cache has its pages in a pool; make it with `cache::mappable`",
            ),
            MapError::NotFrozen => f.write_str(
                "cannot map a file privately: it may still be written; freeze it first (`FileCache::freeze`)",
            ),
            MapError::Range { first_page, bytes, len } => {
                write!(f, "cannot map {bytes} bytes from page {first_page} on: the file has {len} bytes")
            }
            MapError::System(error) => write!(f, "cannot map a region: {error}"),
            MapError::Register(error) => write!(f, "cannot map a region: {error}"),
            MapError::Call(error) => error.fmt(f),
        }
    }
}

impl Error for MapError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            MapError::Refused(error) => Some(&**error),
            MapError::System(error) => Some(&**error),
            MapError::Register(error) => Some(error),
            MapError::Call(error) => Some(error),
            MapError::NotMappable | MapError::NotFrozen | MapError::Range { .. } => None,
        }
    }
}

/// Maps a region. The handler is there.
pub(super) fn map(region: Handle<dyn Region>) -> Result<Mapped, MapError> {
    let uffd = uffd()?;
    let cache = region.try_cache().map_err(MapError::Call)?;
    let backing = cache.try_backing().map_err(MapError::Call)?;
    let window = backing.window.window.ok_or(MapError::NotMappable)?;
    let first_page = region.try_first_page().map_err(MapError::Call)?;
    let len = region.try_len().map_err(MapError::Call)? as usize;
    let span = window.span(first_page as usize * PAGE_BYTES, len.next_multiple_of(PAGE_BYTES));
    let span = span.map_err(|error| MapError::System(Arc::new(error)))?;
    let modes = Modes { missing: true, minor: true, write_protect: true };
    // SAFETY: a new mapping. Users agreed to faults, and the descriptor stays open.
    unsafe { uffd.register(span.at().addr().get(), span.len(), modes) }.map_err(MapError::Register)?;
    let map = Arc::new(Translation { span, first_page, uffd, region, read_ahead: AtomicUsize::new(1) });
    let listed: Arc<dyn Translate> = map.clone();
    backing.home.add_map(listed.clone());
    add(Map::Shared(map.clone()));
    Ok(Mapped { map, listed, home: backing.home })
}

/// Writes the reason for which a thread will get a signal to standard error.
pub(super) fn tell(address: usize, error: &dyn fmt::Display) {
    let text = format!("squall: no page at {address:#x}: {error}\n");
    squall_sys::pages::write_stderr(text.as_bytes());
}
