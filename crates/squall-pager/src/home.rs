//! The part of a cache that its slots know: the count of its changed pages, and the mappings of its pages.

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
    dirty: AtomicUsize,
    maps: RwLock<Vec<Arc<dyn Translate>>>,
}

impl Home {
    pub(crate) fn new(cache: u64) -> Home {
        Home { cache, dirty: AtomicUsize::new(0), maps: RwLock::default() }
    }

    pub(crate) fn cache(&self) -> u64 {
        self.cache
    }

    // Relaxed, in all three: a count that guards no data.
    pub(crate) fn add_dirty(&self) {
        self.dirty.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_dirty(&self) {
        self.dirty.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn dirty(&self) -> usize {
        self.dirty.load(Ordering::Relaxed)
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
