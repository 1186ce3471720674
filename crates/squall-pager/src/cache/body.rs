//! The part of a file cache that all forms share, and that a swap moves: everything but the index.

use squall_core::{CallError, Handle, Owned};
use squall_lock::DistributedRwLock;
use squall_machine::Vp;
use squall_machine::pervp::{GatedWord, PerVpWord};
use squall_objects::pages::{Attachment, Page, PagePool, PagePoolExt, PageUser};
use squall_parts::gate::{Limits, SpreadRequests};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::fill::Fill;
use super::parent::{Parent, descend};
use super::{
    Access, Attribute, Backing, FileCache, FileCacheExt, PAGE_BYTES, Replication, Sensors, SharedCache,
};
use crate::error::PageFault;
use crate::home::Home;
use crate::index::{Index, Lookup, Position, Reservation};
use crate::memory::Window;
use crate::replicas::Replicas;
use crate::slot::{Dirty, Entry, FrameMut, Latched, Slot, Taken};
use crate::source::{Filled, Source};
use crate::writers::{self, LocalWriters, Writing};

/// The number of entries that an eviction looks at, for each resident page, before it gives up. The first
/// round clears the marks of use.
const ROUNDS: usize = 2;

/// Gives pages of a cache back to its pool.
struct Evictor(Handle<dyn FileCache>);

impl PageUser for Evictor {
    fn give_back(&self, wanted: usize) -> usize {
        if squall_rcu::in_operation() {
            // An eviction may wait for the file.
            return 0;
        }
        // A source that panics does not harm the thread that asks, perhaps for another file. The page stays.
        // A cache that was destroyed has no pages.
        match catch_unwind(AssertUnwindSafe(|| self.0.try_evict(wanted).unwrap_or(0))) {
            Ok(freed) => freed,
            Err(payload) => {
                // Its drop may panic too.
                mem::forget(payload);
                0
            }
        }
    }
}

/// Everything but the index.
pub(crate) struct Body {
    /// Tells the slots of this cache from those of other caches.
    serial: u64,
    source: Owned<dyn Source>,
    pool: Handle<dyn PagePool>,
    parent: Option<Parent<SharedCache>>,
    window: Window,
    /// The replicas of pages, and their pool. Slots that outlive the body have a share of the replicas.
    replicas: Option<(Arc<Replicas>, Owned<dyn PagePool>)>,
    /// The largest number of pages of a file with a window.
    most_pages: u64,
    /// The length of the file, in bytes.
    bytes: AtomicU64,
    is_frozen: AtomicBool,
    /// The number of times that the file was cut.
    cuts: AtomicU64,
    home: Arc<Home>,
    /// Threads with pins for writing. Shut down when the cache is frozen.
    writers: SpreadRequests<GatedWord>,
    /// The hand of the clock.
    hand: Mutex<Position>,
    /// Held exclusively while the length changes. Held shared while a page is written to the file, and while
    /// a page that was filled becomes present.
    length: DistributedRwLock<()>,
    dirty_max: AtomicUsize,
    patience_ms: AtomicUsize,
    fills: PerVpWord,
    read_ahead: PerVpWord,
    evictions: AtomicU64,
    written: AtomicU64,
    /// Detached before the user ends.
    attachment: OnceLock<(Attachment, Owned<dyn PageUser>)>,
    /// The cache of this body.
    cache: OnceLock<Handle<dyn FileCache>>,
}

/// Returns the file that has a page of its own, from this one down.
fn owner(cache: SharedCache, number: u64) -> Result<SharedCache, CallError> {
    descend(cache, |cache| cache.try_lender(number))
}

/// The page of a fault.
pub(super) struct Faulted {
    pub(super) slot: Arc<Slot>,
    /// The pool of the cache, if the fault filled the page.
    pub(super) filled_from: Option<Handle<dyn PagePool>>,
}

/// A page that was filled, and is not yet present.
struct Loaded {
    slot: Arc<Slot>,
    entry: Entry,
    /// The page is a copy of the parent's.
    is_copied: bool,
}

