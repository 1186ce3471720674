//! Models of reclamation: holds, drops and links, and of membership and headers.

use squall_machine::park::EventCount;
#[cfg(loom)]
use squall_machine::park::sites as park;
#[cfg(loom)]
use squall_rcu::__model::ENTER_FENCE;
use squall_sys::sync::atomic::{AtomicU32, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::thread;
use std::ptr;

use super::twins;
use super::world::{Body, Sent, World, free_leaked, leak, run_both};
use crate::protocol::drop_queue::DropQueue;
use crate::protocol::header::{Header, NEW};
use crate::protocol::id::Id;
use crate::protocol::miss::{InFlight, release};
use crate::protocol::object::header;
#[cfg(loom)]
use crate::protocol::sites;

/// Calls hold representatives while memory quiet asks for them. Exactly one thread continues, after all calls
/// are over.
fn holds_against_quiet(clusters: [u32; 2]) {
    World::run(&[0, 1], false, |world| {
        let (thing, name) = world.create(1, 1);
        let mut vp = 0;
        let others = clusters.map(|cluster| {
            let (_, held) = world.find(vp, cluster, name);
            vp += 1;
            let held = Sent(held.expect("the object lives"));
            // SAFETY: valid: no memory was freed.
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
        assert_eq!(world.ended(), 1, "exactly one of memory quiet and the releases continues");
    });
}

fn holds_on_one() {
    holds_against_quiet([0, 0]);
}

fn holds_on_two() {
    holds_against_quiet([0, 1]);
}

/// A call takes its hold in an operation and uses it outside, while the object dies. With `peer` it also
/// makes another representative there, like `RepContext::local`, and may be the last to leave the gate.
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
        run_both(true, blocking, death);
        world.conclude(1, thing);
    });
}

fn hold_in_operations() {
    hold_against_death(false);
}

fn hold_makes_peer_in_operations() {
    hold_against_death(true);
}

/// One thread puts representatives into a drop queue; the runners that it sends and another thread take them.
/// Each representative is dropped once, and the last drop ends the object.
fn drop_queue() {
    World::run(&[], false, |world| {
        let (thing, _) = world.create(1, 1);
        let (queue, leaked) = leak(DropQueue::new());
        let queued = [Sent(Body::make(thing, 0, 0)), Sent(Body::make(thing, 0, 1))];
        let dropped = move |count| {
            // SAFETY: valid while the count is not zero. Like `dropped` in `destroy.rs`.
            if unsafe { thing.object().as_ref() }.count_down(count) {
                // SAFETY: once: the count was taken to zero here. For the log, see the field.
                unsafe {
                    thing.free();
                    world.log.with_mut(|log| (*log).ended += 1);
                }
            }
        };
        let run = move || {
            // SAFETY: a representative in the queue is valid, and belongs to this thread once taken.
            unsafe {
                queue.take(|rep| {
                    Body::free(rep);
                    dropped(1);
                })
            }
        };
        let other_runner = thread::spawn(run);
        // Like `Multi::finish`.
        // SAFETY: valid: no memory was dropped yet.
        unsafe { thing.0.as_ref() }.object.count_up(3);
        let mut sent = Vec::new();
        for rep in queued {
            // SAFETY: our own, and those in the queue came through here.
            if unsafe { queue.push(rep.get()) } {
                sent.push(thread::spawn(run));
            }
        }
        dropped(1);
        sent.into_iter().for_each(|runner| runner.join().unwrap());
        other_runner.join().unwrap();
        assert_eq!(world.ended(), 1, "each representative is taken once");
        // SAFETY: all threads are joined; from `Box::leak`. Under loom the blocks are still there.
        unsafe {
            free_leaked(leaked);
            #[cfg(loom)]
            {
                queued.into_iter().for_each(|rep| drop(Box::from_raw(rep.get().cast::<Body>().as_ptr())));
                drop(Box::from_raw(thing.0.as_ptr()));
            }
        }
    });
}

/// Both keepers of a block give it up: the last one frees it.
fn keepers() {
    World::run(&[], false, |world| {
        let (thing, name) = world.create(1, 1);
        let rep = Sent(Body::make(thing, 0, 0));
        let keeper = move || {
            // SAFETY: one of two keepers; the last one frees it.
            unsafe {
                Body::method(header(Body::owner(rep.get()), 0), name.serial);
                if rep.get().as_ref().remove_keeper() {
                    Body::free(rep.get());
                    world.log.with_mut(|log| (*log).ended += 1);
                }
            }
        };
        run_both(true, keeper, keeper);
        assert_eq!(world.ended(), 1, "the last keeper frees");
        // SAFETY: all threads are joined; from `Box::leak`.
        unsafe {
            #[cfg(loom)]
            drop(Box::from_raw(rep.get().cast::<Body>().as_ptr()));
            drop(Box::from_raw(thing.0.as_ptr()));
        }
    });
}

/// The object, and a representative that outlives it, give back their links to the root. The last one drops
/// it.
fn links() {
    World::run(&[], false, |world| {
        let (thing, _) = world.create(1, 1);
        let (root, leaked) = leak(Guarded(UnsafeCell::new(0)));
        let looked = leak(AtomicU32::new(0));
        // SAFETY: valid: memory is freed only at the end of the model.
        let object = unsafe { thing.object().as_ref() };
        object.link();
        let keeper = move || {
            root.look();
            if object.unlink() {
                root.touch();
                looked.0.fetch_add(1, Ordering::Relaxed);
            }
        };
        run_both(true, keeper, keeper);
        assert_eq!(looked.0.load(Ordering::Relaxed), 1, "the last link drops the root");
        // SAFETY: all threads are joined; from `Box::leak`.
        unsafe {
            drop(Box::from_raw(thing.0.as_ptr()));
            free_leaked(leaked);
            free_leaked(looked.1);
        }
    });
}

