//! Samples: the readings of an object's sensors and the counts of its calls.

use std::time::Duration;

use squall_core::{Id, tables};
use squall_machine::VpSet;

use super::clock::{now, sleep};
use super::posts::post;
use super::record::{ALARM, ALARM_LATE, Rates, Record, Wish};
use super::state::{GROWN_TICK, HELD_TICK, state};
use super::why::stay;
use crate::calls::{Calls, Sampler};
use crate::family::{self, AnyFamily, Reading, Shape, Unread};
use crate::settings::Settings;
use crate::stays::Reason;

/// Time between the two readings of a sample.
const READING_GAP: Duration = Duration::from_millis(2);
/// Pause before the next attempt, if the sensors could not be read.
const UNREAD_TICK: Duration = Duration::from_secs(1);

/// A sample of an object.
#[derive(Clone)]
pub(super) struct Sample {
    pub(super) id: Id,
    pub(super) family: &'static dyn AnyFamily,
    pub(super) shape: Shape,
    pub(super) settings: Settings,
    /// First reading, and its time.
    pub(super) first: Reading,
    pub(super) began: Duration,
    /// VPs with entries of the object in their tables, before the first reading.
    pub(super) callers: VpSet,
    /// `true` if its calls are to be counted, because it posted or was held.
    pub(super) asked: bool,
    /// Start of the time in which each sample saw one VP alone call it, and lose by its form.
    pub(super) alone_since: Option<Duration>,
}

impl Sample {
    /// Returns `true` if the object still has the form that was sampled.
    pub(super) fn is_same_form(&self) -> bool {
        family::of(self.id).is_some_and(|(_, form)| form == self.shape.form)
    }
}

/// A sampled object with events between its two readings: the events, their time span, and the callers.
pub(super) struct Busy {
    pub(super) sample: Sample,
    pub(super) before: Reading,
    pub(super) span: Duration,
    pub(super) callers: VpSet,
}

/// Has an object sampled in the next round.
pub(super) fn post_again(id: Id) {
    if !post(id)
        && let Some((family, _)) = family::of(id)
    {
        family.arm(id, ALARM);
    }
}

/// Takes the first reading of an object, and finds or creates its record. Returns `None` if it was destroyed
/// or cannot be read now.
pub(super) fn take_sample(id: Id, asked: bool) -> Option<Sample> {
    // Read before the sensors, because reading the sensors is a call, too.
    let callers = tables::callers_of(id);
    let Some((family, form)) = family::of(id) else {
        state().records.remove(&id);
        return None;
    };
    let first = match family.read(id) {
        Ok(first) => first,
        Err(why) => {
            unread(id, form, why);
            return None;
        }
    };
    let settings = Settings::of(id);
    let began = now();
    let mut state = state();
    let here = Shape { form, place: first.place.filter(|_| form == 0) };
    let record = state.record(id, || Record::new(here, first, began));
    if record.shape.form != form {
        // The object was swapped without the engine.
        record.changed(here, began, settings.quiet, None);
        record.reading = first;
    }
    record.shape.place = here.place;
    // Set again only if this round finds one VP alone again.
    let alone_since = record.alone_since.take();
    Some(Sample { id, family, shape: here, settings, first, began, asked, callers, alone_since })
}

/// Handles an object with sensors that could not be read: it was destroyed, or is sampled again later.
fn unread(id: Id, form: usize, why: Unread) {
    let mut state = state();
    if why == Unread::Gone {
        state.records.remove(&id);
        return;
    }
    let now = now();
    let record = state.record(id, || Record::new(Shape { form, place: None }, Reading::default(), now));
    record.hold(Wish::Cheaper);
    record.stays = Some(Reason::NotRead);
    record.due = Some(now + UNREAD_TICK);
}

