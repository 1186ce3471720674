//! Tests of the table in one thread and in several.

use squall_parts::table::{Compute, Computed, Table, position};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// The number of rounds or keys in most tests.
const MANY: u64 = if cfg!(miri) { 60 } else { 20_000 };

#[test]
fn each_layout_finds_every_key() {
    let flat: Table<u64, u64> = Table::new();
    let wide: Table<String, u64> = Table::new();
    let boxed: Table<String, Vec<u64>> = Table::new();
    for i in 0..MANY {
        assert!(!flat.set(i, i + 1));
        assert!(!wide.set(i.to_string(), i + 1));
        assert!(!boxed.set(i.to_string(), vec![i]));
    }
    assert_eq!((flat.len() as u64, boxed.len() as u64), (MANY, MANY));
    for i in 0..MANY {
        assert_eq!(flat.get(&i), Some(i + 1));
        assert_eq!(wide.get(i.to_string().as_str()), Some(i + 1));
        assert_eq!(boxed.read(i.to_string().as_str(), |v| v[0]), Some(i));
        assert!(!flat.contains_key(&(i + MANY)));
    }
    for i in 0..MANY {
        assert_eq!(flat.insert(i, 7), Some(i + 1));
        // The present key stays, and the new one is freed.
        assert_eq!(wide.insert(i.to_string(), 7), Some(i + 1));
        assert!(i % 2 == 0 || wide.delete(i.to_string().as_str()));
        assert_eq!(boxed.remove(&i.to_string()), Some(vec![i]));
    }
    assert!(boxed.is_empty() && flat.len() as u64 == MANY);
}

#[test]
fn every_operation_on_one_entry() {
    fn ways<K: Clone + Eq + std::hash::Hash + std::fmt::Debug + Send + Sync + 'static>(key: K) {
        let table: Table<K, u64> = Table::new();
        assert_eq!(table.try_insert(key.clone(), 1), Ok(()));
        assert_eq!(table.try_insert(key.clone(), 2), Err((key.clone(), 2)));
        assert!(table.update(&key, |n| n + 1));
        assert_eq!(table.compute(key.clone(), |n| Compute::Put(n.unwrap() * 10)), Computed::Updated);
        assert_eq!(table.compute(key.clone(), |_| Compute::Keep), Computed::Kept);
        assert!(!table.remove_if(&key, |&n| n == 3));
        assert_eq!(table.get(&key), Some(20));
        assert!(table.remove_if(&key, |&n| n == 20));
        assert!(!table.update(&key, |n| n + 1));
        assert_eq!(
            table.compute(key.clone(), |n| if n.is_none() { Compute::Put(5) } else { Compute::Keep }),
            Computed::Inserted
        );
        assert_eq!(table.compute(key.clone(), |_| Compute::Remove), Computed::Removed);
        assert_eq!(table.get_or_insert_with(key.clone(), || 8), 8);
        assert_eq!(table.entry(key.clone()).and_modify(|n| n + 1).or_insert(0), 9);
        assert_eq!(table.read_entry(&key, |k, &v| (k.clone(), v)), Some((key.clone(), 9)));
        assert!(table.delete(&key) && !table.delete(&key));
        assert_eq!(table.entry(key).or_default(), 0);
        assert_eq!(table.len(), 1);
    }
    // In the slot; in the slot in several words, with and without memory of their own; in a node; in a node
    // that stays.
    ways(3u64);
    ways("three".to_owned());
    ways(String::new());
    ways("three");
    ways::<Box<str>>("three".into());
    ways::<Arc<str>>("three".into());
    ways::<Arc<[u8]>>([3, 3, 3].into());
    ways(vec![3u8; 100]);
    ways(std::path::PathBuf::from("three"));
    ways(std::ffi::OsString::from("three"));
    ways((3u64, 4u64));
    ways([1u64, 2, 3]);
    ways(std::net::Ipv6Addr::LOCALHOST);
    ways(3u128);
    ways(("three".to_owned(), "four".to_owned()));
    ways(vec![vec![3u8]]);
}

