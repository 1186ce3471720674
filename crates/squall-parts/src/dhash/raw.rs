//! The protocol: elements, their replicas, and how a key is found, filled and emptied.
//!
//! Problem: each cluster shall find a key in a table of its own, lock what it finds there and nothing else; and yet all tables
//! together are to be one: of many that miss a key at once one is told to fill it, and who empties it does so everywhere at once.
//! Idea: a key has one element, in the master's table; what local tables have are replicas, made under the element's lock. Whether
//! there is anything to find is said by the element alone, by two steps that are taken once each: it is filled, and it is gone.
//!
//! - I1. A key has one element in the master's table at a time. Who puts it there fills it, or it is gone; that it was put
//!   there is the verdict EMPTY, and nothing else is. An element that is gone never comes back: the key's next life is another one.
//! - I2. A replica is of one element, in one local table, under its key. It has its local part from when the element is full.
//! - I3. Who holds a replica's lock and found its element full has it full for as long. For who empties holds the element's lock,
//!   and all replicas' locks; replicas are made under the element's lock, so that it knows all.
//! - I4. Who finds an element that is neither full nor gone waits for its `filling`, and holds nothing meanwhile. So who fills, under
//!   that lock and its replica's, is waited for by nobody who holds what it might want.
//! - I5. An element is gone before it, or any replica of it, is taken out of a table: until then every table leads to it, from then on
//!   what they lead to is gone. Who finds something in a table that is gone takes it out, so that nobody waits for who is at it.
//! - I6. Locks are taken in this order: an element's, then its replicas'. `filling` and the lock of what nobody else has found yet are
//!   taken without waiting. Users' functions run under a replica's lock, or an element's and its replicas', in no operation that was
//!   opened here; what they may not do is said at each, and looked after by `order`. None of these locks is waited for in such an
//!   operation.
//! - I7. What was taken out of a table is dropped when no operation can find it and nobody holds on to it: counts are changed by who
//!   locks, or walks; who only reads changes none.
//! - I8. An element that somebody may find is full or gone when who put it there has ended, however that ended: what sees to that is
//!   there before the element is. That it is taken out of the tables is no more than tidiness (I5), and gives way to a panic.
//! - I9. Nothing of others' runs under the locks but what this table was given: keys' code, and the closures. Who is under locks is
//!   [`Under`], so that deferred drops wait until they are free; and what may be the last count of an element or a replica is let
//!   go after that, too. So a user's drop of a part may lock in the same table, the same key included.
//!
//! Where things take effect: an element is filled when its global part is set; emptied when it is gone. What a lookup says was so when it
//! looked at these two. A miss: when the master's table had no element of the key.
//!
//! Not as in the thesis' Fig 4.15: operations and counts of references stand for request counts (CO-66). Who finds, when it has the
//! master's element, that its own table has a replica by now, begins again and waits for that one without the element's lock. The
//! verdict is the same, since it was FOUND.
//!
//! Progress: reads are lock-free, all else blocks: a thread that stalls under an element's lock holds up its key, under a replica's lock its
//! key in that local table and whoever wants all replicas. Cost: a hit that locks is a look-up, a count up and down, and a lock.
//! Source: Appavoo 2005, §4.1.4, Fig 4.13 to 4.15.

use squall_lock::{Lock, LockGuard};
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::{Arc, OnceLock};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::dhash::ground::{Set, Store, Under};
use crate::dhash::{Verdict, sites};

/// What a key has in the master's table.
pub(crate) struct Element<K, G> {
    /// Set once, by who put the element into the table.
    global: OnceLock<G>,
    gone: AtomicBool,
    /// Held by who put it into the table until it is full or gone.
    filling: Lock<()>,
    /// Held by who makes replicas, or wants none to be made.
    held: Lock<()>,
    key: K,
}

/// What an element is.
enum State<'a, G> {
    Filling,
    Full(&'a G),
    Gone,
}

impl<K, G> Element<K, G> {
    fn new(key: K) -> Element<K, G> {
        let global = OnceLock::new();
        Element { global, gone: AtomicBool::new(false), filling: Lock::new(()), held: Lock::new(()), key }
    }

    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    /// Of an element that was full when it was locked.
    pub(crate) fn global(&self) -> &G {
        self.global.get().expect("it is full")
    }

    fn is_gone(&self) -> bool {
        // Relaxed: where it must be seen, a lock or a table's entry that was taken out after it says so (I3, I5), or the fence
        // in `make_gone` that the caller is behind.
        self.gone.load(Ordering::Relaxed)
    }

