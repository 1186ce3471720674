//! Tests of the master and its local tables, in one thread and in many.

use squall_history::rng::Rng;
use squall_parts::dhash::{LocalTable, Locked, Locking, MasterTable, Verdict};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

/// The number of rounds or keys in most tests.
const MANY: u64 = if cfg!(miri) { 30 } else { 5_000 };

/// Numbers as global parts, and zeros as local parts.
fn numbers() -> MasterTable<u64, u64, u64> {
    MasterTable::new(|_| 0)
}

fn ask(local: &LocalTable<u64, u64, u64>, key: u64, fill: u64) -> (Verdict, u64) {
    local.find_or_allocate_and_lock(&key, || fill, |verdict, global, _| (verdict, *global))
}

/// Counts live instances.
struct Counted {
    alive: Arc<AtomicU64>,
    number: u64,
}

impl Counted {
    fn new(alive: &Arc<AtomicU64>, number: u64) -> Counted {
        alive.fetch_add(1, SeqCst);
        Counted { alive: alive.clone(), number }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // A second drop would go below zero.
        assert!(self.alive.fetch_sub(1, SeqCst) > 0);
        self.number = u64::MAX;
    }
}

/// Waits for deferred drops.
fn settle() {
    squall_rcu::barrier().unwrap();
}

// --- CO-54, CO-66: the structure ---

#[test]
fn co_54_a_key_in_one_table_is_found_by_all() {
    let master = numbers();
    let locals = [master.local(), master.local()];
    assert_eq!(master.locals(), 2);
    for key in 0..MANY {
        assert_eq!(ask(&locals[0], key, key + 1), (Verdict::Empty, key + 1));
    }
    assert_eq!((master.len() as u64, locals[0].len() as u64, locals[1].len()), (MANY, MANY, 0));
    for key in (0..MANY).step_by(2) {
        assert_eq!(ask(&locals[1], key, 0), (Verdict::Found, key + 1));
    }
    assert_eq!(locals[1].len() as u64, MANY.div_ceil(2));
    for key in 0..MANY {
        assert_eq!(locals[1].read(&key, |n| *n), Some(key + 1));
        assert_eq!(master.read(&key, |n| *n), Some(key + 1));
    }
    assert_eq!(locals[1].len() as u64, MANY.div_ceil(2), "a read makes no replica");
    master.clear();
    assert!(master.is_empty() && locals.iter().all(LocalTable::is_empty));
    assert!((0..MANY).all(|key| locals[0].read(&key, |_| ()).is_none()));
}

/// Writes until the tables have shrunk.
fn stir(local: &LocalTable<u64, u64, u64>, master: &MasterTable<u64, u64, u64>) {
    // Other keys each time: the key decides whether a removal checks the size.
    for key in (0..MANY).map(|i| u64::MAX - i) {
        ask(local, key, 0);
        assert!(master.empty_data(&key));
    }
}

#[test]
fn co_54_each_table_resizes_by_its_own_contents() {
    let master = numbers();
    let (full, few) = (master.local(), master.local());
    let least = [master.capacity(), full.capacity(), few.capacity()];
    for key in 0..MANY {
        ask(&full, key, key);
    }
    (0..5).for_each(|key| _ = ask(&few, key, 0));
    let many = MANY as usize;
    assert!(master.capacity() >= many && full.capacity() >= many);
    assert!(few.capacity() < many / 2 || cfg!(miri), "{few:?} grew with another table");
    // A dropped local table frees its own room, and no other's.
    let late = master.local();
    assert_eq!(late.capacity(), least[1]);
    drop(late);
    master.retain(|key, _| *key < 5);
    assert_eq!((master.len(), few.len()), (5, 5));
    // The tables shrink by themselves, each by its own writes.
    stir(&full, &master);
    if !cfg!(miri) {
        assert!(full.capacity() < many / 2 && master.capacity() < many / 2, "{full:?} {master:?}");
    }
    // They also shrink on request.
    master.shrink_to_fit();
    let now = [master.capacity(), full.capacity(), few.capacity()];
    assert!(now.iter().zip(least).all(|(now, least)| *now <= 2 * least), "{now:?} after {least:?}");
    assert!((0..5).all(|key| ask(&few, key, 9) == (Verdict::Found, key)));
    let roomy = MasterTable::<u64, u64, u64>::with_capacity_and_hasher(many, Default::default(), |_| 0);
    assert!(roomy.capacity() >= many && roomy.local().capacity() == least[1]);
}

#[test]
fn keys_can_be_visited_retained_and_extended() {
    let mut master = numbers();
    let local = master.local();
    ask(&local, 1, 100);
    local.find_and_lock(&1, |_, part| *part = 7).unwrap();
    master.extend((0..10).map(|key| (key, key)));
    assert_eq!(
        local.find_and_lock(&1, |global, part| (*global, *part)),
        Some((100, 7)),
        "the key was present"
    );
    let mut seen = BTreeMap::new();
    master.for_each(|key, global| assert_eq!(seen.insert(*key, *global), None));
    let expected = (0..10).map(|key| (key, if key == 1 { 100 } else { key }));
    assert!(seen.into_iter().eq(expected));
    // A key that is being filled is neither visited nor waited for.
    let fill = || {
        master.for_each(|key, _| assert_ne!(*key, 20));
        20
    };
    local.find_or_allocate_and_lock(&20, fill, |_, _, _| ());
    master.retain(|key, _| key % 2 == 0);
    assert_eq!((master.len(), local.len(), local.read(&1, |_| ())), (6, 1, None));
    // After a panic, unvisited keys and the current one stay.
    let before = master.len();
    let panics = AssertUnwindSafe(|| master.retain(|_, _| std::panic::resume_unwind(Box::new(()))));
    catch_unwind(panics).unwrap_err();
    assert_eq!(master.len(), before);
}

