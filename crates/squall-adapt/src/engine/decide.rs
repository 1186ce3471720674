//! Decisions: the best shape for a load, and the checks before a swap.

use std::time::Duration;

use squall_core::tables;
use squall_machine::VpSet;

use super::clock::now;
use super::record::{Rates, Wish};
use super::sample::{Busy, Sample, forget, post_again, rest};
use super::state::{HELD_TICK, HELD_TICK_MAX, State, state};
use super::swap::{SwapPlan, conclude};
use super::why::{self, Why, explain};
use crate::calls::Calls;
use crate::costs;
use crate::decision::{Held, Verdict};
use crate::family::{Cost, Load, Shape};
use crate::settings::{self, Settings};
use crate::stays::Reason;

/// Smallest number of counted calls that allows an estimate.
const CALLS_MIN: u64 = 10;

/// Asks the family for cost estimates, and plans a swap if another shape is better.
pub(super) fn estimate(busy: Busy, calls: &Calls) -> Option<SwapPlan> {
    let Busy { sample, before, span, callers } = busy;
    if calls.count() < CALLS_MIN {
        why::stay(sample.id, Reason::FewCalls);
        forget(&sample);
        return None;
    }
    let costs = costs::measured().with(&sample.settings);
    let cache_bytes = sample.settings.cache_bytes;
    let load = Load { shape: sample.shape, before, span, callers, calls, costs, cache_bytes };
    let costs = sample.family.estimate_costs(&load);
    let moved_at = state().records.get(&sample.id).and_then(|record| record.moved_at);
    let is_wandering = moved_at.is_some_and(|at| now().saturating_sub(at) < sample.settings.cooldown * 10);
    let best = choose(&costs, sample.shape, &sample.settings, is_wandering);
    why::note_seen(sample.id, why::seen(&load));
    if let Some(record) = state().records.get_mut(&sample.id) {
        record.is_judged = sample.settings.freeze;
    }
    if best == sample.shape {
        let moves = is_wandering && choose(&costs, best, &sample.settings, false).form == best.form;
        let reason = || why::no_better(&sample, &costs, |cost| total(cost, &sample.settings));
        why::stay(sample.id, if moves { Reason::Moved } else { reason() });
    }
    let reason = match venture(&sample, &load, &costs, best) {
        Some(venture) if !venture.is_worth_it(&sample) => return None,
        Some(_) => Wish::CheaperAlone,
        None => Wish::Cheaper,
    };
    let why = explain(&sample, &load, &costs, best);
    let bytes = costs.iter().find(|cost| cost.shape == best).map_or(0, |cost| cost.bytes);
    let estimated = (Rates::of(before, span), load.callers.clone());
    decide(&sample, best, why, reason, bytes, Some(estimated))
}

/// The risk of a swap back to the first form: only one VP calls the object now, but others may call again
/// soon.
struct Venture {
    /// Start of the time with a single calling VP, as far as it is known.
    alone_since: Option<Duration>,
    /// Cost of going back too early, in nanoseconds.
    at_stake_ns: f64,
    /// Cost of keeping the present form, in nanoseconds per second.
    lost_ns_per_s: f64,
}

/// Returns the risk of going back to the first form now. Returns `None` unless the first form is best, at
/// most one VP calls, and going back too early has a cost.
fn venture(sample: &Sample, load: &Load<'_>, costs: &[Cost], best: Shape) -> Option<Venture> {
    if best.form != 0 || sample.shape.form == 0 || load.callers.len() > 1 {
        return None;
    }
    let at_stake_ns = sample.family.at_stake_ns(sample.shape, &sample.first);
    let cost = |shape| costs.iter().find(|cost| cost.shape == shape).map(|cost| cost.ns_per_s);
    let lost_ns_per_s = cost(sample.shape)? - cost(best)?;
    // Includes the VPs that called since the last sample.
    let is_alone =
        sample.callers.iter().chain(load.callers.iter()).all(|vp| Some(vp) == load.callers.iter().next());
    let alone_since = sample.alone_since.filter(|_| is_alone);
    (at_stake_ns > 0.0).then_some(Venture { alone_since, at_stake_ns, lost_ns_per_s })
}

