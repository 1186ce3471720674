//! The interface between the server and its table of entries, so that it runs on any table.

use crate::item::Item;

/// A decision about an entry.
#[derive(Debug)]
pub enum Change {
    /// The entry stays as it is, or stays absent.
    Keep,
    /// The entry gets this item.
    Put(Item),
    /// The entry is removed.
    Remove,
}

/// A table of entries, used by all connections at once. Each operation on one key takes effect at one
/// moment.
pub trait Store: Send + Sync + 'static {
    /// Calls `f` with the key's item and returns its result, or `None` if the key is absent. `f` must be
    /// short, and must not use the store.
    fn read<R>(&self, key: &[u8], f: impl FnOnce(&Item) -> R) -> Option<R>;

    /// Inserts, replaces, removes or keeps the key's item, as `f` decides. `f` runs at least once, and
    /// again if another writer was faster. Its last decision applies to the item that it saw last. It must
    /// not use the store.
    fn change(&self, key: &[u8], f: impl FnMut(Option<&Item>) -> Change);

    /// Visits some entries from a position on until `f` returns false, at least one if there is any.
    /// Returns the position after them, or `None` at the end. The first position is 0, and any number is a
    /// position. A store without positions visits all entries.
    fn visit(&self, from: u64, f: impl FnMut(&[u8], &Item) -> bool) -> Option<u64>;

    /// Blocks until the memory of removed entries is free, if the store frees memory later.
    fn reclaim(&self) {}

    /// Returns the approximate number of entries.
    fn len(&self) -> usize;

    /// Whether there are approximately no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory limit, if the store has one. Otherwise it grows with its entries.
    fn bound(&self) -> Option<&dyn Bound> {
        None
    }
}

/// The memory limit of a store. It evicts entries for each change that needs room. An item for which
/// there is no room is evicted at once.
pub trait Bound: Sync {
    /// Sets the limit. A lower one evicts entries at once.
    fn set_limit(&self, bytes: u64);

    /// Returns the memory that all entries need.
    fn used_bytes(&self) -> u64;

    /// Returns the size of all parts that entries cannot use.
    fn reserved_bytes(&self) -> u64;

    /// Returns the number of evictions so far.
    fn evictions(&self) -> u64;

    /// Returns a part of the limit that entries cannot use. It begins with 0 bytes.
    fn reserve(&self) -> Box<dyn Reserved + '_>;
}

/// A part of a memory limit. The drop gives it back.
pub trait Reserved: Send {
    /// Makes the part larger or smaller. Returns false if it does not fit. Then it stays as it was.
    fn resize(&mut self, bytes: u64) -> bool;
}
