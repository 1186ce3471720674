//! The memory of a resident page: a page of a pool, or a page of a window that programs map.
//!
//! - I1. The bytes belong to the slot of the page alone, except for the mappings of the window. The slot's
//!   latch and its state of mapping exclude those (slot/I4).
//! - I2. A page of a window has one slot at a time: a slot discards its page before it lets go of it.

use squall_objects::pages::Page;
use std::io;
#[cfg(all(target_os = "linux", not(miri)))]
use {
    squall_objects::pages::PAGE_BYTES,
    squall_sys::window,
    std::{slice, sync::Arc},
};

/// Checks that a page of a cache can be mapped on this system.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn check_system() -> io::Result<()> {
    check_page_bytes(squall_sys::pages::page_bytes().unwrap_or(PAGE_BYTES))
}

/// Refuses systems with pages larger than those of a cache: a part of a page cannot be mapped.
#[cfg(all(target_os = "linux", not(miri)))]
fn check_page_bytes(system: usize) -> io::Result<()> {
    if PAGE_BYTES.is_multiple_of(system) {
        return Ok(());
    }
    let why = format!(
        "a file cache has pages of {PAGE_BYTES} bytes, and this system can map no part of its pages of {system} \
         bytes; pin the pages of a cache with a pool, or use a kernel with pages of {PAGE_BYTES} bytes"
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// The place of the memory of a cache's pages: their pool, or a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(crate) window: Option<Arc<window::Window>>,
}

#[cfg(all(target_os = "linux", not(miri)))]
impl Window {
    pub(crate) fn create(bytes: u64) -> io::Result<Window> {
        check_system()?;
        let bytes = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_next_multiple_of(PAGE_BYTES));
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Window { window: Some(Arc::new(window::Window::create(bytes)?)) })
    }

    pub(crate) fn is_some(&self) -> bool {
        self.window.is_some()
    }

    pub(crate) fn memory(&self, page: Page, number: u64) -> Memory {
        match &self.window {
            None => Memory::Page(page),
            Some(window) => Memory::Window { permit: page, window: window.clone(), number },
        }
    }
}

/// Elsewhere no page is mapped.
#[cfg(not(all(target_os = "linux", not(miri))))]
impl Window {
    pub(crate) fn create(_: u64) -> io::Result<Window> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn is_some(&self) -> bool {
        false
    }

    pub(crate) fn memory(&self, page: Page, _: u64) -> Memory {
        Memory::Page(page)
    }
}

/// The memory of a page.
pub(crate) enum Memory {
    Page(Page),
    /// A page of a window. The page of the pool stands for it in the count, and its own memory is not
    /// touched.
    #[cfg(all(target_os = "linux", not(miri)))]
    Window {
        permit: Page,
        window: Arc<window::Window>,
        number: u64,
    },
}

impl Memory {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Memory::Page(page) => page,
            #[cfg(all(target_os = "linux", not(miri)))]
            Memory::Window { window, number, .. } => {
                let at = window.at(*number as usize * PAGE_BYTES, PAGE_BYTES);
                // SAFETY: mapped as long as the window, of which this has a share. Initialised: a page of a
                // file in memory. No thread writes it while this is borrowed (I1).
                unsafe { slice::from_raw_parts(at.as_ptr(), PAGE_BYTES) }
            }
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Page(page) => page,
            #[cfg(all(target_os = "linux", not(miri)))]
            Memory::Window { window, number, .. } => {
                let at = window.at(*number as usize * PAGE_BYTES, PAGE_BYTES);
                // SAFETY: as in `bytes`. No thread reads it either while this is borrowed mutably (I1).
                unsafe { slice::from_raw_parts_mut(at.as_ptr(), PAGE_BYTES) }
            }
        }
    }

    /// Gives the memory up, and returns the page of the pool. Called while no thread uses the bytes, and
    /// before another slot may have them (I2).
    pub(crate) fn retire(self) -> Page {
        match self {
            Memory::Page(page) => page,
            #[cfg(all(target_os = "linux", not(miri)))]
            Memory::Window { permit, window, number } => {
                // SAFETY: the slot gives the page up, so no reference exists. Mapped addresses fault from now
                // on, and their fault handler brings the page in again. If it fails, the old bytes stay, and
                // the next slot overwrites them.
                let _ = unsafe { window.discard(number as usize * PAGE_BYTES, PAGE_BYTES) };
                permit
            }
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_system_with_larger_pages_is_refused_with_both_sizes() {
        for system in [16 << 10, 64 << 10] {
            let error = check_page_bytes(system).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            let error = error.to_string();
            assert!(
                error.contains("pages of 4096 bytes") && error.contains(&format!("{system} bytes")),
                "{error}"
            );
        }
        assert!(check_page_bytes(4096).is_ok());
    }
}
