//! Interpreters of bytes as sequences of operations on objects with copies or parts in clusters, for the
//! fuzzer and for the tests on random bytes.
//!
//! The bytes select the VP of each operation, and swaps between operations. Each operation also runs on a
//! simple model, and panics where the two differ. All run on one machine of 32 VPs.

#![allow(dead_code, reason = "each user runs some of it")]

use squall_core::swap::Swap;
use squall_machine::{ClusterSize, Machine, Vp, machine};
use squall_objects::cached::{self, CachedMap, Form, Items};
use squall_objects::directory::{self, Directory, Parts, new_directory};
use squall_objects::map::{self, Compute, Computed, MapExt};
use std::collections::BTreeMap;
use std::hash::RandomState;
use std::sync::Once;

const SIZES: [ClusterSize; 6] = [
    ClusterSize::Cpu,
    ClusterSize::Core,
    ClusterSize::Cache,
    ClusterSize::Node,
    ClusterSize::Machine,
    ClusterSize::fixed(5),
];
const KEYS: u8 = 16;

/// Runs each operation, of four bytes, on the VP of its last byte.
fn each_on_its_vp(bytes: &[u8], mut act: impl FnMut(u8, u8, u8)) {
    static MADE: Once = Once::new();
    MADE.call_once(|| {
        // An error means that another test has set the same machine.
        let _ = Machine::set_virtual("nodes:2,caches:2,cores:4,threads:2".parse().unwrap());
        assert_eq!(machine().vps().len(), 32);
    });
    for [which, key, value, vp] in bytes.as_chunks().0 {
        Vp::with_vp(Vp::new(u32::from(vp % 32)), || act(*which, *key, *value)).unwrap();
    }
}

fn size(of: u8) -> ClusterSize {
    SIZES[usize::from(of) % SIZES.len()]
}

fn form(of: u8) -> Form {
    let size = size(of / 8);
    let form = match of % 4 {
        0 => Form::distributed(size),
        1 => Form::where_threads_are(size, u32::from(of / 64)),
        2 => Form::on(size, [4, 9, 31].map(Vp::new)),
        _ => Form::shared(),
    };
    let form = if of & 32 == 0 { form } else { form.keeping(3) };
    if of & 4 == 0 { form } else { form.updated() }
}

/// A map with copies or parts in clusters, against `std`'s.
pub(crate) fn distributed_map(bytes: &[u8]) {
    let [kind, acts @ ..] = bytes else { return };
    each_on_its_vp(&[], |_, _, _| ());
    let owner = match kind % 2 {
        0 => map::replicated::<u64, u64>(size(kind / 2)),
        _ => map::partitioned_with(
            usize::from(kind / 2 % 7) + 1,
            |key| key as usize,
            size(kind / 16),
            RandomState::new(),
        ),
    };
    let (handle, mut model) = (owner.handle(), BTreeMap::new());
    each_on_its_vp(acts, |which, key, value| {
        let (key, fresh) = (u64::from(key % KEYS), u64::from(value));
        let had = model.get(&key).copied();
        match which % 12 {
            0 | 1 => assert_eq!(handle.insert(key, fresh), model.insert(key, fresh)),
            2..=4 => assert_eq!(handle.get(&key), had),
            5 => assert_eq!(handle.remove(&key), model.remove(&key)),
            6 => {
                assert_eq!(handle.update(&key, |old| old + fresh), had.is_some());
                model.entry(key).and_modify(|old| *old += fresh);
            }
            7 => {
                let done = handle
                    .compute(key, |old| if old.is_some() { Compute::Remove } else { Compute::Put(fresh) });
                match model.remove(&key) {
                    Some(_) => assert_eq!(done, Computed::Removed),
                    None => {
                        model.insert(key, fresh);
                        assert_eq!(done, Computed::Inserted);
                    }
                }
            }
            8 => {
                handle.retain(|key, _| key % 3 != fresh % 3);
                model.retain(|key, _| key % 3 != fresh % 3);
            }
            9 => _ = handle.set_cluster_size(size(value)),
            10 => {
                let new = match value % 4 {
                    0 => map::new_replicated(size(value / 4)),
                    1 => map::new_partitioned(3, |key| key as usize, size(value / 4)),
                    2 => map::new_shared(),
                    _ => map::new_locked(),
                };
                handle.swap_to(new).unwrap();
            }
            _ => handle.shrink_to_fit(),
        }
        assert_eq!((handle.get(&key), handle.len()), (model.get(&key).copied(), model.len()));
    });
    assert_eq!(handle.iter().collect::<BTreeMap<_, _>>(), model);
}

/// A cached map, against `std`'s.
pub(crate) fn cached_map(bytes: &[u8]) {
    use cached::CachedMapExt;
    let [kind, acts @ ..] = bytes else { return };
    each_on_its_vp(&[], |_, _, _| ());
    let owner = cached::map::<u64, u64>(form(*kind));
    let (handle, mut model) = (owner.handle(), BTreeMap::new());
    each_on_its_vp(acts, |which, key, value| {
        let (key, fresh) = (u64::from(key % KEYS), u64::from(value));
        let had = model.get(&key).copied();
        match which % 12 {
            0 | 1 => assert_eq!(handle.insert(key, fresh), model.insert(key, fresh)),
            2..=4 => assert_eq!(handle.get(&key), had),
            5 => assert_eq!(handle.remove(&key), model.remove(&key)),
            6 => {
                assert_eq!(handle.update(&key, |old| old + fresh), had.is_some());
                model.entry(key).and_modify(|old| *old += fresh);
            }
            7 => {
                assert_eq!(handle.try_insert(key, fresh), had.map_or(Ok(()), |_| Err((key, fresh))));
                model.entry(key).or_insert(fresh);
            }
            8 => {
                handle.retain(|key, _| key % 3 != fresh % 3);
                model.retain(|key, _| key % 3 != fresh % 3);
            }
            9 => assert_eq!(handle.get_or_insert_with(key, || fresh), *model.entry(key).or_insert(fresh)),
            10 => _ = handle.set_cluster_size(size(value)).unwrap(),
            _ => {
                _ = Swap::new(handle).run(cached::new_map(form(value))).unwrap();
                assert_eq!(handle.form(), form(value));
            }
        }
        assert_eq!((handle.get(&key), handle.len()), (model.get(&key).copied(), model.len()));
    });
    assert_eq!(handle.iter().collect::<BTreeMap<_, _>>(), model);
}

