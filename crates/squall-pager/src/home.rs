//! The part of a cache that its slots and mappings know: the count of its changed pages, and the mappings.

use squall_machine::pervp::PerVpWord;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// A mapping of pages at addresses of a process.
pub(crate) trait Translate: Send + Sync {
    /// Lets a write to a page fault.
    fn protect(&self, number: u64);
    /// Lets every access of some pages fault.
    fn forget(&self, number: u64, pages: u64);
}

pub(crate) struct Home {
    /// The number of the cache.
    cache: u64,
    /// Number of pages that were changed since they were written to their file.
    /// Threads on several processors change pages, so each processor has a count of its own.
    dirty: PerVpWord,
    maps: RwLock<Vec<Arc<dyn Translate>>>,
    /// Numbers of private mappings in this process, and of those in others.
    pub(crate) private: AtomicUsize,
    pub(crate) clients: AtomicUsize,
}

impl Default for Home {
    /// Makes the part of a cache that has no mapped pages.
    fn default() -> Home {
        Home::new(u64::MAX)
    }
}

impl Home {
    pub(crate) fn new(cache: u64) -> Home {
        let none = || AtomicUsize::new(0);
        Home { cache, dirty: PerVpWord::new(), maps: RwLock::default(), private: none(), clients: none() }
    }

    pub(crate) fn cache(&self) -> u64 {
        self.cache
    }

    pub(crate) fn add_dirty(&self) {
        self.dirty.add(1);
    }

    pub(crate) fn remove_dirty(&self) {
        self.dirty.add(1_u64.wrapping_neg());
    }

    /// Reads the counts one after the other. So the result may be too large or too small while pages change.
    pub(crate) fn dirty(&self) -> usize {
        // A negative sum is one that missed an addition.
        self.dirty.sum().cast_signed().max(0) as usize
    }

    fn maps(&self) -> RwLockReadGuard<'_, Vec<Arc<dyn Translate>>> {
        self.maps.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a write to a page fault, in all mappings.
    pub(crate) fn protect(&self, number: u64) {
        self.maps().iter().for_each(|map| map.protect(number));
    }

    /// Lets every access of a page fault, in all mappings.
    pub(crate) fn forget(&self, number: u64) {
        self.maps().iter().for_each(|map| map.forget(number, 1));
    }

    /// Lets every access of this page and the later ones fault, in all mappings.
    pub(crate) fn forget_from(&self, number: u64) {
        self.maps().iter().for_each(|map| map.forget(number, u64::MAX));
    }

    pub(crate) fn is_mapped(&self) -> bool {
        !self.maps().is_empty()
    }

    /// Returns the number of mappings of regions.
    pub(crate) fn mappings(&self) -> usize {
        self.maps().len()
    }

    /// Adds a mapping. Its pages come after this.
    #[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code))]
    pub(crate) fn add_map(&self, map: Arc<dyn Translate>) {
        self.maps.write().unwrap_or_else(PoisonError::into_inner).push(map);
    }

    /// Removes a mapping.
    #[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code))]
    pub(crate) fn remove_map(&self, map: &Arc<dyn Translate>) {
        let mut maps = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        maps.retain(|other| !Arc::ptr_eq(other, map));
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").field("dirty", &self.dirty()).finish_non_exhaustive()
    }
}

/// A private mapping, in one of the counts of its cache.
#[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code))]
pub(crate) struct Counted {
    home: Arc<Home>,
    count: fn(&Home) -> &AtomicUsize,
}

#[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code))]
impl Counted {
    pub(crate) fn new(home: Arc<Home>, count: fn(&Home) -> &AtomicUsize) -> Counted {
        count(&home).fetch_add(1, Ordering::Relaxed);
        Counted { home, count }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.count)(&self.home).fetch_sub(1, Ordering::Relaxed);
    }
}
