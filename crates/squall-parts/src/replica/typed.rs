//! The safe interface of masters and replicas. `raw` has the protocol.
//!
//! - I1. Only the master that made a replica, known by its number, stores nodes in the replica's word. A
//!   master changes no other words.
//! - I2. Each function here that fills a `DeadNodes` retires its nodes at its end, after a panic too.

use squall_rcu::{__pin as pin, Guard};
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::replica::raw::{self, Copied, DeadNodes, Node, Word};

/// A value and its version, as readers see it.
///
/// A master counts its versions from 1; each update adds one.
///
/// ```
/// use squall::parts::replica::{Master, Versioned};
/// let limit = Master::new(10);
/// limit.set(20, |_| ());
/// limit.read(|value| assert_eq!((Versioned::version(value), **value), (2, 20)));
/// ```
#[repr(transparent)]
pub struct Versioned<T>(Node<T>);

impl<T> Versioned<T> {
    /// Returns the version of this value.
    #[inline(always)]
    pub fn version(this: &Versioned<T>) -> u64 {
        this.0.version
    }

    /// # Safety
    /// The node is valid for the lifetime of the result.
    #[inline(always)]
    unsafe fn of<'o>(node: NonNull<Node<T>>) -> &'o Versioned<T> {
        // SAFETY: the caller; the types have the same layout.
        unsafe { node.cast().as_ref() }
    }
}

impl<T> Deref for Versioned<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Versioned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Versioned").field("version", &self.0.version).field("value", &self.0.value).finish()
    }
}

/// The error of an update that lost a race: another update was faster. Returns the rejected value.
///
/// ```
/// use squall::parts::replica::Master;
/// let limit = Master::new(10);
/// limit.set(20, |_| ());
/// let conflict = limit.compare_and_set(1, 30, |_| ()).unwrap_err();
/// assert_eq!((conflict.value, conflict.version), (30, 2));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Conflict<T> {
    /// The rejected value.
    pub value: T,
    /// The current version.
    pub version: u64,
}

impl<T> fmt::Display for Conflict<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "another update was faster: the value has version {}; read it again", self.version)
    }
}

impl<T> fmt::Debug for Conflict<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conflict").field("version", &self.version).finish_non_exhaustive()
    }
}

impl<T> std::error::Error for Conflict<T> {}

/// Nodes without references. The drop retires them (I2).
struct RetireOnDrop<T: Send + Sync + 'static>(DeadNodes<T>);

impl<T: Send + Sync + 'static> RetireOnDrop<T> {
    fn new() -> RetireOnDrop<T> {
        RetireOnDrop(DeadNodes::new())
    }
}

impl<T: Send + Sync + 'static> Drop for RetireOnDrop<T> {
    fn drop(&mut self) {
        while let Some(node) = self.0.take() {
            // SAFETY: 1. a node is a box, and this one has no references left (`raw/I2`). 2. it was removed
            // from every word before.
            unsafe { squall_rcu::retire_raw(node.as_ptr()) };
        }
    }
}

/// A counted pointer to a value of a master. It outlives the operation in which it was made.
///
/// ```
/// use squall::parts::replica::Master;
/// let config = Master::new("old".to_owned());
/// let kept = config.keep().unwrap();
/// config.set("new".to_owned(), |_| ());
/// assert_eq!(**kept, "old");
/// ```
pub struct ValueRef<T: Send + Sync + 'static>(NonNull<Node<T>>);

// SAFETY: it lends `&T` to every thread, and drops `T` on any.
unsafe impl<T: Send + Sync> Send for ValueRef<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for ValueRef<T> {}

impl<T: Send + Sync + 'static> Deref for ValueRef<T> {
    type Target = Versioned<T>;

    fn deref(&self) -> &Versioned<T> {
        // SAFETY: this value has a reference.
        unsafe { Versioned::of(self.0) }
    }
}

impl<T: Send + Sync + 'static> Clone for ValueRef<T> {
    fn clone(&self) -> ValueRef<T> {
        // SAFETY: this value has a reference.
        unsafe { Node::add_references(self.0, 1) };
        ValueRef(self.0)
    }
}

impl<T: Send + Sync + 'static> Drop for ValueRef<T> {
    fn drop(&mut self) {
        // SAFETY: the reference belongs to this value, and is not that of a word.
        unsafe { RetireOnDrop::new().0.release(self.0, 1) };
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for ValueRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ValueRef").field(&**self).finish()
    }
}

