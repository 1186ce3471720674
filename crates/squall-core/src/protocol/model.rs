//! Model checks of the protocol in the form that ships, and the tests of those tests.
//!
//! Each model is a small program of two or three threads over the functions of this folder, in the little [`world`]. Under
//! loom every interleaving (up to the preemption bound) and every value a load may return is tried; under Miri the seeds do
//! that at random. Each ordering that the proof names, and each step whose order it needs, is then weakened, and its model
//! must fail (`twins!` below; under Miri, whose findings end the process, `SQUALL_WEAKEN` names the sites and the caller
//! expects the failure).
//!
//! Most models have no operations, whose fences would hide weak orderings from loom; in these nothing is freed before all
//! is over, but for what holds protect, and the world checks what is asked of whoever waits for a grace period. Those whose
//! names end in `in_operations` run over the grace periods that ship, and free.

mod arbiters;
mod swaps;
mod world;

use squall_machine::park::EventCount;
use squall_sys::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::thread;
use std::ptr;

use super::graves::Grave;
use super::header::{FIRST, Header, NEW, NOTHING, SECOND};
use super::miss::{InFlight, release};
use super::object::header;
use super::platform::Platform;
#[cfg(loom)]
use super::sites;
use super::slot::Absent;
use super::teardown::kill;
use crate::protocol::id::Id;
#[cfg(loom)]
use squall_machine::park::sites as park;
#[cfg(loom)]
use squall_rcu::__model::ENTER_FENCE;
use world::{Body, CLASS, Called, Name, OTHER, SLOT, Sent, World, beside, ignore, lend, take_back};

/// A miss makes, publishes and installs while the object is killed: no call that begins after `kill` returned finds it,
/// and whoever drains the gate cuts every way.
fn miss_against_kill(miss_on_main: bool, shared: bool) {
    World::run(&[0], false, |world| {
        let (thing, name) = if shared { world.create_shared() } else { world.create(1, 1) };
        let miss = move || {
            let _ = world.call(0, 0, name);
        };
        let killer = move || {
            assert!(world.destroy(None, thing));
            assert_eq!(world.call(0, 0, name), Called::Erred, "after the object was destroyed");
        };
        beside(miss_on_main, miss, killer);
        assert_eq!(world.call(0, 0, name), Called::Erred, "after the object was destroyed");
        world.conclude(1, thing);
    });
}

fn miss_first() {
    miss_against_kill(true, false);
}

fn kill_first() {
    miss_against_kill(false, false);
}

fn shared_first() {
    miss_against_kill(true, true);
}

fn shared_kill_first() {
    miss_against_kill(false, true);
}

/// Two misses on two VPs while the object is killed: the last one out clears the entries of both.
fn two_misses_against_kill() {
    World::run(&[0, 1], false, |world| {
        let (thing, name) = world.create(1, 1);
        let miss = |vp| move || ignore(world.call(vp, 0, name));
        let others = [thread::spawn(miss(0)), thread::spawn(miss(1))];
        assert!(world.destroy(None, thing));
        others.into_iter().for_each(|other| other.join().unwrap());
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
        assert!(world.destroy(None, thing));
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
        let early = thread::spawn(move || ignore(world.call(0, 0, name)));
        let (thing, _) = world.create(1, 1);
        early.join().unwrap();
        assert_ne!(world.call(0, 0, name), Called::Erred);
        assert!(world.destroy(None, thing));
        world.conclude(1, thing);
    });
}

/// The same reference, while the object is made: its caller finds it, or is told that it is still to come.
fn early_answer() {
    World::run(&[], false, |world| {
        let early = thread::spawn(move || {
            // SAFETY: nothing is freed before all is over.
            let found = unsafe { InFlight::enter(world, Id::new(SLOT, 1)) };
            assert!(
                !matches!(found, Err(Absent::Destroyed(_))),
                "what was not there yet is called destroyed"
            );
        });
        let (thing, _) = world.create(1, 1);
        early.join().unwrap();
        // SAFETY: all threads are joined, and nobody has made a representative.
        unsafe { drop(Box::from_raw(thing.0.as_ptr())) };
    });
}

