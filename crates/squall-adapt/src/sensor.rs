//! Sensors to embed in the forms of an adaptive object.
//!
//! Problem: each form needs counts that cost its callers little, and an alarm that posts once. Idea: plain
//! loads and stores. Concurrent steps may get lost, since the engine that an alarm calls looks closer.
//!
//! - I1. An alarm that reaches zero posts, and is off until it is armed again. A rejected post arms it.
//! - I2. An alarm that is off does not post. Its callers only pause if the engine's thread is late. They
//!   count in a word of their own, so that their steps do not overwrite a new alarm.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use squall_machine::Vp;

use crate::engine;
use crate::family::Reading;

/// Steps until a new sensor posts.
pub const ALARM: u32 = 1024;
/// Steps of an alarm that is off until a caller checks whether the engine is late.
const CHECK_EVERY: u32 = 256;

/// Alarm of a sensor: posts an object to the engine after a number of steps, once.
///
/// While it is off, the object waits for the engine. If the engine's thread gets no processor, the calling
/// thread sleeps for a millisecond in some of the steps: see [`engine::pauses`].
///
/// # Cost
/// A plain load and store per step. Wait-free, except for these pauses.
///
/// ```
/// use squall::adapt::sensor::Alarm;
///
/// let alarm = Alarm::new(100);
/// let mut posts = 0;
/// for _ in 0..1000 {
///     alarm.step(1, || {
///         posts += 1; // `engine::post(id)` in a form
///         true
///     });
/// }
/// assert_eq!(posts, 1);
/// alarm.arm(100);
/// ```
#[derive(Debug)]
pub struct Alarm {
    /// Steps until it posts. Zero: it is off.
    left: AtomicU32,
    /// Steps until the next check of the engine, while it is off.
    check: AtomicU32,
}

impl Alarm {
    /// Makes an alarm that posts after `after` steps; zero means never.
    pub const fn new(after: u32) -> Alarm {
        Alarm { left: AtomicU32::new(after), check: AtomicU32::new(CHECK_EVERY) }
    }

    /// Makes the alarm post after `after` steps; zero means never.
    pub fn arm(&self, after: u32) {
        self.left.store(after, Ordering::Relaxed);
    }

    /// Counts the alarm down, and calls `post` if it expires. If `post` returns `false`, the alarm starts
    /// again with [`ALARM`] steps.
    ///
    /// Concurrent steps may get lost. Threads that step together may post a few times.
    #[inline]
    pub fn step(&self, steps: u32, post: impl FnOnce() -> bool) {
        self.step_or(steps, post, engine::pause_if_late);
    }

    /// Counts the alarm down. `check` is called now and then while it is off.
    #[inline]
    fn step_or(&self, steps: u32, post: impl FnOnce() -> bool, check: impl FnOnce()) {
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left.saturating_sub(steps), Ordering::Relaxed);
            if left <= steps && !post() {
                self.left.store(ALARM, Ordering::Relaxed);
            }
            return;
        }
        let left = self.check.load(Ordering::Relaxed);
        if left > steps {
            self.check.store(left - steps, Ordering::Relaxed);
        } else {
            self.check.store(CHECK_EVERY, Ordering::Relaxed);
            check();
        }
    }
}

/// Counts of one representative, with an alarm that posts to the engine.
///
/// The author of a form calls one of the functions for each event, with a function that
/// [posts](crate::engine::post). The object's interface has two methods for the engine: one returns the sum
/// of the readings, the other arms the sensors. See
/// [`Adaptive::sensors`](crate::adaptive::Adaptive::sensors) and [`Family`](crate::family::Family).
///
/// # Cost
/// Some plain loads and stores on two cache lines of its own. Wait-free.
///
/// ```
/// use squall::adapt::sensor::{ALARM, Sensor};
///
/// let sensor = Sensor::new();
/// let mut posts = 0;
/// for _ in 0..2000 {
///     sensor.note_contended(|| {
///         posts += 1; // `engine::post(id)` in a form
///         true
///     });
/// }
/// assert_eq!((posts, sensor.reading().foreign), (1, 2000));
/// sensor.arm(ALARM);
/// ```
#[derive(Debug)]
#[repr(align(128))]
pub struct Sensor {
    /// Index of the VP that called last, plus one.
    last: AtomicU32,
    alarm: Alarm,
    local: AtomicU64,
    foreign: AtomicU64,
    global: AtomicU64,
}

impl Sensor {
    /// Makes a sensor that posts after [`ALARM`] steps.
    pub const fn new() -> Sensor {
        let [local, foreign, global] = [const { AtomicU64::new(0) }; 3];
        Sensor { last: AtomicU32::new(0), alarm: Alarm::new(ALARM), local, foreign, global }
    }

