//! Pools of pages: memory in pages of 4 KiB, with a limit, for buffers and caches. If no page is left, the
//! pool asks its users to give some back.
//!
//! | form | getting and returning a page | attaching a user | memory |
//! |---|---|---|---|
//! | [`shared`] | one lock; plain instructions on its home VP | that lock | the pages |
//! | [`distributed`] | plain instructions on every VP | a lock of its home VP | and 640 bytes per VP |
//! | [`adaptive`] | as its present form | as its present form | as its present form |
//!
//! A VP is a processor, as Squall numbers it. The home VP of a shared pool is the one that created it, or
//! after a swap the first that called it.
//!
//! In the distributed form each VP has a list of free pages, and each node an overflow list. A list beyond
//! the threshold moves a batch to the overflow list of its node. An empty list takes a batch from there. If
//! the overflow list is empty too, a chunk comes from the system, in the memory of that node. If the limit is
//! reached, free pages of other nodes and VPs come next, and then reclamation. [`Attribute`] lists the
//! constants.
//!
//! A pool may get its pages from another pool: see [`Supply::under`]. So each tenant of a server can have a
//! limit of its own, and all together one of theirs.
//!
//! An [`adaptive`] pool starts as [`shared`]. It becomes [`distributed`] while several VPs use it, and goes
//! back afterwards.
//!
//! All forms have one interface, [`PagePool`], and are called through a `Handle<dyn PagePool>`.
//! [`PagePoolExt`] has the methods for users.
//!
//! ```
//! use squall::objects::pages::{self, PagePoolExt, Supply};
//!
//! let pool = pages::adaptive(Supply::system(1000));
//! let mut page = pool.get().expect("fewer than 1,000 pages are in use");
//! page[..5].copy_from_slice(b"hello");
//! assert_eq!(page.len(), 4096);
//! drop(page); // returns the page; its contents are undefined from here on
//! assert!(pool.get_zeroed().unwrap().iter().all(|byte| *byte == 0));
//! ```
//!
//! # When not
//! - Buffers of other sizes, without a limit: an allocator such as `mimalloc` or `squall-alloc` serves them.
//! - One thread gets all pages and another one returns them: each page passes an overflow list, in batches.
//!   That costs about as much as a shared list with batches.
//! - The program must never fail for want of a page: a pool with a limit returns `None`.
//!
//! # Guarantees
//! - A page has one owner, also across hot-swaps. Pages in use stay valid if the pool is destroyed.
//! - The limit holds at every moment: see [`PagePool::set_max_pages`].
//! - [`get`](PagePoolExt::get) looks at all free lists, and asks all users, before it returns `None`. The
//!   looks are one after the other. So it may miss a page that was returned meanwhile. It
//!   waits for threads that move pages between lists.
//!
//! # Limits
//! - The limit counts pages. The memory of a page that was given up can stay until its whole chunk was.
//!   That is so if the system's pages are larger than 4 KiB, or if the memory is locked. A thread that gets
//!   pages while the limit is lowered may still see the old one.
//! - A user that moves to another table during a swap may not be asked.
//! - A bare frame of another pool that is given to a pool makes `used` of both too small.
//! - A page keeps its contents when it changes hands, also between pools: see
//!   [`get_zeroed`](PagePoolExt::get_zeroed).
//! - A pool that ends returns its free pages some time after its destruction.
//!
//! Signal handlers must not use a pool. In the child of a fork, calls return an error or panic: see
//! [forked children](squall_core#forked-children).

mod lists;
mod policy;
mod pool;
mod reclaim;

use squall_adapt::{engine, family};
use squall_core::__macro::{Action, Answer, Hit};
use squall_core::swap::Replacement;
use squall_core::{CallError, CreateError, Handle, Owned, Root};
use squall_machine::ClusterSize;
use squall_macros::interface;
use squall_rcu::Guard;
use squall_sys::frame::Frame;
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Once};

use crate::answers::{panics_in, returns_in};
use lists::{Lists, Place};
pub use policy::{DISTRIBUTED, SHARED};
use pool::Pool;
use reclaim::Asked;
pub use squall_sys::frame::FRAME_BYTES as PAGE_BYTES;

/// The largest number of times that all users are asked for one page. Other threads may take the pages that a
/// reclamation brings.
const TRIES: usize = 8;

