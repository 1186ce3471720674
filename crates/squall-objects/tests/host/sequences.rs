//! The fuzzer's interpreters on random bytes: see `instruments/fuzz`.

use crate::interpreters;

const ROUNDS: u64 = 60;

/// Runs an interpreter on bytes from consecutive seeds. `SQUALL_SEED` is the first one.
fn rounds(run: fn(&[u8])) {
    let first = std::env::var("SQUALL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in first..first + ROUNDS {
        // Printed if the test fails.
        println!("SQUALL_SEED={seed}");
        // The first byte selects the kind, so all kinds take turns.
        let mut bytes = interpreters::random(seed, 0, 40 + seed as usize % 20 * 30);
        bytes[0] = seed as u8;
        run(&bytes);
    }
}

#[test]
fn any_sequence_on_a_table_is_one_on_stds_map() {
    rounds(interpreters::table);
}

#[test]
fn any_sequence_on_a_map_of_any_form_with_swaps_between_is_one_on_stds_map() {
    rounds(interpreters::map);
}

#[test]
fn any_sequence_on_a_limited_map_keeps_the_limit_to_the_unit() {
    rounds(interpreters::limited);
}

#[test]
fn any_sequence_on_a_read_mostly_value_is_one_on_a_value_and_its_version() {
    rounds(interpreters::cell);
}