#[test]
fn readers_find_whole_strings_while_keys_come_and_go() {
    let table: Table<String, u64> = Table::new();
    let name = |i: u64| format!("{i}:{}", "x".repeat(i as usize % 40));
    // Few enough keys that slots are reused at once, and more than one bucket has.
    let (keys, stop) = (24, AtomicBool::new(false));
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                let (mut found, mut round) = (0u64, 0);
                while !stop.load(Relaxed) || round < 10 {
                    for i in 0..keys {
                        let seen = table.read_entry(name(i).as_str(), |key, &value| (key.clone(), value));
                        if let Some((key, value)) = seen {
                            assert_eq!((key, value / 100), (name(i), i));
                            found += 1;
                        }
                    }
                    table.for_each(|key, value| assert_eq!(*key, name(value / 100)));
                    round += 1;
                }
                assert!(cfg!(miri) || found > 0);
            });
        }
        for round in 0..MANY / 10 {
            for i in 0..keys {
                match (i + round) % 3 {
                    0 => _ = table.set(name(i), i * 100 + round % 100),
                    1 => _ = table.update(name(i).as_str(), |value| value / 100 * 100 + round % 100),
                    _ => _ = table.delete(name(i).as_str()),
                }
            }
        }
        stop.store(true, Relaxed);
    });
}

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
fn a_constant_hasher_costs_only_time() {
    let table: Table<u64, u64, BuildHasherDefault<Alike>> = Table::default();
    let keys = 0..if cfg!(miri) { 20 } else { 300 };
    keys.clone().for_each(|i| _ = table.set(i, i));
    assert!(keys.clone().all(|i| table.get(&i) == Some(i)));
    assert!(keys.clone().all(|i| table.delete(&i)));
    assert!(table.is_empty());
}

#[test]
fn chained_entries_are_found_and_removed_ones_are_not() {
    let table: Table<u64, u64, BuildHasherDefault<Alike>> = Table::default();
    // All keys are in one home, so that most are chained; sometimes the chain is empty.
    for round in 0..if cfg!(miri) { 2 } else { 20 } {
        for keys in [5, 9, 25] {
            (0..keys).for_each(|key| assert!(!table.set(key, key + round)));
            assert!((0..30).all(|key| table.get(&key) == (key < keys).then_some(key + round)));
            // From either end, so that a chain loses its last entry before or after its bucket does.
            let order = |i| if round % 2 == 0 { i } else { keys - 1 - i };
            for key in (0..keys).map(order) {
                assert!(table.delete(&key) && !table.contains_key(&key));
                assert_eq!(table.iter().count(), table.len());
            }
            assert!(table.is_empty());
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too few entries there to tell")]
fn it_grows_and_shrinks_and_keeps_its_room() {
    let table: Table<u64, u64> = Table::new();
    let least = table.capacity();
    (0..MANY).for_each(|i| _ = table.set(i, i));
    assert!(table.capacity() as u64 >= MANY, "{} of {MANY}", table.capacity());
    (0..MANY).for_each(|i| _ = table.delete(&i));
    // Writers continue the move.
    (0..MANY).for_each(|i| _ = (table.set(i, i), table.delete(&i)));
    assert!((table.capacity() as u64) < MANY / 2);
    table.reserve(1000);
    assert!(table.capacity() >= 1000);
    table.shrink_to_fit();
    assert_eq!(table.capacity(), least);
}

#[test]
fn iteration_visits_stable_keys_once_while_the_table_resizes() {
    let table: Table<u64, u64> = Table::new();
    (0..MANY / 10).for_each(|i| _ = table.set(i, i));
    let stop = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Relaxed) {
                (MANY..2 * MANY).for_each(|i| _ = table.set(i, i));
                (MANY..2 * MANY).for_each(|i| _ = table.delete(&i));
            }
        });
        for _ in 0..if cfg!(miri) { 2 } else { 50 } {
            let mut seen = HashMap::new();
            table.for_each(|&k, _| *seen.entry(k).or_insert(0) += 1);
            let cloned = table.keys().filter(|&k| k < MANY).count() as u64;
            assert_eq!(cloned, MANY / 10);
            for i in 0..MANY / 10 {
                assert_eq!(seen.get(&i), Some(&1), "key {i}");
            }
        }
        stop.store(true, Relaxed);
    });
}