/// A user of pages that can give some back, such as a cache.
///
/// ```
/// use squall::objects::pages::{self, Page, PagePoolExt, PageUser, Supply};
/// use std::sync::Mutex;
///
/// struct Cache(Mutex<Vec<Page>>);
/// impl PageUser for Cache {
///     fn give_back(&self, wanted: usize) -> usize {
///         let Ok(mut pages) = self.0.try_lock() else { return 0 };
///         let kept = pages.len().saturating_sub(wanted);
///         let pages = pages.split_off(kept); // dropped, and so returned to the pool
///         pages.len()
///     }
/// }
///
/// let pool = pages::shared(Supply::system(10));
/// let cache = squall::shared::<dyn PageUser, _>(Cache(Mutex::new(pool.get_batch(10))));
/// let _attachment = pool.attach(cache.handle());
/// assert!(pool.get().is_some()); // a page of the cache
/// ```
#[interface(crate = squall_core)]
pub trait PageUser: Send + Sync {
    /// Returns up to `wanted` pages to their pool, and returns their number.
    ///
    /// A thread that found no page calls this, inside [`PagePoolExt::get`]. So it must not wait for a lock
    /// that a thread holds while it gets a page: use `try_lock`. It may get pages, which causes no further
    /// reclamation. A panic reaches the thread that wanted a page.
    ///
    /// It may block, for example to write a page to a file. A thread that gets a page inside an operation
    /// calls it there, and then it must not wait.
    #[blocking]
    fn give_back(&self, wanted: usize) -> usize;
}

/// A pool of pages, as implementations provide it. [`PagePoolExt`] has the methods for users.
///
/// Its methods move bare [frames](squall_sys::frame::Frame), which return to no pool when they are dropped,
/// but to the system.
///
/// Progress: a call waits for another thread that holds the lock of the same VP, or of an overflow list.
///
/// ```
/// use squall::objects::pages::{self, PagePool, PagePoolExt, Supply};
///
/// let pool = pages::shared(Supply::system(100));
/// let page = pool.get().unwrap();
/// assert_eq!((pool.used(), pool.free(), pool.max_pages()), (64, 63, 100));
/// drop(page);
/// assert_eq!(pool.give_up(1000), 64); // to the system
/// assert_eq!((pool.used(), pool.free()), (0, 0));
/// ```
///
/// # Source
/// Appavoo 2005, §4.1.2: K42's Page Managers (CO-44 to CO-47).
#[interface(crate = squall_core, view = PagePoolView)]
pub trait PagePool: Send + Sync {
    /// Takes a free page, without reclamation.
    ///
    /// # Errors
    /// The pool that reached its limit: this one, or one above it.
    fn take(&self) -> Result<Frame, Handle<dyn PagePool>>;

    /// Takes up to `max` free pages, without reclamation.
    fn take_batch(&self, max: usize) -> Vec<Frame>;

    /// Returns a page to the pool.
    fn put(&self, frame: Frame);

    /// Returns several pages to the pool.
    fn put_batch(&self, frames: Vec<Frame>);

    /// Gives up to `wanted` free pages back: to the pool above, or to the system. Returns their number.
    ///
    /// # Cost
    /// The lock of each VP that used the pool. For the system, a system call per page.
    fn give_up(&self, wanted: usize) -> usize;

    /// Attaches a user. [`PagePoolExt::attach`] is more convenient.
    fn attach_user(&self, user: Handle<dyn PageUser>);

    /// Detaches a user that was attached, once.
    fn detach_user(&self, user: Handle<dyn PageUser>);

    /// Attaches a pool below this one. The constructors do so. A reclamation asks at most 64 levels.
    fn attach_pool(&self, below: Handle<dyn PagePool>);

    /// Detaches a pool below this one, when it ends.
    fn detach_pool(&self, below: Handle<dyn PagePool>);

    /// Returns the users and pools in the table of this VP, by its index, or `None` beyond the last one.
    fn members(&self, place: usize) -> Option<Members>;

    /// Returns the pool above.
    fn parent(&self) -> Option<Handle<dyn PagePool>>;

    /// Returns the number of pages that the pool got from the system or from the pool above. It includes
    /// [`free`](Self::free) pages, which stay in the pool until they are reclaimed. Pages that have left as
    /// bare frames may still be counted.
    fn used(&self) -> usize;

    /// Returns the number of free pages of this pool: an estimate while threads use it.
    ///
    /// # Cost
    /// The lock of each VP that used the pool.
    fn free(&self) -> usize;

    /// Returns the limit of pages.
    fn max_pages(&self) -> usize;

