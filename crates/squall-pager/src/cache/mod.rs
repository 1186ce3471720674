//! File caches: the resident pages of a file, of any length, in a bounded memory.
//!
//! | form | a pin of a resident page | a fault on an absent page | for pages |
//! |---|---|---|---|
//! | [`shared`] | takes the one lock | takes that lock | of one processor, or seldom used |
//! | [`distributed`] | reads its processor's table | adds a page to it | that many processors use again |
//! | [`partitioned`] | reads one of 64 tables | takes its lock | that one processor each uses |
//!
//! A cache has a [`Source`](crate::source), which has the pages that are not resident, and a [pool of
//! pages](squall_objects::pages), which has the memory. A pool that is short asks its caches for pages. They
//! evict by the clock algorithm, and write changed pages to their sources first.
//!
//! ```
//! use squall::objects::pages::{self, Supply};
//! use squall::pager::cache::{self, FileCache, FileCacheExt};
//! use squall::pager::source;
//!
//! let memory = pages::distributed(Supply::system(64)); // 256 KiB
//! let cache = cache::distributed(source::compressed(1 << 30, 1 << 20), memory.handle());
//! cache.pin_mut(200_000)?[..5].copy_from_slice(b"hello");
//! assert_eq!(&cache.pin(200_000)?[..5], b"hello");
//! assert_eq!(cache.pin(7)?[0], 0); // memory that was never written is zero
//! assert_eq!(cache.sensors().dirty, 1);
//! # Ok::<(), squall::pager::PageFault>(())
//! ```
//!
//! `squall top` and the page of `squall browse` show the [`Sensors`] of a cache among its attributes.
//!
//! # When not
//! - The data fit into memory: use a map of the bytes, without pages.
//! - The file is read once from end to end: read it with a buffer.
//!
//! # Guarantees
//! - Of the threads that need an absent page, one reads it. The others wait, and get its error if it fails.
//! - A pinned page stays in memory, and no thread changes what a [`Frame`] shows.
//! - A page that cannot be written to its file stays, and stays changed. [`FileCache::sync`] returns the
//!   error.
//!
//! # Limits
//! - A cache that is dropped does not write its changed pages: call [`FileCache::sync`] before.
//! - A frame that is forgotten keeps its page in memory.
//! - If a pool is short of pages, its caches evict 64 at once, which may be all pages of a small pool. Its
//!   attribute `Batch` changes the number.
//! - A pin inside an operation (`squall::rcu::pin`) is for resident pages. It fills an absent page only if a
//!   page of memory is free, since it evicts no other. Reclamation waits meanwhile. Builds with debug
//!   assertions may panic if another thread fills the page.
//!
//! # Source
//! Appavoo 2005, §4.1.4: K42's File Cache Managers (CO-53, CO-63, CO-64).

mod body;
mod fill;
mod forms;
mod parent;
mod policy;

use squall_core::swap::Replacement;
use squall_core::{Handle, Owned};
use squall_machine::ClusterSize;
use squall_macros::interface;
use squall_objects::pages::PagePool;
use squall_rcu::Guard;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::Arc;

pub use crate::access::Access;
use crate::error::PageFault;
use crate::home::Home;
use crate::index::{OneLock, Partitioned, Replicated};
use crate::memory::Window;
pub use crate::replicas::Replication;
use crate::slot::{Frame, FrameMut, Latched, Slot};
use crate::source::Source;
use crate::writers::Writing;
use body::Body;
pub use fill::Fill;
use forms::Cache;
pub use squall_objects::pages::PAGE_BYTES;

/// A file cache that regions and copies share. It ends with the last of them.
pub type SharedCache = Arc<Owned<dyn FileCache>>;

/// The constants of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Attribute {
    /// Number of changed pages from which on a thread that changes a further one writes some to the file
    /// first. Pages that cannot be written stay changed, so the number may grow beyond it. There is no limit
    /// by default.
    DirtyMax,
    /// Time in milliseconds for which a fault waits for memory, while other threads evict or pin all pages of
    /// the pool. The default is 1,000.
    PatienceMs,
}

impl Attribute {
    fn default_value(self) -> usize {
        match self {
            Attribute::DirtyMax => usize::MAX,
            Attribute::PatienceMs => 1000,
        }
    }
}

