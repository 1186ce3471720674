//! The access of a representative to its root and its peers.
//!
//! Problem: a `RepContext` is an ordinary value. Its author could move it out of the representative and use
//! it when the peers are freed. Idea: methods that reach peers work only while the `RepContext` lies *inside*
//! its representative. Code that can borrow it there runs in a call of the object, or in the representative's
//! drop. The object is closed before that drop. So the peers are valid as long as the borrow. The check
//! compares two addresses.
//!
//! - I1. A borrow of a representative's field exists only in three situations: within an operation or a hold
//!   in which the representative was found; within a borrow of a peer of the same object that began so; or in
//!   the representative's drop. Peers are freed only after all of the first two have ended, and the object is
//!   closed before the third.
//! - I2. A `RepContext` is a link (`distributed/I4`): the root is valid as long as it exists.
//! - I3. The block of a representative is not freed while its `RepContext` exists, wherever the author moved
//!   it. So a `RepContext` that lies in a block of that address lies in its own.
//!
//! Source: CO-15, CO-68. `freeze` is K42's `lockReps`, and checks CO-16 while it runs.

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

/// A representative's access to its root and its peers. Keep it in a field of the representative.
///
/// The root is dropped only after the last `RepContext`. Until then the object's id is not used again, unless
/// a swap gave it to another object. A `RepContext` that is moved out of its representative and kept, or kept
/// in the root itself, keeps both forever.
///
/// [`root`](RepContext::root) and [`handle`](RepContext::handle) work everywhere. The methods that reach
/// peers work only while the value lies in its own representative: directly or in a field of a field, but not
/// behind a `Box`. Elsewhere they panic. In the representative's drop there are no peers.
///
/// ```
/// use squall::{ClusterSize, RepContext, Root};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// #[squall::interface]
/// trait Counter: Send + Sync {
///     fn add(&self, n: u64);
///     fn get(&self) -> u64;
/// }
///
/// struct Spread;
/// struct Local {
///     context: RepContext<Spread>,
///     count: AtomicU64,
/// }
/// impl Root for Spread {
///     type Interface = dyn Counter;
///     type Rep = Local;
///     fn make_rep(&self, context: RepContext<Spread>) -> Local {
///         Local { context, count: AtomicU64::new(0) }
///     }
/// }
/// impl Counter for Local {
///     fn add(&self, n: u64) {
///         self.count.fetch_add(n, Relaxed);
///     }
///     fn get(&self) -> u64 {
///         self.context.reps().map(|rep| rep.count.load(Relaxed)).sum()
///     }
/// }
///
/// let counter = Spread.create(ClusterSize::Cpu);
/// counter.add(3);
/// assert_eq!(counter.get(), 3);
/// ```
pub struct RepContext<R: Root> {
    object: NonNull<Multi<R>>,
    rep: NonNull<Rep>,
    vp: Vp,
    cluster: Cluster,
    // Invariant in `R`, since its types must be those of the object's class.
    class: PhantomData<fn(R) -> R>,
}

// SAFETY: 1. Roots and representatives are shared among threads: they are `Send + Sync`. 2. The thread that
// drops the last link drops the root, which is `Send`.
unsafe impl<R: Root> Send for RepContext<R> {}
// SAFETY: for the same reasons as `Send`.
unsafe impl<R: Root> Sync for RepContext<R> {}

/// The error of a sleeping method whose object was destroyed, or whose call must be repeated. See
/// [`RepContext::sleep_until`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the object was destroyed or swapped while a method of it waited; return from the method")
    }
}

impl std::error::Error for Interrupted {}

impl<R: Root> RepContext<R> {
    /// Makes the context. The caller has taken the link.
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

    /// Returns the root.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::{RepContext, Root};
    ///
    /// fn root_of(context: &RepContext<Spread>) -> &Spread {
    ///     context.root()
    /// }
    /// ```
    #[inline(always)]
    pub fn root(&self) -> &R {
        &self.multi().root
    }

    /// Returns the VP for which this representative was made: the VP on which a call missed first. If no call
    /// had missed yet, returns the first VP of the cluster.
    #[inline(always)]
    pub fn vp(&self) -> Vp {
        self.vp
    }

    /// Returns the cluster that this representative serves.
    #[inline(always)]
    pub fn cluster(&self) -> Cluster {
        self.cluster
    }