/// A hasher without `Default`, a local part without `Sync`, and parts without `Clone` or `Debug`.
#[test]
fn type_bounds_are_minimal() {
    fn is_shared<T: Send + Sync + std::fmt::Debug>(_: &T) {}
    struct Global(#[allow(dead_code)] AtomicU64);
    struct Part(Cell<u64>);
    let master = MasterTable::<u64, Global, Part>::new(|_| Part(Cell::new(0)));
    let local = master.local();
    is_shared(&master);
    is_shared(&local);
    // The closures borrow, are not `Send`, and move values in and out.
    let (not_send, moved) = (std::rc::Rc::new(1), String::from("in"));
    let out = local.find_or_allocate_and_lock(
        &1,
        || Global(AtomicU64::new(*not_send)),
        |_, _, part| {
            part.0.set(*not_send);
            moved
        },
    );
    assert_eq!(out, "in");
}

#[test]
fn co_66_locals_come_and_go_at_any_time() {
    let (globals, parts) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let master = {
        let parts = parts.clone();
        MasterTable::<u64, Counted, Counted>::new(move |global| Counted::new(&parts, global.number))
    };
    let first = master.local();
    for round in 0..3 {
        let local = master.local();
        assert_eq!(master.locals(), 2);
        for key in 0..20 {
            let fill = || Counted::new(&globals, key);
            let verdict = local.find_or_allocate_and_lock(&key, fill, |verdict, global, part| {
                assert_eq!((global.number, part.number), (key, key));
                verdict
            });
            assert_eq!(verdict == Verdict::Empty, round == 0);
            first.find_and_lock(&key, |_, part| assert_eq!(part.number, key)).unwrap();
        }
        assert_eq!(parts.load(SeqCst), 40);
        drop(local);
        settle();
        assert_eq!((master.locals(), parts.load(SeqCst), globals.load(SeqCst)), (1, 20, 20));
    }
    // A local table may outlive its master.
    drop(master);
    assert_eq!(first.read(&3, |global| global.number), Some(3));
    drop(first);
    settle();
    assert_eq!((parts.load(SeqCst), globals.load(SeqCst)), (0, 0));
}

#[test]
fn co_66_an_emptied_key_leaves_all_tables_at_once_and_its_memory_follows() {
    let alive = Arc::new(AtomicU64::new(0));
    let master = {
        let alive = alive.clone();
        MasterTable::<u64, Counted, Counted>::new(move |global| Counted::new(&alive, global.number))
    };
    let locals = [master.local(), master.local()];
    for life in 0..MANY / 10 {
        for local in &locals {
            local.find_or_allocate_and_lock(
                &0,
                || Counted::new(&alive, life),
                |_, global, part| assert_eq!((global.number, part.number), (life, life)),
            );
        }
        assert!(master.empty_data(&0));
        assert!(master.is_empty() && locals.iter().all(LocalTable::is_empty));
    }
    settle();
    assert_eq!(alive.load(SeqCst), 0, "a part of an old life is still alive");
}

// --- CO-55 to CO-57: find, or allocate, and lock ---

#[test]
fn co_55_a_hit_takes_no_lock_of_the_master() {
    let master = numbers();
    let local = master.local();
    ask(&local, 1, 10);
    // The element is locked, so the master cannot be asked for it.
    let hit = master.find_and_lock(&1, |_| {
        let hit = || {
            local.find_or_allocate_and_lock(&1, || unreachable!(), |verdict, global, _| (verdict, *global))
        };
        thread::scope(|threads| threads.spawn(hit).join().unwrap())
    });
    assert_eq!(hit, Some((Verdict::Found, 10)));
}

#[test]
fn co_55_one_of_many_that_miss_a_key_fills_it() {
    let master = numbers();
    let threads = if cfg!(miri) { 3 } else { 8 };
    let locals: Vec<_> = (0..3).map(|_| master.local()).collect();
    let start = Barrier::new(threads);
    let empty: Vec<AtomicU64> = (0..MANY / 10).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for thread in 0..threads {
            let (master, local, empty, start) = (&master, &locals[thread % 3], &empty, &start);
            scope.spawn(move || {
                start.wait();
                for (key, empty) in empty.iter().enumerate() {
                    let (key, fill) = (key as u64, (key * 100 + thread) as u64);
                    // Some callers ask through the master.
                    let (verdict, seen) = if thread == 0 {
                        master.find_or_allocate_and_lock(
                            &key,
                            || fill,
                            |verdict, element| (verdict, *element.global()),
                        )
                    } else {
                        ask(local, key, fill)
                    };
                    match verdict {
                        Verdict::Empty => assert_eq!((empty.fetch_add(1, Relaxed), seen), (0, fill)),
                        Verdict::Found => assert_eq!(seen / 100, key),
                    }
                    assert_eq!(ask(local, key, fill), (Verdict::Found, seen));
                }
            });
        }
    });
    assert!(empty.iter().all(|empty| empty.load(Relaxed) == 1));
}