/// The authoritative copy of a read-mostly value. Keep it in a root, with a [`Replica`] in each
/// representative; or use it alone, as a cell with versions.
///
/// Limits first: an update costs an allocation, a lock, a full fence, and two stores to a line of each
/// replica that was read. The old value is dropped later, perhaps on another thread. Each update takes a
/// *walk*: a closure that calls its argument with every replica of this master. A replica left out by the
/// walk keeps its old value. The walk is made under the master's lock, twice: it must only visit replicas,
/// and must not call the master.
///
/// There is no poisoning. Except for the walk, user closures run under no lock. After a panic the value is
/// the old or the new one.
///
/// # Source
/// TO-04, TO-05 (Tornado, §3.1, §3.2); HU-04, HU-16, HU-17 (Hurricane). The header of `raw.rs` has the
/// protocol.
/// # Example
/// ```
/// use squall::parts::replica::{Master, Replica};
///
/// let limit = Master::new(10);
/// let replicas = [limit.replica(), limit.replica()];
/// let walk = |reach: &mut dyn FnMut(&Replica<i32>)| replicas.iter().for_each(reach);
/// assert_eq!(replicas[0].read(&limit, |value| **value), 10);
/// assert_eq!(limit.set(20, walk), 2);
/// assert!(replicas.iter().all(|replica| replica.read(&limit, |value| **value) == 20));
/// assert!(limit.compare_and_set(1, 30, walk).is_err());
/// ```
pub struct Master<T: Send + Sync + 'static> {
    raw: raw::Master<T>,
    /// The number of this master (I1).
    number: u64,
    /// How emptied replicas get a value again.
    refill: Refill<T>,
}

enum Refill<T> {
    /// Each update gives the emptied replicas the new node.
    Update,
    /// The first reader of a replica fetches the current node.
    Fetch,
    /// The first reader of a replica fetches the current node and copies it for the replica.
    Copy(fn(&T) -> T),
}

impl<T> Clone for Refill<T> {
    fn clone(&self) -> Refill<T> {
        *self
    }
}
impl<T> Copy for Refill<T> {}

// SAFETY: it lends `&T` to every thread, and drops `T` on any.
unsafe impl<T: Send + Sync> Send for Master<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Master<T> {}

