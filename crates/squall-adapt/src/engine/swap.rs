//! Swaps: makes planned swaps and swaps by hand, and records the decisions.

use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use squall_core::swap::{SwapError, SwapReport};
use squall_core::{ClassInfo, Id, name_of};

use super::clock::now;
use super::posts::ring;
use super::record::{Record, Wish};
use super::sample::{Sample, rest};
use super::starved;
use super::state::{GROWN_TICK, HELD_TICK, HELD_TICK_MAX, NAME, state};
use super::why::{self, Why};
use crate::decision::{Author, Decision, Held, Verdict, remember};
use crate::family::{self, AnyFamily, Shape};
use crate::settings::Settings;

/// Number of threads that make swaps at once, after a swap that took this long.
const SWAP_THREADS: usize = 4;
const SLOW_SWAP: Duration = Duration::from_millis(2);

/// A swap that is allowed and not made yet.
pub(super) struct SwapPlan {
    pub(super) sample: Sample,
    pub(super) best: Shape,
    pub(super) reason: Wish,
    pub(super) why: Why,
}

/// Makes swaps one after the other. After a slow swap, makes the rest on several threads. Swaps are slow if
/// there are more threads than processors. Each then waits for a grace period of its own.
pub(super) fn swap_all(swaps: Vec<SwapPlan>) {
    let next = AtomicUsize::new(0);
    let swap_next = || {
        let plan = swaps.get(next.fetch_add(1, Ordering::Relaxed))?;
        let began = now();
        swap(plan);
        Some(now().saturating_sub(began))
    };
    let was_slow = iter::from_fn(swap_next).any(|took| took > SLOW_SWAP);
    let left = swaps.len().saturating_sub(next.load(Ordering::Relaxed));
    if !was_slow || left == 0 {
        return;
    }
    let work = || {
        let _in_round = starved::InRound::begin();
        while swap_next().is_some() {}
    };
    thread::scope(|scope| {
        for _ in 1..left.min(SWAP_THREADS) {
            // If no thread can be started, the existing threads make the swaps.
            let _ = thread::Builder::new().name(NAME.to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
}

/// Makes a planned swap, and records the decision.
fn swap(plan: &SwapPlan) {
    let SwapPlan { sample, best, reason, why } = plan;
    let (best, reason, why) = (*best, *reason, why.clone());
    let Sample { id, family, settings, .. } = sample;
    let swapped = catch_unwind(AssertUnwindSafe(|| family.swap(*id, best, settings.deadline)));
    let result = match swapped {
        Ok(Some(result)) => result,
        Ok(None) => {
            state().records.remove(id);
            return;
        }
        Err(_) => {
            let verdict = Verdict::Failed("its family panicked while it made the new form".into());
            return conclude(sample, best, reason, verdict, why, None);
        }
    };
    match result {
        Ok(report) => {
            // Read now, so that the next sample does not take the transfer for load.
            let reading = family.read(*id);
            let mut state = state();
            if let Some(record) = state.records.get_mut(id) {
                let now = now();
                record.changed(best, now, settings.quiet, Some(reason));
                record.reading = reading.unwrap_or(record.reading);
                record.due = record.is_grown().then_some(now + GROWN_TICK);
            }
            drop(state);
            conclude(sample, best, reason, Verdict::Swapped, why, Some(report));
        }
        Err(error) => {
            let report = error.report().cloned();
            conclude(sample, best, reason, Verdict::Failed(error.to_string()), why, report);
        }
    }
}

/// Records a decision if it is new, and schedules the next sample of a held object.
pub(super) fn conclude(
    sample: &Sample,
    best: Shape,
    reason: Wish,
    verdict: Verdict,
    why: Why,
    report: Option<SwapReport>,
) {
    let Sample { id, family, shape, began, .. } = sample;
    let now = now();
    let news = {
        let mut state = state();
        let Some(record) = state.records.get_mut(id) else { return };
        match &verdict {
            Verdict::Swapped | Verdict::ByHand => {}
            Verdict::DryRun | Verdict::Held(Held::Frozen) => {}
            Verdict::Held(held) => {
                // Often enough to see whether its load alternates.
                let by_time = matches!(held, Held::CoolingDown | Held::Unsteady);
                let cooldown = record.hysteresis.cooldown(sample.settings.cooldown);
                let pause = if by_time { cooldown / 4 } else { HELD_TICK_MAX };
                record.hold(reason);
                record.due = Some(now + pause.clamp(HELD_TICK, HELD_TICK_MAX));
            }
            Verdict::Failed(_) => {
                record.hold(reason);
                record.due = Some(now + record.failed());
            }
        }
        record.stays = why::of_verdict(sample, best, &verdict).or(record.stays);
        record.is_news(best, &verdict)
    };
    if matches!(verdict, Verdict::DryRun | Verdict::Held(Held::Frozen)) {
        rest(sample);
    }
    if news {
        let forms = family.forms();
        remember(Decision {
            at: SystemTime::now(),
            id: *id,
            name: name_of(*id),
            family: family.name(),
            from: report
                .as_ref()
                .map_or(forms[shape.form].name(), |report| family::form_of_class(*family, report.from)),
            to: forms[best.form].name(),
            place: best.place,
            verdict,
            author: None,
            why: why.sentence,
            readings: why.readings,
            took: now.saturating_sub(*began),
            report,
        });
    }
}

/// Returns the reason of a decision by hand.
fn requested(author: Option<&Author>) -> String {
    format!("requested by {}", author.map_or("the program", Author::name))
}

/// Swaps an object by hand for a form of a family. Returns an empty option if it was destroyed.
pub(crate) fn by_hand(
    id: Id,
    family: &'static dyn AnyFamily,
    form: usize,
    within: Duration,
    author: Option<&Author>,
) -> Option<Result<SwapReport, SwapError>> {
    let began = now();
    let place = if form == 0 { family.read(id).ok().and_then(|reading| reading.place) } else { None };
    let result = family.swap(id, Shape { form, place }, within)?;
    let Ok(report) = result else { return Some(result) };
    let reading = family.read(id).unwrap_or_default();
    // Read now, because another swap may have followed.
    let now_form = family::of(id).map_or(form, |(_, form)| form);
    let shape = Shape { form: now_form, place: reading.place.filter(|_| now_form == 0) };
    {
        let mut state = state();
        let now = now();
        let quiet = Settings::of(id).quiet;
        let record = state.record(id, || Record::new(shape, reading, now));
        record.changed(shape, now, quiet, None);
        record.reading = reading;
        record.due = record.is_grown().then_some(now + GROWN_TICK);
    }
    ring();
    remember(Decision {
        at: SystemTime::now(),
        id,
        name: name_of(id),
        family: family.name(),
        from: family::form_of_class(family, report.from),
        to: family.forms()[form].name(),
        place: shape.place,
        verdict: Verdict::ByHand,
        author: author.cloned(),
        why: requested(author),
        readings: String::new(),
        took: now().saturating_sub(began),
        report: Some(report.clone()),
    });
    Some(Ok(report))
}

/// Records a swap by hand to an implementation that belongs to no family.
pub(crate) fn replaced(
    id: Id,
    before: &ClassInfo,
    name: &'static str,
    report: &SwapReport,
    author: Option<&Author>,
) {
    remember(Decision {
        at: SystemTime::now(),
        id,
        name: name_of(id),
        family: before.interface,
        from: family::forms_for(before.interface_id)
            .into_iter()
            .map(|(family, _)| family::form_of_class(family, report.from))
            .find(|name| *name != report.from)
            .unwrap_or(report.from),
        to: name,
        place: None,
        verdict: Verdict::ByHand,
        author: author.cloned(),
        why: requested(author),
        readings: String::new(),
        took: report.total(),
        report: Some(report.clone()),
    });
}
