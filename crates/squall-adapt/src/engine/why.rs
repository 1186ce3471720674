//! Reasons: why the engine changes an object, and why it leaves the object as it is.

use std::fmt::Write as _;
use std::time::Duration;

use squall_core::Id;

use super::sample::Sample;
use super::state::state;
use crate::decision::Verdict;
use crate::family::{Cost, Form, Load, Shape};
use crate::stays::{Reason, Seen, Share};

/// Reason of a decision: a sentence for people, and the readings that it rests on.
#[derive(Clone, Debug)]
pub(super) struct Why {
    pub(super) sentence: String,
    pub(super) readings: String,
}

impl From<String> for Why {
    fn from(sentence: String) -> Why {
        Why { sentence, readings: String::new() }
    }
}

/// Returns the calls of a look.
pub(super) fn seen(load: &Load<'_>) -> Seen {
    let Load { shape, before, span, callers, calls, .. } = load;
    let mut seen = Seen::of_sensors(before.local, before.foreign, *span);
    (seen.global, seen.is_biased, seen.vps) = (before.global, shape.place.is_some(), callers.len());
    (seen.counted, seen.counted_in) = (calls.count(), calls.span);
    seen
}

/// Describes a look and the estimated costs, as the reason for a change to `best`.
pub(super) fn explain(sample: &Sample, load: &Load<'_>, costs: &[Cost], best: Shape) -> Why {
    let cost = |shape| costs.iter().find(|cost| cost.shape == shape).map_or(0.0, |cost| cost.ns_per_s);
    let share = cost(best) / cost(sample.shape);
    let form = form_of(sample, best);
    let costs_less = if share < 1.0 {
        format!("costs {}", Share(share))
    } else {
        // The bytes of a form count, too.
        "needs less memory at about the same cost".to_owned()
    };
    let at = best.place.map_or(String::new(), |vp| format!(" at {vp}"));
    let sentence = format!("{}; {}{at} {costs_less}", seen(load), form.about());
    Why { sentence, readings: readings(sample, load, costs) }
}

fn form_of(sample: &Sample, shape: Shape) -> Form {
    sample.family.forms()[shape.form]
}

/// Returns why an object keeps its form, given the estimated costs, and the costs that count with memory.
pub(super) fn no_better(sample: &Sample, costs: &[Cost], total: impl Fn(&Cost) -> f64) -> Reason {
    let own = costs.iter().find(|cost| cost.shape == sample.shape).map(&total);
    let others = costs.iter().filter(|cost| cost.shape.form != sample.shape.form);
    let best = others.min_by(|a, b| total(a).total_cmp(&total(b)));
    match (own, best) {
        (Some(own), Some(best)) if total(best) < own => {
            let saved = Duration::try_from_secs_f64((own - total(best)) / 1e9).unwrap_or_default();
            Reason::SmallGain(form_of(sample, best.shape), total(best) / own, saved)
        }
        (Some(own), Some(best)) if own > 0.0 => {
            Reason::Cheapest(Some((form_of(sample, best.shape), total(best) / own)))
        }
        _ => Reason::Cheapest(None),
    }
}

/// Returns why an object keeps its form, given the action taken on a decision.
pub(super) fn of_verdict(sample: &Sample, best: Shape, verdict: &Verdict) -> Option<Reason> {
    let form = form_of(sample, best);
    match verdict {
        Verdict::Held(held) => Some(Reason::Held(form, *held)),
        Verdict::DryRun => Some(Reason::DryRun(form)),
        Verdict::Failed(_) => Some(Reason::Failed(form)),
        Verdict::Swapped | Verdict::ByHand => None,
    }
}

/// Stores why an object keeps its form.
pub(super) fn stay(id: Id, reason: Reason) {
    if let Some(record) = state().records.get_mut(&id) {
        record.stays = Some(reason);
    }
}

/// Stores the calls of a look, for the reasons that rest on them.
pub(super) fn note_seen(id: Id, seen: Seen) {
    if let Some(record) = state().records.get_mut(&id) {
        record.seen = Some(seen);
    }
}

/// Lists the readings, the calls and the estimated costs.
fn readings(sample: &Sample, load: &Load<'_>, costs: &[Cost]) -> String {
    let mut why = String::new();
    let Load { before, span, calls, callers, .. } = load;
    // Writing to a string does not fail.
    let _ = write!(
        why,
        "in {span:.1?} {} VPs, {} local, {} foreign, {} global; in {:.1?}",
        callers.len(),
        before.local,
        before.foreign,
        before.global,
        calls.span
    );
    if calls.by_vp.is_empty() {
        why.push_str(" no calls");
    }
    for ((vp, _), row) in calls.by_vp.iter().zip(&calls.table).take(4) {
        let _ = write!(why, " {vp}");
        for ((method, _), count) in calls.by_method.iter().zip(row) {
            let _ = write!(why, " {method} {count}");
        }
    }
    if calls.by_vp.len() > 4 {
        let _ = write!(why, " and {} more VPs", calls.by_vp.len() - 4);
    }
    why.push_str("; ms per second:");
    for cost in costs {
        let _ = write!(why, " {}", sample.family.forms()[cost.shape.form].name());
        if let Some(place) = cost.shape.place {
            let _ = write!(why, " at {place}");
        }
        let _ = write!(why, " {:.3}", cost.ns_per_s / 1e6);
    }
    why
}
