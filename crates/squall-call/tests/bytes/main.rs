//! The fuzzer's tests on random bytes: see `instruments/fuzz`.

mod arguments;
mod frames;

use squall_history::rng::Rng;

/// Calls `run` with random bytes.
fn random(run: fn(&[u8])) {
    let first = std::env::var("SQUALL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    for seed in first..first + if cfg!(miri) { 50 } else { 2_000 } {
        // Printed if the test fails.
        println!("SQUALL_SEED={seed}");
        let mut rng = Rng::new(seed, 0);
        // Small values are common, since they are the valid ones of many bytes.
        let values = [256, 128, 6][rng.below(3) as usize];
        let bytes: Vec<u8> = (0..rng.below(60)).map(|_| rng.below(values) as u8).collect();
        run(&bytes);
    }
}

#[test]
fn any_bytes_are_a_frame_within_its_bounds_or_an_error() {
    random(frames::any);
}

#[test]
fn any_bytes_are_values_that_can_be_encoded_again_or_an_error() {
    random(arguments::any);
}
