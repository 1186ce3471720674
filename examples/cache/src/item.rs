//! The item stored for a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::cache::Moment;

/// Approximate size of an entry without key and value, in bytes: table, node, and the allocator's overhead.
const ENTRY_BYTES: u64 = 160;
/// Size that memcached adds to key and value when it compares an item with its size limit: the header with its
/// number, a byte behind the key and two behind the value. Flags other than 0 have four bytes more.
pub(crate) const ITEM_BYTES: usize = 59;
/// Seconds after which a further use is recorded.
const USE_S: u32 = 60;

/// Bits of [`Item::marks`].
mod mark {
    /// A client has read the item.
    pub(super) const FETCHED: u8 = 1;
    /// A client has marked the item as stale.
    pub(super) const STALE: u8 = 1 << 1;
    /// A client was told to renew the item.
    pub(super) const TOKEN_SENT: u8 = 1 << 2;
    /// The key was sent in base64.
    pub(super) const BINARY_KEY: u8 = 1 << 3;
}

/// A value and its metadata. Only the traces of reads change in place. Another value is another item, which may
/// share the data.
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
    /// Only [`mark::FETCHED`] changes in place.
    marks: AtomicU8,
}

impl Item {
    /// Makes an item at this moment.
    pub fn new(data: Arc<[u8]>, flags: u32, expires: u64, cas: u64, moment: Moment) -> Item {
        let used = AtomicU32::new(moment.now as u32);
        Item { data, cas, expires, flags, era: moment.era, used, marks: AtomicU8::new(0) }
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

    /// Whether the item would exceed the size limit with so many bytes more.
    pub(crate) fn exceeds(&self, key: &[u8], more: usize, item_bytes_max: usize) -> bool {
        let flags = if self.flags == 0 { 0 } else { size_of_val(&self.flags) };
        ITEM_BYTES + flags + key.len() + self.data.len() + more > item_bytes_max
    }

    /// Records a use.
    pub fn note_use(&self, moment: Moment) {
        let now = moment.now as u32;
        // Relaxed, here and below: hints, which may get lost.
        if now.wrapping_sub(self.used.load(Ordering::Relaxed)) >= USE_S {
            self.used.store(now, Ordering::Relaxed);
        }
        if !self.has(mark::FETCHED) {
            self.marks.fetch_or(mark::FETCHED, Ordering::Relaxed);
        }
    }

    /// Returns the approximate time of the last use, in seconds since 1970.
    pub fn used(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether a client has read the item.
    pub(crate) fn is_fetched(&self) -> bool {
        self.has(mark::FETCHED)
    }

    /// Whether a client has marked the item as stale.
    pub(crate) fn is_stale(&self) -> bool {
        self.has(mark::STALE)
    }

    /// Whether a client was told to renew the item.
    pub(crate) fn is_token_sent(&self) -> bool {
        self.has(mark::TOKEN_SENT)
    }

    /// Whether the key was sent in base64 when the item was stored.
    pub(crate) fn has_binary_key(&self) -> bool {
        self.has(mark::BINARY_KEY)
    }

    pub(crate) fn set_stale(&mut self, is_stale: bool) {
        self.set(mark::STALE, is_stale);
    }

    pub(crate) fn set_token_sent(&mut self, is_sent: bool) {
        self.set(mark::TOKEN_SENT, is_sent);
    }

    pub(crate) fn set_binary_key(&mut self, is_binary: bool) {
        self.set(mark::BINARY_KEY, is_binary);
    }

    fn has(&self, mark: u8) -> bool {
        self.marks.load(Ordering::Relaxed) & mark != 0
    }

    fn set(&mut self, mark: u8, on: bool) {
        let marks = self.marks.get_mut();
        *marks = if on { *marks | mark } else { *marks & !mark };
    }
}

impl Clone for Item {
    fn clone(&self) -> Item {
        let Item { ref data, cas, expires, flags, era, .. } = *self;
        let marks = AtomicU8::new(self.marks.load(Ordering::Relaxed));
        Item { data: data.clone(), cas, expires, flags, era, used: AtomicU32::new(self.used()), marks }
    }
}
