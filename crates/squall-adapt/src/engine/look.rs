//! A look: from posts and due times to decisions.

use std::fmt::Write as _;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use squall_core::swap::{SwapError, SwapReport};
use squall_core::{ClassInfo, Id, tables};
use squall_machine::{Vp, VpSet};

use super::record::{ALARM, ALARM_LATE, Rates, Record, Wish};
use super::{GROWN_TICK, HELD_TICK, now, state};
use crate::calls::{Calls, Sampler};
use crate::decision::{Decision, Held, Verdict, remember};
use crate::family::{self, AnyFamily, Calm, Cost, Load, Reading, Shape, Unread};
use crate::settings::{self, Settings};

/// Between the two readings that tell who is busy.
const READINGS: Duration = Duration::from_millis(2);
/// Before it is tried again to read sensors that could not be read.
const UNREAD_TICK: Duration = Duration::from_secs(1);
/// One that is held is looked at again after so long at most.
const HELD_TICK_MAX: Duration = Duration::from_millis(400);
/// Swaps that are made at once, after one that took so long.
const AT_ONCE: usize = 4;
const SLOW_SWAP: Duration = Duration::from_millis(2);
/// Fewer calls in a count say nothing.
const CALLS_MIN: u64 = 10;
/// How often one that does not go back by itself is looked at: whether it would now.
const STAYING_TICK: Duration = Duration::from_secs(1);
/// How often it is looked who calls a grown object.
const WIDTH: Duration = Duration::from_secs(1);
/// One that a single VP calls goes back after so many quiet times.
const NARROW: u32 = 3;
/// So many objects are looked at together at most; the others wait for the next look.
const TOGETHER: usize = 256;

/// An object that is looked at.
#[derive(Clone)]
struct Seen {
    id: Id,
    family: &'static dyn AnyFamily,
    shape: Shape,
    settings: Settings,
    /// The reading at the beginning of this look, and when it was taken.
    first: Reading,
    began: Duration,
    /// The VPs whose tables had entries of it before that.
    callers: VpSet,
    /// Whether its calls are counted: it posted, or was held.
    asked: bool,
    /// Since when each look found that one VP alone calls it, and that this VP loses by its form.
    alone_since: Option<Duration>,
}

impl Seen {
    /// Whether the object still has the form in which it was seen.
    fn is_same_form(&self) -> bool {
        family::of(self.id).is_some_and(|(_, form)| form == self.shape.form)
    }
}

/// One to which something happened between two readings: what, in which span, and who called it.
struct Busy {
    seen: Seen,
    before: Reading,
    span: Duration,
    callers: VpSet,
}

/// Looks at those that posted and those that are due. Returns how many they were.
pub(super) fn look(mut posted: Vec<Id>) -> usize {
    for later in posted.split_off(posted.len().min(TOGETHER)) {
        post_again(later);
    }
    prune();
    let due = {
        let mut state = state();
        posted.retain(|id| !state.is_held(*id));
        state.take_due()
    };
    let mut seen: Vec<Seen> = Vec::new();
    for id in &posted {
        seen.extend(first_sight(*id, true));
    }
    for (id, held) in due {
        if !posted.contains(&id) {
            seen.extend(first_sight(id, held));
        }
    }
    let count = seen.len();
    let (asked, watched): (Vec<Seen>, Vec<Seen>) = seen.into_iter().partition(|seen| seen.asked);
    let mut swaps: Vec<Wanted> = watched.iter().filter_map(watch).collect();
    let hot = who_is_busy(asked);
    swaps.extend(count_calls(hot).into_iter().filter_map(|(busy, calls)| judge(busy, &calls)));
    swap_all(swaps);
    count
}

/// A swap that may be made.
struct Wanted {
    seen: Seen,
    best: Shape,
    reason: Wish,
    why: String,
}

