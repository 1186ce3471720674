//! Model checks of the shipped table, and their twins, each with one step weakened. They cover entries,
//! reused slots, and homes that move while they are read and written. The models use the loom side of
//! `platform`: retired memory is never freed.

use crate::table::compiled::Compiled;
use crate::table::fast::{FastFind, NeedsSlowPath};
use crate::table::hash::{mix, tag};
use crate::table::layout::{Boxed, Flat, Layout, RawOf, Split, Wide};
use crate::table::raw::Raw;
use crate::table::slots::{IsKey, WideSlots};
use crate::table::tags::SLOTS;
use crate::table::write::Change;
use squall_sys::sync::Arc;
use squall_sys::sync::thread;
use std::mem::{ManuallyDrop, forget};
use std::ops::Deref;

/// A table that frees its entries, like `Table`.
struct Model<L: Layout>(ManuallyDrop<Raw<L::Slots>>);

impl<L: Layout> Model<L> {
    fn new() -> Model<L> {
        Model(ManuallyDrop::new(L::Slots::new(0)))
    }
}

impl<L: Layout> Deref for Model<L> {
    type Target = Raw<L::Slots>;

    fn deref(&self) -> &Raw<L::Slots> {
        &self.0
    }
}

impl<L: Layout> Drop for Model<L> {
    fn drop(&mut self) {
        // SAFETY: taken once, here. The functions below insert entries of this layout, which no other thread
        // has now.
        unsafe { L::Slots::free(ManuallyDrop::take(&mut self.0), &mut |entry| L::free(entry)) };
    }
}

/// Keys are their own hashes.
fn hash(key: &u64) -> u64 {
    *key
}

/// Hashes the key of a raw entry.
fn hash_raw<L: Layout<Key = u64>>(raw: RawOf<L>) -> u64 {
    // SAFETY: as in `get`.
    unsafe { L::key(raw, hash) }
}

/// Returns a function that compares the key of a raw entry with this one.
fn is<L: Layout<Key = u64>>(wanted: u64) -> impl IsKey<RawOf<L>> {
    // SAFETY: as in `get`.
    move |raw| unsafe { L::key(raw, |key| *key == wanted) }
}

/// Keys of one home of the smallest table with one tag, so that only the key comparison tells them apart.
/// They prefer the same row, so the second key reuses the slot of the first if that is free.
fn alike<const N: usize>() -> [u64; N] {
    let same = |mixed: u64| mixed >> 62 == 0 && tag(mixed) == 7;
    let mut keys = (0..).filter(|key| same(mix(*key)));
    std::array::from_fn(|_| keys.next().expect("numbers do not run out"))
}

/// Keys of the last home of the smallest table.
fn of_last_home<const N: usize>() -> [u64; N] {
    let mut keys = (0..).filter(|key| mix(*key) >> 62 == 3);
    std::array::from_fn(|_| keys.next().expect("numbers do not run out"))
}

// The functions of `Table` within an operation; a model runs in one operation.

fn get<L: Layout<Key = u64, Value = u64>>(table: &Model<L>, key: u64) -> Option<u64> {
    // SAFETY: no memory is freed before the model ends.
    unsafe { table.find_raw(key, is::<L>(key)).map(|entry| L::value(entry, |value| *value)) }
}

/// Like `Table::put_in`.
fn set<L: Layout<Key = u64, Value = u64>>(table: &Model<L>, key: u64, value: u64) {
    // SAFETY: as in `get`.
    if let Err(new_entry) = unsafe { table.put_fast::<L>(key, L::new_entry(key, value), is::<L>(key)) } {
        put_slow(table, key, new_entry);
    }
}

/// Slow path of `set`.
fn set_slow<L: Layout<Key = u64, Value = u64>>(table: &Model<L>, key: u64, value: u64) {
    put_slow(table, key, L::new_entry(key, value));
}