/// Counts of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sensors {
    /// Number of resident pages, approximately.
    pub resident: usize,
    /// Number of pages that were changed since they were written to the file.
    pub dirty: usize,
    /// Number of pages that were filled.
    pub fills: u64,
    /// Number of pages that were filled before a thread wanted them: see [`FileCache::read_ahead`].
    pub read_ahead: u64,
    /// Number of pages that were evicted.
    pub evictions: u64,
    /// Number of pages that were written to the file.
    pub written: u64,
    /// Number of page replicas, approximately: see [`Replication`].
    pub replicas: usize,
    /// Number of replicas that were made.
    pub replicas_made: u64,
    /// Number of replicas that were taken away: for a write, for another replica, or with their page.
    pub replicas_removed: u64,
    /// Number of replicas that were not made, since the memory for replicas was used up.
    pub replicas_refused: u64,
    /// Number of mappings of regions at addresses of this process: see `hat::map`.
    pub mappings: usize,
    /// Number of private mappings in this process: see `hat::map_private`.
    pub private_mappings: usize,
    /// Number of mappings in other processes: see `hat::serve`.
    pub clients: usize,
}

/// A resident page that a call found, for the rest of the operation.
#[derive(Clone, Copy)]
pub struct Resident<'o>(pub(crate) &'o Slot);

impl fmt::Debug for Resident<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resident").field("page", &self.0.number()).finish_non_exhaustive()
    }
}

/// A page that a fault brought into memory. It may be evicted again until it is pinned.
///
/// For writing, it counts as a pin of its thread already.
pub struct Located {
    pub(crate) slot: Arc<Slot>,
    pub(crate) writing: Option<Writing>,
    /// The pool of the page, if the fault read it into memory.
    pub(crate) filled_from: Option<Handle<dyn PagePool>>,
}

impl fmt::Debug for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Located").field("page", &self.slot.number()).finish_non_exhaustive()
    }
}

/// A file cache, as implementations provide it. [`FileCacheExt`] has the methods that pin pages.
///
/// # Errors
/// A method that returns a `Result` returns [`PageFault::Call`] if the object was destroyed.
#[interface(crate = squall_core)]
pub trait FileCache: Send + Sync {
    /// Returns a resident page for the rest of the operation.
    fn find<'o>(&self, guard: &'o Guard, page: u64) -> Option<Resident<'o>>;

    /// Brings a page into memory, if it is not there. For writing, the page is not shared with copies of the
    /// file.
    ///
    /// # Errors
    /// [`PageFault`]
    #[blocking]
    fn fault(&self, page: u64, access: Access) -> Result<Located, PageFault>;

    /// Brings a page into memory that no thread wants yet. Returns true if this filled it: the page was
    /// absent, no thread was filling it, and the pool gave memory at once.
    ///
    /// An error of the source is not told. The thread that wants the page will meet it.
    #[blocking]
    fn read_ahead(&self, page: u64) -> bool {
        let _ = page;
        false
    }

    /// Begins to fill a page. Any thread may finish it: see [`Fill`]. Returns `None` if the page is resident,
    /// or is being filled.
    ///
    /// # Errors
    /// [`PageFault::BeyondEnd`]
    fn begin(&self, page: u64) -> Result<Option<Fill>, PageFault> {
        let _ = page;
        Ok(None)
    }

    /// Evicts pages that were not used lately, and writes changed ones to the file first. Returns their
    /// number. It is smaller than `wanted` if the others are pinned, or cannot be written.
    #[blocking]
    fn evict(&self, wanted: usize) -> usize;

    /// Writes all changed pages to the file, and waits until they are on stable storage. Returns the number
    /// of pages.
    ///
    /// A thread with frames of this file must not call this: it may wait for itself.
    ///
    /// # Errors
    /// The first error of a page. The other pages are written.
    #[blocking]
    fn sync(&self) -> Result<usize, PageFault>;

    /// Sets the length of the file in bytes. Pages beyond the end go, without being written. Bytes that were
    /// cut off are zero if the file grows again.
    ///
    /// Waits for the pins of the page that becomes the last one, if a part of it is cut off. A thread with a
    /// frame of that page must not call this.
    ///
    /// # Errors
    /// [`PageFault`]; the length is unchanged.
    #[blocking]
    fn set_len(&self, bytes: u64) -> Result<(), PageFault>;

    /// Returns the length of the file in bytes.
    fn len(&self) -> u64;

    /// Returns whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets every pin for writing and every change of the length fail from now on, and waits for those that
    /// threads have. A file of which copies are made is frozen.
    ///
    /// # Panics
    /// If the calling thread has a page of the file pinned for writing: it would wait for itself.
    #[blocking]
    fn freeze(&self);

    /// Returns the source.
    fn source(&self) -> Handle<dyn Source>;

    /// Returns the frozen file that lends a page to this copy of it. Returns `None` if this file has the page
    /// of its own.
    fn lender(&self, page: u64) -> Option<SharedCache> {
        let _ = page;
        None
    }

    /// Returns the frozen file that this frozen copy of it shows, if no page and no length differs.
    fn original(&self) -> Option<SharedCache> {
        None
    }

    /// Returns the memory of the pages, for mappings.
    fn backing(&self) -> Backing {
        Backing::default()
    }

    /// Returns the value of an attribute.
    fn attribute(&self, attribute: Attribute) -> usize;

    /// Sets an attribute. It may change at any time.
    fn set_attribute(&self, attribute: Attribute, value: usize);

    /// Reads the sensors.
    fn sensors(&self) -> Sensors {
        Sensors::default()
    }
}

