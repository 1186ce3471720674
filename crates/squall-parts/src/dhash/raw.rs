//! The protocol: elements, their replicas, and how a key is found, filled and emptied.
//!
//! Problem: each cluster finds a key in a table of its own, and locks only its own replica. Yet all tables
//! together behave as one: of many threads that miss a key at once exactly one fills it, and emptying a key
//! takes effect everywhere at once. Idea: a key has one element, in the master's table. Local tables have
//! replicas, made under the element's lock. The element alone says whether there is a value, by two steps
//! that each happen once: it is filled, and it is gone.
//!
//! - I1. A key has one element in the master's table at a time. The caller that inserts it fills it, or marks
//!   it gone. The verdict EMPTY means that this caller inserted the element, and has no other source. A
//!   *reserved* element is filled after that call, by any thread, and may be revoked. Under the element's
//!   lock, each of these ends of a fill checks that there was no other. A gone element never comes back: the
//!   next life of the key is a new element.
//! - I2. A replica belongs to one element and is in one local table, under the element's key. It has its
//!   local part once the element is full.
//! - I3. While a thread holds a replica's lock, having found its element full, the element stays full. The
//!   reason: the emptying thread holds the element's lock and the locks of all replicas. It knows all
//!   replicas, because they are made under the element's lock.
//! - I4. A thread that finds an element neither full nor gone waits for its `filling` lock, and holds no
//!   other lock meanwhile. The filler holds `filling` and its own replica's lock. So a thread that waits for
//!   the filler holds no lock that the filler may want. Waiters for a reserved element, and all tasks, wait
//!   as `fill` describes, and hold no lock either. Nothing holds the lock of an unfilled element for long.
//! - I5. An element is marked gone before it or any replica of it is removed from a table. Until then
//!   every table finds it; from then on the tables find a gone element. A thread that finds a gone element in
//!   a table removes it, so that it need not wait for the thread that is emptying.
//! - I6. Lock order: an element's lock, then those of its replicas. `filling`, and locks of objects that no
//!   other thread has found yet, are taken without waiting. User functions run under a replica's lock, or an
//!   element's and its replicas', and in no operation opened here. Each method documents the limits of its
//!   functions, and `lock_order` checks them. A thread never waits for any of these locks within such an
//!   operation.
//! - I7. An object removed from a table is dropped when no operation can find it and its count is zero. Only
//!   threads that lock or walk change counts; readers do not.
//! - I8. When the thread that inserted an element ends its call, in any way, an element that others may find
//!   is full or gone, or has a reservation, whose drop marks it gone. The guard for this exists before the
//!   element is inserted. Removing a gone element from
//!   the tables is not needed for correctness (I5). While the thread already panics, a panic of that removal
//!   is caught.
//! - I9. The only users' code that runs under the locks is that of keys, and the closures. Wakers run
//!   after the locks are released. A thread under locks holds a [`LockScope`], so that deferred drops
//!   wait until the locks are free. Counts of elements and replicas that may be the last ones are also
//!   released after that. So a user's drop of a part may lock in the same table, the same key included.
//!
//! Linearization: a fill takes effect when the global part is set, emptying when the element is marked gone.
//! A lookup takes effect when it checks these two. A miss takes effect when the master's table has no element
//! of the key.
//!
//! Difference from the thesis' Fig 4.15: operations and reference counts stand for request counts (CO-66). A
//! thread that has the master's element may find that its own table has a replica by now. Then it begins
//! again, and waits for that replica without the element's lock. The verdict is the same, since it was FOUND.
//!
//! Progress: reads are lock-free; all other calls block. A thread that stalls under an element's lock blocks
//! its key. A thread that stalls under a replica's lock blocks its key in that local table, and all
//! operations on all replicas. Cost: a hit that locks is a lookup, a count up and down, and a lock.
//! Source: Appavoo 2005, §4.1.4, Fig 4.13 to 4.15.

