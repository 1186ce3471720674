//! A locked element of the master, lent to closures: operations on it and its replicas, and the steps of
//! emptying it.
//!
//! - I1. These types live within a closure. During the closure the element is locked, and it was full when it
//!   was locked.
//! - I2. A value with a count that may be the last one is dropped by the caller of the closure, after the
//!   lock is released.

use squall_lock::LockGuard;
use squall_sys::sync::Arc;
use std::fmt;
use std::hash::{BuildHasher, Hash};

use crate::dhash::raw::{DeferredDrops, Element, Replica, Shared, local_part, run_in_drop};
use crate::dhash::sites;

/// How an operation on an element locks its replicas. The element itself is locked either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// Locks all replicas before the first operator runs, and until the last has run: no other thread sees
    /// the operation half done.
    All,
    /// Locks each replica only while its operator runs. Other threads wait less, and may see the operation
    /// half done.
    Each,
}

/// An element of the master, locked while the closure that gets it runs.
///
/// During that time no thread makes a replica of the element, and no other thread empties it or locks it
/// through the master. Local tables with a replica of it still find and lock that replica, unless an
/// operation from here holds its lock.
pub struct Locked<'a, K, G, L, S>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    shared: &'a Shared<K, G, L, S>,
    element: &'a Arc<Element<K, G>>,
    deferred: &'a mut DeferredDrops<K, G, L>,
}

/// The local parts of all replicas of an element, locked.
pub struct Replicas<'a, 'r, L> {
    parts: &'a mut [LockGuard<'r, Option<L>>],
}

/// An element that is about to be emptied: it and all its replicas are locked. Dropping this leaves the
/// element full.
pub struct Emptying<'a, 'r, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    shared: &'a Shared<K, G, L, S>,
    element: &'a Arc<Element<K, G>>,
    replicas: Replicas<'a, 'r, L>,
}

/// An emptied element: lookups of its key find no value in any table. It and its replicas are still locked.
/// The drop removes it from the tables, like [`finish_empty`](Emptied::finish_empty).
pub struct Emptied<'a, 'r, K, G, L, S>(Emptying<'a, 'r, K, G, L, S>)
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static;

impl<'a, K, G, L, S> Locked<'a, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    pub(crate) fn new(
        shared: &'a Shared<K, G, L, S>,
        element: &'a Arc<Element<K, G>>,
        deferred: &'a mut DeferredDrops<K, G, L>,
    ) -> Locked<'a, K, G, L, S> {
        Locked { shared, element, deferred }
    }

    /// Returns the key.
    pub fn key(&self) -> &'a K {
        self.element.key()
    }

    /// Returns the global part.
    pub fn global(&self) -> &'a G {
        self.element.global()
    }

    /// Locks all replicas, calls `f` with the global part and the local parts, and unlocks them. No other
    /// thread sees `f`'s changes half done.
    ///
    /// # Cost
    /// A lookup in each local table, and a lock for each replica.
    /// # Source
    /// CO-60.
    /// # Example
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let hits = MasterTable::<String, (), u64>::new(|_| 1);
    /// let (here, there) = (hits.local(), hits.local());
    /// here.find_or_allocate_and_lock("home", || (), |_, _, _| ());
    /// there.find_and_lock("home", |_, _| ());
    /// let reset = |_: &(), replicas: &mut squall::parts::dhash::Replicas<'_, '_, u64>| {
    ///     replicas.iter().map(std::mem::take).sum::<u64>()
    /// };
    /// assert_eq!(hits.find_and_lock("home", |mut element| element.lock_all_replicas(reset)), Some(2));
    /// ```
    pub fn lock_all_replicas<R>(&mut self, f: impl FnOnce(&G, &mut Replicas<'_, '_, L>) -> R) -> R {
        let global = self.element.global();
        let mut parts: Vec<_> = self.replicas().iter().map(|replica| replica.lock()).collect();
        f(global, &mut Replicas { parts: &mut parts })
    }

    /// Calls `global` with the global part, and then `local` with each local part. Both gather into, or
    /// scatter from, the value `gathered`, which is returned.
    ///
    /// # Source
    /// CO-59.
    pub fn do_op<A>(
        &mut self,
        locking: Locking,
        mut gathered: A,
        global: impl FnOnce(&mut A, &G),
        mut local: impl FnMut(&mut A, &G, &mut L),
    ) -> A {
        match locking {
            Locking::All => self.lock_all_replicas(|of_all, replicas| {
                global(&mut gathered, of_all);
                replicas.iter().for_each(|part| local(&mut gathered, of_all, part));
            }),
            Locking::Each => {
                global(&mut gathered, self.element.global());
                let element = self.element;
                for replica in self.replicas() {
                    local(&mut gathered, element.global(), local_part(&mut replica.lock()));
                }
            }
        }
        gathered
    }

    /// Empties the element, in all tables at one moment. Later lookups do not find the key, and the next
    /// caller that asks for it fills it again. The parts are dropped when no operation and no walk can still
    /// see them.
    ///
    /// # Source
    /// CO-61, `emptyData`.
    /// # Example
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let pages = MasterTable::<u64, u64, ()>::new(|_| ());
    /// pages.find_or_allocate_and_lock(&7, || 4096, |_, element| element.empty_data());
    /// assert_eq!(pages.read(&7, |frame| *frame), None);
    /// ```
    pub fn empty_data(self) {
        self.start_empty(|emptying| emptying.do_empty().finish_empty());
    }

    /// Empties the element in steps: locks all replicas and calls `f`, which may go on with
    /// [`Emptying::do_empty`].
    ///
    /// # Source
    /// CO-61, `startEmpty`.
    /// # Example
    /// ```
    /// use squall::parts::dhash::MasterTable;
    /// let pages = MasterTable::<u64, u64, ()>::new(|_| ());
    /// pages.find_or_allocate_and_lock(&7, || 4096, |_, _| ());
    /// // Empties the key only if it has no replicas.
    /// let emptied = pages.start_empty(&7, |mut emptying| {
    ///     let unused = emptying.replicas().is_empty();
    ///     if unused {
    ///         emptying.do_empty().finish_empty();
    ///     }
    ///     unused
    /// });
    /// assert_eq!(emptied, Some(true));
    /// ```
    pub fn start_empty<R>(mut self, f: impl FnOnce(Emptying<'_, '_, K, G, L, S>) -> R) -> R {
        let (shared, element) = (self.shared, self.element);
        let replicas = self.replicas();
        if sites::LOCK_ALL.is_weak() {
            shared.mark_gone(element);
        }
        if sites::MARK_FIRST.is_weak() {
            shared.remove_everywhere(element);
        }
        let mut parts: Vec<_> = replicas.iter().map(|replica| replica.lock()).collect();
        let replicas = Replicas { parts: &mut parts };
        f(Emptying { shared, element, replicas })
    }

    /// Collects the replicas; the caller of the closure drops their counts (I2).
    fn replicas(&mut self) -> &[Arc<Replica<K, G, L>>] {
        let first = self.shared.add_replicas(self.element, self.deferred);
        &self.deferred.replicas[first..]
    }
}

