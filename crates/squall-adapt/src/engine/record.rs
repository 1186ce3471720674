//! Record of one object: its readings, its hysteresis, and its schedule.

use std::time::Duration;

use squall_machine::VpSet;

use crate::decision::Verdict;
use crate::family::{Reading, Shape};
use crate::hysteresis::Hysteresis;
use crate::stays::{Reason, Seen};

/// Steps after which a newly armed sensor trips.
pub(crate) const ALARM: u32 = 1024;
/// Largest number of times that this is doubled after samples without a decision.
const BACKOFF_MAX: u32 = 6;
pub(crate) const ALARM_LATE: u32 = ALARM << BACKOFF_MAX;
/// Shortest pause between two looks at an object without sensors. Doubled like the interval of an alarm.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// Largest number of times that the quiet time is doubled, for an object that grew again soon after it
/// shrank.
const CALM_MAX: u32 = 6;
/// Pause after a failed swap, and the largest number of times that it is doubled.
const FAILED_PAUSE: Duration = Duration::from_millis(50);
const FAILED_DOUBLINGS: u32 = 8;
/// Time for which an estimate stays valid for a load with the same rates.
const ESTIMATE_FOR: Duration = Duration::from_millis(250);
/// An object that grows again within this many quiet times has shrunk too early. The second constant applies
/// if it shrank because one VP alone called it.
const SOON: u32 = 10;
const SOON_ALONE: u32 = 1;
/// Shortest time that one VP must be alone before its object returns to the first form. Each premature return
/// lengthens the time by the factor.
const ALONE_MIN: Duration = Duration::from_millis(50);
const ALONE_LONGER: u32 = 4;
/// Limit for that lengthening: the longest time that one VP must be alone.
const ALONE_MAX: Duration = Duration::from_secs(600);

/// Reason for wanting another shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The calls would cost less.
    Cheaper,
    /// The calls would cost less, but only while a single VP makes all of them.
    CheaperAlone,
    /// The object has few events, so it need not be grown.
    Calm,
}

/// Events of an object per second, from its sensors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates([f64; 3]);

impl Rates {
    pub(super) fn of(reading: Reading, span: Duration) -> Rates {
        let seconds = span.as_secs_f64().max(1e-9);
        Rates([reading.local, reading.foreign, reading.global].map(|count| count as f64 / seconds))
    }

    fn are_near(self, other: Rates) -> bool {
        // One event in a span of two milliseconds is not a rate.
        let near = |a: f64, b: f64| a.max(b) <= 1.5 * a.min(b) + 1000.0;
        self.0.iter().zip(other.0).all(|(a, b)| near(*a, b))
    }
}

#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) shape: Shape,
    pub(crate) reading: Reading,
    pub(super) read_at: Duration,
    pub(super) hysteresis: Hysteresis,
    /// Time of the next sample without a post.
    pub(super) due: Option<Duration>,
    /// The wish that is held back, if any. A held object is sampled again soon.
    held: Option<Wish>,
    backoff: u32,
    /// For an object without sensors: the time of the next look at its calls. Earlier posts wait until then.
    look_at: Option<Duration>,
    /// Start of the time without events, as seen by the samples.
    pub(super) quiet_since: Option<Duration>,
    /// Start of the time in which at most one VP called the object. `forgotten_at` is the time at which the
    /// object's table entries were removed, so that its callers show.
    pub(super) alone_caller_since: Option<Duration>,
    pub(super) forgotten_at: Option<Duration>,
    /// Number of times that its quiet time is doubled.
    calm: u32,
    /// Time at which the object returned to its first form, because it had few events or one VP alone called
    /// it. The number of quiet times within which growing again counts as premature.
    shrunk_at: Option<(Duration, u32)>,
    /// Start of the time in which each sample saw one VP alone call it, and lose by its form.
    pub(super) alone_since: Option<Duration>,
    /// Time of its last change of bias.
    pub(super) moved_at: Option<Duration>,
    /// Time at which its form was estimated to be the best, with the rates and callers of that load.
    estimated: Option<(Duration, Rates, VpSet)>,
    /// `true` if the costs were estimated while the object is frozen. Its calls are not counted again then.
    pub(super) is_judged: bool,
    /// Failed swaps since the last successful one.
    failures: u32,
    /// `true` if its entries were removed after a sample without events, to see whether VPs still call it.
    pub(super) was_quiet: bool,
    /// Shape and verdict recorded last.
    logged: Option<(Shape, Verdict)>,
    /// Why it kept its form at the last look, and the calls seen then.
    pub(crate) stays: Option<Reason>,
    pub(crate) seen: Option<Seen>,
    pub(crate) swaps_count: u64,
    pub(crate) contended_per_s: f64,
}

