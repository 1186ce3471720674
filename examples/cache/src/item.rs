//! The item stored for a key.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::cache::Moment;
use crate::data::Data;
use crate::key::Key;

/// Bytes of an entry that the store does not count by itself: of a table that has just grown, and of the
/// policy.
pub(crate) const SHARE_BYTES: u32 = 24;
/// Approximate size of an entry without key and value, in bytes: its block with the marks of the store, and
/// its part of the table.
const ENTRY_BYTES: u64 = size_of::<(Key, Item)>() as u64 + 36 + SHARE_BYTES as u64;
/// Size that memcached adds to key and value when it compares an item with its size limit. It is the header
/// with its number, a byte behind the key and two behind the value. Flags other than 0 have four bytes more.
pub(crate) const ITEM_BYTES: usize = 59;
/// Seconds after which a further use is recorded.
const USE_S: u64 = 60;

/// The bits of [`Item::trace`].
mod trace {
    /// A client has read the item.
    pub(super) const FETCHED: u32 = 1;
    /// A client has marked the item as stale.
    pub(super) const STALE: u32 = 1 << 1;
    /// A client was told to renew the item.
    pub(super) const TOKEN_SENT: u32 = 1 << 2;
    /// The key was sent in base64.
    pub(super) const BINARY_KEY: u32 = 1 << 3;
    /// The approximate time of the last use begins here.
    pub(super) const USED: u32 = 4;
    /// Seconds of a unit of that time.
    pub(super) const USED_UNIT_S: u64 = 16;
}

/// A value and its metadata. Only the traces of reads change in place. Another value is another item, which
/// may share the data.
#[derive(Debug)]
pub struct Item {
    /// The value.
    pub data: Data,
    /// A number that no other value of the cache has, unless a client gives it.
    pub cas: u64,
    /// The client's own flags.
    pub flags: u32,
    /// The expiry time, in seconds since 1970; 0: never.
    expires: u32,
    /// Number of flushes before the item was stored.
    era: u32,
    /// The bits of `mod trace`. Reads change the first one and the time of the last use, at most once a
    /// minute. So most reads write no memory.
    trace: AtomicU32,
}

impl Item {
    /// Makes an item at this moment. An expiry time after the year 2106 is that year.
    pub fn new(data: Data, flags: u32, expires: u64, cas: u64, moment: Moment) -> Item {
        let trace = AtomicU32::new(used_bits(moment));
        Item { data, cas, flags, expires: date(expires), era: moment.era as u32, trace }
    }

    /// Returns the same value with another expiry time. It keeps its `cas` number, since the value is
    /// unchanged.
    pub fn expiring(&self, expires: u64, moment: Moment) -> Item {
        let item = Item { expires: date(expires), ..self.clone() };
        item.note_time(moment);
        item
    }

    /// Returns an item with another value and the same expiry time and flags.
    pub fn with_data(&self, data: Data, cas: u64) -> Item {
        let trace = AtomicU32::new(self.trace.load(Ordering::Relaxed));
        Item { data, cas, flags: self.flags, expires: self.expires, era: self.era, trace }
    }

    /// Returns the expiry time, in seconds since 1970; 0: never.
    pub fn expires(&self) -> u64 {
        self.expires.into()
    }

    pub(crate) fn set_expires(&mut self, expires: u64) {
        self.expires = date(expires);
    }

    /// Notes that the item comes after another one, and so after all flushes before that.
    pub(crate) fn follow(&mut self, other: &Item) {
        self.era = self.era.max(other.era);
    }

    /// Whether clients see the item: it is neither expired nor flushed.
    pub fn is_live(&self, moment: Moment) -> bool {
        (self.expires == 0 || u64::from(self.expires) > moment.now) && self.era >= moment.era as u32
    }

    /// Returns the size that counts against the memory limit.
    pub fn bytes(&self, key: &[u8]) -> u64 {
        Item::bytes_of(key, self.data.len())
    }