fn put_slow<L: Layout<Key = u64, Value = u64>>(table: &Model<L>, key: u64, new_entry: L::NewEntry) {
    let new = L::entry_raw(&new_entry);
    let mut is_made = false;
    // SAFETY: as in `get`.
    unsafe {
        let put = Change::Put(new);
        let written = L::Slots::write(table, key, &is::<L>(key), &hash_raw::<L>, &put, &mut is_made);
        assert!(is_made, "each put is made");
        forget(new_entry);
        if let Some(old) = written.found {
            L::retire_replaced(old, new);
        }
        if written.check_size {
            L::Slots::resize(table, &hash_raw::<L>);
        }
    }
}

/// Like `Table::take_in`.
fn discard<L: Layout<Key = u64, Value = u64>>(table: &Model<L>, key: u64) -> bool {
    // SAFETY: as in `get`.
    match unsafe { table.remove_fast::<L>(key, is::<L>(key), &hash_raw::<L>) } {
        Ok(entry) => entry.is_some(),
        Err(NeedsSlowPath) => discard_slow(table, key),
    }
}

/// Slow path of `discard`.
fn discard_slow<L: Layout<Key = u64, Value = u64>>(table: &Model<L>, key: u64) -> bool {
    let mut is_made = false;
    // SAFETY: as in `get`.
    unsafe {
        let remove = Change::Remove;
        let written = L::Slots::write(table, key, &is::<L>(key), &hash_raw::<L>, &remove, &mut is_made);
        assert_eq!(written.found.is_some(), is_made, "a present key is removed");
        written.found.into_iter().for_each(|removed| L::retire(removed));
        if written.check_size {
            L::Slots::resize(table, &hash_raw::<L>);
        }
    }
    is_made
}

/// Adds one to a value by a lookup and a change, like the slow path of `Table::update`.
fn add<L: Layout<Key = u64, Value = u64>>(table: &Model<L>, key: u64) {
    loop {
        // SAFETY: as in `get`.
        unsafe {
            let found = match table.find_fast(key, is::<L>(key)) {
                FastFind::Found(found) => found,
                FastFind::Unknown => L::Slots::find(table, key, &is::<L>(key)).expect("the key is present"),
                FastFind::Absent => panic!("the key is present"),
            };
            let seen = found.raw();
            let new_value = L::new_value(seen, L::value(seen, |value| *value + 1));
            let new = Some(L::value_raw(&new_value));
            let mut is_made = false;
            L::Slots::change(table, found, &is::<L>(key), &hash_raw::<L>, new, &mut is_made);
            if is_made {
                forget(new_value);
                L::retire_value(seen);
                return;
            }
        }
    }
}

/// Adds one to a value, like `Table::__try_change`.
fn add_fast<L: Layout<Key = u64, Value = u64>>(table: &Model<L>, key: u64) {
    // SAFETY: as in `get`.
    let done = unsafe {
        match table.find_fast(key, is::<L>(key)) {
            FastFind::Found(found) => {
                let new = L::value(found.raw(), |value| *value + 1);
                table.change_value_fast::<L>(&found, L::new_value(found.raw(), new)).is_ok()
            }
            FastFind::Unknown => false,
            FastFind::Absent => panic!("the key is present"),
        }
    };
    if !done {
        add(table, key);
    }
}

// Readers are the spawned threads: loom tries earlier stores for a load, but does not reorder a store with an
// earlier load of the storing thread.

/// Runs a reader in a second thread, and a writer in this one.
fn beside<L: Layout>(
    table: &Arc<Model<L>>,
    read: impl FnOnce(&Model<L>) + Send + 'static,
    write: impl FnOnce(),
) {
    let table = table.clone();
    let reader = thread::spawn(move || read(&table));
    write();
    reader.join().unwrap();
}

/// An entry is inserted while it is read: the reader sees all of it or no entry.
fn appears<L: Layout<Key = u64, Value = u64>>() {
    let [a] = alike();
    let table = Arc::new(Model::<L>::new());
    beside(&table, move |table| assert!(matches!(get(table, a), None | Some(5))), || set(&table, a, 5));
    assert_eq!(get(&table, a), Some(5));
}

