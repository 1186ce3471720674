//! The representatives of an object by cluster: a search tree that only grows.
//!
//! Problem: finding the representative of a cluster must take constant time. Adding one must not lock out
//! other threads. A cluster that never called must cost no memory, not even an empty place in an array.
//!
//! Idea: the representatives are the nodes of a four-way tree over the bits of their cluster's number. One
//! compare-exchange adds a node, at the only empty place that its number leads to. So two threads that race
//! for a cluster meet at one place, and one of them loses.
//!
//! - I1. A child pointer goes from null to a fully built node, once.
//! - I2. The nodes below child `c` of a node at depth `d` have `c` as the bits `2d` and `2d + 1` of their
//!   cluster.
//! - I3. At most one node has a given cluster: its path leads through every place where another could be.
//! - I4. Nodes are freed only all at once, when no thread can reach the root of the tree.
//!
//! Progress: `find` and `walk` are wait-free, `add` is lock-free.
//!
//! Cost: four pointers in each node. Finding a node takes at most eight steps, and three for 64 clusters.
//!
//! Source: Appavoo 2005, *Clustered Objects*, §5.3.1 and §5.4.1 (CO-12, CO-68). The tree replaces K42's
//! `replist` and its lock.

#[cfg(not(loom))]
use squall_machine::VpSet;
use squall_sys::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use super::object::Object;
use super::sites;

/// The words in front of the headers of every representative.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) object: NonNull<Object>,
}

const WAYS: usize = 4;
const WAY_BITS: u32 = WAYS.trailing_zeros();
/// Exclusive upper bound of cluster numbers: there are no more clusters than VPs.
#[cfg(not(loom))]
const CLUSTERS: usize = VpSet::LIMIT;
/// Exclusive upper bound of cluster numbers in a model.
#[cfg(loom)]
const CLUSTERS: usize = 16;
/// The longest path: it uses all bits of a cluster's number.
const DEPTH: usize = CLUSTERS.trailing_zeros().div_ceil(WAY_BITS) as usize;
/// The most nodes that a walk has pending: the siblings along one path.
const PENDING: usize = DEPTH * (WAYS - 1) + 1;

/// A representative of a distributed object. Its headers follow in memory, then its value.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Rep {
    children: [AtomicPtr<Rep>; WAYS],
    /// Link in the drop queue of one VP.
    pub(crate) next: AtomicPtr<Rep>,
    /// Keepers of the block: the object, until the value was dropped, and the value's link to the object
    /// (`context/I3`).
    keepers: AtomicU32,
    /// The VP for which it was made.
    pub(crate) vp: u32,
    /// The cluster that it serves.
    pub(crate) cluster: u32,
    pub(crate) owner: Owner,
}

impl Rep {
    pub(crate) fn new(object: NonNull<Object>, vp: u32, cluster: u32) -> Rep {
        Rep {
            children: [const { ptr::null_mut() }; WAYS].map(AtomicPtr::new),
            next: AtomicPtr::new(ptr::null_mut()),
            keepers: AtomicU32::new(2),
            vp,
            cluster,
            owner: Owner { object },
        }
    }

    /// Returns the representative that `owner` is a field of.
    ///
    /// # Safety
    /// `owner` is a field of a `Rep`.
    #[cfg(not(loom))]
    pub(crate) unsafe fn of(owner: NonNull<Owner>) -> NonNull<Rep> {
        // SAFETY: the caller's promise.
        unsafe { owner.byte_sub(std::mem::offset_of!(Rep, owner)).cast() }
    }

    /// Removes one of the two keepers. Returns whether the other one is gone too, so that the caller frees
    /// the block.
    pub(crate) fn remove_keeper(&self) -> bool {
        // AcqRel: pairs with itself: the thread that frees the block sees the other keeper done with it.
        self.keepers.fetch_sub(1, sites::LET_GO.order(Ordering::AcqRel)) == 1
    }

    /// For a model: marks the memory as freed, like [`Header::freed`](super::header::Header::freed).
    #[cfg(all(test, loom))]
    pub(crate) fn freed(&mut self) {
        self.children.iter_mut().for_each(|child| child.with_mut(|_| ()));
        self.next.with_mut(|_| ());
        self.keepers.with_mut(|_| ());
    }
}

