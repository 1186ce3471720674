//! Objects with a root, and a representative for each cluster that calls.
//!
//! - I1. A representative is made outside every lock and published by one exchange (`reps/I1`). It is
//!   activated only while the object lives (`gate/I3`).
//! - I2. Representatives are added only within the object's gate, so none is added once the gate is drained.
//! - I3. Memory quiet closes the object first. From then on the tree is not walked on behalf of a
//!   representative.
//! - I4. The root and the block live while a link is left. The object has one link of its own until the last
//!   representative was dropped, and each [`RepContext`] has one.
//!
//! Source: CO-12, without its lock (CO-68).

use squall_machine::park::EventCount;
use squall_machine::{Cluster, ClusterSize, Clusters, Vp, VpSet, machine};
use std::alloc::Layout;
use std::alloc::handle_alloc_error;
use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::Location;
use std::ptr::{self, NonNull};

use crate::call::interface::{Counted, Interface};
use crate::call::layout::Block;
use crate::object::context::RepContext;
use crate::object::create::{self, Place};
use crate::object::owned::Owned;
use crate::object::root::{Cleanup, Miss, Outcome, Root};
use crate::object::state::RootFormats;
use crate::protocol::class::{Class, Found, More, ObjectKind, Refusal, Visit, bytes};
use crate::protocol::clock;
use crate::protocol::create_error::CreateError;
use crate::protocol::destroy::{self, run_drop};
use crate::protocol::membership::Membership;
use crate::protocol::memory;
use crate::protocol::miss::{InFlight, activate};
use crate::protocol::object::{Object, header};
use crate::protocol::reps::{Owner, Rep, Reps};
use crate::protocol::tables::existing;

type RepBlock<R> = Block<Rep, <R as Root>::Interface, <R as Root>::Rep>;

/// An object with a root.
#[repr(C)]
pub(crate) struct Multi<R: Root> {
    /// First, so that a pointer to the object points to it too.
    common: Common,
    pub(crate) root: ManuallyDrop<R>,
}

impl<R: Root> Deref for Multi<R> {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

/// The part of an object with a root that has no type parameters, so that its code is compiled once.
#[repr(C)]
pub(crate) struct Common {
    object: Object,
    clusters: &'static Clusters,
    pub(crate) reps: Reps,
    pub(crate) membership: Membership,
    /// The event count on which methods of the object sleep. The destruction of the object wakes them.
    pub(crate) sleepers: EventCount,
}

/// An object and its block.
type Made<R> = (Owned<<R as Root>::Interface>, NonNull<Multi<R>>);

/// The event count for misses that must publish a representative while another thread has frozen a
/// membership.
static THAWED: EventCount = EventCount::new();

/// A representative that the thread is making.
struct Making {
    object: NonNull<Object>,
    cluster: Cluster,
    outer: *const Making,
}

thread_local! {
    static MAKING: Cell<*const Making> = const { Cell::new(ptr::null()) };
    static FROZEN: RefCell<Vec<NonNull<Object>>> = const { RefCell::new(Vec::new()) };
}

impl<R: Root> Multi<R> {
    /// Layout of the object's block.
    const LAYOUT: Layout = {
        let layout = Layout::new::<Multi<R>>();
        if R::ROOT_LINES { memory::whole_lines(layout) } else { layout }
    };

    /// Layout of a representative's block.
    const REP_LAYOUT: Layout = R::REP_MEMORY.room(RepBlock::<R>::LAYOUT);

    const CLASS: &'static Class = &Class {
        name: R::class_name,
        kind: ObjectKind::Clustered,
        sleeps: true,
        interface: <R::Interface as Interface>::NAME,
        source: <R::Interface as Interface>::SOURCE,
        interfaces: <R::Interface as Counted>::INTERFACES,
        object_bytes: bytes(Self::LAYOUT.size()),
        rep_bytes: Self::REP_LAYOUT.size(),
        value_bytes: (size_of::<R>(), size_of::<R::Rep>()),
        for_each_rep: Common::for_each_rep,
        more: More {
            type_id: TypeId::of::<R>(),
            interface_id: TypeId::of::<R::Interface>(),
            // SAFETY: called with objects of this class.
            formats: |list| R::formats(&mut unsafe { RootFormats::new(list) }),
            // SAFETY: a valid object of this class.
            moved: |object| unsafe { object.cast::<Multi<R>>().as_ref() }.root.moved(),
            prepare: |object| Self::make_eager(object.cast()),
            resolve: Self::resolve,
            wake: Self::wake,
            // SAFETY: passed on, with values of this class.
            quiet: |object| unsafe { destroy::quiet_call(object, Self::CLASS, Self::finish) },
            finish: Self::finish,
            drop_rep: Self::drop_rep,
            drop_root: Self::drop_root,
        },
    };