/// The memory of a cache's pages. By default they cannot be mapped.
#[derive(Clone, Default)]
pub struct Backing {
    #[cfg_attr(
        not(all(target_os = "linux", not(miri))),
        expect(dead_code, reason = "no page is mapped there")
    )]
    pub(crate) window: Window,
    pub(crate) home: Arc<Home>,
    #[cfg_attr(
        not(all(target_os = "linux", not(miri))),
        expect(dead_code, reason = "no page is mapped there")
    )]
    pub(crate) is_frozen: bool,
}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backing").finish_non_exhaustive()
    }
}

/// Methods of a file cache for users, on a handle or an owner.
pub trait FileCacheExt: Copy {
    /// Pins a page for reading, and brings it into memory first if it is not there.
    ///
    /// # Errors
    /// [`PageFault`]
    /// # Cost
    /// If the page is resident: a call, a lookup, and two stores to a line of the thread.
    fn pin(self, page: u64) -> Result<Frame, PageFault>;

    /// Pins a page for writing, and brings it into memory first if it is not there. Waits until no other
    /// thread pins it.
    ///
    /// # Errors
    /// [`PageFault`]
    fn pin_mut(self, page: u64) -> Result<FrameMut, PageFault>;
}

impl FileCacheExt for Handle<dyn FileCache> {
    #[inline]
    fn pin(self, page: u64) -> Result<Frame, PageFault> {
        if let Some(frame) = pin_resident(|guard| self.try_find(guard, page).ok().flatten()) {
            return Ok(frame);
        }
        pin_absent(|| self.fault(page, Access::Read))
    }

    fn pin_mut(self, page: u64) -> Result<FrameMut, PageFault> {
        pin_mut(|| self.fault(page, Access::Write))
    }
}

/// Pins the page that `find` returns, if no thread writes it.
#[inline]
pub(crate) fn pin_resident(find: impl for<'o> FnOnce(&'o Guard) -> Option<Resident<'o>>) -> Option<Frame> {
    // The fault returns the error of a thread that may open no operation.
    let found = squall_rcu::try_pin(|guard| match find(guard)?.0.try_read() {
        Latched::Frame(frame) => Some(frame),
        Latched::Busy | Latched::Gone => None,
    });
    found.ok().flatten()
}

/// Pins for reading the page that `fault` brings into memory.
#[cold]
pub(crate) fn pin_absent(fault: impl Fn() -> Result<Located, PageFault>) -> Result<Frame, PageFault> {
    loop {
        if let Some(frame) = fault()?.slot.read() {
            return Ok(frame);
        }
    }
}

/// Pins for writing the page that `fault` brings into memory.
pub(crate) fn pin_mut(fault: impl Fn() -> Result<Located, PageFault>) -> Result<FrameMut, PageFault> {
    loop {
        let Located { slot, writing, .. } = fault()?;
        if let Some(frame) = writing.and_then(|writing| slot.write(writing)) {
            return Ok(frame);
        }
    }
}