    fn state(&self) -> State<'_, G> {
        match self.global.get() {
            _ if self.is_gone() => State::Gone,
            Some(global) => State::Full(global),
            None => State::Filling,
        }
    }

    fn full(&self) -> Option<&G> {
        match self.state() {
            State::Full(global) => Some(global),
            State::Filling | State::Gone => None,
        }
    }
}

/// What a key has in a local table.
pub(crate) struct Replica<K, G, L> {
    element: Arc<Element<K, G>>,
    /// Nothing until the element is full.
    part: Lock<Option<L>>,
}

impl<K, G, L> Replica<K, G, L> {
    pub(crate) fn lock(&self) -> LockGuard<'_, Option<L>> {
        self.part.lock()
    }
}

/// Replicas that are let go after the locks are free (I9).
pub(crate) struct After<K, G, L> {
    /// Those of elements that are operated on.
    pub(crate) replicas: Vec<Arc<Replica<K, G, L>>>,
    /// Those that were found where they should not be any more.
    stale: Vec<Arc<Replica<K, G, L>>>,
}

impl<K, G, L> After<K, G, L> {
    pub(crate) fn new() -> After<K, G, L> {
        After { replicas: Vec::new(), stale: Vec::new() }
    }
}

/// The local part, for who holds the lock and found the element full (I2).
pub(crate) fn part<L>(held: &mut Option<L>) -> &mut L {
    held.as_mut().expect("a full element's replicas have their parts")
}

/// A local table.
pub(crate) struct Local<K, G, L, S>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    replicas: Store<K, Arc<Replica<K, G, L>>, S>,
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

    /// Takes out what is gone.
    fn forget(&self, replica: &Arc<Replica<K, G, L>>) {
        self.replicas.forget(&replica.element.key, |found| Arc::ptr_eq(found, replica));
    }

    /// The replica of an element, which is full and whose lock the caller holds, if there is one.
    fn of(&self, element: &Arc<Element<K, G>>, after: &mut After<K, G, L>) -> Option<Arc<Replica<K, G, L>>> {
        let found = self.replicas.get(&element.key)?;
        if Arc::ptr_eq(&found.element, element) {
            return Some(found);
        }
        // Of an earlier life of the key (I1).
        self.forget(&found);
        after.stale.push(found);
        None
    }

    /// Puts a replica in, of an element that has none here and whose lock the caller holds, but for a weakened one.
    fn insert(&self, replica: &Arc<Replica<K, G, L>>, after: &mut After<K, G, L>) {
        while !self.replicas.try_insert(replica.element.key.clone(), replica.clone()) {
            if let Some(stale) = self.replicas.get(&replica.element.key) {
                self.forget(&stale);
                after.stale.push(stale);
            }
        }
    }
}

/// How a local part is made of a global one.
type LocalOf<G, L> = Box<dyn Fn(&G) -> L + Send + Sync>;

/// What the master and its locals share.
pub(crate) struct Shared<K, G, L, S>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    elements: Store<K, Arc<Element<K, G>>, S>,
    locals: Set<Local<K, G, L, S>>,
    local_of: LocalOf<G, L>,
}

impl<K, G, L, S> Shared<K, G, L, S>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    #[cfg(not(loom))]
    pub(crate) fn leave(&self, local: &Arc<Local<K, G, L, S>>) {
        self.locals.remove(local);
    }

    /// By which `order` knows the table.
    #[inline(always)]
    pub(crate) fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// To be there before a lock of the table's, and to go after it; and what may be the last count of something, after that (I9).
    #[inline(always)]
    pub(crate) fn under(&self) -> Under {
        Under::new(self.number())
    }
}

/// A replica in a local table.
type Place<'a, K, G, L, S> = (&'a Local<K, G, L, S>, &'a Arc<Replica<K, G, L>>);

/// Makes an element gone unless it was filled, at the end of who was to fill it, in a panic too. Made before the element is put into the
/// table, for that may panic when it is done (squall-parts raw/I6); where the element was not put there, it does no harm (I8).
struct Unfilled<'a, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    shared: &'a Shared<K, G, L, S>,
    element: &'a Arc<Element<K, G>>,
    place: Option<Place<'a, K, G, L, S>>,
    /// Released when the rest is done.
    _filling: LockGuard<'a, ()>,
}

impl<'a, K, G, L, S> Unfilled<'a, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn fill(self, global: G) -> &'a G {
        let set = self.element.global.set(global);
        assert!(set.is_ok(), "an element is filled once");
        self.element.global()
    }
}

