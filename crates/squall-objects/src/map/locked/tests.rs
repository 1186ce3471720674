//! Tests of the locked form.

use super::*;
use crate::map::key::Borrowed;
use crate::map::storage::Storage;
use crate::map::typed::Typed;
use squall_parts::table::{Compute, Computed};
use std::hash::{Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::thread::{self, ThreadId};

const MOST: usize = 8;

fn small() -> Locked<u64, u64, RandomState> {
    Locked::new(0, RandomState::new(), MOST, Cloners::new())
}

fn filled(entries: u64) -> Locked<u64, u64, RandomState> {
    let map = small();
    (0..entries).for_each(|key| _ = map.set(key, key));
    map
}

fn get(map: &Locked<u64, u64, RandomState>, key: u64) -> Option<u64> {
    map.find(key)
}

#[test]
fn one_entry_too_many_moves_all_to_a_table() {
    let map = filled(MOST as u64);
    assert!(map.spilled().is_none() && map.lock().is_ok());
    assert!(map.set(3, 3), "another value is no entry more");
    assert!(map.spilled().is_none());
    assert_eq!(map.insert(8, 8), None);
    let table = map.spilled().expect("there are nine");
    assert_eq!((table.len(), map.len(), map.inner.lock().map.len()), (9, 9, 0));
    assert!((0..9).all(|key| get(&map, key) == Some(key)));
    // Operations that got this form before go to the table.
    assert_eq!(
        (map.insert(1, 2), map.remove(&2), map.delete(&2), map.set(2, 5)),
        (Some(1), Some(2), false, false)
    );
    assert_eq!(map.insert_if_absent(1, 9), Err((1, 9)));
    assert_eq!((map.get_or_insert_with(1, || 9), map.get_or_insert_with(20, || 9)), (2, 9));
    assert_eq!(map.alter(1, |value| Compute::Put(value + 1)), Computed::Updated);
    assert_eq!(map.decide(1, |_| Compute::Remove), Computed::Removed);
    let mut seen = 0;
    let mut at = Some(0);
    while let Some(from) = at {
        at = map.visit_from(from, &mut |_, _| seen += 1);
    }
    assert_eq!((seen, table.len(), map.len()), (9, 9, 9));
    let mut at = Some(0);
    while let Some(from) = at {
        at = map.retain_from(from, &mut |key, _| *key == 3);
    }
    map.shrink_to_fit();
    assert_eq!((table.len(), get(&map, 3)), (1, Some(3)));
    assert!(Arc::ptr_eq(&map.to_table(), map.spilled().unwrap()), "no entry is cloned");
}

#[test]
fn a_reservation_beyond_the_maximum_makes_a_table() {
    let map = filled(3);
    assert!(map.try_reserve(5) && map.spilled().is_none());
    assert!(map.try_reserve(6) && map.spilled().is_some());
    assert!(map.capacity() >= 9 && map.len() == 3);
    assert!(map.try_reserve(100) && map.capacity() >= 103);
}

#[test]
fn len_and_capacity_leave_the_lock_to_its_owner() {
    let map = filled(4);
    (0..100).for_each(|_| _ = map.set(1, 1));
    if !map.is_biased_to_me() {
        eprintln!("SKIP: a lock has no owner here");
        return;
    }
    let seen = thread::scope(|scope| scope.spawn(|| (map.len(), map.capacity())).join().unwrap());
    assert!(map.is_biased_to_me(), "a reader of the counts took the lock");
    assert_eq!(seen, (4, map.inner.lock().map.capacity()));
}

#[test]
fn the_owner_inserts_and_removes_on_the_fast_path() {
    assert_eq!(filled(0).biased_put(1, 1), Err((1, 1)), "the lock has no owner");
    assert_eq!(filled(0).biased_take(&1), None, "the lock has no owner");
    let strings = Locked::<String, u64, _>::new(0, RandomState::new(), MOST, Cloners::new());
    let map = filled(4);
    (0..100).for_each(|_| _ = (map.set(1, 1), strings.set("a".into(), 1)));
    if !map.is_biased_to_me() || !strings.is_biased_to_me() {
        eprintln!("SKIP: a lock has no owner here");
        return;
    }
    assert!(strings.biased_put("a".into(), 2).is_err(), "a key is dropped");
    assert_eq!(strings.biased_take("a"), None, "a key is dropped");
    assert_eq!((map.biased_put(1, 5), map.biased_take(&9)), (Ok(Some(1)), Some(None)));
    assert_eq!((map.biased_take(&1), map.biased_take(&1), map.len()), (Some(Some(5)), Some(None), 3));
    assert_eq!((map.biased_put(1, 6), map.len(), get(&map, 1)), (Ok(None), 4, Some(6)));
    // Until there is no room. The slow path then makes some.
    let full = (10..).find(|key| map.biased_put(*key, 0).is_err()).unwrap();
    let (room, len) = (map.inner.lock().map.capacity(), map.len());
    assert!(len == room || len == MOST, "{len} of {room}");
    assert_eq!(get(&map, full), None, "it was given back, and put in");
    (10..30).for_each(|key| _ = map.set(key, 0));
    assert!(map.spilled().is_some() && map.is_biased_to_me());
    assert_eq!((map.biased_put(1, 7), map.biased_take(&1)), (Err((1, 7)), None), "the table has it");
    assert!(map.inner.lock().map.is_empty());
    // While the lock is held.
    let held = map.inner.lock();
    let other = thread::scope(|scope| scope.spawn(|| map.biased_take(&1)).join().unwrap());
    assert_eq!(other, None, "another thread is not the owner");
    drop(held);
}

#[test]
fn a_write_by_the_owner_reruns_a_closure() {
    let map = filled(4);
    (0..100).for_each(|_| _ = map.set(1, 1));
    let mut told = Vec::new();
    // The owner itself writes while its closure runs.
    let computed = map.alter(1, |value| {
        told.push(*value);
        if told.len() < 3 {
            let put = map.biased_put(1, value + 10).or_else(|(key, value)| Ok(map.insert(key, value)));
            assert_eq!(put, Ok::<_, ()>(Some(*value)));
        } else if told.len() == 3 {
            _ = map.biased_take(&1).or_else(|| Some(map.remove(&1)));
            _ = map.biased_put(1, 50).or_else(|(key, value)| Ok::<_, ()>(map.insert(key, value)));
        }
        Compute::Put(value + 1)
    });
    assert_eq!((computed, told, get(&map, 1)), (Computed::Updated, vec![1, 11, 21, 50], Some(51)));
}

#[test]
fn capacity_is_the_hash_table_s() {
    let most = usize::MAX;
    let map = Locked::<u64, u64, _>::new(5, RandomState::new(), most, Cloners::new());
    let is_so = |step| assert_eq!(map.capacity(), map.inner.lock().map.capacity(), "{step}");
    is_so("made");
    (0..100).for_each(|key| {
        map.set(key, key);
        is_so("set");
    });
    assert!(map.try_reserve(1000) && map.capacity() >= 1100);
    is_so("reserved");
    assert!(map.delete(&5) && map.insert_if_absent(200, 0).is_ok());
    assert_eq!(map.alter(7, |_| Compute::Remove), Computed::Removed);
    assert_eq!(map.get_or_insert_with(300, || 1), 1);
    is_so("changed");
    (10..100).for_each(|key| _ = map.remove(&key));
    is_so("removed");
    map.shrink_to_fit();
    is_so("shrunk");
    assert!(map.capacity() < 1000);
    let table = map.to_table();
    let again = Locked::of_table(table, most, Cloners::new());
    assert_eq!(again.capacity(), again.inner.lock().map.capacity());
}

#[test]
fn a_large_table_is_shared_and_a_small_one_is_cloned() {
    for (entries, taken) in [(MOST as u64, false), (MOST as u64 + 1, true)] {
        let table = Arc::new(Table::new());
        (0..entries).for_each(|key| _ = table.set(key, key));
        let map = Locked::of_table(table.clone(), MOST, Cloners::new());
        assert_eq!((map.spilled().is_some_and(|spilled| Arc::ptr_eq(spilled, &table))), taken);
        assert!((0..entries).all(|key| get(&map, key) == Some(key)));
        assert_eq!(Arc::ptr_eq(&map.to_table(), &table), taken);
    }
}

#[test]
fn a_closure_runs_again_if_a_table_replaced_the_hash_table() {
    let map = filled(3);
    let mut asked = 0;
    let done = map.alter(1, |value| {
        asked += 1;
        if asked == 1 {
            (10..20).for_each(|key| _ = map.set(key, key));
        }
        Compute::Put(value + 100)
    });
    assert_eq!((done, asked, get(&map, 1)), (Computed::Updated, 2, Some(101)));
    assert!(map.lock().is_err());
}

#[test]
fn a_moved_value_is_found_by_its_number() {
    let map = filled(2);
    let place = |key: u64| map.lookup(&Borrowed(&key)).ok().unwrap().unwrap().0;
    let first = place(1);
    let room = map.capacity();
    (2..MOST as u64).for_each(|key| _ = map.set(key, key));
    assert!(map.capacity() > room, "the hash table has grown, and all are elsewhere");
    assert_eq!(
        map.apply(&Borrowed(&1), first, &mut Compute::Put(7), &mut __Drops::default()),
        Some(Computed::Updated)
    );
    // The index of another key, with a number that matches no value there.
    let wrong = Place { index: place(2).index, ..first };
    assert_eq!(map.apply(&Borrowed(&1), wrong, &mut Compute::Put(9), &mut __Drops::default()), None);
    let right = Place { index: place(2).index, ..place(1) };
    assert_eq!(
        map.apply(&Borrowed(&1), right, &mut Compute::Remove, &mut __Drops::default()),
        Some(Computed::Removed)
    );
    assert_eq!((get(&map, 1), get(&map, 2), map.len()), (None, Some(2), MOST - 1));
    assert!(!map.has(1) && map.has(2));
}

#[test]
fn the_owner_changes_on_the_fast_path_unless_the_value_changed() {
    let map = filled(4);
    let mut add = |value: &u64| Compute::Put(value + 100);
    assert_eq!(filled(0).biased_change(&1, &mut add), None);
    (0..100).for_each(|_| _ = map.set(1, 1));
    if !map.is_biased_to_me() {
        eprintln!("SKIP: a lock has no owner here");
        return;
    }
    assert_eq!((map.biased_read(&1), map.biased_read(&9)), (Some(Some(1)), Some(None)));
    assert_eq!(map.biased_change(&1, &mut add), Some(Computed::Updated));
    assert_eq!(map.biased_change(&9, &mut add), None, "it is not there");
    assert_eq!(map.biased_change(&1, &mut |_| Compute::Keep), Some(Computed::Kept));
    let meanwhile = map.biased_change(&1, &mut |value| {
        assert!(map.set(1, 7), "no lock is held");
        Compute::Put(value + 1)
    });
    assert_eq!((meanwhile, get(&map, 1)), (None, Some(7)));
    assert_eq!(map.biased_change(&2, &mut |_| Compute::Remove), Some(Computed::Removed));
    assert_eq!((get(&map, 2), map.len()), (None, 3));
    // Other threads are not owners. Even the owner has no fast path once a table has the entries.
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!((map.biased_read(&1), map.biased_change(&1, &mut |_| unreachable!())), (None, None))
        });
    });
    (10..20).for_each(|key| _ = map.set(key, key));
    assert!(map.is_biased_to_me() && map.spilled().is_some());
    assert_eq!((map.biased_read(&1), map.biased_read(&9)), (None, None));
    assert_eq!(map.biased_change(&1, &mut |_| unreachable!()), None);
}

