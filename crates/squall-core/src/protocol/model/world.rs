//! The world of the models: one slot, a few entries, objects and representatives that detect use after free,
//! and grace periods.
//!
//! Every model checks three conditions.
//! - When the protocol asks for a grace period, the asking thread must see that no slot and no entry leads to
//!   the object. `squall-rcu` requires that before memory is freed (its README, **G**).
//! - The protocol asks once for each object, and memory is quiet once.
//! - A call reaches the representative that its handle means, and that representative was not freed. Its
//!   value is a cell that freeing writes. Under loom freeing is also a mutable access to each atomic of the
//!   block, so that a late load is an error. Under Miri the block is freed.

use squall_machine::park::EventCount;
use squall_rcu::__model::{Quiescence, Reader};
use squall_sys::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::thread;
use std::panic::Location;
use std::ptr::{self, NonNull};

use crate::protocol::class::{Class, ObjectKind, Source, Visit};
use crate::protocol::header::{Header, NEW};
use crate::protocol::id::Id;
use crate::protocol::membership::Membership;
use crate::protocol::miss::{InFlight, activate, publish};
use crate::protocol::object::{Object, header, hit, is_held, object_of, wait_for_holds};
use crate::protocol::platform::{Platform, Stage};
use crate::protocol::reps::{Owner, Rep, Reps};
use crate::protocol::sites;
use crate::protocol::slot::{Absent, Occupant, Slot};
use crate::protocol::teardown::{Killed, kill};

/// The slot of all models.
pub(super) const SLOT: u32 = 0;
/// How often a model checks whether a grace period has passed. Under loom once covers every execution; under
/// Miri once would seldom suffice.
const TRIES: usize = if cfg!(loom) { 1 } else { 64 };
/// The value of a representative that was not freed.
pub(super) const ALIVE: u32 = 7;

/// An object of a model: like `Multi`, with a cell as its root.
#[repr(C)]
pub(super) struct Thing {
    pub(super) object: Object,
    pub(super) reps: Reps,
    pub(super) membership: Membership,
    root: UnsafeCell<u32>,
    serial: u32,
    /// The grace period of the world that this object asks for: 0 or 1.
    which: usize,
}

/// A pointer to a [`Thing`], valid for the whole block, with its `which`.
#[derive(Clone, Copy)]
pub(super) struct ThingRef(pub(super) NonNull<Thing>, usize);

// SAFETY: the protocol under test restricts the users; the checker watches.
unsafe impl Send for ThingRef {}

/// A caller's handle, and the serial of the object that it may reach.
#[derive(Clone, Copy)]
pub(super) struct Name {
    pub(super) id: Id,
    pub(super) serial: u32,
}

/// A representative, laid out like `call::layout::Block`: the view follows the header.
#[repr(C)]
pub(super) struct Body {
    rep: Rep,
    header: Header,
    view: UnsafeCell<u32>,
    serial: u32,
    value: UnsafeCell<u32>,
}

const _: () = assert!(
    std::mem::offset_of!(Rep, owner) + size_of::<Owner>() == size_of::<Rep>()
        && std::mem::offset_of!(Body, header) == size_of::<Rep>()
        && std::mem::offset_of!(Body, view) == size_of::<Rep>() + size_of::<Header>()
);

pub(super) static CLASS: Class = class(|| "Thing");
/// A class that differs from [`CLASS`] in its name only.
pub(super) static OTHER: Class = class(|| "Other");

