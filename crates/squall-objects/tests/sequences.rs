//! What the fuzzer runs, on random bytes: see `fuzz/`.
#![cfg(not(miri))]

mod sequences_common;

use sequences_common as sequences;

const ROUNDS: u64 = 60;

/// Runs an interpreter on bytes from seeds that follow each other; `SQUALL_SEED` is the first.
fn rounds(run: fn(&[u8])) {
    let first = std::env::var("SQUALL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in first..first + ROUNDS {
        // Shown where it fails.
        println!("SQUALL_SEED={seed}");
        // The first byte says what is made: each kind has its turn.
        let mut bytes = sequences::random(seed, 0, 40 + seed as usize % 20 * 30);
        bytes[0] = seed as u8;
        run(&bytes);
    }
}

#[test]
fn any_sequence_on_a_table_is_one_on_stds_map() {
    rounds(sequences::table);
}

#[test]
fn any_sequence_on_a_map_of_any_form_with_swaps_between_is_one_on_stds_map() {
    rounds(sequences::map);
}

#[test]
fn any_sequence_on_a_limited_map_keeps_the_limit_to_the_unit() {
    rounds(sequences::limited);
}

#[test]
fn any_sequence_on_a_read_mostly_value_is_one_on_a_value_and_its_version() {
    rounds(sequences::cell);
}