#[test]
fn a_closure_runs_again_only_for_its_own_key() {
    let map = filled(4);
    let place = |key: u64| map.lookup(&Borrowed(&key)).ok().unwrap().unwrap().0;
    let (first, second, third) = (place(1), place(1), place(2));
    map.set(3, 0);
    assert!(!map.delete(&9));
    assert_eq!(
        map.apply(&Borrowed(&1), first, &mut Compute::Put(1), &mut __Drops::default()),
        Some(Computed::Updated)
    );
    assert_eq!(
        map.apply(&Borrowed(&1), second, &mut Compute::Put(1), &mut __Drops::default()),
        None,
        "the first was faster"
    );
    assert_eq!(
        map.apply(&Borrowed(&2), third, &mut Compute::Remove, &mut __Drops::default()),
        Some(Computed::Removed)
    );
    map.set(2, 2);
    assert_eq!(
        map.apply(&Borrowed(&2), third, &mut Compute::Remove, &mut __Drops::default()),
        None,
        "an equal value is another one"
    );
}

#[test]
#[cfg_attr(any(squall_asan, squall_tsan), ignore = "the sanitizer ends a process that asks for so much")]
fn exhausted_memory_leaves_the_map_under_its_lock() {
    let map = filled(3);
    assert!(!map.try_reserve(usize::MAX / 2) && map.spilled().is_none());
    assert!((0..3).all(|key| get(&map, key) == Some(key)));
    assert!(map.set(1, 7) && map.try_reserve(6) && map.spilled().is_some());
    assert_eq!((map.len(), get(&map, 1)), (3, Some(7)));
}

