//! The link from a representative to its root and its peers.
//!
//! Problem: `RepContext` is an ordinary value; its author could move it out of the representative and use it from anywhere, when
//! the peers are long gone. Idea: what reaches peers answers only where the `RepContext` lies *inside* its representative.
//! Whoever can borrow it there is inside a call of the object, or in its drop, which the object knows; so the peers are
//! valid as long as the borrow. The check is a comparison of addresses.
//!
//! - I1. A borrow of a representative's field exists only within an operation or a hold in which the representative was
//!   found, within a borrow of a peer of the same object that began so, or in the representative's drop. RepIter are
//!   freed only after all of the first two have ended, and the object is closed before the third.
//! - I2. An `RepContext` is a link (`distributed/I4`): the root is valid as long as it.
//! - I3. The block of a representative is not freed while the `RepContext` made for it exists, wherever that was moved; so an `RepContext`
//!   that lies in a block of that address lies in its own.
//!
//! Source: CO-15, CO-68; `freeze` is `lockReps`, with CO-16 checked while it runs.

use squall_machine::{Cluster, Clusters, Vp, VpSet};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::time::Duration;

use crate::call::frames::{has_gone_on, shall_begin_again};
use crate::call::handle::Handle;
use crate::object::distributed::{Multi, drop_link, ground};
use crate::object::gather;
use crate::object::root::{Bound, Root};
use crate::protocol::miss::InFlight;
use crate::protocol::platform::Platform;
use crate::protocol::reps::{Rep, Walk};

/// A representative's link to its root and its peers: keep it in a field of the representative.
///
/// As long as it exists, its root is not dropped, and the object's id is not used again unless the object was swapped for
/// another one, which then has the id; one that is moved out of its
/// representative and kept, or kept in the root itself, keeps them for ever.
///
/// [`root`](RepContext::root) and [`co`](RepContext::co) answer everywhere. The others answer only while the link lies in its own
/// representative, directly or in a field of a field, but not behind a `Box`; elsewhere they panic. In the
/// representative's drop there are no peers any more.
pub struct RepContext<R: Root> {
    object: NonNull<Multi<R>>,
    rep: NonNull<Rep>,
    vp: Vp,
    cluster: Cluster,
    // Invariant in `R`, as its types must be those of the object's class.
    class: PhantomData<fn(R) -> R>,
}

// SAFETY: 1. What it leads to is shared among threads: roots and representatives are `Send + Sync`. 2. Whichever thread
// drops the last link drops the root, which is `Send`.
unsafe impl<R: Root> Send for RepContext<R> {}
// SAFETY: as above.
unsafe impl<R: Root> Sync for RepContext<R> {}

/// The object has ended while a method of it slept, or the call is to be made again (see [`RepContext::sleep_until`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the object was destroyed or swapped while a method of it waited")
    }
}

impl std::error::Error for Interrupted {}

impl<R: Root> RepContext<R> {
    /// The caller has taken the link.
    pub(crate) fn new(
        object: NonNull<Multi<R>>,
        rep: NonNull<Rep>,
        vp: Vp,
        cluster: Cluster,
    ) -> RepContext<R> {
        RepContext { object, rep, vp, cluster, class: PhantomData }
    }

    #[inline(always)]
    fn multi(&self) -> &Multi<R> {
        // SAFETY: a link keeps it (I2).
        unsafe { self.object.as_ref() }
    }

    /// The root.
    #[inline(always)]
    pub fn root(&self) -> &R {
        &self.multi().root
    }

    /// The VP for which this representative was made: the one that missed first, or the first of its cluster if it was made
    /// ahead of a call.
    #[inline(always)]
    pub fn vp(&self) -> Vp {
        self.vp
    }

    /// The cluster that this representative serves.
    #[inline(always)]
    pub fn cluster(&self) -> Cluster {
        self.cluster
    }

    /// The clusters of this object's size.
    pub fn clusters(&self) -> &Clusters {
        self.multi().clusters()
    }

    /// The pool for what belongs to this representative and lies outside it: strictly local memory of its VP, or lines near it where its
    /// cluster has several. In [`Root::make_rep`]: `at.pool().bytes(4096, 0)`.
    ///
    /// Small blocks of it are packed with those of other objects' representatives of this VP: what other VPs read, too, is to be aligned to
    /// a line of 64 bytes. It errs where the pools have no memory, whatever the program's allocator has. In builds with sanitizers what it
    /// gives is not watched: it never comes from the program's allocator.
    pub fn pool(&self) -> squall_alloc::Arena {
        crate::protocol::memory::pool(self.clusters(), self.cluster, self.vp)
    }