/// Takes the second readings after a pause. Returns the objects that had events in between.
pub(super) fn find_busy(asked: Vec<Sample>) -> Vec<Busy> {
    if asked.is_empty() {
        return Vec::new();
    }
    // From here on each caller misses once, and is seen.
    asked.iter().for_each(|sample| tables::forget(sample.id));
    sleep(READING_GAP);
    let busy = asked.into_iter().filter_map(|sample| {
        // Read before the sensors, because reading the sensors is a call, too.
        let callers = tables::callers_of(sample.id);
        let second = match sample.family.read(sample.id) {
            Ok(second) => second,
            Err(why) => {
                unread(sample.id, sample.shape.form, why);
                return None;
            }
        };
        if !sample.is_same_form() {
            // The object was swapped meanwhile, so the two readings belong to different forms.
            post_again(sample.id);
            return None;
        }
        let now = now();
        let (span, before) = (now.saturating_sub(sample.began), second.since(sample.first));
        let mut state = state();
        let record = state.records.get_mut(&sample.id)?;
        record.note(second, now);
        record.forgotten_at = None;
        if !sample.family.has_sensors() && !callers.is_empty() {
            record.note_unseen_call();
        }
        // The load is the one of the last estimate.
        let known = sample.settings.freeze && record.is_judged
            || record.is_estimated(Rates::of(before, span), &callers, now);
        let quiet = before.is_quiet() && callers.is_empty();
        // Its threads may only have been preempted. The wish is dropped only after a longer quiet time.
        let cooldown = sample.settings.cooldown;
        let over = record.quiet_since.is_some_and(|since| now.saturating_sub(since) >= cooldown);
        if known || over {
            record.hysteresis.prefer(now, sample.shape.form, cooldown);
        } else if quiet && record.is_held_from(Wish::Cheaper) {
            record.due = Some(now + HELD_TICK);
            return None;
        }
        if known || quiet {
            if quiet {
                record.stays = Some(Reason::Quiet);
                record.is_judged = false;
            }
            drop(state);
            rest(&sample);
            return None;
        }
        drop(state);
        Some(Busy { sample, before, span, callers })
    });
    busy.collect()
}

/// Counts the calls of all these objects at the same time.
pub(super) fn count_calls(hot: Vec<Busy>) -> Vec<(Busy, Calls)> {
    let Some(span) = hot.iter().map(|busy| busy.sample.settings.sample).max() else { return Vec::new() };
    let (mut counted, mut refused) = (Vec::new(), Vec::new());
    for busy in hot {
        match Sampler::begin(busy.sample.id, now()) {
            Ok(sampler) => counted.push((busy, sampler)),
            Err(_) => refused.push(busy.sample),
        }
    }
    sleep(span);
    let counted = counted.into_iter().map(|(busy, sampler)| (busy, sampler.end(now()))).collect();
    // An object that is being swapped or has another arbiter is sampled later.
    for sample in &refused {
        stay(sample.id, Reason::NotCounted);
        rest(sample);
    }
    counted
}

/// Ends a sample without a decision: arms the sensor again, with a longer interval each time.
pub(super) fn rest(sample: &Sample) {
    let after = {
        let mut state = state();
        let Some(record) = state.records.get_mut(&sample.id) else { return };
        record.release();
        record.due = record.is_grown().then(|| now() + GROWN_TICK);
        let after = record.next_alarm();
        if !sample.family.has_sensors() {
            record.look_later(now());
        }
        after
    };
    sample.family.arm(sample.id, after);
}

/// Ends a sample with too few calls for an estimate. Arms the sensor with the longest interval, and removes
/// the record if it is not needed. In a program with many objects, most objects are like that, and each posts
/// from time to time. The record of an object without sensors stays: it has the time of the next look.
pub(super) fn forget(sample: &Sample) {
    let mut state = state();
    let Some(record) = state.records.get_mut(&sample.id) else { return };
    let is_needed = record.is_grown() || record.swaps_count > 0 || record.has_logged();
    if is_needed || !sample.family.has_sensors() {
        drop(state);
        return rest(sample);
    }
    state.records.remove(&sample.id);
    drop(state);
    sample.family.arm(sample.id, ALARM_LATE);
}
