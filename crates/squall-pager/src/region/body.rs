//! The part of a region that all forms share, and that a swap moves: everything but the admission.

use squall_core::Owned;
use squall_rcu::{Guard, Rcu};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::admission::{Admission, Closed};
use super::{Mapping, Rights, SharedCache};
use crate::cache::{Access, FileCache, Located, PAGE_BYTES, Resident};
use crate::error::PageFault;
use crate::writers;

/// The state that faults read. It changes only while the admission is stopped.
struct State {
    cache: SharedCache,
    bytes: u64,
    /// Read in the form that does not count faults on resident pages.
    is_open: bool,
}

/// Everything but the admission.
pub(super) struct Body {
    start: u64,
    first_page: u64,
    rights: Rights,
    state: Rcu<State>,
    /// Held by the control operations, one at a time.
    control: Mutex<()>,
    /// Set while a copy is made.
    is_copied: AtomicBool,
    /// Set by the unmap that wins (rule 4).
    is_closed: AtomicBool,
    /// Set at the end of that unmap.
    is_unmapped: AtomicBool,
}

/// Leaves the admission when dropped, also during a panic.
struct Inside<'a, A: Admission>(&'a A, &'a A::Local);

impl<A: Admission> Drop for Inside<'_, A> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

/// Clears the mark of a copy when dropped, also during a panic.
struct Copied<'a>(&'a Body);

impl Drop for Copied<'_> {
    fn drop(&mut self) {
        // Relaxed: faults that read it too late wait for the restart.
        self.0.is_copied.store(false, Ordering::Relaxed);
    }
}

/// Restarts the admission when dropped, also during a panic.
struct Stopped<'a, A: Admission>(&'a A);

impl<A: Admission> Drop for Stopped<'_, A> {
    fn drop(&mut self) {
        // It was stopped, and the control lock is held. So no other control operation is at work.
        let _ = self.0.restart();
    }
}

impl Body {
    pub(super) fn new(start: u64, mapping: Mapping) -> Body {
        let state = State { cache: mapping.cache, bytes: mapping.bytes, is_open: true };
        Body {
            start,
            first_page: mapping.first_page,
            rights: mapping.rights,
            state: Rcu::new(Box::new(state)),
            control: Mutex::new(()),
            is_copied: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            is_unmapped: AtomicBool::new(false),
        }
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn first_page(&self) -> u64 {
        self.first_page
    }

    pub(super) fn rights(&self) -> Rights {
        self.rights
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    pub(super) fn is_unmapped(&self) -> bool {
        // Acquire: pairs with the Release in `unmap`. The faults that were inside are over for a thread that
        // sees the end.
        self.is_unmapped.load(Ordering::Acquire)
    }

    pub(super) fn len(&self) -> u64 {
        squall_rcu::pin(|guard| self.state.load(guard).bytes)
    }

    pub(super) fn cache(&self) -> SharedCache {
        squall_rcu::pin(|guard| self.state.load(guard).cache.clone())
    }

    /// Returns the number of the page at an offset, unless it lies beyond the end.
    #[inline]
    fn page(&self, state: &State, offset: u64) -> Option<u64> {
        (offset < state.bytes).then(|| self.first_page + offset / PAGE_BYTES as u64)
    }

    /// Finds a resident page.
    #[inline]
    pub(super) fn find<'o, A: Admission>(
        &self,
        admission: &A,
        local: &A::Local,
        guard: &'o Guard,
        offset: u64,
    ) -> Option<Resident<'o>> {
        let _inside = if A::COUNTS_RESIDENT {
            admission.try_enter(local).ok()?;
            Some(Inside(admission, local))
        } else {
            None
        };
        let state = self.state.load(guard);
        if !A::COUNTS_RESIDENT && !state.is_open {
            return None;
        }
        let page = self.page(state, offset)?;
        state.cache.handle().try_find(guard, page).ok().flatten()
    }

    /// Brings a page into memory.
    pub(super) fn fault<A: Admission>(
        &self,
        admission: &A,
        local: &A::Local,
        offset: u64,
        access: Access,
    ) -> Result<Located, PageFault> {
        if access == Access::Write && self.rights == Rights::Read {
            return Err(PageFault::ReadOnly { start: self.start });
        }
        // A copy waits for this thread's pins for writing. So its faults go on, uncounted, until they are
        // gone.
        let passes = || self.is_copied.load(Ordering::Relaxed) && self.holds_write_pin();
        let entered = admission.enter_unless(local, passes);
        let entered = entered.map_err(|Closed| PageFault::Unmapped { start: self.start })?;
        let _inside = entered.then(|| Inside(admission, local));
        // The cache stays while this is inside, or holds up a copy.
        let (page, cache, length) = squall_rcu::pin(|guard| {
            let state = self.state.load(guard);
            (self.page(state, offset), state.cache.handle(), state.bytes)
        });
        let page = page.ok_or(PageFault::BeyondRegion { start: self.start, offset, length })?;
        cache.fault(page, access)
    }

