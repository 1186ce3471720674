//! Rivals of the case `pin`: tables of page frames in memory.
//!
//! - `locked-frames`: a table in 64 parts of `std`, with a reader-writer lock for each part and for each
//!   frame. A pin reads the part, takes the lock of the frame for reading, and releases the part.
//! - `page-db`: the buffer pool of the crate of that name. A pin counts under the lock of the pool, and takes
//!   the lock of the frame for reading.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use foldhash::fast::FixedState;
use page_db::{BufferPool, Page, PageError, PageId, PageResult, PageSize, PageStore};
use squall::pager::cache::PAGE_BYTES;

use crate::cases::pager::{Pinned, Scope};

const PARTS: u64 = 64;

struct Frame {
    number: u64,
    bytes: RwLock<Box<[u8]>>,
}

/// Places of frames by the numbers of their pages.
type Part = RwLock<HashMap<u64, usize, FixedState>>;

/// `locked-frames`.
pub(crate) struct LockedFrames {
    parts: Box<[Part]>,
    frames: Box<[Frame]>,
}

impl Pinned for LockedFrames {
    fn new(scope: &Scope) -> LockedFrames {
        let mut parts = vec![HashMap::default(); PARTS as usize];
        let frames = (0..scope.pages).map(|number| {
            parts[(number % PARTS) as usize].insert(number, number as usize);
            Frame { number, bytes: RwLock::new(vec![0; PAGE_BYTES].into_boxed_slice()) }
        });
        let frames = frames.collect();
        LockedFrames { parts: parts.into_iter().map(RwLock::new).collect(), frames }
    }

    #[inline(always)]
    fn pin(&self, page: u64) -> u64 {
        let part = self.parts[(page % PARTS) as usize].read().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = part.get(&page) else { return u64::MAX };
        let frame = &self.frames[*place];
        let bytes = frame.bytes.read().unwrap_or_else(PoisonError::into_inner);
        drop(part);
        let number = frame.number;
        drop(bytes);
        number
    }
}

/// A store that the pool of `page-db` never reads: all its pages stay in memory.
struct NoStore;

impl PageStore for NoStore {
    fn page_size(&self) -> usize {
        PAGE_BYTES
    }

    fn allocate_page(&self) -> Page {
        Page::new(PageSize::new(PAGE_BYTES).expect("a page of 4 KiB is allowed"))
    }

    fn read_into(&self, id: PageId, _: &mut Page) -> PageResult<()> {
        Err(PageError::ShortRead { page_id: id.get(), got: 0, page_size: PAGE_BYTES })
    }

    fn write_page(&self, _: PageId, _: &mut Page) -> PageResult<()> {
        Ok(())
    }

    fn sync(&self) -> PageResult<()> {
        Ok(())
    }
}

/// `page-db`.
pub(crate) struct PageDb(BufferPool<NoStore>);

impl Pinned for PageDb {
    fn new(scope: &Scope) -> PageDb {
        let pool = BufferPool::new(NoStore, scope.pages as usize);
        for number in 0..scope.pages {
            drop(pool.new_page(PageId::new(number)).expect("the pool has a frame for each page"));
        }
        PageDb(pool)
    }

    #[inline(always)]
    fn pin(&self, page: u64) -> u64 {
        let Ok(guard) = self.0.fetch(PageId::new(page)) else { return u64::MAX };
        let bytes = guard.read();
        let number = guard.id().get();
        drop(bytes);
        number
    }
}