/// The form of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// One table under one lock.
    Shared,
    /// A table in each cluster of this size, over a master table.
    Distributed(ClusterSize),
    /// Several tables.
    Partitioned {
        /// Their number.
        partitions: usize,
        /// The logarithm of the number of neighbouring pages that are in one partition.
        shift: u32,
    },
}

impl Form {
    fn replacement(self, body: Option<Arc<Body>>) -> Replacement<dyn FileCache> {
        match self {
            Form::Shared => {
                Replacement::root(Cache::<_, FIXED>::new(OneLock::default(), body), ClusterSize::Machine)
            }
            Form::Distributed(size) => {
                Replacement::root(Cache::<_, FIXED>::new(Replicated::new(), body), size)
            }
            Form::Partitioned { partitions, shift } => Replacement::root(
                Cache::<_, FIXED>::new(Partitioned::new(partitions, shift), body),
                ClusterSize::Cpu,
            ),
        }
    }
}

/// Creates a cache in this form.
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn with_form(form: Form, source: Owned<dyn Source>, pool: Handle<dyn PagePool>) -> Owned<dyn FileCache> {
    create(form, Body::new(source, pool, None, Window::default(), None))
}

#[track_caller]
fn create(form: Form, body: Body) -> Owned<dyn FileCache> {
    let body = Arc::new(body);
    attached(form.replacement(Some(body.clone())), &body)
}

#[track_caller]
fn attached(cache: Replacement<dyn FileCache>, body: &Body) -> Owned<dyn FileCache> {
    policy::show();
    let cache = cache.create();
    let cache = cache.unwrap_or_else(|error| panic!("cannot make a file cache: {error}"));
    body.attach(cache.handle());
    cache
}

/// Creates a cache whose pages can be mapped at addresses: see [`hat`](crate::hat). The file cannot grow.
///
/// Its pages are pages of a file in memory. The pool counts them, and the memory of its own pages is not
/// used.
///
/// # Errors
/// The error of the system. `Unsupported` on systems other than Linux.
///
/// # Panics
/// As [`with_form`].
#[track_caller]
pub fn mappable(
    form: Form,
    source: Owned<dyn Source>,
    pool: Handle<dyn PagePool>,
) -> io::Result<Owned<dyn FileCache>> {
    let window = Window::create(source.len())?;
    Ok(create(form, Body::new(source, pool, None, window, None)))
}

/// Creates a cache with page replicas. They stay if a swap changes the form.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::pages::{self, Supply};
/// use squall::pager::cache::{self, FileCache, FileCacheExt, Form, Replication};
/// use squall::pager::source;
///
/// let memory = pages::distributed(Supply::system(256));
/// let replication = Replication::new(ClusterSize::Node, 64 << 10); // at most 16 pages
/// let form = Form::Distributed(ClusterSize::Node);
/// let cache = cache::replicating(form, replication, source::zero_fill(1 << 20), memory.handle());
/// cache.pin_mut(3)?[0] = 7;
/// assert!((0..1000).all(|_| cache.pin(3).unwrap()[0] == 7)); // on another node, by a replica
/// assert!(cache.sensors().replicas <= 16);
/// # Ok::<(), squall::pager::PageFault>(())
/// ```
///
/// # Panics
/// As [`with_form`].
/// # Cost
/// A lookup searches the replicas of the cluster first. 64 pins cost a copy of the page.
#[track_caller]
pub fn replicating(
    form: Form,
    replication: Replication,
    source: Owned<dyn Source>,
    pool: Handle<dyn PagePool>,
) -> Owned<dyn FileCache> {
    create(form, Body::new(source, pool, None, Window::default(), Some(replication)))
}