/// Membership is frozen while a miss publishes. The set then stays as it is. With `guards`, the gather writes
/// meanwhile, and the finder of a later representative must see the write.
fn freeze_against_publish(publish_on_main: bool, guards: bool) {
    World::run(&[], false, |world| {
        let (thing, _) = world.create(1, 1);
        let (guarded, leaked) = leak(Guarded(UnsafeCell::new(0)));
        let publish = move || {
            let rep = Body::make(thing, 0, 0);
            // SAFETY: valid: memory is freed only at the end of the model.
            let this = unsafe { thing.0.as_ref() };
            if !this.membership.try_publish() {
                // SAFETY: the representative is our own.
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
            // SAFETY: valid: memory is freed only at the end of the model.
            let this = unsafe { thing.0.as_ref() };
            this.membership.freeze();
            if this.membership.settled() {
                if guards {
                    guarded.touch();
                }
                // SAFETY: valid: memory is freed only at the end of the model.
                let counts = unsafe { [thing.reps().len(), thing.reps().len()] };
                assert_eq!(counts[0], counts[1], "a representative was added while membership was frozen");
            }
            this.membership.thaw();
        };
        run_both(publish_on_main, publish, gather);
        // SAFETY: all threads are joined; from `Box::leak`.
        unsafe {
            thing.reps().into_iter().for_each(|rep| drop(Box::from_raw(rep.cast::<Body>().as_ptr())));
            drop(Box::from_raw(thing.0.as_ptr()));
            free_leaked(leaked);
        }
    });
}

struct Guarded(UnsafeCell<u32>);

// SAFETY: the protocol under test excludes concurrent users; the checker watches.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn touch(&self) {
        // SAFETY: the protocol under test excludes concurrent users.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    fn look(&self) -> u32 {
        // SAFETY: the protocol under test excludes concurrent users.
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

/// A miss waits until membership is thawed, like `Multi::wait_for_membership`. Only the gather wakes it.
fn thaw_wakes() {
    World::run(&[], false, |world| {
        let (thing, _) = world.create(1, 1);
        let (thawed, leaked) = leak(EventCount::new());
        // SAFETY: valid: memory is freed only at the end of the model.
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
        run_both(true, miss, thaw);
        // SAFETY: all threads are joined; from `Box::leak`.
        unsafe {
            drop(Box::from_raw(thing.0.as_ptr()));
            free_leaked(leaked);
        }
    });
}

/// A call meets a header that is suspended and resumed meanwhile. An id matches only while it is active.
fn meets_while_resumed() {
    let id = Id::new(5, 7).bits();
    let (_, leaked) = leak(Header::new(NEW, [ptr::null(); 2], 0));
    let [called, swapped] = [Sent(leaked), Sent(leaked)];
    let call = move || {
        // SAFETY: valid until all threads are joined.
        let resumed = unsafe { called.get().as_ref() };
        let _ = resumed.is(id);
        assert!(!resumed.is(Id::new(5, 8).bits()), "a header matches another id");
    };
    let swap = move || {
        // SAFETY: valid until all threads are joined.
        let resumed = unsafe { swapped.get().as_ref() };
        resumed.activate(id);
        resumed.suspend();
        assert!(!resumed.is(id), "a suspended header matches");
        resumed.resume(id);
        assert!(resumed.is(id), "a resumed header does not match");
    };
    run_both(true, call, swap);
    // SAFETY: all threads are joined; from `leak`.
    unsafe { free_leaked(leaked) };
}

use squall_sys::models;
models!(
    holds_on_one,
    holds_on_two,
    hold_in_operations,
    hold_makes_peer_in_operations,
    drop_queue,
    keepers,
    links,
    publish_first,
    freeze_first,
    frozen_guards,
    thaw_wakes,
    meets_while_resumed,
);

twins! {
    twin_release: sites::RELEASE, breaks reclaim::holds_on_one,
    twin_wait_holds: sites::WAIT_HOLDS, breaks reclaim::holds_on_one,
    twin_look_holds: sites::LOOK_HOLDS, breaks reclaim::holds_on_one,
    twin_held: sites::HELD, breaks reclaim::holds_on_two,
    twin_held_by_drops: sites::HELD, breaks reclaim::drop_queue,
    twin_drop_push: sites::DROP_PUSH, breaks reclaim::drop_queue,
    twin_drop_take: sites::DROP_TAKE, breaks reclaim::drop_queue,
    twin_let_go: sites::LET_GO, breaks reclaim::keepers,
    twin_links: sites::LINKS, breaks reclaim::links,
    twin_publish: sites::PUBLISH, breaks reclaim::frozen_guards,
    twin_thaw: sites::THAW, breaks reclaim::frozen_guards,
    twin_published: sites::PUBLISHED, breaks reclaim::publish_first,
    twin_settled: sites::SETTLED, breaks reclaim::publish_first,
    twin_thaw_wakes: park::SIGNAL_FENCE, breaks reclaim::thaw_wakes,
    twin_operations_and_holds: ENTER_FENCE, breaks reclaim::hold_in_operations,
    twin_operations_and_peers: ENTER_FENCE, breaks reclaim::hold_makes_peer_in_operations,
}
