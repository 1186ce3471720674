//! Masters and replicas as safe code has them. How they keep their promise: `raw`.
//!
//! - I1. A replica's word is given nodes by the master that made it alone, whose number it has: a master touches no other's.
//! - I2. What `Dead` holds is retired at the end of each function here that fills it, by a panic too.

use squall_rcu::{Op, op};
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::replica::raw::{self, Copied, Dead, Node, Word};

/// A value and its version: what readers see.
///
/// A master counts its versions from 1; each update adds one.
#[repr(transparent)]
pub struct Versioned<T>(Node<T>);

impl<T> Versioned<T> {
    /// Which version of its master's value this is.
    #[inline(always)]
    pub fn version(this: &Versioned<T>) -> u64 {
        this.0.version
    }

    /// # Safety
    /// It is valid for the life that is asked for.
    #[inline(always)]
    unsafe fn of<'o>(node: NonNull<Node<T>>) -> &'o Versioned<T> {
        // SAFETY: the caller's promise; of the same layout.
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

/// An update that came too late: another was first. The value is given back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Conflict<T> {
    /// What was to be the value.
    pub value: T,
    /// The version that there was instead of the expected one.
    pub version: u64,
}

impl<T> fmt::Display for Conflict<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the value has version {} by now", self.version)
    }
}

impl<T> fmt::Debug for Conflict<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conflict").field("version", &self.version).finish_non_exhaustive()
    }
}

impl<T> std::error::Error for Conflict<T> {}

/// The dead, retired where this ends (I2).
struct Retired<T: Send + Sync + 'static>(Dead<T>);

impl<T: Send + Sync + 'static> Retired<T> {
    fn new() -> Retired<T> {
        Retired(Dead::new())
    }
}

impl<T: Send + Sync + 'static> Drop for Retired<T> {
    fn drop(&mut self) {
        while let Some(node) = self.0.take() {
            // SAFETY: 1. a node is a box, and nobody keeps this one (`raw/I2`). 2. it was taken out of every word before.
            unsafe { squall_rcu::retire_raw(node.as_ptr()) };
        }
    }
}

/// A node that is kept: a counted pointer to a value of a master.
pub struct Kept<T: Send + Sync + 'static>(NonNull<Node<T>>);

// SAFETY: it hands out `&T` to every thread, and drops `T` on any.
unsafe impl<T: Send + Sync> Send for Kept<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Kept<T> {}

impl<T: Send + Sync + 'static> Deref for Kept<T> {
    type Target = Versioned<T>;

    fn deref(&self) -> &Versioned<T> {
        // SAFETY: kept, by this.
        unsafe { Versioned::of(self.0) }
    }
}

impl<T: Send + Sync + 'static> Clone for Kept<T> {
    fn clone(&self) -> Kept<T> {
        // SAFETY: kept, by this.
        unsafe { Node::keep(self.0, 1) };
        Kept(self.0)
    }
}

impl<T: Send + Sync + 'static> Drop for Kept<T> {
    fn drop(&mut self) {
        // SAFETY: the keeper is ours, and in no word.
        unsafe { Retired::new().0.let_go(self.0, 1) };
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&**self).finish()
    }
}

/// The one place that says what the value is. Keep it in a root, and a [`Replica`] in each representative; or alone, as a
/// cell with versions.
///
/// Drawbacks first: an update costs an allocation, a lock, a full fence, two stores to a line of each replica that was read, and
/// a deferred drop, which happens later and maybe on another thread. Each update takes a *walk*: a closure that calls its
/// argument with every replica of this master. A replica that the walk leaves out keeps the value that it has. The walk is made
/// under the master's lock, twice: it shall do nothing else, and must not call the master.
///
/// No poisoning: a closure of the caller's runs under no lock but for the walk, and where one panics the value is the old or
/// the new one.
///
/// # Source
/// TO-04, TO-05; HU-04, HU-16, HU-17. The protocol is in the header of `raw.rs`.
/// # Example
/// ```
/// use crate::replica::{Master, Replica};
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
    /// Which one it is (I1).
    number: u64,
    /// How replicas that have lost their value get it again.
    renewal: Renewal<T>,
}