impl Body {
    pub(super) fn new(
        source: Owned<dyn Source>,
        pool: Handle<dyn PagePool>,
        parent: Option<SharedCache>,
        window: Window,
        replication: Option<Replication>,
    ) -> Body {
        static SERIALS: AtomicU64 = AtomicU64::new(0);
        let bytes = source.len();
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        let home = Vp::current();
        Body {
            serial,
            bytes: AtomicU64::new(bytes),
            source,
            pool,
            parent: parent.map(|cache| Parent::new(cache, bytes.div_ceil(PAGE_BYTES as u64))),
            window,
            replicas: replication.map(|replication| {
                let pool = Replicas::make_pool(replication, pool);
                (Arc::new(Replicas::new(replication, pool.handle())), pool)
            }),
            most_pages: bytes.div_ceil(PAGE_BYTES as u64),
            is_frozen: AtomicBool::new(false),
            cuts: AtomicU64::new(0),
            home: Arc::new(Home::new(serial)),
            writers: SpreadRequests::new(|| GatedWord::new(home)),
            hand: Mutex::default(),
            length: DistributedRwLock::new(()),
            dirty_max: AtomicUsize::new(Attribute::DirtyMax.default_value()),
            patience_ms: AtomicUsize::new(Attribute::PatienceMs.default_value()),
            fills: PerVpWord::new(),
            read_ahead: PerVpWord::new(),
            evictions: AtomicU64::new(0),
            written: AtomicU64::new(0),
            attachment: OnceLock::new(),
            cache: OnceLock::new(),
        }
    }

    /// Lets the pool ask this cache for pages.
    pub(super) fn attach(&self, cache: Handle<dyn FileCache>) {
        self.cache.get_or_init(|| cache);
        let user = squall_core::shared::<dyn PageUser, _>(Evictor(cache));
        let attachment = self.pool.attach(user.handle());
        // Once for each cache.
        let _ = self.attachment.set((attachment, user));
    }

    pub(super) fn source(&self) -> Handle<dyn Source> {
        self.source.handle()
    }

