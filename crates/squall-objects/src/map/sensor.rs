//! The sampling of calls, for the sensor of an adaptive map's representative.

use std::cell::Cell;

/// One of this many calls of a thread is sampled, at random, and counts for all of them. For calls that
/// would otherwise write to shared memory only to be counted. Random, so that a thread that alternates
/// between two maps is sampled in both.
pub(super) const SAMPLE: u32 = 1 << SAMPLE_LOG2;
pub(super) const SAMPLE_LOG2: u32 = 6;

/// Whether this call is sampled.
#[inline]
pub(super) fn is_sampled() -> bool {
    thread_local! {
        static DRAWN: Cell<u64> = const { Cell::new(0) };
    }
    // Knuth's linear congruential generator, with good topmost bits.
    let drawn = DRAWN.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    DRAWN.set(drawn);
    drawn >> (u64::BITS - SAMPLE.ilog2()) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternating_calls_to_two_maps_are_sampled_in_both() {
        let mut noted = [0_u32; 2];
        (0..SAMPLE as usize * 200).for_each(|call| noted[call % 2] += u32::from(is_sampled()));
        assert!(noted.iter().all(|noted| (50..150).contains(noted)), "{noted:?}");
    }
}
