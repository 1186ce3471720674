//! The item stored for a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::cache::Moment;

/// Approximate size of an entry without key and value, in bytes: table, node, and the allocator's overhead.
const ENTRY_BYTES: u64 = 160;
/// Seconds after which a further use is recorded.
const USE_S: u32 = 60;

/// A value and its metadata. Only the time of its last use changes in place. Another value is another item,
/// which may share the data.
#[derive(Debug)]
pub struct Item {
    /// The value.
    pub data: Arc<[u8]>,
    /// A number that no other value of the cache has.
    pub cas: u64,
    /// The expiry time, in seconds since 1970; 0: never.
    pub expires: u64,
    /// The client's own flags.
    pub flags: u32,
    /// Number of flushes before the item was stored.
    pub era: u64,
    /// Approximate time of the last use. Written at most once a minute, so that most reads write no memory.
    used: AtomicU32,
}

impl Item {
    /// Makes an item at this moment.
    pub fn new(data: Arc<[u8]>, flags: u32, expires: u64, cas: u64, moment: Moment) -> Item {
        Item { data, cas, expires, flags, era: moment.era, used: AtomicU32::new(moment.now as u32) }
    }

    /// Returns the same value with another expiry time. It keeps its `cas` number, since the value is
    /// unchanged.
    pub fn expiring(&self, expires: u64, moment: Moment) -> Item {
        Item { expires, used: AtomicU32::new(moment.now as u32), ..self.clone() }
    }

    /// Returns an item with another value and the same expiry time and flags.
    pub fn with_data(&self, data: Arc<[u8]>, cas: u64) -> Item {
        Item { data, cas, ..self.clone() }
    }

    /// Whether clients see the item: it is neither expired nor flushed.
    pub fn is_live(&self, moment: Moment) -> bool {
        (self.expires == 0 || self.expires > moment.now) && self.era >= moment.era
    }

    /// Returns the size that counts against the memory limit.
    pub fn bytes(&self, key: &[u8]) -> u64 {
        ENTRY_BYTES + key.len() as u64 + self.data.len() as u64
    }

    /// Records a use.
    pub fn note_use(&self, moment: Moment) {
        let now = moment.now as u32;
        // Relaxed: a hint, which may get lost.
        if now.wrapping_sub(self.used.load(Ordering::Relaxed)) >= USE_S {
            self.used.store(now, Ordering::Relaxed);
        }
    }

    /// Returns the approximate time of the last use, in seconds since 1970.
    pub fn used(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }
}

impl Clone for Item {
    fn clone(&self) -> Item {
        let Item { ref data, cas, expires, flags, era, .. } = *self;
        Item { data: data.clone(), cas, expires, flags, era, used: AtomicU32::new(self.used()) }
    }
}