#[test]
fn co_56_callers_wait_for_a_fill_and_readers_miss() {
    let master = numbers();
    let locals = [master.local(), master.local()];
    let filled = AtomicBool::new(false);
    thread::scope(|threads| {
        let (begun, begins) = mpsc::channel();
        let (locals, master, filled) = (&locals, &master, &filled);
        let fill = move || {
            for at in 0..4 {
                let begun = begun.clone();
                threads.spawn(move || {
                    begun.send(()).unwrap();
                    let look = |verdict, global: &u64| {
                        assert!(filled.load(SeqCst), "a waiter got the key before it was filled");
                        assert_eq!((verdict, *global), (Verdict::Found, 5));
                    };
                    match (locals.get(at), at) {
                        (Some(local), _) => local.find_or_allocate_and_lock(
                            &1,
                            || 6,
                            |verdict, global, _| look(verdict, global),
                        ),
                        (None, 2) => master.find_or_allocate_and_lock(
                            &1,
                            || 6,
                            |verdict, element| look(verdict, element.global()),
                        ),
                        _ => assert!(
                            master
                                .do_op(
                                    &1,
                                    Locking::All,
                                    (),
                                    |(), global| look(Verdict::Found, global),
                                    |_, _, _| ()
                                )
                                .is_some()
                        ),
                    }
                });
            }
            (0..4).for_each(|_| begins.recv().unwrap());
            // Time for the others to violate a rule. A correct table passes in any case.
            for _ in 0..100 {
                assert!(
                    locals.iter().all(|local| local.read(&1, |_| ()).is_none()),
                    "a reader saw a half filled key"
                );
                assert!(master.read(&1, |_| ()).is_none());
                thread::yield_now();
            }
            filled.store(true, SeqCst);
            5
        };
        locals[0].find_or_allocate_and_lock(&1, fill, |verdict, _, _| assert_eq!(verdict, Verdict::Empty));
    });
}

/// A function that asks for a key with a filler that may fail.
type Way<'a> = dyn Fn(&dyn Fn() -> Result<u64, &'static str>) -> Result<(Verdict, u64), &'static str> + 'a;

#[test]
fn co_56_a_filler_that_fails_or_panics_leaves_the_key_empty() {
    let master = numbers();
    let local = master.local();
    let by_local = |fill: &dyn Fn() -> Result<u64, &'static str>| {
        local.try_find_or_allocate_and_lock(&1, fill, |verdict, global, _| (verdict, *global))
    };
    let by_master = |fill: &dyn Fn() -> Result<u64, &'static str>| {
        master.try_find_or_allocate_and_lock(&1, fill, |verdict, element| (verdict, *element.global()))
    };
    let ways: [&Way; 2] = [&by_local, &by_master];
    for way in ways {
        assert_eq!(way(&|| Err("no memory")), Err("no memory"));
        assert!(catch_unwind(AssertUnwindSafe(|| way(&|| panic!("in a filler")))).is_err());
        assert!(master.is_empty() && local.is_empty());
        assert_eq!((local.read(&1, |_| ()), master.empty_data(&1)), (None, false));
        assert_eq!(way(&|| Ok(4)), Ok((Verdict::Empty, 4)));
        assert_eq!(way(&|| Ok(5)), Ok((Verdict::Found, 4)));
        assert!(master.empty_data(&1));
    }
}

#[test]
fn co_56_a_failed_fill_passes_to_a_waiter() {
    let master = numbers();
    let locals = [master.local(), master.local()];
    let told = AtomicU64::new(0);
    thread::scope(|threads| {
        let (begun, begins) = mpsc::channel();
        let (locals, told) = (&locals, &told);
        let fill = move || {
            for at in 0..4 {
                let begun = begun.clone();
                threads.spawn(move || {
                    begun.send(()).unwrap();
                    let (verdict, seen) = ask(&locals[at % 2], 1, 100 + at as u64);
                    told.fetch_add(u64::from(verdict == Verdict::Empty), Relaxed);
                    assert!(seen >= 100);
                });
            }
            (0..4).for_each(|_| begins.recv().unwrap());
            Err("this filler fails")
        };
        assert!(locals[0].try_find_or_allocate_and_lock(&1, fill, |_, _, _| ()).is_err());
    });
    assert_eq!(told.load(Relaxed), 1);
}

#[test]
fn co_57_the_master_is_asked_directly() {
    let master = numbers();
    let local = master.local();
    let told = |key, fill| {
        master.find_or_allocate_and_lock(
            &key,
            || fill,
            |verdict, element| (verdict, *element.key(), *element.global()),
        )
    };
    assert_eq!(told(1, 10), (Verdict::Empty, 1, 10));
    assert_eq!(told(1, 20), (Verdict::Found, 1, 10));
    assert!(local.is_empty(), "the master makes no replica");
    assert_eq!(ask(&local, 1, 30), (Verdict::Found, 10));
    assert_eq!(master.find_and_lock(&2, |_| ()), None);
    assert_eq!(local.find_and_lock(&2, |_, _| ()), None);
    assert_eq!((master.len(), local.len()), (1, 1));
}

