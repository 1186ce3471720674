//! The store that this server demonstrates: a Squall map.

use std::hash::RandomState;

use squall::Handle;
use squall::objects::map::{self, Compute, Map, MapExt, OwnedMap};
use squall::rcu::pin;

use crate::item::Item;
use crate::store::{Change, Key, Store};

/// Entries in a map of `squall::objects`. A read takes no lock and writes no shared memory. The map's form
/// may be swapped while the server runs.
#[derive(Debug)]
pub struct SquallStore(OwnedMap<Key, Item>);

impl SquallStore {
    /// Makes an empty store, with a map in the shared form.
    pub fn new() -> SquallStore {
        SquallStore(map::shared())
    }

    /// Returns the map's handle, for example to swap its form while the server runs.
    pub fn map(&self) -> Handle<dyn Map<Key, Item, RandomState>> {
        self.0.handle()
    }
}

impl Default for SquallStore {
    fn default() -> SquallStore {
        SquallStore::new()
    }
}

impl From<OwnedMap<Key, Item>> for SquallStore {
    fn from(map: OwnedMap<Key, Item>) -> SquallStore {
        SquallStore(map)
    }
}

impl Store for SquallStore {
    #[inline]
    fn read<R>(&self, key: &[u8], f: impl FnOnce(&Item) -> R) -> Option<R> {
        self.0.handle().with(key, f)
    }

    fn change(&self, key: &[u8], mut f: impl FnMut(Option<&Item>) -> Change) {
        let _ = self.0.handle().compute(key.into(), |item| match f(item) {
            Change::Keep => Compute::Keep,
            Change::Put(item) => Compute::Put(item),
            Change::Remove => Compute::Remove,
        });
    }

    fn visit(&self, from: u64, mut f: impl FnMut(&[u8], &Item) -> bool) -> Option<u64> {
        pin(|guard| {
            let store = self.0.handle().read(guard);
            let (mut next, mut shown, mut more) = (Some(from), false, true);
            while let Some(at) = next
                && !shown
            {
                next = store.visit_from(at, |key, item| {
                    shown = true;
                    more = more && f(key, item);
                });
            }
            next
        })
    }

    fn reclaim(&self) {
        // A thread in an operation must not wait, but no caller of this method is in one.
        let _ = squall::rcu::barrier();
    }

    fn len(&self) -> usize {
        self.0.handle().len()
    }
}