const fn class(name: fn() -> &'static str) -> Class {
    Class {
        name,
        kind: ObjectKind::Clustered,
        #[cfg(not(loom))]
        sleeps: false,
        interface: "dyn Model",
        source: Source { file: file!(), line: line!() },
        interfaces: 1,
        object_bytes: size_of::<Thing>() as u32,
        rep_bytes: size_of::<Body>(),
        value_bytes: (0, 0),
        for_each_rep: Thing::for_each_rep,
        #[cfg(not(loom))]
        more: crate::protocol::class::More {
            type_id: std::any::TypeId::of::<Thing>(),
            interface_id: std::any::TypeId::of::<Thing>(),
            formats: |_| {},
            moved: |_| {},
            prepare: |_| Ok(()),
            resolve: |_, _| Err(crate::protocol::class::Refusal("a model finds its representatives itself")),
            wake: |_| {},
            quiet: |_| {},
            finish: |_| {},
            drop_rep: |_| {},
            drop_root: |_| {},
        },
    }
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Called {
    /// The table entry led to the representative.
    Hit,
    /// The call missed.
    Missed,
    /// There is no object.
    Erred,
}

/// Ignores the outcome of a call.
pub(super) fn ignore(_: Called) {}

/// Ignores the outcome of a call in a model of a swap.
pub(super) fn ignore_outcome(_: super::swaps::Outcome) {}

impl Thing {
    pub(super) unsafe fn for_each_rep(object: NonNull<Object>, f: Visit<'_>) {
        // SAFETY: an object of this class, not closed, so its nodes are valid.
        unsafe { each_rep(ThingRef(object.cast(), 0), |rep| f(Body::owner(rep))) }
    }
}

/// Calls `f` with each representative.
///
/// # Safety
/// The nodes are valid, until `f` frees them.
pub(super) unsafe fn each_rep(thing: ThingRef, mut f: impl FnMut(NonNull<Rep>)) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut walk = thing.0.as_ref().reps.walk();
        while let Some(rep) = walk.step() {
            f(rep);
        }
    }
}

impl ThingRef {
    pub(super) fn make(name: Name) -> ThingRef {
        ThingRef::built(name.serial, 0, Object::new(&CLASS, name.id, Location::caller(), 0))
    }

    /// Creates the replacement of the object with this name.
    pub(super) fn replacement(name: Name) -> ThingRef {
        let mut object = Object::replacement(&CLASS, Location::caller(), 0, 0);
        object.id = name.id;
        ThingRef::built(name.serial, 1, object)
    }

    fn built(serial: u32, which: usize, object: Object) -> ThingRef {
        let thing = Thing {
            object,
            reps: Reps::new(),
            membership: Membership::new(),
            root: UnsafeCell::new(ALIVE),
            serial,
            which,
        };
        ThingRef(NonNull::from(Box::leak(Box::new(thing))), which)
    }

    /// Returns the `ThingRef` of an object.
    ///
    /// # Safety
    /// The object is valid.
    pub(super) unsafe fn of(object: NonNull<Object>) -> ThingRef {
        let thing = object.cast::<Thing>();
        // SAFETY: the caller's promise.
        ThingRef(thing, unsafe { thing.as_ref() }.which)
    }

    pub(super) fn object(self) -> NonNull<Object> {
        self.0.cast()
    }

    /// Returns the current representatives.
    ///
    /// # Safety
    /// The nodes are valid.
    pub(super) unsafe fn reps(self) -> Vec<NonNull<Rep>> {
        let mut reps = Vec::new();
        // SAFETY: the caller's promise.
        unsafe { each_rep(self, |rep| reps.push(rep)) };
        reps
    }

    /// Frees the object's own block. Under loom, marks it as freed.
    ///
    /// # Safety
    /// The object is the caller's alone.
    pub(super) unsafe fn free(self) {
        // SAFETY: the caller's promise; from `Box::leak`.
        unsafe {
            let this = self.0.as_ptr();
            (*this).root.with_mut(|root| *root = 0);
            #[cfg(loom)]
            (*this).object.freed();
            #[cfg(not(loom))]
            drop(Box::from_raw(this));
        }
    }
}

impl Body {
    pub(super) fn make(thing: ThingRef, vp: usize, cluster: u32) -> NonNull<Rep> {
        let body = Body {
            rep: Rep::new(thing.object(), vp as u32, cluster),
            header: Header::new(NEW, [ptr::null(); 2], 0),
            view: UnsafeCell::new(if sites::VIEW_FIRST.is_weak() { 0 } else { ALIVE }),
            // SAFETY: the caller is within the gate; the field is never written after publication.
            serial: unsafe { thing.0.as_ref() }.serial,
            value: UnsafeCell::new(ALIVE),
        };
        let body = NonNull::from(Box::leak(Box::new(body)));
        // SAFETY: our own. The header leads to its own block, as in the shipped code.
        unsafe {
            let target = [body.as_ptr().cast_const().cast(), ptr::null()];
            (&raw mut (*body.as_ptr()).header).write(Header::new(NEW, target, 0));
        }
        body.cast()
    }