use squall_lock::{Lock, LockGuard};
use squall_sys::panics::drop_payload;
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::{Arc, OnceLock};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::dhash::fill::{FillError, Filled, Waiting, Wakes};
use crate::dhash::platform::{LockScope, Set, Store};
use crate::dhash::{Verdict, sites};

/// The element of a key in the master's table.
pub(crate) struct Element<K, G> {
    /// The global part. Set once, by the thread that inserted the element.
    global: OnceLock<G>,
    gone: AtomicBool,
    /// Whether a reservation fills the element, and not the call that inserted it.
    pub(super) reserved: bool,
    /// Held by the call that inserted the element until it is full or gone. Reserved elements do not use it.
    filling: Lock<()>,
    /// Held to make replicas, or to prevent that any are made, and to end a fill. Protects the waiters for
    /// the fill.
    pub(super) replicas_lock: Lock<Option<Arc<Waiting>>>,
    pub(super) key: K,
}

/// The guard of an element's lock.
type ElementGuard<'e> = LockGuard<'e, Option<Arc<Waiting>>>;

/// The state of an element.
enum State<'a, G> {
    Filling,
    Full(&'a G),
    Gone,
}

impl<K, G> Element<K, G> {
    pub(super) fn new(key: K, reserved: bool) -> Element<K, G> {
        let global = OnceLock::new();
        Element {
            global,
            gone: AtomicBool::new(false),
            reserved,
            filling: Lock::new(()),
            replicas_lock: Lock::new(None),
            key,
        }
    }

    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    /// Returns the global part of an element that was full when it was locked.
    pub(crate) fn global(&self) -> &G {
        self.global.get().expect("the global part was read of an element that is not full")
    }

    pub(super) fn is_gone(&self) -> bool {
        // Relaxed: a caller that must see it is ordered by other means. These are a lock, a table entry that
        // was removed after it (I3, I5), or the fence in `mark_gone`.
        self.gone.load(Ordering::Relaxed)
    }

    fn state(&self) -> State<'_, G> {
        match self.global.get() {
            _ if self.is_gone() => State::Gone,
            Some(global) => State::Full(global),
            None => State::Filling,
        }
    }

    /// Like [`is_gone`](Element::is_gone), with Acquire: pairs with the Release in `end_unfilled`.
    pub(crate) fn is_gone_acquire(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(crate) fn is_filling(&self) -> bool {
        matches!(self.state(), State::Filling)
    }

    /// Whether a reservation is to fill the element.
    #[cfg(not(loom))]
    pub(crate) fn is_reserved(&self) -> bool {
        self.reserved && self.is_filling()
    }

    /// Returns the waiters for the fill, or `None` if the element is full or gone (fill/I1).
    pub(crate) fn waiting(&self) -> Option<Arc<Waiting>> {
        if !self.is_filling() {
            return None;
        }
        let mut held = self.replicas_lock.lock();
        self.is_filling().then(|| held.get_or_insert_with(Arc::default).clone())
    }

    /// Returns the number of waiters for the fill.
    #[cfg(not(loom))]
    pub(crate) fn waiters(&self) -> usize {
        self.replicas_lock.lock().as_ref().map_or(0, |waiting| waiting.len())
    }

    /// Waits until a reserved element is full or gone. The caller holds no lock of the table. Does not wait
    /// for a call that fills the element: [`Shared::lock_full`] does.
    fn await_reservation(&self) {
        if self.reserved && self.is_filling() {
            self.filled().wait();
        }
    }

    /// Returns a future that waits until the element is full or gone. Its output is the error of a failed
    /// reservation.
    pub(crate) fn filled(&self) -> Filled<'_, K, G> {
        Filled::new(self)
    }

    /// Waits until the element is full or gone. The caller holds no lock of the table. Returns the error of
    /// a reservation that failed.
    pub(crate) fn await_fill(&self) -> Option<FillError> {
        if self.reserved {
            return self.filled().wait();
        }
        if self.is_filling() {
            drop(self.filling.lock());
        }
        None
    }

    /// Makes the element full, unless it is gone. The caller holds `held`, the element's lock, and wakes the
    /// waiters after its release.
    pub(super) fn end_full(&self, held: &mut ElementGuard<'_>, global: G, wakes: &Wakes) -> Result<&G, G> {
        if self.is_gone() && !sites::CHECK_REVOKED.is_weak() {
            return Err(global);
        }
        let set = self.global.set(global);
        assert!(set.is_ok(), "an element was filled twice");
        wakes.set(held.take());
        Ok(self.global())
    }

    /// Marks the element gone if it is being filled. Returns whether it was. The caller removes it from the
    /// tables, and wakes the waiters afterwards.
    pub(super) fn end_unfilled(&self, error: Option<&FillError>, wakes: &Wakes) -> bool {
        let mut held = self.replicas_lock.lock();
        if !self.is_filling() && !sites::CHECK_FILLED.is_weak() {
            return false;
        }
        let waiting = held.take();
        let pass_error = || {
            if let (Some(waiting), Some(error)) = (&waiting, error) {
                waiting.set_error(error.clone());
            }
        };
        if !sites::ERROR_FIRST.is_weak() {
            pass_error();
        }
        // Release: pairs with the Acquire in `is_gone_acquire` (fill/I4).
        self.gone.store(true, Ordering::Release);
        drop(held);
        if sites::ERROR_FIRST.is_weak() {
            pass_error();
        }
        wakes.set(waiting);
        true
    }

    pub(super) fn full(&self) -> Option<&G> {
        match self.state() {
            State::Full(global) => Some(global),
            State::Filling | State::Gone => None,
        }
    }
}

