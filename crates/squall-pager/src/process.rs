//! Processes: address spaces of regions, with page managers of their own.
//!
//! A process has a list of regions in one of the forms of the [cached list](squall_objects::cached): shared,
//! a cache on each processor, or full caches only where its threads are. The list is an object of its own,
//! which can be swapped while faults run.
//!
//! ```
//! use std::sync::Arc;
//! use squall::objects::cached;
//! use squall::objects::pages::{self, Supply};
//! use squall::pager::process::Process;
//! use squall::pager::region::{self, Mapping};
//! use squall::pager::{cache, source};
//!
//! let memory = pages::distributed(Supply::system(1000));
//! let process = Process::new(cached::Form::shared(), memory.handle(), 100);
//! let heap = cache::partitioned(source::zero_fill(1 << 20), process.page_manager());
//! let region = process.map(region::Form::Distributed, Mapping::new(Arc::new(heap)))?;
//! process.pin_mut(region.start() + 5000)?[904] = 1;
//! assert_eq!(process.pin(region.start() + 4096)?[904], 1);
//! process.unmap(region.start())?;
//! assert!(process.pin(region.start()).is_err());
//! # Ok::<(), squall::pager::PageFault>(())
//! ```
//!
//! # Source
//! Appavoo 2005, §4.1.1 and §4.1.2 (CO-43, CO-44); Gamsa et al. 1999 (TO-05); Unrau et al. 1995 (HU-12).

use squall_core::{Handle, Owned};
use squall_objects::cached::{self, CachedList, Items, List};
use squall_objects::pages::{self, Attribute, PagePool, Supply};
use std::fmt;

use crate::cache::{self, Access, Located, PAGE_BYTES};
use crate::error::PageFault;
use crate::region::{self, Mapping, Region};
use crate::slot::{Frame, FrameMut};
use crate::working_set::Policy;
pub use crate::working_set::{WorkingSet, WorkingSetError};

/// The first address that [`Process::map`] uses. The addresses below hold no region.
const FIRST: u64 = 1 << 32;
/// The largest address.
const LAST: u64 = (1 << 47) - 1;
/// Unmapped addresses after each region that [`Process::map`] places.
const GUARD_BYTES: u64 = PAGE_BYTES as u64;

/// A region in the list of its process.
struct Mapped {
    start: u64,
    /// The first address after the region, at the time when it was mapped.
    end: u64,
    region: Owned<dyn Region>,
}

/// A region of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedRegion {
    start: u64,
    region: Handle<dyn Region>,
}

impl MappedRegion {
    /// Returns the first address.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the region.
    pub fn handle(&self) -> Handle<dyn Region> {
        self.region
    }
}

/// An address space.
///
/// Dropping it destroys its regions and its page manager.
pub struct Process {
    regions: List<Mapped>,
    memory: Owned<dyn PagePool>,
    policy: Policy,
}

impl Process {
    /// Creates an empty process. Its page manager gets up to `max_pages` pages from `memory`, which the
    /// caller keeps. `form` is that of the list of regions. If its caches have used all pages, they give 64
    /// back at once, or a quarter of `max_pages` if that is less.
    ///
    /// # Panics
    /// If an object cannot be created: see [`CreateError`](squall_core::CreateError).
    #[track_caller]
    pub fn new(form: cached::Form, memory: Handle<dyn PagePool>, max_pages: usize) -> Process {
        let memory = pages::distributed(Supply::under(memory, max_pages));
        // A reclamation asks for a batch: not for all pages of a small process.
        let batch = memory.attribute(Attribute::Batch).min((max_pages / 4).max(1));
        memory.set_attribute(Attribute::Batch, batch);
        Process { regions: cached::list(form), memory, policy: Policy::new(max_pages) }
    }

    /// Returns the page manager, for the caches of memory that is this process's alone. Caches of files that
    /// several processes use belong to the pool of all (AD-08).
    pub fn page_manager(&self) -> Handle<dyn PagePool> {
        self.memory.handle()
    }