/// A slot is reused for another key while the first is read.
fn slot_again<L: Layout<Key = u64, Value = u64>>() {
    slot_again_by::<L>(set, discard);
}

fn slot_again_slow<L: Layout<Key = u64, Value = u64>>() {
    slot_again_by::<L>(set_slow, discard_slow);
}

/// A function that sets a value.
type Set<L> = fn(&Model<L>, u64, u64);
/// A function that removes a key.
type Discard<L> = fn(&Model<L>, u64) -> bool;

fn slot_again_by<L: Layout<Key = u64, Value = u64>>(set: Set<L>, discard: Discard<L>) {
    let [a, b] = alike();
    let table = Arc::new(Model::<L>::new());
    set(&table, a, 5);
    beside(
        &table,
        move |table| assert!(matches!(get(table, a), None | Some(5))),
        || {
            assert!(discard(&table, a));
            set(&table, b, 6);
        },
    );
    assert_eq!((get(&table, a), get(&table, b)), (None, Some(6)));
}

/// Returns a reader of a key that is inserted meanwhile: once found, the key stays.
fn comes_to_stay<L: Layout<Key = u64, Value = u64>>(key: u64) -> impl FnOnce(&Model<L>) + Send + 'static {
    move |table| {
        let (first, second) = (get(table, key), get(table, key));
        assert!(
            matches!((first, second), (None, None | Some(6)) | (Some(6), Some(6))),
            "{first:?}, {second:?}"
        );
    }
}

/// Like `slot_again`, and reads the key that is inserted.
fn slot_of_another<L: Layout<Key = u64, Value = u64>>() {
    slot_of_another_by::<L>(set, discard);
}

fn slot_of_another_slow<L: Layout<Key = u64, Value = u64>>() {
    slot_of_another_by::<L>(set_slow, discard_slow);
}

fn slot_of_another_by<L: Layout<Key = u64, Value = u64>>(set: Set<L>, discard: Discard<L>) {
    let [a, b] = alike();
    let table = Arc::new(Model::<L>::new());
    set(&table, a, 5);
    beside(&table, comes_to_stay(b), || {
        assert!(discard(&table, a));
        set(&table, b, 6);
    });
}

/// Returns a table with a full bucket, and keys of its home that are absent.
fn full_home<L: Layout<Key = u64, Value = u64>, const N: usize>() -> (Arc<Model<L>>, [u64; N]) {
    let keys = alike::<16>();
    let table = Arc::new(Model::<L>::new());
    keys[..SLOTS].iter().for_each(|key| set_slow(&table, *key, 1));
    (table, std::array::from_fn(|i| keys[SLOTS + i]))
}

/// One of two chained entries is removed while the other is read.
fn chain_loses_one<L: Layout<Key = u64, Value = u64>>() {
    let (table, [a, b]) = full_home::<L, 2>();
    set_slow(&table, a, 5);
    set_slow(&table, b, 6);
    beside(&table, move |table| assert_eq!(get(table, a), Some(5)), || assert!(discard(&table, b)));
    assert_eq!((get(&table, a), get(&table, b)), (Some(5), None));
}

/// The only chained entry is removed, and another is inserted while it is read.
fn chain_again<L: Layout<Key = u64, Value = u64>>() {
    let (table, [a, b]) = full_home::<L, 2>();
    set_slow(&table, a, 5);
    beside(&table, comes_to_stay(b), || {
        assert!(discard(&table, a));
        set(&table, b, 6);
    });
    assert_eq!(get(&table, b), Some(6));
}

/// Keys of two equal words.
type TwiceLayout = Wide<[u64; 2], u64>;

/// Returns a function that compares the key of a raw entry with this one, twice.
fn is_twice(wanted: u64) -> impl IsKey<RawOf<TwiceLayout>> {
    // SAFETY: as in `get`.
    move |raw| unsafe { TwiceLayout::key(raw, |found| *found == [wanted, wanted]) }
}

