//! What the fuzzer runs of objects that are in many clusters, on random bytes: see `fuzz/`.
#![cfg(not(miri))]

mod spread_common;

use squall_history::rng::Rng;

const ROUNDS: u64 = 60;

/// Runs an interpreter on bytes from seeds that follow each other; `SQUALL_SEED` is the first, `SQUALL_ROUNDS` how many.
fn rounds(run: fn(&[u8])) {
    let given = |name| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let (first, rounds) = (given("SQUALL_SEED").unwrap_or(1), given("SQUALL_ROUNDS").unwrap_or(ROUNDS));
    for seed in first..first + rounds {
        // Shown where it fails.
        println!("SQUALL_SEED={seed}");
        let mut rng = Rng::new(seed, 0);
        let mut bytes: Vec<u8> = (0..1 + 4 * (10 + seed % 20 * 10)).map(|_| rng.below(256) as u8).collect();
        // Each kind has its turn.
        bytes[0] = seed as u8;
        run(&bytes);
    }
}

#[test]
fn any_sequence_from_everywhere_on_a_map_with_copies_or_parts_is_one_on_stds_map() {
    rounds(spread_common::spread_map);
}

#[test]
fn any_sequence_from_everywhere_on_a_cached_map_is_one_on_stds_map() {
    rounds(spread_common::cached_map);
}

#[test]
fn any_sequence_from_everywhere_on_a_cached_list_is_one_on_stds_list() {
    rounds(spread_common::cached_list);
}

#[test]
fn any_sequence_from_everywhere_on_a_directory_is_one_on_a_map_of_sums() {
    rounds(spread_common::parts);
}
