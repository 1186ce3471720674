//! Drops of users' values, in a table or retired beside it, that use the same table: with the reclaimer
//! thread, and with callers that reclaim. A program of its own, since both settings are global.
#![cfg(not(loom))]

use squall_history::rng::Rng;
use squall_parts::dhash::{LocalTable, Locking, MasterTable, Verdict};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::thread;

/// More than a batch of deferred calls, many times.
const MANY: u64 = if cfg!(miri) { 20 } else { 3_000 };
const KEYS: u64 = 3;

/// Serialises the tests, and switches the reclaimer thread on or off.
fn alone(reclaimer: bool) -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    let alone = LOCK.lock().unwrap_or_else(|poison| poison.into_inner());
    squall_rcu::set_reclaimer(reclaimer);
    alone
}

/// A table with parts that use it when they are dropped.
struct World {
    master: MasterTable<u64, Uses, Uses>,
    locals: Vec<LocalTable<u64, Uses, Uses>>,
}

/// The path from a part to its table.
#[derive(Clone, Default)]
struct Way {
    world: Arc<OnceLock<Weak<World>>>,
    made: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
    looked: Arc<AtomicU64>,
}

/// A part, or a retired value: its drop locks its key in every possible way.
struct Uses {
    key: u64,
    way: Way,
}

impl Way {
    fn part(&self, key: u64) -> Uses {
        self.made.fetch_add(1, SeqCst);
        Uses { key, way: self.clone() }
    }
}

impl Drop for Uses {
    fn drop(&mut self) {
        self.way.dropped.fetch_add(1, SeqCst);
        // Absent once the table itself is dropped.
        let Some(world) = self.way.world.get().and_then(Weak::upgrade) else { return };
        world.master.find_and_lock(&self.key, |element| assert_eq!(element.global().key, self.key));
        for local in &world.locals {
            local.find_and_lock(&self.key, |_, part| assert_eq!(part.key, self.key));
        }
        world.master.do_op(&self.key, Locking::All, (), |(), _| (), |(), _, _| ());
        self.way.looked.fetch_add(1, SeqCst);
        // This may be the last count.
        drop(world);
    }
}

fn world() -> (Arc<World>, Way) {
    let way = Way::default();
    let parts = way.clone();
    let master = MasterTable::new(move |global: &Uses| parts.part(global.key));
    let locals = (0..2).map(|_| master.local()).collect();
    let world = Arc::new(World { master, locals });
    way.world.set(Arc::downgrade(&world)).ok().unwrap();
    (world, way)
}

/// Drops the table, and checks that each drop ran once and without a panic.
fn ends(world: Arc<World>, way: &Way, panicked: u64) {
    world.master.clear();
    drop(world);
    // Twice, for values retired by drops.
    (0..2).for_each(|_| _ = squall_rcu::barrier().unwrap());
    assert_eq!(squall_rcu::stats().panicked, panicked, "a drop was refused a lock, or ran under it");
    assert_eq!(way.made.load(SeqCst), way.dropped.load(SeqCst));
    assert!(way.looked.load(SeqCst) > 0);
}

#[test]
fn values_retired_under_an_element_lock_are_dropped_after_it() {
    for reclaimer in [false, true] {
        let _alone = alone(reclaimer);
        let panicked = squall_rcu::stats().panicked;
        let (world, way) = world();
        let ask = |act: &mut dyn FnMut()| {
            let then = |_: Verdict, _: &Uses, _: &mut Uses| act();
            world.locals[0].find_or_allocate_and_lock(&1, || way.part(1), then);
        };
        ask(&mut || ());
        let retire = |many: u64| (0..many).for_each(|_| squall_rcu::retire(Box::new(way.part(1))));
        // Outside operations, at the end of one, and in the table's own.
        ask(&mut || retire(MANY));
        ask(&mut || squall_rcu::pin(|_| retire(MANY)));
        world.master.find_and_lock(&1, |_| retire(MANY));
        world.master.lock_all_replicas(&1, |_, _| squall_rcu::pin(|_| retire(MANY)));
        retire(MANY);
        world.master.find_or_allocate_and_lock(&2, || (retire(MANY), way.part(2)).1, |_, _| ());
        assert!(world.master.empty_data(&2));
        ends(world, &way, panicked);
    }
}

#[test]
fn drops_of_parts_lock_their_own_key_under_load() {
    for reclaimer in [false, true] {
        let _alone = alone(reclaimer);
        let panicked = squall_rcu::stats().panicked;
        let (world, way) = world();
        let seed = 20_260_707;
        println!("seed {seed}");
        thread::scope(|threads| {
            for thread in 0..3 {
                let (world, way) = (&world, &way);
                threads.spawn(move || {
                    let mut rng = Rng::new(seed, thread);
                    for _ in 0..MANY {
                        let (key, local) = (rng.below(KEYS), &world.locals[rng.below(2) as usize]);
                        match rng.below(8) {
                            0..5 => local.find_or_allocate_and_lock(
                                &key,
                                || way.part(key),
                                |_, global, part| assert_eq!((global.key, part.key), (key, key)),
                            ),
                            5 => {
                                // An operation runs deferred drops at its end; a lock is taken inside it.
                                squall_rcu::pin(|_| local.find_and_lock(&key, |_, _| ()));
                            }
                            6 => squall_rcu::retire(Box::new(way.part(key))),
                            _ => _ = world.master.empty_data(&key),
                        }
                    }
                });
            }
        });
        ends(world, &way, panicked);
    }
}

/// A walk, and operations on all replicas, keep elements alive that others empty: theirs may be the last
/// count.
#[test]
fn last_counts_of_walks_and_operations_are_dropped_after_the_locks() {
    let _alone = alone(true);
    let panicked = squall_rcu::stats().panicked;
    let (world, way) = world();
    let rounds = MANY / 20;
    thread::scope(|threads| {
        threads.spawn(|| {
            for _ in 0..rounds {
                world.master.do_op_all(Locking::Each, (), |(), _, _| (), |(), _, _, _| thread::yield_now());
                world.master.retain(|key, global| (assert_eq!(*key, global.key), *key != 0).1);
            }
        });
        for round in 0..rounds {
            for key in 0..KEYS {
                for local in &world.locals {
                    local.find_or_allocate_and_lock(&key, || way.part(key), |_, _, _| ());
                }
            }
            assert!(world.master.empty_data(&1) || round > 0);
            // Emptied parts are dropped, except those still kept alive.
            squall_rcu::barrier().unwrap();
        }
    });
    ends(world, &way, panicked);
}