/// Makes swaps: one after the other, or, where one took long, several at once. It does where there are more threads than
/// processors: each waits for a grace period of its own.
fn swap_all(swaps: Vec<Wanted>) {
    let next = AtomicUsize::new(0);
    let swap_next = || {
        let wanted = swaps.get(next.fetch_add(1, Ordering::Relaxed))?;
        let began = now();
        swap(wanted);
        Some(now().saturating_sub(began))
    };
    let was_slow = iter::from_fn(swap_next).any(|took| took > SLOW_SWAP);
    let left = swaps.len().saturating_sub(next.load(Ordering::Relaxed));
    if !was_slow || left == 0 {
        return;
    }
    let work = || while swap_next().is_some() {};
    thread::scope(|scope| {
        for _ in 1..left.min(AT_ONCE) {
            // Where no thread can be had, those that there are do it.
            let _ = thread::Builder::new().name(super::NAME.to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
}

/// Has an object looked at by the next look.
fn post_again(id: Id) {
    if !super::post(id)
        && let Some((family, _)) = family::of(id)
    {
        family.arm(id, ALARM);
    }
}

impl super::State {
    /// Those whose time has come, and whether they are held.
    fn take_due(&mut self) -> Vec<(Id, bool)> {
        let now = now();
        let due =
            self.records.iter().filter_map(|(id, record)| Some((record.due.filter(|due| *due <= now)?, *id)));
        let mut due: Vec<(Duration, Id)> = due.collect();
        // Who has waited longest comes first: else many that are due at each look would leave no turn to the others.
        due.sort_unstable();
        due.truncate(TOGETHER);
        let taken = due.into_iter().filter_map(|(_, id)| {
            let record = self.records.get_mut(&id)?;
            record.due = None;
            Some((id, record.is_held_from(Wish::Cheaper)))
        });
        taken.collect()
    }

    /// Whether an object is held, so that it is looked at when it is due.
    fn is_held(&self, id: Id) -> bool {
        self.records.get(&id).is_some_and(|record| record.is_held_until(now()))
    }

    /// The ids of all records, if it is time to see which of their objects are gone.
    fn to_prune(&self) -> Vec<Id> {
        if self.records.len() < self.prune_at { Vec::new() } else { self.records.keys().copied().collect() }
    }
}

/// Throws the records of objects away that are gone, when there are twice as many as the last time.
fn prune() {
    let ids = state().to_prune();
    if ids.is_empty() {
        return;
    }
    let gone: Vec<Id> = ids.into_iter().filter(|id| family::of(*id).is_none()).collect();
    let mut state = state();
    gone.iter().for_each(|id| _ = state.records.remove(id));
    state.prune_at = (state.records.len() * 2).max(64);
}

/// Finds an object's record, or makes one, and reads its sensors. None if it is gone.
fn first_sight(id: Id, asked: bool) -> Option<Seen> {
    // First: the reading is a call, too.
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
        // Somebody swapped it, not by way of the engine.
        record.changed(here, began, settings.quiet, None);
        record.reading = first;
    }
    record.shape.place = here.place;
    // What this look does not find again is forgotten.
    let alone_since = record.alone_since.take();
    Some(Seen { id, family, shape: here, settings, first, began, asked, callers, alone_since })
}

/// An object's sensors could not be read: it is gone, or looked at again later.
fn unread(id: Id, form: usize, why: Unread) {
    let mut state = state();
    if why == Unread::Gone {
        state.records.remove(&id);
        return;
    }
    let now = now();
    let record = state.record(id, || Record::new(Shape { form, place: None }, Reading::default(), now));
    record.hold(Wish::Cheaper);
    record.due = Some(now + UNREAD_TICK);
}

/// A grown object's turn: is it quiet, or called by one VP alone?
fn watch(seen: &Seen) -> Option<Wanted> {
    let Seen { id, settings, first, began, .. } = seen;
    // Not under the engine's lock: it is the family's code.
    let may_fold = |calm| seen.family.may_fold(seen.shape, calm, first);
    let (when_quiet, when_alone) = (may_fold(Calm::Quiet), may_fold(Calm::Alone));
    let stays = !when_quiet && !when_alone;
    let mut state = state();
    let record = state.records.get_mut(id)?;
    let since = record.note(*first, *began);
    if !record.is_grown() {
        return None;
    }
    record.due = Some(*began + if stays { STAYING_TICK } else { GROWN_TICK });
    // It was held while it was quiet, or called by one alone, and is so no more.
    if record.is_held_from(Wish::Calm) && !since.is_quiet() && record.narrow_since.is_none() {
        record.release();
        record.temper.prefer(*began, seen.shape.form, settings.cooldown);
    }
    if stays {
        return None;
    }
    // What adds and subtracts seems to be quiet: it is only if nobody calls it, either.
    let hush = since.is_quiet();
    let silent = hush && record.hushed && seen.callers.is_empty();
    if hush && record.hushed && !silent {
        record.is_called_all_the_same();
    }
    record.hushed = hush;
    if hush {
        record.forgotten_at = None;
        tables::forget(*id);
    }
    let quiet_time = record.quiet_time(settings.quiet);
    let lasted = |since: Option<Duration>| since.map(|since| began.saturating_sub(since));
    if let Some(quiet) =
        lasted(record.quiet_since).filter(|quiet| when_quiet && silent && *quiet >= quiet_time)
    {
        drop(state);
        let why = format!("nothing happened for {quiet:?}");
        return fold(seen, first.place, why);
    }
    if hush || !when_alone {
        return None;
    }
    // Its entries are thrown away; who calls misses once, and is seen at the next turn.
    match record.forgotten_at {
        Some(at) if began.saturating_sub(at) >= WIDTH => {
            let callers = &seen.callers;
            record.forgotten_at = None;
            if callers.len() > 1 {
                record.narrow_since = None;
            } else {
                record.narrow_since.get_or_insert(at);
            }
            let narrow = lasted(record.narrow_since).filter(|lasted| *lasted >= quiet_time * NARROW);
            drop(state);
            if let (Some(narrow), Some(alone)) = (narrow, callers.iter().next()) {
                let why = format!("{alone} alone has called it for {narrow:?}");
                return fold(seen, Some(alone), why);
            }
        }
        Some(_) => {}
        None => {
            record.forgotten_at = Some(*began);
            drop(state);
            tables::forget(*id);
        }
    }
    None
}

/// It is calm: its first form would do.
fn fold(seen: &Seen, place: Option<Vp>, why: String) -> Option<Wanted> {
    decide(seen, Shape { form: 0, place }, why, Wish::Calm, seen.first.bytes, None)
}

/// Reads the sensors again after a moment. Those to which something happened, what it was, and in which span.
fn who_is_busy(asked: Vec<Seen>) -> Vec<Busy> {
    if asked.is_empty() {
        return Vec::new();
    }
    // Whoever calls from here on misses once, and is seen.
    asked.iter().for_each(|seen| tables::forget(seen.id));
    thread::sleep(READINGS);
    let busy = asked.into_iter().filter_map(|seen| {
        // First: the reading is a call, too.
        let callers = tables::callers_of(seen.id);
        let second = match seen.family.read(seen.id) {
            Ok(second) => second,
            Err(why) => {
                unread(seen.id, seen.shape.form, why);
                return None;
            }
        };
        if !seen.is_same_form() {
            // Somebody swapped it meanwhile: the two readings are of different things.
            post_again(seen.id);
            return None;
        }
        let now = now();
        let (span, before) = (now.saturating_sub(seen.began), second.since(seen.first));
        let mut state = state();
        let record = state.records.get_mut(&seen.id)?;
        record.note(second, now);
        record.forgotten_at = None;
        // It does what it did when it was judged last.
        let known = record.is_known(Rates::of(before, span), &callers, now);
        let quiet = before.is_quiet() && callers.is_empty();
        // Its threads may only have been preempted: what is wished for is forgotten when it was quiet for longer.
        let cooldown = seen.settings.cooldown;
        let over = record.quiet_since.is_some_and(|since| now.saturating_sub(since) >= cooldown);
        if known || over {
            record.temper.prefer(now, seen.shape.form, cooldown);
        } else if quiet && record.is_held_from(Wish::Cheaper) {
            record.due = Some(now + HELD_TICK);
            return None;
        }
        if known || quiet {
            drop(state);
            rest(&seen);
            return None;
        }
        drop(state);
        Some(Busy { seen, before, span, callers })
    });
    busy.collect()
}

/// Counts the calls of all of them together.
fn count_calls(hot: Vec<Busy>) -> Vec<(Busy, Calls)> {
    let Some(sample) = hot.iter().map(|busy| busy.seen.settings.sample).max() else { return Vec::new() };
    let (mut counted, mut refused) = (Vec::new(), Vec::new());
    for busy in hot {
        match Sampler::begin(busy.seen.id) {
            Ok(sampler) => counted.push((busy, sampler)),
            Err(_) => refused.push(busy.seen),
        }
    }
    thread::sleep(sample);
    let counted = counted.into_iter().map(|(busy, sampler)| (busy, sampler.end())).collect();
    // Somebody swaps or arbitrates it: later.
    refused.iter().for_each(rest);
    counted
}

/// Asks the family what would be best for what was seen.
fn judge(busy: Busy, calls: &Calls) -> Option<Wanted> {
    let Busy { seen, before, span, callers } = busy;
    if calls.count() < CALLS_MIN {
        forget(&seen);
        return None;
    }
    let Settings { transfer_ns, cache_bytes, .. } = seen.settings;
    let load = Load { shape: seen.shape, before, span, callers, calls, transfer_ns, cache_bytes };
    let costs = seen.family.judge(&load);
    let moved_at = state().records.get(&seen.id).and_then(|record| record.moved_at);
    let wanders = moved_at.is_some_and(|at| now().saturating_sub(at) < seen.settings.cooldown * 10);
    let best = choose(&costs, seen.shape, &seen.settings, wanders);
    let reason = match ventures(&seen, &load, &costs, best) {
        Some(venture) if !venture.is_worth_it(&seen) => return None,
        Some(_) => Wish::CheaperAlone,
        None => Wish::Cheaper,
    };
    let why = explain(&seen, &load, &costs);
    let bytes = costs.iter().find(|cost| cost.shape == best).map_or(0, |cost| cost.bytes);
    let judged = (Rates::of(before, span), load.callers.clone());
    decide(&seen, best, why, reason, bytes, Some(judged))
}

/// A swap back to the first form for a VP that calls alone, and may not stay alone.
struct Venture {
    /// Since when it is, as far as this is known.
    alone_since: Option<Duration>,
    at_stake_ns: f64,
    lost_ns_per_s: f64,
}

/// Whether the best shape is best for one who is alone, and something is at stake.
fn ventures(seen: &Seen, load: &Load<'_>, costs: &[Cost], best: Shape) -> Option<Venture> {
    if best.form != 0 || seen.shape.form == 0 || load.callers.len() > 1 {
        return None;
    }
    let at_stake_ns = seen.family.at_stake_ns(seen.shape, &seen.first);
    let cost = |shape| costs.iter().find(|cost| cost.shape == shape).map(|cost| cost.ns_per_s);
    let lost_ns_per_s = cost(seen.shape)? - cost(best)?;
    // Whoever called since the last look.
    let is_alone =
        seen.callers.iter().chain(load.callers.iter()).all(|vp| Some(vp) == load.callers.iter().next());
    let alone_since = seen.alone_since.filter(|_| is_alone);
    (at_stake_ns > 0.0).then_some(Venture { alone_since, at_stake_ns, lost_ns_per_s })
}

impl Venture {
    /// Whether it has been alone for long enough. If not, it is looked at again when it may have been.
    fn is_worth_it(&self, seen: &Seen) -> bool {
        let mut state = state();
        let Some(record) = state.records.get_mut(&seen.id) else { return false };
        let now = now();
        let since = self.alone_since.unwrap_or(now);
        let time = record.alone_time(self.at_stake_ns, self.lost_ns_per_s);
        let left = time.saturating_sub(now.saturating_sub(since));
        if left.is_zero() {
            return true;
        }
        record.alone_since = Some(since);
        record.hold(Wish::Cheaper);
        record.due = Some(now + left.clamp(HELD_TICK, HELD_TICK_MAX));
        drop(state);
        // Who else calls until then misses once, and is seen.
        tables::forget(seen.id);
        false
    }
}

/// The shape that costs least, if that is enough less than the present one. One that wanders among VPs is not biased anew.
fn choose(costs: &[Cost], present: Shape, settings: &Settings, wanders: bool) -> Shape {
    let total = |cost: &Cost| cost.ns_per_s + cost.bytes as f64 * settings.byte_ns;
    let Some(own) = costs.iter().find(|cost| cost.shape == present).map(total) else { return present };
    let may = |cost: &&Cost| cost.shape == present || !(wanders && cost.shape.form == present.form);
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

/// Notes what is thought best. Returns the swap for it, if that may be; else remembers what was decided.
fn decide(
    seen: &Seen,
    best: Shape,
    why: String,
    reason: Wish,
    bytes: usize,
    judged: Option<(Rates, VpSet)>,
) -> Option<Wanted> {
    let Seen { id, settings, shape, .. } = seen;
    // As it is now: somebody may have frozen it since it was seen.
    let frozen = Settings::of(*id).freeze;
    let may = {
        let mut state = state();
        let now = now();
        let record = state.records.get_mut(id)?;
        let moves = best.form == shape.form && best != *shape;
        // A move is no change of form: it neither waits for a cool-down nor begins one (see `crate::temper`).
        let mut steady = Ok(());
        if !moves {
            record.temper.prefer(now, best.form, settings.cooldown);
            steady = record.temper.may_swap(now, settings.cooldown);
        }
        if best == *shape {
            record.is_content(judged, now);
            drop(state);
            rest(seen);
            return None;
        }
        state.may(seen, best, steady, bytes, frozen)
    };
    let verdict = match may {
        Err(held) => Verdict::Held(held),
        Ok(()) if settings.dry_run => Verdict::DryRun,
        // Swapped by somebody else since: what was judged is no more.
        Ok(()) if !seen.is_same_form() => {
            state().swaps.give_back();
            post_again(*id);
            return None;
        }
        Ok(()) => return Some(Wanted { seen: seen.clone(), best, reason, why }),
    };
    conclude(seen, best, reason, verdict, why, None);
    None
}

impl super::State {
    fn may(
        &mut self,
        seen: &Seen,
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
        if seen.settings.dry_run {
            return Ok(());
        }
        let per_s = settings::ALL.get(&settings::SWAPS);
        // One at once at least, if there may be any.
        let burst = if per_s > 0.0 { per_s.max(1.0) } else { 0.0 };
        self.swaps.take(now(), per_s, burst).map_err(|_| Held::Budget)
    }
}

/// Swaps.
fn swap(wanted: &Wanted) {
    let Wanted { seen, best, reason, why } = wanted;
    let (best, reason, why) = (*best, *reason, why.clone());
    let Seen { id, family, settings, .. } = seen;
    let swapped = catch_unwind(AssertUnwindSafe(|| family.swap(*id, best, settings.deadline)));
    let result = match swapped {
        Ok(Some(result)) => result,
        Ok(None) => {
            state().records.remove(id);
            return;
        }
        Err(_) => {
            let verdict = Verdict::Failed("its family panicked when it was to make the form".into());
            return conclude(seen, best, reason, verdict, why, None);
        }
    };
    match result {
        Ok(report) => {
            // As it is now, so that the next look does not take the transfer for a load.
            let reading = family.read(*id);
            let mut state = state();
            if let Some(record) = state.records.get_mut(id) {
                let now = now();
                record.changed(best, now, settings.quiet, Some(reason));
                record.reading = reading.unwrap_or(record.reading);
                record.due = record.is_grown().then_some(now + GROWN_TICK);
            }
            drop(state);
            conclude(seen, best, reason, Verdict::Swapped, why, Some(report));
        }
        Err(error) => {
            let report = error.report().cloned();
            conclude(seen, best, reason, Verdict::Failed(error.to_string()), why, report);
        }
    }
}

/// Remembers a decision if it is news, and sees to it that a held object is looked at again.
fn conclude(
    seen: &Seen,
    best: Shape,
    reason: Wish,
    verdict: Verdict,
    why: String,
    report: Option<SwapReport>,
) {
    let Seen { id, family, shape, began, .. } = seen;
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
                let cooldown = record.temper.cooldown(seen.settings.cooldown);
                let pause = if by_time { cooldown / 4 } else { HELD_TICK_MAX };
                record.hold(reason);
                record.due = Some(now + pause.clamp(HELD_TICK, HELD_TICK_MAX));
            }
            Verdict::Failed(_) => {
                record.hold(reason);
                record.due = Some(now + record.failed());
            }
        }
        record.is_news(best, &verdict)
    };
    if matches!(verdict, Verdict::DryRun | Verdict::Held(Held::Frozen)) {
        rest(seen);
    }
    if news {
        let forms = family.forms();
        remember(Decision {
            at: SystemTime::now(),
            id: *id,
            family: family.name(),
            from: report
                .as_ref()
                .map_or(forms[shape.form].name(), |report| family::form_of_class(*family, report.from)),
            to: forms[best.form].name(),
            place: best.place,
            verdict,
            why,
            took: now.saturating_sub(*began),
            report,
        });
    }
}

/// There is nothing to do: the sensor is armed again, the later the more often that was so.
fn rest(seen: &Seen) {
    let after = {
        let mut state = state();
        let Some(record) = state.records.get_mut(&seen.id) else { return };
        record.release();
        record.due = record.is_grown().then(|| now() + GROWN_TICK);
        record.alarm_after_nothing()
    };
    seen.family.arm(seen.id, after);
}

/// So little is called that no form would win anything. It is asked for later, and what was known of it is forgotten: most
/// of many objects are such, and each of them posts some time.
fn forget(seen: &Seen) {
    let mut state = state();
    let Some(record) = state.records.get_mut(&seen.id) else { return };
    if record.is_grown() || record.swaps_count > 0 || record.has_logged() {
        drop(state);
        return rest(seen);
    }
    state.records.remove(&seen.id);
    drop(state);
    seen.family.arm(seen.id, ALARM_LATE);
}

/// Has an object looked at as if it had never been.
pub(crate) fn wake(id: Id) {
    if let Some((family, _)) = family::of(id) {
        if let Some(record) = state().records.get_mut(&id) {
            record.look_now();
        }
        family.arm(id, ALARM);
        post_again(id);
    }
}

fn explain(seen: &Seen, load: &Load<'_>, costs: &[Cost]) -> String {
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
        let _ = write!(why, " {}", seen.family.forms()[cost.shape.form].name());
        if let Some(place) = cost.shape.place {
            let _ = write!(why, " at {place}");
        }
        let _ = write!(why, " {:.3}", cost.ns_per_s / 1e6);
    }
    why
}