#[test]
fn a_closure_that_panics_leaves_the_table_usable() {
    let master = numbers();
    let local = master.local();
    ask(&local, 1, 10);
    let panics = |f: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
    panics(&|| local.find_or_allocate_and_lock(&1, || 0, |_, _, _| panic!("with a replica")));
    panics(&|| local.find_or_allocate_and_lock(&2, || 20, |_, _, _| panic!("with one just filled")));
    panics(&|| _ = local.find_and_lock(&1, |_, _| panic!("with one that was found")));
    panics(&|| _ = master.find_and_lock(&1, |_| panic!("with an element")));
    panics(&|| _ = master.do_op(&1, Locking::All, (), |_, _| (), |_, _, _| panic!("with all replicas")));
    panics(&|| _ = master.do_op(&1, Locking::Each, (), |_, _| panic!("with the element"), |_, _, _| ()));
    panics(&|| _ = master.start_empty(&1, |_| panic!("before it is empty")));
    panics(&|| _ = local.read(&1, |_| panic!("in a read")));
    assert_eq!((ask(&local, 1, 0), ask(&local, 2, 0)), ((Verdict::Found, 10), (Verdict::Found, 20)));
    panics(&|| {
        master.start_empty(&1, |emptying| {
            let _emptied = emptying.do_empty();
            panic!("when it is empty");
        });
    });
    assert_eq!(ask(&local, 1, 11), (Verdict::Empty, 11));
}

#[test]
fn a_panic_while_making_a_local_part_leaves_the_table_usable() {
    let armed = Arc::new(AtomicBool::new(true));
    let master = {
        let armed = armed.clone();
        MasterTable::<u64, u64, u64>::new(
            move |global| if armed.load(Relaxed) { panic!("no part") } else { *global },
        )
    };
    let locals = [master.local(), master.local()];
    assert!(catch_unwind(AssertUnwindSafe(|| ask(&locals[0], 1, 10))).is_err());
    armed.store(false, Relaxed);
    assert_eq!(ask(&locals[0], 1, 11), (Verdict::Empty, 11));
    armed.store(true, Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| ask(&locals[1], 1, 12))).is_err());
    armed.store(false, Relaxed);
    assert_eq!(ask(&locals[1], 1, 13), (Verdict::Found, 11));
}

/// A key with a hash that panics on request: once, or each time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Touchy(u64);

thread_local!(static PANICS: Cell<Option<Often>> = const { Cell::new(None) });

#[derive(Clone, Copy, PartialEq)]
enum Often {
    Once,
    Always,
}

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let often = PANICS.get().filter(|_| self.0.is_multiple_of(7) && self.0 < 1000);
        if often == Some(Often::Once) {
            PANICS.set(None);
        }
        assert!(often.is_none(), "a touchy key");
        self.0.hash(state);
    }
}

#[test]
fn co_56_a_hash_that_panics_while_a_table_grows_leaves_no_key_half_filled() {
    let (first, last) = if cfg!(miri) { (12, 1012) } else { (200, 1400) };
    let hash = BuildHasherDefault::<DefaultHasher>::default;
    for (often, by_local) in [Often::Once, Often::Always].into_iter().flat_map(|o| [(o, true), (o, false)]) {
        let master = MasterTable::<Touchy, u64, u64, _>::with_hasher(hash(), |global| *global);
        let local = master.local();
        let ask = |key: u64| {
            if by_local {
                local.find_or_allocate_and_lock(&Touchy(key), || key, |verdict, global, _| (verdict, *global))
            } else {
                let then = |verdict, element: Locked<'_, _, u64, _, _>| (verdict, *element.global());
                master.find_or_allocate_and_lock(&Touchy(key), || key, then)
            }
        };
        (0..first).for_each(|key| assert_eq!(ask(key), (Verdict::Empty, key)));
        let mut left = Vec::new();
        for key in 1001..last {
            PANICS.set(Some(often));
            left.extend(catch_unwind(AssertUnwindSafe(|| ask(key))).is_err().then_some(key));
            PANICS.set(None);
        }
        assert!(!left.is_empty() || cfg!(miri), "no table moved a touchy key");
        // A thread that found a key being filled for ever would not return; so the count is checked first.
        let full = first + last - 1001 - left.len() as u64;
        assert!(often == Often::Always || master.len() as u64 == full, "a key is filled for ever");
        left.iter().for_each(|key| assert_eq!(master.read(&Touchy(*key), |_| ()), None));
        left.iter().for_each(|key| assert_eq!(ask(*key), (Verdict::Empty, *key)));
        (0..first).chain(1001..last).for_each(|key| assert_eq!(ask(key), (Verdict::Found, key)));
        assert_eq!(master.len() as u64, first + last - 1001);
    }
}