    /// Sets the limit of pages. It may change at any time. If more are in use, the pool gets no new ones
    /// until enough were given up.
    fn set_max_pages(&self, max: usize);

    /// Returns the value of an attribute.
    fn attribute(&self, attribute: Attribute) -> usize;

    /// Sets an attribute. It may change at any time; the next call reads it.
    ///
    /// ```
    /// use squall::objects::pages::{self, Attribute, PagePool, Supply};
    ///
    /// let pool = pages::distributed(Supply::system(1000));
    /// assert_eq!(pool.attribute(Attribute::Batch), 64);
    /// pool.set_attribute(Attribute::Batch, 16);
    /// assert_eq!(pool.attribute(Attribute::Batch), 16);
    /// ```
    fn set_attribute(&self, attribute: Attribute, value: usize);
}

/// The view of a pool of pages: the lists, and the place of the representative.
#[derive(Clone, Copy, Default)]
pub struct PagePoolView<'rep> {
    lists: Option<(&'rep Lists, &'rep Place)>,
}

impl fmt::Debug for PagePoolView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PagePoolView").finish_non_exhaustive()
    }
}

/// A call of `take`, without a virtual call if there is a view and a free page. `F` makes the result.
struct Take<F>(F);

impl<R, F: FnOnce(Result<Frame, Handle<dyn PagePool>>) -> R> Action<dyn PagePool, R> for Take<F> {
    #[inline(always)]
    fn try_fast<'o>(self, _: &'o Guard, hit: Hit<'o, dyn PagePool>) -> Result<R, Self> {
        match hit.view().lists.and_then(|(_, place)| place.take()) {
            Some(frame) => Ok((self.0)(Ok(frame))),
            None => Err(self),
        }
    }

    fn run_slow<'o>(self, _: &'o Guard, hit: Hit<'o, dyn PagePool>) -> R {
        (self.0)(hit.target().take())
    }
}

/// A call of `put` with this page, which stays where it is if the call fails.
struct Put<'a>(&'a mut Option<Frame>);

impl Action<dyn PagePool, Result<(), CallError>> for Put<'_> {
    #[inline(always)]
    fn try_fast<'o>(self, _: &'o Guard, hit: Hit<'o, dyn PagePool>) -> Result<Result<(), CallError>, Self> {
        match hit.view().lists {
            Some((lists, place)) => {
                if let Some(frame) = self.0.take() {
                    lists.put(place, frame);
                }
                Ok(Ok(()))
            }
            None => Err(self),
        }
    }

    fn run_slow<'o>(self, _: &'o Guard, hit: Hit<'o, dyn PagePool>) -> Result<(), CallError> {
        if let Some(frame) = self.0.take() {
            hit.target().put(frame);
        }
        Ok(())
    }
}

/// The constants of a pool, in pages. K42 has such constants in its source and gives no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Attribute {
    /// Length of a VP's free list beyond which a batch moves to the overflow list. The default is 256.
    /// Without effect in the shared form, except in one that a failed swap left behind.
    Threshold,
    /// Number of pages that move between a VP's list and an overflow list at once, and that a reclamation
    /// asks for. The default is 64; 0 counts as 1.
    Batch,
    /// Number of pages that come from the system or from the pool above at once. The default is 64; 0 counts
    /// as 1.
    Chunk,
}

impl Attribute {
    const COUNT: usize = 3;
    const ALL: [Attribute; Attribute::COUNT] = [Attribute::Threshold, Attribute::Batch, Attribute::Chunk];

    fn default_value(self) -> usize {
        match self {
            Attribute::Threshold => 256,
            Attribute::Batch | Attribute::Chunk => 64,
        }
    }
}

/// Users and pools below, as [`PagePool::members`] returns them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Members {
    /// The users.
    pub users: Vec<Handle<dyn PageUser>>,
    /// The pools below.
    pub pools: Vec<Handle<dyn PagePool>>,
}

/// The origin of a pool's pages, and their limit.
#[derive(Clone, Copy, Debug)]
pub struct Supply {
    parent: Option<Handle<dyn PagePool>>,
    max: usize,
}

impl Supply {
    /// Gets pages from the system, `max_pages` at most.
    pub fn system(max_pages: usize) -> Supply {
        Supply { parent: None, max: max_pages }
    }