/// A hasher with a limited number of hashes, all of them equal; a further one panics.
#[derive(Clone)]
struct FailingHasher(Arc<AtomicUsize>);

impl BuildHasher for FailingHasher {
    type Hasher = Zero;

    fn build_hasher(&self) -> Zero {
        let left = self.0.load(Ordering::Relaxed);
        assert!(left > 0, "the hasher panics");
        self.0.store(left - 1, Ordering::Relaxed);
        Zero
    }
}

struct Zero;

impl Hasher for Zero {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn a_hasher_that_panics_while_the_hash_table_grows_loses_no_entry() {
    let hashes = Arc::new(AtomicUsize::new(usize::MAX));
    let hasher = FailingHasher(hashes.clone());
    let map = Locked::<u64, u64, _>::new(100, hasher, usize::MAX, Cloners::new());
    // Removals from a full hash table leave tombstones, and no room. An insertion then moves the entries in
    // place.
    let full = map.capacity() as u64;
    (0..full).for_each(|key| _ = map.set(key, key));
    (full / 8..full).for_each(|key| _ = map.delete(&key));
    assert_eq!(map.capacity(), map.len());
    let (before, mut failed) = (map.len(), 0);
    for left in 1.. {
        hashes.store(left, Ordering::Relaxed);
        let inserted = catch_unwind(AssertUnwindSafe(|| map.set(full, full))).is_ok();
        hashes.store(usize::MAX, Ordering::Relaxed);
        let entries = map.inner.try_lock().expect("no thread holds the lock").map.len();
        assert_eq!(entries, before + usize::from(inserted), "after {left} hashes");
        if inserted {
            break;
        }
        failed += 1;
    }
    assert_eq!(failed, before, "the hash of each entry panicked once");
    assert!((0..full / 8).chain([full]).all(|key| map.has(key)));
}

/// A key or value with a limited number of clones; a further clone panics. Its drop checks that the
/// lock is free.
struct Fragile(u64, Arc<Shared>);

struct Shared {
    clones: AtomicUsize,
    map: OnceLock<Weak<Locked<Fragile, Fragile, RandomState>>>,
    /// The only thread that uses the map.
    user: ThreadId,
    went_under_lock: AtomicUsize,
}

impl Clone for Fragile {
    fn clone(&self) -> Fragile {
        let left = self.1.clones.load(Ordering::Relaxed);
        assert!(left > 0, "as asked");
        self.1.clones.store(left - 1, Ordering::Relaxed);
        Fragile(self.0, self.1.clone())
    }
}

impl PartialEq for Fragile {
    fn eq(&self, other: &Fragile) -> bool {
        self.0 == other.0
    }
}

impl Eq for Fragile {}

impl Hash for Fragile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        let map = self.1.map.get().and_then(Weak::upgrade);
        let by_user = thread::current().id() == self.1.user;
        let under_lock = by_user && map.is_some_and(|map| map.inner.try_lock().is_none());
        self.1.went_under_lock.fetch_add(usize::from(under_lock), Ordering::Relaxed);
    }
}

