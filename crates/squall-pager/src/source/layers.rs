//! A store with the pages of an earlier source below it.
//!
//! Problem: a swap to another store must not copy pages, since callers wait for it. Yet each page must be
//! found afterwards, written, cut off and moved, by several threads at once.
//! Idea: the earlier source becomes the *base*, which never changes again. The store has the pages that were
//! written or migrated since the swap; a bit tells them. All others come from the base.
//!
//! - I1. A page is *here* if its bit is set, or if it lies below the cursor of the migration. Bits and cursor
//!   change under the write lock of the page's stripe. A page that is not here has no bytes in the store,
//!   unless the stripe says that a write failed.
//! - I2. The base has no bytes at or above its limit. A cut lowers the limit under the write lock of the
//!   base. So a page that is cut off and grown again comes from the store, which cut it too.
//! - I3. A fill holds the stripe of its page for reading, and a write or migration holds it for writing. So
//!   no fill sees half of a write, even in a file.
//! - I4. A store that answers `has_zeros` found its page to be zeros at a moment of the call. The length is
//!   read after that moment, and a cut lowers it before the store drops pages. So zeros are never answered
//!   for a page that was just cut off.
//! - I5. The base is dropped once all its pages are here. `has_base` is cleared afterwards.
//!
//! Not promised: a store that fails in the middle of a write has undefined bytes in that page. If the page
//! was not here, it still comes from the base.
//! Cost: of a fill, a line of the thread's own, the lock of a stripe, and the store's work. A page that is
//! sure to be zeros costs three loads. A bit per page that was written since the swap.
//! Source: Appavoo 2005, §4.1 (File Representatives, CO-42): an anonymous one answers first touches from
//! read-mostly data. The layers are our own.

#[cfg(test)]
mod tests;

use squall_lock::{DistributedRwLock, Lock};
use squall_objects::pages::PAGE_BYTES;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::contents::{Contents, bytes_within, pages_of};
use super::error::{SourceError, SourceErrorKind};
use super::interface::{Filled, Source, SourceStatistics};

/// Number of stripes of a store that keeps pages. Threads in different stripes do not meet.
const STRIPES: usize = 32;
/// Consecutive pages of one stripe, as the number of bits of their numbers.
const BLOCK_BITS: u32 = 6;

/// A place for pages. [`Layers`] calls it with the page's stripe locked: for writing in `write`, for
/// reading in `fill`. Neither overlaps a `set_len` that lowers the length, or `forget`.
pub(super) trait Store: Send + Sync + Sized + 'static {
    /// Whether pages can be written.
    const KEEPS_PAGES: bool = true;

    /// Returns the name in errors.
    fn name(&self) -> &str;

    /// Prepares a new store for contents of this length.
    fn begin(&self, len: u64) -> Result<(), SourceErrorKind>;

    /// Returns whether no page has contents, in a store of this length.
    fn is_blank(&self, len: u64) -> bool;

    /// Returns whether the page is sure to be zeros now, without a lock. A zero that is missed costs a call
    /// of `fill`.
    fn has_zeros(&self, page: u64) -> bool;

    /// Reads a page of a store of length `len`.
    fn fill(&self, page: u64, into: &mut [u8], len: u64) -> Result<Filled, SourceErrorKind>;

    /// Writes the bytes of a page that lie below `len`.
    fn write(&self, page: u64, bytes: &[u8], len: u64) -> Result<(), SourceErrorKind>;

    /// Changes the length of the medium. After an error it is unchanged.
    fn set_len(&self, old: u64, new: u64) -> Result<(), SourceErrorKind>;

    /// Drops pages beyond `len`, after the length was lowered.
    fn forget(&self, len: u64);

    /// Waits for stable storage.
    fn sync(&self) -> Result<(), SourceErrorKind>;

    /// Returns the bytes that the pages occupy.
    fn stored_bytes(&self, len: u64) -> u64;
}

/// A store, and the base below it.
pub(super) struct Layers<S> {
    store: S,
    /// Length in bytes. Written with `lengths` locked.
    len: AtomicU64,
    lengths: Lock<()>,
    /// Whether there is a base.
    has_base: AtomicBool,
    /// Bytes that the base occupies.
    base_bytes: AtomicU64,
    /// Whether the store was written.
    is_touched: AtomicBool,
    /// The base. Locked for writing to cut it or drop it, and to lower the length.
    base: DistributedRwLock<Option<Contents>>,
    stripes: Box<[Stripe]>,
    /// Pages below the cursor are here (I1). Moved with `migrations` locked.
    cursor: AtomicU64,
    migrations: Lock<()>,
}

/// The lock of some pages, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Stripe(RwLock<Pages>);

/// Facts about the pages of a stripe.
#[derive(Default)]
struct Pages {
    /// The bits of pages that are here, by blocks (I1).
    here: HashMap<u64, u64>,
    /// Whether a write failed, so that pages that are not here may have bytes in the store.
    has_failed: bool,
}