    /// Counts `calls` calls, each a step of the alarm. They are local if the calling VP also made the
    /// previous call, and foreign otherwise. For forms in which the calls of a single VP are of interest,
    /// too.
    #[inline]
    pub fn note_calls(&self, calls: u32, post: impl FnOnce() -> bool) {
        self.count_calls(calls);
        self.alarm.step(calls, post);
    }

    /// Counts a call like [`note_calls`](Sensor::note_calls). Only a foreign call is a step of the alarm, so
    /// an object of one VP never posts.
    #[inline]
    pub fn note_call(&self, post: impl FnOnce() -> bool) {
        if !self.count_calls(1) {
            self.alarm.step(1, post);
        }
    }

    /// Counts a call on a contended slow path: a failed exchange, or a lock that was not free.
    #[inline]
    pub fn note_contended(&self, post: impl FnOnce() -> bool) {
        add(&self.foreign, 1);
        self.alarm.step(1, post);
    }

    /// Counts a call that visits every representative.
    #[inline]
    pub fn note_global(&self, post: impl FnOnce() -> bool) {
        add(&self.global, 1);
        self.alarm.step(1, post);
    }

    /// Makes the alarm post after `after` steps; zero means never.
    pub fn arm(&self, after: u32) {
        self.alarm.arm(after);
    }

    /// Returns the counts, as the reading of one representative. A `Reading` is also the sum of readings.
    pub fn reading(&self) -> Reading {
        Reading {
            local: self.local.load(Ordering::Relaxed),
            foreign: self.foreign.load(Ordering::Relaxed),
            global: self.global.load(Ordering::Relaxed),
            reps: 1,
            ..Reading::default()
        }
    }

    /// Returns `true` if the calls are local.
    #[inline]
    fn count_calls(&self, calls: u32) -> bool {
        let vp = Vp::current().index() as u32 + 1;
        let is_local = self.last.load(Ordering::Relaxed) == vp;
        if is_local {
            add(&self.local, calls);
        } else {
            self.last.store(vp, Ordering::Relaxed);
            add(&self.foreign, calls);
        }
        is_local
    }
}

impl Default for Sensor {
    fn default() -> Sensor {
        Sensor::new()
    }
}

#[inline]
fn add(count: &AtomicU64, events: u32) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(events.into()), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sensor_posts_at_its_alarm_and_again_after_a_rejected_post() {
        for calls in [1, 64] {
            let sensor = Sensor::new();
            let posts = |is_heard: bool| {
                let mut posts = 0;
                for _ in 0..ALARM / calls {
                    sensor.note_calls(calls, || {
                        posts += 1;
                        is_heard
                    });
                }
                posts
            };
            assert_eq!([posts(false), posts(false), posts(true), posts(true)], [1, 1, 1, 0], "{calls}");
            let seen = sensor.reading();
            assert_eq!(seen.local + seen.foreign, u64::from(4 * ALARM));
            // The number of steps that are left does not matter.
            sensor.arm(1);
            assert_eq!(posts(true), 1);
        }
    }

    #[test]
    fn an_alarm_that_is_off_checks_the_engine_and_posts_nothing() {
        let alarm = Alarm::new(1);
        let (mut posts, mut checks) = (0, 0);
        let mut steps = |alarm: &Alarm, count: u32| {
            for _ in 0..count {
                let post = || {
                    posts += 1;
                    true
                };
                alarm.step_or(1, post, || checks += 1);
            }
            (posts, checks)
        };
        assert_eq!(steps(&alarm, 1), (1, 0));
        assert_eq!(steps(&alarm, 4 * CHECK_EVERY), (1, 4));
        alarm.arm(10);
        assert_eq!(steps(&alarm, 9), (1, 4), "an alarm that is on does not check");
        assert_eq!(steps(&alarm, 1), (2, 4));
    }

    #[test]
    fn the_events_of_each_kind_are_counted_and_an_alarm_posts_once() {
        let sensor = Sensor::new();
        sensor.arm(1);
        let mut posts = 0;
        sensor.note_global(|| {
            posts += 1;
            true
        });
        sensor.note_contended(|| unreachable!("the alarm is off"));
        let seen = sensor.reading();
        assert_eq!((posts, seen.local, seen.foreign, seen.global), (1, 0, 1, 1));
        sensor.arm(0);
        (0..100).for_each(|_| sensor.note_call(|| unreachable!("the alarm is off")));
        assert_eq!(sensor.reading().local + sensor.reading().foreign, 101);
        let sum: Reading = [sensor.reading(), sensor.reading()].into_iter().sum();
        assert_eq!((sum.global, sum.reps), (2, 2));
    }
}