#[test]
#[cfg(debug_assertions)]
#[cfg_attr(miri, ignore = "panics take long there")]
fn a_closure_that_locks_in_the_same_table_panics_before_it_waits() {
    let master = numbers();
    let local = master.local();
    ask(&local, 1, 10);
    let message = |f: &dyn Fn()| {
        let payload = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap()
    };
    let within: [&dyn Fn(); 5] = [
        &|| _ = ask(&local, 1, 0),
        &|| _ = ask(&local, 2, 0),
        &|| _ = master.empty_data(&1),
        &|| master.do_op_all(Locking::All, (), |_, _, _| (), |_, _, _, _| ()),
        &|| master.find_or_allocate_and_lock(&3, || 0, |_, _| ()),
    ];
    for act in within {
        assert!(
            message(&|| local.find_or_allocate_and_lock(&1, || 0, |_, _, _| act()))
                .contains("the master before a local table")
        );
        assert!(
            message(&|| _ = local.try_find_or_allocate_and_lock(
                &9,
                || {
                    act();
                    Err(())
                },
                |_, _, _| ()
            ))
            .contains("same table")
        );
        assert!(message(&|| _ = master.find_and_lock(&1, |_| act())).contains("same table"));
    }
    // Reads, other tables, and new or dropped local tables are allowed.
    let other = numbers();
    local.find_or_allocate_and_lock(
        &1,
        || 0,
        |_, _, _| {
            assert_eq!(local.read(&1, |n| *n), Some(10));
            ask(&other.local(), 1, 0);
            drop(master.local());
        },
    );
    assert_eq!(ask(&local, 1, 0), (Verdict::Found, 10));
}

// --- CO-58 to CO-60: parts, operations, all replicas ---

#[test]
fn co_58_an_element_has_one_part_for_all_and_one_for_each_place() {
    // The page's frame, and whether it is mapped in this place.
    let pages = MasterTable::<u64, AtomicU64, bool>::new(|_| false);
    let places = [pages.local(), pages.local(), pages.local()];
    for place in &places[..2] {
        place.find_or_allocate_and_lock(
            &5,
            || AtomicU64::new(4096),
            |_, _, mapped| assert!(!std::mem::replace(mapped, true)),
        );
    }
    places[2]
        .find_and_lock(&5, |frame, mapped| assert!(frame.swap(8192, Relaxed) == 4096 && !*mapped))
        .unwrap();
    for place in &places {
        assert_eq!(place.read(&5, |frame| frame.load(Relaxed)), Some(8192), "the global part is shared");
    }
    let mapped =
        pages.do_op(&5, Locking::All, 0, |_, _| (), |places, _, mapped| *places += u32::from(*mapped));
    assert_eq!(mapped, Some(2));
}

#[test]
fn co_59_an_operation_gathers_and_scatters_under_either_locking() {
    let master = numbers();
    let locals: Vec<_> = (0..4).map(|_| master.local()).collect();
    for locking in [Locking::All, Locking::Each] {
        assert_eq!(master.do_op(&1, locking, (), |_, _| (), |_, _, _| ()), None);
        master.find_or_allocate_and_lock(
            &1,
            || 7,
            |_, mut element| {
                let gathered = element.do_op(
                    locking,
                    0,
                    |sum, global| *sum += global,
                    |_, _, _| unreachable!("no replica"),
                );
                assert_eq!(gathered, 7);
            },
        );
        for (local, n) in locals.iter().zip(1..) {
            local.find_and_lock(&1, |_, part| *part = n).unwrap();
        }
        let gather = |(sum, order): &mut (u64, u32), global: &u64| {
            assert_eq!((*sum, *order), (0, 0), "the global part comes first");
            (*sum, *order) = (*global, 1);
        };
        let sum = master.do_op(&1, locking, (0, 0), gather, |(sum, _), _, part| *sum += *part);
        assert_eq!(sum, Some((7 + 1 + 2 + 3 + 4, 1)));
        master.do_op(&1, locking, (), |_, _| (), |(), global, part| *part = *global * 2).unwrap();
        assert!(locals.iter().all(|local| local.find_and_lock(&1, |_, part| *part) == Some(14)));
        assert!(master.empty_data(&1));
    }
}

#[test]
fn co_60_a_loop_over_all_replicas_is_atomic() {
    let master = numbers();
    let locals: Vec<_> = (0..3).map(|_| master.local()).collect();
    locals.iter().for_each(|local| _ = ask(local, 1, 0));
    let rounds = MANY / 5;
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                for _ in 0..rounds {
                    master.lock_all_replicas(&1, |_, replicas| {
                        assert_eq!(replicas.len(), 3);
                        replicas.iter().for_each(|part| {
                            *part += 1;
                            thread::yield_now();
                        });
                    });
                }
            });
        }
        threads.spawn(|| {
            for _ in 0..rounds {
                let parts = master
                    .do_op(&1, Locking::All, Vec::new(), |_, _| (), |parts, _, part| parts.push(*part))
                    .unwrap();
                assert!(parts.iter().all(|part| *part == parts[0]), "{parts:?}");
            }
        });
    });
    assert!(locals.iter().all(|local| local.find_and_lock(&1, |_, part| *part) == Some(2 * rounds)));
}

// --- CO-61: emptying ---