impl Pages {
    fn is_here(&self, page: u64) -> bool {
        self.here.get(&(page >> BLOCK_BITS)).is_some_and(|bits| bits & bit(page) != 0)
    }

    fn set_here(&mut self, page: u64) {
        *self.here.entry(page >> BLOCK_BITS).or_default() |= bit(page);
    }

    /// Drops the bits of the page's block if the page is its last one, and so all lie below the cursor.
    fn prune(&mut self, page: u64) {
        if (page + 1) >> BLOCK_BITS != page >> BLOCK_BITS {
            self.here.remove(&(page >> BLOCK_BITS));
        }
    }
}

impl Stripe {
    fn lock(&self) -> RwLockWriteGuard<'_, Pages> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bit(page: u64) -> u64 {
    1 << (page % (1 << BLOCK_BITS))
}

impl<S: Store> Layers<S> {
    /// Makes a source of a store that has its pages already.
    pub(super) fn new(store: S, len: u64) -> Layers<S> {
        let stripes = if S::KEEPS_PAGES { STRIPES } else { 1 };
        Layers {
            store,
            len: AtomicU64::new(len),
            lengths: Lock::new(()),
            has_base: AtomicBool::new(false),
            base_bytes: AtomicU64::new(0),
            is_touched: AtomicBool::new(false),
            base: DistributedRwLock::new(None),
            stripes: (0..stripes).map(|_| Stripe::default()).collect(),
            cursor: AtomicU64::new(0),
            migrations: Lock::new(()),
        }
    }

    /// Makes a source of an empty store, with these contents as its base.
    pub(super) fn over(store: S, contents: Contents) -> Result<Layers<S>, SourceError> {
        contents.check_depth(store.name())?;
        let refuse = |kind| SourceError::new(store.name(), None, kind);
        if !S::KEEPS_PAGES && !contents.is_blank() {
            return Err(refuse(SourceErrorKind::HasPages));
        }
        store.begin(contents.len()).map_err(refuse)?;
        let layers = Layers::new(store, contents.len());
        if contents.is_blank() {
            return Ok(layers);
        }
        Ok(Layers {
            has_base: AtomicBool::new(true),
            base_bytes: AtomicU64::new(contents.statistics().stored_bytes),
            base: DistributedRwLock::new(Some(contents)),
            ..layers
        })
    }

    /// Returns the contents for a swap, with these statistics. The caller excludes other calls.
    pub(super) fn contents(self: &Arc<Self>, statistics: SourceStatistics) -> Contents {
        let len = self.len();
        let base = self.base.read();
        let contents = match &*base {
            None if self.store.is_blank(len) => Contents::zeros(len),
            // Relaxed: no other call runs.
            Some(base) if !self.is_touched.load(Ordering::Relaxed) => base.clone(),
            base => Contents::above(self.clone(), base.as_ref().map_or(0, Contents::depth)),
        };
        contents.with(len, statistics)
    }

    fn error(&self, page: u64, kind: SourceErrorKind) -> SourceError {
        SourceError::new(self.store.name(), Some(page), kind)
    }

    /// Refuses a buffer that is no page.
    fn check_buffer(&self, page: u64, bytes: usize) -> Result<(), SourceError> {
        if bytes == PAGE_BYTES {
            return Ok(());
        }
        Err(self.error(page, SourceErrorKind::WrongSize { bytes }))
    }

    /// Returns the length, or an error if the page begins beyond it.
    fn len_around(&self, page: u64) -> Result<u64, SourceError> {
        let len = self.len();
        if page < pages_of(len) { Ok(len) } else { Err(self.error(page, SourceErrorKind::BeyondEnd { len })) }
    }

    fn stripe(&self, page: u64) -> &Stripe {
        &self.stripes[(page >> BLOCK_BITS) as usize % self.stripes.len()]
    }