#[test]
fn retain_and_clear_remove_the_right_entries() {
    let table: Table<String, u64> = (0..MANY).map(|i| (i.to_string(), i)).collect();
    table.retain(|_, n| n % 3 == 0);
    assert_eq!(table.len() as u64, MANY.div_ceil(3));
    assert!(table.values().all(|n| n % 3 == 0));
    table.clear();
    assert!(table.is_empty() && table.iter().next().is_none());
    assert_eq!(format!("{:?}", Table::<u8, u8>::from_iter([(1, 2)])), "{1: 2}");
}

/// Counts live instances.
struct Counted(Arc<AtomicUsize>, u64);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>, n: u64) -> Counted {
        alive.fetch_add(1, Relaxed);
        Counted(alive.clone(), n)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert!(self.0.fetch_sub(1, Relaxed) > 0);
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Counted) -> bool {
        self.1 == other.1
    }
}
impl Eq for Counted {}
impl std::hash::Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.1.hash(state);
    }
}

#[test]
fn keys_and_values_are_dropped_exactly_once() {
    let (keys, values) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let table: Table<Counted, Counted> = Table::new();
    let (k, v) = (|n| Counted::new(&keys, n), |n| Counted::new(&values, n));
    thread::scope(|threads| {
        for thread in 0..4u64 {
            let (table, k, v) = (&table, &k, &v);
            threads.spawn(move || {
                for i in 0..MANY / 4 {
                    let n = (i * 7 + thread) % 61;
                    match i % 7 {
                        0 | 1 => _ = table.set(k(n), v(n)),
                        2 => _ = table.try_insert(k(n), v(n)),
                        3 => _ = table.update(&k(n), |old| v(old.1)),
                        4 => _ = table.delete(&k(n)),
                        5 => _ = table.compute(k(n), |_| Compute::Put(v(n))),
                        _ => _ = table.remove_if(&k(n), |old| old.1 % 2 == 0),
                    }
                    table.read(&k(n), |value| assert_eq!(value.1, n));
                }
            });
        }
    });
    squall_rcu::barrier().unwrap();
    assert_eq!(keys.load(Relaxed), table.len());
    assert_eq!(values.load(Relaxed), table.len());
    drop(table);
    squall_rcu::barrier().unwrap();
    assert_eq!((keys.load(Relaxed), values.load(Relaxed)), (0, 0));
}

