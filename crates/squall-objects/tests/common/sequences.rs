//! Interpreters of bytes as sequences of operations, for the fuzzer and for the tests on random bytes.
//!
//! Each operation runs on an object and on a simple model, and panics where the two differ. Shorter bytes
//! are simpler sequences.

#![allow(dead_code, reason = "each user runs some of it")]

use crate::maps::{FORMS, Maps, RestlessMaps};
use squall_core::swap::{Swap, swap};
use squall_history::maps::{Act, ConcurrentMap, Held, Maker, Step, Wide, acts};
use squall_machine::ClusterSize;
use squall_objects::map::{self, Compute, Computed, Map, MapExt, MapLimit};
use squall_objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
use squall_parts::table::Table;
use std::collections::BTreeMap;
use std::hash::RandomState;

struct OfTable<V: Held>(Table<u64, V>);
as_checked!(OfTable<V>, this => this.0, delete);

/// A table, with values in its slots or in nodes, against `std`'s map.
pub(crate) fn table(bytes: &[u8]) {
    let [kind, acts @ ..] = bytes else { return };
    let acts = Act::all_from_bytes(acts);
    let done = if kind % 2 == 0 {
        acts::follow(&OfTable::<u64>(Table::new()), &acts)
    } else {
        acts::follow(&OfTable::<Wide>(Table::new()), &acts)
    };
    done.unwrap_or_else(|what| panic!("{what}"));
}

/// A map against `std`'s. The first byte selects its form, or swaps between the operations.
pub(crate) fn map(bytes: &[u8]) {
    let [kind, acts @ ..] = bytes else { return };
    let acts = Act::all_from_bytes(acts);
    let form = FORMS.get(usize::from(kind / 2) % 8);
    let maps = form.map(|form| Maps(*form, RandomState::new()));
    let done = match (maps, kind % 2) {
        (Some(maps), 0) => acts::follow(&maps.make::<u64>(), &acts),
        (Some(maps), _) => acts::follow(&maps.make::<Wide>(), &acts),
        (None, 0) => acts::follow(&RestlessMaps.make::<u64>(), &acts),
        (None, _) => acts::follow(&RestlessMaps.make::<Wide>(), &acts),
    };
    done.unwrap_or_else(|what| panic!("{what}"));
}

/// A map with a limit on the weight of its values, against `std`'s map and a sum. The inner map is swapped.
pub(crate) fn limited(bytes: &[u8]) {
    const MOST: u64 = 40;
    let [form, acts @ ..] = bytes else { return };
    let inner = FORMS[usize::from(*form) % FORMS.len()].make::<u64, _>(RandomState::new());
    let within = inner.handle();
    let map = map::limited(inner, MapLimit::weight(MOST, "units", |value: &u64| *value));
    let mut model = BTreeMap::<u64, u64>::new();
    for [which, key, value] in acts.as_chunks().0 {
        let (key, value) = (u64::from(key % 16), u64::from(value % 16));
        let sum: u64 = model.values().sum();
        let had = model.get(&key).copied();
        let fits = |value: u64| sum - had.unwrap_or(0) + value <= MOST;
        match which % 8 {
            0 | 1 => {
                let done = map.set_or_full(key, value);
                if fits(value) || had.is_some_and(|had| value <= had) {
                    assert_eq!(done, Ok(model.insert(key, value).is_some()));
                } else {
                    assert_eq!(done.unwrap_err().back, (key, value));
                }
            }
            2 => assert_eq!(map.remove(&key), model.remove(&key)),
            3 => assert_eq!(map.delete(&key), model.remove(&key).is_some()),
            4 => {
                let done = map.compute_or_full(key, |old| match old {
                    Some(old) if old % 2 == 1 => Compute::Remove,
                    _ => Compute::Put(value),
                });
                match (had, done) {
                    (Some(old), done) if old % 2 == 1 => {
                        assert_eq!(done, Ok(Computed::Removed));
                        model.remove(&key);
                    }
                    (had, Ok(done)) => {
                        let right = if had.is_some() { Computed::Updated } else { Computed::Inserted };
                        assert!(done == right && (fits(value) || had.is_some_and(|had| value <= had)));
                        model.insert(key, value);
                    }
                    (_, Err(full)) => assert!(!fits(value) && full.exhausted.taken == sum),
                }
            }
            5 => {
                map.retain(|key, _| key % 3 != value % 3);
                model.retain(|key, _| key % 3 != value % 3);
            }
            6 => assert_eq!(map.get(&key), had),
            _ => crate::maps::swap_to(within, crate::maps::NEW[value as usize % crate::maps::NEW.len()]),
        }
        assert_eq!(map.budget().unwrap().taken(), model.values().sum::<u64>());
        assert_eq!(map.len(), model.len());
    }
    assert_eq!(map.iter().collect::<BTreeMap<_, _>>(), model);
}

/// A read-mostly value, in each form and size of clusters, against a value and its version.
pub(crate) fn cell(bytes: &[u8]) {
    const SIZES: [ClusterSize; 3] = [ClusterSize::Machine, ClusterSize::Cpu, ClusterSize::Node];
    let [form, acts @ ..] = bytes else { return };
    let owner = match form % 4 {
        0 => read_mostly::shared(vec![0]),
        1 => read_mostly::distributed(vec![0], ClusterSize::Cpu),
        2 => read_mostly::copied(vec![0], ClusterSize::Cpu),
        _ => read_mostly::adaptive(vec![0]),
    };
    let handle = owner.handle();
    let (mut value, mut version, mut told) = (vec![0], 1, 1);
    let mut changes = handle.subscribe();
    for [which, number] in acts.as_chunks().0 {
        let size = SIZES[usize::from(*number) % SIZES.len()];
        match which % 9 {
            0 => {
                value = vec![*number];
                version += 1;
                assert_eq!(handle.set(value.clone()), version);
            }
            1 => {
                let of = version.saturating_sub(u64::from(number % 2));
                match handle.compare_and_update(of, vec![*number]) {
                    Ok(new) => {
                        assert!(of == version && new == version + 1);
                        (value, version) = (vec![*number], new);
                    }
                    Err(conflict) => {
                        assert!(of != version && conflict.version == version && conflict.value == [*number]);
                    }
                }
            }
            2 if value.len() < 100 => {
                value.push(*number);
                version += 1;
                assert_eq!(handle.update(|old| [&old[..], &[*number]].concat()), version);
            }
            3 => handle.read_versioned(|seen, of| assert!(*seen == value && of == version)),
            4 => {
                assert_eq!(changes.poll_now().unwrap(), (told < version).then_some(version));
                told = version;
            }
            5 => {
                handle.set_cluster_size(size).unwrap();
                assert_eq!(handle.cluster_size(), size);
            }
            6 => _ = swap(handle, read_mostly::new_shared()).unwrap(),
            7 => _ = Swap::new(handle).run(read_mostly::new_distributed(size)).unwrap(),
            _ => _ = swap(handle, read_mostly::new_copied(size)).unwrap(),
        }
        assert_eq!((handle.get_cloned() == value, handle.version()), (true, version));
    }
}

/// Returns random bytes.
pub(crate) fn random(seed: u64, stream: u64, length: usize) -> Vec<u8> {
    let mut rng = squall_history::rng::Rng::new(seed, stream);
    (0..length).map(|_| rng.below(256) as u8).collect()
}