/// Creates a copy of a cache, in this form. Pages are copied when they are written, and come from `parent`
/// until then. `source` keeps the pages that the copy changed; it has the parent's length, and is empty.
///
/// The parent is frozen: it may not be written any more. To go on with it, make two copies of it. This waits
/// for threads that have pages of it pinned for writing.
///
/// ```
/// use squall::objects::pages::{self, Supply};
/// use squall::pager::cache::{self, FileCacheExt, Form};
/// use squall::pager::source;
/// use std::sync::Arc;
///
/// let memory = pages::distributed(Supply::system(64));
/// let warm = cache::shared(source::zero_fill(1 << 20), memory.handle());
/// warm.pin_mut(7)?[0] = 1;
///
/// let warm = Arc::new(warm);
/// let copy = || cache::copy_of(warm.clone(), Form::Shared, source::zero_fill(1 << 20), memory.handle());
/// let (one, other) = (copy(), copy());
/// one.pin_mut(7)?[0] = 2;
/// assert_eq!((one.pin(7)?[0], other.pin(7)?[0]), (2, 1));
/// assert!(warm.pin_mut(7).is_err()); // it is frozen
/// # Ok::<(), squall::pager::PageFault>(())
/// ```
///
/// # Panics
/// If the calling thread is one of those. If the object cannot be created: see
/// [`CreateError`](squall_core::CreateError).
///
/// # Cost
/// A bit for each page of the file, and no page. A page that a copy writes is copied then.
///
/// Copies of copies form a chain. The first touch of a page calls each file of the chain, up to the nearest
/// one that changed the page. A copy that was not changed is left out of the chain when it is copied. A
/// frozen file keeps the pages that it changed while a copy of it lives, even if the copies change them too.
#[track_caller]
pub fn copy_of(
    parent: SharedCache,
    form: Form,
    source: Owned<dyn Source>,
    pool: Handle<dyn PagePool>,
) -> Owned<dyn FileCache> {
    parent.freeze();
    // A copy without changes is left out of the chain. A cache that was destroyed is the last one.
    let parent =
        parent::descend(parent, |cache| Ok::<_, Infallible>(cache.try_original().unwrap_or_default()));
    let Ok(parent) = parent;
    create(form, Body::new(source, pool, Some(parent), Window::default(), None))
}

/// Creates a cache with one table under one lock.
///
/// # Panics
/// As [`with_form`].
#[track_caller]
pub fn shared(source: Owned<dyn Source>, pool: Handle<dyn PagePool>) -> Owned<dyn FileCache> {
    with_form(Form::Shared, source, pool)
}

/// Creates a cache with a table for each processor, over a master table.
///
/// # Panics
/// As [`with_form`].
#[track_caller]
pub fn distributed(source: Owned<dyn Source>, pool: Handle<dyn PagePool>) -> Owned<dyn FileCache> {
    with_form(Form::Distributed(ClusterSize::Cpu), source, pool)
}

/// Creates a cache with a table for each of 64 parts of the file. Each 64 neighbouring pages are in one part.
///
/// # Panics
/// As [`with_form`].
#[track_caller]
pub fn partitioned(source: Owned<dyn Source>, pool: Handle<dyn PagePool>) -> Owned<dyn FileCache> {
    with_form(Form::Partitioned { partitions: PARTITIONS, shift: SHIFT }, source, pool)
}

/// Creates an adaptive cache: it starts in the form of [`shared`], and has the tables of [`partitioned`]
/// while several processors use it.
///
/// The first call registers the policy and starts its thread, `squall-adapt`. See `squall::adapt::engine`.
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control;
/// use squall::objects::pages::{self, Supply};
/// use squall::pager::{cache, source};
///
/// let memory = pages::adaptive(Supply::system(64));
/// let cache = cache::adaptive(source::zero_fill(1 << 20), memory.handle());
/// let status = control::status(Handle::id(cache.handle())).unwrap();
/// assert_eq!((status.family, status.form), ("file-cache", "shared"));
/// ```
///
/// # Panics
/// As [`with_form`].
#[track_caller]
pub fn adaptive(source: Owned<dyn Source>, pool: Handle<dyn PagePool>) -> Owned<dyn FileCache> {
    policy::register();
    let body = Arc::new(Body::new(source, pool, None, Window::default(), None));
    let root = Cache::<_, ADAPTS>::new(OneLock::default(), Some(body.clone()));
    attached(Replacement::root(root, ClusterSize::Machine), &body)
}

/// Values of the parameter `ADAPTS`: whether an object posts to the policy. Adaptive caches have classes of
/// their own.
const FIXED: bool = false;
const ADAPTS: bool = true;
/// The tables of [`partitioned`].
const PARTITIONS: usize = 64;
const SHIFT: u32 = 6;

/// Returns a replacement in this form, for a hot-swap of a cache. It takes over the pages.
///
/// # Cost
/// The swap adds each resident page to the new table, while calls wait.
pub fn new_cache(form: Form) -> Replacement<dyn FileCache> {
    form.replacement(None)
}
