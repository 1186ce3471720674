//! Bytes as sequences of operations on a master and its local tables, compared with a map. Used by the test
//! on random bytes and by the fuzzer. Shorter bytes are simpler sequences. A difference panics.

use squall_parts::dhash::{LocalTable, Locking, MasterTable, Verdict};
use std::collections::BTreeMap;

const LOCALS: usize = 3;
const KEYS: u8 = 16;

/// The state of a key: the global part, and in each local table the number of requests there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Entry {
    global: u64,
    asked: [Option<u64>; LOCALS],
}

type Table = MasterTable<u64, u64, u64>;
type Locals = [LocalTable<u64, u64, u64>; LOCALS];
type Model = BTreeMap<u64, Entry>;

/// Compares a table in many places with a map.
pub(crate) fn dhash(bytes: &[u8]) {
    let master = Table::new(|_| 0);
    let mut locals: Locals = std::array::from_fn(|_| master.local());
    let mut model = Model::new();
    for operation in bytes.as_chunks().0 {
        if operation[0] % 16 < 9 {
            one(&locals, &master, &mut model, *operation);
        } else {
            all(&mut locals, &master, &mut model, *operation);
        }
        assert_eq!((master.len(), master.locals()), (model.len(), LOCALS));
        for (at, local) in locals.iter().enumerate() {
            let replicas = model.values().filter(|entry| entry.asked[at].is_some()).count();
            assert_eq!(local.len(), replicas, "replicas at {at}");
        }
    }
    let mut seen = BTreeMap::new();
    master.for_each(|key, global| assert!(seen.insert(*key, *global).is_none()));
    assert_eq!(seen, model.iter().map(|(key, entry)| (*key, entry.global)).collect());
}

/// Performs an operation on one key in one place.
fn one(locals: &Locals, master: &Table, model: &mut Model, [which, key, place]: [u8; 3]) {
    let (at, fresh) = (usize::from(place) % LOCALS, u64::from(place));
    let key = u64::from(key % KEYS);
    let there = model.contains_key(&key);
    let right = if there { Verdict::Found } else { Verdict::Empty };
    match which % 16 {
        0..=3 => {
            let told = locals[at].find_or_allocate_and_lock(
                &key,
                || fresh,
                |verdict, global, asked| {
                    *asked += 1;
                    (verdict, *global, *asked)
                },
            );
            let entry = model.entry(key).or_insert(Entry { global: fresh, ..Entry::default() });
            let asked = entry.asked[at].get_or_insert(0);
            *asked += 1;
            assert_eq!(told, (right, entry.global, *asked));
        }
        4 => {
            // A failed fill leaves the key empty.
            let told =
                locals[at].try_find_or_allocate_and_lock(&key, || Err::<u64, _>(()), |_, global, _| *global);
            assert_eq!(told, model.get(&key).map(|entry| entry.global).ok_or(()));
            model.entry(key).and_modify(|entry| _ = entry.asked[at].get_or_insert(0));
        }
        5 => {
            let told = locals[at].find_and_lock(&key, |global, asked| (*global, *asked));
            let entry = model.get_mut(&key);
            let entry = entry.map(|entry| (entry.global, *entry.asked[at].get_or_insert(0)));
            assert_eq!(told, entry);
        }
        6 => {
            let told = master.find_or_allocate_and_lock(
                &key,
                || fresh,
                |verdict, element| (verdict, *element.global()),
            );
            let entry = model.entry(key).or_insert(Entry { global: fresh, ..Entry::default() });
            assert_eq!(told, (right, entry.global));
        }
        7 | 8 => {
            let global = model.get(&key).map(|entry| entry.global);
            assert_eq!(locals[at].read(&key, |global| *global), global);
            assert_eq!(master.read(&key, |global| *global), global);
        }
        _ => unreachable!("the others are for all"),
    }
}

/// Performs an operation on a key everywhere, on all keys, or on a place.
fn all(locals: &mut Locals, master: &Table, model: &mut Model, [which, key, place]: [u8; 3]) {
    let (at, fresh) = (usize::from(place) % LOCALS, u64::from(place));
    let key = u64::from(key % KEYS);
    match which % 16 {
        9 | 10 => assert_eq!(master.empty_data(&key), model.remove(&key).is_some()),
        11 => {
            let locking = if place % 2 == 0 { Locking::All } else { Locking::Each };
            let sum = |sum: &mut u64, _: &u64, asked: &mut u64| *sum += *asked;
            let right = model.get(&key).map(|entry| entry.asked.iter().flatten().sum());
            assert_eq!(master.do_op(&key, locking, 0, |_, _| (), sum), right);
        }
        12 => {
            // A local table is dropped with its replicas, and another one is added.
            locals[at] = master.local();
            model.values_mut().for_each(|entry| entry.asked[at] = None);
        }
        13 => {
            master.retain(|key, _| key % 3 != fresh % 3);
            model.retain(|key, _| key % 3 != fresh % 3);
        }
        14 if place < 16 => {
            master.clear();
            model.clear();
        }
        _ => {
            master.shrink_to_fit();
            let replicas = master.lock_all_replicas(&key, |_, replicas| replicas.len());
            assert_eq!(replicas, model.get(&key).map(|entry| entry.asked.iter().flatten().count()));
        }
    }
}