enum Renewal<T> {
    /// Each update gives them the new node.
    Update,
    /// Whoever reads first fetches it.
    Fetch,
    /// The same, with a copy of its own.
    Copy(fn(&T) -> T),
}

impl<T> Clone for Renewal<T> {
    fn clone(&self) -> Renewal<T> {
        *self
    }
}
impl<T> Copy for Renewal<T> {}

// SAFETY: it hands out `&T` to every thread and moves `T` to whichever thread drops it.
unsafe impl<T: Send + Sync> Send for Master<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Master<T> {}

impl<T: Send + Sync + 'static> Master<T> {
    /// A master of this value, as version 1. An update gives the new value to the replicas.
    pub fn new(value: T) -> Master<T> {
        Master::make(Some(value), Renewal::Update)
    }

    /// The same. An update only takes the old value away from the replicas: each fetches the new one when it is next read
    /// (invalidation, TO-04). Right where updates come in bursts, or many replicas are read seldom.
    pub fn fetched(value: T) -> Master<T> {
        Master::make(Some(value), Renewal::Fetch)
    }

    /// As [`fetched`](Master::fetched), and each replica has a copy of its own, made by its first reader, in memory that is near it. Right where
    /// the value is large, and clusters are far from each other.
    ///
    /// The copy is made in the operation of that read. What copies do not share, as atomics within them, differs.
    pub fn copied(value: T) -> Master<T>
    where
        T: Clone,
    {
        Master::make(Some(value), Renewal::Copy(T::clone))
    }

    /// A master without a value, with replicas as this one's: [`adopt`](Master::adopt) gives it one.
    ///
    /// For objects that are to take the place of another one. To read it before that panics.
    pub fn vacant(&self) -> Master<T> {
        Master::make(None, self.renewal)
    }

    /// The same, as [`new`](Master::new) has them.
    pub fn vacant_updated() -> Master<T> {
        Master::make(None, Renewal::Update)
    }

    /// The same, as [`copied`](Master::copied) has them.
    pub fn vacant_copied() -> Master<T>
    where
        T: Clone,
    {
        Master::make(None, Renewal::Copy(T::clone))
    }

    fn make(value: Option<T>, renewal: Renewal<T>) -> Master<T> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let raw = raw::Master::new(value.map(|value| Node::new(1, value)));
        Master { raw, number, renewal }
    }

    /// Whether it has no value yet.
    pub fn is_vacant(&self) -> bool {
        self.raw.ask().is_none()
    }

    /// A replica of this master, which holds nothing until it is read.
    pub fn replica(&self) -> Replica<T> {
        Replica { word: Word::new(), master: self.number }
    }

    /// The value now, for the rest of the operation, without a replica.
    ///
    /// # Panics
    /// If it is [vacant](Master::vacant).
    /// # Cost
    /// One load. Wait-free; linearizes there.
    #[inline(always)]
    pub fn load<'o>(&self, _op: &'o Op) -> &'o Versioned<T> {
        match self.raw.ask() {
            // SAFETY: it was in the master's word in this operation, so it is not freed before that ends (`raw/I2`).
            Some(node) => unsafe { Versioned::of(node) },
            None => vacant(),
        }
    }

    /// Calls `f` with the value, in an operation.
    ///
    /// # Panics
    /// If it is [vacant](Master::vacant).
    #[inline]
    pub fn read<R>(&self, f: impl FnOnce(&Versioned<T>) -> R) -> R {
        op(|op| f(self.load(op)))
    }

    /// The value, kept beyond the operation. Takes the lock for a moment.
    pub fn keep(&self) -> Option<Kept<T>> {
        self.raw.share().map(Kept)
    }

    /// Replaces the value; returns the version of the new one. `walk` reaches the replicas.
    ///
    /// # Cost
    /// See [`Master`]. Blocks other updates; linearizes at the store to the master's word. When it returns, every read that
    /// begins sees this value or a later one.
    pub fn set(&self, value: T, walk: impl FnMut(&mut dyn FnMut(&Replica<T>))) -> u64 {
        match self.replace(value, |_| true, walk) {
            Ok(version) => version,
            Err(_) => unreachable!("every version was admitted"),
        }
    }

    /// Replaces the value if it is of this version still.
    ///
    /// # Errors
    /// [`Conflict`]: it is of another one, and nothing has changed.
    pub fn compare_and_set(
        &self,
        version: u64,
        value: T,
        walk: impl FnMut(&mut dyn FnMut(&Replica<T>)),
    ) -> Result<u64, Conflict<T>> {
        self.replace(value, |there| there == version, walk)
    }

    /// Replaces the value by what `f` makes of it; calls `f` again when another update was faster. `f` runs under no lock.
    ///
    /// # Panics
    /// If it is [vacant](Master::vacant). If `f` does, nothing has changed.
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
        // Made before the lock is taken, and given its version under it.
        let mut new = Some(Node::new(0, value));
        let mut there = 0;
        let admit = |version| {
            there = version;
            admit(version)
        };
        let take = |version| {
            let mut node = new.take().unwrap_or_else(|| unreachable!("taken once"));
            node.version = version;
            NonNull::from(Box::leak(node))
        };
        let replaced = self.replace_by(admit, take, walk);
        match (replaced, new) {
            (Some(version), _) => Ok(version),
            (None, Some(node)) => Err(Conflict { value: node.value, version: there }),
            (None, None) => unreachable!("nothing was taken"),
        }
    }

    fn replace_by(
        &self,
        admit: impl FnOnce(u64) -> bool,
        new: impl FnOnce(u64) -> NonNull<Node<T>>,
        mut walk: impl FnMut(&mut dyn FnMut(&Replica<T>)),
    ) -> Option<u64> {
        let mut dead = Retired::new();
        let mut walk = |reach: &mut dyn FnMut(&Word<T>)| {
            walk(&mut |replica: &Replica<T>| {
                // Another master's, it is none of ours (I1).
                if replica.master == self.number {
                    reach(&replica.word);
                }
            });
        };
        self.raw.replace(admit, new, &mut walk, matches!(self.renewal, Renewal::Update), &mut dead.0)
    }

    /// Gives a [vacant](Master::vacant) master a value that another one had, with its version. Where it has one, nothing happens, and
    /// the value comes back.
    ///
    /// # Errors
    /// The value: this master has one.
    pub fn adopt(&self, value: Kept<T>) -> Result<(), Kept<T>> {
        let node = value.0;
        let adopted = self.replace_by(|version| version == 0, |_| node, |_| ());
        match adopted {
            // The keeper is the master's now.
            Some(_) => std::mem::forget(value),
            None => return Err(value),
        }
        Ok(())
    }
}