    /// Locks the page for a fill.
    fn lock_shared(&self, page: u64) -> RwLockReadGuard<'_, Pages> {
        // A thread that panicked in a store or base left these facts whole.
        self.stripe(page).0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the page for a write or a migration.
    fn lock(&self, page: u64) -> RwLockWriteGuard<'_, Pages> {
        self.stripe(page).lock()
    }

    /// Returns whether the page's bytes come from the base. The page is locked (I1).
    fn is_below(&self, base: Option<&Contents>, stripe: &Pages, page: u64) -> bool {
        // Relaxed: the page's lock orders the cursor's step over this page.
        base.is_some_and(|base| base.covers(page))
            && page >= self.cursor.load(Ordering::Relaxed)
            && !stripe.is_here(page)
    }

    /// Writes to the store, in a locked page.
    fn write_locked(&self, stripe: &mut Pages, page: u64, from: &[u8], len: u64) -> Result<(), SourceError> {
        // Relaxed: a swap reads it when all calls have ended.
        if !self.is_touched.load(Ordering::Relaxed) {
            self.is_touched.store(true, Ordering::Relaxed);
        }
        // A store that panics has failed too.
        let failed = std::mem::replace(&mut stripe.has_failed, true);
        let bytes = &from[..bytes_within(page, len)];
        self.store.write(page, bytes, len).map_err(|kind| self.error(page, kind))?;
        stripe.has_failed = failed;
        Ok(())
    }

    /// Takes the base away if all its pages are here (I5).
    fn take_base(&self, base: &mut Option<Contents>) -> Option<Contents> {
        // Relaxed: the base is locked for writing, so no migration runs.
        let cursor = self.cursor.load(Ordering::Relaxed);
        let gone = base.take_if(|base| base.pages() <= cursor)?;
        self.stripes.iter().for_each(|stripe| stripe.lock().here = HashMap::new());
        self.base_bytes.store(0, Ordering::Relaxed);
        // Release: pairs with the Acquire in `is_zeros`, which then sees the migrated pages in the store.
        self.has_base.store(false, Ordering::Release);
        Some(gone)
    }

    /// Copies the page at the cursor into the store, unless it is here. The buffer has one page.
    fn migrate_page(&self, base: &Contents, page: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        let mut stripe = self.lock(page);
        if !stripe.is_here(page) {
            let filled = base.fill(page, buffer)?;
            if filled == Filled::Zeros {
                buffer.fill(0);
            }
            // The store has zeros already, but for the rest of a write that failed (I1).
            if filled == Filled::Read || stripe.has_failed {
                self.write_locked(&mut stripe, page, buffer, self.len())?;
            }
        }
        // Relaxed: see `is_below`.
        self.cursor.store(page + 1, Ordering::Relaxed);
        stripe.prune(page);
        Ok(())
    }
}

impl<S: Store> Source for Layers<S> {
    fn len(&self) -> u64 {
        // Acquire: pairs with the Release in `set_len` (I4).
        self.len.load(Ordering::Acquire)
    }

    fn is_zeros(&self, page: u64) -> bool {
        // Acquire: pairs with the Release in `take_base`. The length is read last (I4).
        !self.has_base.load(Ordering::Acquire) && self.store.has_zeros(page) && page < pages_of(self.len())
    }

    fn fill(&self, page: u64, into: &mut [u8]) -> Result<Filled, SourceError> {
        self.check_buffer(page, into.len())?;
        if self.is_zeros(page) {
            return Ok(Filled::Zeros);
        }
        let base = self.base.read();
        let len = self.len_around(page)?;
        let stripe = self.lock_shared(page);
        match &*base {
            Some(below) if self.is_below(Some(below), &stripe, page) => below.fill(page, into),
            _ => self.store.fill(page, into, len).map_err(|kind| self.error(page, kind)),
        }
    }

    fn write(&self, page: u64, from: &[u8]) -> Result<(), SourceError> {
        self.check_buffer(page, from.len())?;
        let base = self.base.read();
        let len = self.len_around(page)?;
        let mut stripe = self.lock(page);
        self.write_locked(&mut stripe, page, from, len)?;
        if self.is_below(base.as_ref(), &stripe, page) {
            stripe.set_here(page);
        }
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> Result<(), SourceError> {
        let _lengths = self.lengths.lock();
        let error = |kind| SourceError::new(self.store.name(), None, kind);
        let old = self.len();
        if bytes >= old {
            let _base = self.base.read();
            self.store.set_len(old, bytes).map_err(error)?;
            // Release: pairs with the Acquire in `len`.
            self.len.store(bytes, Ordering::Release);
            return Ok(());
        }
        let mut base = self.base.write();
        self.store.set_len(old, bytes).map_err(error)?;
        // Release: pairs with the Acquire in `len` (I4). `forget` comes after it.
        self.len.store(bytes, Ordering::Release);
        self.store.forget(bytes);
        if let Some(base) = &mut *base {
            base.cut(bytes);
        }
        let gone = self.take_base(&mut base);
        drop(base);
        drop(gone);
        Ok(())
    }

    fn sync(&self) -> Result<(), SourceError> {
        let base = self.base.read();
        base.as_ref().map_or(Ok(()), Contents::sync)?;
        self.store.sync().map_err(|kind| SourceError::new(self.store.name(), None, kind))
    }

    fn migrate(&self, pages: u64) -> Result<u64, SourceError> {
        let _migrations = self.migrations.lock();
        let mut buffer = vec![0; PAGE_BYTES];
        for done in 0_u64.. {
            let base = self.base.read();
            let Some(below) = &*base else { return Ok(0) };
            // Relaxed: only migrations move it, and this is the only one.
            let cursor = self.cursor.load(Ordering::Relaxed);
            let left = below.pages().saturating_sub(cursor);
            if left == 0 {
                break;
            }
            if done == pages {
                return Ok(left);
            }
            self.migrate_page(below, cursor, &mut buffer)?;
        }
        // The base is freed after its lock.
        let gone = self.take_base(&mut self.base.write());
        drop(gone);
        Ok(0)
    }

    fn statistics(&self) -> SourceStatistics {
        // Relaxed: an estimate.
        let stored_bytes = self.base_bytes.load(Ordering::Relaxed) + self.store.stored_bytes(self.len());
        SourceStatistics { stored_bytes, ..SourceStatistics::default() }
    }
}
