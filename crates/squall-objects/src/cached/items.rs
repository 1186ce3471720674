//! The store and the caches of a list: items, and the lists that have them.
//!
//! Problem and idea are those of `lines`, and simpler. An item never changes, so a cache holds a second
//! pointer to it. The item itself says whether it is in the list.
//!
//! - I1. An item is present from the moment that the store's list has it until it is marked as gone, for
//!   good. It is marked before it is taken out of any list. A lookup returns an item only after it has seen
//!   it unmarked.
//! - I2. A cache has items that were in the store's list. It may drop any at any time, to keep its limit.
//!   When a removal has returned, no cache has its item, with two exceptions. A thread that added it
//!   meanwhile is about to take it out (`places/I2`), or the cache was removed (`distributed/I4`).
//! - I3. A list is replaced as a whole, under its lock, by one in new memory. So readers never wait. No user
//!   closure runs under a lock.
//!
//! Linearization:
//!
//! - An insertion: the store of the new list.
//! - A removal: the mark.
//! - A successful lookup: the load that sees the item unmarked.
//! - A failed lookup: the load of the store's list, if no matching item in it was marked. Otherwise the next
//!   load that returns the same list; at that moment all matching items are marked.
//!
//! Cost: a lookup scans the cache of its cluster. If that fails, it scans the store's list too. An insertion,
//! a removal and a cache fill copy the list that they change. So this is for some tens or hundreds of items.
//!
//! Source: Appavoo 2005, §4.1.1, Fig. 4.2 (CO-43). Here lookups take no lock, and a mark replaces the lock
//! around both lists.

use squall_lock::Lock;
use squall_machine::pervp::PerVpWord;
use squall_parts::replica::Presence;
use squall_rcu::{__pin as pin, Guard, Rcu};
use std::fmt;
use std::ops::Deref;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Sensors;
use super::distributed::Reach;
use super::lines::Tally;

/// Item of a list. It stays valid after its removal, as long as a thread holds it.
///
/// ```
/// use squall::objects::cached::{self, Form, Items};
///
/// let list = cached::list(Form::shared());
/// let item = list.insert(7);
/// list.remove_item(&item);
/// assert!(*item == 7 && item.is_gone());
/// ```
pub struct Item<T>(Arc<Inner<T>>);

struct Inner<T> {
    value: T,
    presence: Presence,
    /// Number of the store that the item was made for.
    store: u64,
}

impl<T> Item<T> {
    fn new(value: T, store: u64) -> Item<T> {
        Item(Arc::new(Inner { value, presence: Presence::new(), store }))
    }

    fn is(&self, other: &Item<T>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns whether the item was removed from its list.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.0.presence.is_gone()
    }
}

impl<T> Clone for Item<T> {
    fn clone(&self) -> Item<T> {
        Item(self.0.clone())
    }
}

impl<T> Deref for Item<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Item<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// List that is replaced as a whole (I3).
struct Copied<T: Send + Sync + 'static> {
    items: Rcu<Vec<Item<T>>>,
    changing: Lock<()>,
}

impl<T: Send + Sync + 'static> Copied<T> {
    fn new() -> Copied<T> {
        Copied { items: Rcu::new(Box::default()), changing: Lock::new(()) }
    }

    #[inline(always)]
    fn load<'o>(&self, guard: &'o Guard) -> &'o Vec<Item<T>> {
        self.items.load(guard)
    }

    /// Adds items. Drops the oldest ones beyond `most`. Returns false without a change if the list is no
    /// longer the one `seen` in this operation.
    fn push(&self, guard: &Guard, items: &[Item<T>], seen: Option<&Vec<Item<T>>>, most: usize) -> bool {
        let _changing = self.changing.lock();
        let old = self.load(guard);
        if seen.is_some_and(|seen| !std::ptr::eq(seen, old)) {
            return false;
        }
        let items = &items[items.len().saturating_sub(most)..];
        let kept = old.len().min(most - items.len());
        let is_new = |there: &&Item<T>| items.iter().any(|item| there.is(item));
        let mut new = Vec::with_capacity(kept + items.len());
        new.extend(old[old.len() - kept..].iter().filter(|there| !is_new(there)).cloned());
        new.extend_from_slice(items);
        self.items.replace(Box::new(new));
        true
    }

    /// Takes an item out, and returns whether the list had it.
    fn take_out(&self, item: &Item<T>) -> bool {
        pin(|guard| {
            let _changing = self.changing.lock();
            let old = self.load(guard);
            let is_in = old.iter().any(|there| there.is(item));
            if is_in {
                let new = old.iter().filter(|there| !there.is(item)).cloned().collect();
                self.items.replace(Box::new(new));
            }
            is_in
        })
    }
}

/// Cache of a cluster.
pub(crate) struct Cache<T: Send + Sync + 'static> {
    list: Copied<T>,
    /// Number of the cluster.
    place: usize,
    /// Maximum number of items.
    most: usize,
    asked: Tally,
}

/// Store with all items.
pub(crate) struct Store<T: Send + Sync + 'static> {
    list: Copied<T>,
    /// Number of the store, unique in the process.
    number: u64,
    /// Count per VP, since without caches each lookup is counted.
    asked: PerVpWord,
    changes: Tally,
    reached: Tally,
}