impl<T: Send + Sync + 'static> Master<T> {
    /// Returns a master with this value as version 1. Each update gives the new value to the replicas.
    pub fn new(value: T) -> Master<T> {
        Master::make(Some(value), Refill::Update)
    }

    /// Returns a master with this value as version 1. An update only empties the replicas: each fetches the
    /// new value at its next read (invalidation). Suits bursts of updates, and many replicas that are seldom
    /// read.
    ///
    /// ```
    /// use squall::parts::replica::Master;
    /// let limit = Master::fetched(10);
    /// let replica = limit.replica();
    /// assert_eq!(replica.read(&limit, |value| **value), 10);
    /// limit.set(20, |reach| reach(&replica));
    /// assert!(!replica.is_filled());
    /// ```
    pub fn fetched(value: T) -> Master<T> {
        Master::make(Some(value), Refill::Fetch)
    }

    /// Like [`fetched`](Master::fetched), with a copy for each replica, made by its first reader in memory
    /// near it. Suits large values and distant clusters.
    ///
    /// The copy is made in the operation of that read. Unshared state in the value, such as atomics, differs
    /// between copies.
    ///
    /// ```
    /// use squall::parts::replica::Master;
    /// let routes = Master::copied(vec![1, 2, 3]);
    /// let replicas = [routes.replica(), routes.replica()];
    /// let address = |at: usize| replicas[at].read(&routes, |value| value.as_ptr());
    /// assert_ne!(address(0), address(1));
    /// ```
    pub fn copied(value: T) -> Master<T>
    where
        T: Clone,
    {
        Master::make(Some(value), Refill::Copy(T::clone))
    }

    /// Returns a master without a value, which treats replicas as this one does: [`adopt`](Master::adopt)
    /// gives it a value.
    ///
    /// For objects that replace another one. Reading it before that panics.
    ///
    /// ```
    /// use squall::parts::replica::Master;
    /// let old = Master::new(10);
    /// assert!(old.vacant().is_vacant() && !old.is_vacant());
    /// ```
    pub fn vacant(&self) -> Master<T> {
        Master::make(None, self.refill)
    }

    /// Returns a master without a value that treats replicas as [`new`](Master::new) does.
    pub fn vacant_updated() -> Master<T> {
        Master::make(None, Refill::Update)
    }

    /// Returns a master without a value that treats replicas as [`copied`](Master::copied) does.
    pub fn vacant_copied() -> Master<T>
    where
        T: Clone,
    {
        Master::make(None, Refill::Copy(T::clone))
    }

    fn make(value: Option<T>, refill: Refill<T>) -> Master<T> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let raw = raw::Master::new(value.map(|value| Node::new(1, value)));
        Master { raw, number, refill }
    }

    /// Whether the master has no value yet.
    pub fn is_vacant(&self) -> bool {
        self.raw.node().is_none()
    }

    /// Returns an empty replica of this master. The first read of the replica fills it.
    pub fn replica(&self) -> Replica<T> {
        Replica { word: Word::new(), master: self.number }
    }

    /// Returns the current value, for the rest of the operation, without a replica.
    ///
    /// # Panics
    /// If the master is [vacant](Master::vacant).
    /// # Cost
    /// One load. Wait-free; linearizes there.
    #[inline(always)]
    pub fn load<'o>(&self, _guard: &'o Guard) -> &'o Versioned<T> {
        match self.raw.node() {
            // SAFETY: the node was in the master's word in this operation, so it is not freed before that
            // ends (`raw/I2`).
            Some(node) => unsafe { Versioned::of(node) },
            None => panic_vacant(),
        }
    }

    /// Calls `f` with the current value, in an operation.
    ///
    /// # Panics
    /// If the master is [vacant](Master::vacant).
    /// # Example
    /// ```
    /// use squall::parts::replica::Master;
    /// assert_eq!(Master::new(10).read(|value| **value + 1), 11);
    /// ```
    #[inline]
    pub fn read<R>(&self, f: impl FnOnce(&Versioned<T>) -> R) -> R {
        pin(|guard| f(self.load(guard)))
    }

    /// Returns a counted pointer to the current value; `None` if the master is vacant. Takes the lock for a
    /// moment.
    pub fn keep(&self) -> Option<ValueRef<T>> {
        self.raw.share().map(ValueRef)
    }

    /// Replaces the value. Returns the new version. `walk` visits the replicas.
    ///
    /// # Cost
    /// See [`Master`]. Blocks other updates; linearizes at the store to the master's word. Every read that
    /// begins after it returns sees this value or a later one.
    /// # Example
    /// ```
    /// use squall::parts::replica::{Master, Replica};
    /// let limit = Master::new(10);
    /// let replica = limit.replica();
    /// assert_eq!(limit.set(20, |reach: &mut dyn FnMut(&Replica<i32>)| reach(&replica)), 2);
    /// assert_eq!(replica.read(&limit, |value| **value), 20);
    /// ```
    pub fn set(&self, value: T, walk: impl FnMut(&mut dyn FnMut(&Replica<T>))) -> u64 {
        match self.replace(value, |_| true, walk) {
            Ok(version) => version,
            Err(_) => unreachable!("`set` was rejected although it admits every version"),
        }
    }

    /// Replaces the value if it still has this version.
    ///
    /// # Errors
    /// [`Conflict`]: it has another version. The master is unchanged.
    /// # Example
    /// ```
    /// use squall::parts::replica::Master;
    /// let limit = Master::new(10);
    /// assert_eq!(limit.compare_and_set(1, 20, |_| ()), Ok(2));
    /// assert!(limit.compare_and_set(1, 30, |_| ()).is_err());
    /// ```
    pub fn compare_and_set(
        &self,
        version: u64,
        value: T,
        walk: impl FnMut(&mut dyn FnMut(&Replica<T>)),
    ) -> Result<u64, Conflict<T>> {
        self.replace(value, |there| there == version, walk)
    }

    /// Replaces the value by `f`'s result. If another update was faster, `f` is called again. `f` runs under
    /// no lock.
    ///
    /// # Panics
    /// If the master is [vacant](Master::vacant). If `f` panics, the value is unchanged.
    /// # Example
    /// ```
    /// use squall::parts::replica::Master;
    /// let count = Master::new(1);
    /// assert_eq!(count.update(|n| n + 1, |_| ()), 2, "the new version");
    /// assert_eq!(count.read(|value| **value), 2);
    /// ```
    pub fn update(
        &self,
        mut f: impl FnMut(&T) -> T,
        mut walk: impl FnMut(&mut dyn FnMut(&Replica<T>)),
    ) -> u64 {
        loop {
            let (value, version) = self.read(|seen| (f(seen), Versioned::version(seen)));
            if let Ok(version) = self.compare_and_set(version, value, &mut walk) {
                return version;
            }
        }
    }

    fn replace(
        &self,
        value: T,
        admit: impl FnOnce(u64) -> bool,
        walk: impl FnMut(&mut dyn FnMut(&Replica<T>)),
    ) -> Result<u64, Conflict<T>> {
        // Allocated before the lock is taken; the version is set under it.
        let mut new = Some(Node::new(0, value));
        let mut there = 0;
        let admit = |version| {
            there = version;
            admit(version)
        };
        let take = |version| {
            let mut node = new.take().unwrap_or_else(|| unreachable!("the new node was taken twice"));
            node.version = version;
            NonNull::from(Box::leak(node))
        };
        let replaced = self.replace_by(admit, take, walk);
        match (replaced, new) {
            (Some(version), _) => Ok(version),
            (None, Some(node)) => Err(Conflict { value: node.value, version: there }),
            (None, None) => unreachable!("the node of a rejected value is missing"),
        }
    }

    fn replace_by(
        &self,
        admit: impl FnOnce(u64) -> bool,
        new: impl FnOnce(u64) -> NonNull<Node<T>>,
        mut walk: impl FnMut(&mut dyn FnMut(&Replica<T>)),
    ) -> Option<u64> {
        let mut dead = RetireOnDrop::new();
        let mut walk = |reach: &mut dyn FnMut(&Word<T>)| {
            walk(&mut |replica: &Replica<T>| {
                // Replicas of other masters are skipped (I1).
                if replica.master == self.number {
                    reach(&replica.word);
                }
            });
        };
        self.raw.replace(admit, new, &mut walk, matches!(self.refill, Refill::Update), &mut dead.0)
    }

    /// Gives a [vacant](Master::vacant) master a value of another master, with its version.
    ///
    /// # Errors
    /// This master has a value already. It is unchanged, and `value` comes back.
    /// # Example
    /// ```
    /// use squall::parts::replica::{Master, Versioned};
    /// let old = Master::new(10);
    /// let new = old.vacant();
    /// new.adopt(old.keep().unwrap()).unwrap();
    /// new.read(|value| assert_eq!((Versioned::version(value), **value), (1, 10)));
    /// ```
    pub fn adopt(&self, value: ValueRef<T>) -> Result<(), ValueRef<T>> {
        let node = value.0;
        let adopted = self.replace_by(|version| version == 0, |_| node, |_| ());
        match adopted {
            // The master has taken over the reference.
            Some(_) => std::mem::forget(value),
            None => return Err(value),
        }
        Ok(())
    }
}