    /// Sets the policy for the number of pages that the process keeps in memory. It holds for the caches on
    /// its page manager, and may change at any time. The first policy is the limit at creation.
    ///
    /// Pages beyond a smaller limit go, by the clocks of the caches. Changed ones are written to their files
    /// first. Pages that are pinned, or cannot be written, stay. The page manager then gets no new page until
    /// enough have gone.
    ///
    /// ```
    /// use squall::objects::cached;
    /// use squall::objects::pages::{self, PagePool, Supply};
    /// use squall::pager::process::{Process, WorkingSet};
    ///
    /// let memory = pages::distributed(Supply::system(1000));
    /// let process = Process::new(cached::Form::shared(), memory.handle(), 100);
    /// let rated = WorkingSet::FaultRate {
    ///     pages_min: 20,
    ///     pages_max: 50,
    ///     faults_per_s_min: 100,
    ///     faults_per_s_max: 1000,
    /// };
    /// process.set_working_set(rated)?;
    /// assert_eq!((process.working_set(), process.page_manager().max_pages()), (rated, 50));
    /// assert!(process.set_working_set(WorkingSet::Limit { pages_max: 0 }).is_err());
    /// # Ok::<(), squall::pager::process::WorkingSetError>(())
    /// ```
    ///
    /// # Errors
    /// [`WorkingSetError`]; the former policy stays.
    /// # Source
    /// Appavoo 2005, §8.5 (CO-76); Gamsa et al. 1999, §2 (TO-01); Chu and Opderbeck 1972.
    pub fn set_working_set(&self, working_set: WorkingSet) -> Result<(), WorkingSetError> {
        self.policy.set(working_set, self.memory.handle())
    }

    /// Returns the policy for the number of pages.
    pub fn working_set(&self) -> WorkingSet {
        self.policy.setting()
    }

    /// Adjusts the limit of pages to the rate of faults since the last time. Faults do so by themselves, and
    /// a process without faults gives pages back only by this.
    ///
    /// Faults count that read a page into memory of this process, by its methods. Those of mapped addresses
    /// ([`hat`](crate::hat)) do not.
    pub fn adjust_working_set(&self) {
        self.policy.adjust(self.memory.handle());
    }

    /// Returns the list of regions, for hot-swaps and tools.
    pub fn regions(&self) -> RegionList {
        RegionList(self.regions.handle())
    }

    /// Maps a file at free addresses.
    ///
    /// # Errors
    /// [`PageFault::NoAddresses`]
    pub fn map(&self, form: region::Form, mapping: Mapping) -> Result<MappedRegion, PageFault> {
        loop {
            let start = self.gap(mapping.bytes)?;
            match self.map_at(start, form, mapping.clone()) {
                // Another thread took the addresses.
                Err(PageFault::Overlap { .. }) => {}
                mapped => return mapped,
            }
        }
    }

    /// Returns the start of a gap for a region of this length.
    fn gap(&self, bytes: u64) -> Result<u64, PageFault> {
        let none = PageFault::NoAddresses { bytes };
        let needed = bytes.checked_next_multiple_of(PAGE_BYTES as u64);
        let Some(needed) = needed.and_then(|bytes| bytes.checked_add(GUARD_BYTES)) else { return Err(none) };
        let mut taken: Vec<_> = self.regions.iter().map(|region| (region.start, region.end)).collect();
        taken.sort_unstable();
        let mut start = FIRST;
        for (first, end) in taken {
            if first >= start && first - start >= needed {
                break;
            }
            start = start.max(end.next_multiple_of(PAGE_BYTES as u64) + GUARD_BYTES);
        }
        if LAST.saturating_sub(start) < needed { Err(none) } else { Ok(start) }
    }