    /// A reference to the object itself.
    pub fn co(&self) -> Handle<R::Interface> {
        // The object's id is that of the root's interface (handle/I1).
        Handle::new(self.multi().object().id)
    }

    /// The VPs on which a call ever missed.
    pub fn translation_set(&self) -> VpSet {
        self.multi().object().translations(ground().vp_limit())
    }

    /// Whether the object has been destroyed, so that new calls err.
    pub fn is_ending(&self) -> bool {
        self.multi().object().gate.is_dead()
    }

    /// Whether this lies in its representative, and there are peers (I1).
    #[inline(always)]
    #[track_caller]
    fn has_peers(&self) -> bool {
        // First: a representative that is dropped may have been moved (`Root::cleanup`).
        if self.multi().object().is_closed() {
            return false;
        }
        let begin = self.rep.addr().get() + Multi::<R>::VALUE_AT;
        let here = std::ptr::from_ref(self).addr();
        if here.wrapping_sub(begin) >= size_of::<R::Rep>() {
            misplaced(std::any::type_name::<R>());
        }
        true
    }

    /// A walk over the representatives, if there are `peers`.
    #[inline]
    fn walk(&self, peers: bool) -> Walk {
        if peers { self.multi().reps.walk() } else { Walk::empty() }
    }

    /// The representatives there are now, each with its cluster.
    #[inline]
    #[track_caller]
    fn by_cluster(&self) -> impl Iterator<Item = (Cluster, &R::Rep)> {
        let mut walk = self.walk(self.has_peers());
        std::iter::from_fn(move || {
            // SAFETY: peers are valid as long as the borrow of this (I1).
            unsafe {
                let rep = walk.step()?;
                Some((Cluster::new(rep.as_ref().cluster), Multi::<R>::value(rep).as_ref()))
            }
        })
    }

