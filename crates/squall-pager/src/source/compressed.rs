//! The store in compressed memory.
//!
//! Problem: anonymous memory has no file to which its pages could be written. Most pages compress well.
//! Idea: a page is compressed with LZ4 into a block of its own. A page of zeros has no block, and a page that
//! does not compress is kept as it is.
//!
//! - I1. `stored` is the sum of the bytes of all blocks, or more while a write is under way. A write that
//!   needs more bytes than the block that it replaces leaves `stored` at or below the limit.
//! - I2. A group counts the blocks of its pages, or more while one is made or dropped. So a page is zeros if
//!   its group counts zero.
//! - I3. A block has bytes up to `end`. A cut lowers `end`, and compresses no block again.
//!
//! Not promised: the limit covers compressed bytes alone. A block takes about 40 bytes more.
//! Cost: a write compresses a page. A first touch of a page reads one counter, which is written when a page
//! of its group is.
//! Source: Appavoo 2005, §4.1 and §8.5: swapping by distributed file representatives of anonymous memory
//! (CO-42, CO-76).

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use squall_objects::pages::PAGE_BYTES;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::contents::{bytes_within, pages_of};
use super::error::SourceErrorKind;
use super::interface::Filled;
use super::layers::Store;

/// Number of shards, each with a lock.
const SHARDS: usize = 32;
/// Number of groups of pages with a counter each.
const GROUPS: usize = 4096;
/// Consecutive pages of one group and shard, as the number of bits of their numbers. So the counters of the
/// first 1 GiB are exact for spans of 256 KiB.
const GROUP_BITS: u32 = 6;

/// Pages in compressed memory, at most `limit` bytes of them.
pub(super) struct Compressed {
    limit: u64,
    stored: AtomicU64,
    shards: Box<[Shard]>,
    /// Number of blocks of each group (I2).
    groups: Box<[AtomicU32]>,
}

/// Some of the blocks, by page, with a lock on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Shard(RwLock<HashMap<u64, Block>>);

/// A page.
struct Block {
    /// Compressed, unless there are `len` bytes of them.
    bytes: Box<[u8]>,
    /// Number of bytes of the page that were written.
    len: u16,
    /// Bytes of the page from here on are zeros (I3).
    end: u16,
}

const _: () = assert!(PAGE_BYTES <= u16::MAX as usize);

/// Memory for the compression of a page.
struct Scratch {
    table: CompressTable,
    bytes: [u8; get_maximum_output_size(PAGE_BYTES)],
}

thread_local! {
    static SCRATCH: RefCell<Box<Scratch>> = RefCell::new(Box::new(Scratch {
        table: CompressTable::small(),
        bytes: [0; get_maximum_output_size(PAGE_BYTES)],
    }));
}

impl Block {
    /// Makes the block of these bytes, or `None` if all are zeros.
    fn new(page: &[u8]) -> Option<Block> {
        if *page == [0; PAGE_BYTES][..page.len()] {
            return None;
        }
        let bytes = SCRATCH.with_borrow_mut(|scratch| {
            let Scratch { table, bytes } = &mut **scratch;
            match compress_into_with_table(page, bytes, table) {
                Ok(len) if len < page.len() => Box::from(&bytes[..len]),
                // It does not compress.
                _ => Box::from(page),
            }
        });
        let len = page.len() as u16;
        Some(Block { bytes, len, end: len })
    }

    /// Reads the block into a page.
    fn read(&self, into: &mut [u8]) -> Result<(), SourceErrorKind> {
        let (len, end) = (usize::from(self.len), usize::from(self.end));
        if self.bytes.len() == len {
            into[..len].copy_from_slice(&self.bytes);
        } else if !decompress_into(&self.bytes, &mut into[..len]).is_ok_and(|bytes| bytes == len) {
            return Err(SourceErrorKind::Damaged);
        }
        into[end..].fill(0);
        Ok(())
    }