/// The replica of a key in a local table.
pub(crate) struct Replica<K, G, L> {
    pub(super) element: Arc<Element<K, G>>,
    /// `None` until the element is full.
    pub(super) part: Lock<Option<L>>,
}

impl<K, G, L> Replica<K, G, L> {
    pub(crate) fn lock(&self) -> LockGuard<'_, Option<L>> {
        self.part.lock()
    }
}

/// Counts of replicas, released after the locks are free (I9).
pub(crate) struct DeferredDrops<K, G, L> {
    /// Replicas of elements under operation.
    pub(crate) replicas: Vec<Arc<Replica<K, G, L>>>,
    /// Outdated replicas that were found in a local table.
    stale: Vec<Arc<Replica<K, G, L>>>,
}

impl<K, G, L> DeferredDrops<K, G, L> {
    pub(crate) fn new() -> DeferredDrops<K, G, L> {
        DeferredDrops { replicas: Vec::new(), stale: Vec::new() }
    }
}

/// Returns the local part. The caller holds the lock and found the element full (I2).
pub(crate) fn local_part<L>(held: &mut Option<L>) -> &mut L {
    held.as_mut().expect("a replica of a full element has no local part")
}

/// A local table.
pub(crate) struct Local<K, G, L, S>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    pub(super) replicas: Store<K, Arc<Replica<K, G, L>>, S>,
}

impl<K, G, L, S> Local<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    #[cfg(not(loom))]
    pub(crate) fn len(&self) -> usize {
        self.replicas.len()
    }

    #[cfg(not(loom))]
    pub(crate) fn capacity(&self) -> usize {
        self.replicas.capacity()
    }

    /// Removes a replica of a gone element.
    pub(super) fn remove_gone(&self, replica: &Arc<Replica<K, G, L>>) {
        self.replicas.remove_if(&replica.element.key, |found| Arc::ptr_eq(found, replica));
    }

    /// Returns the replica of a full element in this table. The caller holds the element's lock.
    fn find_replica(
        &self,
        element: &Arc<Element<K, G>>,
        deferred: &mut DeferredDrops<K, G, L>,
    ) -> Option<Arc<Replica<K, G, L>>> {
        let found = self.replicas.get(&element.key)?;
        if Arc::ptr_eq(&found.element, element) {
            return Some(found);
        }
        // It belongs to an earlier life of the key (I1).
        self.remove_gone(&found);
        deferred.stale.push(found);
        None
    }

    /// Inserts the first replica of an element in this table. The caller holds the element's lock, except in
    /// a weakened model.
    pub(super) fn insert(&self, replica: &Arc<Replica<K, G, L>>, deferred: &mut DeferredDrops<K, G, L>) {
        while !self.replicas.try_insert(replica.element.key.clone(), replica.clone()) {
            if let Some(stale) = self.replicas.get(&replica.element.key) {
                self.remove_gone(&stale);
                deferred.stale.push(stale);
            }
        }
    }
}

