//! What the fuzzer runs, on random bytes: see `fuzz/`.
#![cfg(not(any(loom, miri)))]

mod dhash_sequences_common;

use squall_history::rng::Rng;

#[test]
fn co_54_any_sequence_on_a_table_in_many_places_is_one_on_a_map() {
    let first = std::env::var("SQUALL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    for seed in first..first + 200 {
        // Shown where it fails.
        println!("SQUALL_SEED={seed}");
        let mut rng = Rng::new(seed, 0);
        let bytes: Vec<u8> = (0..30 + seed * 3).map(|_| rng.below(256) as u8).collect();
        dhash_sequences_common::dhash(&bytes);
    }
}
