//! The representatives of an object by cluster: a search tree that only grows.
//!
//! Problem: finding the representative of a cluster must take constant time, adding one must not lock out anybody, and a
//! cluster that never called must cost nothing, not even an empty place in an array. Idea: the representatives are the
//! nodes of a four-way tree over the bits of their cluster's number. A node is added by one compare-exchange at the one
//! empty place that its number leads to, so two that race for a cluster meet at the same place and one loses.
//!
//! - I1. A child pointer goes from null to a fully built node, once.
//! - I2. The nodes below child `c` of a node at depth `d` have `c` as the bits `2d` and `2d + 1` of their cluster.
//! - I3. At most one node has a given cluster: its path leads through every place where another could be.
//! - I4. Nodes are freed only all at once, when nobody can reach the root of the tree.
//!
//! Progress: `find` and `walk` are wait-free, `add` is lock-free. Cost: four pointers in each node, at most eight steps
//! to find one, and three for 64 clusters. Source: replaces K42's `replist` and its lock (CO-12), as CO-68 asks.

#[cfg(not(loom))]
use squall_machine::VpSet;
use squall_sys::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use super::object::Object;
use super::sites;

/// What precedes the headers of a representative, wherever it lies.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) object: NonNull<Object>,
}

const WAYS: usize = 4;
const WAY_BITS: u32 = WAYS.trailing_zeros();
/// Clusters are below it: there are no more than VPs.
#[cfg(not(loom))]
const CLUSTERS: usize = VpSet::LIMIT;
/// Of a model.
#[cfg(loom)]
const CLUSTERS: usize = 16;
/// The longest path: every bit of a cluster's number is used up.
const DEPTH: usize = CLUSTERS.trailing_zeros().div_ceil(WAY_BITS) as usize;
/// What a walk remembers at most: the siblings along one path.
const PENDING: usize = DEPTH * (WAYS - 1) + 1;

/// A representative of an object that may have many. Its headers follow, then its value.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Rep {
    children: [AtomicPtr<Rep>; WAYS],
    /// Links those that wait to be dropped on one VP.
    pub(crate) next: AtomicPtr<Rep>,
    /// Who keeps the block: the object, until the value was dropped, and the value's link to the object (`context/I3`).
    keepers: AtomicU32,
    /// The VP that made it.
    pub(crate) vp: u32,
    /// The cluster it serves.
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

    /// The representative whose owner this is.
    ///
    /// # Safety
    /// It is the field of one.
    #[cfg(not(loom))]
    pub(crate) unsafe fn of(owner: NonNull<Owner>) -> NonNull<Rep> {
        // SAFETY: the caller's promise.
        unsafe { owner.byte_sub(std::mem::offset_of!(Rep, owner)).cast() }
    }

    /// One of the two keepers is done with the block. Returns whether the other is, too, so that it can be freed.
    pub(crate) fn let_go(&self) -> bool {
        // AcqRel: pairs with itself: who frees the block sees the other done with it.
        self.keepers.fetch_sub(1, sites::LET_GO.order(Ordering::AcqRel)) == 1
    }

    /// For a model: as [`Header::freed`](super::header::Header::freed).
    #[cfg(all(test, loom))]
    pub(crate) fn freed(&mut self) {
        self.children.iter_mut().for_each(|child| child.with_mut(|_| ()));
        self.next.with_mut(|_| ());
        self.keepers.with_mut(|_| ());
    }
}

/// The root of the tree.
#[derive(Debug)]
pub(crate) struct Reps(AtomicPtr<Rep>);

impl Reps {
    pub(crate) fn new() -> Reps {
        Reps(AtomicPtr::new(ptr::null_mut()))
    }

    /// The representative of `cluster`, if there is one.
    ///
    /// # Safety
    /// The nodes are valid (I4).
    pub(crate) unsafe fn find(&self, cluster: u32) -> Option<NonNull<Rep>> {
        let (mut place, mut bits) = (&self.0, cluster);
        loop {
            // Acquire: pairs with the release in `add`. A node that is seen is fully built.
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

    /// Adds `new`, or returns the one that its cluster has.
    ///
    /// # Safety
    /// 1. The nodes are valid (I4). 2. `new` is fully built, and in no tree.
    pub(crate) unsafe fn add(&self, new: NonNull<Rep>) -> Result<(), NonNull<Rep>> {
        // SAFETY: the caller's second promise.
        let cluster = unsafe { new.as_ref() }.cluster;
        debug_assert!((cluster as usize) < CLUSTERS, "there are no more clusters than VPs");
        let (mut place, mut bits) = (&self.0, cluster);
        loop {
            // Release: pairs with the acquire in `find` and `walk`; acquire on failure, as there.
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

    /// The representatives there are now, in no particular order. Those added meanwhile may be missed.
    #[inline]
    pub(crate) fn walk(&self) -> Walk {
        // Acquire: pairs with the release in `add`.
        let first = self.0.load(sites::REP_LOAD.order(Ordering::Acquire));
        Walk { next: NonNull::new(first), ..Walk::empty() }
    }
}

/// A walk over the tree.
///
/// - I5. The first `count` of `pending` are written.
pub(crate) struct Walk {
    /// Not among those pending, so that nothing of the array is written, and copied, before the walk is where it stays.
    next: Option<NonNull<Rep>>,
    pending: [MaybeUninit<NonNull<Rep>>; PENDING],
    count: usize,
}

impl Walk {
    /// A walk that is over.
    #[inline]
    pub(crate) fn empty() -> Walk {
        Walk { next: None, pending: [const { MaybeUninit::uninit() }; PENDING], count: 0 }
    }

    /// The next one.
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
            // SAFETY: written (I5): it was the last of those that are.
            unsafe { self.pending[last].assume_init() }
        });
        Some(node)
    }
}
