//! The fuzzer's test on random bytes: see `instruments/fuzz`.

mod operations;

use squall_history::rng::Rng;

#[test]
fn co_54_any_sequence_on_a_table_in_many_places_is_one_on_a_map() {
    let first = std::env::var("SQUALL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    for seed in first..first + 200 {
        // Printed if the test fails.
        println!("SQUALL_SEED={seed}");
        let mut rng = Rng::new(seed, 0);
        let bytes: Vec<u8> = (0..30 + seed * 3).map(|_| rng.below(256) as u8).collect();
        operations::dhash(&bytes);
    }
}
