//! Regions: parts of a file at addresses of a process. A region admits faults, and holds them back while it
//! changes.
//!
//! | form | a fault on a resident page | a control operation |
//! |---|---|---|
//! | [`Form::Shared`] | counts in one counter | waits for that counter |
//! | [`Form::Distributed`] | counts on its processor | visits the counters of all processors |
//! | [`Form::Quiescent`] | reads the state in its operation | visits them, and waits for a grace period |
//! | [`Form::Adaptive`] | as shared, or as distributed | as shared, or as distributed |
//!
//! All forms keep the seven rules of K42:
//!
//! 1. A region is complete before a fault can reach it.
//! 2. An unmap lets running faults end.
//! 3. Faults during an unmap, and after it, are refused.
//! 4. Of several unmaps one wins. The others are refused.
//! 5. The addresses are free for another region when the unmap is over.
//! 6. Faults wait while the bounds change.
//! 7. Faults wait while a copy is made.
//!
//! An unmap waits for faults, and not for pins: a pinned page outlives its region.
//!
//! Do not call a control operation while the thread holds a frame of the region's file: it may wait for
//! itself. A copy waits for threads that have pages of its file pinned for writing. So a thread with such a
//! pin does not fault in another region that may be copied meanwhile: two copies could wait for each other's
//! threads.
//!
//! # Source
//! Appavoo 2005, §4.1.3 (CO-48 to CO-52). The form [`Form::Quiescent`] is the one of its footnote 4.

mod admission;
mod body;
mod forms;
mod policy;

use squall_core::swap::Replacement;
use squall_core::{Handle, Owned};
use squall_machine::ClusterSize;
use squall_macros::interface;
use squall_rcu::Guard;

pub use crate::cache::SharedCache;
use crate::cache::{self, Access, FileCache, Located, Resident};
use crate::error::PageFault;
use crate::slot::{Frame, FrameMut};
use admission::{Counters, OneCounter};
use body::Body;
use forms::Mapped;

/// The accesses that a region allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rights {
    /// Its pages may be read.
    Read,
    /// Its pages may be read and written.
    ReadWrite,
}

/// The part of a file that a region maps, and the accesses that it allows.
///
/// ```
/// use squall::objects::pages::{self, Supply};
/// use squall::pager::region::{self, Form, Mapping, RegionExt, Rights};
/// use squall::pager::{cache, source};
/// use std::sync::Arc;
///
/// let memory = pages::distributed(Supply::system(16));
/// let file = Arc::new(cache::shared(source::zero_fill(1 << 16), memory.handle()));
/// let mapping = Mapping::new(file).part(2, 5000).with_rights(Rights::Read); // pages 2 and 3
/// let region = region::with_form(Form::Shared, 0, mapping);
/// assert_eq!(region.pin(4999)?.page(), 3);
/// assert!(region.pin(5000).is_err() && region.pin_mut(0).is_err());
/// # Ok::<(), squall::pager::PageFault>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mapping {
    pub(crate) cache: SharedCache,
    pub(crate) first_page: u64,
    pub(crate) bytes: u64,
    pub(crate) rights: Rights,
}

impl Mapping {
    /// Maps a whole file, for reading and writing.
    pub fn new(cache: SharedCache) -> Mapping {
        let bytes = cache.len();
        Mapping { cache, first_page: 0, bytes, rights: Rights::ReadWrite }
    }

    /// Maps `bytes` bytes from a page on. They may lie beyond the end of the file: a fault there is an error
    /// until the file has grown.
    #[must_use]
    pub fn part(self, first_page: u64, bytes: u64) -> Mapping {
        Mapping { first_page, bytes, ..self }
    }

    /// Allows these accesses alone.
    #[must_use]
    pub fn with_rights(self, rights: Rights) -> Mapping {
        Mapping { rights, ..self }
    }
}