    /// Maps a file at this address, a multiple of the size of a page.
    ///
    /// # Errors
    /// [`PageFault::Overlap`] if a region has addresses in the range. A region that is being unmapped has its
    /// addresses until the unmap is over. [`PageFault::NoAddresses`] if the range is outside of the address
    /// space.
    ///
    /// # Panics
    /// If `start` is not the address of a page.
    pub fn map_at(
        &self,
        start: u64,
        form: region::Form,
        mapping: Mapping,
    ) -> Result<MappedRegion, PageFault> {
        assert!(start.is_multiple_of(PAGE_BYTES as u64), "{start:#x} is not the address of a page");
        let bytes = mapping.bytes;
        let end = start.checked_add(bytes).filter(|end| *end <= LAST);
        let end = end.ok_or(PageFault::NoAddresses { bytes })?;
        let region = region::with_form(form, start, mapping);
        let mapped = MappedRegion { start, region: region.handle() };
        let overlaps = |there: &Mapped, new: &Mapped| there.start < new.end && new.start < there.end;
        match self.regions.try_insert(Mapped { start, end, region }, overlaps) {
            Ok(_) => Ok(mapped),
            Err(_) => Err(PageFault::Overlap { start, end }),
        }
    }

    /// Returns the region at this address.
    pub fn region(&self, address: u64) -> Option<MappedRegion> {
        let contains = |region: &Mapped| region.start <= address && address < region.end;
        self.regions
            .find(contains, |mapped| MappedRegion { start: mapped.start, region: mapped.region.handle() })
    }

    /// Pins the page at this address for reading, and brings it into memory first if it is not there.
    ///
    /// The frame has the whole page. The byte at the address is the one at `address % PAGE_BYTES`.
    ///
    /// ```
    /// # use squall::objects::{cached, pages};
    /// # use squall::pager::process::Process;
    /// # use squall::pager::region::{Form, Mapping};
    /// # use squall::pager::{cache, source};
    /// use squall::pager::cache::PAGE_BYTES;
    /// # let memory = pages::distributed(pages::Supply::system(16));
    /// # let process = Process::new(cached::Form::shared(), memory.handle(), 16);
    /// # let heap = cache::shared(source::zero_fill(1 << 16), process.page_manager());
    /// # let region = process.map(Form::Shared, Mapping::new(std::sync::Arc::new(heap)))?;
    ///
    /// let address = region.start() + 10_000;
    /// process.pin_mut(address)?[address as usize % PAGE_BYTES] = 7;
    /// assert_eq!(process.pin(region.start() + 2 * PAGE_BYTES as u64)?[10_000 - 2 * PAGE_BYTES], 7);
    /// # Ok::<(), squall::pager::PageFault>(())
    /// ```
    ///
    /// # Errors
    /// [`PageFault`]
    pub fn pin(&self, address: u64) -> Result<Frame, PageFault> {
        let found = cache::pin_resident(|guard| {
            let mapped = self.region(address)?;
            mapped.region.try_find(guard, address - mapped.start).ok().flatten()
        });
        match found {
            Some(frame) => Ok(frame),
            None => cache::pin_absent(|| self.fault(address, Access::Read)),
        }
    }

    /// Pins the page at this address for writing, and brings it into memory first if it is not there. Waits
    /// until no other thread pins it. The frame has the whole page, as in [`pin`](Process::pin).
    ///
    /// # Errors
    /// [`PageFault`]
    pub fn pin_mut(&self, address: u64) -> Result<FrameMut, PageFault> {
        cache::pin_mut(|| self.fault(address, Access::Write))
    }

    /// Brings the page at this address into memory, if it is not there.
    ///
    /// # Errors
    /// [`PageFault`]
    pub fn fault(&self, address: u64, access: Access) -> Result<Located, PageFault> {
        let mapped = self.region(address).ok_or(PageFault::NoRegion { address })?;
        match mapped.region.fault(address - mapped.start, access) {
            // It was unmapped meanwhile.
            Err(PageFault::Call(_)) => Err(PageFault::NoRegion { address }),
            Ok(located) => {
                let is_own = || located.filled_from == Some(self.memory.handle());
                if self.policy.is_rated() && is_own() && self.policy.count() {
                    self.policy.adjust(self.memory.handle());
                }
                Ok(located)
            }
            Err(error) => Err(error),
        }
    }

