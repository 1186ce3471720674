//! What is known of one object.

use std::time::Duration;

use squall_machine::VpSet;

use crate::decision::Verdict;
use crate::family::{Reading, Shape};

use crate::hysteresis::Hysteresis;

/// After so many steps a sensor trips that was just armed.
pub(crate) const ALARM: u32 = 1024;
/// It is doubled so often at most, where looks found nothing to do.
const BACKOFF_MAX: u32 = 6;
pub(crate) const ALARM_LATE: u32 = ALARM << BACKOFF_MAX;
/// How often the time after which an object is quiet is doubled, where it soon was not.
const CALM_MAX: u32 = 6;
/// Between two swaps of an object whose last one failed, and how often that is doubled.
const FAILED_PAUSE: Duration = Duration::from_millis(50);
const FAILED_DOUBLINGS: u32 = 8;
/// For so long a judgement holds for a load of the same rates.
const JUDGED_FOR: Duration = Duration::from_millis(250);
/// An object that grows again within so many such times was folded too early; and the same where it was folded since one alone called it
/// much.
const SOON: u32 = 10;
const SOON_ALONE: u32 = 1;
/// One that a single VP alone calls much goes back to its first form after so long at least, and after so many times that for each time that
/// it went too early.
const ALONE_MIN: Duration = Duration::from_millis(50);
const ALONE_LONGER: u32 = 4;
/// It is never longer than this.
const ALONE_MAX: Duration = Duration::from_secs(600);

/// Why another shape is wished for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Its calls would cost less.
    Cheaper,
    /// They would as long as one VP alone calls it.
    CheaperAlone,
    /// Little happens to it, so that it need not be grown.
    Calm,
}

/// What happens to an object in a second, by its sensors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates([f64; 3]);

impl Rates {
    pub(super) fn of(reading: Reading, span: Duration) -> Rates {
        let seconds = span.as_secs_f64().max(1e-9);
        Rates([reading.local, reading.foreign, reading.global].map(|count| count as f64 / seconds))
    }

    fn are_about(self, other: Rates) -> bool {
        // One event in a span of two milliseconds is no rate.
        let near = |a: f64, b: f64| a.max(b) <= 1.5 * a.min(b) + 1000.0;
        self.0.iter().zip(other.0).all(|(a, b)| near(*a, b))
    }
}

#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) shape: Shape,
    pub(crate) reading: Reading,
    pub(super) read_at: Duration,
    pub(super) temper: Hysteresis,
    /// When it is looked at although it did not post.
    pub(super) due: Option<Duration>,
    /// What it is held from, if it is: then it is looked at soon again.
    held: Option<Wish>,
    backoff: u32,
    /// Since when nothing has happened to it, as the looks saw it.
    pub(super) quiet_since: Option<Duration>,
    /// Since when one VP at most has called it, and when its entries were thrown away to see who calls.
    pub(super) narrow_since: Option<Duration>,
    pub(super) forgotten_at: Option<Duration>,
    /// How often its quiet time is doubled.
    calm: u32,
    /// When it went back to its first form because it was calm, or one alone called it; and growing again within how many quiet times is soon.
    folded_at: Option<(Duration, u32)>,
    /// Since when one VP alone has called it, as each look saw it since, in whose form it loses.
    pub(super) alone_since: Option<Duration>,
    /// When it was biased anew.
    pub(super) moved_at: Option<Duration>,
    /// When its form was judged the best, for which rates, and whose calls.
    judged: Option<(Duration, Rates, VpSet)>,
    /// Swaps that failed since one did not.
    failures: u32,
    /// Its entries were thrown away when nothing was seen to happen, to see whether nobody calls.
    pub(super) hushed: bool,
    /// What was remembered last.
    logged: Option<(Shape, Verdict)>,
    pub(crate) swaps_count: u64,
    pub(crate) contended_per_s: f64,
}

