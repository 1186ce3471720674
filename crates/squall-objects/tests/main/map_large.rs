//! Maps of large values on small stacks.

use squall_machine::ClusterSize;
use squall_objects::map::{self, MapExt, MapLimit, OwnedMap};
use std::thread;

const BYTES: usize = 128 << 10;

type Large = [u8; BYTES];

/// Sets a large value in a thread with the default stack size of 2 MiB. Unoptimised builds copy a value at
/// each move.
fn set_on_a_small_stack(make: fn() -> OwnedMap<u64, Large>) {
    let run = move || {
        let map = make();
        assert!(!map.set(1, [1; BYTES]));
        assert!(map.set(1, [2; BYTES]));
        assert_eq!(map.with(&1, |value| (value[0], value[BYTES - 1])), Some((2, 2)));
        assert!(map.delete(&1) && map.is_empty());
    };
    thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn a_large_value_fits_a_small_stack_in_a_locked_map() {
    set_on_a_small_stack(map::locked);
}

#[test]
fn a_large_value_fits_a_small_stack_in_a_shared_map() {
    set_on_a_small_stack(map::shared);
}

#[test]
fn a_large_value_fits_a_small_stack_in_a_partitioned_map() {
    set_on_a_small_stack(|| map::partitioned(2, |key| key as usize));
}

#[test]
fn a_large_value_fits_a_small_stack_in_a_replicated_map() {
    set_on_a_small_stack(|| map::replicated(ClusterSize::Cpu));
}

#[test]
fn a_large_value_fits_a_small_stack_in_an_adaptive_map() {
    set_on_a_small_stack(map::adaptive);
}

#[test]
fn a_large_value_fits_a_small_stack_in_a_limited_map() {
    set_on_a_small_stack(|| map::limited(map::shared(), MapLimit::entries(2)));
}