impl Record {
    pub(super) fn new(shape: Shape, reading: Reading, now: Duration) -> Record {
        Record {
            shape,
            reading,
            read_at: now,
            hysteresis: Hysteresis::new(shape.form),
            due: None,
            held: None,
            backoff: 0,
            look_at: None,
            quiet_since: None,
            alone_caller_since: None,
            forgotten_at: None,
            calm: 0,
            shrunk_at: None,
            alone_since: None,
            moved_at: None,
            estimated: None,
            is_judged: false,
            failures: 0,
            was_quiet: false,
            logged: None,
            stays: None,
            seen: None,
            swaps_count: 0,
            contended_per_s: 0.0,
        }
    }

    pub(super) fn is_grown(&self) -> bool {
        self.shape.form != 0
    }

    pub(super) fn is_held_from(&self, wish: Wish) -> bool {
        self.held == Some(wish)
    }

    /// Holds a wish back: another shape would be better, but is not allowed now.
    pub(super) fn hold(&mut self, wish: Wish) {
        // For both wishes the calls are counted again.
        self.held = Some(if wish == Wish::CheaperAlone { Wish::Cheaper } else { wish });
    }

    pub(super) fn release(&mut self) {
        self.held = None;
    }

    /// Stores a reading. Returns the events since the previous one.
    pub(super) fn note(&mut self, reading: Reading, now: Duration) -> Reading {
        let since = reading.since(self.reading);
        let seconds = now.saturating_sub(self.read_at).as_secs_f64();
        if seconds > 0.0 {
            self.contended_per_s = since.foreign as f64 / seconds;
        }
        if since.is_quiet() {
            self.quiet_since.get_or_insert(self.read_at);
        } else {
            self.quiet_since = None;
        }
        self.shape.place = reading.place.filter(|_| !self.is_grown());
        self.reading = reading;
        self.read_at = now;
        since
    }

    /// Returns the number of steps after which its sensor must trip, after a sample without a decision.
    pub(super) fn next_alarm(&mut self) -> u32 {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
        ALARM << self.backoff
    }

    /// Sets the time of the next look at an object without sensors, after a sample without a decision.
    pub(super) fn look_later(&mut self, now: Duration) {
        self.look_at = Some(now + LOOK_PAUSE * 2u32.pow(self.backoff));
    }

    /// Returns `true` if the calls of an object without sensors may be counted again.
    pub(super) fn may_look(&self, now: Duration) -> bool {
        self.look_at.is_none_or(|at| at <= now)
    }

    /// Puts a post off until the time of the next look. Returns `false` if that time has come.
    pub(super) fn put_off(&mut self, now: Duration) -> bool {
        if self.may_look(now) {
            return false;
        }
        if !self.is_grown() {
            self.hold(Wish::Cheaper);
            self.due = self.look_at;
        }
        true
    }

    /// Returns the time that it must be quiet before it shrinks.
    pub(super) fn quiet_time(&self, base: Duration) -> Duration {
        base * 2u32.pow(self.calm)
    }

    /// Returns the time for which one VP alone must call the object before it returns to the first form. In
    /// that time the present form loses as much as a wrong swap would cost.
    pub(super) fn alone_time(&self, at_stake_ns: f64, lost_ns_per_s: f64) -> Duration {
        let lost = Duration::try_from_secs_f64(at_stake_ns / lost_ns_per_s).unwrap_or(ALONE_MAX);
        (lost.max(ALONE_MIN).min(ALONE_MAX) * ALONE_LONGER.pow(self.calm)).min(ALONE_MAX)
    }

    /// Stores the new shape after a swap.
    pub(super) fn changed(&mut self, shape: Shape, now: Duration, quiet: Duration, wish: Option<Wish>) {
        let grew = self.shape.form == 0 && shape.form != 0;
        if self.shape.form == shape.form {
            self.moved_at = Some(now);
        } else {
            self.hysteresis.swapped(now, shape.form);
        }
        if grew && let Some((shrunk, soon)) = self.shrunk_at.take() {
            let was_soon = now.saturating_sub(shrunk) < self.quiet_time(quiet) * soon;
            self.calm = if was_soon { (self.calm + 1).min(CALM_MAX) } else { 0 };
        }
        match wish {
            Some(Wish::Calm) => self.shrunk_at = Some((now, SOON)),
            Some(Wish::CheaperAlone) => self.shrunk_at = Some((now, SOON_ALONE)),
            Some(Wish::Cheaper) | None => {}
        }
        self.shape = shape;
        self.swaps_count += 1;
        self.held = None;
        self.estimated = None;
        self.is_judged = false;
        self.failures = 0;
        self.was_quiet = false;
        self.backoff = 0;
        self.look_at = None;
        self.quiet_since = None;
        self.alone_caller_since = None;
        self.alone_since = None;
        self.forgotten_at = None;
        (self.stays, self.seen) = (None, None);
        // The new form has not been read yet.
        self.read_at = now;
    }