    /// Returns the set of clusters of this object's size.
    pub fn clusters(&self) -> &Clusters {
        self.multi().clusters()
    }

    /// Returns the arena for memory that belongs to this representative and lies outside it. It gives
    /// strictly local memory of the VP, or cache lines near it if the cluster has several VPs. In
    /// [`Root::make_rep`]: `context.pool().bytes(4096, 0)`.
    ///
    /// The arena packs small blocks together with blocks of other objects' representatives on this VP. Align
    /// data that other VPs read to a cache line of 64 bytes. An allocation fails when the arenas are out of
    /// memory, even if the program's allocator is not. Builds with sanitizers do not check this memory,
    /// because it never comes from the program's allocator.
    pub fn pool(&self) -> squall_alloc::Arena {
        crate::protocol::memory::pool(self.clusters(), self.cluster, self.vp)
    }

    /// Returns a handle to the object itself.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::{Handle, RepContext};
    ///
    /// fn id_of(context: &RepContext<Spread>) -> squall::Id {
    ///     Handle::id(context.handle())
    /// }
    /// ```
    pub fn handle(&self) -> Handle<R::Interface> {
        // The object's id is that of the root's interface (handle/I1).
        Handle::new(self.multi().object().id)
    }

    /// Returns the VPs on which a call has ever missed.
    pub fn translation_set(&self) -> VpSet {
        self.multi().object().translations(ground().vp_limit())
    }

    /// Whether the object was destroyed, so that new calls fail.
    pub fn is_ending(&self) -> bool {
        self.multi().object().gate.is_dead()
    }

    /// Whether peers may be reached (I1). Panics if this value lies outside its representative.
    #[inline(always)]
    #[track_caller]
    fn has_peers(&self) -> bool {
        // Tested first: a representative that is being dropped may have been moved (`Root::cleanup`).
        if self.multi().object().is_closed() {
            return false;
        }
        let begin = self.rep.addr().get() + Multi::<R>::VALUE_AT;
        let here = std::ptr::from_ref(self).addr();
        if here.wrapping_sub(begin) >= size_of::<R::Rep>() {
            misplaced(R::class_name());
        }
        true
    }

    /// Starts a walk over the representatives; an empty one unless there are `peers`.
    #[inline]
    fn walk(&self, peers: bool) -> Walk {
        if peers { self.multi().reps.walk() } else { Walk::empty() }
    }

    /// Iterates over the current representatives, each with its cluster.
    #[inline]
    #[track_caller]
    fn by_cluster(&self) -> impl Iterator<Item = (Cluster, &R::Rep)> {
        let mut walk = self.walk(self.has_peers());
        std::iter::from_fn(move || {
            // SAFETY: peers are valid as long as the borrow of this value (I1).
            unsafe {
                let rep = walk.step()?;
                Some((Cluster::new(rep.as_ref().cluster), Multi::<R>::value(rep).as_ref()))
            }
        })
    }