fn hash_twice(raw: RawOf<TwiceLayout>) -> u64 {
    // SAFETY: as in `get`.
    unsafe { TwiceLayout::key(raw, |[first, _]| *first) }
}

/// A slot is reused for another key while the first is read: the reader never sees halves of two keys.
fn never_of_two_keys() {
    let [a, b] = alike();
    let table = Arc::new(Model::<TwiceLayout>::new());
    let write = |table: &Model<TwiceLayout>, key: u64, change| {
        let mut is_made = false;
        // SAFETY: as in `get`.
        unsafe { WideSlots::write(table, key, &is_twice(key), &hash_twice, &change, &mut is_made) };
        assert!(is_made);
    };
    let set = |table: &Model<TwiceLayout>, key: u64, value: u64| {
        let new_entry = TwiceLayout::new_entry([key, key], value);
        write(table, key, Change::Put(TwiceLayout::entry_raw(&new_entry)));
        forget(new_entry);
    };
    set(&table, a, 5);
    let read = move |table: &Model<TwiceLayout>| {
        let is_key = move |raw| {
            let compare = |found: &[u64; 2]| {
                assert_eq!(found[0], found[1], "halves of two keys");
                found[0] == b
            };
            // SAFETY: as in `get`.
            unsafe { TwiceLayout::key(raw, compare) }
        };
        // SAFETY: as in `get`.
        let found =
            unsafe { table.find_raw(b, is_key).map(|entry| TwiceLayout::value(entry, |value| *value)) };
        assert!(matches!(found, None | Some(6)), "{found:?}");
    };
    beside(&table, read, || {
        write(&table, a, Change::Remove);
        set(&table, b, 6);
    });
}

/// A home moves while one of its entries, always present, is read.
fn moves_under_a_reader<L: Layout<Key = u64, Value = u64>>() {
    let [a, b] = alike();
    let table = Arc::new(Model::<L>::new());
    set(&table, a, 5);
    table.grow();
    let read = move |table: &Model<L>| {
        assert_eq!(get(table, a), Some(5));
        assert!(matches!(get(table, b), None | Some(6)));
    };
    // This write moves the home first.
    beside(&table, read, || set(&table, b, 6));
    assert_eq!((get(&table, a), get(&table, b)), (Some(5), Some(6)));
}

/// A home moves while one of its entries, always present, is read by the slow path.
fn moves_under_a_slow_lookup<L: Layout<Key = u64, Value = u64>>() {
    let [a, b] = alike();
    let table = Arc::new(Model::<L>::new());
    set(&table, a, 5);
    table.grow();
    let read = move |table: &Model<L>| {
        // SAFETY: as in `get`.
        let found = unsafe { L::Slots::find(table, a, &is::<L>(a)) };
        let found = found.expect("the entry is always present");
        // SAFETY: as in `get`.
        assert_eq!(unsafe { L::value(found.raw(), |value| *value) }, 5);
    };
    beside(&table, read, || set(&table, b, 6));
}

/// Another entry is removed before the home moves, so that the lookup restarts, perhaps after the move.
fn moves_under_a_restarted_lookup<L: Layout<Key = u64, Value = u64>>() {
    let [a, b] = alike();
    let table = Arc::new(Model::<L>::new());
    set(&table, b, 6);
    set(&table, a, 5);
    let read = move |table: &Model<L>| {
        // SAFETY: as in `get`.
        let found = unsafe { L::Slots::find(table, a, &is::<L>(a)) };
        assert!(found.is_some(), "the entry is always present");
    };
    beside(&table, read, || {
        assert!(discard(&table, b));
        table.grow();
        table.complete_move(&hash_raw::<L>);
    });
}

/// Returns the keys of all entries, like `Table::keys`.
fn walk<L: Layout<Key = u64, Value = u64>>(table: &Model<L>) -> Vec<u64> {
    let (mut keys, mut from) = (Vec::new(), Some(0));
    while let Some(at) = from {
        // SAFETY: as in `get`.
        from = unsafe {
            L::Slots::visit(table, at, &hash_raw::<L>, &mut |entry| L::key(entry, |key| keys.push(*key)))
        };
    }
    keys
}