    /// Returns `true` if the decision must be recorded. A held decision is recorded only when it changes.
    pub(super) fn is_news(&mut self, shape: Shape, verdict: &Verdict) -> bool {
        let this = (shape, verdict.clone());
        let repeats = matches!(verdict, Verdict::Held(_) | Verdict::DryRun | Verdict::Failed(_));
        let news = !repeats || self.logged.as_ref() != Some(&this);
        self.logged = Some(this);
        news
    }

    /// Returns `true` if a decision about the object was recorded that would be recorded again after the
    /// removal of this record.
    pub(super) fn has_logged(&self) -> bool {
        self.logged.is_some()
    }

    /// Returns `true` if it is sampled later anyway, so that a post adds no information.
    pub(super) fn is_held_until(&self, now: Duration) -> bool {
        self.held.is_some() && self.due.is_some_and(|due| due > now)
    }

    /// Lifts the hold, so that it is sampled at once.
    pub(super) fn sample_now(&mut self) {
        self.held = None;
        self.due = None;
        self.look_at = None;
        self.estimated = None;
        self.is_judged = false;
    }

    /// Stores that its form is the best for a load with these rates and callers, and drops the record of held
    /// decisions.
    pub(super) fn set_best(&mut self, load: Option<(Rates, VpSet)>, now: Duration) {
        self.logged = None;
        self.estimated = load.map(|(rates, callers)| (now, rates, callers));
    }

    /// Returns `true` if its form was recently found the best for about this load. Then its calls need not be
    /// counted again.
    pub(super) fn is_estimated(&self, rates: Rates, callers: &VpSet, now: Duration) -> bool {
        self.held.is_none()
            && self.estimated.as_ref().is_some_and(|(at, estimated, by)| {
                now.saturating_sub(*at) < ESTIMATE_FOR && rates.are_near(*estimated) && by == callers
            })
    }

    /// Stores a failed swap. Returns the pause before the next one.
    pub(super) fn failed(&mut self) -> Duration {
        self.failures += 1;
        FAILED_PAUSE * 2u32.pow(self.failures.min(FAILED_DOUBLINGS))
    }

    /// Ends the quiet time: its sensors showed no events, but a VP called it.
    pub(super) fn note_unseen_call(&mut self) {
        self.quiet_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_secs(1);
    const SMALL: Shape = Shape { form: 0, place: None };
    const LARGE: Shape = Shape { form: 1, place: None };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Returns the time for a load that loses half of the time, with this much at stake.
    fn alone_time(record: &Record, at_stake: Duration) -> Duration {
        record.alone_time(at_stake.as_secs_f64() * 1e9, 5e8)
    }

    #[test]
    fn a_lone_caller_has_lost_the_cost_at_stake_before_a_swap() {
        let record = Record::new(LARGE, Reading::default(), ms(0));
        assert_eq!(alone_time(&record, ms(500)), ms(1000));
        assert_eq!(alone_time(&record, ms(1)), ALONE_MIN, "the shortest time applies");
        for nothing in [record.alone_time(1e6, 0.0), record.alone_time(f64::INFINITY, 1.0)] {
            assert_eq!(nothing, ALONE_MAX);
        }
    }

    #[test]
    fn a_premature_return_lengthens_the_next_wait() {
        let mut record = Record::new(LARGE, Reading::default(), ms(0));
        let mut now = ms(1000);
        let mut turn = |record: &mut Record, lasts: Duration| {
            record.changed(SMALL, now, QUIET, Some(Wish::CheaperAlone));
            now += lasts;
            record.changed(LARGE, now, QUIET, Some(Wish::Cheaper));
            alone_time(record, ms(1))
        };
        let times: Vec<Duration> = (0..8).map(|_| turn(&mut record, ms(300))).collect();
        assert_eq!(times[..3], [ALONE_MIN * 4, ALONE_MIN * 16, ALONE_MIN * 64]);
        assert_eq!(times[7], ALONE_MIN * 4096);
        assert_eq!(turn(&mut record, QUIET * 64), ALONE_MIN, "the object stayed in its first form for long");
        assert_eq!(turn(&mut record, ms(1500)), ALONE_MIN);
    }

    #[test]
    fn growth_under_load_does_not_lengthen_the_wait() {
        let mut record = Record::new(LARGE, Reading::default(), ms(0));
        for turn in 0..4 {
            record.changed(SMALL, ms(1000 * turn), QUIET, Some(Wish::Cheaper));
            record.changed(LARGE, ms(1000 * turn + 300), QUIET, Some(Wish::Cheaper));
        }
        assert_eq!(alone_time(&record, ms(1)), ALONE_MIN);
    }
}