#[test]
fn co_61_a_key_is_emptied_everywhere_at_one_moment() {
    // Lives have rising numbers, and between two lives the key is absent.
    let master = numbers();
    let locals: Vec<_> = (0..3).map(|_| master.local()).collect();
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        for first in 0..2 {
            let (locals, over) = (&locals, &over);
            threads.spawn(move || {
                // The latest life seen, and whether it was seen to be over.
                let (mut latest, mut ended) = (0, false);
                while !over.load(Relaxed) {
                    for at in (0..3).map(|at| (at + first) % 3) {
                        match locals[at].read(&1, |life| *life) {
                            None => ended = true,
                            Some(life) if life == latest => {
                                assert!(!ended, "life {life} was over, and is here again")
                            }
                            Some(life) => {
                                assert!(life > latest, "{life} after {latest}");
                                (latest, ended) = (life, false);
                            }
                        }
                    }
                }
            });
        }
        for life in 1..=MANY / 2 {
            for local in &locals {
                ask(local, 1, life);
            }
            assert!(master.empty_data(&1) && !master.empty_data(&1));
        }
        over.store(true, Relaxed);
    });
}

#[test]
fn co_61_emptying_goes_by_steps_and_may_be_given_up() {
    let master = numbers();
    let locals = [master.local(), master.local()];
    locals.iter().for_each(|local| _ = ask(local, 1, 10));
    assert_eq!(master.start_empty(&2, |_| ()), None);
    let given_up = master.start_empty(&1, |mut emptying| {
        assert_eq!((*emptying.key(), *emptying.global(), emptying.replicas().len()), (1, 10, 2));
        emptying.replicas().iter().for_each(|part| *part += 1);
    });
    assert_eq!((given_up, locals[0].find_and_lock(&1, |_, part| *part)), (Some(()), Some(1)));
    let left = master.start_empty(&1, |emptying| {
        assert_eq!(locals[0].read(&1, |n| *n), Some(10), "the element is not yet empty");
        let mut emptied = emptying.do_empty();
        assert_eq!((locals[0].read(&1, |n| *n), master.read(&1, |n| *n)), (None, None));
        let left = emptied.replicas().iter().map(|part| *part).sum::<u64>() + *emptied.global();
        emptied.finish_empty();
        assert!(master.is_empty() && locals.iter().all(LocalTable::is_empty));
        // The next life may begin while this one is still locked.
        thread::scope(|threads| {
            assert_eq!(threads.spawn(|| ask(&locals[1], 1, 20)).join().unwrap(), (Verdict::Empty, 20))
        });
        left
    });
    assert_eq!((left, ask(&locals[0], 1, 0)), (Some(12), (Verdict::Found, 20)));
}

#[test]
fn co_61_a_key_that_is_being_filled_is_emptied_after() {
    let master = numbers();
    let local = master.local();
    thread::scope(|threads| {
        let (begun, begins) = mpsc::channel();
        let master = &master;
        let fill = move || {
            threads.spawn(move || {
                begun.send(()).unwrap();
                assert!(master.empty_data(&1), "a key that is being filled is emptied afterwards");
            });
            begins.recv().unwrap();
            10
        };
        local.find_or_allocate_and_lock(&1, fill, |verdict, _, _| assert_eq!(verdict, Verdict::Empty));
    });
    assert_eq!((master.read(&1, |_| ()), master.len()), (None, 0));
}

#[test]
fn co_61_a_value_being_read_is_not_dropped() {
    let alive = Arc::new(AtomicU64::new(0));
    let master = MasterTable::<u64, Counted, ()>::new(|_| ());
    let local = master.local();
    local.find_or_allocate_and_lock(&1, || Counted::new(&alive, 10), |_, _, ()| ());
    local.read(&1, |global| {
        assert!(master.empty_data(&1));
        // Many lives begin and end meanwhile.
        for life in 0..20 {
            local.find_or_allocate_and_lock(
                &1,
                || Counted::new(&alive, life),
                |verdict, _, ()| assert_eq!(verdict, Verdict::Empty),
            );
            assert!(master.empty_data(&1));
        }
        assert_eq!((global.number, alive.load(SeqCst)), (10, 21), "a value was dropped while it was read");
    });
    settle();
    assert_eq!(alive.load(SeqCst), 0);
}

// --- CO-62: all elements ---

/// A hasher with the same result for all keys.
#[derive(Default)]
struct Alike;

impl Hasher for Alike {
    fn finish(&self) -> u64 {
        0
    }
    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn co_62_operations_and_walks_meet_every_element_once() {
    let master = numbers();
    let locals = [master.local(), master.local()];
    let many = MANY / 10;
    for key in 0..many {
        ask(&locals[0], key, key);
        locals[(key % 2) as usize].find_and_lock(&key, |_, part| *part += 1).unwrap();
    }
    for locking in [Locking::All, Locking::Each] {
        let met = master.do_op_all(
            locking,
            BTreeMap::new(),
            |met, key, global| assert_eq!((met.insert(*key, (0, 0)), key), (None, global)),
            |met, key, _, part| {
                let (replicas, sum) = met.get_mut(key).unwrap();
                (*replicas, *sum) = (*replicas + 1, *sum + *part);
            },
        );
        assert!(met.iter().all(|(key, (replicas, sum))| (*replicas, *sum) == (1 + key % 2, 1)), "{met:?}");
        assert_eq!(met.len() as u64, many);
    }
    let mut walk = master.add_reference();
    let mut seen = Vec::new();
    loop {
        // Alternately with the element alone, and with all its replicas.
        let next = if seen.len() % 2 == 0 {
            walk.get_next_and_lock(|element| *element.key())
        } else {
            walk.get_next_and_lock_all(|key, _, replicas| (*key, assert!(!replicas.is_empty())).0)
        };
        let Some(key) = next else { break };
        // Between two steps, a walk holds no lock.
        assert!(master.empty_data(&key));
        seen.push(key);
    }
    walk.remove_reference();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..many) && master.is_empty());
}