/// A cached list of numbers, against `std`'s.
pub(crate) fn cached_list(bytes: &[u8]) {
    let [kind, acts @ ..] = bytes else { return };
    each_on_its_vp(&[], |_, _, _| ());
    let owner = cached::list::<u8>(form(*kind));
    let (handle, mut model, mut held) = (owner.handle(), Vec::new(), Vec::new());
    each_on_its_vp(acts, |which, key, value| {
        let number = key % KEYS;
        match which % 8 {
            0 | 1 => {
                held.push(handle.insert(number));
                model.push(number);
            }
            2 | 3 => assert_eq!(
                handle.find(|item| *item == number, |item| *item),
                model.contains(&number).then_some(number)
            ),
            4 => {
                let gone = handle.remove(|item| *item == number);
                assert!(gone.iter().all(|item| item.is_gone()));
                let at = model.iter().position(|item| *item == number);
                assert_eq!(gone.map(|item| *item), at.map(|at| model.swap_remove(at)));
            }
            5 => {
                let done = handle.try_insert(number, |there, new| there == new);
                assert_eq!(done.is_err(), model.contains(&number));
                if let Ok(item) = done {
                    held.push(item);
                    model.push(number);
                }
            }
            6 if !held.is_empty() => {
                let item = held.swap_remove(usize::from(value) % held.len());
                let was = !item.is_gone();
                assert_eq!(handle.remove_item(&item), was);
                if was {
                    let at = model.iter().position(|there| *there == *item).expect("it was there");
                    model.swap_remove(at);
                }
            }
            6 => _ = handle.set_cluster_size(size(value)).unwrap(),
            _ => _ = Swap::new(handle).run(cached::new_list(form(value))).unwrap(),
        }
        let found = handle.get(|item| *item == number);
        assert_eq!((found.is_some(), handle.len()), (model.contains(&number), model.len()));
    });
    let mut left: Vec<u8> = handle.iter().map(|item| *item).collect();
    left.sort_unstable();
    model.sort_unstable();
    assert_eq!(left, model);
}

/// A directory, against a map of entries and sums.
pub(crate) fn parts(bytes: &[u8]) {
    let [kind, acts @ ..] = bytes else { return };
    each_on_its_vp(&[], |_, _, _| ());
    let owner = directory::distributed::<u64, u64, u64>(size(*kind), |entry| entry % 2);
    let handle = owner.handle();
    // Each entry, and the sum of the additions to its parts, without their initial values.
    let mut model = BTreeMap::<u64, (u64, u64)>::new();
    let added = |sum: &mut u64, entry: &u64, part: &mut u64| *sum += *part - entry % 2;
    each_on_its_vp(acts, |which, key, value| {
        let (key, fresh) = (u64::from(key % KEYS), u64::from(value));
        let had = model.get(&key).copied();
        match which % 10 {
            0..=2 => {
                let entry = handle.get_or_make(
                    &key,
                    || fresh,
                    |entry, part| {
                        *part += 1;
                        *entry
                    },
                );
                let (right, sum) = model.entry(key).or_insert((fresh, 0));
                *sum += 1;
                assert_eq!(entry, *right);
            }
            3 => {
                assert_eq!(handle.update(&key, |_, part| *part += fresh).is_some(), had.is_some());
                model.entry(key).and_modify(|(_, sum)| *sum += fresh);
            }
            4 => assert_eq!(handle.read(&key, |entry| *entry), had.map(|(entry, _)| entry)),
            5 => assert_eq!(handle.remove_with(&key, 0, added), model.remove(&key).map(|(_, sum)| sum)),
            6 => {
                handle.retain(|key, _| key % 3 != fresh % 3);
                model.retain(|key, _| key % 3 != fresh % 3);
            }
            7 => {
                let all = handle.gather_all(0, |sum, _, entry, part| added(sum, entry, part));
                assert_eq!(all, model.values().map(|(_, sum)| sum).sum::<u64>());
            }
            8 => {
                assert_eq!(
                    handle.try_get_or_make(&key, || Err(()), |entry, _| *entry),
                    had.map(|(entry, _)| entry).ok_or(())
                );
            }
            _ => {
                _ = Swap::new(handle).run(new_directory(size(value))).unwrap();
                assert_eq!(handle.cluster_size(), size(value));
            }
        }
        let sum = model.get(&key).map(|(_, sum)| *sum);
        assert_eq!((handle.gather(&key, 0, added), handle.len()), (sum, model.len()));
    });
    assert_eq!(
        handle.iter().collect::<BTreeMap<_, _>>(),
        model.iter().map(|(key, (entry, _))| (*key, *entry)).collect()
    );
}

/// Any of them, by the first byte.
pub(crate) fn any(bytes: &[u8]) {
    let [which, bytes @ ..] = bytes else { return };
    [distributed_map, cached_map, cached_list, parts][usize::from(which % 4)](bytes);
}