/// A home moves during a walk: an entry that is always present is visited.
fn moves_under_a_walk<L: Layout<Key = u64, Value = u64>>() {
    let [a, b] = alike();
    let table = Arc::new(Model::<L>::new());
    set(&table, a, 5);
    table.grow();
    let read = move |table: &Model<L>| {
        let count = walk(table).into_iter().filter(|key| *key == a).count();
        assert_eq!(count, 1, "the entry is always present");
    };
    beside(&table, read, || set(&table, b, 6));
}

/// A home moves and an entry changes afterwards, while it is read twice: the second read is not older.
fn moves_and_changes<L: Layout<Key = u64, Value = u64>>() {
    let [a] = alike();
    let table = Arc::new(Model::<L>::new());
    set(&table, a, 5);
    table.grow();
    let read = move |table: &Model<L>| {
        let first = get(table, a);
        let second = get(table, a);
        assert!(first <= second && first >= Some(5), "{first:?}, then {second:?}");
    };
    beside(&table, read, || set(&table, a, 6));
    assert_eq!(get(&table, a), Some(6));
}

/// A function that adds one to a value.
type Add<L> = fn(&Model<L>, u64);

/// Two threads add to one value while the table begins to grow.
fn grows_while<L: Layout<Key = u64, Value = u64>>(add: Add<L>) {
    let [a] = alike();
    let table = Arc::new(Model::<L>::new());
    set(&table, a, 0);
    let other = {
        let table = table.clone();
        thread::spawn(move || add(&table, a))
    };
    table.grow();
    add(&table, a);
    other.join().unwrap();
    assert_eq!(get(&table, a), Some(2));
}

fn grows_under_writers<L: Layout<Key = u64, Value = u64>>() {
    grows_while::<L>(add);
}

fn grows_under_fast_writers<L: Layout<Key = u64, Value = u64>>() {
    grows_while::<L>(add_fast);
}

/// One thread adds to a value while another moves all homes.
fn moves_while<L: Layout<Key = u64, Value = u64>>(add: Add<L>) {
    let [a] = alike();
    let table = Arc::new(Model::<L>::new());
    set(&table, a, 0);
    beside(
        &table,
        move |table| add(table, a),
        || {
            table.grow();
            table.complete_move(&hash_raw::<L>);
        },
    );
    assert_eq!(get(&table, a), Some(1));
}

fn moves_under_a_writer<L: Layout<Key = u64, Value = u64>>() {
    moves_while::<L>(add);
}

fn moves_under_a_fast_writer<L: Layout<Key = u64, Value = u64>>() {
    moves_while::<L>(add_fast);
}

/// One thread inserts a key while another moves all homes.
fn moves_under_a_put<L: Layout<Key = u64, Value = u64>>() {
    let [a] = alike();
    let table = Arc::new(Model::<L>::new());
    beside(
        &table,
        move |table| set(table, a, 5),
        || {
            table.grow();
            table.complete_move(&hash_raw::<L>);
        },
    );
    assert_eq!(get(&table, a), Some(5));
}

/// One thread removes a key while another moves all homes.
fn moves_under_a_removal<L: Layout<Key = u64, Value = u64>>() {
    let [a] = alike();
    let table = Arc::new(Model::<L>::new());
    set(&table, a, 5);
    beside(
        &table,
        move |table| assert!(discard(table, a)),
        || {
            table.grow();
            table.complete_move(&hash_raw::<L>);
        },
    );
    assert_eq!((get(&table, a), table.len()), (None, 0));
}

/// Two threads insert one key, or one removes the key of the other: it is present once or absent.
fn two_put<L: Layout<Key = u64, Value = u64>>() {
    let [a] = alike();
    let table = Arc::new(Model::<L>::new());
    beside(
        &table,
        move |table| {
            set(table, a, 1);
            assert!(discard(table, a) || get(table, a).is_none());
        },
        || set(&table, a, 2),
    );
    let left = get(&table, a);
    assert!(matches!(left, None | Some(2)), "{left:?}");
    assert_eq!(table.len(), usize::from(left.is_some()));
}