#[test]
fn co_62_a_walk_keeps_its_elements_and_skips_emptied_ones() {
    let alive = Arc::new(AtomicU64::new(0));
    let master =
        MasterTable::<u64, Counted, (), BuildHasherDefault<Alike>>::with_hasher(Default::default(), |_| ());
    for key in 0..4 {
        master.find_or_allocate_and_lock(&key, || Counted::new(&alive, key), |_, _| ());
    }
    let mut walk = master.add_reference();
    let first = walk.get_next_and_lock(|element| element.global().number).unwrap();
    master.clear();
    settle();
    // All keys are in one bucket, which the walk has reached.
    assert_eq!(alive.load(SeqCst), 3, "{first}");
    assert!(walk.get_next_and_lock(|element| element.global().number).is_none());
    drop(walk);
    settle();
    assert_eq!(alive.load(SeqCst), 0);
}

// --- keys ---

#[test]
fn any_borrowed_form_of_a_key_and_any_hasher_will_do() {
    let master = MasterTable::<String, usize, usize, BuildHasherDefault<Alike>>::with_hasher(
        Default::default(),
        |n| *n,
    );
    let local = master.local();
    for word in ["a", "map", "of", "words"] {
        let told =
            local.find_or_allocate_and_lock(word, || word.len(), |verdict, n, part| (verdict, *n, *part));
        assert_eq!(told, (Verdict::Empty, word.len(), word.len()));
    }
    assert_eq!(local.read("words", |n| *n), Some(5));
    assert_eq!(
        master.do_op("map", Locking::Each, 0, |sum, n| *sum += n, |sum, _, part| *sum += *part),
        Some(6)
    );
    assert!(master.empty_data("of") && !master.empty_data("off"));
    assert_eq!(local.find_and_lock("of", |_, _| ()), None);
    assert_eq!((master.len(), local.len()), (3, 3));
}

/// The two uses named in the thesis: one table from a whole path to a handle, and one from a thread's number
/// to its descriptor.
#[test]
fn co_67_a_path_leads_to_its_handle_and_a_thread_to_its_descriptor() {
    let paths = MasterTable::<String, Arc<str>, u64>::new(|_| 0);
    let threads = MasterTable::<u64, thread::Thread, ()>::new(|_| ());
    let locals: Vec<_> = (0..2).map(|_| (paths.local(), threads.local())).collect();
    let opened = AtomicU64::new(0);
    thread::scope(|scope| {
        for id in 0..4 {
            let (paths, threads) = &locals[id as usize % 2];
            let opened = &opened;
            scope.spawn(move || {
                threads.find_or_allocate_and_lock(&id, thread::current, |verdict, _, ()| {
                    assert_eq!(verdict, Verdict::Empty)
                });
                for path in ["/etc/motd", "/bin/sh", "/etc/motd"] {
                    let open = || {
                        opened.fetch_add(1, Relaxed);
                        Arc::from(path)
                    };
                    paths.find_or_allocate_and_lock(path, open, |_, handle, uses| {
                        assert_eq!(**handle, *path);
                        *uses += 1;
                    });
                }
                assert_eq!(threads.read(&id, thread::Thread::id), Some(thread::current().id()));
            });
        }
    });
    assert_eq!(opened.load(Relaxed), 2, "each path is opened once");
    let uses = paths.do_op("/etc/motd", Locking::All, 0, |_, _| (), |sum, _, uses| *sum += *uses);
    assert_eq!((uses, threads.len()), (Some(8), 4));
}

// --- all at once ---

/// The global part: identifies a life.
struct Life {
    number: u64,
    uses: AtomicU64,
    _alive: Counted,
}

/// The local part: identifies a life in one place.
struct Here {
    number: u64,
    uses: u64,
    _alive: Counted,
}

/// A table, and the expected state of its keys.
struct Lives {
    master: MasterTable<u64, Life, Here>,
    locals: Vec<LocalTable<u64, Life, Here>>,
    alive: Arc<AtomicU64>,
    /// The number of each key's current life; zero between two lives.
    now: Vec<AtomicU64>,
    numbers: AtomicU64,
    filled: AtomicU64,
    emptied: AtomicU64,
}

impl Lives {
    fn new(keys: usize) -> Lives {
        let alive = Arc::new(AtomicU64::new(0));
        let counter = alive.clone();
        let here =
            move |life: &Life| Here { number: life.number, uses: 0, _alive: Counted::new(&counter, 0) };
        let master = MasterTable::new(here);
        let locals = (0..3).map(|_| master.local()).collect();
        let now = (0..keys).map(|_| AtomicU64::new(0)).collect();
        let [numbers, filled, emptied] = [1, 0, 0].map(AtomicU64::new);
        Lives { master, locals, alive, now, numbers, filled, emptied }
    }