impl Record {
    pub(super) fn new(shape: Shape, reading: Reading, now: Duration) -> Record {
        Record {
            shape,
            reading,
            read_at: now,
            temper: Hysteresis::new(shape.form),
            due: None,
            held: None,
            backoff: 0,
            quiet_since: None,
            narrow_since: None,
            forgotten_at: None,
            calm: 0,
            folded_at: None,
            alone_since: None,
            moved_at: None,
            judged: None,
            failures: 0,
            hushed: false,
            logged: None,
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

    /// Another shape would be better, and may not be now.
    pub(super) fn hold(&mut self, wish: Wish) {
        // Either way its calls are counted again.
        self.held = Some(if wish == Wish::CheaperAlone { Wish::Cheaper } else { wish });
    }

    pub(super) fn release(&mut self) {
        self.held = None;
    }

    /// Notes a reading. Returns what happened since the last one.
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

    /// After how many steps its sensor shall trip, where a look found nothing to do.
    pub(super) fn alarm_after_nothing(&mut self) -> u32 {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
        ALARM << self.backoff
    }

    /// How long it must be quiet to be folded.
    pub(super) fn quiet_time(&self, base: Duration) -> Duration {
        base * 2u32.pow(self.calm)
    }

    /// How long one VP alone must call it, until it has lost what a swap puts at stake.
    pub(super) fn alone_time(&self, at_stake_ns: f64, lost_ns_per_s: f64) -> Duration {
        let lost = Duration::try_from_secs_f64(at_stake_ns / lost_ns_per_s).unwrap_or(ALONE_MAX);
        (lost.max(ALONE_MIN).min(ALONE_MAX) * ALONE_LONGER.pow(self.calm)).min(ALONE_MAX)
    }

    /// Notes that it has another shape now.
    pub(super) fn changed(&mut self, shape: Shape, now: Duration, quiet: Duration, wish: Option<Wish>) {
        let grew = self.shape.form == 0 && shape.form != 0;
        if self.shape.form == shape.form {
            self.moved_at = Some(now);
        } else {
            self.temper.swapped(now, shape.form);
        }
        if grew && let Some((folded, soon)) = self.folded_at.take() {
            let was_soon = now.saturating_sub(folded) < self.quiet_time(quiet) * soon;
            self.calm = if was_soon { (self.calm + 1).min(CALM_MAX) } else { 0 };
        }
        match wish {
            Some(Wish::Calm) => self.folded_at = Some((now, SOON)),
            Some(Wish::CheaperAlone) => self.folded_at = Some((now, SOON_ALONE)),
            Some(Wish::Cheaper) | None => {}
        }
        self.shape = shape;
        self.swaps_count += 1;
        self.held = None;
        self.judged = None;
        self.failures = 0;
        self.hushed = false;
        self.backoff = 0;
        self.quiet_since = None;
        self.narrow_since = None;
        self.alone_since = None;
        self.forgotten_at = None;
        // Of the new form nothing has been read.
        self.read_at = now;
    }

    /// Whether this is to be remembered: what is held is, when it is news.
    pub(super) fn is_news(&mut self, shape: Shape, verdict: &Verdict) -> bool {
        let this = (shape, verdict.clone());
        let repeats = matches!(verdict, Verdict::Held(_) | Verdict::DryRun | Verdict::Failed(_));
        let news = !repeats || self.logged.as_ref() != Some(&this);
        self.logged = Some(this);
        news
    }

    /// Whether something was decided about it that would be news again if it were forgotten.
    pub(super) fn has_logged(&self) -> bool {
        self.logged.is_some()
    }

    /// Whether it is looked at later anyway, so that a post of it says nothing new.
    pub(super) fn is_held_until(&self, now: Duration) -> bool {
        self.held.is_some() && self.due.is_some_and(|due| due > now)
    }

    /// It is looked at as if it had not been held.
    pub(super) fn look_now(&mut self) {
        self.held = None;
        self.due = None;
        self.judged = None;
    }

    /// Its form is the best for a load of these rates and callers; what was held is not wanted any more.
    pub(super) fn is_content(&mut self, load: Option<(Rates, VpSet)>, now: Duration) {
        self.logged = None;
        self.judged = load.map(|(rates, callers)| (now, rates, callers));
    }

    /// Whether its form was judged the best for about this load, not long ago: then its calls need not be counted again.
    pub(super) fn is_known(&self, rates: Rates, callers: &VpSet, now: Duration) -> bool {
        self.held.is_none()
            && self.judged.as_ref().is_some_and(|(at, judged, by)| {
                now.saturating_sub(*at) < JUDGED_FOR && rates.are_about(*judged) && by == callers
            })
    }

    /// Notes a swap that failed. Returns how long to wait with the next.
    pub(super) fn failed(&mut self) -> Duration {
        self.failures += 1;
        FAILED_PAUSE * 2u32.pow(self.failures.min(FAILED_DOUBLINGS))
    }

    /// Nobody was seen to call it, and somebody did.
    pub(super) fn is_called_all_the_same(&mut self) {
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

    /// What is lost is half of the time, and this much is at stake.
    fn alone_time(record: &Record, at_stake: Duration) -> Duration {
        record.alone_time(at_stake.as_secs_f64() * 1e9, 5e8)
    }

    #[test]
    fn who_is_alone_has_lost_what_is_at_stake_before_anything_is_ventured() {
        let record = Record::new(LARGE, Reading::default(), ms(0));
        assert_eq!(alone_time(&record, ms(500)), ms(1000));
        assert_eq!(alone_time(&record, ms(1)), ALONE_MIN, "never because of a moment");
        for nothing in [record.alone_time(1e6, 0.0), record.alone_time(f64::INFINITY, 1.0)] {
            assert_eq!(nothing, ALONE_MAX);
        }
    }

    #[test]
    fn who_soon_was_not_alone_any_more_must_be_so_for_longer_the_next_time() {
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
        assert_eq!(turn(&mut record, QUIET * 64), ALONE_MIN, "it was alone for long");
        assert_eq!(turn(&mut record, ms(1500)), ALONE_MIN);
    }

    #[test]
    fn what_grows_because_of_a_load_says_nothing_about_who_is_alone() {
        let mut record = Record::new(LARGE, Reading::default(), ms(0));
        for turn in 0..4 {
            record.changed(SMALL, ms(1000 * turn), QUIET, Some(Wish::Cheaper));
            record.changed(LARGE, ms(1000 * turn + 300), QUIET, Some(Wish::Cheaper));
        }
        assert_eq!(alone_time(&record, ms(1)), ALONE_MIN);
    }
}
