//! A policy that decides at random, and panics at times.

use squall::Owned;
use squall::cache::policy::{self, Candidate, Eviction, Mark, Now, Turn, Verdict};
use squall::swap::Replacement;

use super::mood;
use crate::run::Rng;

/// A call of the policy panics once in so many times.
const PANIC_ONE_IN: u64 = 512;

struct Moody;

impl Eviction for Moody {
    fn resize(&self, _: u64) {
        mood::panic_one_in(PANIC_ONE_IN);
    }

    fn epoch_length(&self) -> u64 {
        mood::panic_one_in(PANIC_ONE_IN);
        // Zero is no length, and counts as one.
        mood::below(64)
    }

    fn begin_epoch(&self) -> Turn {
        mood::panic_one_in(PANIC_ONE_IN);
        Turn::new(mood::below(3) as u16, mood::below(20) as u16)
    }

    fn arrived(&self, _: u64, now: Now) -> Mark {
        mood::panic_one_in(PANIC_ONE_IN);
        Mark::new(now, mood::below(256) as u8)
    }

    fn choose(&self, _: Option<Candidate>, drawn: &[Candidate], _: Now) -> Verdict {
        mood::panic_one_in(PANIC_ONE_IN);
        match mood::below(8) {
            0 => Verdict::Refuse,
            // There is no such entry: the last one leaves.
            1 => Verdict::Evict(drawn.len()),
            _ => Verdict::Evict(mood::below(drawn.len() as u64) as usize),
        }
    }
}

/// Returns a random policy.
pub(super) fn any(rng: &mut Rng) -> Owned<dyn Eviction> {
    match rng.below(3) {
        0 => policy::lru(),
        1 => policy::frequency(),
        _ => squall::shared(Moody),
    }
}

/// Returns a random replacement.
pub(super) fn any_new(rng: &mut Rng) -> Replacement<dyn Eviction> {
    match rng.below(3) {
        0 => policy::new_lru(),
        1 => policy::new_frequency(),
        _ => Replacement::shared(Moody),
    }
}