/// Makes a local part from the global part.
type LocalOf<G, L> = Box<dyn Fn(&G) -> L + Send + Sync>;

/// The state shared by the master and its local tables.
pub(crate) struct Shared<K, G, L, S>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    pub(super) elements: Store<K, Arc<Element<K, G>>, S>,
    locals: Set<Local<K, G, L, S>>,
    pub(super) local_of: LocalOf<G, L>,
}

/// Takes the function of a caller. It runs once.
pub(super) fn take<T>(then: &mut Option<T>) -> T {
    then.take().expect("a caller's function was taken twice")
}

impl<K, G, L, S> Shared<K, G, L, S>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    #[cfg(not(loom))]
    pub(crate) fn remove_local(&self, local: &Arc<Local<K, G, L, S>>) {
        self.locals.remove(local);
    }

    /// The identity of the table in `lock_order`.
    #[inline(always)]
    pub(crate) fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns the scope of holding locks. It is created before the first lock of the table and dropped after
    /// the last; counts that may be the last ones are released after that (I9).
    #[inline(always)]
    pub(crate) fn lock_scope(&self) -> LockScope {
        LockScope::new(self.number())
    }
}

/// A replica and its local table.
type LocalReplica<'a, K, G, L, S> = (&'a Local<K, G, L, S>, &'a Arc<Replica<K, G, L>>);

/// Marks the element gone unless it was filled, when the filling call ends or panics. Created before the
/// element is inserted, since an insertion may panic after it took effect (table raw/I6). If the element was
/// not inserted, marking it does no harm (I8).
struct FillGuard<'a, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    shared: &'a Shared<K, G, L, S>,
    element: &'a Arc<Element<K, G>>,
    place: Option<LocalReplica<'a, K, G, L, S>>,
    wakes: &'a Wakes,
    /// Released after the rest is done.
    _filling: LockGuard<'a, ()>,
}

impl<'a, K, G, L, S> FillGuard<'a, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Fills the element, and returns the global part and the element's lock.
    fn fill(self, global: G) -> (&'a G, ElementGuard<'a>) {
        let mut held = self.element.replicas_lock.lock();
        let Ok(global) = self.element.end_full(&mut held, global, self.wakes) else {
            unreachable!("another thread ended the fill of a call");
        };
        (global, held)
    }
}

impl<K, G, L, S> Drop for FillGuard<'_, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn drop(&mut self) {
        if !self.element.is_filling() || !self.element.end_unfilled(None, self.wakes) {
            return;
        }
        run_in_drop(|| {
            if let Some((local, replica)) = self.place {
                local.remove_gone(replica);
            }
            self.shared.remove_gone(self.element);
        });
    }
}

/// Removes gone objects from tables, within a drop. During a panic, a second panic by a key's hash or
/// comparison is caught, since it would abort the process. The objects that stay are removed by threads that
/// find them (I8).
pub(crate) fn run_in_drop(remove: impl FnOnce()) {
    if !std::thread::panicking() {
        remove();
    } else if let Err(payload) = catch_unwind(AssertUnwindSafe(remove)) {
        drop_payload(payload);
    }
}

