//! The trait that the author of a distributed object implements.

use squall_machine::{Cluster, ClusterSize, Vp};
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::Location;
use std::ptr::NonNull;

use crate::call::interface::{Interface, InterfaceOf};
use crate::object::context::RepContext;
use crate::object::create::{self, Place};
use crate::object::distributed::Multi;
use crate::object::owned::Owned;
use crate::object::state::RootFormats;
use crate::protocol::create_error::CreateError;
use crate::protocol::memory::RepMemory;
use crate::protocol::reps::Rep;

/// The root of a distributed object: the state that its representatives share, and the code that makes them.
///
/// An object has one root, which callers never see. A representative serves a cluster of VPs. It is made when
/// one of them calls first. It implements the interface, and keeps a [`RepContext`] in a field to reach its
/// root and its peers.
///
/// The library calls these methods without a lock. Several VPs of a cluster may call `make_rep` at once. One
/// result is used. The others are dropped at once, in the operation of their call and without
/// [`cleanup`](Root::cleanup).
///
/// `make_rep` runs inside the operation of the call that missed, so it must not block. (It runs outside for
/// [`RepContext::local`] in a blocking method, and for state that moves in by parts.) It may call other
/// objects. It may call its own object only where a representative exists already; a call that needs the
/// representative it is making panics.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::{ClusterSize, Root};
///
/// let counter = Spread.create(ClusterSize::Core); // one representative for each core that calls
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| counter.add(1));
///     }
/// });
/// assert_eq!(counter.get(), 4);
/// ```
pub trait Root: Send + Sync + Sized + 'static {
    /// The interface that callers use, as `dyn Trait`.
    type Interface: ?Sized + InterfaceOf<Self::Rep>;
    /// The type of the representatives.
    type Rep: Send + Sync + 'static;

    /// Whether all representatives are made with the object, instead of on first use.
    const EAGER: bool = false;
    /// The place where representatives are dropped.
    const CLEANUP: Cleanup = Cleanup::WhereMade;
    /// The source of the representatives' memory. If it is exhausted, they come from the program's allocator.
    const REP_MEMORY: RepMemory = RepMemory::ByCluster;
    /// Whether the root occupies cache lines of its own, in the arena of shared memory. For roots that calls
    /// write, or that live long. Other roots are made faster, in the memory of objects that ended before.
    const ROOT_LINES: bool = false;

    /// Not public: returns the view of a representative, which is published with it (`call/view.rs`).
    #[doc(hidden)]
    fn view(rep: &Self::Rep) -> <Self::Interface as Interface>::View<'_> {
        let _ = rep;
        Default::default()
    }

    /// Not public: returns the name of the class in messages, by default the path of this type. A root that
    /// stands for a type or function of another name returns that one.
    #[doc(hidden)]
    fn class_name() -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Makes the representative for the cluster [`context.cluster()`](RepContext::cluster).
    ///
    /// # Panics
    /// A panic reaches the caller that missed. The next miss tries again.
    fn make_rep(&self, context: RepContext<Self>) -> Self::Rep;

    /// Answers a miss: returns the representative that serves this VP, and whether the VP's table may cache
    /// it. By default it is the representative of the VP's cluster, and it is cached.
    ///
    /// ```
    /// use squall::{Cluster, ClusterSize, Miss, MissAnswer, RepContext, Root};
    ///
    /// #[squall::interface]
    /// trait Place: Send + Sync {
    ///     fn cluster(&self) -> usize;
    /// }
    /// struct Near(RepContext<First>);
    /// impl Place for Near {
    ///     fn cluster(&self) -> usize {
    ///         self.0.cluster().index()
    ///     }
    /// }
    ///
    /// /// Cluster 0 serves everybody.
    /// struct First;
    /// impl Root for First {
    ///     type Interface = dyn Place;
    ///     type Rep = Near;
    ///     fn make_rep(&self, context: RepContext<First>) -> Near {
    ///         Near(context)
    ///     }
    ///     fn handle_miss<'a>(&'a self, miss: Miss<'a, First>) -> MissAnswer<'a, First> {
    ///         miss.rep(Cluster::new(0)).cached()
    ///     }
    /// }
    /// assert_eq!(First.create(ClusterSize::Cpu).cluster(), 0);
    /// ```
    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        miss.local().cached()
    }

    /// Takes back a representative that no call can reach any more. By default it is dropped.
    ///
    /// Called once for each representative that was published, outside every operation, at the place given by
    /// [`Root::CLEANUP`]. The root is dropped after the last one.
    fn cleanup(&self, made_on: Vp, rep: Self::Rep) {
        let _ = made_on;
        drop(rep);
    }

    /// Wakes methods that sleep by other means than [`RepContext::sleep_until`], because the object was
    /// destroyed or a swap waits for its calls. Those methods must then ask
    /// [`wrap::shall_leave`](crate::object::wrap::shall_leave).
    ///
    /// Called repeatedly while a swap waits, inside an operation. It must neither block nor panic. A panic
    /// ends here and is counted with the panics of drops.
    fn wake(&self) {}

    /// Lists the formats in which the object's state can move to and from another implementation in a
    /// hot-swap, best first. By default there are none.
    ///
    /// ```
    /// use squall::swap::{Replacement, RootFormats, swap};
    /// use squall::{ClusterSize, RepContext, Root};
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    ///
    /// # #[squall::interface]
    /// # trait Counter: Send + Sync { fn add(&self, n: u64); fn get(&self) -> u64; }
    /// struct Spread;
    /// struct Local(RepContext<Spread>, AtomicU64);
    /// # impl Counter for Local {
    /// #     fn add(&self, n: u64) { self.1.fetch_add(n, Relaxed); }
    /// #     fn get(&self) -> u64 { self.0.reps().map(|rep| rep.1.load(Relaxed)).sum() }
    /// # }
    /// impl Root for Spread {
    ///     type Interface = dyn Counter;
    ///     type Rep = Local;
    ///     fn make_rep(&self, context: RepContext<Spread>) -> Local {
    ///         Local(context, AtomicU64::new(0))
    ///     }
    ///     fn formats(formats: &mut RootFormats<'_, Spread>) {
    ///         formats
    ///             .export_part(|_, rep| Ok(rep.1.load(Relaxed)))
    ///             .import_part(|_, rep, n: u64| Ok(rep.add(n)));
    ///     }
    /// }
    ///
    /// let counter = Spread.create(ClusterSize::Cpu);
    /// counter.add(5);
    /// swap(counter.handle(), Replacement::root(Spread, ClusterSize::Machine))?;
    /// assert_eq!(counter.get(), 5);
    /// # Ok::<(), squall::swap::SwapError>(())
    /// ```
    fn formats(formats: &mut RootFormats<'_, Self>) {
        let _ = formats;
    }

    /// Tells the old object that its state has moved to another object, which serves from now on. Called
    /// once, outside every operation, before the representatives are dropped.
    fn moved(&self) {}

    /// Makes the object, with representatives for clusters of this size.
    ///
    /// # Panics
    /// If [`Root::try_create`] returns an error; with [`Root::EAGER`], if `make_rep` panics.
    /// # Cost
    /// An allocation. It touches no other VP's memory, unless the root is eager. It may block for a few
    /// instructions, like [`shared`](crate::shared()).
    /// # Source
    /// Appavoo 2005, §5.3.1 (`CObjRootMultiRep`); the cluster size of an object, §5.4.1 and Hurricane §5.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::Root;
    ///
    /// let counter = Spread.create(squall::ClusterSize::Cpu);
    /// counter.add(2);
    /// assert_eq!(counter.get(), 2);
    /// ```
    #[track_caller]
    fn create(self, size: ClusterSize) -> Owned<Self::Interface> {
        let made_at = Location::caller();
        Multi::make(Place::Here, self, size, made_at)
            .unwrap_or_else(|error| create::refuse(Self::Interface::NAME, &error))
    }

    /// Like [`Root::create`], for clusters of the system's
    /// [default size](squall_machine::Machine::set_default_cluster_size), as it is now.
    ///
    /// # Panics
    /// As [`Root::create`].
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::{ClusterSize, Root, machine};
    ///
    /// machine().set_default_cluster_size(ClusterSize::Node);
    /// let counter = Spread.create_default(); // one representative for each node that calls
    /// counter.add(2);
    /// assert_eq!(counter.get(), 2);
    /// ```
    #[track_caller]
    fn create_default(self) -> Owned<Self::Interface> {
        self.create(squall_machine::machine().default_cluster_size())
    }

    /// Like [`Root::create`], but returns an error instead of panicking.
    ///
    /// # Errors
    /// [`CreateError`]; the root is dropped.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::Root;
    ///
    /// let counter = Spread.try_create(squall::ClusterSize::Cpu)?;
    /// counter.add(2);
    /// # Ok::<(), squall::CreateError>(())
    /// ```
    #[track_caller]
    fn try_create(self, size: ClusterSize) -> Result<Owned<Self::Interface>, CreateError> {
        Multi::make(Place::Here, self, size, Location::caller())
    }
}