    fn stored(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl Shard {
    fn read(&self) -> RwLockReadGuard<'_, HashMap<u64, Block>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> RwLockWriteGuard<'_, HashMap<u64, Block>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Compressed {
    pub(super) fn new(limit: u64) -> Compressed {
        Compressed {
            limit,
            stored: AtomicU64::new(0),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            groups: (0..GROUPS).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn shard(&self, page: u64) -> &Shard {
        &self.shards[(page >> GROUP_BITS) as usize % SHARDS]
    }

    fn group(&self, page: u64) -> &AtomicU32 {
        &self.groups[(page >> GROUP_BITS) as usize % GROUPS]
    }

    /// Counts the bytes of a new block in place of an old one (I1).
    fn reserve(&self, old: u64, new: u64) -> Result<(), SourceErrorKind> {
        let count = |stored: u64| {
            let next = stored - old + new;
            (new <= old || next <= self.limit).then_some(next)
        };
        // Relaxed: a count alone.
        match self.stored.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) {
            Ok(_) => Ok(()),
            Err(stored) => {
                Err(SourceErrorKind::Full { needed: new, stored: stored - old, limit: self.limit })
            }
        }
    }

    /// Notes that a block was dropped.
    fn note_dropped(&self, page: u64) {
        // Release: pairs with the Acquire in `has_zeros`, which then sees the shorter length (layers/I4).
        self.group(page).fetch_sub(1, Ordering::Release);
    }
}

impl Store for Compressed {
    fn name(&self) -> &str {
        "compressed memory"
    }

    fn begin(&self, _: u64) -> Result<(), SourceErrorKind> {
        Ok(())
    }

    fn is_blank(&self, _: u64) -> bool {
        self.shards.iter().all(|shard| shard.read().is_empty())
    }

    fn has_zeros(&self, page: u64) -> bool {
        // Acquire: pairs with the Release in `note_dropped`.
        self.group(page).load(Ordering::Acquire) == 0
    }

    fn fill(&self, page: u64, into: &mut [u8], _: u64) -> Result<Filled, SourceErrorKind> {
        let shard = self.shard(page).read();
        let Some(block) = shard.get(&page) else { return Ok(Filled::Zeros) };
        block.read(into)?;
        Ok(Filled::Read)
    }

    fn write(&self, page: u64, bytes: &[u8], _: u64) -> Result<(), SourceErrorKind> {
        let block = Block::new(bytes);
        let mut shard = self.shard(page).lock();
        let old = shard.get(&page).map_or(0, Block::stored);
        self.reserve(old, block.as_ref().map_or(0, Block::stored))?;
        match block {
            Some(block) => {
                // Relaxed: a fill that begins after this write returns sees the count.
                self.group(page).fetch_add(1, Ordering::Relaxed);
                if shard.insert(page, block).is_some() {
                    self.note_dropped(page);
                }
            }
            None if shard.remove(&page).is_some() => self.note_dropped(page),
            None => {}
        }
        Ok(())
    }

    fn set_len(&self, _: u64, _: u64) -> Result<(), SourceErrorKind> {
        Ok(())
    }

    fn forget(&self, len: u64) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            for (page, block) in shard.extract_if(|page, _| *page >= pages_of(len)) {
                // Relaxed: a count alone.
                self.stored.fetch_sub(block.stored(), Ordering::Relaxed);
                self.note_dropped(page);
            }
        }
        // The last page may be cut in its middle (I3).
        if let Some(last) = pages_of(len).checked_sub(1)
            && let Some(block) = self.shard(last).lock().get_mut(&last)
        {
            block.end = block.end.min(bytes_within(last, len) as u16);
        }
    }

    fn sync(&self) -> Result<(), SourceErrorKind> {
        Ok(())
    }

    fn stored_bytes(&self, _: u64) -> u64 {
        // Relaxed: an estimate.
        self.stored.load(Ordering::Relaxed)
    }
}