impl<K, G, L, S> Drop for Unfilled<'_, K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn drop(&mut self) {
        if self.element.global.get().is_some() {
            return;
        }
        // Relaxed: as in `is_gone`.
        self.element.gone.store(true, Ordering::Relaxed);
        in_a_drop(|| {
            if let Some((local, replica)) = self.place {
                local.forget(replica);
            }
            self.shared.forget(self.element);
        });
    }
}

/// Takes what is gone out of tables, in a drop. In a panic a second one, of a key's hash or comparison, goes no further, for it would end the
/// process: what stays is taken out by who finds it (I8).
pub(crate) fn in_a_drop(forget: impl FnOnce()) {
    if !std::thread::panicking() {
        forget();
    } else if let Err(payload) = catch_unwind(AssertUnwindSafe(forget)) {
        // Its drop is the user's code, and could panic here.
        std::mem::forget(payload);
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

    /// The same, with room for so many keys.
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

    /// A local table more.
    pub(crate) fn join(&self, hasher: S) -> Arc<Local<K, G, L, S>> {
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

    /// Takes out what is gone.
    fn forget(&self, element: &Arc<Element<K, G>>) {
        self.elements.forget(&element.key, |found| Arc::ptr_eq(found, element));
    }

    /// Locks an element if it is full, when it is (I4).
    pub(crate) fn lock_full<'e>(&self, element: &'e Arc<Element<K, G>>) -> Option<LockGuard<'e, ()>> {
        loop {
            let held = element.held.lock();
            match element.state() {
                State::Full(_) => return Some(held),
                State::Filling if sites::WAIT.is_weak() => return Some(held),
                State::Filling => {
                    drop(held);
                    drop(element.filling.lock());
                }
                State::Gone => {
                    drop(held);
                    self.forget(element);
                    return None;
                }
            }
        }
    }

    /// Adds the replicas of an element whose lock the caller holds; returns the index of the first.
    pub(crate) fn add_replicas(&self, element: &Arc<Element<K, G>>, after: &mut After<K, G, L>) -> usize {
        let first = after.replicas.len();
        self.locals.for_each(|local| {
            if let Some(replica) = local.of(element, after) {
                after.replicas.push(replica);
            }
        });
        first
    }

    /// Empties an element. The caller holds its lock and those of all its replicas (I3).
    pub(crate) fn make_gone(&self, element: &Arc<Element<K, G>>) {
        // SeqCst: partner of itself, in whoever empties another key and then looks for this one. One of two such finds nothing.
        element.gone.swap(true, Ordering::SeqCst);
        // On x86-64 the swap is that fence.
        #[cfg(not(target_arch = "x86_64"))]
        squall_sys::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Takes an element that is gone, and its replicas, out of the tables.
    pub(crate) fn forget_all(&self, element: &Arc<Element<K, G>>) {
        self.forget(element);
        self.locals.for_each(|local| {
            local.replicas.forget(&element.key, |found| Arc::ptr_eq(&found.element, element))
        });
    }

    // --- reading ---

    /// What `f` makes of the key's global part, found by way of a local table.
    #[inline]
    pub(crate) fn read_at<Q: Eq + Hash + ?Sized, R>(
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
        // Not there, or that life is over: another one may be in the master's table.
        read.flatten().or_else(|| self.read(key, f?))
    }

    /// The same, of the master's table.
    pub(crate) fn read<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&G) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.elements.read(key, |element| element.full().map(f)).flatten()
    }

    // --- locking ---

    /// Calls `then` with the local part of a key that is there, locked (CO-55 without the allocation).
    pub(crate) fn find_at<Q: Eq + Hash + ?Sized, R>(
        &self,
        local: &Local<K, G, L, S>,
        key: &Q,
        then: impl FnOnce(&G, &mut L) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        loop {
            if let Some(replica) = local.replicas.get(key) {
                let under = self.under();
                let mut held = replica.lock();
                if let Some(global) = replica.element.full() {
                    return Some(then(global, part(&mut held)));
                }
                drop(held);
                drop(under);
                local.forget(&replica);
                continue;
            }
            let element = self.elements.get(key)?;
            let mut after = After::new();
            let replica;
            let _under = self.under();
            let Some(held) = self.lock_full(&element) else { continue };
            match self.replicate(local, &element, &mut after) {
                Some(new) => replica = new,
                None => continue,
            }
            let mut part_held = replica.lock();
            local.insert(&replica, &mut after);
            drop(held);
            return Some(then(element.global(), part(&mut part_held)));
        }
    }

    /// Calls `then` with the key's local part, locked; `fill` makes the global part if the key is not there (CO-55).
    pub(crate) fn find_or_fill_at<Q, R, E>(
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
        loop {
            // 1 to 3: here. Nothing but the count of the replica, and its lock, is taken.
            if let Some(replica) = local.replicas.get(key) {
                let under = self.under();
                let mut held = replica.lock();
                if sites::AGAIN.is_weak() && held.is_some() {
                    return Ok(then(Verdict::Found, replica.element.global(), part(&mut held)));
                }
                if let Some(global) = replica.element.full() {
                    return Ok(then(Verdict::Found, global, part(&mut held)));
                }
                drop(held);
                drop(under);
                local.forget(&replica);
                continue;
            }
            // 4 a, b: the master's element, locked. No operation is open, and nothing of the local table is held.
            let Some(element) = self.elements.get(key) else {
                let element = Arc::new(Element::new(key.to_owned()));
                let replica = Arc::new(Replica { element: element.clone(), part: Lock::new(None) });
                let mut after = After::new();
                let _under = self.under();
                let (filling, held) = (element.filling.lock(), element.held.lock());
                let mut part_held = replica.lock();
                let place = Some((local, &replica));
                let unfilled = Unfilled { shared: self, element: &element, place, _filling: filling };
                if !self.elements.try_insert(element.key.clone(), element.clone()) {
                    continue;
                }
                local.insert(&replica, &mut after);
                drop(held);
                let global = fill()?;
                *part_held = Some((self.local_of)(&global));
                let global = unfilled.fill(global);
                return Ok(then(Verdict::Empty, global, part(&mut part_held)));
            };
            let mut after = After::new();
            let replica;
            let _under = self.under();
            let Some(held) = self.lock_full(&element) else { continue };
            // 4 d, e.
            match self.replicate(local, &element, &mut after) {
                Some(new) => replica = new,
                None => continue,
            }
            let mut part_held = replica.lock();
            let held = (!sites::UNDER.is_weak()).then_some(held);
            local.insert(&replica, &mut after);
            // 4 g, h: with the master's verdict.
            drop(held);
            let verdict = if sites::VERDICT.is_weak() { Verdict::Empty } else { Verdict::Found };
            return Ok(then(verdict, element.global(), part(&mut part_held)));
        }
    }

    /// A replica for a local table, of an element whose lock the caller holds and that is full; none if that table has one.
    fn replicate(
        &self,
        local: &Local<K, G, L, S>,
        element: &Arc<Element<K, G>>,
        after: &mut After<K, G, L>,
    ) -> Option<Arc<Replica<K, G, L>>> {
        if let Some(found) = local.of(element, after) {
            after.stale.push(found);
            return None;
        }
        let part = (self.local_of)(element.global());
        Some(Arc::new(Replica { element: element.clone(), part: Lock::new(Some(part)) }))
    }

    /// Calls `then` with the master's element of a key that is there, locked.
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
            let _under = self.under();
            if let Some(_held) = self.lock_full(&element) {
                return Some(then(&element));
            }
        }
    }

    /// Calls `then` with the key's element, locked; `fill` makes the global part if the key is not there (CO-57).
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
                let _under = self.under();
                if let Some(_held) = self.lock_full(&element) {
                    return Ok(then(Verdict::Found, &element));
                }
                continue;
            }
            let element = Arc::new(Element::new(key.to_owned()));
            let _under = self.under();
            let (filling, _held) = (element.filling.lock(), element.held.lock());
            let unfilled = Unfilled { shared: self, element: &element, place: None, _filling: filling };
            if !self.elements.try_insert(element.key.clone(), element.clone()) {
                continue;
            }
            unfilled.fill(fill()?);
            return Ok(then(Verdict::Empty, &element));
        }
    }

    /// As [`Store::visit_from`], of those that are full; without locks.
    #[cfg(not(loom))]
    pub(crate) fn read_from(&self, from: u64, f: &mut impl FnMut(&K, &G)) -> Option<u64> {
        self.elements.visit_from(from, |element| {
            if let Some(global) = element.full() {
                f(&element.key, global);
            }
        })
    }

    /// As [`Store::visit_from`], of elements, which are held on to.
    #[cfg(not(loom))]
    pub(crate) fn visit_from(&self, from: u64, found: &mut Vec<Arc<Element<K, G>>>) -> Option<u64> {
        self.elements.visit_from(from, |element| found.push(element.clone()))
    }
}