/// A stale reference to a well-known object, whose slot becomes vacant: its caller is told that the object was destroyed,
/// not that it is still to come.
fn vacant() {
    World::run(&[], false, |world| {
        let (thing, stale) = world.create(1, 1);
        let end = move || {
            let _ = world.slot.advance(stale.id.generation(), &CLASS);
            world.slot.vacate();
        };
        let caller = move || {
            // SAFETY: nothing is freed before all is over.
            let found = unsafe { InFlight::enter(world, stale.id) };
            assert!(
                !matches!(found, Err(Absent::NotThere)),
                "a reference to what was destroyed waits for it"
            );
        };
        beside(true, end, caller);
        // SAFETY: all threads are joined, and nobody has made a representative.
        unsafe { drop(Box::from_raw(thing.0.as_ptr())) };
    });
}

/// A stale reference while the next object of its slot comes and goes, which is of another class: whoever asks is told the
/// class of what was asked for, or none.
fn class_of_the_next() {
    World::run(&[], false, |world| {
        let (first, stale) = world.create(1, 1);
        // SAFETY: valid; nobody has made a representative.
        let _ = unsafe { kill(world, first.object().as_ref().id) };
        let (second, lent) = lend(AtomicPtr::new(ptr::null_mut()));
        let go_on = move || {
            let _ = world.slot.advance(1, &CLASS);
            let (next, _) = world.create(2, 2);
            second.store(next.0.as_ptr(), Ordering::Relaxed);
            // As of a slot that is not the first.
            world.slot.retire(&OTHER);
            let _ = world.slot.advance(2, &OTHER);
        };
        let ask = move || {
            // SAFETY: nothing is freed before all is over.
            match unsafe { InFlight::enter(world, stale.id) } {
                Err(Absent::Destroyed(class)) => {
                    assert!(class.is_none_or(|class| ptr::eq(class, &CLASS)), "the class of the next one");
                }
                _ => panic!("a destroyed object was found, or is still to come"),
            };
        };
        beside(true, go_on, ask);
        // SAFETY: all threads are joined; from `Box::leak`.
        unsafe {
            drop(Box::from_raw(second.load(Ordering::Relaxed)));
            drop(Box::from_raw(first.0.as_ptr()));
            take_back(lent);
        }
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
        assert!(world.destroy(None, thing));
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
                world.in_operation(caller, || ignore(world.call(0, 0, name)));
            }
        };
        let death = move || {
            if discard {
                world.entry(0, SLOT).store(ptr::null_mut(), Ordering::Relaxed);
            }
            assert!(world.destroy(owner, thing));
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

/// The same with a second caller, who may be the last one out.
fn two_callers_in_operations() {
    World::run(&[0], true, |world| {
        let (thing, name) = world.create(1, 1);
        let readers = [world.reader(), world.reader(), world.reader()];
        let others = [0, 1].map(|n| {
            let reader = readers[n];
            thread::spawn(move || world.in_operation(reader, || ignore(world.call(0, 0, name))))
        });
        assert!(world.destroy(readers[2], thing));
        let _ = world.reclaim(thing);
        others.into_iter().for_each(|other| other.join().unwrap());
        world.conclude(1, thing);
    });
}

/// A reference outlives its object, whose slot goes to the next one: it never reaches that, nor what was freed.
fn stale_against_reuse_in_operations() {
    World::run(&[0], true, |world| {
        let (old, stale) = world.create(1, 1);
        let (caller, owner) = (world.reader(), world.reader());
        let calls = move || {
            for _ in 0..2 {
                world.in_operation(caller, || ignore(world.call(0, 0, stale)));
            }
        };
        let reuse = thread::spawn(move || {
            assert!(world.destroy(owner, old));
            world.reclaim(old).then(|| {
                let _ = world.slot.advance(stale.id.generation(), &CLASS);
                let (new, name) = world.create(world.slot.generation.load(Ordering::Relaxed), 2);
                world.in_operation(owner, || assert_ne!(world.call(0, 0, name), Called::Erred));
                Sent(new)
            })
        });
        calls();
        match reuse.join().unwrap() {
            Some(new) => {
                assert!(world.destroy(None, new.get()));
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
        assert!(world.destroy(None, thing));
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
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(world.ended(), 1, "of quiet and the releases, one goes on");
    });
}

fn holds_on_one() {
    holds_against_quiet([0, 0]);
}

fn holds_on_two() {
    holds_against_quiet([0, 1]);
}

/// A call takes its hold in an operation and uses it outside, while the object dies. With `peer` it also makes another
/// representative there, as `RepContext::local`, and may be the last one out.
fn hold_against_death(peer: bool) {
    World::run(&[0], true, |world| {
        let (thing, name) = world.create(1, 1);
        let (caller, owner) = (world.reader(), world.reader());
        let blocking = move || {
            let held = world.in_operation(caller, || {
                let held = world.find(0, 0, name).1?;
                // SAFETY: found in this operation.
                unsafe { held.as_ref() }.hold();
                Some(held)
            });
            if let Some(held) = held {
                // SAFETY: held.
                unsafe {
                    if peer && let Some(in_flight) = InFlight::inside(world, thing.object(), 0) {
                        let made = world.find_or_make(thing, 0, 1);
                        drop(in_flight);
                        Body::method(header(made, 0), name.serial);
                    }
                    Body::method(held, name.serial);
                    release(world, held);
                }
            }
        };
        let death = move || {
            assert!(world.destroy(owner, thing));
            let _ = world.reclaim(thing);
        };
        beside(true, blocking, death);
        world.conclude(1, thing);
    });
}

fn hold_in_operations() {
    hold_against_death(false);
}

fn hold_makes_peer_in_operations() {
    hold_against_death(true);
}

/// Representatives are left for a VP; its runner and one that came in its place take them. Each is dropped once, and the
/// last ends the object.
fn graves() {
    World::run(&[], false, |world| {
        let (thing, _) = world.create(1, 1);
        let (grave, lent) = lend(Grave::new());
        let buried = [Sent(Body::make(thing, 0, 0)), Sent(Body::make(thing, 0, 1))];
        let dropped = move |count| {
            // SAFETY: valid while the count is not zero. As `dropped` of `death.rs`.
            if unsafe { thing.object().as_ref() }.count_down(count) {
                // SAFETY: once: the count was taken to zero here. The log: see the field.
                unsafe {
                    thing.free();
                    world.log.with_mut(|log| (*log).ended += 1);
                }
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
            take_back(lent);
            #[cfg(loom)]
            {
                buried.into_iter().for_each(|rep| drop(Box::from_raw(rep.get().cast::<Body>().as_ptr())));
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

/// The object and a representative that outlives it give their links to the root back: the last drops it.
fn links() {
    World::run(&[], false, |world| {
        let (thing, _) = world.create(1, 1);
        let (root, lent) = lend(Guarded(UnsafeCell::new(0)));
        let looked = lend(AtomicU32::new(0));
        // SAFETY: valid: nothing is freed before all is over.
        let object = unsafe { thing.object().as_ref() };
        object.link();
        let keeper = move || {
            root.look();
            if object.unlink() {
                root.touch();
                looked.0.fetch_add(1, Ordering::Relaxed);
            }
        };
        beside(true, keeper, keeper);
        assert_eq!(looked.0.load(Ordering::Relaxed), 1, "the last link drops the root");
        // SAFETY: all threads are joined; from `Box::leak`.
        unsafe {
            drop(Box::from_raw(thing.0.as_ptr()));
            take_back(lent);
            take_back(looked.1);
        }
    });
}

/// Membership is frozen while a miss publishes: what is there is all there, and stays so. With `guards`, the gather does
/// something meanwhile that whoever finds a later representative must see.
fn freeze_against_publish(publish_on_main: bool, guards: bool) {
    World::run(&[], false, |world| {
        let (thing, _) = world.create(1, 1);
        let (guarded, lent) = lend(Guarded(UnsafeCell::new(0)));
        let publish = move || {
            let rep = Body::make(thing, 0, 0);
            // SAFETY: valid: nothing is freed before all is over.
            let this = unsafe { thing.0.as_ref() };
            if !this.membership.try_publish() {
                // SAFETY: our own.
                return unsafe { drop(Box::from_raw(rep.cast::<Body>().as_ptr())) };
            }
            if guards {
                guarded.touch();
            }
            // SAFETY: built, and in no tree.
            assert!(unsafe { this.reps.add(rep) }.is_ok());
            this.membership.published();
        };
        let gather = move || {
            // SAFETY: as above.
            let this = unsafe { thing.0.as_ref() };
            this.membership.freeze();
            if this.membership.settled() {
                if guards {
                    guarded.touch();
                }
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
            take_back(lent);
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

    fn look(&self) -> u32 {
        // SAFETY: see above.
        self.0.with(|value| unsafe { *value })
    }
}

fn publish_first() {
    freeze_against_publish(true, false);
}

fn freeze_first() {
    freeze_against_publish(false, false);
}

fn frozen_guards() {
    freeze_against_publish(true, true);
}

/// A miss waits until membership is thawed, as in `Multi::wait_for_membership`: nothing else will wake it.
fn thaw_wakes() {
    World::run(&[], false, |world| {
        let (thing, _) = world.create(1, 1);
        let (thawed, lent) = lend(EventCount::new());
        // SAFETY: valid: nothing is freed before all is over.
        let membership = unsafe { &thing.0.as_ref().membership };
        membership.freeze();
        let miss = move || {
            while !membership.try_publish() {
                let seen = thawed.prepare();
                if membership.try_publish() {
                    break;
                }
                thawed.wait(seen, None);
            }
            membership.published();
        };
        let thaw = move || {
            membership.thaw();
            thawed.signal(u32::MAX);
        };
        beside(true, miss, thaw);
        // SAFETY: all threads are joined; from `Box::leak`.
        unsafe {
            drop(Box::from_raw(thing.0.as_ptr()));
            take_back(lent);
        }
    });
}

/// Two destroyers, and a miss that may be the last one out: one of them kills, and one sends the object on.
fn two_kills() {
    World::run(&[0], false, |world| {
        let (thing, name) = world.create(1, 1);
        let miss = thread::spawn(move || ignore(world.call(0, 0, name)));
        let other = thread::spawn(move || world.destroy(None, thing));
        let mine = world.destroy(None, thing);
        let others = other.join().unwrap();
        miss.join().unwrap();
        assert!(mine != others, "one destroyer ends it");
        assert_eq!(world.call(0, 0, name), Called::Erred);
        world.conclude(1, thing);
    });
}

/// A call meets a header that is resumed meanwhile, as `__call_act` of `reference.rs` does: it learns what that lends, or that it cannot use it.
fn meets_while_resumed() {
    for kind in [NOTHING, FIRST, SECOND] {
        let id = Id::new(5, 7).bits();
        let mut resumed = Header::new(NEW, [ptr::null(); 2], 0, true);
        resumed.lends(kind);
        let (_, lent) = lend(resumed);
        let [called, swapped] = [Sent(lent), Sent(lent)];
        let call = move || {
            // SAFETY: valid until all threads are joined.
            let resumed = unsafe { called.get().as_ref() };
            if resumed.is(id) {
                assert_eq!(resumed.lent(), FIRST, "it lends something else");
            } else if resumed.is_other(id) {
                assert_ne!(resumed.lent(), FIRST, "it lends the first thing");
            }
        };
        let swap = move || {
            // SAFETY: as above.
            let resumed = unsafe { swapped.get().as_ref() };
            resumed.activate(id);
            resumed.suspend();
            resumed.resume(id);
        };
        beside(true, call, swap);
        // SAFETY: all threads are joined; from `lend`.
        unsafe { take_back(lent) };
    }
}

macro_rules! models {
    ($($model:ident),* $(,)?) => { $( mod $model {
        #[test]
        fn holds() {
            squall_sys::sync::weaken::check(super::$model);
        }
    } )* };
}
use models;
models!(
    miss_first,
    kill_first,
    shared_first,
    shared_kill_first,
    two_misses_against_kill,
    same_vp,
    same_cluster,
    two_clusters,
    large_machine,
    early_call,
    early_answer,
    vacant,
    class_of_the_next,
    discard_against_calls,
    calls_first_in_operations,
    death_first_in_operations,
    discard_in_operations,
    two_callers_in_operations,
    stale_against_reuse_in_operations,
    holds_on_one,
    holds_on_two,
    hold_in_operations,
    hold_makes_peer_in_operations,
    graves,
    keepers,
    links,
    publish_first,
    freeze_first,
    frozen_guards,
    thaw_wakes,
    two_kills,
    meets_while_resumed,
);

/// The models of the module are named from `raw::model` on.
macro_rules! twins {
    ($($name:ident: $site:path, breaks $($model:ident)::+),* $(,)?) => { $(
        #[cfg(loom)]
        #[test]
        fn $name() {
            let test = concat!("raw::model", $("::", stringify!($model),)+ "::holds");
            squall_sys::sync::weaken::twin($site, &[], test);
        }
    )* };
}
use twins;
twins! {
    twin_confirm: sites::CONFIRM, breaks miss_first,
    twin_ask_before_active: sites::ASK_BEFORE_ACTIVE, breaks miss_first,
    twin_leave: sites::LEAVE, breaks miss_first,
    twin_kill: sites::KILL, breaks miss_first,
    twin_kill_shared: sites::KILL, breaks shared_first,
    twin_retire_first: sites::RETIRE_FIRST, breaks miss_first,
    twin_clear_entries: sites::CLEAR_ENTRIES, breaks calls_first_in_operations,
    twin_clear_discarded_entries: sites::CLEAR_ENTRIES, breaks discard_against_calls,
    twin_entry_store: sites::ENTRY_STORE, breaks same_vp,
    twin_entry_load: sites::ENTRY_LOAD, breaks same_vp,
    twin_rep_store: sites::REP_STORE, breaks same_cluster,
    twin_rep_load: sites::REP_LOAD, breaks same_cluster,
    twin_rep_load_beside: sites::REP_LOAD, breaks two_clusters,
    twin_words_store: sites::WORDS_STORE, breaks large_machine,
    twin_words_load: sites::WORDS_LOAD, breaks large_machine,
    twin_slot_store: sites::SLOT_STORE, breaks early_call,
    twin_slot_load: sites::SLOT_LOAD, breaks early_call,
    twin_slot_vacate: sites::SLOT_VACATE, breaks vacant,
    twin_slot_load_vacant: sites::SLOT_LOAD, breaks vacant,
    twin_next_generation: sites::NEXT_GENERATION, breaks stale_against_reuse_in_operations,
    twin_release: sites::RELEASE, breaks holds_on_one,
    twin_wait_holds: sites::WAIT_HOLDS, breaks holds_on_one,
    twin_look_holds: sites::LOOK_HOLDS, breaks holds_on_one,
    twin_held: sites::HELD, breaks holds_on_two,
    twin_held_by_drops: sites::HELD, breaks graves,
    twin_bury_push: sites::BURY_PUSH, breaks graves,
    twin_bury_take: sites::BURY_TAKE, breaks graves,
    twin_let_go: sites::LET_GO, breaks keepers,
    twin_links: sites::LINKS, breaks links,
    twin_slot_retire: sites::SLOT_RETIRE, breaks class_of_the_next,
    twin_slot_over: sites::SLOT_OVER, breaks class_of_the_next,
    twin_publish: sites::PUBLISH, breaks frozen_guards,
    twin_thaw: sites::THAW, breaks frozen_guards,
    twin_published: sites::PUBLISHED, breaks publish_first,
    twin_settled: sites::SETTLED, breaks publish_first,
    twin_thaw_wakes: park::SIGNAL_FENCE, breaks thaw_wakes,
    twin_operations: ENTER_FENCE, breaks calls_first_in_operations,
    twin_operations_of_two: ENTER_FENCE, breaks two_callers_in_operations,
    twin_operations_and_reuse: ENTER_FENCE, breaks stale_against_reuse_in_operations,
    twin_operations_and_holds: ENTER_FENCE, breaks hold_in_operations,
    twin_other_at_once: sites::OTHER_AT_ONCE, breaks meets_while_resumed,
    twin_operations_and_peers: ENTER_FENCE, breaks hold_makes_peer_in_operations,
}
