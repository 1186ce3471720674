//! What is kept for a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::cache::Moment;

/// Bytes that an entry takes beside its key and its value, about: table, node, and what the allocator adds.
const ENTRY_BYTES: u64 = 160;
/// A use is noted if the last one was noted so many seconds ago.
const USE_S: u32 = 60;

/// An entry's value and what belongs to it. It does not change but for the note of its use: another value is another item, which may
/// share the data.
#[derive(Debug)]
pub struct Item {
    /// The value.
    pub data: Arc<[u8]>,
    /// No two values of a cache have the same.
    pub cas: u64,
    /// When it expires, in seconds since 1970; 0: never.
    pub expires: u64,
    /// The client's own.
    pub flags: u32,
    /// How many times everything had been flushed when it was stored.
    pub era: u64,
    /// When it was used, nearly. Written once a minute at most, so that reading an entry writes nothing as a rule.
    used: AtomicU32,
}

impl Item {
    /// A new one, of this moment.
    pub fn new(data: Arc<[u8]>, flags: u32, expires: u64, cas: u64, moment: Moment) -> Item {
        Item { data, cas, expires, flags, era: moment.era, used: AtomicU32::new(moment.now as u32) }
    }

    /// The same value, that expires at another time. It is not another value, so its `cas` is the same.
    pub fn expiring(&self, expires: u64, moment: Moment) -> Item {
        Item { expires, used: AtomicU32::new(moment.now as u32), ..self.clone() }
    }

    /// Another value with the same expiry and flags.
    pub fn with_data(&self, data: Arc<[u8]>, cas: u64) -> Item {
        Item { data, cas, ..self.clone() }
    }

    /// Whether it is there as clients see it: neither expired nor flushed.
    pub fn is_live(&self, moment: Moment) -> bool {
        (self.expires == 0 || self.expires > moment.now) && self.era >= moment.era
    }

    /// What it counts for against the limit.
    pub fn bytes(&self, key: &[u8]) -> u64 {
        ENTRY_BYTES + key.len() as u64 + self.data.len() as u64
    }

    /// Notes that it was used.
    pub fn note_use(&self, moment: Moment) {
        let now = moment.now as u32;
        // Relaxed: a hint, of which a lost one is no loss.
        if now.wrapping_sub(self.used.load(Ordering::Relaxed)) >= USE_S {
            self.used.store(now, Ordering::Relaxed);
        }
    }

    /// When it was used, in seconds since 1970, nearly.
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