impl Venture {
    /// Returns `true` if one VP has been alone for long enough. Otherwise schedules the next sample.
    fn is_worth_it(&self, sample: &Sample) -> bool {
        let mut state = state();
        let Some(record) = state.records.get_mut(&sample.id) else { return false };
        let now = now();
        let since = self.alone_since.unwrap_or(now);
        let time = record.alone_time(self.at_stake_ns, self.lost_ns_per_s);
        let left = time.saturating_sub(now.saturating_sub(since));
        if left.is_zero() {
            return true;
        }
        record.alone_since = Some(since);
        record.stays = Some(Reason::AtStake(sample.family.forms()[0], left));
        record.hold(Wish::Cheaper);
        record.due = Some(now + left.clamp(HELD_TICK, HELD_TICK_MAX));
        drop(state);
        // Other VPs that call until then miss once, and are seen.
        tables::forget(sample.id);
        false
    }
}

/// Returns the cost of a form with that of its memory.
fn total(cost: &Cost, settings: &Settings) -> f64 {
    cost.ns_per_s + cost.bytes as f64 * settings.byte_ns
}

/// Returns the cheapest shape, if it is cheaper than the present one by the margin and the gain. An object
/// that changed its bias recently keeps its bias.
fn choose(costs: &[Cost], present: Shape, settings: &Settings, is_wandering: bool) -> Shape {
    let total = |cost: &Cost| total(cost, settings);
    let Some(own) = costs.iter().find(|cost| cost.shape == present).map(total) else { return present };
    let may = |cost: &&Cost| cost.shape == present || !(is_wandering && cost.shape.form == present.form);
    let best = costs.iter().filter(may).min_by(|a, b| total(a).total_cmp(&total(b)));
    match best {
        Some(best)
            if own > total(best) * settings.margin && own - total(best) > settings.gain.as_nanos() as f64 =>
        {
            best.shape
        }
        _ => present,
    }
}

/// Notes the best shape. Returns the swap to it, if it is allowed; otherwise records the decision.
pub(super) fn decide(
    sample: &Sample,
    best: Shape,
    why: Why,
    reason: Wish,
    bytes: usize,
    estimated: Option<(Rates, VpSet)>,
) -> Option<SwapPlan> {
    let Sample { id, settings, shape, .. } = sample;
    // Read again, because the object may have been frozen since it was sampled.
    let frozen = Settings::of(*id).freeze;
    let may = {
        let mut state = state();
        let now = now();
        let record = state.records.get_mut(id)?;
        let moves = best.form == shape.form && best != *shape;
        // A change of bias keeps the form. It neither waits for a cool-down nor begins one
        // (`crate::hysteresis`).
        let mut steady = Ok(());
        if !moves {
            record.hysteresis.prefer(now, best.form, settings.cooldown);
            steady = record.hysteresis.may_swap(now, settings.cooldown);
        }
        if best == *shape {
            record.set_best(estimated, now);
            drop(state);
            rest(sample);
            return None;
        }
        state.may(sample, best, steady, bytes, frozen)
    };
    let verdict = match may {
        Err(held) => Verdict::Held(held),
        Ok(()) if settings.dry_run => Verdict::DryRun,
        // The object was swapped meanwhile, so the estimate is void.
        Ok(()) if !sample.is_same_form() => {
            state().swaps.give_back();
            post_again(*id);
            return None;
        }
        Ok(()) => return Some(SwapPlan { sample: sample.clone(), best, reason, why }),
    };
    conclude(sample, best, reason, verdict, why, None);
    None
}

impl State {
    fn may(
        &mut self,
        sample: &Sample,
        best: Shape,
        steady: Result<(), Held>,
        bytes: usize,
        frozen: bool,
    ) -> Result<(), Held> {
        if frozen {
            return Err(Held::Frozen);
        }
        steady?;
        if best.form != 0 {
            let grown = self.records.values().filter(|record| record.is_grown());
            let grown: usize = grown.map(|record| record.reading.bytes).sum();
            if (grown + bytes) as u64 > settings::ALL.get(&settings::BYTES) {
                return Err(Held::Memory);
            }
        }
        if sample.settings.dry_run {
            return Ok(());
        }
        let per_s = settings::ALL.get(&settings::SWAPS);
        // At least one swap at once, unless swaps are forbidden.
        let burst = if per_s > 0.0 { per_s.max(1.0) } else { 0.0 };
        self.swaps.take(now(), per_s, burst).map_err(|_| Held::Budget)
    }
}