    /// Returns the owner of a representative.
    ///
    /// # Safety
    /// `rep` is a representative of a model.
    pub(super) unsafe fn owner(rep: NonNull<Rep>) -> NonNull<Owner> {
        // SAFETY: within its block.
        unsafe { rep.byte_add(std::mem::offset_of!(Rep, owner)).cast() }
    }

    /// Writes the view of a published representative, for the twin of [`sites::VIEW_FIRST`].
    ///
    /// # Safety
    /// `rep` is a representative of a model.
    unsafe fn write_view_late(rep: NonNull<Rep>) {
        // SAFETY: the caller. The checker watches for readers.
        unsafe { rep.cast::<Body>().as_ref() }.view.with_mut(|view| unsafe { *view = ALIVE });
    }

    /// Runs a method that also uses the view, read behind the header as `call::view::read_view` does.
    ///
    /// # Safety
    /// `header` belongs to a representative of a model, which the protocol under test keeps alive.
    pub(super) unsafe fn method(header: NonNull<Header>, serial: u32) {
        // SAFETY: the caller; the view follows the header (checked above).
        let view = unsafe { header.byte_add(size_of::<Header>()).cast::<UnsafeCell<u32>>().as_ref() };
        // SAFETY: written before publication; the checker watches.
        let view = view.with(|view| unsafe { *view });
        assert_eq!(view, ALIVE, "a call read a view that is not written");
        // SAFETY: the caller's promise; the target is the block (`make`).
        let body = unsafe { &*header.as_ref().target()[0].cast::<Body>() };
        assert_eq!(body.serial, serial, "a call reached another object");
        // SAFETY: written before publication, and when it is freed; the checker watches.
        let value = body.value.with(|value| unsafe { *value });
        assert_eq!(value, ALIVE, "a call reached freed memory");
    }

    /// Runs a method on one of two objects. Returns the serial of the object that was reached.
    ///
    /// # Safety
    /// `header` belongs to a representative of a model, which the protocol under test keeps alive.
    pub(super) unsafe fn visit(header: NonNull<Header>) -> u32 {
        // SAFETY: the caller's promise; the target is the block (`make`).
        let serial = unsafe { (*header.as_ref().target()[0].cast::<Body>()).serial };
        // SAFETY: the caller's promise.
        unsafe { Body::method(header, serial) };
        serial
    }

    /// Transfers a representative. No other thread may use it meanwhile.
    ///
    /// # Safety
    /// `rep` is a valid representative of a model.
    pub(super) unsafe fn transfer(rep: NonNull<Rep>) {
        // SAFETY: the caller's promise; the checker watches.
        unsafe { rep.cast::<Body>().as_ref() }.value.with_mut(|value| unsafe {
            assert_eq!(*value, ALIVE, "a transfer reached freed memory");
            *value = ALIVE;
        });
    }

    /// Frees a representative. Under loom, marks it as freed.
    ///
    /// # Safety
    /// `rep` is the caller's alone.
    pub(super) unsafe fn free(rep: NonNull<Rep>) {
        let body = rep.cast::<Body>().as_ptr();
        // SAFETY: the caller's promise; from `Box::leak`.
        unsafe {
            (*body).value.with_mut(|value| *value = 0);
            #[cfg(loom)]
            {
                (*body).rep.freed();
                (*body).header.freed();
            }
            #[cfg(not(loom))]
            drop(Box::from_raw(body));
        }
    }
}

/// A pointer for another thread.
#[derive(Clone, Copy)]
pub(super) struct Sent<T>(pub(super) T);
// SAFETY: the protocol under test restricts the users; the checker watches.
unsafe impl<T> Send for Sent<T> {}

impl<T> Sent<T> {
    pub(super) fn get(self) -> T {
        self.0
    }
}

/// Leaks a value for all threads of a model. Also returns the pointer for [`free_leaked`].
pub(super) fn leak<T>(value: T) -> (&'static T, NonNull<T>) {
    let leaked = NonNull::from(Box::leak(Box::new(value)));
    // SAFETY: only `free_leaked` frees it.
    (unsafe { &*leaked.as_ptr() }, leaked)
}

/// Frees a value from [`leak`].
///
/// # Safety
/// `leaked` came from `leak`, and all threads are joined.
pub(super) unsafe fn free_leaked<T>(leaked: NonNull<T>) {
    // SAFETY: the caller's promise; from `Box::leak`.
    drop(unsafe { Box::from_raw(leaked.as_ptr()) });
}