    /// Iterates over the current representatives, in no particular order. It may miss representatives that
    /// are made during the iteration.
    ///
    /// # Panics
    /// If this value was moved out of its representative.
    /// # Cost
    /// Proportional to the representatives. Wait-free.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::RepContext;
    /// use std::sync::atomic::Ordering::Relaxed;
    ///
    /// fn total(context: &RepContext<Spread>) -> u64 {
    ///     context.reps().map(|rep| rep.count.load(Relaxed)).sum()
    /// }
    /// ```
    #[track_caller]
    pub fn reps(&self) -> RepIter<'_, R> {
        RepIter { walk: self.walk(self.has_peers()), life: PhantomData }
    }

    /// Returns the representative of the cluster of `vp`, if there is one.
    ///
    /// # Panics
    /// If this value was moved out of its representative.
    /// # Cost
    /// Constant: at most one step for each two bits of the cluster's number. Wait-free.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::{RepContext, Vp};
    ///
    /// fn is_local(context: &RepContext<Spread>) -> bool {
    ///     context.find(Vp::current()).is_some_and(|rep| rep.context.cluster() == context.cluster())
    /// }
    /// ```
    #[track_caller]
    pub fn find(&self, vp: Vp) -> Option<&R::Rep> {
        let cluster = self.clusters().get(vp)?;
        self.of_cluster(cluster)
    }

    /// Returns the representative of a cluster, if there is one.
    ///
    /// # Panics
    /// If this value was moved out of its representative.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::RepContext;
    /// use std::sync::atomic::Ordering::Relaxed;
    ///
    /// fn count_of(context: &RepContext<Spread>, cluster: squall::Cluster) -> u64 {
    ///     context.of_cluster(cluster).map_or(0, |rep| rep.count.load(Relaxed))
    /// }
    /// ```
    #[track_caller]
    pub fn of_cluster(&self, cluster: Cluster) -> Option<&R::Rep> {
        if !self.has_peers() {
            return None;
        }
        let rep = self.multi().find(cluster)?;
        // SAFETY: a peer, valid as long as this borrow (I1).
        Some(unsafe { Multi::<R>::value(rep).as_ref() })
    }

    /// Returns the representative of the caller's cluster; makes it if there is none yet. If the object was
    /// destroyed, it may return the representative of this value instead.
    ///
    /// # Panics
    /// If this value was moved out of its representative; in the representative's drop; if `make_rep` panics.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::RepContext;
    ///
    /// fn add_here(context: &RepContext<Spread>, n: u64) {
    ///     context.local().add(n);
    /// }
    /// ```
    #[track_caller]
    pub fn local(&self) -> &R::Rep {
        let here = Vp::current();
        assert!(
            self.has_peers(),
            "{}: `local` was called while its representatives are being dropped",
            R::class_name()
        );
        if let Some(rep) = self.find(here) {
            return rep;
        }
        // SAFETY: within a call of the object (I1), which is not closed; so this representative is whole.
        let rep = match unsafe { InFlight::inside(ground(), self.object.cast(), 0) } {
            Some(_in_flight) => Multi::find_or_make(self.object, self.clusters().cluster_of(here), here),
            None => self.rep,
        };
        // SAFETY: a peer, or the representative in which this value lies.
        unsafe { Multi::<R>::value(rep).as_ref() }
    }

    /// Runs `f` with exactly the current representatives. Meanwhile no representative is added.
    ///
    /// A miss that needs a new representative waits inside its operation until `f` returns. So `f` must not
    /// wait for a thread that may call this object. If `f` calls the object on a VP whose cluster has no
    /// representative, the call panics. `f` runs inside an operation, where waiting for a grace period is an
    /// error. If freezes overlap without end, such a miss starves.
    ///
    /// # Panics
    /// If this value was moved out of its representative.
    /// # Source
    /// `lockReps` and its rule: CO-15, CO-16.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::RepContext;
    /// use std::sync::atomic::Ordering::Relaxed;
    ///
    /// fn exact_total(context: &RepContext<Spread>) -> u64 {
    ///     context.freeze(|reps| reps.map(|rep| rep.count.load(Relaxed)).sum())
    /// }
    /// ```
    #[track_caller]
    pub fn freeze<T>(&self, f: impl FnOnce(RepIter<'_, R>) -> T) -> T {
        let peers = self.has_peers();
        self.multi().frozen(|| f(RepIter { walk: self.walk(peers), life: PhantomData }))
    }

    /// Combines one value of each representative up the tree of clusters: first those of one core, then of
    /// one cache, and so on. Returns `None` if there are no representatives, as in the drop of the last one.
    ///
    /// `map` is called in the order of [`broadcast`](RepContext::broadcast). `combine` is called as soon as
    /// both its values exist: the sum of a cluster so far, and the value of the next part of that cluster.
    /// The representatives are those that [`reps`](RepContext::reps) would return at the beginning. For
    /// clusters of [`ClusterSize::Fixed`](squall_machine::ClusterSize) there is no tree, and all values are
    /// combined in one level.
    ///
    /// # Panics
    /// If this value was moved out of its representative.
    /// # Cost
    /// Proportional to the representatives, each of which is visited twice, and 4 KiB of stack. Wait-free. If
    /// the object has more than 512 clusters, the representatives are sorted in a vector instead.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::RepContext;
    /// use std::sync::atomic::Ordering::Relaxed;
    ///
    /// fn greatest(context: &RepContext<Spread>) -> Option<u64> {
    ///     context.gather(|rep| rep.count.load(Relaxed), u64::max)
    /// }
    /// ```
    #[track_caller]
    pub fn gather<T>(&self, map: impl FnMut(&R::Rep) -> T, combine: impl FnMut(T, T) -> T) -> Option<T> {
        gather::gather(self.clusters(), self.by_cluster(), map, combine)
    }

    /// Calls `f` with each representative, down the tree of clusters, so that neighbours follow each other.
    /// The representatives are those that [`reps`](RepContext::reps) would return at the beginning.
    ///
    /// # Panics
    /// If this value was moved out of its representative.
    /// # Cost
    /// Proportional to the representatives, each of which is visited twice, and 4 KiB of stack. Wait-free. If
    /// the object has more than 512 clusters, the representatives are sorted in a vector instead.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::RepContext;
    /// use std::sync::atomic::Ordering::Relaxed;
    ///
    /// fn reset(context: &RepContext<Spread>) {
    ///     context.broadcast(|rep| rep.count.store(0, Relaxed));
    /// }
    /// ```
    #[track_caller]
    pub fn broadcast(&self, f: impl FnMut(&R::Rep)) {
        gather::broadcast(self.clusters(), self.by_cluster(), f);
    }

    /// Sleeps until `ready` returns a value. For methods marked `#[blocking]`.
    ///
    /// `ready` is called at once, and again after each [`wake`](RepContext::wake) by any representative of
    /// this object. A change without a wake stays unnoticed.
    ///
    /// # Errors
    /// [`Interrupted`] if the object was destroyed, if this process is the child of a fork, or if a swap of
    /// the object waits for this call. The method must then return soon and leave the object as if it had not
    /// begun.
    ///
    /// In the case of a swap the method's result is discarded, and the call is repeated on the implementation
    /// that serves after the swap. That requires that every argument of the method is `Copy`. Calls of other
    /// methods sleep on, and delay the swap until its time limit.
    /// # Panics
    /// Inside an operation, where sleeping is not allowed.
    ///
    /// ```
    /// use squall::{ClusterSize, Interrupted, RepContext, Root};
    /// use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    ///
    /// #[squall::interface]
    /// trait Door: Send + Sync {
    ///     fn open(&self);
    ///     #[blocking]
    ///     fn wait(&self) -> bool;
    /// }
    ///
    /// struct Doors(AtomicBool);
    /// struct DoorRep(RepContext<Doors>);
    /// impl Root for Doors {
    ///     type Interface = dyn Door;
    ///     type Rep = DoorRep;
    ///     fn make_rep(&self, context: RepContext<Doors>) -> DoorRep {
    ///         DoorRep(context)
    ///     }
    /// }
    /// impl Door for DoorRep {
    ///     fn open(&self) {
    ///         self.0.root().0.store(true, SeqCst);
    ///         self.0.wake();
    ///     }
    ///     fn wait(&self) -> bool {
    ///         self.0.sleep_until(|| self.0.root().0.load(SeqCst).then_some(())).is_ok()
    ///     }
    /// }
    ///
    /// let door = Doors(AtomicBool::new(false)).create(ClusterSize::Machine);
    /// let handle = door.handle();
    /// let waiter = std::thread::spawn(move || handle.wait());
    /// door.open();
    /// assert!(waiter.join().unwrap());
    /// ```
    pub fn sleep_until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> Result<T, Interrupted> {
        assert!(
            !squall_rcu::in_operation(),
            "a method of {} slept inside an operation: mark it #[blocking], and call it from outside",
            R::class_name(),
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
            // SAFETY: the call that is here holds the representative.
            if unsafe { Multi::<R>::is_waited_for(self.rep) } && shall_begin_again(self.object.cast()) {
                return Err(Interrupted);
            }
            sleepers.wait(seen, None::<Duration>);
        }
    }

    /// Wakes every method of this object that sleeps in [`sleep_until`](RepContext::sleep_until).
    pub fn wake(&self) {
        self.multi().sleepers.signal(u32::MAX);
    }
}

#[cold]
#[track_caller]
fn misplaced(class: &str) -> ! {
    panic!(
        "a RepContext of {class} works only inside its representative: keep it in a field, not in a Box or elsewhere"
    )
}

impl<R: Root> Drop for RepContext<R> {
    fn drop(&mut self) {
        // SAFETY: this value is one of the block's keepers, and uses it no more.
        unsafe { Multi::<R>::release_block(self.rep) };
        drop_link(self.object);
    }
}

impl<R: Root> fmt::Debug for RepContext<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RepContext")
            .field("object", &self.handle())
            .field("vp", &self.vp)
            .finish_non_exhaustive()
    }
}

/// An iterator over the representatives of an object.
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
        f.debug_struct("RepIter").finish_non_exhaustive()
    }
}