#[cold]
#[inline(never)]
fn vacant() -> ! {
    panic!("a master was read that has no value yet")
}

impl<T: Send + Sync + 'static> Drop for Master<T> {
    fn drop(&mut self) {
        self.raw.end(&mut Retired::new().0);
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Master<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        op(|_| {
            let mut shown = f.debug_struct("Master");
            if let Some(node) = self.raw.ask() {
                // SAFETY: as in `load`.
                let value: &Versioned<T> = unsafe { Versioned::of(node) };
                shown.field("version", &value.0.version).field("value", &value.0.value);
            }
            shown.finish_non_exhaustive()
        })
    }
}

/// Where a cluster reads the value of a [`Master`]. Keep it in a representative.
///
/// Its drop lets go of the value; reads that are under way are not disturbed.
pub struct Replica<T: Send + Sync + 'static> {
    word: Word<T>,
    master: u64,
}

// SAFETY: as for `Master`.
unsafe impl<T: Send + Sync> Send for Replica<T> {}
// SAFETY: as for `Master`.
unsafe impl<T: Send + Sync> Sync for Replica<T> {}

impl<T: Send + Sync + 'static> Replica<T> {
    /// The value now, for the rest of the operation. `master` is the one that made this replica; asked with another, it gives the
    /// value of the one or of the other.
    ///
    /// # Panics
    /// If the master is [vacant](Master::vacant); if it makes [copies](Master::copied), and that panics.
    /// # Cost
    /// One load, of the replica's own word; while an update is under way one of the master's, too. The first read, and with
    /// masters that do not give the value away the first after each update, tries the master's lock once. Wait-free;
    /// linearizes at the load that found the value.
    #[inline(always)]
    pub fn load<'o>(&self, master: &Master<T>, op: &'o Op) -> &'o Versioned<T> {
        match self.word.find() {
            // SAFETY: it was in the word in this operation, so it is not freed before that ends (`raw/I2`).
            Some(node) => unsafe { Versioned::of(node) },
            None => self.fetch(master, op, || ()),
        }
    }

    /// The value that it holds, if it holds one: all that [`load`](Replica::load) does where it does, which is nearly always.
    #[inline(always)]
    pub fn find<'o>(&self, _op: &'o Op) -> Option<&'o Versioned<T>> {
        // SAFETY: as in `load`.
        self.word.find().map(|node| unsafe { Versioned::of(node) })
    }

    /// As [`load`](Replica::load). Where that gives the replica the value, `note` is called, in the same step as far as updates can tell:
    /// it runs under the master's lock, and shall set a bit and no more. So a walk may leave out replicas that are not noted: see
    /// [`Holders`](crate::replica::Holders).
    ///
    /// # Panics
    /// As [`load`](Replica::load).
    #[inline(always)]
    pub fn load_noting<'o>(&self, master: &Master<T>, op: &'o Op, note: impl FnOnce()) -> &'o Versioned<T> {
        match self.word.find() {
            // SAFETY: as in `load`.
            Some(node) => unsafe { Versioned::of(node) },
            None => self.fetch(master, op, note),
        }
    }

    /// Whether it holds a value. For counts: it may change at once.
    pub fn is_filled(&self) -> bool {
        self.word.find().is_some()
    }

    /// As [`load`](Replica::load), but leaves the replica as it is: takes no lock, and copies nothing. For who wants the version.
    ///
    /// # Panics
    /// If the master is [vacant](Master::vacant).
    /// # Cost
    /// One load, or two: of the replica's own word, and of the master's where that holds nothing. Wait-free; linearizes at the
    /// load that found the value.
    #[inline]
    pub fn peek<'o>(&self, master: &Master<T>, op: &'o Op) -> &'o Versioned<T> {
        match self.word.find() {
            // SAFETY: as in `load`.
            Some(node) => unsafe { Versioned::of(node) },
            None => master.load(op),
        }
    }

    /// Calls `f` with the value, in an operation.
    ///
    /// # Panics
    /// As [`load`](Replica::load).
    #[inline(always)]
    pub fn read<R>(&self, master: &Master<T>, f: impl FnOnce(&Versioned<T>) -> R) -> R {
        op(|op| f(self.load(master, op)))
    }

    #[cold]
    #[inline(never)]
    fn fetch<'o>(&self, master: &Master<T>, op: &'o Op, note: impl FnOnce()) -> &'o Versioned<T> {
        let seen = master.load(op);
        // An update is under way, or a neighbour is at it: for this time the master's will do.
        if self.master != master.number || master.raw.is_busy() {
            return seen;
        }
        let Renewal::Copy(copy) = master.renewal else {
            master.raw.attach(&self.word, None, note);
            return seen;
        };
        let original = NonNull::from(&seen.0);
        let copy = Box::into_raw(Node::new(seen.0.version, copy(seen)));
        // SAFETY: from a box.
        let copy = unsafe { NonNull::new_unchecked(copy) };
        if master.raw.attach(&self.word, Some(Copied { copy, original }), note) {
            // SAFETY: the word's by now, and was in it in this operation.
            return unsafe { Versioned::of(copy) };
        }
        // SAFETY: from a box above, and nobody else has seen it.
        drop(unsafe { Box::from_raw(copy.as_ptr()) });
        seen
    }
}

impl<T: Send + Sync + 'static> Drop for Replica<T> {
    fn drop(&mut self) {
        self.word.end(&mut Retired::new().0);
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Replica<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        op(|_| {
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