/// Two threads move all homes at once: each entry moves once, and the next slab becomes the current one.
fn two_move_all<L: Layout<Key = u64, Value = u64>>() {
    let [a, b] = alike();
    let table = Arc::new(Model::<L>::new());
    set(&table, a, 5);
    set(&table, b, 6);
    table.grow();
    let other = {
        let table = table.clone();
        thread::spawn(move || table.complete_move(&hash_raw::<L>))
    };
    table.complete_move(&hash_raw::<L>);
    other.join().unwrap();
    assert_eq!((walk(&table).len(), get(&table, a), get(&table, b)), (2, Some(5), Some(6)));
}

/// Returns a table that has begun to grow, with a key in its first home (value 5) and one in its last (6).
fn growing<L: Layout<Key = u64, Value = u64>>() -> (Arc<Model<L>>, u64, u64) {
    let ([a], [b]) = (alike(), of_last_home());
    let table = Arc::new(Model::<L>::new());
    set(&table, a, 5);
    set(&table, b, 6);
    table.grow();
    (table, a, b)
}

/// Two writers of different homes meet a table that grows. They share the move, the last one ends it, and
/// each finds the entries that the other has moved.
fn two_share_a_move<L: Layout<Key = u64, Value = u64>>() {
    let (table, a, b) = growing::<L>();
    let other = {
        let table = table.clone();
        thread::spawn(move || {
            set(&table, a, 7);
            assert_eq!(get(&table, b), Some(6));
        })
    };
    set(&table, b, 6);
    assert!(matches!(get(&table, a), Some(5 | 7)));
    other.join().unwrap();
    assert_eq!((get(&table, a), get(&table, b)), (Some(7), Some(6)));
    assert!(!table.is_moving(), "the last of the two has made the next slab the current one");
}

/// Two threads move one home each. The one that ends the move finds the entry of the other home.
fn each_moves_one<L: Layout<Key = u64, Value = u64>>() {
    let (table, a, b) = growing::<L>();
    let other = {
        let table = table.clone();
        thread::spawn(move || {
            table.move_only(0, &hash_raw::<L>);
            assert_eq!(get(&table, b), Some(6));
        })
    };
    table.move_only(1, &hash_raw::<L>);
    assert_eq!(get(&table, a), Some(5));
    other.join().unwrap();
    assert!(!table.is_moving());
}

/// Two threads start a resize: one makes the next slab, and neither loses entries that the other has moved.
fn two_begin<L: Layout<Key = u64, Value = u64>>() {
    let [a] = alike();
    let table = Arc::new(Model::<L>::new());
    set(&table, a, 5);
    beside(&table, |table| table.try_grow(&hash_raw::<L>), || table.try_grow(&hash_raw::<L>));
    assert_eq!(get(&table, a), Some(5));
}

/// The last version of a bucket is used up: the slab is replaced while it is read.
fn wears_out() {
    let [a] = alike();
    let table = Arc::new(Model::<FlatLayout>::new());
    set(&table, a, 1);
    assert!(discard(&table, a));
    set(&table, a, 2);
    let read = move |table: &Model<FlatLayout>| assert!(matches!(get(table, a), None | Some(2)));
    beside(&table, read, || assert!(discard(&table, a)));
    assert_eq!((get(&table, a), table.len()), (None, 0));
}

macro_rules! models {
    ($($test:ident $model:ident $layout:ty;)*) => { $(
        #[test]
        fn $test() {
            squall_sys::sync::weaken::check($model::<$layout>);
        }
    )* };
}