    /// Gets pages from another pool, `max_pages` at most.
    ///
    /// A pool that is short of pages asks its own users only if it has reached its own limit. Otherwise the
    /// pool above asks: first its users, then all pools below it. A pool that ends returns its free pages to
    /// the pool above.
    ///
    /// ```
    /// use squall::objects::pages::{self, PagePool, PagePoolExt, Supply};
    ///
    /// let all = pages::distributed(Supply::system(1000));
    /// let tenant = pages::shared(Supply::under(all.handle(), 2));
    /// let two = (tenant.get().unwrap(), tenant.get().unwrap());
    /// assert!(tenant.get().is_none() && all.get().is_some());
    /// drop((two, tenant));
    /// ```
    pub fn under(parent: Handle<dyn PagePool>, max_pages: usize) -> Supply {
        Supply { parent: Some(parent), max: max_pages }
    }

    fn make(self) -> lists::Supply {
        match self.parent {
            None => lists::Supply::system(self.max),
            Some(parent) => lists::Supply::pool(parent, self.max),
        }
    }
}

/// Methods for users of a pool of pages, on a handle or an owner.
pub trait PagePoolExt: Copy {
    /// Takes a page with undefined contents. Returns `None` if all are in use and no user gives one back.
    /// Dropping the page returns it to the pool.
    ///
    /// ```
    /// use squall::objects::pages::{self, PagePoolExt, Supply};
    ///
    /// let pool = pages::shared(Supply::system(1));
    /// let page = pool.get().unwrap();
    /// assert!(pool.get().is_none());
    /// drop(page);
    /// assert!(pool.get().is_some());
    /// ```
    ///
    /// # Panics
    /// If the pool was destroyed, or if a user panics that is asked for pages.
    /// # Cost
    /// A lock of the VP. Once per batch or chunk, another lock or a system call. A reclamation calls users
    /// and looks at all tables.
    fn get(self) -> Option<Page>;

    /// Like [`get`](PagePoolExt::get), but fills the page with zeros.
    ///
    /// # Panics
    /// As [`get`](PagePoolExt::get).
    fn get_zeroed(self) -> Option<Page>;

    /// Like [`get`](PagePoolExt::get), but returns an error if the pool was destroyed.
    ///
    /// # Errors
    /// [`CallError`] if the pool was destroyed.
    fn try_get(self) -> Result<Option<Page>, CallError>;

    /// Takes a page that is free, and asks no user for one. Returns `None` if the pool, or one above it,
    /// reached its limit.
    ///
    /// ```
    /// use squall::objects::pages::{self, PagePoolExt, Supply};
    ///
    /// let pool = pages::shared(Supply::system(1));
    /// let page = pool.try_get_free().unwrap();
    /// assert!(page.is_some() && pool.try_get_free().unwrap().is_none());
    /// ```
    ///
    /// # Errors
    /// [`CallError`] if the pool was destroyed.
    fn try_get_free(self) -> Result<Option<Page>, CallError>;

    /// Takes up to `max` pages at once. Fewer are returned only if one more would be refused.
    ///
    /// ```
    /// use squall::objects::pages::{self, PagePoolExt, Supply};
    ///
    /// let pool = pages::shared(Supply::system(5));
    /// assert_eq!(pool.get_batch(9).len(), 5);
    /// ```
    ///
    /// # Panics
    /// As [`get`](PagePoolExt::get).
    fn get_batch(self, max: usize) -> Vec<Page>;

    /// Asks users, and after them the pools below, for `wanted` pages. Returns the number of pages that they
    /// say they gave back. [`get`](PagePoolExt::get) does so if no page is left.
    ///
    /// The users of the calling VP's table come first, then those of the other VPs in turn. A call inside
    /// [`PageUser::give_back`] returns 0.
    ///
    /// # Panics
    /// If a user panics.
    fn reclaim(self, wanted: usize) -> usize;

    /// Attaches a user, which is asked for pages from now on until the attachment is dropped. A thread that
    /// began to ask before may still call it afterwards.
    ///
    /// In the distributed form the user is entered in the table of the VP that is the home of its id.
    ///
    /// # Panics
    /// If the pool was destroyed.
    fn attach(self, user: Handle<dyn PageUser>) -> Attachment;
}

impl PagePoolExt for Handle<dyn PagePool> {
    #[inline]
    #[track_caller]
    fn get(self) -> Option<Page> {
        let took = self.__call_action("take", Take(|took: Took| took), panics_in!("get"));
        match took {
            Ok(frame) => Some(Page::new(frame, self)),
            Err(short) => match take_reclaimed(self, short) {
                Ok(page) => page,
                Err(error) => panics_in!("get").answer(error),
            },
        }
    }

