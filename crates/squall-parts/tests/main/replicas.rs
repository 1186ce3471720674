//! Tests of the safe interface of masters and replicas: walks, panics, copies and drops.

use squall_parts::replica::{Conflict, Master, Replica, Versioned, Watch};
use squall_rcu::pin;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::thread;

/// Counts live instances.
struct Counted(u64, Arc<AtomicI64>);

impl Counted {
    fn new(value: u64, live: &Arc<AtomicI64>) -> Counted {
        live.fetch_add(1, Ordering::Relaxed);
        Counted(value, live.clone())
    }
}

impl Clone for Counted {
    fn clone(&self) -> Counted {
        Counted::new(self.0, &self.1)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

type Reach<'a, T> = &'a mut dyn FnMut(&Replica<T>);

fn all<T: Send + Sync>(replicas: &[Replica<T>]) -> impl FnMut(Reach<'_, T>) {
    move |reach| replicas.iter().for_each(reach)
}

fn value(master: &Master<u64>, replica: &Replica<u64>) -> u64 {
    replica.read(master, |value| **value)
}

#[test]
fn to_04_values_are_dropped_once() {
    let live = Arc::new(AtomicI64::new(0));
    type Make = fn(Counted) -> Master<Counted>;
    for make in [Master::new as Make, Master::fetched, Master::copied] {
        let master = make(Counted::new(1, &live));
        let mut replicas: Vec<_> = (0..3).map(|_| master.replica()).collect();
        for round in 2..20 {
            replicas.iter().for_each(|replica| assert_eq!(replica.read(&master, |v| v.0), round - 1));
            master.set(Counted::new(round, &live), all(&replicas));
            if round == 10 {
                replicas.pop();
            }
        }
        let kept = master.keep().unwrap();
        assert!(master.compare_and_set(1, Counted::new(0, &live), all(&replicas)).is_err());
        drop((master, replicas));
        squall_rcu::barrier().unwrap();
        assert_eq!(live.load(Ordering::Relaxed), 1, "the kept value is alive");
        assert_eq!((kept.0, Versioned::version(&kept)), (19, 19));
        drop(kept);
        squall_rcu::barrier().unwrap();
        assert_eq!(live.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn to_04_a_read_value_lasts_until_the_operation_ends() {
    let live = Arc::new(AtomicI64::new(0));
    let master = Master::copied(Counted::new(1, &live));
    let replicas = [master.replica()];
    pin(|guard| {
        let seen = [replicas[0].load(&master, guard), replicas[0].load(&master, guard), master.load(guard)];
        master.set(Counted::new(2, &live), all(&replicas));
        drop(replicas);
        assert_eq!(seen.map(|seen| (seen.0, Versioned::version(seen))), [(1, 1); 3]);
    });
    drop(master);
    squall_rcu::barrier().unwrap();
    assert_eq!(live.load(Ordering::Relaxed), 0);
}

#[test]
fn to_04_each_replica_has_its_copy_until_the_next_update() {
    let master = Master::copied(7);
    let replicas = [master.replica(), master.replica()];
    pin(|guard| {
        let at = |replica: &Replica<u64>| std::ptr::from_ref(replica.load(&master, guard)).addr();
        let (one, two) = (at(&replicas[0]), at(&replicas[1]));
        assert!(one != two && one != std::ptr::from_ref(master.load(guard)).addr());
        assert_eq!((at(&replicas[0]), at(&replicas[1])), (one, two), "the copy is made once");
        assert_eq!(master.set(8, all(&replicas)), 2);
        assert!(at(&replicas[0]) != one);
        assert_eq!(
            Versioned::version(replicas[0].load(&master, guard)),
            2,
            "a copy has the version of its original"
        );
    });
    // Pushed and fetched values are shared.
    for master in [Master::new(7), Master::fetched(7)] {
        let replica = master.replica();
        pin(|guard| assert!(std::ptr::eq(replica.load(&master, guard), master.load(guard))));
    }
}

#[test]
fn a_replica_that_a_walk_leaves_out_is_found_by_the_next() {
    let master = Master::new(1);
    let replicas = [master.replica(), master.replica()];
    assert_eq!((value(&master, &replicas[0]), value(&master, &replicas[1])), (1, 1));
    master.set(2, all(&replicas[..1]));
    assert_eq!(
        (value(&master, &replicas[0]), value(&master, &replicas[1])),
        (2, 1),
        "a replica left out by the walk keeps its value"
    );
    master.set(3, all(&replicas));
    assert_eq!((value(&master, &replicas[0]), value(&master, &replicas[1])), (3, 3));
}

#[test]
fn a_replica_of_another_master_is_left_alone() {
    let (one, two) = (Master::new(1), Master::new(100));
    let (mine, other) = ([one.replica()], [two.replica()]);
    assert_eq!((value(&one, &mine[0]), value(&two, &other[0])), (1, 100));
    one.set(2, |reach: Reach<'_, u64>| mine.iter().chain(&other).for_each(reach));
    assert_eq!((value(&one, &mine[0]), value(&two, &other[0])), (2, 100));
    // With the wrong master, a replica returns its own value, or that master's if it is empty.
    let fresh = two.replica();
    assert_eq!((value(&one, &other[0]), value(&one, &fresh)), (100, 2));
    assert_eq!(value(&two, &fresh), 100);
}

#[test]
fn a_panic_in_a_walk_leaves_the_old_value_or_the_new_one_everywhere() {
    let master = Master::new(1);
    let replicas = [master.replica(), master.replica(), master.replica()];
    let all_read =
        |expected| replicas.iter().for_each(|replica| assert_eq!(value(&master, replica), expected));
    all_read(1);
    for (fatal, expected) in [(0, 1), (1, 1), (2, 1), (3, 2), (4, 3), (5, 4)] {
        let mut calls = 0;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            master.set(expected, |reach: Reach<'_, u64>| {
                for replica in &replicas {
                    calls += 1;
                    assert!(calls <= fatal, "as asked");
                    reach(replica);
                }
            })
        }));
        assert!(panicked.is_err());
        all_read(expected);
        all_read(expected);
    }
    assert_eq!(master.set(9, all(&replicas)), 5);
    all_read(9);
}

#[test]
fn a_panic_in_an_update_leaves_the_value() {
    let master = Master::new(1);
    let replicas = [master.replica()];
    let panicked = catch_unwind(AssertUnwindSafe(|| master.update(|_| panic!("as asked"), all(&replicas))));
    assert!(panicked.is_err());
    assert_eq!(master.update(|old| old + 1, all(&replicas)), 2);

    /// Cannot be cloned at first.
    struct Fragile(Arc<AtomicBool>);
    impl Clone for Fragile {
        fn clone(&self) -> Fragile {
            assert!(!self.0.load(Ordering::Relaxed), "as asked");
            Fragile(self.0.clone())
        }
    }
    let fragile = Arc::new(AtomicBool::new(true));
    let master = Master::copied(Fragile(fragile.clone()));
    let replica = master.replica();
    assert!(catch_unwind(AssertUnwindSafe(|| replica.read(&master, |_| ()))).is_err());
    fragile.store(false, Ordering::Relaxed);
    pin(|guard| {
        assert!(!std::ptr::eq(replica.load(&master, guard), master.load(guard)), "the replica has a copy now")
    });
}

#[test]
fn an_update_that_comes_too_late_gets_its_value_back() {
    let master = Master::new(String::from("one"));
    assert_eq!(master.set("two".into(), |_| ()), 2);
    let Err(conflict) = master.compare_and_set(1, "late".into(), |_| ()) else {
        panic!("a late update was accepted")
    };
    assert_eq!(conflict.to_string(), "another update was faster: the value has version 2; read it again");
    let Conflict { value, version } = conflict;
    assert_eq!((&*value, version), ("late", 2));
    assert_eq!(master.compare_and_set(version, value, |_| ()).unwrap(), 3);
    master.read(|value| assert_eq!((&***value, Versioned::version(value)), ("late", 3)));
}

#[test]
fn a_vacant_master_takes_a_value_over_with_its_version_once() {
    let old = Master::new(1);
    old.set(2, |_| ());
    let new = old.vacant();
    let replica = new.replica();
    assert!(catch_unwind(AssertUnwindSafe(|| value(&new, &replica))).is_err());
    new.adopt(old.keep().unwrap()).unwrap();
    assert!(new.adopt(old.keep().unwrap()).is_err(), "the master has a value");
    assert_eq!(value(&new, &replica), 2);
    // Both masters continue from there.
    assert_eq!((new.set(30, |reach: Reach<'_, u64>| reach(&replica)), old.set(20, |_| ())), (3, 3));
    assert_eq!((value(&new, &replica), old.read(|value| **value)), (30, 20));
}

/// Updates per thread; few under an interpreter.
const ROUNDS: u64 = if cfg!(miri) { 30 } else { 20_000 };

/// A thread that has seen a version tells the others, and no thread sees an earlier one in any replica.
#[test]
fn to_04_no_reader_sees_an_earlier_value_than_another_did() {
    for make in [Master::new as fn(u64) -> Master<u64>, Master::fetched, Master::copied] {
        let master = make(1);
        let replicas: Vec<_> = (0..3).map(|_| master.replica()).collect();
        let (told, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for first in 0..2 {
                let (master, replicas, told, stop) = (&master, &replicas, &told, &stop);
                scope.spawn(move || {
                    for at in (first..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                        let known = told.load(Ordering::Acquire);
                        let seen = replicas[at % 3].read(master, |v| {
                            assert_eq!(**v, Versioned::version(v), "a value of another version");
                            **v
                        });
                        assert!(seen >= known, "{seen} was read after another reader had seen {known}");
                        told.fetch_max(seen, Ordering::AcqRel);
                    }
                });
            }
            let writers: Vec<_> = (0..2)
                .map(|_| {
                    let writer = || (0..ROUNDS).for_each(|_| _ = master.update(|v| v + 1, all(&replicas)));
                    scope.spawn(writer)
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(master.read(|value| **value), 1 + 2 * ROUNDS, "an update was lost");
    }
}

/// A waker that counts, and panics if told to.
struct Bell(Arc<AtomicU64>, Option<&'static str>);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        if let Some(words) = self.1 {
            std::panic::panic_any(words);
        }
    }
}

#[test]
fn a_panicking_waker_loses_no_other_wake_up() {
    let (watch, rings) = (Watch::new(), Arc::new(AtomicU64::new(0)));
    for words in [None, Some("first"), Some("second"), None] {
        watch.register(None, &Waker::from(Arc::new(Bell(rings.clone(), words))));
    }
    let payload = catch_unwind(AssertUnwindSafe(|| watch.wake())).unwrap_err();
    assert_eq!(rings.load(Ordering::Relaxed), 4, "a wake-up was lost");
    assert_eq!(payload.downcast_ref(), Some(&"first"));
    watch.wake();
    assert_eq!(rings.load(Ordering::Relaxed), 4, "a waker is used once");
}
