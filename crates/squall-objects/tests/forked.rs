//! Calls in the child of a fork, made while other threads of the parent write.
//!
//! A program of its own: the threads of other tests would hold locks at a fork.
#![cfg(all(target_os = "linux", not(any(loom, miri))))]

#[path = "../../squall-rcu/tests/forked/mod.rs"]
mod child;

use child::{End, in_child_ending};
use squall_adapt::engine::{self, EngineState};
use squall_adapt::sensor::Alarm;
use squall_core::{CallError, CallErrorKind};
use squall_machine::ClusterSize;
use squall_objects::cached::{self, CachedMap, CachedMapExt, Form};
use squall_objects::counter;
use squall_objects::ids::{self, IdPool, IdPoolExt};
use squall_objects::map::{self, MapExt, OwnedMap};
use squall_objects::pages::{self, PagePool, PagePoolExt, Supply};
use squall_objects::pool::ObjectPool;
use squall_objects::queue::{self, Queue, QueueExt};
use squall_objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const KEYS: u64 = 8;
const CHILDREN: usize = 60;

/// Runs `write` on three threads, with a random key, while this thread forks children that run `check`.
fn while_others_write(write: impl Fn(u64) + Sync, check: impl Fn() -> bool) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    if std::env::var_os("SQUALL_TEST_RUNNER").is_some() {
        eprintln!("SKIP: the emulator ignores wipe-on-fork");
        return;
    }
    let stop = AtomicBool::new(false);
    (0..KEYS).for_each(&write);
    let all_passed = thread::scope(|scope| {
        for first in 0..3 {
            let (stop, write) = (&stop, &write);
            scope.spawn(move || {
                let keys = (first..).take_while(|_| !stop.load(Ordering::Relaxed));
                keys.for_each(|n: u64| write(n % KEYS));
            });
        }
        let all_passed = (0..CHILDREN).all(|n| {
            // The forking thread is a user, too.
            write(n as u64 % KEYS);
            in_child_ending(if n % 2 == 0 { End::Orderly } else { End::AtOnce }, &check)
        });
        stop.store(true, Ordering::Relaxed);
        all_passed
    });
    assert!(all_passed, "a call in a forked child was done, failed for another reason, or hung");
    (0..KEYS).for_each(write);
}

fn is_forked<T>(result: Result<T, CallError>) -> bool {
    result.is_err_and(|error| error.reason() == CallErrorKind::Forked)
}

fn map_is_refused(map: OwnedMap<u64, u64>) {
    let handle = map.handle();
    while_others_write(
        |key| _ = handle.set(key, key),
        || (0..KEYS).all(|key| is_forked(handle.try_set(key, 1))),
    );
    assert_eq!(map.len(), KEYS as usize);
}

#[test]
fn calls_of_a_shared_map_fail_in_a_forked_child() {
    map_is_refused(map::shared());
}

#[test]
fn calls_of_a_locked_map_fail_in_a_forked_child() {
    map_is_refused(map::locked());
}

#[test]
fn calls_of_a_partitioned_map_fail_in_a_forked_child() {
    map_is_refused(map::partitioned(3, |hash| (hash >> 1) as usize % 3));
}

#[test]
fn calls_of_a_replicated_map_fail_in_a_forked_child() {
    map_is_refused(map::replicated(ClusterSize::Cpu));
}

#[test]
fn calls_of_an_adaptive_map_fail_in_a_forked_child() {
    map_is_refused(map::adaptive());
}

#[test]
fn calls_of_a_distributed_cell_fail_in_a_forked_child() {
    let cell = read_mostly::distributed(0, ClusterSize::Cpu);
    let handle = cell.handle();
    while_others_write(
        |key| _ = handle.set(key),
        || is_forked(handle.try_set(1)) && is_forked(handle.try_read(|_| ())),
    );
}