    pub(super) fn len(&self) -> u64 {
        // Relaxed: a thread that needs an order with a change of the length waits for the change.
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn attribute(&self, attribute: Attribute) -> usize {
        self.word(attribute).load(Ordering::Relaxed)
    }

    pub(super) fn set_attribute(&self, attribute: Attribute, value: usize) {
        self.word(attribute).store(value, Ordering::Relaxed);
    }

    fn word(&self, attribute: Attribute) -> &AtomicUsize {
        match attribute {
            Attribute::DirtyMax => &self.dirty_max,
            Attribute::PatienceMs => &self.patience_ms,
        }
    }

    /// Returns the name of the cache for errors.
    fn file(&self) -> Arc<str> {
        let Some(id) = self.cache.get().map(|cache| Handle::id(*cache)) else { return "a file".into() };
        match squall_core::name_of(id) {
            Some(name) => name.to_string().into(),
            None => format!("the file cache {id}").into(),
        }
    }

    pub(super) fn backing(&self) -> Backing {
        // Relaxed: a file stays frozen. A thread that needs an order with the freeze waits for it.
        let is_frozen = self.is_frozen.load(Ordering::Relaxed);
        Backing { window: self.window.clone(), home: self.home.clone(), is_frozen }
    }

    /// Returns the file that this one is a copy of, unless it has the page of its own.
    pub(super) fn lender(&self, number: u64) -> Option<SharedCache> {
        self.parent.as_ref()?.lender(number).cloned()
    }

    /// Returns the file that this frozen one is a copy of, if they have the same pages.
    pub(super) fn original(&self) -> Option<SharedCache> {
        // Relaxed: as in `backing`.
        let parent = self.parent.as_ref().filter(|_| self.is_frozen.load(Ordering::Relaxed))?;
        parent.original().filter(|cache| cache.try_len() == Ok(self.len())).cloned()
    }

    fn is_mappable(&self) -> bool {
        self.window.is_some()
    }

    /// Refuses pins for writing from now on, and waits for those that threads have. Mapped pages may be read
    /// alone from then on.
    pub(super) fn freeze<I: Index>(&self, index: &I) {
        assert!(
            !writers::holds(self.serial),
            "a thread that has a page of {} pinned for writing froze it",
            self.file()
        );
        self.is_frozen.store(true, Ordering::Relaxed);
        // Another thread may freeze it at the same time, and waits too.
        if self.writers.shutdown(Limits::NONE).is_err() {
            let _ = self.writers.drained(Limits::NONE);
        }
        if self.home.is_mapped() {
            let closed = self.each(index, |slot| {
                slot.wait_closed();
                Ok(true)
            });
            closed.expect("closing a page returns no error");
        }
    }

    /// Returns the counts of writers of a processor.
    pub(super) fn writers(&self, vp: Vp) -> Arc<LocalWriters> {
        Arc::new(self.writers.local_where(|counts| counts.vp() == vp, || GatedWord::new(vp)))
    }

    /// Counts a pin for writing, of the calling thread.
    pub(super) fn write(&self, writers: &Arc<LocalWriters>) -> Result<Writing, PageFault> {
        Writing::begin(self.serial, writers).ok_or_else(|| PageFault::Frozen { file: self.file() })
    }

    pub(super) fn replicas(&self) -> Option<&Arc<Replicas>> {
        self.replicas.as_ref().map(|(replicas, _)| replicas)
    }

    pub(super) fn sensors(&self, resident: usize) -> Sensors {
        let replicas = self.replicas().map(|replicas| replicas.counts()).unwrap_or_default();
        Sensors {
            resident,
            dirty: self.home.dirty(),
            fills: self.fills.sum(),
            read_ahead: self.read_ahead.sum(),
            evictions: self.evictions.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            replicas: replicas.present(),
            replicas_made: replicas.made,
            replicas_removed: replicas.removed,
            replicas_refused: replicas.refused,
            mappings: self.home.mappings(),
            private_mappings: self.home.private.load(Ordering::Relaxed),
            clients: self.home.clients.load(Ordering::Relaxed),
        }
    }

    fn check(&self, number: u64, access: Access) -> Result<(), PageFault> {
        let pages = self.len().div_ceil(PAGE_BYTES as u64);
        if number >= pages {
            return Err(PageFault::BeyondEnd { file: self.file(), page: number, pages });
        }
        let is_frozen = self.is_frozen.load(Ordering::Relaxed) && !writers::holds(self.serial);
        if access == Access::Write && is_frozen {
            return Err(PageFault::Frozen { file: self.file() });
        }
        Ok(())
    }

    /// Returns the slot of a page, which this fills if it is absent. For writing, the slot belongs to this
    /// cache. The slot may be gone when the caller looks at it.
    pub(super) fn fault<I: Index>(
        &self,
        index: &I,
        local: &I::Local,
        number: u64,
        access: Access,
    ) -> Result<Faulted, PageFault> {
        let dirty_max = self.attribute(Attribute::DirtyMax);
        if access == Access::Write && dirty_max < usize::MAX && self.home.dirty() >= dirty_max {
            self.write_some(index);
        }
        loop {
            let cuts = self.cuts();
            self.check(number, access)?;
            match index.reserve(local, number, true)? {
                Lookup::Found(slot) => match slot.try_read() {
                    Latched::Gone => _ = index.remove(&slot),
                    _ if access == Access::Write && slot.cache() != self.serial => {
                        // The next attempt makes a copy.
                        index.remove(&slot);
                    }
                    _ => return Ok(Faulted { slot, filled_from: None }),
                },
                Lookup::Reserved(reserved) => {
                    let loaded = self.load(number, access);
                    if let Some(result) = self.present(reserved, cuts, loaded) {
                        return result.map(|slot| Faulted { slot, filled_from: Some(self.pool) });
                    }
                }
                Lookup::Busy => {}
            }
        }
    }

    /// Fills a page that is reserved, outside of a call of the cache.
    pub(super) fn fill(&self, reserved: Box<dyn Reservation>, number: u64) -> Result<(), PageFault> {
        let cuts = self.cuts();
        let loaded = self.check(number, Access::Read).and_then(|()| self.load(number, Access::Read));
        match self.present(reserved, cuts, loaded) {
            Some(result) => result.map(drop),
            // The page is absent, and may be beyond the end.
            None => self.check(number, Access::Read),
        }
    }

    /// Fills a page that is absent. Returns whether it did. A reservation that is dropped leaves the page
    /// absent, and a thread that waits for the page fills it.
    pub(super) fn read_ahead<I: Index>(&self, index: &I, local: &I::Local, number: u64) -> bool {
        let cuts = self.cuts();
        // A copy shares the pages of its parent until a thread wants them.
        if self.parent.is_some() || self.check(number, Access::Read).is_err() {
            return false;
        }
        let Ok(Lookup::Reserved(reserved)) = index.reserve(local, number, false) else { return false };
        let Ok(Some(page)) = self.pool.try_get() else { return false };
        self.fills.add(1);
        let Ok(loaded) = self.load_into(number, page) else { return false };
        let is_filled = self.present(reserved, cuts, Ok(loaded)).is_some_and(|presented| presented.is_ok());
        self.read_ahead.add(u64::from(is_filled));
        is_filled
    }

    /// Reserves a page, unless it is present or being filled.
    pub(super) fn begin<I: Index>(
        self: &Arc<Self>,
        index: &I,
        local: &I::Local,
        number: u64,
    ) -> Result<Option<Fill>, PageFault> {
        self.check(number, Access::Read)?;
        Ok(match index.reserve(local, number, false)? {
            Lookup::Reserved(reserved) => Some(Fill::new(self.clone(), reserved, number)),
            Lookup::Found(_) | Lookup::Busy => None,
        })
    }

    /// Makes the contents of a page that the caller has reserved.
    fn load(&self, number: u64, access: Access) -> Result<Loaded, PageFault> {
        self.fills.add(1);
        if let (Some(parent), Access::Read, false) = (self.lender(number), access, self.is_mappable()) {
            // Shared with the lender until one of the copies writes it.
            let slot = owner(parent, number)?.fault(number, Access::Read)?.slot;
            return Ok(Loaded { entry: Entry::borrower(slot.clone()), slot, is_copied: false });
        }
        let page = self.memory(number)?;
        self.load_into(number, page)
    }

    /// Makes the contents of a page of its own that the caller has reserved, in this memory.
    fn load_into(&self, number: u64, page: Page) -> Result<Loaded, PageFault> {
        let lender = self.lender(number);
        let is_copied = lender.is_some();
        let mut memory = self.window.memory(page, number);
        let bytes = memory.bytes_mut();
        if let Some(parent) = lender {
            bytes.copy_from_slice(&owner(parent, number)?.pin(number)?);
        } else if self.source.try_is_zeros(number)? || self.source.fill(number, bytes)? == Filled::Zeros {
            bytes.fill(0);
        }
        let spread = self.replicas().map(Replicas::spread);
        let slot = Arc::new(Slot::new(number, self.home.clone(), memory, spread));
        Ok(Loaded { entry: Entry::owner(slot.clone()), slot, is_copied })
    }

    /// Returns the number of cuts of the file. Called before the length is checked and the page is filled.
    fn cuts(&self) -> u64 {
        // Acquire: pairs with the Release in `set_len`. If this sees a cut, so do the check and the fill.
        self.cuts.load(Ordering::Acquire)
    }

    /// Makes a page present, or passes the error to the callers that wait. Returns `None` if the file was cut
    /// meanwhile: the contents may be older than the cut, so all callers try again.
    fn present(
        &self,
        reserved: Box<dyn Reservation>,
        cuts: u64,
        loaded: Result<Loaded, PageFault>,
    ) -> Option<Result<Arc<Slot>, PageFault>> {
        let _length = self.length.read();
        // Relaxed: the lock orders it.
        if cuts != self.cuts.load(Ordering::Relaxed) {
            return None;
        }
        let Loaded { slot, entry, is_copied } = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                reserved.fail(error.clone());
                return Some(Err(error));
            }
        };
        if let (Some(parent), true) = (&self.parent, is_copied) {
            // The source lacks the page, so an eviction must write it, even if no thread changes it.
            parent.set_own(slot.number());
            slot.set_dirty();
        }
        // If a swap has replaced the index, the next lookup finds the new one.
        let _ = reserved.fill(entry);
        Some(Ok(slot))
    }

    /// Takes a page of memory. While other threads evict or pin all pages, this tries again for a while.
    fn memory(&self, number: u64) -> Result<Page, PageFault> {
        let until = Instant::now() + Duration::from_millis(self.attribute(Attribute::PatienceMs) as u64);
        let mut pause = Duration::from_micros(20);
        loop {
            if let Some(page) = self.pool.try_get()? {
                return Ok(page);
            }
            if Instant::now() >= until {
                let max_pages = self.pool.try_max_pages().unwrap_or(0);
                return Err(PageFault::NoMemory { file: self.file(), page: number, max_pages });
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    }

    /// Evicts pages by the clock algorithm. Returns their number. Several threads may do so at once.
    pub(super) fn evict<I: Index>(&self, index: &I, wanted: usize) -> usize {
        let mut looks = index.len().saturating_mul(ROUNDS);
        // A replica goes before a page: the page need not be read again.
        let mut freed = self.replicas().map_or(0, |replicas| replicas.give_up(wanted));
        while freed < wanted && looks > 0 {
            let found = self.next(index);
            looks = looks.saturating_sub(found.len().max(1));
            for slot in found {
                if freed < wanted && slot.cache() == self.serial && self.evict_one(index, &slot) {
                    freed += 1;
                }
            }
        }
        freed
    }

    /// Moves the hand of the clock over some slots, and returns them.
    fn next<I: Index>(&self, index: &I) -> Vec<Arc<Slot>> {
        let mut hand = self.hand.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        *hand = index.visit(*hand, &mut |_, entry| found.push(entry.to_arc())).unwrap_or_default();
        found
    }

    fn evict_one<I: Index>(&self, index: &I, slot: &Slot) -> bool {
        if slot.take_referenced() {
            return false;
        }
        let mut taken = slot.try_take(Dirty::Keep);
        if matches!(taken, Taken::Dirty) {
            // A page that cannot be written stays, and stays dirty.
            if !matches!(self.try_write_back(slot), Ok(true)) {
                return false;
            }
            taken = slot.try_take(Dirty::Keep);
        }
        let Taken::Page(page) = taken else { return false };
        index.remove(slot);
        self.evictions.fetch_add(1, Ordering::Relaxed);
        drop(page);
        true
    }

    /// Writes a dirty page to its file. Returns false if a thread writes the page, or changes the length, at
    /// the moment. Waits for no lock, since the caller may hold them.
    fn try_write_back(&self, slot: &Slot) -> Result<bool, PageFault> {
        match self.length.try_read() {
            Some(_length) => self.write_back(slot),
            None => Ok(false),
        }
    }

    /// Called while the length does not change.
    fn write_back(&self, slot: &Slot) -> Result<bool, PageFault> {
        slot.try_close();
        match slot.try_read() {
            Latched::Busy => Ok(false),
            Latched::Gone => Ok(true),
            Latched::Frame(frame) => {
                if slot.is_dirty() && !slot.is_cut() {
                    self.source.write(slot.number(), &frame)?;
                    self.written.fetch_add(1, Ordering::Relaxed);
                    slot.set_clean();
                }
                Ok(true)
            }
        }
    }

    /// Writes dirty pages until a quarter of the limit is left to fill. A page that cannot be written stays
    /// dirty. Its error is that of the next `sync`, and concerns no fault on another page.
    fn write_some<I: Index>(&self, index: &I) {
        let target = self.attribute(Attribute::DirtyMax) / 4 * 3;
        let walked = self.each(index, |slot| {
            let goes_on = self.home.dirty() > target;
            if goes_on && slot.is_dirty() && slot.cache() == self.serial {
                let _ = self.try_write_back(slot);
            }
            Ok(goes_on)
        });
        debug_assert!(walked.is_ok(), "the walk has no errors of its own");
    }

    /// Writes all dirty pages to the file. Waits for threads that write pages. Returns the number of pages.
    pub(super) fn sync<I: Index>(&self, index: &I) -> Result<usize, PageFault> {
        let (mut written, mut first) = (0, None);
        self.each(index, |slot| {
            while slot.is_dirty() && slot.cache() == self.serial {
                // Wait for the writer before the lock is taken, under which it may wait itself.
                if slot.read().is_none() {
                    break;
                }
                let length = self.length.read();
                let result = if slot.is_cut() { break } else { self.write_back(slot) };
                drop(length);
                match result {
                    Ok(true) => written += 1,
                    Ok(false) => {}
                    // The other pages are written even if one cannot be.
                    Err(error) => {
                        first.get_or_insert(error);
                        break;
                    }
                }
            }
            Ok(true)
        })?;
        first.map_or(Ok(()), Err)?;
        self.source.sync()?;
        Ok(written)
    }

    /// Calls `f` with each slot, until it returns false.
    fn each<I: Index>(
        &self,
        index: &I,
        mut f: impl FnMut(&Arc<Slot>) -> Result<bool, PageFault>,
    ) -> Result<(), PageFault> {
        let mut from = Some(Position::default());
        while let Some(at) = from {
            let mut found = Vec::new();
            from = index.visit(at, &mut |_, entry| found.push(entry.to_arc()));
            for slot in &found {
                if !f(slot)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Changes the length of the file. Pages beyond the end go, without being written.
    pub(super) fn set_len<I: Index>(
        &self,
        index: &I,
        local: &I::Local,
        writers: &Arc<LocalWriters>,
        bytes: u64,
    ) -> Result<(), PageFault> {
        // Copies and private mappings need the pages of a frozen file. A freeze waits for this.
        let _writing = self.write(writers)?;
        let (last, within) = (bytes / PAGE_BYTES as u64, (bytes % PAGE_BYTES as u64) as usize);
        // The rest of the last page becomes zero. The page needs memory, which is found before anything
        // changes.
        let mut tail = None;
        let (_length, former) = loop {
            while tail.is_none() && within > 0 && bytes < self.len() {
                tail = self.fault(index, local, last, Access::Write)?.slot.write(self.write(writers)?);
            }
            let length = self.length.write();
            let former = self.len();
            if tail.as_ref().is_some_and(FrameMut::is_cut) {
                // Another thread cut this page off, and perhaps made the file longer again.
                tail = None;
            } else if tail.is_some() || within == 0 || bytes >= former {
                break (length, former);
            }
        };
        if self.is_mappable() && bytes.div_ceil(PAGE_BYTES as u64) > self.most_pages {
            return Err(PageFault::TooLong { bytes, most: self.most_pages * PAGE_BYTES as u64 });
        }
        self.source.set_len(bytes)?;
        self.bytes.store(bytes, Ordering::Relaxed);
        if bytes >= former {
            return Ok(());
        }
        // Release: pairs with the Acquire in `fault`. Pages that are being filled do not become present.
        self.cuts.fetch_add(1, Ordering::Release);
        let first_cut = last + u64::from(within > 0);
        self.each(index, |slot| {
            if slot.number() >= first_cut {
                self.cut(index, slot);
            }
            Ok(true)
        })?;
        if let Some(parent) = &self.parent {
            (first_cut..former.div_ceil(PAGE_BYTES as u64)).for_each(|number| parent.set_own(number));
        }
        if let Some(mut tail) = tail {
            tail[within..].fill(0);
        }
        Ok(())
    }

    /// Removes a page beyond the end. A pin of it keeps its bytes.
    fn cut<I: Index>(&self, index: &I, slot: &Slot) {
        // A page that is shared with the parent stays in the parent's file.
        if slot.cache() == self.serial {
            slot.set_cut();
            if self.is_mappable() {
                // The page's place in the window must be free for the next page of this number.
                slot.take();
            }
        }
        index.remove(slot);
    }
}