    #[track_caller]
    fn get_zeroed(self) -> Option<Page> {
        match take(self) {
            Ok(page) => page.map(|mut page| {
                page.fill(0);
                page
            }),
            Err(error) => panics_in!("get_zeroed").answer(error),
        }
    }

    #[inline]
    fn try_get(self) -> Result<Option<Page>, CallError> {
        take(self).map_err(|error| error.__in_method("try_get"))
    }

    fn try_get_free(self) -> Result<Option<Page>, CallError> {
        Ok(self.try_take()?.ok().map(|frame| Page::new(frame, self)))
    }

    #[track_caller]
    fn get_batch(self, max: usize) -> Vec<Page> {
        let mut pages = match self.try_take_batch(max) {
            Ok(frames) => Vec::from_iter(frames.into_iter().map(|frame| Page::new(frame, self))),
            Err(error) => panics_in!("get_batch").answer(error),
        };
        while pages.len() < max {
            let Ok(Some(page)) = take(self) else { break };
            pages.push(page);
        }
        pages
    }

    fn reclaim(self, wanted: usize) -> usize {
        reclaim::reclaim(self, wanted, &mut Asked::default())
    }

    #[track_caller]
    fn attach(self, user: Handle<dyn PageUser>) -> Attachment {
        if let Err(error) = self.try_attach_user(user) {
            panics_in!("attach").answer(error)
        }
        Attachment { pool: self, user }
    }
}

/// The result of [`PagePool::take`].
type Took = Result<Frame, Handle<dyn PagePool>>;

/// Takes a page, and reclaims if there is none.
#[inline]
fn take(pool: Handle<dyn PagePool>) -> Result<Option<Page>, CallError> {
    match pool.__call_action("take", Take(|took: Took| Ok(took)), returns_in!("take"))? {
        Ok(frame) => Ok(Some(Page::new(frame, pool))),
        Err(short) => take_reclaimed(pool, short),
    }
}

#[cold]
fn take_reclaimed(
    pool: Handle<dyn PagePool>,
    mut short: Handle<dyn PagePool>,
) -> Result<Option<Page>, CallError> {
    let (mut asked, mut tries, mut has_brought) = (Asked::default(), 0, false);
    while tries < TRIES {
        let wanted = pool.try_attribute(Attribute::Batch)?.max(1);
        let before = asked.users();
        let got = reclaim::reclaim(short, wanted, &mut asked);
        if got > 0 {
            match pool.try_take()? {
                Ok(frame) => return Ok(Some(Page::new(frame, pool))),
                Err(other) => short = other,
            }
            has_brought = true;
        }
        // The pages went elsewhere, or did not come. Then the other users are next.
        if got == 0 || asked.users() == before {
            if !mem::replace(&mut has_brought, false) {
                break;
            }
            asked = Asked::default();
            tries += 1;
        }
    }
    Ok(None)
}

/// A page of [`PAGE_BYTES`], in use. It dereferences to its bytes. Dropping it returns it to its pool, on any
/// thread.
///
/// If the pool was destroyed, or refuses calls, the drop returns the page to the nearest pool above that
/// takes it, or else to the system. No pool in between counts the page any longer.
#[must_use = "the page returns to its pool when this is dropped"]
pub struct Page {
    /// Empty only during the drop.
    frame: Option<Frame>,
    pool: Handle<dyn PagePool>,
}

impl Page {
    #[inline]
    fn new(frame: Frame, pool: Handle<dyn PagePool>) -> Page {
        Page { frame: Some(frame), pool }
    }

    /// Returns the pool of the page.
    pub fn pool(&self) -> Handle<dyn PagePool> {
        self.pool
    }

    /// Returns the number of the node for which the page was made, among the clusters of the size
    /// [`Node`](ClusterSize::Node). Its memory is there if that node had some.
    pub fn node(&self) -> usize {
        self.frame.as_ref().map_or(0, |frame| frame.label() as usize)
    }
}

impl Deref for Page {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.frame.as_ref().map_or(&[], Frame::as_slice)
    }
}

impl DerefMut for Page {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.frame.as_mut().map_or(&mut [], Frame::as_mut_slice)
    }
}

impl Drop for Page {
    #[inline]
    fn drop(&mut self) {
        if let Err(error) = self.pool.__call_action("put", Put(&mut self.frame), returns_in!("drop")) {
            lists::return_above(self.pool, error, self.frame.take().into_iter().collect());
        }
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("frame", &self.frame).field("pool", &self.pool).finish()
    }
}

