//! A locked element of the master's, as closures have it: operations on it and its replicas, and the steps of emptying it.
//!
//! - I1. What is here lives within a closure, and within it the element is locked and was full when it was locked.
//! - I2. What may be dropped with the last count of it is dropped by who lent this, after the lock.

use squall_lock::LockGuard;
use squall_sys::sync::Arc;
use std::fmt;
use std::hash::{BuildHasher, Hash};

use crate::dhash::raw::{After, Element, Replica, Shared, in_a_drop, part};
use crate::dhash::sites;

/// How an operation on an element and its replicas locks them. The element is locked in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// All replicas are locked before the first operator runs, and until the last has run: nobody sees the operation half done.
    All,
    /// Each replica is locked while its operator runs. Less is held up; what was done to one is seen before it is done to the next.
    Each,
}

/// An element of the master's, locked for as long as the closure runs that it is lent to.
///
/// Meanwhile no replica of it is made, nobody empties it, and nobody gets it by way of the master. Local tables that have a replica find
/// and lock that all the same, unless it is locked from here.
pub struct Locked<'a, K, G, L, S>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    shared: &'a Shared<K, G, L, S>,
    element: &'a Arc<Element<K, G>>,
    after: &'a mut After<K, G, L>,
}

/// The local parts of all replicas of an element, locked.
pub struct Replicas<'a, 'r, L> {
    parts: &'a mut [LockGuard<'r, Option<L>>],
}

/// An element that is about to be emptied: it and all its replicas are locked. Nothing has happened yet; where this is dropped, nothing will.
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

/// An element that is empty: whoever looks for its key finds nothing, everywhere. It and its replicas are locked still. Its drop takes it out
/// of the tables, as [`finish_empty`](Emptied::finish_empty) does.
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
        after: &'a mut After<K, G, L>,
    ) -> Locked<'a, K, G, L, S> {
        Locked { shared, element, after }
    }

    /// The key.
    pub fn key(&self) -> &'a K {
        self.element.key()
    }

    /// The global part.
    pub fn global(&self) -> &'a G {
        self.element.global()
    }

    /// Locks all replicas, calls `f` with their local parts, and unlocks them: for loops over the replicas that nobody sees half done.
    ///
    /// # Cost
    /// A look into each local table, and a lock for each replica.
    /// # Source
    /// CO-60.
    pub fn lock_all_replicas<R>(&mut self, f: impl FnOnce(&G, &mut Replicas<'_, '_, L>) -> R) -> R {
        let global = self.element.global();
        let mut parts: Vec<_> = self.replicas().iter().map(|replica| replica.lock()).collect();
        f(global, &mut Replicas { parts: &mut parts })
    }

    /// Applies `global` to the global part, and then `local` to each local part: to gather something of them, or to scatter something to
    /// them.
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
                    local(&mut gathered, element.global(), part(&mut replica.lock()));
                }
            }
        }
        gathered
    }

    /// Puts the element back to empty, in all tables at one moment: whoever looks for the key after finds nothing, and the next who asks
    /// for it is told to fill it. What it held is dropped when no operation and no walk can see it any more.
    ///
    /// # Source
    /// CO-61, `emptyData`.
    pub fn empty_data(self) {
        self.start_empty(|emptying| emptying.do_empty().finish_empty());
    }

    /// The same in steps: locks all replicas, and calls `f`, which goes on with [`Emptying::do_empty`], or not.
    ///
    /// # Source
    /// CO-61, `startEmpty`.
    pub fn start_empty<R>(mut self, f: impl FnOnce(Emptying<'_, '_, K, G, L, S>) -> R) -> R {
        let (shared, element) = (self.shared, self.element);
        let replicas = self.replicas();
        if sites::ALL.is_weak() {
            shared.make_gone(element);
        }
        if sites::FIRST.is_weak() {
            shared.forget_all(element);
        }
        let mut parts: Vec<_> = replicas.iter().map(|replica| replica.lock()).collect();
        let replicas = Replicas { parts: &mut parts };
        f(Emptying { shared, element, replicas })
    }

    /// The replicas; who lent this lets the last count of each go.
    fn replicas(&mut self) -> &[Arc<Replica<K, G, L>>] {
        let first = self.shared.add_replicas(self.element, self.after);
        &self.after.replicas[first..]
    }
}

impl<L> Replicas<'_, '_, L> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The local parts.
    pub fn iter(&mut self) -> impl Iterator<Item = &mut L> {
        self.parts.iter_mut().map(|held| part(held))
    }
}

impl<'a, 'r, K, G, L, S> Emptying<'a, 'r, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// The key.
    pub fn key(&self) -> &K {
        self.element.key()
    }

    /// The global part.
    pub fn global(&self) -> &G {
        self.element.global()
    }

    /// The local parts.
    pub fn replicas(&mut self) -> &mut Replicas<'a, 'r, L> {
        &mut self.replicas
    }

    /// Empties it: here it takes effect, for all tables at once.
    ///
    /// # Source
    /// CO-61, `doEmpty`.
    pub fn do_empty(self) -> Emptied<'a, 'r, K, G, L, S> {
        self.shared.make_gone(self.element);
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
    /// The key.
    pub fn key(&self) -> &K {
        self.0.element.key()
    }

    /// What was the global part. Reads that began before may be looking at it.
    pub fn global(&self) -> &G {
        self.0.element.global()
    }

    /// What were the local parts: nobody will see them any more.
    pub fn replicas(&mut self) -> &mut Replicas<'a, 'r, L> {
        &mut self.0.replicas
    }

    /// Takes it out of all tables, so that the key may be filled again before the locks are free.
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
        in_a_drop(|| self.0.shared.forget_all(self.0.element));
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
