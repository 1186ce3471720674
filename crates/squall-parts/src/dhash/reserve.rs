//! The protocol of reservations: how a key is reserved, and how its reservation ends.
//!
//! - I1. These steps do not wait for a fill. A caller that finds a key being filled gets the element, and
//!   decides how to wait (`fill`).
//! - I2. Each way to end a reservation is one step under the element's lock (raw/I1, fill/I1).
//!
//! Source: Appavoo 2005, §4.1.4 and Fig 4.15 (CO-56).

use squall_lock::Lock;
use squall_sys::sync::Arc;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use crate::dhash::fill::{FillError, Wakes};
use crate::dhash::raw::{DeferredDrops, Element, Local, Replica, Shared, local_part, run_in_drop, take};

/// Marks a reserved element gone if its insertion panics, which may be after it took effect (raw/I8).
struct Inserting<'a, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    shared: &'a Shared<K, G, L, S>,
    element: &'a Arc<Element<K, G>>,
}

impl<K, G, L, S> Drop for Inserting<'_, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn drop(&mut self) {
        run_in_drop(|| _ = self.shared.end_reserved(self.element, None));
    }
}

/// An attempt to find a key or to reserve it.
pub(crate) enum Step<R, K, G> {
    /// The key was present, and the caller's function returned this.
    Found(R),
    /// The caller has to fill this element, or to end its fill.
    Reserved(Arc<Element<K, G>>),
    /// Another caller fills this element.
    Filling(Arc<Element<K, G>>),
}

impl<K, G, L, S> Shared<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Inserts a reserved element, unless the key has an element.
    fn insert_reserved<Q>(&self, key: &Q) -> Option<Arc<Element<K, G>>>
    where
        Q: ToOwned<Owned = K> + ?Sized,
    {
        let element = Arc::new(Element::new(key.to_owned(), true));
        let inserting = Inserting { shared: self, element: &element };
        let inserted = self.elements.try_insert(element.key.clone(), element.clone());
        std::mem::forget(inserting);
        inserted.then_some(element)
    }

    /// Calls `then` with the key's local part, locked, or reserves the key. Does not wait for a fill.
    pub(crate) fn reserve_local<Q, R>(
        &self,
        local: &Local<K, G, L, S>,
        key: &Q,
        then: &mut Option<impl FnOnce(&G, &mut L) -> R>,
    ) -> Step<R, K, G>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        loop {
            if let Some(replica) = local.replicas.get(key) {
                // The filler may hold the lock of its part.
                if replica.element.is_filling() {
                    return Step::Filling(replica.element.clone());
                }
                match self.lock_replica(local, &replica, then) {
                    None => continue,
                    Some(found) => return Step::Found(found),
                }
            }
            let Some(element) = self.elements.get(key) else {
                match self.insert_reserved(key) {
                    Some(element) => return Step::Reserved(element),
                    None => continue,
                }
            };
            if element.is_filling() {
                return Step::Filling(element);
            }
            if let Some(found) = self.lock_new_replica(local, &element, then) {
                return Step::Found(found);
            }
        }
    }

    /// Calls `then` with the key's element, locked, or reserves the key. Does not wait for a fill.
    pub(crate) fn reserve<Q, R>(
        &self,
        key: &Q,
        then: &mut Option<impl FnOnce(&Arc<Element<K, G>>) -> R>,
    ) -> Step<R, K, G>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        loop {
            let Some(element) = self.elements.get(key) else {
                match self.insert_reserved(key) {
                    Some(element) => return Step::Reserved(element),
                    None => continue,
                }
            };
            if element.is_filling() {
                return Step::Filling(element);
            }
            let _scope = self.lock_scope();
            if let Some(_held) = self.lock_full(&element) {
                return Step::Found(take(then)(&element));
            }
        }
    }

    /// Fills a reserved element. Returns the value if the reservation was revoked.
    pub(crate) fn fill_reserved(&self, element: &Element<K, G>, global: G) -> Result<(), G> {
        let wakes = Wakes::default();
        let mut held = element.replicas_lock.lock();
        element.end_full(&mut held, global, &wakes).map(|_| ())
    }

    /// Fills a reserved element, and calls `then` with its part in a local table, locked. Returns the value
    /// if the reservation was revoked.
    pub(crate) fn fill_reserved_local<R>(
        &self,
        local: &Local<K, G, L, S>,
        element: &Arc<Element<K, G>>,
        global: G,
        then: impl FnOnce(&G, &mut L) -> R,
    ) -> Result<R, G> {
        let (wakes, mut deferred) = (Wakes::default(), DeferredDrops::new());
        let replica;
        let _scope = self.lock_scope();
        let mut held = element.replicas_lock.lock();
        if element.is_gone() {
            return Err(global);
        }
        let part = Lock::new(Some((self.local_of)(&global)));
        replica = Arc::new(Replica { element: element.clone(), part });
        let mut part_held = replica.lock();
        local.insert(&replica, &mut deferred);
        let global = element.end_full(&mut held, global, &wakes)?;
        drop(held);
        Ok(then(global, local_part(&mut part_held)))
    }

    /// Ends the fill of a reserved element without a value. Returns whether it was being filled.
    pub(crate) fn end_reserved(&self, element: &Arc<Element<K, G>>, error: Option<&FillError>) -> bool {
        let wakes = Wakes::default();
        let ended = element.reserved && element.end_unfilled(error, &wakes);
        if ended {
            self.remove_gone(element);
        }
        ended
    }

    /// Ends the reservation of a key. Returns whether it had one.
    pub(crate) fn revoke<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let element = self.elements.get(key).filter(|element| element.is_filling());
        element.is_some_and(|element| self.end_reserved(&element, None))
    }
}