/// The place where [`Root::cleanup`] is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cleanup {
    /// On a VP of the cluster that the representative serves. If the thread that reclaims the object runs on
    /// such a VP, it drops the representative. Otherwise a thread `squall-runner` does, on the VP for which
    /// the representative was made. It moves there by changing its affinity, and threads that a drop spawns
    /// inherit that affinity. Several such threads work in parallel if drops take longer than 2 ms. If no
    /// thread can run on the VP within 100 ms, or ever, the thread `squall-reclaim` drops the representative.
    WhereMade,
    /// On the thread that reclaims. For roots that spread their freeing themselves, and for representatives
    /// that only free a little memory: that costs less than a move to another VP.
    Anywhere,
}

/// The marker of a borrow from an object of the class of `R`. Invariant in `R`, since its types must be those
/// of the class.
pub(crate) type Bound<'a, R> = PhantomData<(&'a R, fn(R) -> R)>;

/// A miss that a root must answer. See [`Root::handle_miss`].
pub struct Miss<'a, R: Root> {
    object: NonNull<Multi<R>>,
    vp: Vp,
    life: Bound<'a, R>,
}

/// A representative that may answer a miss. It derefs to the representative.
pub struct RepRef<'a, R: Root> {
    rep: NonNull<Rep>,
    life: Bound<'a, R>,
}

