//! What the author of a distributed object writes.

use squall_machine::{Cluster, ClusterSize, Vp};
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::Location;
use std::ptr::NonNull;

use crate::call::interface::{Interface, InterfaceOf};
use crate::call::view::Lender;
use crate::object::context::RepContext;
use crate::object::create::{self, Place};
use crate::object::distributed::Multi;
use crate::object::owned::Owned;
use crate::object::state::RootFormats;
use crate::protocol::create_error::CreateError;
use crate::protocol::memory::RepMemory;
use crate::protocol::reps::Rep;

/// The root of a distributed object: what is shared by its representatives, and how to make one.
///
/// There is one root for each object; clients never see it. A representative serves a cluster of VPs and is made when one
/// of them calls first. It implements the interface, and keeps an [`RepContext`] in a field to reach its root and its peers.
///
/// Nothing here runs under a lock, or twice at once for one representative's life: `make_rep` may be called by several
/// VPs of a cluster at once; one result is used and the others are dropped at once, in the operation of their call and
/// without [`cleanup`](Root::cleanup). It runs inside the operation of the call that missed (for [`RepContext::local`] in a
/// blocking method, and for a state that moves in by parts, outside), so it must not block. It may call other objects, but not this one where that needs the
/// very representative that it is making: such a call panics.
pub trait Root: Send + Sync + Sized + 'static {
    /// What clients call.
    type Interface: ?Sized + InterfaceOf<Self::Rep>;
    /// The representative.
    type Rep: Send + Sync + 'static;

    /// Whether every representative is made with the object, instead of on first use.
    const EAGER: bool = false;
    /// Where representatives are dropped.
    const CLEANUP: Cleanup = Cleanup::WhereMade;
    /// Where the memory of representatives comes from; where there is none, from the program's allocator.
    const REP_MEMORY: RepMemory = RepMemory::ByCluster;
    /// Whether the root lies on lines of its own, from the pool of shared memory: for roots that calls write or that live long. Others are
    /// made faster, in what the objects before them left.
    const ROOT_LINES: bool = false;

    /// Not public: where in a representative is what it lends.
    #[doc(hidden)]
    const LENDER: Lender<Self::Rep, Self::Interface> = Lender::NONE;

    /// Makes the representative that [`at`](RepContext::cluster) says.
    ///
    /// # Panics
    /// A panic goes to the caller that missed; the next one tries again.
    fn make_rep(&self, at: RepContext<Self>) -> Self::Rep;

    /// Answers a miss: says which representative serves this VP, and whether its table may keep that answer. By default
    /// the one of its cluster, kept.
    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        miss.local().cached()
    }

    /// Takes a representative back when no call can reach it any more; by default it is dropped. Called once for each that
    /// answered, outside every operation, as [`Root::CLEANUP`] says; the root is dropped after the last.
    fn cleanup(&self, made_on: Vp, rep: Self::Rep) {
        let _ = made_on;
        drop(rep);
    }

    /// The object ends, or a swap waits for its calls: methods of it that sleep by means of their own shall ask
    /// [`wrap::shall_leave`](crate::object::wrap::shall_leave). Those in [`RepContext::sleep_until`] need nothing of this.
    ///
    /// Called again and again while a swap waits, inside an operation: it must not wait long, nor panic. A panic ends here, and
    /// is counted as one of a drop.
    fn wake(&self) {}

    /// Lists the formats in which the state of such an object can move to another implementation by a hot-swap, and from
    /// one: best first. By default there is none.
    fn formats(formats: &mut RootFormats<'_, Self>) {
        let _ = formats;
    }

    /// The state has moved to another object, which serves from now on: called once, before the representatives are
    /// dropped, outside every operation.
    fn moved(&self) {}

    /// Makes the object, with representatives for clusters of this size.
    ///
    /// # Panics
    /// As [`Root::try_create`] errs; and with [`Root::EAGER`], if `make_rep` does.
    /// # Cost
    /// An allocation; no other VP's memory is touched, unless it is eager. Blocking as [`shared`](crate::shared()).
    /// # Source
    /// Appavoo 2005, §5.3.1 (`CObjRootMultiRep`); the cluster size of an object, §5.4.1 and Hurricane §5.
    #[track_caller]
    fn create(self, size: ClusterSize) -> Owned<Self::Interface> {
        let made_at = Location::caller();
        Multi::make(Place::Here, self, size, made_at)
            .unwrap_or_else(|error| create::refuse(Self::Interface::NAME, &error))
    }

    /// As [`Root::create`], with an error in place of the panic.
    ///
    /// # Errors
    /// [`CreateError`]; the root is dropped.
    #[track_caller]
    fn try_create(self, size: ClusterSize) -> Result<Owned<Self::Interface>, CreateError> {
        Multi::make(Place::Here, self, size, Location::caller())
    }
}

