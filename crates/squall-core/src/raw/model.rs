//! Model checks of the protocol in the form that ships, and the tests of those tests.
//!
//! Each model is a small program of two or three threads over the functions of this folder and the little world below.
//! Under loom every interleaving (up to the preemption bound) and every value a load may return is tried; under Miri the
//! seeds do that at random, and what is freed is really freed. Each ordering that the proof names, and each step whose
//! order it needs, is then weakened, and its model must fail (`twins!` below; under Miri, whose findings end the process,
//! `SQUALL_WEAKEN` names the sites and the caller expects the failure).
//!
//! What the world checks in every model:
//! - when the protocol asks for a grace period, the asker must see that no slot and no entry leads to the object: that is
//!   what `squall-rcu` asks of whoever frees (its README, **G**). So most models need no operations, whose fences would
//!   hide weak orderings from loom; those that end in `_in_operations` run over the real grace periods and free;
//! - it asks once, and memory is quiet once;
//! - whoever is called is the representative of that generation, and was not freed: under loom its value is a cell that
//!   freeing writes, and freeing is a mutable access to each of its atomics, so a late look at one is an error.

use squall_rcu::__model::{Quiescence, Reader};
use squall_sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use squall_sync::cell::UnsafeCell;
use squall_sync::thread;
use std::panic::Location;
use std::ptr::{self, NonNull};

use super::graves::Grave;
use super::header::{Header, NEW};
use super::membership::Membership;
use super::object::{
    Absent, Ground, InFlight, Object, Occupant, Slot, Stage, activate, header, hit, kill, publish, quiet,
    release,
};
use super::reps::{Owner, Rep, Reps};
#[cfg(loom)]
use super::sites;
use crate::class::{Class, ObjectKind, Source, Visit};
use crate::id::Id;

/// The slot of all models.
const SLOT: u32 = 0;
/// A value that was not freed.
const ALIVE: u32 = 7;

/// An object of a model: as `Multi`, with a cell for a root.
#[repr(C)]
struct Thing {
    object: Object,
    reps: Reps,
    membership: Membership,
    root: UnsafeCell<u32>,
    serial: u32,
}

/// A pointer to one, good for the whole block.
#[derive(Clone, Copy)]
struct ThingRef(NonNull<Thing>);

// SAFETY: the protocol under test says who may use it; the checker watches.
unsafe impl Send for ThingRef {}

/// A reference as a caller has it, and the object that it may reach.
#[derive(Clone, Copy)]
struct Name {
    id: Id,
    serial: u32,
}

/// A representative: as `Block` lays it out.
#[repr(C)]
struct Body {
    rep: Rep,
    header: Header,
    serial: u32,
    value: UnsafeCell<u32>,
}

const _: () = assert!(
    std::mem::offset_of!(Rep, owner) + size_of::<Owner>() == size_of::<Rep>()
        && std::mem::offset_of!(Body, header) == size_of::<Rep>()
);

static CLASS: Class = Class {
    name: || "Thing",
    kind: ObjectKind::Clustered,
    interface: "dyn Model",
    source: Source { file: file!(), line: line!() },
    interfaces: 1,
    object_bytes: size_of::<Thing>(),
    rep_bytes: size_of::<Body>(),
    value_bytes: (0, 0),
    for_each_rep: Thing::for_each_rep,
    #[cfg(not(loom))]
    more: crate::class::More {
        resolve: |_, _| Err(crate::class::Refusal("a model finds its representatives itself")),
        wake: |_| {},
        finish: |_| {},
        drop_rep: |_| {},
        drop_root: |_| {},
    },
};

/// How a call went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Called {
    /// By the entry.
    Hit,
    /// By the root.
    Missed,
    /// Not at all.
    Erred,
}

impl Thing {
    unsafe fn for_each_rep(object: NonNull<Object>, f: Visit<'_>) {
        // SAFETY: an object of this class, not closed: its nodes are valid.
        unsafe { each_rep(ThingRef(object.cast()), |rep| f(Body::owner(rep))) }
    }
}

/// # Safety
/// Its nodes are valid, until `f` frees them.
unsafe fn each_rep(thing: ThingRef, mut f: impl FnMut(NonNull<Rep>)) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut walk = thing.0.as_ref().reps.walk();
        while let Some(rep) = walk.step() {
            f(rep);
        }
    }
}