    pub(crate) fn make(
        place: Place,
        root: R,
        size: ClusterSize,
        made_at: &'static Location<'static>,
    ) -> Result<Owned<R::Interface>, CreateError> {
        let (owned, block) = Self::publish(place, root, size, made_at)?;
        Self::make_eager(block)?;
        Ok(owned)
    }

    /// Publishes the object without representatives.
    pub(crate) fn publish(
        place: Place,
        root: R,
        size: ClusterSize,
        made_at: &'static Location<'static>,
    ) -> Result<Made<R>, CreateError> {
        let created = create::begin(place, Self::CLASS, Self::LAYOUT)?;
        let object = Object::new(Self::CLASS, created.id, made_at, clock::ticks());
        let block = created.block.cast::<Multi<R>>();
        // SAFETY: our own room, of this layout.
        unsafe { Self::write(block, object, root, size) };
        Ok((created.publish(), block))
    }

    /// # Safety
    /// The caller's own room, of this layout.
    unsafe fn write(block: NonNull<Multi<R>>, object: Object, root: R, size: ClusterSize) {
        // SAFETY: the caller.
        unsafe {
            Common::write(block.cast(), object, size);
            (&raw mut (*block.as_ptr()).root).write(ManuallyDrop::new(root));
        }
    }

    /// Builds the new object of a swap.
    pub(crate) fn to_come(root: R, size: ClusterSize, made_at: &'static Location<'static>) -> create::ToCome {
        (Self::CLASS, Self::build(root, size, made_at))
    }

    fn build(root: R, size: ClusterSize, made_at: &'static Location<'static>) -> Option<NonNull<Object>> {
        let room = create::Room::try_new(Self::LAYOUT)?;
        let block = room.block.cast::<Multi<R>>();
        let object = Object::replacement(Self::CLASS, made_at, clock::ticks(), create::place_here());
        // SAFETY: our own room, of this layout.
        unsafe { Self::write(block, object, root, size) };
        std::mem::forget(room);
        Some(block.cast())
    }

    /// Whether a swap waits for the calls that hold a representative.
    ///
    /// # Safety
    /// A valid representative of this class.
    pub(crate) unsafe fn is_waited_for(rep: NonNull<Rep>) -> bool {
        // SAFETY: the caller's promise; it has that many headers.
        unsafe {
            let owner = RepBlock::<R>::owner(rep);
            (0..Self::CLASS.interfaces).any(|index| header(owner, index).as_ref().is_waited_for())
        }
    }

    /// Makes the representatives of an eager class. The caller owns the object. If `make_rep` panics, or
    /// without memory, the object is destroyed with the representatives made so far.
    pub(crate) fn make_eager(block: NonNull<Multi<R>>) -> Result<(), CreateError> {
        if !R::EAGER {
            return Ok(());
        }
        // SAFETY: the caller owns it.
        let clusters = unsafe { block.as_ref() }.clusters;
        let made = squall_rcu::__try_pin(|_| {
            for cluster in clusters.iter() {
                // SAFETY: the caller owns the object, so it is valid.
                if let Some(_in_flight) = unsafe { InFlight::inside(ground(), block.cast(), 0) } {
                    Self::try_find_or_make(block, cluster, clusters.members(cluster)[0])
                        .ok_or_else(CreateError::no_memory)?;
                }
            }
            Ok(())
        });
        made.unwrap_or_else(|error| Err(error.into()))
    }

    /// Returns the value of a representative of this class.
    ///
    /// # Safety
    /// A representative of this class; the pointer may be used for the whole block.
    #[inline(always)]
    pub(crate) unsafe fn value(rep: NonNull<Rep>) -> NonNull<R::Rep> {
        // SAFETY: the caller's promise.
        unsafe { RepBlock::<R>::value(rep) }
    }

    /// Distance from a representative's block to its value, in bytes.
    pub(crate) const VALUE_AT: usize = RepBlock::<R>::VALUE_AT;

    /// Returns the representative of `cluster`; makes it for `vp` if there is none. Called within the
    /// object's gate, or before the object is published. Ends the program if there is no memory, like `Box`.
    pub(crate) fn find_or_make(this: NonNull<Multi<R>>, cluster: Cluster, vp: Vp) -> NonNull<Rep> {
        Self::try_find_or_make(this, cluster, vp).unwrap_or_else(|| handle_alloc_error(Self::REP_LAYOUT))
    }

