//! The sensor of an adaptive map's representative, and the sampling of calls.

use squall_machine::Vp;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Steps until a new sensor posts.
pub(super) const ALARM: u32 = 1024;

/// Counts of calls, and an alarm. Concurrent steps may get lost: a policy that the alarm calls looks
/// closer.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Sensor {
    /// Index of the VP that called last, plus one.
    last: AtomicU32,
    /// Steps until the alarm posts to the policy. Zero: it is off.
    pub(super) alarm: AtomicU32,
    /// Calls from the VP that had also made the call before, and calls from other VPs.
    pub(super) here: AtomicU64,
    pub(super) elsewhere: AtomicU64,
}

impl Sensor {
    pub(super) fn new() -> Arc<Sensor> {
        let [here, elsewhere] = [const { AtomicU64::new(0) }; 2];
        Arc::new(Sensor { last: AtomicU32::new(0), alarm: AtomicU32::new(ALARM), here, elsewhere })
    }

    /// Counts this many calls.
    #[inline]
    pub(super) fn step(&self, calls: u32, post: impl FnOnce() -> bool) {
        let bump = |count: &AtomicU64| {
            let next = count.load(Ordering::Relaxed).wrapping_add(calls.into());
            count.store(next, Ordering::Relaxed);
        };
        let vp = Vp::current().index() as u32 + 1;
        if self.last.load(Ordering::Relaxed) == vp {
            bump(&self.here);
        } else {
            self.last.store(vp, Ordering::Relaxed);
            bump(&self.elsewhere);
        }
        let left = self.alarm.load(Ordering::Relaxed);
        if left > 0 {
            self.alarm.store(left.saturating_sub(calls), Ordering::Relaxed);
            if left <= calls && !post() {
                self.alarm.store(ALARM, Ordering::Relaxed);
            }
        }
    }
}

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

    #[test]
    fn a_sensor_posts_at_its_alarm_and_again_after_a_rejected_post() {
        for calls in [1, SAMPLE] {
            let sensor = Sensor::new();
            let posts = |heard: bool| {
                let posts = Cell::new(0);
                let post = || {
                    posts.set(posts.get() + 1);
                    heard
                };
                (0..ALARM / calls).for_each(|_| sensor.step(calls, post));
                posts.get()
            };
            assert_eq!([posts(false), posts(false), posts(true), posts(true)], [1, 1, 1, 0], "{calls}");
            let seen = sensor.here.load(Ordering::Relaxed) + sensor.elsewhere.load(Ordering::Relaxed);
            assert_eq!(seen, u64::from(4 * ALARM));
            // The number of steps that are left does not matter.
            sensor.alarm.store(1, Ordering::Relaxed);
            assert_eq!(posts(true), 1);
        }
    }
}
