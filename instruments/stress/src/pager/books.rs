//! The books: the legal contents of each page of each file.
//!
//! Problem: threads change pages, lengths and files at once, and each pin must show legal contents.
//! Idea: the holder of a frame compares the page with its book. The frame excludes all changes of both.
//!
//! - I1. The book of a page changes only while a thread has the page pinned for writing, or has cut it off.
//! - I2. The epoch of a file is odd while its length changes, that of a place while its region changes. A pin
//!   that began and ended in one even epoch knows the file and the length that it saw. It is *exact*.
//! - I3. A page that a copy has not written has the book of its parent. A copy's reader seals that book. A
//!   sealed page of a frozen file is not written any more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use squall::Handle;
use squall::pager::cache::{FileCache, PAGE_BYTES};
use squall::pager::process::MappedRegion;
use squall::pager::region::SharedCache;

use super::pattern::Content;
use super::store::{Store, words_within};
use crate::run::lock;

const PAGE: u64 = PAGE_BYTES as u64;

/// The legal contents of a page.
#[derive(Default)]
pub(super) struct PageBook {
    content: AtomicU64,
    is_sealed: AtomicBool,
}

// Relaxed: the latches of the pages order it, and this must show if they do not.
impl PageBook {
    pub(super) fn content(&self) -> Content {
        Content::unpack(self.content.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, content: Content) {
        self.content.store(content.pack(), Ordering::Relaxed);
    }

    pub(super) fn seal(&self) {
        self.is_sealed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.is_sealed.load(Ordering::Relaxed)
    }
}

/// Files that share pages, since one was made as a copy of another.
pub(super) struct Family {
    pub(super) number: u64,
    /// Held by the thread that changes a length, copies, or unmaps.
    pub(super) control: Mutex<()>,
}

/// An even number while nothing changes, and odd during a change (I2).
#[derive(Default)]
pub(super) struct Epoch(AtomicU64);

impl Epoch {
    // SeqCst, in both: the pair of looks of a pin encloses its calls, in the order of all threads.
    pub(super) fn look(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn step(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Makes the epoch odd during a change. One thread changes the object at a time.
    pub(super) fn change<R>(&self, act: impl FnOnce() -> R) -> R {
        self.step();
        let result = act();
        self.step();
        result
    }
}

/// A file: a cache, its source and its books.
pub(super) struct File {
    pub(super) family: Arc<Family>,
    pub(super) handle: Handle<dyn FileCache>,
    /// Taken when the stress lets go of the cache.
    pub(super) cache: Mutex<Option<SharedCache>>,
    pub(super) store: Arc<Store>,
    pub(super) parent: Option<Arc<File>>,
    own: Mutex<HashMap<u64, Arc<PageBook>>>,
    bytes: AtomicU64,
    pub(super) epoch: Epoch,
    /// Set before a copy of the file is made.
    pub(super) is_frozen: AtomicBool,
    /// Set before the stress lets go of the cache.
    pub(super) is_ending: AtomicBool,
    /// The number of changed pages was limited once, so a fault may write other pages.
    pub(super) is_limited: AtomicBool,
}

impl File {
    pub(super) fn new(
        family: &Arc<Family>,
        cache: SharedCache,
        store: Arc<Store>,
        parent: Option<Arc<File>>,
    ) -> Arc<File> {
        Arc::new(File {
            family: family.clone(),
            handle: cache.handle(),
            bytes: AtomicU64::new(cache.len()),
            cache: Mutex::new(Some(cache)),
            store,
            parent,
            own: Mutex::default(),
            epoch: Epoch::default(),
            is_frozen: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            is_limited: AtomicBool::new(false),
        })
    }

    /// Returns the file, its parent, and so on.
    pub(super) fn lineage(self: &Arc<File>) -> impl Iterator<Item = &Arc<File>> {
        std::iter::successors(Some(self), |file| file.parent.as_ref())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn pages(&self) -> u64 {
        self.bytes().div_ceil(PAGE)
    }

    pub(super) fn words(&self, page: u64) -> u64 {
        words_within(page, self.bytes())
    }

    /// Returns the book of a page, and whether it is this file's own (I3).
    pub(super) fn book(&self, page: u64) -> (Arc<PageBook>, bool) {
        let mut own = lock(&self.own);
        match &self.parent {
            Some(parent) if !own.contains_key(&page) => (parent.book(page).0, false),
            _ => (own.entry(page).or_default().clone(), true),
        }
    }

    /// Returns this file's own book of a page. It begins with the parent's contents. Called by the holder of
    /// a frame for writing.
    pub(super) fn own_book(&self, page: u64) -> Arc<PageBook> {
        let (book, is_own) = self.book(page);
        if is_own {
            return book;
        }
        let own = PageBook::default();
        own.set(book.content());
        lock(&self.own).entry(page).or_insert_with(|| Arc::new(own)).clone()
    }

    /// Returns the pages of this file's own, with their contents.
    pub(super) fn own_contents(&self) -> Vec<(u64, Content)> {
        lock(&self.own).iter().map(|(page, book)| (*page, book.content())).collect()
    }

    /// Returns whether the file is a copy in which no page was changed or cut off.
    pub(super) fn is_unchanged_copy(&self) -> bool {
        self.parent.is_some() && lock(&self.own).is_empty()
    }

    /// Changes the length in the books, during an odd epoch.
    pub(super) fn set_bytes(&self, bytes: u64) {
        let former = self.bytes.swap(bytes, Ordering::Relaxed);
        if bytes >= former {
            return;
        }
        if !bytes.is_multiple_of(PAGE) {
            let tail = self.own_book(bytes / PAGE);
            tail.set(tail.content().cut(words_within(bytes / PAGE, bytes)));
        }
        let mut own = lock(&self.own);
        // Frames of the pages that were cut off have the former books.
        for page in bytes.div_ceil(PAGE)..former.div_ceil(PAGE) {
            own.insert(page, Arc::default());
        }
    }

    /// Returns the contents of a page in the sources of this file and its parents.
    pub(super) fn stored(&self, page: u64) -> Content {
        match (self.store.content(page), &self.parent) {
            (Some(content), _) => content,
            (None, Some(parent)) if !self.book(page).1 => parent.stored(page),
            (None, _) => Content::default(),
        }
    }
}

/// A region, and the file that it maps.
pub(super) struct Place {
    pub(super) process: usize,
    pub(super) region: MappedRegion,
    pub(super) first_page: u64,
    pub(super) is_read_only: bool,
    /// Number of bytes of addresses, if no other region gets them later. A truncation keeps them.
    pub(super) addresses: Option<u64>,
    mapped: Mutex<(Arc<File>, u64)>,
    pub(super) epoch: Epoch,
    /// Set before the region is unmapped.
    pub(super) is_ending: AtomicBool,
}

impl Place {
    pub(super) fn new(
        process: usize,
        region: MappedRegion,
        first_page: u64,
        is_read_only: bool,
        file: Arc<File>,
        bytes: u64,
        addresses: Option<u64>,
    ) -> Arc<Place> {
        Arc::new(Place {
            process,
            region,
            first_page,
            is_read_only,
            addresses,
            mapped: Mutex::new((file, bytes)),
            epoch: Epoch::default(),
            is_ending: AtomicBool::new(false),
        })
    }

    /// Returns the file, and the length of the region in bytes.
    pub(super) fn look(&self) -> (Arc<File>, u64) {
        lock(&self.mapped).clone()
    }

    /// Sets the file and the length, during an odd epoch.
    pub(super) fn set(&self, file: Arc<File>, bytes: u64) {
        *lock(&self.mapped) = (file, bytes);
    }
}