    /// Brings a page into memory that no thread wants yet.
    pub(super) fn read_ahead<A: Admission>(&self, admission: &A, local: &A::Local, offset: u64) -> bool {
        if admission.try_enter(local).is_err() {
            return false;
        }
        let _inside = Inside(admission, local);
        // As in `fault`.
        let (page, cache) = squall_rcu::pin(|guard| {
            let state = self.state.load(guard);
            (self.page(state, offset), state.cache.handle())
        });
        page.is_some_and(|page| cache.try_read_ahead(page).unwrap_or(false))
    }

    fn holds_write_pin(&self) -> bool {
        self.cache().try_backing().is_ok_and(|backing| writers::holds(backing.home.cache()))
    }

    /// Runs a control operation while no fault is inside, and lets faults go on afterwards. While it makes
    /// copies, faults of threads with a pin for writing go on.
    fn while_stopped<A: Admission, R>(
        &self,
        admission: &A,
        copies: bool,
        act: impl FnOnce(SharedCache, u64) -> Result<(SharedCache, u64, R), PageFault>,
    ) -> Result<R, PageFault> {
        let _control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let unmapped = || PageFault::Unmapped { start: self.start };
        if self.is_closed() {
            return Err(unmapped());
        }
        // Relaxed: the stop comes after it, and faults read it when they find the region stopped.
        self.is_copied.store(copies, Ordering::Relaxed);
        let _copied = Copied(self);
        admission.stop().map_err(|_| unmapped())?;
        let _stopped = Stopped(admission);
        let (cache, bytes) = (self.cache(), self.len());
        if !A::COUNTS_RESIDENT {
            self.set(cache.clone(), bytes, false);
            // The operations that saw the region open end.
            squall_rcu::wait().expect("a control operation runs outside operations");
        }
        let (cache, bytes, result) = match act(cache.clone(), bytes) {
            Ok((cache, bytes, result)) => (cache, bytes, Ok(result)),
            Err(error) => (cache, bytes, Err(error)),
        };
        self.set(cache, bytes, true);
        result
    }

    fn set(&self, cache: SharedCache, bytes: u64, is_open: bool) {
        self.state.replace(Box::new(State { cache, bytes, is_open }));
    }

    /// Shortens the region (rule 6).
    pub(super) fn truncate<A: Admission>(&self, admission: &A, bytes: u64) -> Result<(), PageFault> {
        self.while_stopped(admission, false, |cache, length| {
            if bytes > length {
                return Err(PageFault::BeyondRegion { start: self.start, offset: bytes, length });
            }
            let first_cut = self.first_page + bytes.div_ceil(PAGE_BYTES as u64);
            cache.try_backing()?.home.forget_from(first_cut);
            Ok((cache, bytes, ()))
        })
    }

    /// Replaces the cache by a copy of it, and returns another copy (rule 7).
    pub(super) fn copy<A: Admission>(
        &self,
        admission: &A,
        copies: &mut dyn FnMut(SharedCache) -> [Owned<dyn FileCache>; 2],
    ) -> Result<SharedCache, PageFault> {
        if self.holds_write_pin() {
            return Err(PageFault::Pinned { start: self.start });
        }
        self.while_stopped(admission, true, |cache, bytes| {
            if cache.try_backing()?.home.is_mapped() {
                return Err(PageFault::Mapped { start: self.start });
            }
            let [own, other] = copies(cache).map(Arc::new);
            Ok((own, bytes, other))
        })
    }

    /// Lets running faults end and refuses new ones (rules 2 to 4).
    pub(super) fn unmap<A: Admission>(&self, admission: &A) -> Result<(), PageFault> {
        let unmapped = || PageFault::Unmapped { start: self.start };
        // Relaxed: one thread wins, and the admission orders the rest.
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return Err(unmapped());
        }
        let _control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        admission.shut_down().map_err(|_| unmapped())?;
        let cache = self.cache();
        if let Ok(backing) = cache.try_backing() {
            backing.home.forget_from(0);
        }
        self.set(cache, self.len(), false);
        if !A::COUNTS_RESIDENT {
            squall_rcu::wait().expect("an unmap runs outside operations");
        }
        // Release: pairs with the Acquire in `is_unmapped`.
        self.is_unmapped.store(true, Ordering::Release);
        Ok(())
    }
}