/// A root's answer to a miss.
pub struct MissAnswer<'a, R: Root>(pub(crate) Outcome, Bound<'a, R>);

pub(crate) enum Outcome {
    Rep { rep: NonNull<Rep>, cache: bool },
    Refused(&'static str),
}

impl<'a, R: Root> Miss<'a, R> {
    /// Makes the miss. The object is valid, and the caller within its gate, for `'a`.
    pub(crate) unsafe fn new(object: NonNull<Multi<R>>, vp: Vp) -> Miss<'a, R> {
        Miss { object, vp, life: PhantomData }
    }

    /// Returns the VP that missed.
    pub fn vp(&self) -> Vp {
        self.vp
    }

    /// Returns the cluster of the VP that missed.
    pub fn cluster(&self) -> Cluster {
        self.multi().clusters().cluster_of(self.vp)
    }

    /// Returns the representative of a cluster, if there is one.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::{Miss, MissAnswer};
    ///
    /// fn handle_miss<'a>(miss: Miss<'a, Spread>) -> MissAnswer<'a, Spread> {
    ///     match miss.find(squall::Cluster::new(0)) {
    ///         Some(rep) => rep.cached(),
    ///         None => miss.refuse("cluster 0 is not ready"),
    ///     }
    /// }
    /// ```
    pub fn find(&self, cluster: Cluster) -> Option<RepRef<'a, R>> {
        let rep = self.multi().find(cluster)?;
        Some(RepRef { rep, life: PhantomData })
    }

    /// Returns the representative of a cluster; makes it if there is none.
    ///
    /// # Panics
    /// If there is no such cluster, or if `make_rep` panics.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::{Miss, MissAnswer};
    ///
    /// fn first_serves_all<'a>(miss: Miss<'a, Spread>) -> MissAnswer<'a, Spread> {
    ///     miss.rep(squall::Cluster::new(0)).cached()
    /// }
    /// ```
    pub fn rep(&self, cluster: Cluster) -> RepRef<'a, R> {
        let made_on =
            if cluster == self.cluster() { self.vp } else { self.multi().clusters().members(cluster)[0] };
        RepRef { rep: Multi::find_or_make(self.object, cluster, made_on), life: PhantomData }
    }

    /// Returns the representative of the caller's cluster; makes it if there is none.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::{Miss, MissAnswer};
    ///
    /// fn uncached<'a>(miss: Miss<'a, Spread>) -> MissAnswer<'a, Spread> {
    ///     miss.local().once()
    /// }
    /// ```
    pub fn local(&self) -> RepRef<'a, R> {
        self.rep(self.cluster())
    }

    /// Rejects the call, for this reason ([`CallErrorKind::Refused`](crate::CallErrorKind::Refused)).
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::{Miss, MissAnswer};
    ///
    /// fn only_vp_0<'a>(miss: Miss<'a, Spread>) -> MissAnswer<'a, Spread> {
    ///     if miss.vp().index() == 0 { miss.local().cached() } else { miss.refuse("only VP 0 may call") }
    /// }
    /// ```
    pub fn refuse(&self, why: &'static str) -> MissAnswer<'a, R> {
        MissAnswer(Outcome::Refused(why), PhantomData)
    }

    fn multi(&self) -> &Multi<R> {
        // SAFETY: valid for `'a` (`new`).
        unsafe { self.object.as_ref() }
    }
}

