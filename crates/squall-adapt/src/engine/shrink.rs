//! Shrinking: grown objects return to their first form when they are quiet, or when one VP alone calls them.

use std::time::Duration;

use squall_core::tables;
use squall_machine::Vp;

use super::decide::decide;
use super::record::{Record, Wish};
use super::sample::{Sample, post_again};
use super::state::{GROWN_TICK, state};
use super::swap::SwapPlan;
use crate::family::{Calm, Shape};
use crate::stays::Span;

/// Time between two samples of an object that does not shrink by itself now.
const STAYING_TICK: Duration = Duration::from_secs(1);
/// Time for which the callers of a grown object are observed at once.
const CALLERS_TICK: Duration = Duration::from_secs(1);
/// Number of quiet times for which one VP alone must call an object before it shrinks.
const ALONE_QUIET_TIMES: u32 = 3;

/// Samples a grown object: does it shrink because it is quiet, or because one VP alone calls it?
pub(super) fn sample_grown(sample: &Sample) -> Option<SwapPlan> {
    let Sample { id, settings, first, began, .. } = sample;
    // Called without the engine's lock, because it is the family's code.
    let may_shrink = |calm| sample.family.may_shrink(sample.shape, calm, first);
    let (when_quiet, when_alone) = (may_shrink(Calm::Quiet), may_shrink(Calm::Alone));
    let stays = !when_quiet && !when_alone;
    let is_unsensed = !sample.family.has_sensors() && !sample.callers.is_empty();
    if is_unsensed && state().records.get(id).is_some_and(|record| record.may_look(*began)) {
        post_again(*id);
    }
    let mut state = state();
    let record = state.records.get_mut(id)?;
    let since = record.note(*first, *began);
    if !record.is_grown() {
        return None;
    }
    record.due = Some(*began + if stays { STAYING_TICK } else { GROWN_TICK });
    // Without sensors, the entries made since the previous sample are the events.
    let unsensed = is_unsensed && record.was_quiet;
    // The object was held while it was quiet, or called by one VP alone. That has ended.
    let is_called = !since.is_quiet() || unsensed && sample.callers.len() > 1;
    if record.is_held_from(Wish::Calm) && is_called && record.alone_caller_since.is_none() {
        record.release();
        record.hysteresis.prefer(*began, sample.shape.form, settings.cooldown);
    }
    if stays {
        return None;
    }
    // A sensor with additions and subtractions can seem quiet. The object is quiet only if no VP called it
    // either.
    let no_events = since.is_quiet();
    let silent = no_events && record.was_quiet && sample.callers.is_empty();
    if no_events && record.was_quiet && !silent {
        record.note_unseen_call();
    }
    record.was_quiet = no_events;
    if no_events {
        record.forgotten_at = None;
        tables::forget(*id);
    }
    let quiet_time = record.quiet_time(settings.quiet);
    let lasted = |since: Option<Duration>| since.map(|since| began.saturating_sub(since));
    if let Some(quiet) =
        lasted(record.quiet_since).filter(|quiet| when_quiet && silent && *quiet >= quiet_time)
    {
        drop(state);
        let why = format!("nothing happened for {}", Span(quiet));
        return shrink(sample, first.place, why);
    }
    if !when_alone || no_events && !unsensed {
        return None;
    }
    let callers = if unsensed {
        note_callers(record, sample, sample.began, quiet_time)
    } else {
        observe_callers(record, sample, quiet_time)
    };
    drop(state);
    match callers {
        Callers::Unknown => tables::forget(*id),
        Callers::Observed => {}
        Callers::Alone(vp, alone_for) => {
            let why = format!("only {vp} has called it for {}", Span(alone_for));
            return shrink(sample, Some(vp), why);
        }
    }
    None
}

/// Callers of a grown object, as far as they are known.
enum Callers {
    /// The object's entries must be removed first. Each caller then misses once, and is seen at a later
    /// sample.
    Unknown,
    /// The entries were removed; either the time is not over, or no VP has been alone for long enough.
    Observed,
    /// One VP alone has called it for this time, which is long enough.
    Alone(Vp, Duration),
}

/// Observes the callers of an object for [`CALLERS_TICK`] at a time.
fn observe_callers(record: &mut Record, sample: &Sample, quiet_time: Duration) -> Callers {
    let Some(at) = record.forgotten_at else {
        record.forgotten_at = Some(sample.began);
        return Callers::Unknown;
    };
    if sample.began.saturating_sub(at) < CALLERS_TICK {
        return Callers::Observed;
    }
    record.forgotten_at = None;
    note_callers(record, sample, at, quiet_time)
}

/// Notes the VPs that called an object since `at`.
fn note_callers(record: &mut Record, sample: &Sample, at: Duration, quiet_time: Duration) -> Callers {
    if sample.callers.len() > 1 {
        record.alone_caller_since = None;
        return Callers::Observed;
    }
    let since = *record.alone_caller_since.get_or_insert(at);
    let alone_for = sample.began.saturating_sub(since);
    match sample.callers.iter().next() {
        Some(vp) if alone_for >= quiet_time * ALONE_QUIET_TIMES => Callers::Alone(vp, alone_for),
        _ => Callers::Observed,
    }
}

/// Plans a swap of a calm object to its first form.
fn shrink(sample: &Sample, place: Option<Vp>, why: String) -> Option<SwapPlan> {
    decide(sample, Shape { form: 0, place }, why.into(), Wish::Calm, sample.first.bytes, None)
}