models! {
    appears_flat appears FlatLayout;
    appears_boxed appears BoxedLayout;
    appears_wide appears WideLayout;
    slot_again_wide slot_again WideLayout;
    slot_of_another_wide slot_of_another WideLayout;
    moves_under_a_reader_wide moves_under_a_reader WideLayout;
    grows_under_writers_wide grows_under_writers WideLayout;
    slot_again_flat slot_again FlatLayout;
    slot_again_boxed slot_again BoxedLayout;
    slot_again_split slot_again SplitLayout;
    slot_of_another_flat slot_of_another FlatLayout;
    slot_of_another_boxed slot_of_another BoxedLayout;
    slot_of_another_split slot_of_another SplitLayout;
    moves_under_a_reader_flat moves_under_a_reader FlatLayout;
    moves_under_a_reader_boxed moves_under_a_reader BoxedLayout;
    moves_under_a_slow_lookup_flat moves_under_a_slow_lookup FlatLayout;
    moves_under_a_slow_lookup_boxed moves_under_a_slow_lookup BoxedLayout;
    moves_under_a_restarted_lookup_flat moves_under_a_restarted_lookup FlatLayout;
    moves_under_a_restarted_lookup_wide moves_under_a_restarted_lookup WideLayout;
    moves_under_a_walk_flat moves_under_a_walk FlatLayout;
    moves_under_a_walk_boxed moves_under_a_walk BoxedLayout;
    moves_and_changes_flat moves_and_changes FlatLayout;
    moves_and_changes_boxed moves_and_changes BoxedLayout;
    grows_under_writers_flat grows_under_writers FlatLayout;
    grows_under_writers_boxed grows_under_writers BoxedLayout;
    grows_under_fast_writers_flat grows_under_fast_writers FlatLayout;
    grows_under_fast_writers_boxed grows_under_fast_writers BoxedLayout;
    moves_under_a_fast_writer_flat moves_under_a_fast_writer FlatLayout;
    moves_under_a_fast_writer_split moves_under_a_fast_writer SplitLayout;
    moves_under_a_writer_flat moves_under_a_writer FlatLayout;
    moves_under_a_writer_boxed moves_under_a_writer BoxedLayout;
    moves_under_a_writer_split moves_under_a_writer SplitLayout;
    two_move_all_flat two_move_all FlatLayout;
    two_begin_flat two_begin FlatLayout;
    each_moves_one_flat each_moves_one FlatLayout;
    two_share_a_move_flat two_share_a_move FlatLayout;
    two_share_a_move_boxed two_share_a_move BoxedLayout;
    slot_again_slow_flat slot_again_slow FlatLayout;
    slot_again_slow_boxed slot_again_slow BoxedLayout;
    slot_of_another_slow_flat slot_of_another_slow FlatLayout;
    moves_under_a_put_flat moves_under_a_put FlatLayout;
    moves_under_a_put_boxed moves_under_a_put BoxedLayout;
    moves_under_a_removal_flat moves_under_a_removal FlatLayout;
    moves_under_a_removal_split moves_under_a_removal SplitLayout;
    two_put_flat two_put FlatLayout;
    two_put_wide two_put WideLayout;
    two_put_boxed two_put BoxedLayout;
    chain_loses_one_flat chain_loses_one FlatLayout;
    chain_loses_one_boxed chain_loses_one BoxedLayout;
    chain_again_flat chain_again FlatLayout;
    chain_again_boxed chain_again BoxedLayout;
}

type FlatLayout = Flat<u64, u64>;
type BoxedLayout = Boxed<u64, u64>;
type WideLayout = Wide<u64, u64>;

#[test]
fn slot_again_is_never_of_two_keys() {
    squall_sys::sync::weaken::check(never_of_two_keys);
}

#[test]
fn wears_out_flat() {
    squall_sys::sync::weaken::check(wears_out);
}

type SplitLayout = Split<u64, u64>;

#[cfg(loom)]
mod twins {
    use crate::table::sites;
    use squall_sys::sync::weaken::{Site, twin};

    /// The fence of a lock's release (`squall_lock`). Loom lets it order the count of moved homes, too.
    const UNLOCK_FENCE: Site = Site(2);