impl<'a, R: Root> RepRef<'a, R> {
    /// Answers that this representative serves the call, and later calls of this VP without a miss.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::{Miss, MissAnswer};
    ///
    /// fn default_answer<'a>(miss: Miss<'a, Spread>) -> MissAnswer<'a, Spread> {
    ///     miss.local().cached()
    /// }
    /// ```
    pub fn cached(self) -> MissAnswer<'a, R> {
        MissAnswer(Outcome::Rep { rep: self.rep, cache: true }, PhantomData)
    }

    /// Answers that this representative serves the call; the next call of this VP misses again.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::{Miss, MissAnswer};
    /// use std::sync::atomic::Ordering::Relaxed;
    ///
    /// fn watched<'a>(miss: Miss<'a, Spread>) -> MissAnswer<'a, Spread> {
    ///     let rep = miss.local();
    ///     if rep.count.load(Relaxed) < 100 { rep.once() } else { rep.cached() }
    /// }
    /// ```
    pub fn once(self) -> MissAnswer<'a, R> {
        MissAnswer(Outcome::Rep { rep: self.rep, cache: false }, PhantomData)
    }
}

impl<R: Root> Deref for RepRef<'_, R> {
    type Target = R::Rep;

    fn deref(&self) -> &R::Rep {
        // SAFETY: a representative of the object, which is valid for the life of the miss.
        unsafe { Multi::<R>::value(self.rep).as_ref() }
    }
}

impl<R: Root> std::fmt::Debug for Miss<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Miss").field("vp", &self.vp).finish_non_exhaustive()
    }
}

impl<R: Root> std::fmt::Debug for RepRef<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RepRef").finish_non_exhaustive()
    }
}

impl<R: Root> std::fmt::Debug for MissAnswer<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MissAnswer").finish_non_exhaustive()
    }
}