    /// Unmaps the region that begins at this address. Its pages stay in its file cache.
    ///
    /// A region that was unmapped by its handle keeps its addresses. This frees them.
    ///
    /// # Errors
    /// [`PageFault::NoRegion`], or [`PageFault::Unmapped`] while another thread unmaps it.
    pub fn unmap(&self, start: u64) -> Result<(), PageFault> {
        let none = || PageFault::NoRegion { address: start };
        let item = self.regions.get(|region| region.start == start).ok_or_else(none)?;
        let unmapped = item.region.unmap();
        if unmapped.is_err() && !item.region.is_unmapped() {
            return unmapped;
        }
        // From here on the addresses are free (rule 5). Of two threads that find the region unmapped, one
        // removes it.
        if self.regions.remove_item(&item) || unmapped.is_ok() { Ok(()) } else { Err(none()) }
    }

    /// Maps a copy of a region at free addresses. The two share pages until one of them writes a page.
    ///
    /// `copies` makes two copies of the region's file by [`cache::copy_of`]. The region goes on with the
    /// first one, and the new region has the second one. So neither writes the file itself from now on:
    /// changes go to the sources of the copies.
    ///
    /// ```
    /// use squall::objects::{cached, pages};
    /// use squall::pager::cache::{self, FileCache};
    /// use squall::pager::process::Process;
    /// use squall::pager::region::{Form, Mapping};
    /// use squall::pager::source;
    /// use std::sync::Arc;
    ///
    /// let memory = pages::distributed(pages::Supply::system(64));
    /// let process = Process::new(cached::Form::shared(), memory.handle(), 64);
    /// let heap = cache::shared(source::zero_fill(1 << 20), process.page_manager());
    /// let region = process.map(Form::Shared, Mapping::new(Arc::new(heap)))?;
    /// process.pin_mut(region.start())?[0] = 1;
    ///
    /// let snapshot = process.copy(region.start(), Form::Shared, &mut |file| {
    ///     [(); 2].map(|()| {
    ///         let changes = source::compressed(file.len(), 1 << 20);
    ///         cache::copy_of(file.clone(), cache::Form::Shared, changes, process.page_manager())
    ///     })
    /// })?;
    /// process.pin_mut(region.start())?[0] = 2;
    /// assert_eq!(process.pin(snapshot.start())?[0], 1);
    /// # Ok::<(), squall::pager::PageFault>(())
    /// ```
    ///
    /// # Errors
    /// [`PageFault`]
    pub fn copy(
        &self,
        start: u64,
        form: region::Form,
        copies: &mut dyn FnMut(region::SharedCache) -> [Owned<dyn cache::FileCache>; 2],
    ) -> Result<MappedRegion, PageFault> {
        let item = self.regions.get(|region| region.start == start);
        let item = item.ok_or(PageFault::NoRegion { address: start })?;
        let cache = item.region.copy(copies)?;
        // A region only becomes shorter, and its copy has the pages of its start.
        let (bytes, rights) = (item.region.len(), item.region.rights());
        self.map(form, Mapping::new(cache).part(item.region.first_page(), bytes).with_rights(rights))
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("regions", &self.regions.len()).finish_non_exhaustive()
    }
}

/// The list of regions of a process.
#[derive(Clone, Copy)]
pub struct RegionList(Handle<dyn CachedList<Mapped>>);

impl RegionList {
    /// Changes the form by a hot-swap.
    ///
    /// # Errors
    /// [`SwapError`](squall_core::swap::SwapError): the list is unchanged.
    pub fn set_form(
        self,
        form: cached::Form,
    ) -> Result<squall_core::swap::SwapReport, squall_core::swap::SwapError> {
        squall_core::swap::swap(self.0, cached::new_list(form))
    }

    /// Returns the form.
    pub fn form(self) -> cached::Form {
        self.0.form()
    }
}

impl fmt::Debug for RegionList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RegionList").field(&Handle::id(self.0)).finish()
    }
}