/// Where [`Root::cleanup`] is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cleanup {
    /// On the VP for which the representative was made, or its node; elsewhere only where no thread may run there any more.
    /// The reclaimer moves there by its affinity, which threads that a drop spawns inherit.
    WhereMade,
    /// Wherever reclamation happens to run: the root spreads its own freeing.
    Anywhere,
}

/// What borrows from an object of the class of `R`: invariant in `R`, as its types must be those of the class.
pub(crate) type Bound<'a, R> = PhantomData<(&'a R, fn(R) -> R)>;

/// A miss that a root has to answer.
pub struct Miss<'a, R: Root> {
    object: NonNull<Multi<R>>,
    vp: Vp,
    life: Bound<'a, R>,
}

/// A representative that may answer a miss.
pub struct RepRef<'a, R: Root> {
    rep: NonNull<Rep>,
    life: Bound<'a, R>,
}

/// What a root answers.
pub struct MissAnswer<'a, R: Root>(pub(crate) Outcome, Bound<'a, R>);

pub(crate) enum Outcome {
    Rep { rep: NonNull<Rep>, cache: bool },
    Refused(&'static str),
}

impl<'a, R: Root> Miss<'a, R> {
    /// The object is valid, and within its gate, for `'a`.
    pub(crate) unsafe fn new(object: NonNull<Multi<R>>, vp: Vp) -> Miss<'a, R> {
        Miss { object, vp, life: PhantomData }
    }

    /// The VP that missed.
    pub fn vp(&self) -> Vp {
        self.vp
    }

    /// Its cluster.
    pub fn cluster(&self) -> Cluster {
        self.multi().clusters().cluster_of(self.vp)
    }

    /// The representative of a cluster, if it has one.
    pub fn find(&self, cluster: Cluster) -> Option<RepRef<'a, R>> {
        let rep = self.multi().find(cluster)?;
        Some(RepRef { rep, life: PhantomData })
    }

    /// The representative of a cluster, made now if it has none.
    ///
    /// # Panics
    /// If there is no such cluster, or `make_rep` does.
    pub fn rep(&self, cluster: Cluster) -> RepRef<'a, R> {
        let made_on =
            if cluster == self.cluster() { self.vp } else { self.multi().clusters().members(cluster)[0] };
        RepRef { rep: Multi::find_or_make(self.object, cluster, made_on), life: PhantomData }
    }

    /// The representative of the caller's cluster, made now if it has none.
    pub fn local(&self) -> RepRef<'a, R> {
        self.rep(self.cluster())
    }

    /// The call errs, for this reason.
    pub fn refuse(&self, why: &'static str) -> MissAnswer<'a, R> {
        MissAnswer(Outcome::Refused(why), PhantomData)
    }

    fn multi(&self) -> &Multi<R> {
        // SAFETY: valid for `'a` (`new`).
        unsafe { self.object.as_ref() }
    }
}

impl<'a, R: Root> RepRef<'a, R> {
    /// This one serves the call, and later ones of this VP without a miss.
    pub fn cached(self) -> MissAnswer<'a, R> {
        MissAnswer(Outcome::Rep { rep: self.rep, cache: true }, PhantomData)
    }

    /// This one serves the call; the next one of this VP misses again.
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
        f.debug_struct("Found").finish_non_exhaustive()
    }
}

impl<R: Root> std::fmt::Debug for MissAnswer<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}
