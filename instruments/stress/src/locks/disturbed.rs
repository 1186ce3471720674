//! Delays between the steps of a lock's protocol: mostly none, else a spin, a yield or a sleep.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use squall::lock::Steps;

use crate::run::Rng;
use crate::skeleton::delay::spin;

/// One step in this many is delayed.
const ONE_IN: u64 = 4;
const SPIN_MAX: u64 = 1_000;
const SLEEP_US: u64 = 150;
const SLEEP_LONG_US: u64 = 4_000;
/// One step in this many is delayed in a duel.
const DUEL_ONE_IN: u64 = 3;

/// The delays of the calling thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    /// Short delays, because a crowd delays itself.
    Crowd,
    /// Frequent delays, about as long as the other threads wait.
    Duel,
    /// No delays.
    Calm,
}

thread_local! {
    /// Seed of the thread's next delay.
    static NEXT: Cell<u64> = const { Cell::new(0) };
    static MOOD: Cell<Mood> = const { Cell::new(Mood::Crowd) };
}

/// Seeds the delays of the calling thread.
pub(super) fn seed(rng: &mut Rng) {
    NEXT.set(rng.next());
}

/// Seeds the delays of the calling thread for a duel.
pub(super) fn seed_duel(rng: &mut Rng) {
    seed(rng);
    MOOD.set(Mood::Duel);
}

/// Runs `something` without delays.
pub(super) fn calmly(something: impl FnOnce()) {
    let mood = MOOD.replace(Mood::Calm);
    something();
    MOOD.set(mood);
}

/// Returns a number of microseconds below `2^log`. Each order of magnitude is equally likely.
pub(super) fn short_us(rng: &mut Rng, log: u64) -> u64 {
    let bits = rng.below(log + 1);
    rng.below(1 << bits)
}

/// A sleep in a duel is shorter than two to this power microseconds.
pub(super) const DUEL_SLEEP_LOG: u64 = 8;

/// The steps of a protocol with delays.
pub(super) struct Disturbed;

impl Steps for Disturbed {
    const HURRIES: bool = true;

    fn step() {
        let mood = MOOD.get();
        if mood == Mood::Calm {
            return;
        }
        let mut rng = Rng::new(NEXT.get(), 0);
        NEXT.set(rng.next());
        if mood == Mood::Duel {
            return disturb_in_duel(&mut rng);
        }
        if !rng.one_in(ONE_IN) {
            return;
        }
        match rng.below(64) {
            0..16 => spin(rng.below(SPIN_MAX)),
            16..32 => thread::yield_now(),
            32..63 => thread::sleep(Duration::from_micros(rng.below(SLEEP_US))),
            _ => thread::sleep(Duration::from_micros(rng.below(SLEEP_LONG_US))),
        }
    }
}

fn disturb_in_duel(rng: &mut Rng) {
    if rng.one_in(DUEL_ONE_IN) {
        match short_us(rng, DUEL_SLEEP_LOG) {
            0 => thread::yield_now(),
            us => thread::sleep(Duration::from_micros(us)),
        }
    }
}