impl ThingRef {
    fn make(name: Name) -> ThingRef {
        let thing = Thing {
            object: Object::new(&CLASS, name.id, Location::caller(), 0),
            reps: Reps::new(),
            membership: Membership::new(),
            root: UnsafeCell::new(ALIVE),
            serial: name.serial,
        };
        ThingRef(NonNull::from(Box::leak(Box::new(thing))))
    }

    fn object(self) -> NonNull<Object> {
        self.0.cast()
    }

    /// The representatives there are now.
    ///
    /// # Safety
    /// Its nodes are valid.
    unsafe fn reps(self) -> Vec<NonNull<Rep>> {
        let mut reps = Vec::new();
        // SAFETY: the caller's promise.
        unsafe { each_rep(self, |rep| reps.push(rep)) };
        reps
    }

    /// Frees the object's own block, or says so to loom.
    ///
    /// # Safety
    /// It is the caller's alone.
    unsafe fn free(self) {
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
    fn make(thing: ThingRef, vp: usize, cluster: u32) -> NonNull<Rep> {
        let body = Body {
            rep: Rep::new(thing.object(), vp as u32, cluster),
            header: Header::new(NEW, [ptr::null(); 2], 0),
            // SAFETY: the caller is within the gate; never written after it is published.
            serial: unsafe { thing.0.as_ref() }.serial,
            value: UnsafeCell::new(ALIVE),
        };
        let body = NonNull::from(Box::leak(Box::new(body)));
        // SAFETY: our own. The header leads to its own block, as it does in earnest.
        unsafe {
            let target = [body.as_ptr().cast_const().cast(), ptr::null()];
            (&raw mut (*body.as_ptr()).header).write(Header::new(NEW, target, 0));
        }
        body.cast()
    }

    /// # Safety
    /// A representative of a model.
    unsafe fn owner(rep: NonNull<Rep>) -> NonNull<Owner> {
        // SAFETY: within its block.
        unsafe { rep.byte_add(std::mem::offset_of!(Rep, owner)).cast() }
    }

    /// What a method does.
    ///
    /// # Safety
    /// The header of a representative of a model, which the protocol under test keeps.
    unsafe fn method(header: NonNull<Header>, serial: u32) {
        // SAFETY: the caller's promise; the target is the block (`make`).
        let body = unsafe { &*header.as_ref().target()[0].cast::<Body>() };
        assert_eq!(body.serial, serial, "a call reached another object");
        // SAFETY: written before it is published, and when it is freed; the checker watches.
        let value = body.value.with(|value| unsafe { *value });
        assert_eq!(value, ALIVE, "a call reached what was freed");
    }

    /// Frees it, or says so to loom.
    ///
    /// # Safety
    /// It is the caller's alone.
    unsafe fn free(rep: NonNull<Rep>) {
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
struct Sent<T>(T);
// SAFETY: as of `ThingRef`.
unsafe impl<T> Send for Sent<T> {}

impl<T> Sent<T> {
    fn get(self) -> T {
        self.0
    }
}

/// Tables, and what was asked of grace periods.
struct World {
    slot: Slot,
    /// The VPs that take part, by number, and their entries.
    entries: Vec<(usize, AtomicPtr<Header>)>,
    vp_limit: usize,
    quiescence: Option<Quiescence>,
    /// The moment of the grace period that was asked for; 0 if none was.
    asked: AtomicU64,
    log: UnsafeCell<Log>,
}

/// Things that ended: how many, and which, to be freed in earnest when loom has seen all.
#[derive(Default)]
struct Log {
    ended: u32,
    things: Vec<ThingRef>,
}

// SAFETY: `log` is touched by whoever finds memory quiet, and at the end; the checker watches.
unsafe impl Sync for World {}

impl Ground for World {
    fn entry(&self, vp: usize, _: u32) -> &AtomicPtr<Header> {
        &self.entries.iter().find(|entry| entry.0 == vp).expect("a VP of this world").1
    }

    fn slot(&self, _: u32) -> &Slot {
        &self.slot
    }

    fn vp_limit(&self) -> usize {
        self.vp_limit
    }

    fn after_grace_period(&self, object: NonNull<Object>, stage: Stage) {
        match stage {
            Stage::Quiet => {
                self.assert_unreachable(object);
                let moment = self.quiescence.as_ref().map_or(1, Quiescence::mark);
                // Release: pairs with the acquire in `reclaim`.
                let before = self.asked.swap(moment, Ordering::Release);
                assert_eq!(before, 0, "a grace period was asked for twice");
            }
            // In earnest a deferred call, which only adds synchronisation.
            Stage::Finish => self.end(ThingRef(object.cast())),
        }
    }
}

impl World {
    /// Runs a model in a new world, with operations or without.
    fn run(vps: &[usize], in_operations: bool, model: impl FnOnce(&'static World)) {
        let world = NonNull::from(Box::leak(Box::new(World {
            slot: Slot::new(),
            entries: vps.iter().map(|&vp| (vp, AtomicPtr::new(ptr::null_mut()))).collect(),
            vp_limit: vps.iter().max().map_or(0, |&last| last + 1),
            quiescence: in_operations.then(Quiescence::new),
            asked: AtomicU64::new(0),
            log: UnsafeCell::new(Log::default()),
        })));
        // SAFETY: freed below, when all threads are joined. A model that fails leaves it.
        model(unsafe { world.as_ref() });
        // SAFETY: from `Box::leak`; nobody else has it any more.
        let world = unsafe { Box::from_raw(world.as_ptr()) };
        // SAFETY: all threads are joined. Under loom the things that ended still have their blocks, from `Box::leak`.
        #[cfg(loom)]
        world.log.with_mut(|log| unsafe {
            for thing in std::mem::take(&mut (*log).things) {
                thing.reps().into_iter().for_each(|rep| drop(Box::from_raw(rep.cast::<Body>().as_ptr())));
                drop(Box::from_raw(thing.0.as_ptr()));
            }
        });
        drop(world);
    }

    /// Makes an object of this generation known, and says under which name.
    fn create(&self, generation: u32, serial: u32) -> (ThingRef, Name) {
        let name = Name { id: Id::new(SLOT, generation), serial };
        let thing = ThingRef::make(name);
        publish(self, thing.object());
        (thing, name)
    }

    fn reader(&self) -> Option<Reader> {
        self.quiescence.as_ref().map(Quiescence::register)
    }

    /// Runs `f` as an operation, if the model has them.
    fn op<T>(&self, reader: Option<Reader>, f: impl FnOnce() -> T) -> T {
        match (&self.quiescence, reader) {
            // SAFETY: of this domain; each thread of a model has a reader of its own.
            (Some(quiescence), Some(reader)) => unsafe { quiescence.op(reader, f) },
            _ => f(),
        }
    }

    /// Finds or makes a representative and publishes it: as `Multi::find_or_make`.
    fn find_or_make(&self, thing: ThingRef, vp: usize, cluster: u32) -> NonNull<Owner> {
        // SAFETY: the caller is within the gate; the new one is built, and nobody else's if it lost.
        unsafe {
            let this = thing.0.as_ref();
            if let Some(rep) = this.reps.find(cluster) {
                return Body::owner(rep);
            }
            let new = Body::make(thing, vp, cluster);
            match this.reps.add(new) {
                Ok(()) => {
                    activate(&this.object, Body::owner(new));
                    Body::owner(new)
                }
                Err(winner) => {
                    drop(Box::from_raw(new.cast::<Body>().as_ptr()));
                    Body::owner(winner)
                }
            }
        }
    }

    /// What `resolve` does after its first look.
    fn miss(&self, vp: usize, cluster: u32, name: Name) -> Result<NonNull<Header>, Absent> {
        // SAFETY: within the operation of the caller, or in a model that frees nothing before all is over.
        unsafe {
            let miss = InFlight::enter(self, name.id)?;
            let thing = ThingRef(miss.block().cast());
            let root = thing.0.as_ref().root.with(|root| *root);
            assert_eq!(root, ALIVE, "a miss asked a root that was freed");
            let found = header(self.find_or_make(thing, vp, cluster), miss.index());
            miss.install(vp, found);
            Ok(found)
        }
    }

    /// How `__call` finds what it calls.
    fn find(&self, vp: usize, cluster: u32, name: Name) -> (Called, Option<NonNull<Header>>) {
        // SAFETY: as in `miss`.
        if let Some(header) = unsafe { hit(self.entry(vp, name.id.slot()), name.id) } {
            return (Called::Hit, Some(header));
        }
        match self.miss(vp, cluster, name) {
            Ok(header) => (Called::Missed, Some(header)),
            Err(_) => (Called::Erred, None),
        }
    }

    fn call(&self, vp: usize, cluster: u32, name: Name) -> Called {
        let (called, header) = self.find(vp, cluster, name);
        if let Some(header) = header {
            // SAFETY: found just now, in this operation.
            unsafe { Body::method(header, name.serial) };
        }
        called
    }

    fn kill(&self, thing: ThingRef) -> bool {
        // SAFETY: in an operation, or in a model that frees nothing before all is over.
        unsafe { kill(self, thing.object()) }
    }

    /// What the grace period that is asked for now must not find: a way to the object.
    fn assert_unreachable(&self, object: NonNull<Object>) {
        if let Occupant::Object(found) = self.slot.occupant() {
            assert_ne!(found, object, "the slot leads to an object that waits for its grace period");
        }
        for (vp, entry) in &self.entries {
            let entry = entry.load(Ordering::Relaxed);
            assert!(entry.is_null(), "VP {vp} has an entry of an object that waits for its grace period");
        }
    }

    /// Does what follows the grace period, if one was asked for and has passed. Returns whether the object has ended.
    fn reclaim(&self, thing: ThingRef) -> bool {
        // Acquire: pairs with the release in `after_grace_period`.
        let moment = self.asked.load(Ordering::Acquire);
        if moment == 0 || !self.quiescence.as_ref().is_none_or(|quiescence| quiescence.poll(moment)) {
            return false;
        }
        self.asked.store(0, Ordering::Relaxed);
        self.quiet(thing)
    }

    /// The grace period has passed. Returns whether the object has ended.
    fn quiet(&self, thing: ThingRef) -> bool {
        // SAFETY: it has, and each model comes here once for each death.
        let ended = unsafe { quiet(thing.object()) };
        if ended {
            self.end(thing);
        }
        ended
    }

    /// Memory is quiet: what `finish` and the drops do.
    fn end(&self, thing: ThingRef) {
        // SAFETY: once for each object, when nobody can reach it; the checker watches.
        unsafe {
            self.log.with_mut(|log| {
                (*log).ended += 1;
                (*log).things.push(thing);
            });
            thing.0.as_ref().object.close();
            thing.reps().into_iter().for_each(|rep| Body::free(rep));
            (*thing.0.as_ptr()).object.free_extra(self);
            thing.free();
        }
    }

    /// How many objects ended so far. All threads are joined.
    fn ended(&self) -> u32 {
        // SAFETY: see the field.
        self.log.with(|log| unsafe { (*log).ended })
    }

    /// All threads are joined, and the last of `count` objects was killed: it was sent to its grace period once, and is
    /// quiet now if it was not before.
    fn conclude(&self, count: u32, last: ThingRef) {
        if self.ended() < count {
            assert_ne!(self.asked.load(Ordering::Relaxed), 0, "no grace period was asked for");
            self.assert_unreachable(last.object());
            assert!(self.quiet(last), "calls are over, and memory is not quiet");
        }
        assert_eq!(self.ended(), count, "memory is quiet once");
    }
}

/// Runs both, `first` on the model's main thread if `in_order`.
///
/// Loom remembers only the last access to an atomic, so it matters whose execution it branches from: what must be tried
/// both ways is a model of each.
fn beside(in_order: bool, first: impl FnOnce() + Send + 'static, second: impl FnOnce() + Send + 'static) {
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

/// A miss makes, publishes and installs while the object is killed: no call that begins after `kill` returned finds it,
/// and whoever drains the gate cuts every way.
fn miss_against_kill(miss_on_main: bool) {
    World::run(&[0], false, |world| {
        let (thing, name) = world.create(1, 1);
        let miss = move || {
            let _ = world.call(0, 0, name);
        };
        let killer = move || {
            assert!(world.kill(thing));
            assert_eq!(world.call(0, 0, name), Called::Erred, "after the object was destroyed");
        };
        beside(miss_on_main, miss, killer);
        assert_eq!(world.call(0, 0, name), Called::Erred, "after the object was destroyed");
        world.conclude(1, thing);
    });
}

fn miss_first() {
    miss_against_kill(true);
}

fn kill_first() {
    miss_against_kill(false);
}

/// Two misses on two VPs while the object is killed: the last one out clears the entries of both.
fn two_misses_against_kill() {
    World::run(&[0, 1], false, |world| {
        let (thing, name) = world.create(1, 1);
        let miss = |vp| move || drop(world.call(vp, 0, name));
        let others = [thread::spawn(miss(0)), thread::spawn(miss(1))];
        assert!(world.kill(thing));
        others.map(|other| other.join().unwrap());
        assert_eq!(world.call(1, 0, name), Called::Erred);
        world.conclude(1, thing);
    });
}

/// Two misses, of one cluster or of two: one representative for each, which both find; a loser is dropped.
fn two_misses(vps: [usize; 2], clusters: [u32; 2]) {
    World::run(&vps, false, |world| {
        let (thing, name) = world.create(1, 1);
        let call = |n: usize| move || assert_ne!(world.call(vps[n], clusters[n], name), Called::Erred);
        beside(true, call(0), call(1));
        // SAFETY: all threads are joined, and nothing was freed.
        let reps = unsafe { thing.reps() };
        assert_eq!(reps.len(), if clusters[0] == clusters[1] { 1 } else { 2 });
        for (vp, cluster) in vps.into_iter().zip(clusters) {
            // SAFETY: as above.
            let found = unsafe { thing.0.as_ref().reps.find(cluster).map(|rep| header(Body::owner(rep), 0)) };
            assert_eq!(
                world.find(vp, cluster, name).1,
                found,
                "VP {vp} calls a representative of another cluster"
            );
            assert_eq!(world.call(vp, cluster, name), Called::Hit);
        }
        assert!(world.kill(thing));
        world.conclude(1, thing);
    });
}

fn same_vp() {
    two_misses([0, 0], [0, 0]);
}

fn same_cluster() {
    two_misses([0, 1], [0, 0]);
}

fn two_clusters() {
    two_misses([0, 1], [1, 2]);
}

fn large_machine() {
    two_misses([0, 64], [0, 0]);
}

/// A thread that knows the reference early calls while the object is made known.
fn early_call() {
    World::run(&[0], false, |world| {
        let name = Name { id: Id::new(SLOT, 1), serial: 1 };
        let early = thread::spawn(move || drop(world.call(0, 0, name)));
        let (thing, _) = world.create(1, 1);
        early.join().unwrap();
        assert_ne!(world.call(0, 0, name), Called::Erred);
        assert!(world.kill(thing));
        world.conclude(1, thing);
    });
}

/// Whoever finds a well-known slot vacant finds the generation of the next occupant, not that of the last.
fn vacant() {
    World::run(&[], false, |world| {
        let end = move || {
            let _ = world.slot.advance(1);
            world.slot.vacate();
        };
        let install = move || {
            if matches!(world.slot.occupant(), Occupant::Nobody) {
                let generation = world.slot.generation.load(Ordering::Relaxed);
                assert_eq!(generation, 2, "an id is used twice");
            }
        };
        let (thing, _) = world.create(1, 1);
        beside(true, end, install);
        // SAFETY: all threads are joined, and nobody has called it.
        unsafe { drop(Box::from_raw(thing.0.as_ptr())) };
    });
}

/// Entries are thrown away at any time, while calls are made and the object is killed.
fn discard_against_calls() {
    World::run(&[0], false, |world| {
        let (thing, name) = world.create(1, 1);
        let discard = thread::spawn(move || {
            world.entry(0, SLOT).store(ptr::null_mut(), Ordering::Relaxed);
        });
        let caller = thread::spawn(move || {
            let _ = world.call(0, 0, name);
            let _ = world.call(0, 0, name);
        });
        assert!(world.kill(thing));
        assert_eq!(world.call(0, 0, name), Called::Erred);
        discard.join().unwrap();
        caller.join().unwrap();
        world.conclude(1, thing);
    });
}

/// An object is killed, and its memory freed after the grace period, while calls come and entries are thrown away.
fn calls_against_death(in_order: bool, discard: bool) {
    World::run(&[0], true, |world| {
        let (thing, name) = world.create(1, 1);
        let (caller, owner) = (world.reader(), world.reader());
        let calls = move || {
            for _ in 0..2 {
                world.op(caller, || drop(world.call(0, 0, name)));
            }
        };
        let death = move || {
            if discard {
                world.entry(0, SLOT).store(ptr::null_mut(), Ordering::Relaxed);
            }
            world.op(owner, || assert!(world.kill(thing)));
            let _ = world.reclaim(thing);
        };
        beside(in_order, calls, death);
        world.conclude(1, thing);
    });
}

fn calls_first_in_operations() {
    calls_against_death(true, false);
}

fn death_first_in_operations() {
    calls_against_death(false, false);
}

fn discard_in_operations() {
    calls_against_death(true, true);
}

/// A reference outlives its object, whose slot goes to the next one: it never reaches that, nor what was freed.
fn stale_against_reuse_in_operations() {
    World::run(&[0], true, |world| {
        let (old, stale) = world.create(1, 1);
        let (caller, owner) = (world.reader(), world.reader());
        let calls = move || {
            for _ in 0..2 {
                world.op(caller, || drop(world.call(0, 0, stale)));
            }
        };
        let reuse = thread::spawn(move || {
            world.op(owner, || assert!(world.kill(old)));
            world.reclaim(old).then(|| {
                let _ = world.slot.advance(stale.id.generation());
                let (new, name) = world.create(world.slot.generation.load(Ordering::Relaxed), 2);
                world.op(owner, || assert_ne!(world.call(0, 0, name), Called::Erred));
                Sent(new)
            })
        });
        calls();
        match reuse.join().unwrap() {
            Some(new) => {
                assert!(world.kill(new.get()));
                world.conclude(2, new.get());
            }
            None => world.conclude(1, old),
        }
    });
}

/// Calls hold representatives while memory quiet asks for them: exactly one of all goes on, when all calls are over.
fn holds_against_quiet(clusters: [u32; 2]) {
    World::run(&[0, 1], false, |world| {
        let (thing, name) = world.create(1, 1);
        let mut vp = 0;
        let others = clusters.map(|cluster| {
            let (_, held) = world.find(vp, cluster, name);
            vp += 1;
            let held = Sent(held.expect("it lives"));
            // SAFETY: valid: nothing was freed.
            unsafe { held.get().as_ref() }.hold();
            held
        });
        assert!(world.kill(thing));
        let others = others.map(|held| {
            thread::spawn(move || {
                // SAFETY: held.
                unsafe {
                    Body::method(held.get(), name.serial);
                    release(world, held.get());
                }
            })
        });
        let _ = world.quiet(thing);
        others.map(|other| other.join().unwrap());
        assert_eq!(world.ended(), 1, "of quiet and the releases, one goes on");
    });
}

fn holds_on_one() {
    holds_against_quiet([0, 0]);
}

fn holds_on_two() {
    holds_against_quiet([0, 1]);
}

/// A call takes its hold in an operation and uses it outside, while the object dies.
fn hold_in_operations() {
    World::run(&[0], true, |world| {
        let (thing, name) = world.create(1, 1);
        let (caller, owner) = (world.reader(), world.reader());
        let blocking = move || {
            let held = world.op(caller, || {
                let held = world.find(0, 0, name).1?;
                // SAFETY: found in this operation.
                unsafe { held.as_ref() }.hold();
                Some(held)
            });
            if let Some(held) = held {
                // SAFETY: held.
                unsafe {
                    Body::method(held, name.serial);
                    release(world, held);
                }
            }
        };
        let death = move || {
            world.op(owner, || assert!(world.kill(thing)));
            let _ = world.reclaim(thing);
        };
        beside(true, blocking, death);
        world.conclude(1, thing);
    });
}

/// Representatives are left for a VP; its runner and one that came in its place take them. Each is dropped once, and the
/// last ends the object.
fn graves() {
    World::run(&[], false, |world| {
        let (thing, _) = world.create(1, 1);
        let grave: &'static Grave = Box::leak(Box::new(Grave::new()));
        let buried = [Sent(Body::make(thing, 0, 0)), Sent(Body::make(thing, 0, 1))];
        let dropped = move |count| {
            // SAFETY: valid while the count is not zero. As `dropped` of `death.rs`.
            if unsafe { thing.object().as_ref() }.count_down(count) {
                // SAFETY: once: the count was taken to zero here.
                unsafe { thing.free() };
                world.log.with_mut(|log| unsafe { (*log).ended += 1 });
            }
        };
        let run = move || {
            // SAFETY: what is in a grave is valid, and ours once taken.
            unsafe {
                grave.take(|rep| {
                    Body::free(rep);
                    dropped(1);
                })
            }
        };
        let in_its_place = thread::spawn(run);
        // As `Multi::finish`.
        // SAFETY: valid: nothing was dropped yet.
        unsafe { thing.0.as_ref() }.object.count_up(3);
        let mut sent = Vec::new();
        for rep in buried {
            // SAFETY: our own, and those in the grave came through here.
            if unsafe { grave.push(rep.get()) } {
                sent.push(thread::spawn(run));
            }
        }
        dropped(1);
        sent.into_iter().for_each(|runner| runner.join().unwrap());
        in_its_place.join().unwrap();
        assert_eq!(world.ended(), 1, "each is taken once");
        // SAFETY: all threads are joined; from `Box::leak`. Under loom the blocks are still there.
        unsafe {
            drop(Box::from_raw(ptr::from_ref(grave).cast_mut()));
            #[cfg(loom)]
            {
                buried.map(|rep| drop(Box::from_raw(rep.get().cast::<Body>().as_ptr())));
                drop(Box::from_raw(thing.0.as_ptr()));
            }
        }
    });
}

/// The two keepers of a block let it go: the last frees it.
fn keepers() {
    World::run(&[], false, |world| {
        let (thing, name) = world.create(1, 1);
        let rep = Sent(Body::make(thing, 0, 0));
        let keeper = move || {
            // SAFETY: one of two keepers; the last frees.
            unsafe {
                Body::method(header(Body::owner(rep.get()), 0), name.serial);
                if rep.get().as_ref().let_go() {
                    Body::free(rep.get());
                    world.log.with_mut(|log| (*log).ended += 1);
                }
            }
        };
        beside(true, keeper, keeper);
        assert_eq!(world.ended(), 1, "the last keeper frees");
        // SAFETY: all threads are joined; from `Box::leak`.
        unsafe {
            #[cfg(loom)]
            drop(Box::from_raw(rep.get().cast::<Body>().as_ptr()));
            drop(Box::from_raw(thing.0.as_ptr()));
        }
    });
}

/// Membership is frozen while a miss publishes: what is there is all there, and stays so. `guarded` stands for what the
/// gather does meanwhile, which later representatives may rely upon.
fn freeze_against_publish(publish_on_main: bool) {
    World::run(&[], false, |world| {
        let (thing, _) = world.create(1, 1);
        let guarded: &'static Guarded = Box::leak(Box::new(Guarded(UnsafeCell::new(0))));
        let publish = move || {
            let rep = Body::make(thing, 0, 0);
            // SAFETY: valid: nothing is freed before all is over.
            let this = unsafe { thing.0.as_ref() };
            if !this.membership.try_publish() {
                // SAFETY: our own.
                return unsafe { drop(Box::from_raw(rep.cast::<Body>().as_ptr())) };
            }
            guarded.touch();
            // SAFETY: built, and in no tree.
            assert!(unsafe { this.reps.add(rep) }.is_ok());
            this.membership.published();
        };
        let gather = move || {
            // SAFETY: as above.
            let this = unsafe { thing.0.as_ref() };
            this.membership.freeze();
            if this.membership.settled() {
                guarded.touch();
                // SAFETY: as above.
                let counts = unsafe { [thing.reps().len(), thing.reps().len()] };
                assert_eq!(counts[0], counts[1], "a representative was added while membership was frozen");
            }
            this.membership.thaw();
        };
        beside(publish_on_main, publish, gather);
        // SAFETY: all threads are joined; from `Box::leak`.
        unsafe {
            thing.reps().into_iter().for_each(|rep| drop(Box::from_raw(rep.cast::<Body>().as_ptr())));
            drop(Box::from_raw(thing.0.as_ptr()));
            drop(Box::from_raw(ptr::from_ref(guarded).cast_mut()));
        }
    });
}

struct Guarded(UnsafeCell<u32>);

// SAFETY: the protocol under test keeps its users apart; the checker watches.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn touch(&self) {
        // SAFETY: see above.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}

fn publish_first() {
    freeze_against_publish(true);
}

fn freeze_first() {
    freeze_against_publish(false);
}

/// Two destroyers, and a miss that may be the last one out: one of them kills, and one sends the object on.
fn two_kills() {
    World::run(&[0], false, |world| {
        let (thing, name) = world.create(1, 1);
        let miss = thread::spawn(move || drop(world.call(0, 0, name)));
        let other = thread::spawn(move || world.kill(thing));
        let mine = world.kill(thing);
        let others = other.join().unwrap();
        miss.join().unwrap();
        assert!(mine != others, "one destroyer ends it");
        assert_eq!(world.call(0, 0, name), Called::Erred);
        world.conclude(1, thing);
    });
}

macro_rules! models {
    ($($model:ident),* $(,)?) => { $( mod $model {
        #[test]
        fn holds() {
            squall_sync::weaken::check(super::$model);
        }
    } )* };
}
models!(
    miss_first,
    kill_first,
    two_misses_against_kill,
    same_vp,
    same_cluster,
    two_clusters,
    large_machine,
    early_call,
    vacant,
    discard_against_calls,
    calls_first_in_operations,
    death_first_in_operations,
    discard_in_operations,
    stale_against_reuse_in_operations,
    holds_on_one,
    holds_on_two,
    hold_in_operations,
    graves,
    keepers,
    publish_first,
    freeze_first,
    two_kills,
);

macro_rules! twins {
    ($($name:ident: $site:ident breaks $model:ident),* $(,)?) => { $(
        #[cfg(loom)]
        #[test]
        fn $name() {
            let test = concat!("raw::model::", stringify!($model), "::holds");
            squall_sync::weaken::twin(sites::$site, &[], test);
        }
    )* };
}
twins! {
    twin_confirm: CONFIRM breaks miss_first,
    twin_ask_before_active: ASK_BEFORE_ACTIVE breaks miss_first,
    twin_leave: LEAVE breaks miss_first,
    twin_kill: KILL breaks miss_first,
    twin_retire_first: RETIRE_FIRST breaks miss_first,
    twin_clear_entries: CLEAR_ENTRIES breaks calls_first_in_operations,
    twin_entry_store: ENTRY_STORE breaks same_vp,
    twin_entry_load: ENTRY_LOAD breaks same_vp,
    twin_rep_store: REP_STORE breaks same_cluster,
    twin_rep_load: REP_LOAD breaks same_cluster,
    twin_words_store: WORDS_STORE breaks large_machine,
    twin_words_load: WORDS_LOAD breaks large_machine,
    twin_slot_store: SLOT_STORE breaks early_call,
    twin_slot_load: SLOT_LOAD breaks early_call,
    twin_slot_vacate: SLOT_VACATE breaks vacant,
    twin_slot_load_vacant: SLOT_LOAD breaks vacant,
    twin_next_generation: NEXT_GENERATION breaks stale_against_reuse_in_operations,
    twin_release: RELEASE breaks holds_on_one,
    twin_wait_holds: WAIT_HOLDS breaks holds_on_one,
    twin_held: HELD breaks holds_on_two,
    twin_bury_push: BURY_PUSH breaks graves,
    twin_bury_take: BURY_TAKE breaks graves,
    twin_let_go: LET_GO breaks keepers,
    twin_publish: PUBLISH breaks publish_first,
    twin_thaw: THAW breaks publish_first,
    twin_published: PUBLISHED breaks publish_first,
    twin_settled: SETTLED breaks publish_first,
}
