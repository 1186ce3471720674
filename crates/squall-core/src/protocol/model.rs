//! Models of the protocol: the shipped code under loom and Miri, and the twins that test the models.
//!
//! Each model is a small program of two or three threads over the functions of this folder, in the little
//! [`world`]. Loom tries every interleaving, up to the preemption bound, and every value that a load may
//! return. Miri does so at random, by seeds.
//!
//! Each ordering that the proof names is then weakened, and so is each step that must come in a certain
//! order. The model must then fail. Under loom, `twins!` below does that. Under Miri a finding ends the
//! process; there `SQUALL_WEAKEN` names the sites, and the caller expects the failure.
//!
//! Most models have no operations, because the fences of operations would hide weak orderings from loom. Such
//! a model frees memory only at its end, except memory that holds protect. Its world checks the condition for
//! a grace period instead. The models with names that end in `in_operations` run over the real grace periods,
//! and free memory.
//!
//! This file has the models of misses and destruction. `reclaim.rs` has holds, drops and membership,
//! `swaps.rs` swaps, and `arbiters.rs` arbitrations.

mod arbiters;
mod reclaim;
mod swaps;
mod world;

use squall_sys::sync::atomic::{AtomicPtr, Ordering};
use squall_sys::sync::thread;
use std::ptr;

use super::miss::InFlight;
use super::object::header;
use super::platform::Platform;
#[cfg(loom)]
use super::sites;
use super::slot::Absent;
use super::teardown::kill;
use crate::protocol::id::Id;
#[cfg(loom)]
use squall_rcu::__model::ENTER_FENCE;
use world::{Body, CLASS, Called, Name, OTHER, SLOT, Sent, World, free_leaked, ignore, leak, run_both};

