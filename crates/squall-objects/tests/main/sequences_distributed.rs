//! The fuzzer's interpreters for objects in many clusters, on random bytes: see `instruments/fuzz`.

use crate::common::alone;
use crate::interpreters;
use squall_history::rng::Rng;

const ROUNDS: u64 = 60;

/// Runs an interpreter on bytes from consecutive seeds. `SQUALL_SEED` is the first one, and `SQUALL_ROUNDS`
/// their number.
fn rounds(run: fn(&[u8])) {
    let given = |name| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let (first, rounds) = (given("SQUALL_SEED").unwrap_or(1), given("SQUALL_ROUNDS").unwrap_or(ROUNDS));
    for seed in first..first + rounds {
        // Printed if the test fails.
        println!("SQUALL_SEED={seed}");
        let mut rng = Rng::new(seed, 0);
        let mut bytes: Vec<u8> = (0..1 + 4 * (10 + seed % 20 * 10)).map(|_| rng.below(256) as u8).collect();
        // All kinds take turns.
        bytes[0] = seed as u8;
        run(&bytes);
    }
}

#[test]
fn any_sequence_from_everywhere_on_a_map_with_copies_or_parts_is_one_on_stds_map() {
    let _alone = alone();
    rounds(interpreters::distributed_map);
}

#[test]
fn any_sequence_from_everywhere_on_a_cached_map_is_one_on_stds_map() {
    let _alone = alone();
    rounds(interpreters::cached_map);
}

#[test]
fn any_sequence_from_everywhere_on_a_cached_list_is_one_on_stds_list() {
    let _alone = alone();
    rounds(interpreters::cached_list);
}

#[test]
fn any_sequence_from_everywhere_on_a_directory_is_one_on_a_map_of_sums() {
    let _alone = alone();
    rounds(interpreters::parts);
}