#[test]
fn entries_with_failing_clones_stay_under_the_lock() {
    let shared = Arc::new(Shared {
        clones: AtomicUsize::new(0),
        map: OnceLock::new(),
        user: thread::current().id(),
        went_under_lock: AtomicUsize::new(0),
    });
    let map = Arc::new(Locked::<Fragile, Fragile, _>::new(0, RandomState::new(), MOST, Cloners::new()));
    shared.map.set(Arc::downgrade(&map)).ok().unwrap();
    let fragile = |number| Fragile(number, shared.clone());
    let has_so_many = |entries: u64| {
        assert!(map.spilled().is_none() && map.len() == entries as usize);
    };
    for key in 0..2 * MOST as u64 {
        // The last clone panics: a value, after its key.
        shared.clones.store(2 * MOST + 1, Ordering::Relaxed);
        match key % 2 {
            0 => assert!(!map.set(fragile(key), fragile(key))),
            _ => assert!(map.insert_if_absent(fragile(key), fragile(key)).is_ok()),
        }
        has_so_many(key + 1);
        let left = shared.clones.load(Ordering::Relaxed);
        assert_eq!(left == 0, key == MOST as u64, "tried again at twice the size only");
    }
    let fails = |clones, f: &dyn Fn()| {
        shared.clones.store(clones, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
    };
    for clones in [3, 4] {
        fails(clones, &|| _ = map.to_table());
        fails(clones, &|| _ = map.try_reserve(100));
        fails(clones, &|| _ = map.visit_from(0, &mut |_, _| ()));
    }
    has_so_many(2 * MOST as u64);
    shared.clones.store(1_000, Ordering::Relaxed);
    (100..200).for_each(|key| _ = map.get_or_insert_with(fragile(key), || fragile(key)));
    assert!(map.spilled().is_some() && map.len() == 2 * MOST + 100);
    assert_eq!(shared.went_under_lock.load(Ordering::Relaxed), 0);
}