/// The attachment of a user to a pool. Dropping it detaches the user.
#[derive(Debug)]
#[must_use = "the user is detached when this is dropped"]
pub struct Attachment {
    pool: Handle<dyn PagePool>,
    user: Handle<dyn PageUser>,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // A pool that was destroyed has no table.
        let _ = self.pool.try_detach_user(self.user);
    }
}

/// Creates a pool with one free list, at home on the calling thread's VP.
///
/// ```
/// use squall::objects::pages::{self, PagePoolExt, Supply};
///
/// let pool = pages::shared(Supply::system(100));
/// assert_eq!(pool.get_batch(3).len(), 3);
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`]; or if the pool above was destroyed.
#[track_caller]
pub fn shared(supply: Supply) -> Owned<dyn PagePool> {
    make::<FIXED, false>(supply)
}

/// Creates a pool with a free list for each VP that uses it.
///
/// ```
/// use squall::objects::pages::{self, PagePool, PagePoolExt, Supply};
///
/// let pool = pages::distributed(Supply::system(1000));
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| pool.get().unwrap().fill(1));
///     }
/// });
/// assert_eq!(pool.free(), pool.used());
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`]; or if the pool above was destroyed.
#[track_caller]
pub fn distributed(supply: Supply) -> Owned<dyn PagePool> {
    make::<FIXED, true>(supply)
}

/// Creates an adaptive pool: it starts in the form of [`shared`] and changes form with its load.
///
/// The first call registers the policy and starts its thread, `squall-adapt`. See
/// [`squall::adapt::engine`](squall_adapt::engine).
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control;
/// use squall::objects::pages::{self, Supply};
///
/// let pool = pages::adaptive(Supply::system(1000));
/// let status = control::status(Handle::id(pool.handle())).unwrap();
/// assert_eq!((status.family, status.form), ("page-pool", pages::SHARED));
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`]; or if the pool above was destroyed.
#[track_caller]
pub fn adaptive(supply: Supply) -> Owned<dyn PagePool> {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| family::register(&policy::POOLS));
    engine::start();
    make::<ADAPTS, false>(supply)
}

/// Values of the parameter `ADAPTS`: whether an implementation posts to the policy. Adaptive pools have
/// classes of their own.
const FIXED: bool = false;
const ADAPTS: bool = true;

/// Returns a replacement in the form of [`shared`], for a hot-swap of a pool. It takes over the pages, users
/// and pools below.
///
/// If a swap moves no state into it, every call of the pool fails.
///
/// ```
/// use squall::objects::pages::{self, PagePool, PagePoolExt, Supply};
/// use squall::swap::swap;
///
/// let pool = pages::distributed(Supply::system(100));
/// let page = pool.get().unwrap();
/// swap(pool.handle(), pages::new_shared()).unwrap();
/// drop(page);
/// assert_eq!(pool.free(), 64);
/// ```
pub fn new_shared() -> Replacement<dyn PagePool> {
    Replacement::root(Pool::<FIXED, false>::vacant(), ClusterSize::Machine)
}

/// Returns a replacement in the form of [`distributed`], for a hot-swap of a pool. It takes over the pages,
/// users and pools below.
///
/// If a swap moves no state into it, every call of the pool fails.
///
/// ```
/// use squall::objects::pages::{self, PagePool, PagePoolExt, Supply};
/// use squall::swap::swap;
///
/// let pool = pages::shared(Supply::system(100));
/// let page = pool.get().unwrap();
/// swap(pool.handle(), pages::new_distributed()).unwrap();
/// drop(page);
/// assert_eq!(pool.free(), 64);
/// ```
pub fn new_distributed() -> Replacement<dyn PagePool> {
    Replacement::root(Pool::<FIXED, true>::vacant(), ClusterSize::Cpu)
}

#[track_caller]
fn make<const ADAPTS: bool, const WIDE: bool>(supply: Supply) -> Owned<dyn PagePool> {
    policy::have_attributes();
    let size = if WIDE { ClusterSize::Cpu } else { ClusterSize::Machine };
    let lists = Arc::new(Lists::new(supply.make()));
    let made: Result<_, CreateError> = Pool::<ADAPTS, WIDE>::new(lists.clone()).try_create(size);
    let pool = made.unwrap_or_else(|error| panic!("cannot make a pool of pages: {error}"));
    lists.attach_to_parent(pool.handle());
    pool
}