impl<T: Send + Sync + 'static> Cache<T> {
    pub(super) fn new(place: usize, most: usize) -> Cache<T> {
        Cache { list: Copied::new(), place, most, asked: Tally::default() }
    }

    #[inline]
    fn find<'o>(&self, guard: &'o Guard, pred: &mut dyn FnMut(&T) -> bool) -> Option<&'o Item<T>> {
        self.list.load(guard).iter().find(|item| pred(item) && !item.is_gone())
    }

    /// Adds items of the store to the cache.
    fn keep(&self, guard: &Guard, items: &[Item<T>]) {
        items.iter().for_each(|item| item.0.presence.announce(self.place));
        self.list.push(guard, items, None, self.most);
        for item in items.iter().filter(|item| !item.0.presence.is_here_still()) {
            self.list.take_out(item);
        }
    }

    /// Adds the newest items of another cache of the same store, at most `most`.
    pub(super) fn take_over(&self, guard: &Guard, from: &Self, most: usize) {
        let list = from.list.load(guard);
        self.keep(guard, &list[list.len().saturating_sub(most)..]);
    }

    pub(super) fn read_sensors(&self, sensors: &mut Sensors) {
        sensors.copies += pin(|guard| self.list.load(guard).len());
        sensors.asked += self.asked.read();
    }
}

impl<T: Send + Sync + 'static> Store<T> {
    pub(super) fn new() -> Store<T> {
        static STORES: AtomicU64 = AtomicU64::new(0);
        Store {
            list: Copied::new(),
            // Relaxed: a count.
            number: STORES.fetch_add(1, Ordering::Relaxed),
            asked: PerVpWord::new(),
            changes: Tally::default(),
            reached: Tally::default(),
        }
    }

    /// Returns an item that matches and is present.
    fn find<'o>(&self, guard: &'o Guard, pred: &mut dyn FnMut(&T) -> bool) -> Option<&'o Item<T>> {
        loop {
            let list = self.list.load(guard);
            let mut was_gone = false;
            for item in list {
                if pred(item) {
                    if !item.is_gone() {
                        return Some(item);
                    }
                    was_gone = true;
                }
            }
            // If a matching item was gone, another one may have been inserted before its removal. During an
            // operation a new list cannot have this list's address.
            if !was_gone || std::ptr::eq(list, self.list.load(guard)) {
                return None;
            }
        }
    }

    pub(super) fn for_each(&self, guard: &Guard, f: impl FnMut(&Item<T>)) {
        self.list.load(guard).iter().filter(|item| !item.is_gone()).for_each(f);
    }

    pub(super) fn read_sensors(&self) -> Sensors {
        let mut entries = 0;
        pin(|guard| self.for_each(guard, |_| entries += 1));
        Sensors {
            entries,
            asked: self.asked.sum(),
            changes: self.changes.read(),
            reached: self.reached.read(),
            ..Sensors::default()
        }
    }
}

/// Searches the cache, if there is one, and then the store.
pub(super) fn find<'o, T: Send + Sync + 'static>(
    guard: &'o Guard,
    cache: Option<&Cache<T>>,
    store: &Store<T>,
    pred: &mut dyn FnMut(&T) -> bool,
) -> Option<&'o Item<T>> {
    let Some(cache) = cache else {
        store.asked.add(1);
        return store.find(guard, pred);
    };
    if let Some(item) = cache.find(guard, pred) {
        return Some(item);
    }
    cache.asked.step();
    let item = store.find(guard, pred)?;
    cache.keep(guard, slice::from_ref(item));
    Some(item)
}

/// Changes of a list, made within a call of the object.
pub(super) struct Changes<'a, T: Send + Sync + 'static> {
    pub(super) store: &'a Store<T>,
    /// Cache of the caller's cluster.
    pub(super) here: Option<&'a Cache<T>>,
    pub(super) reach: &'a dyn Reach<Cache<T>>,
}

impl<T: Send + Sync + 'static> Changes<'_, T> {
    /// Inserts an item unless it conflicts with a present one.
    pub(super) fn insert(&self, value: T, mut conflicts: impl FnMut(&T, &T) -> bool) -> Result<Item<T>, T> {
        let item = Item::new(value, self.store.number);
        // In one operation, so that a list with an unchanged address is unchanged.
        let inserted = pin(|guard| {
            loop {
                let list = self.store.list.load(guard);
                if list.iter().any(|there| conflicts(there, &item) && !there.is_gone()) {
                    return false;
                }
                if self.store.list.push(guard, slice::from_ref(&item), Some(list), usize::MAX) {
                    return true;
                }
            }
        });
        if !inserted {
            let inner = Arc::into_inner(item.0)
                .unwrap_or_else(|| unreachable!("an item that was not inserted has a second owner"));
            return Err(inner.value);
        }
        self.store.changes.add(1);
        if let Some(cache) = self.here {
            pin(|guard| cache.keep(guard, slice::from_ref(&item)));
        }
        Ok(item)
    }

    /// Removes an item that matches.
    pub(super) fn remove(&self, pred: &mut dyn FnMut(&T) -> bool) -> Option<Item<T>> {
        loop {
            let item = pin(|guard| self.store.find(guard, pred).cloned())?;
            if self.remove_item(&item) {
                return Some(item);
            }
        }
    }

    /// Removes this item. Returns false if it was removed before, or belongs to another store.
    pub(super) fn remove_item(&self, item: &Item<T>) -> bool {
        if item.0.store != self.store.number {
            return false;
        }
        let Some(places) = item.0.presence.end() else { return false };
        self.store.list.take_out(item);
        let mut reached = 0;
        self.reach.each(places, &mut |cache: &Cache<T>| {
            reached += u64::from(cache.list.take_out(item));
        });
        self.store.changes.add(1);
        self.store.reached.add(reached);
        true
    }
}