    #[test]
    fn an_entry_published_without_a_release() {
        twin(sites::PUBLISH, &[], "table::model::appears_flat");
    }

    #[test]
    fn a_probe_without_an_acquire() {
        twin(sites::PROBE, &[], "table::model::appears_flat");
    }

    #[test]
    fn a_reader_that_does_not_recheck_the_version() {
        twin(sites::VERSION, &[], "table::model::slot_again_flat");
    }

    #[test]
    fn a_reader_that_compares_words_of_two_keys() {
        twin(sites::VERSION, &[], "table::model::slot_again_is_never_of_two_keys");
    }

    #[test]
    fn words_loaded_without_an_acquire() {
        twin(sites::LOAD_KEY, &[], "table::model::slot_again_is_never_of_two_keys");
    }

    #[test]
    fn a_slot_loaded_without_an_acquire() {
        twin(sites::LOAD, &[], "table::model::slot_again_flat");
    }

    #[test]
    fn a_key_loaded_without_an_acquire() {
        twin(sites::LOAD_KEY, &[], "table::model::slot_of_another_flat");
    }

    #[test]
    fn a_pointer_from_a_slot_that_is_not_rechecked() {
        twin(sites::OCCUPIED, &[], "table::model::slot_of_another_boxed");
    }

    #[test]
    fn a_home_marked_as_moved_without_a_release() {
        twin(sites::MOVE, &[], "table::model::moves_under_a_reader_boxed");
    }

    #[test]
    fn two_threads_that_each_make_a_next_slab() {
        twin(sites::CLAIM, &[], "table::model::two_begin_flat");
    }

    #[test]
    fn two_threads_that_move_one_home() {
        twin(sites::MOVE_ONCE, &[], "table::model::two_move_all_flat");
    }

    #[test]
    fn moved_homes_counted_without_a_release() {
        twin(sites::COUNT_MOVED, &[UNLOCK_FENCE], "table::model::each_moves_one_flat");
    }

    #[test]
    fn a_move_that_ends_before_all_homes_have_moved() {
        twin(sites::ALL_MOVED, &[], "table::model::two_share_a_move_flat");
    }

    #[test]
    fn a_home_cleared_after_its_move() {
        twin(sites::KEEP_BITS, &[], "table::model::moves_under_a_restarted_lookup_flat");
    }

    #[test]
    fn a_home_of_pointers_cleared_after_its_move() {
        twin(sites::KEEP_BITS, &[], "table::model::moves_under_a_slow_lookup_boxed");
    }

    #[test]
    fn a_home_cleared_during_a_walk() {
        twin(sites::KEEP_BITS, &[], "table::model::moves_under_a_walk_flat");
    }

    #[test]
    fn a_change_that_does_not_check_for_a_move() {
        twin(sites::CHECK_MOVED, &[], "table::model::moves_under_a_writer_flat");
    }

    #[test]
    fn a_put_that_does_not_check_for_a_move() {
        twin(sites::CHECK_MOVED, &[], "table::model::moves_under_a_put_flat");
    }

    #[test]
    fn a_removal_that_does_not_check_for_a_move() {
        twin(sites::CHECK_MOVED, &[], "table::model::moves_under_a_removal_flat");
    }

    #[test]
    fn a_fast_change_that_does_not_check_for_a_move() {
        twin(sites::CHECK_MOVED, &[], "table::model::moves_under_a_fast_writer_flat");
    }

    #[test]
    fn a_fast_change_of_an_outdated_value() {
        twin(sites::CHECK_UNCHANGED, &[], "table::model::grows_under_fast_writers_flat");
    }

    #[test]
    fn a_chain_skipped_although_it_has_an_entry() {
        twin(sites::CHAIN_EMPTY, &[], "table::model::chain_loses_one_flat");
    }

    #[test]
    fn a_change_of_an_outdated_value() {
        twin(sites::CHECK_UNCHANGED, &[], "table::model::grows_under_writers_flat");
    }
}