    /// The representatives there are now, in no particular order; those made meanwhile may be missed.
    ///
    /// # Panics
    /// If this link was moved out of its representative.
    /// # Cost
    /// In proportion to the representatives. Wait-free.
    #[track_caller]
    pub fn reps(&self) -> RepIter<'_, R> {
        RepIter { walk: self.walk(self.has_peers()), life: PhantomData }
    }

    /// The representative of the cluster of `vp`, if it has one.
    ///
    /// # Panics
    /// If this link was moved out of its representative.
    /// # Cost
    /// Constant: one step for each two bits of the cluster's number at most. Wait-free.
    #[track_caller]
    pub fn find(&self, vp: Vp) -> Option<&R::Rep> {
        let cluster = self.clusters().get(vp)?;
        self.of_cluster(cluster)
    }

    /// The representative of a cluster, if it has one.
    ///
    /// # Panics
    /// If this link was moved out of its representative.
    #[track_caller]
    pub fn of_cluster(&self, cluster: Cluster) -> Option<&R::Rep> {
        if !self.has_peers() {
            return None;
        }
        let rep = self.multi().find(cluster)?;
        // SAFETY: a peer, valid as long as this borrow (I1).
        Some(unsafe { Multi::<R>::value(rep).as_ref() })
    }

    /// The representative of the caller's cluster, made now if it has none; where the object is ending, perhaps this one.
    ///
    /// # Panics
    /// If this link was moved out of its representative; in the representative's drop; if `make_rep` does.
    #[track_caller]
    pub fn local(&self) -> &R::Rep {
        let here = Vp::current();
        assert!(
            self.has_peers(),
            "{}: local was called when its representatives are dropped",
            std::any::type_name::<R>()
        );
        if let Some(rep) = self.find(here) {
            return rep;
        }
        // SAFETY: within a call of the object (I1), which is not closed, so that this representative is whole, too.
        let rep = match unsafe { InFlight::inside(ground(), self.object.cast(), 0) } {
            Some(_in_flight) => Multi::find_or_make(self.object, self.clusters().cluster_of(here), here),
            None => self.rep,
        };
        // SAFETY: a peer, or the one that this lies in.
        unsafe { Multi::<R>::value(rep).as_ref() }
    }

    /// Runs `f` with the representatives, while none is added: exactly those there are.
    ///
    /// A miss that needs a new one waits meanwhile, inside its operation. So `f` must not wait for a thread that may
    /// call this object, nor call it itself where there is no representative: the latter panics. `f` runs inside an
    /// operation, where waiting for a grace period is an error. Freezes that overlap without end hold up such a miss for ever.
    ///
    /// # Panics
    /// If this link was moved out of its representative.
    /// # Source
    /// `lockReps` and its rule: CO-15, CO-16.
    #[track_caller]
    pub fn freeze<T>(&self, f: impl FnOnce(RepIter<'_, R>) -> T) -> T {
        let peers = self.has_peers();
        self.multi().frozen(|| f(RepIter { walk: self.walk(peers), life: PhantomData }))
    }

    /// Combines a value of each representative up the tree of clusters: those of one core first, then of one cache, and
    /// so on. `None` in the drop of the last.
    ///
    /// `map` is called in the order of [`broadcast`](RepContext::broadcast), and `combine` as soon as it has both its values: the
    /// sum of a cluster so far, and the value of the next part of that cluster. The representatives are those that
    /// [`reps`](RepContext::reps) would give when it begins. Where clusters are of a size that is no level of the machine
    /// (`ClusterSize::Fixed`) there is no tree, and all are combined in one level.
    ///
    /// # Panics
    /// If this link was moved out of its representative.
    /// # Cost
    /// In proportion to the representatives, each of which is visited twice, and 4 KiB of stack. Where there are more than
    /// 512 clusters of this object's size, the representatives are sorted in a vector. Wait-free but for that.
    #[track_caller]
    pub fn gather<T>(&self, map: impl FnMut(&R::Rep) -> T, combine: impl FnMut(T, T) -> T) -> Option<T> {
        gather::gather(self.clusters(), self.by_cluster(), map, combine)
    }

    /// Calls `f` with each representative, down the tree of clusters: neighbours one after the other. The representatives
    /// are those that [`reps`](RepContext::reps) would give when it begins.
    ///
    /// # Panics
    /// If this link was moved out of its representative.
    /// # Cost
    /// As for [`gather`](RepContext::gather).
    #[track_caller]
    pub fn broadcast(&self, f: impl FnMut(&R::Rep)) {
        gather::broadcast(self.clusters(), self.by_cluster(), f);
    }

    /// Sleeps until `ready` gives something, or the object ends. For methods marked `#[blocking]`.
    ///
    /// `ready` is asked at once, and after each [`wake`](RepContext::wake) by any representative of this object; what changes
    /// without a wake is not noticed.
    ///
    /// # Errors
    /// [`Interrupted`]: the object was destroyed, or this is the child of a fork; or it is being swapped, and the swap waits for this
    /// call. Return soon, and leave the object as if the method had not begun: in the last case what the method returns is
    /// thrown away, and the call is made again on what serves then. That is done where every argument of the method is
    /// `Copy`; calls of other methods sleep on, and hold up a swap until it gives up.
    /// # Panics
    /// Inside an operation, where nothing may sleep.
    pub fn sleep_until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> Result<T, Interrupted> {
        assert!(
            !squall_rcu::in_operation(),
            "a method of {} slept inside an operation: mark it #[blocking], and call it from outside",
            std::any::type_name::<R>(),
        );
        let sleepers = &self.multi().sleepers;
        loop {
            let seen = sleepers.prepare();
            if let Some(result) = ready() {
                has_gone_on(self.object.cast());
                return Ok(result);
            }
            if self.is_ending() || squall_sys::fork::forked() {
                return Err(Interrupted);
            }
            // SAFETY: the representative is held, by the call that is here.
            if unsafe { Multi::<R>::is_waited_for(self.rep) } && shall_begin_again(self.object.cast()) {
                return Err(Interrupted);
            }
            sleepers.wait(seen, None::<Duration>);
        }
    }

    /// Wakes every method of this object that sleeps.
    pub fn wake(&self) {
        self.multi().sleepers.signal(u32::MAX);
    }
}

#[cold]
#[track_caller]
fn misplaced(class: &str) -> ! {
    panic!(
        "an At of {class} answers only inside its representative: keep it in a field, not in a Box or elsewhere"
    )
}

impl<R: Root> Drop for RepContext<R> {
    fn drop(&mut self) {
        // SAFETY: this is one of the block's keepers, and uses it no more.
        unsafe { Multi::<R>::let_go(self.rep) };
        drop_link(self.object);
    }
}

impl<R: Root> fmt::Debug for RepContext<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("At").field("object", &self.co()).field("vp", &self.vp).finish_non_exhaustive()
    }
}

/// The representatives of an object, one after the other.
pub struct RepIter<'a, R: Root> {
    walk: Walk,
    life: Bound<'a, R>,
}

impl<'a, R: Root> Iterator for RepIter<'a, R> {
    type Item = &'a R::Rep;

    #[inline]
    fn next(&mut self) -> Option<&'a R::Rep> {
        // SAFETY: peers are valid as long as the borrow of the `RepContext` (I1).
        unsafe {
            let rep = self.walk.step()?;
            Some(Multi::<R>::value(rep).as_ref())
        }
    }
}

impl<R: Root> fmt::Debug for RepIter<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").finish_non_exhaustive()
    }
}
