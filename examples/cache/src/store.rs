//! What the server asks of the table that has its entries, so that it runs on any.

use crate::item::Item;

/// A key, of 1 to 250 bytes.
pub type Key = Box<[u8]>;

/// What becomes of an entry.
#[derive(Debug)]
pub enum Change {
    /// It stays as it is, or does not come to be.
    Keep,
    /// This takes its place.
    Put(Item),
    /// It goes.
    Remove,
}

/// A table of entries that all connections use at once. Each of its operations on one key takes effect at one moment.
pub trait Store: Send + Sync + 'static {
    /// What `f` makes of the key's item, if it has one. `f` must be short, and must not use the store.
    fn read<R>(&self, key: &[u8], f: impl FnOnce(&Item) -> R) -> Option<R>;

    /// Does with the key what `f` says of its item, if it has one. `f` is called at least once, and again where another writer was
    /// faster; what it says last is done, of what it was shown last. It must not use the store.
    fn change(&self, key: &[u8], f: impl FnMut(Option<&Item>) -> Change);

    /// Shows some entries from a position on, at least one if there are any, until `f` says no; returns the position after them,
    /// nothing after the last. The first position is 0, and any number is one. A store that knows no positions shows all from
    /// its first on.
    fn visit(&self, from: u64, f: impl FnMut(&[u8], &Item) -> bool) -> Option<u64>;

    /// Waits until the memory of what was taken out before is free, where that takes until later: by blocking.
    fn reclaim(&self) {}

    /// How many entries there are, about.
    fn len(&self) -> usize;

    /// Whether there are none, about.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
