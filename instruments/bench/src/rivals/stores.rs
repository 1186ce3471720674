//! The rivals' maps as the table of the cache server, each used as its documentation advises, with its own
//! hasher.
//!
//! These maps have no positions, so the sweeper starts each look at the first entry. The cost of this is not
//! measured: the benchmark stays below the memory limit, and the sweeper looks at an equal number of entries
//! per second in all stores.

use dashmap::DashMap;
use papaya::Operation;
use squall_cache_example::{Change, Item, Key, Store};

#[derive(Default)]
pub(crate) struct Dash(DashMap<Key, Item>);

impl Store for Dash {
    fn read<R>(&self, key: &[u8], f: impl FnOnce(&Item) -> R) -> Option<R> {
        self.0.get(key).map(|item| f(&item))
    }

    fn change(&self, key: &[u8], mut f: impl FnMut(Option<&Item>) -> Change) {
        match self.0.entry(key.into()) {
            dashmap::Entry::Occupied(mut entry) => match f(Some(entry.get())) {
                Change::Keep => {}
                Change::Put(item) => _ = entry.insert(item),
                Change::Remove => _ = entry.remove(),
            },
            dashmap::Entry::Vacant(entry) => {
                if let Change::Put(item) = f(None) {
                    entry.insert(item);
                }
            }
        }
    }

    fn visit(&self, _: u64, mut f: impl FnMut(&[u8], &Item) -> bool) -> Option<u64> {
        // The last entry shown exceeded the limit.
        let _ = self.0.iter().all(|entry| f(entry.key(), entry.value()));
        None
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[derive(Default)]
pub(crate) struct Papaya(papaya::HashMap<Key, Item>);

impl Store for Papaya {
    fn read<R>(&self, key: &[u8], f: impl FnOnce(&Item) -> R) -> Option<R> {
        self.0.pin().get(key).map(f)
    }

    fn change(&self, key: &[u8], mut f: impl FnMut(Option<&Item>) -> Change) {
        self.0.pin().compute(key.into(), |entry| match (f(entry.map(|(_, item)| item)), entry) {
            (Change::Put(item), _) => Operation::Insert(item),
            (Change::Remove, Some(_)) => Operation::Remove,
            (Change::Keep | Change::Remove, _) => Operation::Abort(()),
        });
    }

    fn visit(&self, _: u64, mut f: impl FnMut(&[u8], &Item) -> bool) -> Option<u64> {
        let _ = self.0.pin().iter().all(|(key, item)| f(key, item));
        None
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[derive(Default)]
pub(crate) struct SccHashMap(scc::HashMap<Key, Item>);

impl Store for SccHashMap {
    fn read<R>(&self, key: &[u8], f: impl FnOnce(&Item) -> R) -> Option<R> {
        self.0.read_sync(key, |_, item| f(item))
    }

    fn change(&self, key: &[u8], mut f: impl FnMut(Option<&Item>) -> Change) {
        match self.0.entry_sync(key.into()) {
            scc::hash_map::Entry::Occupied(mut entry) => match f(Some(entry.get())) {
                Change::Keep => {}
                Change::Put(item) => _ = entry.insert(item),
                Change::Remove => _ = entry.remove(),
            },
            scc::hash_map::Entry::Vacant(entry) => {
                if let Change::Put(item) = f(None) {
                    entry.insert_entry(item);
                }
            }
        }
    }

    fn visit(&self, _: u64, mut f: impl FnMut(&[u8], &Item) -> bool) -> Option<u64> {
        self.0.iter_sync(|key, item| f(key, item));
        None
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_cache_example::{Moment, SquallStore};

    fn keeps_the_contract<S: Store>(store: &S) {
        let moment = Moment { now: 1_000, era: 0 };
        let item = |data: &[u8]| Item::new(data.into(), 0, 0, 1, moment);
        let seen = |key: &[u8]| store.read(key, |item| item.data.to_vec());
        for i in 0..100u8 {
            store.change(&[i], |old| {
                assert!(old.is_none());
                Change::Put(item(&[i, i]))
            });
        }
        assert_eq!((store.len(), seen(&[7]), seen(b"no")), (100, Some(vec![7, 7]), None));
        store.change(&[7], |old| Change::Put(item(&[old.expect("it is there").data[0], 8])));
        assert_eq!(seen(&[7]), Some(vec![7, 8]));
        store.change(&[7], |_| Change::Keep);
        store.change(&[8], |_| Change::Remove);
        store.change(b"no", |_| Change::Remove);
        store.change(b"no", |_| Change::Keep);
        assert_eq!((store.len(), seen(&[7]), seen(&[8])), (99, Some(vec![7, 8]), None));
        let (mut from, mut keys) = (Some(0), Vec::new());
        while let Some(at) = from {
            from = store.visit(at, |key, _| {
                keys.push(key[0]);
                true
            });
        }
        keys.sort_unstable();
        assert_eq!(keys, (0..100).filter(|key| *key != 8).collect::<Vec<_>>());
        let mut shown = 0;
        store.visit(0, |_, _| {
            shown += 1;
            false
        });
        assert_eq!(shown, 1);
    }

    #[test]
    fn every_store_serves_the_server() {
        keeps_the_contract(&SquallStore::new());
        keeps_the_contract(&Dash::default());
        keeps_the_contract(&Papaya::default());
        keeps_the_contract(&SccHashMap::default());
    }
}