    fn begin(&self, key: u64) -> Life {
        let number = self.numbers.fetch_add(1, Relaxed);
        assert_eq!(self.now[key as usize].swap(number, SeqCst), 0, "two lives at once");
        self.filled.fetch_add(1, Relaxed);
        Life { number, uses: AtomicU64::new(0), _alive: Counted::new(&self.alive, 0) }
    }

    /// Checks a locked life.
    fn is_now(&self, key: u64, life: &Life) {
        assert_eq!(self.now[key as usize].load(SeqCst), life.number, "an outdated life");
    }

    fn use_it(&self, local: &LocalTable<u64, Life, Here>, key: u64) {
        let fill = || self.begin(key);
        local.find_or_allocate_and_lock(&key, fill, |_, life, here| {
            self.is_now(key, life);
            assert_eq!(here.number, life.number);
            here.uses += 1;
            life.uses.fetch_add(1, Relaxed);
            self.is_now(key, life);
        });
    }

    fn end(&self, key: u64) {
        self.master.start_empty(&key, |mut emptying| {
            let uses: u64 = emptying.replicas().iter().map(|here| here.uses).sum();
            assert_eq!(uses, emptying.global().uses.load(Relaxed), "uses in all places");
            assert_eq!(self.now[key as usize].swap(0, SeqCst), emptying.global().number);
            emptying.do_empty().finish_empty();
            self.emptied.fetch_add(1, Relaxed);
        });
    }

    fn step(&self, local: &LocalTable<u64, Life, Here>, key: u64, draw: u64) {
        match draw {
            0..8 => self.use_it(local, key),
            8 => {
                let look = |_, element: Locked<'_, _, Life, Here, _>| self.is_now(key, element.global());
                self.master.find_or_allocate_and_lock(&key, || self.begin(key), look);
            }
            9..11 => {
                local.read(&key, |life| assert!(life.number < self.numbers.load(Relaxed)));
            }
            11 => {
                let agrees = |(): &mut (), life: &Life, here: &mut Here| assert_eq!(life.number, here.number);
                self.master.do_op(&key, Locking::All, (), |(), life| self.is_now(key, life), agrees);
            }
            12 => {
                _ = local.try_find_or_allocate_and_lock(&key, || Err(()), |_, life, _| self.is_now(key, life))
            }
            13 => {
                let fill = || std::panic::resume_unwind(Box::new(()));
                let look = |_, life: &Life, _: &mut Here| self.is_now(key, life);
                let _ = catch_unwind(AssertUnwindSafe(|| local.find_or_allocate_and_lock(&key, fill, look)));
            }
            _ => self.end(key),
        }
    }
}

/// Each life of a key begins with one `Empty`, after the earlier life is over; its parts agree, and uses in
/// all places add up.
#[test]
fn co_56_co_61_each_life_is_filled_once_and_ends_everywhere() {
    let (threads, rounds) = if cfg!(miri) { (3, 60) } else { (6, 6_000) };
    let lives = Lives::new(5);
    let seed = 20_260_101;
    println!("seed {seed}");
    thread::scope(|scope| {
        for thread in 0..threads {
            let lives = &lives;
            scope.spawn(move || {
                let mut rng = Rng::new(seed, thread as u64);
                for _ in 0..rounds {
                    lives.step(&lives.locals[thread % 3], rng.below(5), rng.below(16));
                }
            });
        }
    });
    let left = lives.now.iter().filter(|now| now.load(SeqCst) != 0).count() as u64;
    let (filled, emptied) = (lives.filled.load(Relaxed), lives.emptied.load(Relaxed));
    assert_eq!((filled, lives.master.len() as u64), (emptied + left, left));
    lives.master.clear();
    let alive = lives.alive.clone();
    drop(lives);
    settle();
    assert_eq!(alive.load(SeqCst), 0, "each part is dropped once");
}

/// Tables grow and shrink, and local tables come and go, under this load.
#[test]
fn co_54_co_66_tables_resize_and_locals_come_and_go_under_load() {
    let (threads, keys) = if cfg!(miri) { (2, 20) } else { (4, 1_500) };
    let alive = Arc::new(AtomicU64::new(0));
    let master = {
        let alive = alive.clone();
        MasterTable::<u64, Counted, Counted>::new(move |global| Counted::new(&alive, global.number))
    };
    let shared = master.local();
    thread::scope(|scope| {
        for thread in 0..threads {
            let (master, shared, alive) = (&master, &shared, &alive);
            scope.spawn(move || {
                for round in 0..3 {
                    let own = master.local();
                    for key in 0..keys {
                        let local = if (key + thread) % 2 == 0 { &own } else { shared };
                        local.find_or_allocate_and_lock(
                            &key,
                            || Counted::new(alive, key),
                            |_, global, part| {
                                assert_eq!((global.number, part.number), (key, key));
                            },
                        );
                        assert!(
                            own.read(&key, |global| assert_eq!(global.number, key)).is_none_or(|()| true)
                        );
                    }
                    if (thread + round) % 2 == 0 {
                        (0..keys).for_each(|key| _ = master.empty_data(&key));
                    }
                }
            });
        }
    });
    drop((shared, master));
    settle();
    assert_eq!(alive.load(SeqCst), 0, "each part is dropped once");
}
