//! A region of Squall at addresses, used as an application would.

use std::ptr::NonNull;
use std::sync::Arc;

use squall::objects::pages::{self, PagePool, Supply};
use squall::pager::region::{self, Mapping};
use squall::pager::source::{Filled, Source, SourceError, SourceErrorKind, SourceStatistics};
use squall::pager::{cache, hat};
use squall::{Handle, Owned};

use super::{PAGE_BYTES, Paged};
use crate::case::Missing;

/// Pages that begin with their numbers. A fill copies a page, like the rivals.
struct Numbers {
    bytes: u64,
    page: [u8; PAGE_BYTES],
}

impl Source for Numbers {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn fill(&self, page: u64, into: &mut [u8]) -> Result<Filled, SourceError> {
        into.copy_from_slice(&self.page);
        into[..8].copy_from_slice(&page.to_ne_bytes());
        Ok(Filled::Read)
    }

    fn write(&self, page: u64, _: &[u8]) -> Result<(), SourceError> {
        Err(SourceError::new("numbers", Some(page), SourceErrorKind::KeepsNothing))
    }

    fn set_len(&self, _: u64) -> Result<(), SourceError> {
        Err(SourceError::new("numbers", None, SourceErrorKind::KeepsNothing))
    }

    fn sync(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn statistics(&self) -> SourceStatistics {
        SourceStatistics::default()
    }
}

/// `squall`, and `squall-batch` if a fault brings in several pages.
pub(crate) struct Region {
    mapped: hat::Mapped,
    _region: Owned<dyn region::Region>,
    _pool: Owned<dyn PagePool>,
}

/// Makes a distributed region of a partitioned cache.
fn region(pages: usize, pool: Handle<dyn PagePool>) -> std::io::Result<Owned<dyn region::Region>> {
    let numbers = Numbers { bytes: (pages * PAGE_BYTES) as u64, page: [0; PAGE_BYTES] };
    let source = squall::shared::<dyn Source, _>(numbers);
    let form = cache::Form::Partitioned { partitions: 64, shift: 6 };
    let cache = Arc::new(cache::mappable(form, source, pool)?);
    Ok(region::with_form(region::Form::Distributed, 0, Mapping::new(cache)))
}

impl Paged for Region {
    fn new(pages: usize, batch: usize) -> Result<Region, Missing> {
        let pool = pages::distributed(Supply::system(2 * pages));
        let region = region(pages, pool.handle());
        let region = region.map_err(|error| Missing(format!("no memory can be mapped: {error}")))?;
        // SAFETY: the case touches the memory outside of locks, and changes it by atomic operations.
        let mapped = unsafe { hat::map(region.handle()) }.map_err(|error| Missing(error.to_string()))?;
        mapped.set_read_ahead(batch);
        Ok(Region { mapped, _region: region, _pool: pool })
    }

    fn start(&self) -> NonNull<u8> {
        self.mapped.as_ptr()
    }

    fn expected(&self, page: usize) -> u64 {
        page as u64
    }

    fn end(self) {
        drop(self);
        // The pages are freed after a grace period.
        squall::rcu::barrier().expect("the grace period failed");
    }
}