#[test]
fn no_update_is_lost_while_the_table_resizes() {
    const THREADS: u64 = 4;
    let flat: Table<u64, u64> = Table::new();
    let boxed: Table<String, u64> = Table::new();
    let (a, b) = (u64::MAX, "the one".to_owned());
    flat.set(a, 0);
    boxed.set(b.clone(), 0);
    let done = AtomicU64::new(0);
    thread::scope(|threads| {
        for thread in 0..THREADS {
            let (flat, boxed, b, done) = (&flat, &boxed, &b, &done);
            threads.spawn(move || {
                for i in 0..MANY / 4 {
                    assert!(flat.update(&a, |n| n + 1) && boxed.update(b, |n| n + 1));
                    let key = thread << 32 | i;
                    flat.set(key, key);
                    boxed.set(key.to_string(), key);
                    if i >= 100 {
                        assert_eq!(flat.remove(&(key - 100)), Some(key - 100));
                        assert!(boxed.delete(&(key - 100).to_string()));
                    }
                    done.fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!((flat.get(&a), boxed.get(&b)), (Some(done.load(Relaxed)), Some(done.load(Relaxed))));
}

#[test]
fn a_panic_in_a_user_function_leaves_the_table_usable() {
    let table: Table<u64, String> = Table::new();
    table.set(1, "one".to_owned());
    let panics = |f: &dyn Fn()| {
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err());
        assert_eq!(table.get_cloned(&1).as_deref(), Some("one"));
        assert!(table.set(2, "two".to_owned()) || table.len() == 2);
    };
    panics(&|| _ = table.update(&1, |_| panic!("update")));
    panics(&|| _ = table.compute(1, |_| panic!("compute")));
    panics(&|| _ = table.remove_if(&1, |_| panic!("remove_if")));
    panics(&|| table.read(&1, |_| panic!("read")).unwrap());
    panics(&|| table.retain(|_, _| panic!("retain")));
    panics(&|| table.for_each(|_, _| panic!("for_each")));
    panics(&|| _ = table.get_or_insert_with(3, || panic!("get_or_insert_with")));
    assert_eq!(table.len(), 2);
}

#[test]
fn a_user_function_may_use_the_table() {
    let table: Table<u64, u64> = (0..10).map(|i| (i, i)).collect();
    table.update(&1, |n| n + table.get(&2).unwrap());
    assert_eq!(table.get(&1), Some(3));
    table.for_each(|k, v| _ = table.set(k + 100, *v));
    table.retain(|k, _| *k < 100 || !table.delete(k));
    assert_eq!(table.len(), 10);
}

/// A key that changes in place, in a field that neither `Eq` nor `Hash` reads.
struct Noted(u64, Mutex<String>);

impl PartialEq for Noted {
    fn eq(&self, other: &Noted) -> bool {
        self.0 == other.0
    }
}
impl Eq for Noted {}
impl std::hash::Hash for Noted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
impl std::borrow::Borrow<u64> for Noted {
    fn borrow(&self) -> &u64 {
        &self.0
    }
}

#[test]
fn a_change_of_a_removed_key_spares_the_new_key_in_its_slot() {
    fn check<K: Copy + Eq + std::hash::Hash + Send + Sync + 'static>(gone: K, comes: K) {
        let table: Table<K, u64, BuildHasherDefault<Alike>> = Table::default();
        table.set(gone, 5);
        // The new key has the slot, and the same value.
        let take_over = || assert!(table.delete(&gone) && !table.set(comes, 5));
        let mut asked = 0;
        let updated = table.update(&gone, |value| {
            asked += 1;
            take_over();
            value + 1
        });
        assert!(!updated && asked == 1);
        assert_eq!((table.get(&gone), table.get(&comes)), (None, Some(5)));
        // The removal of a neighbour does not cause another call.
        table.set(gone, 1);
        let updated = table.update(&gone, |value| {
            table.delete(&comes);
            value + 1
        });
        assert!(updated && table.get(&gone) == Some(2));
    }
    check(1_u64, 2_u64);
    check("a", "b");
}

#[test]
fn a_key_that_changes_in_place_survives_changes_of_its_value() {
    let table: Table<Noted, u64> = Table::new();
    table.set(Noted(1, Mutex::new("as it came".to_owned())), 0);
    let noted =
        |table: &Table<Noted, u64>| table.read_entry(&1, |key, _| key.1.lock().unwrap().clone()).unwrap();
    table.read_entry(&1, |key, _| {
        assert!(table.update(&1, |n| n + 1));
        *key.1.lock().unwrap() = "new".repeat(99);
    });
    assert_eq!(noted(&table), "new".repeat(99));
    // The present key stays.
    assert_eq!(table.insert(Noted(1, Mutex::new(String::new())), 7), Some(1));
    assert_eq!(noted(&table), "new".repeat(99));
    assert_eq!(table.try_insert(Noted(1, Mutex::new(String::new())), 8).map_err(|(_, value)| value), Err(8));
    (2..MANY / 10).for_each(|i| _ = table.set(Noted(i, Mutex::new(i.to_string())), i));
    assert_eq!((noted(&table), table.get(&1)), ("new".repeat(99), Some(7)));
    assert!(table.delete(&1));
    drop(table);
    squall_rcu::barrier().unwrap();
}

/// A key with a different hash each time.
#[derive(Clone, PartialEq, Eq)]
struct Fickle(u64);

impl std::hash::Hash for Fickle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed).hash(state);
    }
}

#[test]
fn a_hash_that_contradicts_itself_loses_entries_and_breaks_no_memory() {
    let alive = Arc::new(AtomicUsize::new(0));
    let table: Table<Fickle, Counted> = Table::new();
    thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                for i in 0..MANY / 10 {
                    table.set(Fickle(i % 50), Counted::new(&alive, i));
                    table.delete(&Fickle(i % 50));
                    table.read(&Fickle(i % 50), |value| assert!(value.1 <= MANY));
                }
            });
        }
    });
    table.clear();
    drop(table);
    squall_rcu::barrier().unwrap();
    assert_eq!(alive.load(Relaxed), 0);
}