/// Tables, and the grace periods that were asked for.
pub(super) struct World {
    pub(super) slot: Slot,
    /// The VPs of the model, by number, and their entries.
    entries: Vec<(usize, AtomicPtr<Header>)>,
    vp_limit: usize,
    pub(super) sleepers: EventCount,
    quiescence: Option<Quiescence>,
    /// The moment of the grace period that was asked for; 0 before.
    asked: [AtomicU64; 2],
    pub(super) log: UnsafeCell<Log>,
}

/// The objects that ended. Loom frees them at the end of the model.
#[derive(Default)]
pub(super) struct Log {
    pub(super) ended: u32,
    things: Vec<ThingRef>,
}

// SAFETY: the thread that finds memory quiet writes `log`, and the end of the model reads it; the checker
// watches.
unsafe impl Sync for World {}

impl Platform for World {
    fn entry(&self, vp: usize, _: u32) -> &AtomicPtr<Header> {
        &self.entries.iter().find(|entry| entry.0 == vp).expect("a VP of this world").1
    }

    fn slot(&self, _: u32) -> &Slot {
        &self.slot
    }

    fn vp_limit(&self) -> usize {
        self.vp_limit
    }

    fn sleepers(&self, _: u32) -> &EventCount {
        &self.sleepers
    }

    fn after_grace_period(&self, object: NonNull<Object>, stage: Stage) {
        match stage {
            Stage::Quiet => {
                self.assert_unreachable(object);
                let moment = self.quiescence.as_ref().map_or(1, Quiescence::mark);
                // Release: pairs with the acquire in `reclaim`.
                // SAFETY: not freed before that.
                let which = unsafe { ThingRef::of(object) }.1;
                let before = self.asked[which].swap(moment, Ordering::Release);
                assert_eq!(before, 0, "a grace period was asked for twice");
            }
            // The shipped code defers a call here, which only adds synchronisation.
            // SAFETY: not freed before that.
            Stage::Finish => self.end(unsafe { ThingRef::of(object) }),
        }
    }
}

