//! Fills that begin on one thread and end on another one.

use std::fmt;
use std::sync::Arc;

use super::body::Body;
use crate::error::PageFault;
use crate::index::Reservation;

/// A page that is being filled. Its holder fills it by [`run`](Fill::run), on any thread. Threads that need
/// the page meanwhile wait. Dropped, it leaves the page absent, and one of those threads fills it.
///
/// A swap of the cache does not wait for it. The page is then absent afterwards.
#[must_use = "the page stays absent if this is dropped"]
pub struct Fill {
    body: Arc<Body>,
    reserved: Box<dyn Reservation>,
    page: u64,
}

impl Fill {
    pub(super) fn new(body: Arc<Body>, reserved: Box<dyn Reservation>, page: u64) -> Fill {
        Fill { body, reserved, page }
    }

    /// Returns the number of the page.
    pub fn page(&self) -> u64 {
        self.page
    }

    /// Reads the page, and lets the threads go on that wait for it.
    ///
    /// # Errors
    /// [`PageFault`]: the page stays absent, and the threads that wait get the error too.
    pub fn run(self) -> Result<(), PageFault> {
        self.body.fill(self.reserved, self.page)
    }
}

impl fmt::Debug for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fill").field("page", &self.page).finish_non_exhaustive()
    }
}