/// A miss makes, publishes and installs a representative while the object is killed. A call that begins after
/// `kill` returned does not find it. The thread that drains the gate clears every path.
fn miss_against_kill(miss_on_main: bool, shared: bool) {
    World::run(&[0], false, |world| {
        let (thing, name) = if shared { world.create_shared() } else { world.create(1, 1) };
        let miss = move || {
            let _ = world.call(0, 0, name);
        };
        let killer = move || {
            assert!(world.destroy(None, thing));
            assert_eq!(world.call(0, 0, name), Called::Erred, "a call reached the destroyed object");
        };
        run_both(miss_on_main, miss, killer);
        assert_eq!(world.call(0, 0, name), Called::Erred, "a call reached the destroyed object");
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

/// Two misses on two VPs run while the object is killed. The last one that leaves clears the entries of both.
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

/// Two misses run, in one cluster or in two. Each cluster gets one representative, which its misses find; a
/// loser is dropped.
fn two_misses(vps: [usize; 2], clusters: [u32; 2]) {
    World::run(&vps, false, |world| {
        let (thing, name) = world.create(1, 1);
        let call = |n: usize| move || assert_ne!(world.call(vps[n], clusters[n], name), Called::Erred);
        run_both(true, call(0), call(1));
        // SAFETY: all threads are joined, and no memory was freed.
        let reps = unsafe { thing.reps() };
        assert_eq!(reps.len(), if clusters[0] == clusters[1] { 1 } else { 2 });
        for (vp, cluster) in vps.into_iter().zip(clusters) {
            // SAFETY: all threads are joined, and no memory was freed.
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

/// A thread that has the handle early calls while the object is published.
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

/// A thread that has the handle early looks up the object while it is published. It finds the object, or
/// learns that it is not there yet.
fn early_answer() {
    World::run(&[], false, |world| {
        let early = thread::spawn(move || {
            // SAFETY: memory is freed only at the end of the model.
            let found = unsafe { InFlight::enter(world, Id::new(SLOT, 1)) };
            assert!(
                !matches!(found, Err(Absent::Destroyed(_))),
                "an object that was not there yet is reported as destroyed"
            );
        });
        let (thing, _) = world.create(1, 1);
        early.join().unwrap();
        // SAFETY: all threads are joined, and there is no representative.
        unsafe { drop(Box::from_raw(thing.0.as_ptr())) };
    });
}

/// A stale handle to a well-known object is used while its slot becomes vacant. The caller learns that the
/// object was destroyed, not that it is not there yet.
fn vacant() {
    World::run(&[], false, |world| {
        let (thing, stale) = world.create(1, 1);
        let end = move || {
            let _ = world.slot.advance(stale.id.generation(), &CLASS);
            world.slot.vacate();
        };
        let caller = move || {
            // SAFETY: memory is freed only at the end of the model.
            let found = unsafe { InFlight::enter(world, stale.id) };
            assert!(
                !matches!(found, Err(Absent::NotThere)),
                "a handle to a destroyed object reports it as not there yet"
            );
        };
        run_both(true, end, caller);
        // SAFETY: all threads are joined, and there is no representative.
        unsafe { drop(Box::from_raw(thing.0.as_ptr())) };
    });
}

/// A stale handle is used while the next object of its slot, of another class, comes and goes. The caller
/// gets the class of its own object, or no class.
fn class_of_the_next() {
    World::run(&[], false, |world| {
        let (first, stale) = world.create(1, 1);
        // SAFETY: valid; there is no representative.
        let _ = unsafe { kill(world, first.object().as_ref().id) };
        let (second, leaked) = leak(AtomicPtr::new(ptr::null_mut()));
        let reuse = move || {
            let _ = world.slot.advance(1, &CLASS);
            let (next, _) = world.create(2, 2);
            second.store(next.0.as_ptr(), Ordering::Relaxed);
            // As in a slot after the first.
            world.slot.retire(&OTHER);
            let _ = world.slot.advance(2, &OTHER);
        };
        let ask = move || {
            // SAFETY: memory is freed only at the end of the model.
            match unsafe { InFlight::enter(world, stale.id) } {
                Err(Absent::Destroyed(class)) => {
                    assert!(
                        class.is_none_or(|class| ptr::eq(class, &CLASS)),
                        "a call got the class of the next object"
                    );
                }
                _ => panic!("a destroyed object was found, or reported as not there yet"),
            };
        };
        run_both(true, reuse, ask);
        // SAFETY: all threads are joined; from `Box::leak`.
        unsafe {
            drop(Box::from_raw(second.load(Ordering::Relaxed)));
            drop(Box::from_raw(first.0.as_ptr()));
            free_leaked(leaked);
        }
    });
}

/// Entries are discarded at any time, while calls run and the object is killed.
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

/// An object is killed, and its memory is freed after the grace period, while calls run and entries are
/// discarded.
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
        run_both(in_order, calls, death);
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

/// An object is killed and freed under two callers, each of which may be the last to leave the gate.
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

/// A handle outlives its object, and the slot goes to the next one. The handle reaches neither that object
/// nor freed memory.
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

/// Two threads destroy the object while a miss may be the last to leave the gate. One of them kills it, and
/// one sends it to its grace period.
fn two_kills() {
    World::run(&[0], false, |world| {
        let (thing, name) = world.create(1, 1);
        let miss = thread::spawn(move || ignore(world.call(0, 0, name)));
        let other = thread::spawn(move || world.destroy(None, thing));
        let mine = world.destroy(None, thing);
        let others = other.join().unwrap();
        miss.join().unwrap();
        assert!(mine != others, "exactly one destroyer ends the object");
        assert_eq!(world.call(0, 0, name), Called::Erred);
        world.conclude(1, thing);
    });
}

use squall_sys::models;
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
    two_kills,
);

/// Twins of models. `twin` names a model by its path from the crate root.
macro_rules! twins {
    ($($name:ident: $site:path, breaks $($model:ident)::+),* $(,)?) => { $(
        #[cfg(loom)]
        #[test]
        fn $name() {
            let test = concat!("protocol::model", $("::", stringify!($model),)+ "::holds");
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
    twin_view_first: sites::VIEW_FIRST, breaks same_cluster,
    twin_rep_load: sites::REP_LOAD, breaks same_cluster,
    twin_rep_load_beside: sites::REP_LOAD, breaks two_clusters,
    twin_words_store: sites::WORDS_STORE, breaks large_machine,
    twin_words_load: sites::WORDS_LOAD, breaks large_machine,
    twin_slot_store: sites::SLOT_STORE, breaks early_call,
    twin_slot_load: sites::SLOT_LOAD, breaks early_call,
    twin_slot_vacate: sites::SLOT_VACATE, breaks vacant,
    twin_slot_load_vacant: sites::SLOT_LOAD, breaks vacant,
    twin_next_generation: sites::NEXT_GENERATION, breaks stale_against_reuse_in_operations,
    twin_slot_retire: sites::SLOT_RETIRE, breaks class_of_the_next,
    twin_slot_over: sites::SLOT_OVER, breaks class_of_the_next,
    twin_operations: ENTER_FENCE, breaks calls_first_in_operations,
    twin_operations_of_two: ENTER_FENCE, breaks two_callers_in_operations,
    twin_operations_and_reuse: ENTER_FENCE, breaks stale_against_reuse_in_operations,
}