#[cold]
#[inline(never)]
fn panic_vacant() -> ! {
    panic!("a vacant master was read: give it a value by `Master::adopt` first")
}

impl<T: Send + Sync + 'static> Drop for Master<T> {
    fn drop(&mut self) {
        self.raw.end(&mut RetireOnDrop::new().0);
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Master<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        pin(|_| {
            let mut shown = f.debug_struct("Master");
            if let Some(node) = self.raw.node() {
                // SAFETY: as in `load`.
                let value: &Versioned<T> = unsafe { Versioned::of(node) };
                shown.field("version", &value.0.version).field("value", &value.0.value);
            }
            shown.finish_non_exhaustive()
        })
    }
}

/// A cluster's copy of the pointer to the value of a [`Master`]. Keep it in a representative.
///
/// Its drop releases the value; running reads are not disturbed.
///
/// ```
/// use squall::parts::replica::Master;
/// let limit = Master::new(10);
/// let replica = limit.replica();
/// assert!(!replica.is_filled());
/// assert_eq!(replica.read(&limit, |value| **value), 10);
/// assert!(replica.is_filled());
/// ```
pub struct Replica<T: Send + Sync + 'static> {
    word: Word<T>,
    master: u64,
}

// SAFETY: as for `Master`.
unsafe impl<T: Send + Sync> Send for Replica<T> {}
// SAFETY: as for `Master`.
unsafe impl<T: Send + Sync> Sync for Replica<T> {}