impl<K, G, L, S> Shared<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    pub(crate) fn new(hasher: S, local_of: LocalOf<G, L>) -> Shared<K, G, L, S> {
        Shared { elements: Store::new(hasher), locals: Set::new(), local_of }
    }

    /// Makes a table with room for this many keys.
    #[cfg(not(loom))]
    pub(crate) fn with_capacity(keys: usize, hasher: S, local_of: LocalOf<G, L>) -> Shared<K, G, L, S> {
        Shared { elements: Store::with_capacity(keys, hasher), locals: Set::new(), local_of }
    }

    #[cfg(not(loom))]
    pub(crate) fn capacity(&self) -> usize {
        self.elements.capacity()
    }

    #[cfg(not(loom))]
    pub(crate) fn shrink_to_fit(&self) {
        self.elements.shrink_to_fit();
        self.locals.for_each(|local| local.replicas.shrink_to_fit());
    }

    /// Adds a local table.
    pub(crate) fn add_local(&self, hasher: S) -> Arc<Local<K, G, L, S>> {
        let local = Arc::new(Local { replicas: Store::new(hasher) });
        self.locals.add(&local);
        local
    }

    #[cfg(not(loom))]
    pub(crate) fn hasher(&self) -> &S {
        self.elements.hasher()
    }

    #[cfg(not(loom))]
    pub(crate) fn len(&self) -> usize {
        self.elements.len()
    }

    #[cfg(not(loom))]
    pub(crate) fn locals(&self) -> usize {
        let mut locals = 0;
        self.locals.for_each(|_| locals += 1);
        locals
    }

    /// Removes a gone element.
    pub(super) fn remove_gone(&self, element: &Arc<Element<K, G>>) {
        self.elements.remove_if(&element.key, |found| Arc::ptr_eq(found, element));
    }

    /// Locks an element if it is full, waiting while it is being filled (I4).
    pub(crate) fn lock_full<'e>(&self, element: &'e Arc<Element<K, G>>) -> Option<ElementGuard<'e>> {
        loop {
            let held = element.replicas_lock.lock();
            match element.state() {
                State::Full(_) => return Some(held),
                State::Filling if sites::WAIT.is_weak() => return Some(held),
                State::Filling => {
                    drop(held);
                    drop(element.filling.lock());
                }
                State::Gone => {
                    drop(held);
                    self.remove_gone(element);
                    return None;
                }
            }
        }
    }

    /// Adds the replicas of an element to `deferred`; the caller holds the element's lock. Returns the first
    /// one's index.
    pub(crate) fn add_replicas(
        &self,
        element: &Arc<Element<K, G>>,
        deferred: &mut DeferredDrops<K, G, L>,
    ) -> usize {
        let first = deferred.replicas.len();
        self.locals.for_each(|local| {
            if let Some(replica) = local.find_replica(element, deferred) {
                deferred.replicas.push(replica);
            }
        });
        first
    }

    /// Empties an element. The caller holds its lock and those of all its replicas (I3).
    pub(crate) fn mark_gone(&self, element: &Arc<Element<K, G>>) {
        // SeqCst: pairs with itself in a thread that empties another key and then looks up this one. At least
        // one of two such threads finds no value.
        element.gone.swap(true, Ordering::SeqCst);
        // On x86-64 the swap is a full fence.
        #[cfg(not(target_arch = "x86_64"))]
        squall_sys::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Removes a gone element and its replicas from the tables.
    pub(crate) fn remove_everywhere(&self, element: &Arc<Element<K, G>>) {
        self.remove_gone(element);
        self.locals.for_each(|local| {
            local.replicas.remove_if(&element.key, |found| Arc::ptr_eq(&found.element, element))
        });
    }

    // --- reading ---

    /// Calls `f` with the key's global part, found through a local table.
    #[inline]
    pub(crate) fn read_local<Q: Eq + Hash + ?Sized, R>(
        &self,
        local: &Local<K, G, L, S>,
        key: &Q,
        f: impl FnOnce(&G) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let mut f = Some(f);
        let read = local
            .replicas
            .read(key, |replica| replica.element.full().and_then(|global| Some(f.take()?(global))));
        // The key is absent here, or that life is over: another element may be in the master's table.
        read.flatten().or_else(|| self.read(key, f?))
    }

    /// Calls `f` with the key's global part, found in the master's table.
    pub(crate) fn read<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&G) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.elements.read(key, |element| element.full().map(f)).flatten()
    }

    // --- locking ---

    /// Calls `then` with the local part of a present key, locked (CO-55 without the allocation).
    pub(crate) fn find_local<Q: Eq + Hash + ?Sized, R>(
        &self,
        local: &Local<K, G, L, S>,
        key: &Q,
        then: impl FnOnce(&G, &mut L) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let mut then = Some(then);
        loop {
            if let Some(replica) = local.replicas.get(key) {
                match self.lock_replica(local, &replica, &mut then) {
                    None => continue,
                    found => return found,
                }
            }
            let element = self.elements.get(key)?;
            element.await_reservation();
            if let found @ Some(_) = self.lock_new_replica(local, &element, &mut then) {
                return found;
            }
        }
    }

    /// Calls `then` with the key's local part, locked. `fill` makes the global part if the key is absent
    /// (CO-55).
    pub(crate) fn find_or_fill_local<Q, R, E>(
        &self,
        local: &Local<K, G, L, S>,
        key: &Q,
        fill: impl FnOnce() -> Result<G, E>,
        then: impl FnOnce(Verdict, &G, &mut L) -> R,
    ) -> Result<R, E>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        let mut then = Some(then);
        loop {
            // Steps 1 to 3: in this table. Only the replica's count and lock are taken.
            if let Some(replica) = local.replicas.get(key) {
                let mut found =
                    Some(|global: &G, part: &mut L| take(&mut then)(Verdict::Found, global, part));
                match self.lock_replica(local, &replica, &mut found) {
                    None => continue,
                    Some(result) => return Ok(result),
                }
            }
            // Steps 4 a, b: the master's element, locked. No operation is open, and no lock of the local
            // table is held.
            let Some(element) = self.elements.get(key) else {
                let element = Arc::new(Element::new(key.to_owned(), false));
                let replica = Arc::new(Replica { element: element.clone(), part: Lock::new(None) });
                let (wakes, mut deferred) = (Wakes::default(), DeferredDrops::new());
                let _scope = self.lock_scope();
                let filling = element.filling.lock();
                let mut part_held = replica.lock();
                let place = Some((local, &replica));
                let unfilled =
                    FillGuard { shared: self, element: &element, place, wakes: &wakes, _filling: filling };
                if !self.elements.try_insert(element.key.clone(), element.clone()) {
                    continue;
                }
                local.insert(&replica, &mut deferred);
                let global = fill()?;
                *part_held = Some((self.local_of)(&global));
                let (global, held) = unfilled.fill(global);
                drop(held);
                return Ok(take(&mut then)(Verdict::Empty, global, local_part(&mut part_held)));
            };
            element.await_reservation();
            // With the master's verdict (step 4 h).
            let verdict = if sites::VERDICT.is_weak() { Verdict::Empty } else { Verdict::Found };
            let mut found = Some(|global: &G, part: &mut L| take(&mut then)(verdict, global, part));
            if let Some(result) = self.lock_new_replica(local, &element, &mut found) {
                return Ok(result);
            }
        }
    }

    /// Calls `then` with the local part of a replica, locked, if its element is full. Otherwise removes the
    /// replica, whose element is gone (CO-55, step 3).
    #[inline]
    pub(super) fn lock_replica<R>(
        &self,
        local: &Local<K, G, L, S>,
        replica: &Arc<Replica<K, G, L>>,
        then: &mut Option<impl FnOnce(&G, &mut L) -> R>,
    ) -> Option<R> {
        let scope = self.lock_scope();
        let mut held = replica.lock();
        let is_found = sites::RECHECK.is_weak() && held.is_some();
        let global = if is_found { Some(replica.element.global()) } else { replica.element.full() };
        if let Some(global) = global {
            return Some(take(then)(global, local_part(&mut held)));
        }
        drop(held);
        drop(scope);
        local.remove_gone(replica);
        None
    }

    /// Makes a replica of a full element in a local table, and calls `then` with its part, locked. Returns
    /// `None` if the element is gone, or the table has a replica of it: the caller looks again (CO-55, steps
    /// 4 d to g).
    pub(super) fn lock_new_replica<R>(
        &self,
        local: &Local<K, G, L, S>,
        element: &Arc<Element<K, G>>,
        then: &mut Option<impl FnOnce(&G, &mut L) -> R>,
    ) -> Option<R> {
        let mut deferred = DeferredDrops::new();
        let replica;
        let _scope = self.lock_scope();
        let held = self.lock_full(element)?;
        replica = self.replicate(local, element, &mut deferred)?;
        let mut part_held = replica.lock();
        let held = (!sites::CREATE_LOCKED.is_weak()).then_some(held);
        local.insert(&replica, &mut deferred);
        drop(held);
        Some(take(then)(element.global(), local_part(&mut part_held)))
    }

    /// Makes a replica for a local table of a full element; the caller holds the element's lock. Returns
    /// `None` if that table has one.
    pub(super) fn replicate(
        &self,
        local: &Local<K, G, L, S>,
        element: &Arc<Element<K, G>>,
        deferred: &mut DeferredDrops<K, G, L>,
    ) -> Option<Arc<Replica<K, G, L>>> {
        if let Some(found) = local.find_replica(element, deferred) {
            deferred.stale.push(found);
            return None;
        }
        let part = (self.local_of)(element.global());
        Some(Arc::new(Replica { element: element.clone(), part: Lock::new(Some(part)) }))
    }

    /// Calls `then` with the master's element of a present key, locked.
    pub(crate) fn find<Q: Eq + Hash + ?Sized, R>(
        &self,
        key: &Q,
        then: impl FnOnce(&Arc<Element<K, G>>) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        loop {
            let element = self.elements.get(key)?;
            element.await_reservation();
            let _scope = self.lock_scope();
            if let Some(_held) = self.lock_full(&element) {
                return Some(then(&element));
            }
        }
    }

    /// Calls `then` with the key's element, locked. `fill` makes the global part if the key is absent
    /// (CO-57).
    pub(crate) fn find_or_fill<Q, R, E>(
        &self,
        key: &Q,
        fill: impl FnOnce() -> Result<G, E>,
        then: impl FnOnce(Verdict, &Arc<Element<K, G>>) -> R,
    ) -> Result<R, E>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        loop {
            if let Some(element) = self.elements.get(key) {
                element.await_reservation();
                let _scope = self.lock_scope();
                if let Some(_held) = self.lock_full(&element) {
                    return Ok(then(Verdict::Found, &element));
                }
                continue;
            }
            let element = Arc::new(Element::new(key.to_owned(), false));
            let wakes = Wakes::default();
            let _scope = self.lock_scope();
            let filling = element.filling.lock();
            let unfilled =
                FillGuard { shared: self, element: &element, place: None, wakes: &wakes, _filling: filling };
            if !self.elements.try_insert(element.key.clone(), element.clone()) {
                continue;
            }
            let (_, _held) = unfilled.fill(fill()?);
            return Ok(then(Verdict::Empty, &element));
        }
    }

    /// Like [`Store::visit_from`], for full elements, without locks.
    #[cfg(not(loom))]
    pub(crate) fn read_from(&self, from: u64, f: &mut impl FnMut(&K, &G)) -> Option<u64> {
        self.elements.visit_from(from, |element| {
            if let Some(global) = element.full() {
                f(&element.key, global);
            }
        })
    }

    /// Like [`Store::visit_from`], and keeps the elements alive by counts.
    #[cfg(not(loom))]
    pub(crate) fn visit_from(&self, from: u64, found: &mut Vec<Arc<Element<K, G>>>) -> Option<u64> {
        self.elements.visit_from(from, |element| found.push(element.clone()))
    }
}
