//! Random delays: none, a spin, a yield or a sleep.

use std::hint::spin_loop;
use std::thread;
use std::time::Duration;

use crate::run::Rng;

const SPIN_SHORT: u64 = 100;
const SPIN_LONG: u64 = 20_000;
const SLEEP_US: u64 = 300;
const SLEEP_LONG_US: u64 = 5_000;
/// Longer than the stall timeouts that the RCU stress sets, so that stalls are reported now and then.
const SLEEP_VERY_LONG_MS: u64 = 100;

pub(crate) fn spin(count: u64) {
    for _ in 0..count {
        spin_loop();
    }
}

/// Delays the calling thread at random; mostly not at all.
pub(crate) fn delay(rng: &mut Rng) {
    match rng.below(4096) {
        0..2200 => {}
        2200..3400 => spin(rng.below(SPIN_SHORT)),
        3400..3700 => spin(rng.below(SPIN_LONG)),
        3700..4000 => (0..1 + rng.below(3)).for_each(|_| thread::yield_now()),
        4000..4085 => thread::sleep(Duration::from_micros(rng.below(SLEEP_US))),
        4085..4095 => thread::sleep(Duration::from_micros(rng.below(SLEEP_LONG_US))),
        _ => thread::sleep(Duration::from_millis(rng.below(SLEEP_VERY_LONG_MS))),
    }
}