    /// Like `find_or_make`, but fails if there is no memory.
    fn try_find_or_make(this: NonNull<Multi<R>>, cluster: Cluster, vp: Vp) -> Option<NonNull<Rep>> {
        // SAFETY: the caller is within the object's gate.
        let multi = unsafe { this.as_ref() };
        if let Some(rep) = multi.find(cluster) {
            return Some(rep);
        }
        let mut made = None;
        Making::run(this.cast(), cluster, &mut || made = NewRep::<R>::try_make(this, cluster, vp));
        let made = made?;
        // If this panics, or another thread was faster, the new representative is dropped outside the section
        // that freezes wait for.
        let outcome = multi.publish_rep(made.rep);
        if outcome.is_ok() {
            std::mem::forget(made);
        }
        Some(outcome.unwrap_or_else(|winner| winner))
    }

    unsafe fn resolve(object: NonNull<Object>, vp: Vp) -> Result<Found, Refusal> {
        let this = object.cast::<Multi<R>>();
        // SAFETY: an object of this class, within its gate; so is every representative that the miss returns.
        unsafe {
            let reply = this.as_ref().root.handle_miss(Miss::new(this, vp));
            match reply.0 {
                Outcome::Refused(why) => Err(Refusal(why)),
                Outcome::Rep { rep, cache } => {
                    check_owner(rep, object);
                    Ok(Found { owner: RepBlock::<R>::owner(rep), cache })
                }
            }
        }
    }

    unsafe fn wake(object: NonNull<Object>) {
        // SAFETY: a valid object of this class.
        let multi = unsafe { object.cast::<Multi<R>>().as_ref() };
        multi.sleepers.signal(u32::MAX);
        multi.root.wake();
    }

    unsafe fn finish(object: NonNull<Object>) {
        // SAFETY: an object of this class, and memory is quiet: only its drops use it now.
        unsafe { Common::finish(object.cast(), R::CLEANUP, Self::drop_rep) };
    }

    unsafe fn drop_rep(rep: NonNull<Rep>) {
        // SAFETY: the caller's alone, of this class; its object lives until the last is dropped (I4).
        unsafe {
            let multi = rep.as_ref().owner.object.cast::<Multi<R>>().as_ref();
            let vp = Vp::new(rep.as_ref().vp);
            let value = RepBlock::<R>::value(rep).read();
            run_drop(|| multi.root.cleanup(vp, value));
            Self::release_block(rep);
        }
    }

    /// Releases a representative's block for one of its two keepers. The last one frees it.
    ///
    /// # Safety
    /// The caller is one of the keepers, and uses the block no more.
    pub(crate) unsafe fn release_block(rep: NonNull<Rep>) {
        // SAFETY: kept by the caller until here, and unused afterwards if the caller was the last keeper.
        unsafe {
            // The class's own constant, equal to the one used when the block was taken (`memory/I1`).
            if rep.as_ref().remove_keeper() {
                R::REP_MEMORY.give(rep.cast(), Self::REP_LAYOUT);
            }
        }
    }

    unsafe fn drop_root(object: NonNull<Object>) {
        // SAFETY: valid while there is a link; the thread with the last link ends it.
        unsafe {
            if object.as_ref().unlink() {
                Self::end(object.cast());
            }
        }
    }

    /// Drops the root and frees the object.
    ///
    /// # Safety
    /// The last link is gone.
    unsafe fn end(this: NonNull<Multi<R>>) {
        // SAFETY: ours alone. The other fields need no drop.
        unsafe {
            let multi = &mut *this.as_ptr();
            run_drop(|| ManuallyDrop::drop(&mut multi.root));
            (&raw mut multi.common.sleepers).drop_in_place();
            create::end(this.cast(), Self::LAYOUT);
        }
    }
}

