//! Maps of large values on small stacks.

use squall_machine::ClusterSize;
use squall_objects::map::{self, MapExt, MapLimit, OwnedMap};
use std::thread;

const BYTES: usize = 128 << 10;

type Large = [u8; BYTES];

/// Writes and reads a large value in threads with the default stack size of 2 MiB. Unoptimised builds copy a
/// value at each move, so each step has a thread of its own.
fn fits_a_small_stack(make: fn() -> OwnedMap<u64, Large>) {
    let map = make();
    let steps: [fn(&OwnedMap<u64, Large>); 5] = [
        |map| assert!(!map.set(1, [1; BYTES])),
        |map| assert!(map.set(1, [2; BYTES])),
        |map| assert_eq!(map.with(&1, |value| (value[0], value[BYTES - 1])), Some((2, 2))),
        |map| assert!(map.contains_key(&1) && map.len() == 1),
        |map| assert!(map.delete(&1) && map.is_empty()),
    ];
    for step in steps {
        thread::scope(|scope| {
            let small = thread::Builder::new().stack_size(2 << 20);
            small.spawn_scoped(scope, || step(&map)).unwrap().join().unwrap();
        });
    }
}

#[test]
fn a_large_value_fits_a_small_stack_in_a_locked_map() {
    fits_a_small_stack(map::locked);
}

#[test]
fn a_large_value_fits_a_small_stack_in_a_shared_map() {
    fits_a_small_stack(map::shared);
}

#[test]
fn a_large_value_fits_a_small_stack_in_a_partitioned_map() {
    fits_a_small_stack(|| map::partitioned(2, |key| key as usize));
}

#[test]
fn a_large_value_fits_a_small_stack_in_a_replicated_map() {
    fits_a_small_stack(|| map::replicated(ClusterSize::Cpu));
}

#[test]
fn a_large_value_fits_a_small_stack_in_an_adaptive_map() {
    fits_a_small_stack(map::adaptive);
}

#[test]
fn a_large_value_fits_a_small_stack_in_a_limited_map() {
    fits_a_small_stack(|| map::limited(map::shared(), MapLimit::entries(2)));
}