#[test]
#[cfg_attr(miri, ignore = "too few entries there to tell")]
fn an_impossible_reservation_is_rejected() {
    let table: Table<u64, u64> = Table::new();
    // These tools abort the process if memory is exhausted.
    #[cfg(not(any(miri, squall_asan, squall_tsan)))]
    assert!(!table.try_reserve(usize::MAX));
    (0..MANY).for_each(|i| _ = table.set(i, i));
    assert!(table.capacity() as u64 >= MANY);
    // A running shrink keeps reserved room.
    (0..MANY).for_each(|i| _ = table.delete(&i));
    assert!(table.try_reserve(MANY as usize) && table.capacity() as u64 >= MANY);
    (0..MANY).for_each(|i| _ = (table.set(i, i), table.delete(&i)));
    assert!(table.capacity() as u64 >= MANY);
}

/// A value with a drop that inserts into the table itself.
struct Last(Arc<Table<u64, Last>>, u64);

impl Drop for Last {
    fn drop(&mut self) {
        if self.1 < 1000 {
            self.0.set(self.1 + 1000, Last(self.0.clone(), self.1 + 1000));
        }
    }
}

#[test]
fn a_value_drop_may_use_the_table() {
    let table = Arc::new(Table::new());
    thread::scope(|threads| {
        for thread in 0..2u64 {
            let table = &table;
            threads.spawn(move || {
                for i in 0..if cfg!(miri) { 12 } else { 200 } {
                    table.set(i, Last(table.clone(), i));
                    table.update(&(i / 2), |old| Last(table.clone(), old.1));
                    if i % 3 == thread {
                        table.delete(&i);
                    }
                }
            });
        }
    });
    squall_rcu::barrier().unwrap();
    // Otherwise the table and its values keep each other alive.
    table.clear();
    squall_rcu::barrier().unwrap();
    table.clear();
    squall_rcu::barrier().unwrap();
    assert!(table.is_empty());
}

#[test]
fn a_hash_that_panics_while_the_table_grows_loses_nothing() {
    #[derive(PartialEq, Eq)]
    struct Touchy(u64);
    thread_local!(static PANICS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    impl std::hash::Hash for Touchy {
        fn hash<H: Hasher>(&self, state: &mut H) {
            assert!(!PANICS.get() || !self.0.is_multiple_of(7) || self.0 > 1000, "a touchy key");
            self.0.hash(state);
        }
    }
    let table: Table<Touchy, u64> = Table::new();
    let (first, last) = if cfg!(miri) { (12, 1012) } else { (200, 1400) };
    (0..first).for_each(|i| _ = table.set(Touchy(i), i));
    PANICS.set(true);
    for i in 1001..last {
        // The insertion is complete or has not begun.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| table.set(Touchy(i), i)));
    }
    PANICS.set(false);
    (1001..last).for_each(|i| _ = table.set(Touchy(i), i));
    let mut seen: Vec<u64> = table.values().collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..first).chain(1001..last).collect::<Vec<_>>());
}

/// A hasher for keys that are their own hashes.
#[derive(Default)]
struct Plain(u64);

impl Hasher for Plain {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A key that may stop the thread that hashes it next.
struct Stopping(u64, Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>);

impl Stopping {
    fn never(number: u64) -> Stopping {
        Stopping(number, Mutex::new(None))
    }
}

impl PartialEq for Stopping {
    fn eq(&self, other: &Stopping) -> bool {
        self.0 == other.0
    }
}

impl Eq for Stopping {}

impl std::hash::Hash for Stopping {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let stop = self.1.lock().unwrap().take();
        if let Some((stopped, go)) = stop {
            stopped.send(()).unwrap();
            go.recv_timeout(LONG).expect("the other thread waits for this one");
        }
        state.write_u64(self.0);
    }
}