impl World {
    /// Runs a model in a new world, with or without operations.
    pub(super) fn run(vps: &[usize], in_operations: bool, model: impl FnOnce(&'static World)) {
        let (shared, world) = leak(World {
            slot: Slot::new(),
            entries: vps.iter().map(|&vp| (vp, AtomicPtr::new(ptr::null_mut()))).collect(),
            vp_limit: vps.iter().max().map_or(0, |&last| last + 1),
            sleepers: EventCount::new(),
            quiescence: in_operations.then(Quiescence::new),
            asked: [0, 0].map(AtomicU64::new),
            log: UnsafeCell::new(Log::default()),
        });
        // A failed model leaks the world.
        model(shared);
        // SAFETY: all threads are joined. Under loom the ended objects still have their blocks, from
        // `Box::leak`.
        #[cfg(loom)]
        shared.log.with_mut(|log| unsafe {
            for thing in std::mem::take(&mut (*log).things) {
                thing.reps().into_iter().for_each(|rep| drop(Box::from_raw(rep.cast::<Body>().as_ptr())));
                drop(Box::from_raw(thing.0.as_ptr()));
            }
        });
        // SAFETY: leaked above; all threads are joined.
        unsafe { free_leaked(world) };
    }

    /// Creates and publishes an object of this generation, and returns its name.
    pub(super) fn create(&self, generation: u32, serial: u32) -> (ThingRef, Name) {
        let name = Name { id: Id::new(SLOT, generation), serial };
        let thing = ThingRef::make(name);
        // SAFETY: built under this id, with one interface.
        unsafe { publish(self, thing.object(), thing.object().as_ref().id, 1) };
        (thing, name)
    }

    /// Creates and publishes a shared object: its representative is active from the start.
    pub(super) fn create_shared(&self) -> (ThingRef, Name) {
        let name = Name { id: Id::new(SLOT, 1), serial: 1 };
        let thing = ThingRef::make(name);
        let rep = Body::make(thing, 0, 0);
        // SAFETY: both are our own, and not yet published.
        unsafe {
            header(Body::owner(rep), 0).as_ref().activate(name.id.bits());
            assert!(thing.0.as_ref().reps.add(rep).is_ok());
        }
        // SAFETY: built under this id, with one interface.
        unsafe { publish(self, thing.object(), thing.object().as_ref().id, 1) };
        (thing, name)
    }

    pub(super) fn reader(&self) -> Option<Reader> {
        self.quiescence.as_ref().map(Quiescence::register)
    }

    /// Runs `f` as an operation, if the model has operations.
    pub(super) fn in_operation<T>(&self, reader: Option<Reader>, f: impl FnOnce() -> T) -> T {
        match (&self.quiescence, reader) {
            // SAFETY: a reader of this domain, and each thread of a model has its own.
            (Some(quiescence), Some(reader)) => unsafe { quiescence.in_operation(reader, f) },
            _ => f(),
        }
    }

    /// Finds the cluster's representative, or makes and publishes it, like `Multi::find_or_make`.
    pub(super) fn find_or_make(&self, thing: ThingRef, vp: usize, cluster: u32) -> NonNull<Owner> {
        // SAFETY: the caller is within the gate. The new representative is built, and is our own if it lost.
        unsafe {
            let this = thing.0.as_ref();
            if let Some(rep) = this.reps.find(cluster) {
                return Body::owner(rep);
            }
            let new = Body::make(thing, vp, cluster);
            match this.reps.add(new) {
                Ok(()) => {
                    activate(&this.object, Body::owner(new));
                    if sites::VIEW_FIRST.is_weak() {
                        Body::write_view_late(new);
                    }
                    Body::owner(new)
                }
                Err(winner) => {
                    drop(Box::from_raw(new.cast::<Body>().as_ptr()));
                    Body::owner(winner)
                }
            }
        }
    }

    /// Misses, like `resolve` after its first lookup.
    pub(super) fn miss(&self, vp: usize, cluster: u32, name: Name) -> Result<NonNull<Header>, Absent> {
        // SAFETY: within the caller's operation, or in a model that frees memory only at its end.
        unsafe {
            let miss = InFlight::enter(self, name.id)?;
            let thing = ThingRef::of(miss.block());
            let root = thing.0.as_ref().root.with(|root| *root);
            assert_eq!(root, ALIVE, "a miss asked a root that was freed");
            let found = header(self.find_or_make(thing, vp, cluster), miss.index());
            miss.install(vp, found);
            Ok(found)
        }
    }

    /// Finds the header for a call, like `Handle::__call`.
    pub(super) fn find(&self, vp: usize, cluster: u32, name: Name) -> (Called, Option<NonNull<Header>>) {
        // SAFETY: within the caller's operation, or in a model that frees memory only at its end.
        if let Some(header) = unsafe { hit(self.entry(vp, name.id.slot()), name.id) } {
            return (Called::Hit, Some(header));
        }
        match self.miss(vp, cluster, name) {
            Ok(header) => (Called::Missed, Some(header)),
            Err(_) => (Called::Erred, None),
        }
    }

    pub(super) fn call(&self, vp: usize, cluster: u32, name: Name) -> Called {
        let (called, header) = self.find(vp, cluster, name);
        if let Some(header) = header {
            // SAFETY: found just now, in this operation.
            unsafe { Body::method(header, name.serial) };
        }
        called
    }

    /// Returns whether a grace period that begins now is known to be over, without waiting.
    pub(super) fn grace_period(&self) -> bool {
        let Some(quiescence) = &self.quiescence else { return true };
        let moment = quiescence.mark();
        (0..TRIES).any(|_| {
            #[cfg(not(loom))]
            thread::yield_now();
            quiescence.poll(moment)
        })
    }

    /// Continues after a kill.
    pub(super) fn continue_kill(&self, killed: Killed) {
        match killed {
            Killed::Ended { object, drained: true } | Killed::Mediated { object, drained: true, .. } => {
                self.after_grace_period(object, Stage::Quiet);
            }
            _ => {}
        }
    }

    /// Destroys the object, like the drop of its owner: in an operation, if the model has them, then outside.
    /// Returns whether this thread was first.
    pub(super) fn destroy(&self, reader: Option<Reader>, thing: ThingRef) -> bool {
        // SAFETY: in an operation, or in a model that frees memory only at its end.
        let killed = self.in_operation(reader, || unsafe { kill(self, thing.object().as_ref().id) });
        self.continue_kill(killed);
        killed != Killed::Before
    }

    /// Asserts that no path leads to the object, as a grace period requires. If the object was swapped, its
    /// entries may belong to the other object; then the caller is within its operation.
    pub(super) fn assert_unreachable(&self, object: NonNull<Object>) {
        if let Occupant::Object(found) = self.slot.occupant() {
            assert_ne!(found, object, "the slot leads to an object that waits for its grace period");
        }
        // SAFETY: valid until its grace period is over.
        let moved = unsafe { object.as_ref() }.gate.has_moved();
        for (vp, entry) in &self.entries {
            // Acquire: as in `cached`.
            let entry = NonNull::new(entry.load(Ordering::Acquire));
            // SAFETY: the other object lives, so it is not freed meanwhile.
            let leads = entry.is_some_and(|header| !moved || unsafe { object_of(header) } == object);
            assert!(!leads, "VP {vp} has an entry of an object that waits for its grace period");
        }
    }

    /// Continues after the grace period, if one was asked for and has passed. Returns whether the object has
    /// ended.
    pub(super) fn reclaim(&self, thing: ThingRef) -> bool {
        for _ in 0..TRIES {
            // Acquire: pairs with the release in `after_grace_period`.
            let moment = self.asked[thing.1].load(Ordering::Acquire);
            if moment != 0 && self.quiescence.as_ref().is_none_or(|quiescence| quiescence.poll(moment)) {
                self.asked[thing.1].store(0, Ordering::Relaxed);
                return self.quiet(thing);
            }
            #[cfg(not(loom))]
            thread::yield_now();
        }
        false
    }

    /// Continues with memory quiet: the grace period has passed. Returns whether the object has ended.
    pub(super) fn quiet(&self, thing: ThingRef) -> bool {
        // SAFETY: the grace period has passed, and each model calls this once for each death.
        let ended = unsafe { !is_held(thing.object(), &CLASS) || wait_for_holds(thing.object(), || ()) };
        if ended {
            self.end(thing);
        }
        ended
    }

    /// Ends the object, like `finish` and the drops. Memory is quiet.
    pub(super) fn end(&self, thing: ThingRef) {
        // SAFETY: once for each object, when no thread can reach it; the checker watches.
        unsafe {
            self.log.with_mut(|log| {
                (*log).ended += 1;
                (*log).things.push(thing);
            });
            thing.0.as_ref().object.close();
            thing.reps().into_iter().for_each(|rep| Body::free(rep));
            (*thing.0.as_ptr()).object.free_extra(self.vp_limit());
            thing.free();
        }
    }

    /// The number of objects that ended. All threads are joined.
    pub(super) fn ended(&self) -> u32 {
        // SAFETY: all threads are joined.
        self.log.with(|log| unsafe { (*log).ended })
    }

    /// Ends an object that was sent to its grace period. Called when all threads are joined.
    pub(super) fn conclude_one(&self, thing: ThingRef) {
        assert_ne!(self.asked[thing.1].load(Ordering::Relaxed), 0, "no grace period was asked for");
        assert!(self.quiet(thing), "calls are over, and memory is not quiet");
    }

    /// Called when all threads are joined and the last of `count` objects was killed. It was sent to its
    /// grace period once. Ends it, unless it has ended.
    pub(super) fn conclude(&self, count: u32, last: ThingRef) {
        if self.ended() < count {
            assert_ne!(self.asked[last.1].load(Ordering::Relaxed), 0, "no grace period was asked for");
            self.assert_unreachable(last.object());
            assert!(self.quiet(last), "calls are over, and memory is not quiet");
        }
        assert_eq!(self.ended(), count, "memory must be quiet once for each object");
    }
}

/// Runs both functions on two threads, `first` on the model's main thread if `in_order`.
///
/// Loom remembers only the last access to an atomic, so it matters from which execution it branches. A race
/// that must be tried both ways has two models.
pub(super) fn run_both(
    in_order: bool,
    first: impl FnOnce() + Send + 'static,
    second: impl FnOnce() + Send + 'static,
) {
    if in_order {
        let other = thread::spawn(second);
        first();
        other.join().unwrap();
    } else {
        let other = thread::spawn(first);
        second();
        other.join().unwrap();
    }
}