#[test]
fn calls_of_a_cached_map_fail_in_a_forked_child() {
    let map = cached::map::<u64, u64>(Form::distributed(ClusterSize::Cpu));
    let handle = map.handle();
    while_others_write(
        |key| _ = handle.set(key, key),
        || {
            // A report of each panic, with a backtrace, would take most of the time.
            std::panic::set_hook(Box::new(|_| ()));
            let set = || std::panic::catch_unwind(|| handle.set(1, 1)).is_err();
            is_forked(handle.try_form()) && set()
        },
    );
}

#[test]
fn a_forked_child_does_not_pause_for_the_engine() {
    if std::env::var_os("SQUALL_TEST_RUNNER").is_some() {
        eprintln!("SKIP: the emulator ignores wipe-on-fork");
        return;
    }
    // Starts the engine's thread, which the child lacks.
    let _counter = counter::adaptive();
    assert_eq!(engine::thread_state(), EngineState::Running);
    let check = || {
        let before = engine::pauses();
        engine::__plant_late();
        let alarm = Alarm::new(0);
        (0..1000).for_each(|_| alarm.step(1, || unreachable!("the alarm is off")));
        engine::pauses() == before
    };
    assert!(in_child_ending(End::AtOnce, check));
}

#[test]
fn an_object_of_a_pool_is_not_dropped_in_a_forked_child() {
    static DROPPED: AtomicBool = AtomicBool::new(false);
    struct Connection;
    impl Drop for Connection {
        fn drop(&mut self) {
            DROPPED.store(true, Ordering::Relaxed);
        }
    }
    let pool = ObjectPool::builder(|| Connection).shared().max_size(1).build();
    let lent = Mutex::new(Some(pool.get()));
    let check = || {
        drop(lent.lock().unwrap().take());
        !DROPPED.load(Ordering::Relaxed)
    };
    while_others_write(|_| (), check);
    assert!(!DROPPED.load(Ordering::Relaxed));
    drop(lent);
    assert!(pool.try_get().is_some());
}

#[test]
fn calls_of_a_pool_of_ids_fail_in_a_forked_child_and_the_drop_of_an_id_does_not_wait() {
    for pool in [ids::shared(100), ids::distributed(100), ids::adaptive(100)] {
        let handle = pool.handle();
        let held = Mutex::new(Some(handle.get().unwrap()));
        while_others_write(
            |_| drop(handle.get_batch(3)),
            || {
                drop(held.lock().unwrap().take());
                is_forked(handle.try_get()) && is_forked(handle.try_free()) && is_forked(handle.try_give(1))
            },
        );
        drop(held);
        assert_eq!(pool.free(), 100);
    }
}

#[test]
fn calls_of_a_pool_of_pages_fail_in_a_forked_child_and_the_drop_of_a_page_does_not_wait() {
    let above = pages::shared(Supply::system(1000));
    let below = || Supply::under(above.handle(), 500);
    for pool in [pages::shared(below()), pages::distributed(below()), pages::adaptive(below())] {
        let handle = pool.handle();
        let held = Mutex::new(Some(handle.get().unwrap()));
        while_others_write(
            |key| handle.get_batch(3).iter_mut().for_each(|page| page[0] = key as u8),
            || {
                drop(held.lock().unwrap().take());
                is_forked(handle.try_get())
                    && is_forked(handle.try_free())
                    && is_forked(handle.try_give_up(1))
            },
        );
        drop(held);
        assert_eq!(pool.free(), pool.used());
    }
}

#[test]
fn calls_of_a_queue_fail_in_a_forked_child_and_the_drop_of_an_element_does_not_wait() {
    for queue in [queue::strict(), queue::relaxed(), queue::local(), queue::adaptive()] {
        let handle = queue.handle();
        handle.put(0, 0).unwrap();
        let held = Mutex::new(handle.take());
        while_others_write(
            |key| {
                handle.put(key, key).unwrap();
                _ = handle.get();
            },
            || {
                drop(held.lock().unwrap().take());
                let rejected = handle.try_put(1, 7).unwrap_err().into_element();
                is_forked(handle.try_get()) && is_forked(handle.try_take()) && rejected == (1, 7)
            },
        );
        assert!(!handle.is_done());
        drop(held);
        while handle.get().is_some() {}
        assert!(handle.is_done());
    }
}