    /// Returns the size of an item with a value of this length.
    pub(crate) fn bytes_of(key: &[u8], data_bytes: usize) -> u64 {
        ENTRY_BYTES + u64::from(Item::owned_bytes(key, data_bytes))
    }

    /// Returns the approximate size of the memory that key and value own elsewhere, with the allocator's
    /// rounding.
    pub(crate) fn owned_bytes(key: &[u8], data_bytes: usize) -> u32 {
        // A power of two has four sizes up to the next one.
        let rounded = |bytes: usize| bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16));
        let bytes =
            rounded(Key::owned_bytes(key.len())).saturating_add(rounded(Data::owned_bytes(data_bytes)));
        bytes.try_into().unwrap_or(u32::MAX)
    }

    /// Whether the item would exceed the size limit with so many bytes more.
    pub(crate) fn exceeds(&self, key: &[u8], more: usize, item_bytes_max: usize) -> bool {
        let flags = if self.flags == 0 { 0 } else { size_of_val(&self.flags) };
        ITEM_BYTES + flags + key.len() + self.data.len() + more > item_bytes_max
    }

    /// Records a use.
    pub fn note_use(&self, moment: Moment) {
        // Relaxed, here and below: hints, which may get lost.
        let old = self.trace.load(Ordering::Relaxed);
        if moment.now.saturating_sub(used_in(old)) >= USE_S {
            self.note_time(moment);
        }
        if old & trace::FETCHED == 0 {
            self.trace.fetch_or(trace::FETCHED, Ordering::Relaxed);
        }
    }

    fn note_time(&self, moment: Moment) {
        let marks = |old: u32| old & ((1 << trace::USED) - 1);
        let change = |old| Some(marks(old) | used_bits(moment));
        let _ = self.trace.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Returns the approximate time of the last use, in seconds since 1970.
    pub fn used(&self) -> u64 {
        used_in(self.trace.load(Ordering::Relaxed))
    }

    /// Whether a client has read the item.
    pub(crate) fn is_fetched(&self) -> bool {
        self.has(trace::FETCHED)
    }

    /// Whether a client has marked the item as stale.
    pub(crate) fn is_stale(&self) -> bool {
        self.has(trace::STALE)
    }

    /// Whether a client was told to renew the item.
    pub(crate) fn is_token_sent(&self) -> bool {
        self.has(trace::TOKEN_SENT)
    }

    /// Whether the key was sent in base64 when the item was stored.
    pub(crate) fn has_binary_key(&self) -> bool {
        self.has(trace::BINARY_KEY)
    }

    pub(crate) fn set_stale(&mut self, is_stale: bool) {
        self.set(trace::STALE, is_stale);
    }

    pub(crate) fn set_token_sent(&mut self, is_sent: bool) {
        self.set(trace::TOKEN_SENT, is_sent);
    }

    pub(crate) fn set_binary_key(&mut self, is_binary: bool) {
        self.set(trace::BINARY_KEY, is_binary);
    }

    fn has(&self, mark: u32) -> bool {
        self.trace.load(Ordering::Relaxed) & mark != 0
    }

    fn set(&mut self, mark: u32, on: bool) {
        let trace = self.trace.get_mut();
        *trace = if on { *trace | mark } else { *trace & !mark };
    }
}

/// Returns a date as an item has it.
fn date(seconds: u64) -> u32 {
    seconds.try_into().unwrap_or(u32::MAX)
}

/// Returns the bits of a use at this moment.
fn used_bits(moment: Moment) -> u32 {
    ((moment.now / trace::USED_UNIT_S) as u32) << trace::USED
}

fn used_in(bits: u32) -> u64 {
    u64::from(bits >> trace::USED) * trace::USED_UNIT_S
}

impl Clone for Item {
    fn clone(&self) -> Item {
        self.with_data(self.data.clone(), self.cas)
    }
}