/// Swaps an object for a form of a family, because somebody said so. None if it is gone.
pub(crate) fn by_hand(
    id: Id,
    family: &'static dyn AnyFamily,
    form: usize,
    within: Duration,
) -> Option<Result<SwapReport, SwapError>> {
    let began = now();
    let place = if form == 0 { family.read(id).ok().and_then(|reading| reading.place) } else { None };
    let result = family.swap(id, Shape { form, place }, within)?;
    let Ok(report) = result else { return Some(result) };
    let reading = family.read(id).unwrap_or_default();
    // As it is now: somebody may have been faster with the next.
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
    super::ring();
    remember(Decision {
        at: SystemTime::now(),
        id,
        family: family.name(),
        from: family::form_of_class(family, report.from),
        to: family.forms()[form].name(),
        place: shape.place,
        verdict: Verdict::ByHand,
        why: "somebody asked for it".into(),
        took: now().saturating_sub(began),
        report: Some(report.clone()),
    });
    Some(Ok(report))
}

/// Remembers that somebody swapped an object for an implementation that is of no family.
pub(crate) fn replaced(id: Id, before: &ClassInfo, name: &'static str, report: &SwapReport) {
    remember(Decision {
        at: SystemTime::now(),
        id,
        family: before.interface,
        from: family::forms_for(before.interface_id)
            .into_iter()
            .map(|(family, _)| family::form_of_class(family, report.from))
            .find(|name| *name != report.from)
            .unwrap_or(report.from),
        to: name,
        place: None,
        verdict: Verdict::ByHand,
        why: "somebody asked for it".into(),
        took: report.total(),
        report: Some(report.clone()),
    });
}