/// The tree of representatives.
#[derive(Debug)]
pub(crate) struct Reps(AtomicPtr<Rep>);

impl Reps {
    pub(crate) fn new() -> Reps {
        Reps(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the representative of `cluster`, if there is one.
    ///
    /// # Safety
    /// The nodes are valid (I4).
    pub(crate) unsafe fn find(&self, cluster: u32) -> Option<NonNull<Rep>> {
        let (mut place, mut bits) = (&self.0, cluster);
        loop {
            // Acquire: pairs with the release in `add`: a node that is seen is fully built.
            let node = NonNull::new(place.load(sites::REP_LOAD.order(Ordering::Acquire)))?;
            // SAFETY: the caller's promise.
            let rep = unsafe { node.as_ref() };
            if rep.cluster == cluster {
                return Some(node);
            }
            place = &rep.children[bits as usize % WAYS];
            bits >>= WAY_BITS;
        }
    }

    /// Adds `new`, or returns the representative that its cluster already has.
    ///
    /// # Safety
    /// 1. The nodes are valid (I4). 2. `new` is fully built, and in no tree.
    pub(crate) unsafe fn add(&self, new: NonNull<Rep>) -> Result<(), NonNull<Rep>> {
        // SAFETY: the caller's second promise.
        let cluster = unsafe { new.as_ref() }.cluster;
        debug_assert!(
            (cluster as usize) < CLUSTERS,
            "cluster {cluster} does not exist: there are {CLUSTERS}"
        );
        let (mut place, mut bits) = (&self.0, cluster);
        loop {
            // Release: pairs with the acquire in `find` and `walk`. Acquire on failure, as in `find`.
            let added = place.compare_exchange(
                ptr::null_mut(),
                new.as_ptr(),
                sites::REP_STORE.order(Ordering::Release),
                sites::REP_LOAD.order(Ordering::Acquire),
            );
            let Some(node) = added.err().and_then(NonNull::new) else { return Ok(()) };
            // SAFETY: the caller's first promise.
            let rep = unsafe { node.as_ref() };
            if rep.cluster == cluster {
                return Err(node);
            }
            place = &rep.children[bits as usize % WAYS];
            bits >>= WAY_BITS;
        }
    }

    /// Walks the current representatives, in no particular order. A representative that is added during the
    /// walk may be missed.
    #[inline]
    pub(crate) fn walk(&self) -> Walk {
        // Acquire: pairs with the release in `add`.
        let first = self.0.load(sites::REP_LOAD.order(Ordering::Acquire));
        Walk { next: NonNull::new(first), ..Walk::empty() }
    }
}

/// A walk over the tree.
///
/// - I5. The first `count` of `pending` are initialised.
pub(crate) struct Walk {
    /// Kept outside `pending`, so that the array is still unwritten when the walk moves to its final place.
    next: Option<NonNull<Rep>>,
    pending: [MaybeUninit<NonNull<Rep>>; PENDING],
    count: usize,
}

impl Walk {
    /// An empty walk.
    #[inline]
    pub(crate) fn empty() -> Walk {
        Walk { next: None, pending: [const { MaybeUninit::uninit() }; PENDING], count: 0 }
    }

    /// Returns the next representative.
    ///
    /// # Safety
    /// The nodes are valid (`reps/I4`).
    #[inline]
    pub(crate) unsafe fn step(&mut self) -> Option<NonNull<Rep>> {
        let node = self.next?;
        // SAFETY: the caller's promise.
        let rep = unsafe { node.as_ref() };
        for child in &rep.children {
            // Acquire: pairs with the release in `add`.
            if let Some(child) = NonNull::new(child.load(sites::REP_LOAD.order(Ordering::Acquire))) {
                self.pending[self.count].write(child);
                self.count += 1;
            }
        }
        self.next = self.count.checked_sub(1).map(|last| {
            self.count = last;
            // SAFETY: initialised (I5): it was the last of the first `count`.
            unsafe { self.pending[last].assume_init() }
        });
        Some(node)
    }
}