/// A region, as implementations provide it. [`RegionExt`] has the methods that pin pages.
///
/// # Errors
/// A method that returns a `Result` returns [`PageFault::Call`] if the object was destroyed.
#[interface(crate = squall_core)]
pub trait Region: Send + Sync {
    /// Returns the resident page at this offset in bytes, for the rest of the operation.
    fn find<'o>(&self, guard: &'o Guard, offset: u64) -> Option<Resident<'o>>;

    /// Brings the page at this offset into memory, if it is not there. Waits while the region changes.
    ///
    /// # Errors
    /// [`PageFault`]
    #[blocking]
    fn fault(&self, offset: u64, access: Access) -> Result<Located, PageFault>;

    /// Brings the page at this offset into memory, if that is possible at once: see
    /// [`FileCache::read_ahead`]. Returns false while the region changes, too.
    #[blocking]
    fn read_ahead(&self, offset: u64) -> bool {
        let _ = offset;
        false
    }

    /// Shortens the region. Its file stays as it is.
    ///
    /// # Errors
    /// [`PageFault::BeyondRegion`] if the region is shorter, [`PageFault::Unmapped`].
    #[blocking]
    fn truncate(&self, bytes: u64) -> Result<(), PageFault>;

    /// Calls `copies` with the file of the region while faults wait. It returns two copies of the file. The
    /// region goes on with the first, and this returns the second.
    ///
    /// It waits for threads that have pages of the file pinned for writing. Their faults go on meanwhile.
    ///
    /// # Errors
    /// [`PageFault::Pinned`] if the calling thread is one of those. [`PageFault::Unmapped`],
    /// [`PageFault::Mapped`].
    #[blocking]
    fn copy(
        &self,
        copies: &mut dyn FnMut(SharedCache) -> [Owned<dyn FileCache>; 2],
    ) -> Result<SharedCache, PageFault>;

    /// Ends the region: lets running faults end, and refuses new ones.
    ///
    /// # Errors
    /// [`PageFault::Unmapped`] if another thread unmaps it, or has done so.
    #[blocking]
    fn unmap(&self) -> Result<(), PageFault>;

    /// Returns whether an unmap of the region is over: no fault is inside, and none enters.
    fn is_unmapped(&self) -> bool;

    /// Returns the first address.
    fn start(&self) -> u64;

    /// Returns the length in bytes.
    fn len(&self) -> u64;

    /// Returns whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of the file's page at the first address.
    fn first_page(&self) -> u64;

    /// Returns the accesses that the region allows.
    fn rights(&self) -> Rights;

    /// Returns the file cache.
    fn cache(&self) -> SharedCache;
}

/// Methods of a region for users, on a handle or an owner.
pub trait RegionExt: Copy {
    /// Pins the page at this offset in bytes for reading, and brings it into memory first if it is not there.
    /// The frame has the whole page: the byte at the offset is the one at `offset % PAGE_BYTES`.
    ///
    /// # Errors
    /// [`PageFault`]
    fn pin(self, offset: u64) -> Result<Frame, PageFault>;

    /// Pins the page at this offset in bytes for writing, and brings it into memory first if it is not there.
    /// Waits until no other thread pins it. The frame has the whole page, as in [`pin`](RegionExt::pin).
    ///
    /// # Errors
    /// [`PageFault`]
    fn pin_mut(self, offset: u64) -> Result<FrameMut, PageFault>;
}

impl RegionExt for Handle<dyn Region> {
    #[inline]
    fn pin(self, offset: u64) -> Result<Frame, PageFault> {
        if let Some(frame) = cache::pin_resident(|guard| self.try_find(guard, offset).ok().flatten()) {
            return Ok(frame);
        }
        cache::pin_absent(|| self.fault(offset, Access::Read))
    }

    fn pin_mut(self, offset: u64) -> Result<FrameMut, PageFault> {
        cache::pin_mut(|| self.fault(offset, Access::Write))
    }
}

/// The form of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// One request counter.
    Shared,
    /// A request counter for each processor.
    Distributed,
    /// As distributed, but faults on resident pages are not counted.
    Quiescent,
    /// As shared, and as distributed while several processors use the region.
    Adaptive,
}

/// Values of the parameter `ADAPTS`: whether an object posts to the policy. Adaptive regions have classes of
/// their own.
const FIXED: bool = false;
const ADAPTS: bool = true;

impl Form {
    fn replacement(self, body: Option<Body>) -> Replacement<dyn Region> {
        match self {
            Form::Shared => Replacement::root(Mapped::<OneCounter, FIXED>::new(body), ClusterSize::Machine),
            Form::Distributed => {
                Replacement::root(Mapped::<Counters<true>, FIXED>::new(body), ClusterSize::Cpu)
            }
            Form::Adaptive => {
                policy::register();
                Replacement::root(Mapped::<OneCounter, ADAPTS>::new(body), ClusterSize::Machine)
            }
            Form::Quiescent => {
                Replacement::root(Mapped::<Counters<false>, FIXED>::new(body), ClusterSize::Cpu)
            }
        }
    }
}

/// Creates a region outside of a process, for callers that know offsets alone. `start` is the address that
/// its errors name. A [`Process`](crate::process::Process) creates its regions itself, and finds them by
/// address.
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn with_form(form: Form, start: u64, mapping: Mapping) -> Owned<dyn Region> {
    let region = form.replacement(Some(Body::new(start, mapping))).create();
    region.unwrap_or_else(|error| panic!("cannot make a region: {error}"))
}

/// Returns a replacement in this form, for a hot-swap of a region. It takes over the mapping.
pub fn new_region(form: Form) -> Replacement<dyn Region> {
    form.replacement(None)
}