impl Common {
    /// # Safety
    /// The caller's own room, of this layout.
    unsafe fn write(block: NonNull<Common>, object: Object, size: ClusterSize) {
        let common = Common {
            object,
            clusters: machine().clusters(size),
            reps: Reps::new(),
            membership: Membership::new(),
            sleepers: EventCount::new(),
        };
        // SAFETY: the caller.
        unsafe { block.write(common) };
    }

    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn clusters(&self) -> &'static Clusters {
        self.clusters
    }

    /// Returns the representative of `cluster`, if there is one. The object is not closed.
    pub(crate) fn find(&self, cluster: Cluster) -> Option<NonNull<Rep>> {
        // SAFETY: nodes are valid until the object is closed.
        unsafe { self.reps.find(cluster.index() as u32) }
    }

    /// Publishes and activates a representative. If another thread was faster, returns that thread's
    /// representative.
    fn publish_rep(&self, rep: NonNull<Rep>) -> Result<NonNull<Rep>, NonNull<Rep>> {
        self.wait_for_membership();
        // SAFETY: within the object's gate: its nodes are valid, and this one is built.
        let added = unsafe { self.reps.add(rep) };
        if added.is_ok() {
            // SAFETY: as above.
            unsafe { activate(&self.object, owner_of(rep)) };
        }
        self.membership.published();
        added.map(|()| rep)
    }

    /// Waits until a representative may be published.
    fn wait_for_membership(&self) {
        while !self.membership.try_publish() {
            let this = NonNull::from(&self.object);
            let mine = FROZEN.try_with(|frozen| frozen.borrow().contains(&this)).unwrap_or(false);
            assert!(
                !mine,
                "{}#{} of class {}: a thread inside `freeze` called the object on a VP without a representative; call it outside `freeze`",
                self.object.class.interface,
                self.object.id,
                (self.object.class.name)(),
            );
            let seen = THAWED.prepare();
            if self.membership.try_publish() {
                return;
            }
            THAWED.wait(seen, None);
        }
    }

    /// Runs `f` while no representative is added.
    pub(crate) fn frozen<T>(&self, f: impl FnOnce() -> T) -> T {
        struct Thaw<'a>(&'a Membership);
        impl Drop for Thaw<'_> {
            fn drop(&mut self) {
                let _ = FROZEN.try_with(|frozen| frozen.borrow_mut().pop());
                self.0.thaw();
                THAWED.signal(u32::MAX);
            }
        }
        let this = NonNull::from(&self.object);
        self.membership.freeze();
        let _ = FROZEN.try_with(|frozen| frozen.borrow_mut().push(this));
        let thaw = Thaw(&self.membership);
        while !self.membership.settled() {
            // A few instructions of another thread, which may have been preempted.
            squall_sys::sync::thread::yield_now();
        }
        // In an operation, so that waiting for a grace period inside `f` is an error: a miss that waits for
        // us would delay that grace period. Deferred calls may run when it ends, so the thaw comes first.
        squall_rcu::__pin(move |_| {
            let _thaw = thaw;
            f()
        })
    }

    unsafe fn for_each_rep(object: NonNull<Object>, f: Visit<'_>) {
        // SAFETY: an object with a root, not closed: its nodes are valid.
        unsafe {
            let mut walk = object.cast::<Common>().as_ref().reps.walk();
            while let Some(rep) = walk.step() {
                f(owner_of(rep));
            }
        }
    }

    /// Drops all representatives: those of this VP's cluster here, the others on the VPs for which they were
    /// made.
    ///
    /// # Safety
    /// Memory is quiet: only the object's drops use it now. `drop_rep` is the one of its class.
    unsafe fn finish(this: NonNull<Common>, cleanup: Cleanup, drop_rep: unsafe fn(NonNull<Rep>)) {
        // SAFETY: the caller.
        let multi = unsafe { this.as_ref() };
        multi.object.close();
        let here = multi.clusters.get(Vp::current()).map(|cluster| cluster.index() as u32);
        let (mut own, mut others) = (Vec::new(), Vec::new());
        let mut walk = multi.reps.walk();
        // SAFETY: the nodes are not freed yet.
        while let Some(rep) = unsafe { walk.step() } {
            // SAFETY: as above.
            let is_own = cleanup == Cleanup::Anywhere || Some(unsafe { rep.as_ref() }.cluster) == here;
            if is_own { own.push(rep) } else { others.push(rep) }
        }
        multi.object.count_up((own.len() + others.len()) as u32 + 1);
        let mut vps = VpSet::new();
        for rep in others {
            // SAFETY: ours alone: the tree is walked no more (I3); each representative is dropped or queued
            // once.
            unsafe {
                let vp = Vp::new(rep.as_ref().vp);
                if destroy::queue_drop(rep) {
                    vps.insert(vp);
                }
            }
        }
        // First, so that the others are dropped meanwhile.
        destroy::send_runners(&vps);
        let done = own.len() as u32 + 1;
        for rep in own {
            // SAFETY: as for those queued.
            unsafe { drop_rep(rep) };
        }
        // SAFETY: counts those dropped here, and this function's own.
        unsafe { destroy::dropped(this.cast(), done) };
    }
}

/// Returns the owner in a representative's block.
///
/// # Safety
/// The pointer may be used for the whole block.
unsafe fn owner_of(rep: NonNull<Rep>) -> NonNull<Owner> {
    // SAFETY: within the block.
    unsafe { rep.byte_add(std::mem::offset_of!(Rep, owner)) }.cast()
}