impl<T: Send + Sync + 'static> Replica<T> {
    /// Returns the current value, for the rest of the operation. `master` is the one that made this replica.
    /// With another master, the result is the value of either.
    ///
    /// # Panics
    /// If the master is [vacant](Master::vacant), or if it makes [copies](Master::copied) and the clone
    /// panics.
    /// # Cost
    /// One load, of the replica's own word; during an update, one of the master's word too. A read that finds
    /// the word empty tries the master's lock once: the first read, and with masters that empty the replicas
    /// also the first after each update. Wait-free; linearizes at the load that found the value.
    #[inline(always)]
    pub fn load<'o>(&self, master: &Master<T>, guard: &'o Guard) -> &'o Versioned<T> {
        match self.word.find() {
            // SAFETY: the node was in the word in this operation, so it is not freed before that ends
            // (`raw/I2`).
            Some(node) => unsafe { Versioned::of(node) },
            None => self.fetch(master, guard, || ()),
        }
    }

    /// Returns the value if the replica holds one. Fast path of [`load`](Replica::load), and nearly always
    /// enough.
    #[inline(always)]
    pub fn find<'o>(&self, _guard: &'o Guard) -> Option<&'o Versioned<T>> {
        // SAFETY: as in `load`.
        self.word.find().map(|node| unsafe { Versioned::of(node) })
    }

    /// Like [`load`](Replica::load), and calls `note` if this fills the replica. `note` runs under the
    /// master's lock, so updates see both or neither; it must only set a bit. So a walk may skip replicas
    /// that are not noted: see [`Holders`](crate::replica::Holders).
    ///
    /// # Panics
    /// Like [`load`](Replica::load).
    #[inline(always)]
    pub fn load_noting<'o>(
        &self,
        master: &Master<T>,
        guard: &'o Guard,
        note: impl FnOnce(),
    ) -> &'o Versioned<T> {
        match self.word.find() {
            // SAFETY: as in `load`.
            Some(node) => unsafe { Versioned::of(node) },
            None => self.fetch(master, guard, note),
        }
    }

    /// Whether the replica holds a value. For statistics: it may change at once.
    pub fn is_filled(&self) -> bool {
        self.word.find().is_some()
    }

    /// Like [`load`](Replica::load), but never fills the replica: takes no lock, and makes no copy. For
    /// readers of the version.
    ///
    /// # Panics
    /// If the master is [vacant](Master::vacant).
    /// # Cost
    /// One load of the replica's own word, and one of the master's if that is empty. Wait-free; linearizes at
    /// the load that found the value.
    /// # Example
    /// ```
    /// use squall::parts::replica::{Master, Versioned};
    /// let limit = Master::new(10);
    /// let replica = limit.replica();
    /// let version = squall::rcu::pin(|guard| Versioned::version(replica.peek(&limit, guard)));
    /// assert!(version == 1 && !replica.is_filled());
    /// ```
    #[inline]
    pub fn peek<'o>(&self, master: &Master<T>, guard: &'o Guard) -> &'o Versioned<T> {
        match self.word.find() {
            // SAFETY: as in `load`.
            Some(node) => unsafe { Versioned::of(node) },
            None => master.load(guard),
        }
    }

    /// Calls `f` with the current value, in an operation.
    ///
    /// # Panics
    /// Like [`load`](Replica::load).
    #[inline(always)]
    pub fn read<R>(&self, master: &Master<T>, f: impl FnOnce(&Versioned<T>) -> R) -> R {
        pin(|guard| f(self.load(master, guard)))
    }

    #[cold]
    #[inline(never)]
    fn fetch<'o>(&self, master: &Master<T>, guard: &'o Guard, note: impl FnOnce()) -> &'o Versioned<T> {
        let seen = master.load(guard);
        // An update is under way, or another reader is filling the replica: the master's value will do this
        // time.
        if self.master != master.number || master.raw.is_busy() {
            return seen;
        }
        let Refill::Copy(copy) = master.refill else {
            master.raw.attach(&self.word, None, note);
            return seen;
        };
        let original = NonNull::from(&seen.0);
        let copy = Box::into_raw(Node::new(seen.0.version, copy(seen)));
        // SAFETY: from a box.
        let copy = unsafe { NonNull::new_unchecked(copy) };
        if master.raw.attach(&self.word, Some(Copied { copy, original }), note) {
            // SAFETY: the word owns it now, and it was there in this operation.
            return unsafe { Versioned::of(copy) };
        }
        // SAFETY: from a box above, and no other thread has seen it.
        drop(unsafe { Box::from_raw(copy.as_ptr()) });
        seen
    }
}

impl<T: Send + Sync + 'static> Drop for Replica<T> {
    fn drop(&mut self) {
        self.word.end(&mut RetireOnDrop::new().0);
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Replica<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        pin(|_| {
            let mut shown = f.debug_struct("Replica");
            if let Some(node) = self.word.find() {
                // SAFETY: as in `load`.
                let value: &Versioned<T> = unsafe { Versioned::of(node) };
                shown.field("version", &value.0.version).field("value", &value.0.value);
            }
            shown.finish_non_exhaustive()
        })
    }
}