impl<L> Replicas<'_, '_, L> {
    /// Returns the number of replicas.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether the element has no replicas.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Iterates over the local parts.
    pub fn iter(&mut self) -> impl Iterator<Item = &mut L> {
        self.parts.iter_mut().map(|held| local_part(held))
    }
}

impl<'a, 'r, K, G, L, S> Emptying<'a, 'r, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Returns the key.
    pub fn key(&self) -> &K {
        self.element.key()
    }

    /// Returns the global part.
    pub fn global(&self) -> &G {
        self.element.global()
    }

    /// Returns the local parts.
    pub fn replicas(&mut self) -> &mut Replicas<'a, 'r, L> {
        &mut self.replicas
    }

    /// Empties the element. It takes effect here, for all tables at once.
    ///
    /// # Source
    /// CO-61, `doEmpty`.
    pub fn do_empty(self) -> Emptied<'a, 'r, K, G, L, S> {
        self.shared.mark_gone(self.element);
        Emptied(self)
    }
}

impl<'a, 'r, K, G, L, S> Emptied<'a, 'r, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Returns the key.
    pub fn key(&self) -> &K {
        self.0.element.key()
    }

    /// Returns the former global part. Reads that began earlier may still see it.
    pub fn global(&self) -> &G {
        self.0.element.global()
    }

    /// Returns the former local parts. No other thread can lock them any more.
    pub fn replicas(&mut self) -> &mut Replicas<'a, 'r, L> {
        &mut self.0.replicas
    }

    /// Removes the element from all tables, so that the key may be filled again before the locks are
    /// released.
    ///
    /// # Source
    /// CO-61, `finishEmpty`.
    pub fn finish_empty(self) {}
}

impl<K, G, L, S> Drop for Emptied<'_, '_, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn drop(&mut self) {
        run_in_drop(|| self.0.shared.remove_everywhere(self.0.element));
    }
}

impl<K, G, L, S> fmt::Debug for Locked<'_, K, G, L, S>
where
    K: Send + Sync + fmt::Debug + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locked").field("key", self.element.key()).finish_non_exhaustive()
    }
}

impl<L> fmt::Debug for Replicas<'_, '_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicas").field("len", &self.parts.len()).finish_non_exhaustive()
    }
}

impl<K, G, L, S> fmt::Debug for Emptying<'_, '_, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + fmt::Debug + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emptying").field("key", self.element.key()).finish_non_exhaustive()
    }
}

impl<K, G, L, S> fmt::Debug for Emptied<'_, '_, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + fmt::Debug + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emptied").field("key", self.0.element.key()).finish_non_exhaustive()
    }
}