/// Longer than any run of the other thread takes.
const LONG: Duration = Duration::from_secs(600);

/// A thread is stopped while it moves a home for others. Writers of other homes go on, and readers find all
/// entries. The thread then ends the move.
#[test]
fn a_thread_stopped_in_a_move_stops_no_writer_of_another_home() {
    let table: Table<Stopping, u64, BuildHasherDefault<Plain>> = Table::default();
    let is_low = |number: &u64| position(table.hasher(), number) < 1 << 63;
    let (mut low, mut high) = ((0..).filter(is_low), (0..).filter(|number| !is_low(number)));
    let first = if cfg!(miri) { 24 } else { 400 };
    let (stopped, is_stopped) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let mut numbers: Vec<u64> = low.by_ref().take(first).chain(high.by_ref().take(first)).collect();
    // The first home moves first.
    let least = *numbers.iter().min_by_key(|number| position(table.hasher(), number)).unwrap();
    numbers.iter().for_each(|number| _ = table.set(Stopping::never(*number), *number));
    // The entry goes back into the table with a key that stops the next thread that moves it.
    assert!(table.delete(&Stopping::never(least)));
    let stopping = Stopping(least, Mutex::new(None));
    table.set(stopping, least);
    table.read_entry(&Stopping::never(least), |key, _| *key.1.lock().unwrap() = Some((stopped, may_go)));
    thread::scope(|threads| {
        let mover = threads.spawn(|| {
            let mut set = Vec::new();
            for number in low.by_ref() {
                table.set(Stopping::never(number), number);
                set.push(number);
                let is_moved = |key: &Stopping, _: &u64| key.1.lock().unwrap().is_none();
                if table.read_entry(&Stopping::never(least), is_moved).unwrap() {
                    return set;
                }
            }
            unreachable!("there are more numbers")
        });
        is_stopped.recv_timeout(LONG).expect("the table grows");
        for number in high.by_ref().take(first) {
            assert!(!table.set(Stopping::never(number), number));
            numbers.push(number);
        }
        for number in &numbers {
            assert_eq!(table.get(&Stopping::never(*number)), Some(*number));
        }
        go.send(()).unwrap();
        numbers.extend(mover.join().unwrap());
    });
    let capacity = table.capacity();
    for number in high.by_ref().take(2 * capacity) {
        table.set(Stopping::never(number), number);
        numbers.push(number);
        if table.capacity() > capacity {
            break;
        }
    }
    assert!(table.capacity() > capacity, "the move has ended, so the table can grow again");
    numbers.sort_unstable();
    let mut seen: Vec<u64> = table.values().collect();
    seen.sort_unstable();
    assert_eq!(seen, numbers);
}

#[test]
fn a_closure_runs_once_if_no_other_thread_writes() {
    let table: Table<u64, u64> = Table::new();
    let (keys, mut calls) = (if cfg!(miri) { 100 } else { 40_000 }, 0);
    for key in 0..keys {
        table.set(key, key);
        // The table grows, so that some changes meet a home that is moving.
        for old in [key / 2, key / 3] {
            assert!(table.update(&old, |value| {
                calls += 1;
                value + 1
            }));
        }
    }
    assert_eq!(calls, 2 * keys);
}

#[test]
fn a_key_that_replaces_an_equal_one_is_dropped() {
    let key: Arc<str> = "a key of several words".into();
    let table: Table<Arc<str>, u64> = Table::new();
    assert!(
        !table.set(key.clone(), 1) && table.set(key.clone(), 2) && table.insert(key.clone(), 3) == Some(2)
    );
    squall_rcu::barrier().unwrap();
    assert_eq!(Arc::strong_count(&key), 2, "one in the table");
    drop(table);
    squall_rcu::barrier().unwrap();
    assert_eq!(Arc::strong_count(&key), 1);
}
