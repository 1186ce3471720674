//! The store that this server is about: a `squall` map.

use std::hash::RandomState;

use squall::Handle;
use squall::objects::map::{self, Compute, MapExt, OwnedMap, Map};
use squall::rcu::pin;

use crate::item::Item;
use crate::store::{Change, Key, Store};

/// Entries in a map of `squall::objects`. A read of it writes nothing that is shared, and waits for nobody; and what serves the entries
/// may be swapped while it serves.
#[derive(Debug)]
pub struct SquallStore(OwnedMap<Key, Item>);

impl SquallStore {
    /// An empty one, in the map's central form.
    pub fn new() -> SquallStore {
        SquallStore(map::shared())
    }

    /// The map, for what can be done to one from outside: to swap it for another form while it serves.
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
            let store = self.0.handle().look(guard);
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
        // Who is in an operation may not wait; nobody is, here.
        let _ = squall::rcu::barrier();
    }

    fn len(&self) -> usize {
        self.0.handle().len()
    }
}