/// # Safety
/// A valid representative.
unsafe fn check_owner(rep: NonNull<Rep>, object: NonNull<Object>) {
    // SAFETY: the caller.
    let owner = unsafe { rep.as_ref() }.owner.object;
    assert_eq!(owner, object, "`handle_miss` returned a representative of another object");
}

/// Releases a link; called by the drop of a [`RepContext`].
pub(crate) fn drop_link<R: Root>(this: NonNull<Multi<R>>) {
    unsafe fn end<R: Root>(this: *mut ()) {
        if let Some(this) = NonNull::new(this.cast()) {
            // SAFETY: once, after the last link.
            unsafe { Multi::<R>::end(this) };
        }
    }
    // SAFETY: valid while there is a link.
    if unsafe { this.as_ref() }.object.unlink() {
        // A `RepContext` outlived its representative, and is dropped at an arbitrary place. So the root's
        // drop is deferred.
        // SAFETY: once, for an unreachable object.
        unsafe { squall_rcu::defer_raw(end::<R>, this.as_ptr().cast(), Multi::<R>::LAYOUT.size()) };
    }
}

/// Restores the representative that the thread was making before.
struct Restore(*const Making);

impl Drop for Restore {
    fn drop(&mut self) {
        MAKING.set(self.0);
    }
}

impl Making {
    /// Runs `make` while the thread is known to make this representative.
    fn run(object: NonNull<Object>, cluster: Cluster, make: &mut dyn FnMut()) {
        let making = Making { object, cluster, outer: MAKING.get() };
        making.refuse_if_nested();
        let _restore = Restore(MAKING.replace(&raw const making));
        make();
    }

    /// Panics if this thread is already making the same representative.
    fn refuse_if_nested(&self) {
        let mut outer = self.outer;
        // SAFETY: those in the list are on the stack below us.
        while let Some(making) = unsafe { outer.as_ref() } {
            // SAFETY: an object whose gate this thread is in.
            let object = unsafe { self.object.as_ref() };
            assert!(
                making.object != self.object || making.cluster != self.cluster,
                "{}#{} of class {}: make_rep called its own object before there was a representative to answer",
                object.class.interface,
                object.id,
                (object.class.name)(),
            );
            outer = making.outer;
        }
    }
}

/// A representative that is built and not yet published.
struct NewRep<R: Root> {
    rep: NonNull<Rep>,
    class: PhantomData<R>,
}

impl<R: Root> NewRep<R> {
    fn try_make(object: NonNull<Multi<R>>, cluster: Cluster, vp: Vp) -> Option<NewRep<R>> {
        /// Releases the block if `make_rep` panics.
        struct Unfilled<R: Root>(NonNull<Rep>, PhantomData<R>);
        impl<R: Root> Drop for Unfilled<R> {
            fn drop(&mut self) {
                // SAFETY: the object's share of a block without a value.
                unsafe { Multi::<R>::release_block(self.0) };
            }
        }
        // SAFETY: the caller is within the object's gate.
        let clusters = unsafe { object.as_ref() }.clusters;
        let rep = R::REP_MEMORY.try_take(Multi::<R>::REP_LAYOUT, clusters, cluster, vp)?.cast::<Rep>();
        // SAFETY: our own room.
        unsafe { rep.write(Rep::new(object.cast(), vp.index() as u32, cluster.index() as u32)) };
        let unfilled = Unfilled::<R>(rep, PhantomData);
        // SAFETY: the caller is within the object's gate.
        unsafe { object.as_ref() }.object.link();
        let at = RepContext::new(object, rep, vp, cluster);
        // SAFETY: the caller is within the object's gate.
        let value = unsafe { object.as_ref() }.root.make_rep(at);
        // SAFETY: our own block, with its prefix written.
        unsafe { RepBlock::<R>::fill(rep, None, value, R::view) };
        std::mem::forget(unfilled);
        Some(NewRep { rep, class: PhantomData })
    }
}

impl<R: Root> Drop for NewRep<R> {
    fn drop(&mut self) {
        // SAFETY: built, and unseen by other threads.
        unsafe {
            run_drop(|| RepBlock::<R>::value(self.rep).drop_in_place());
            Multi::<R>::release_block(self.rep);
        }
    }
}

/// Returns the tables for a [`RepContext`]. They exist, because its object is in them.
pub(crate) fn ground() -> &'static crate::protocol::tables::Tables {
    existing().expect("the translation tables do not exist, although an object does")
}
