//! The policy of adaptive counters: the posts of the sensors, and the cost of a load in each form.

use squall_adapt::costs::Work;
use squall_adapt::engine;
use squall_adapt::family::{Cost, Family, Form, Load, Reading, Shape};
use squall_core::swap::Replacement;
use squall_core::{CallError, Handle, info_of};
use squall_machine::{ClusterSize, Vp};

use super::distributed::{Distributed, Local};
use super::shared::Shared;
use super::{ADAPTS, Counter};

/// Name of the form in which an adaptive counter starts. Constructor: [`shared`](super::shared).
pub const SHARED: &str = "shared";
/// Name of the form for a counter to which several VPs add. Constructor: [`distributed`](super::distributed).
pub const DISTRIBUTED: &str = "distributed";

/// Asks the policy to examine the counter. Returns false if the post was dropped.
pub(super) fn post(handle: Handle<dyn Counter>) -> bool {
    engine::post(Handle::id(handle))
}

pub(super) static COUNTERS: Counters = Counters;

pub(super) struct Counters;

static FORMS: [Form; 2] = [
    Form::of::<Shared<ADAPTS>>(SHARED).described("one representative for all processors"),
    Form::of::<Distributed<ADAPTS>>(DISTRIBUTED).described("one representative per processor"),
];
const DISTRIBUTED_FORM: usize = 1;

impl Family for Counters {
    type Interface = dyn Counter;

    fn name(&self) -> &'static str {
        "counter"
    }

    fn forms(&self) -> &'static [Form] {
        &FORMS
    }

    fn make(&self, shape: Shape, handle: Handle<dyn Counter>) -> Replacement<dyn Counter> {
        match shape {
            Shape { form: DISTRIBUTED_FORM, .. } => {
                Replacement::root(Distributed::<ADAPTS>::new(), ClusterSize::Cpu)
            }
            Shape { place, .. } => {
                Replacement::swappable(Shared::<ADAPTS>::new(handle, place.unwrap_or_else(Vp::current)))
            }
        }
    }

    fn read(&self, handle: Handle<dyn Counter>) -> Result<Reading, CallError> {
        let sensors = handle.try_sensors()?;
        let bytes = info_of(Handle::id(handle)).map_or(0, |info| info.bytes);
        Ok(Reading {
            local: sensors.here,
            foreign: sensors.elsewhere,
            global: sensors.totals,
            place: sensors.place,
            reps: sensors.reps,
            bytes,
            ..Reading::default()
        })
    }

    fn arm(&self, handle: Handle<dyn Counter>, after: u32) -> Result<(), CallError> {
        handle.try_arm(after)
    }

    fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost> {
        judge(load)
    }
}

/// Work of a call in any form without its addition, and in a sum the multiplications for each representative
/// beyond the first. The costs of additions are measured (`squall_adapt::costs`).
const CALL: Work = Work { multiplies: 1.9, locked: 0.0, operations: 1.0 };
const VISIT: f64 = 1.5;
/// Upper limit for the additions of one VP in a second.
const AT_HOME_MAX: f64 = 50e6;
/// Upper limit for the utilisation of a cache line. At this limit a caller waits for about a hundred others.
const BUSY_MAX: f64 = 0.99;
/// Approximate size of a distributed counter without its representatives, and of one representative.
const ROOT_BYTES: usize = 256;
const REP_BYTES: usize = size_of::<Local<ADAPTS>>() + 128;

/// Calls of one VP in a second.
#[derive(Clone, Copy, Debug)]
struct Caller {
    vp: Vp,
    adds: f64,
    totals: f64,
}

/// Returns the calling VPs with their rates. Counted calls give the rates; the entry bits add the VPs that
/// the count missed.
fn callers(load: &Load<'_>) -> Vec<Caller> {
    let totals = load.calls.rates_of("total");
    let seconds = load.calls.span.as_secs_f64().max(1e-9);
    let mut callers: Vec<Caller> = load
        .calls
        .by_vp
        .iter()
        .zip(totals)
        .map(|((vp, all), (_, totals))| Caller {
            vp: *vp,
            adds: (*all as f64 / seconds - totals).max(0.0),
            totals,
        })
        .collect();
    // A short count misses threads that did not run during it. Such a VP gets the smallest counted rate,
    // limited by the sensors. The sensors sum up the added numbers, which equals a count of calls if each
    // call adds one.
    let missed: Vec<Vp> =
        load.callers.iter().filter(|vp| !callers.iter().any(|caller| caller.vp == *vp)).collect();
    let least = |of: fn(&Caller) -> f64| callers.iter().map(of).reduce(f64::min).unwrap_or(0.0);
    let sensed = |count: u64| count as f64 / load.span.as_secs_f64().max(1e-9) / missed.len().max(1) as f64;
    let distributed = load.shape.form == DISTRIBUTED_FORM;
    let added =
        if distributed { load.before.local.saturating_add(load.before.foreign) } else { load.before.foreign };
    let adds = least(|caller| caller.adds).min(sensed(added));
    let totals = least(|caller| caller.totals);
    callers.extend(missed.iter().map(|vp| {
        let at_home = !distributed && Some(*vp) == load.shape.place;
        let adds = if at_home { sensed(load.before.local).min(AT_HOME_MAX) } else { adds };
        Caller { vp: *vp, adds, totals }
    }));
    callers
}

/// Returns the probability that another VP used the line since a VP's last call, for the given rates of both.
fn between(others: f64, own: f64) -> f64 {
    if own > 0.0 { (others / own).min(1.0) } else { 0.0 }
}

fn judge(load: &Load<'_>) -> Vec<Cost> {
    let callers = callers(load);
    let (adds, totals) = callers.iter().fold((0.0, 0.0), |(a, t), c| (a + c.adds, t + c.totals));
    let line = load.costs.transfer_ns;
    let (plain, locked) = (load.costs.local_add_ns, load.costs.locked_ns);
    let (call, visit) = (CALL.ns(&load.costs), VISIT * load.costs.multiply_ns);
    // `busy` is the part of a second during which the shared form's cache line is in transfer. Near 1 the
    // callers wait for each other, and their call rate is low because they wait.
    let fetches = |c: &Caller| {
        let own = c.adds + c.totals;
        c.adds * between(adds + totals - own, own) + c.totals * between(adds - c.adds, own)
    };
    let busy = (callers.iter().map(fetches).sum::<f64>() * line / 1e9).min(BUSY_MAX);
    let wait = (1.0 / (1.0 - busy)).min(callers.len().max(1) as f64);
    let shared = |place: Option<Vp>| {
        let cost = |c: &Caller| {
            let add = if Some(c.vp) == place { plain } else { locked };
            c.adds * (call + add) + c.totals * call + fetches(c) * line * wait
        };
        let shape = Shape { form: 0, place };
        Cost { shape, ns_per_s: callers.iter().map(cost).sum(), bytes: size_of::<Shared<ADAPTS>>() + 88 }
    };
    // The calling VPs would get representatives. If the form is already distributed, a sum visits the
    // existing ones.
    let reps =
        if load.shape.form == DISTRIBUTED_FORM { load.before.reps.max(1) } else { callers.len().max(1) };
    let distributed = {
        let cost = |c: &Caller| {
            // A sum fetches each line that its owner has written since. The owner fetches the line back
            // afterwards.
            let fetched: f64 = callers.iter().map(|other| between(other.adds, c.totals)).sum::<f64>()
                - between(c.adds, c.totals);
            c.adds * (call + plain + line * between(totals - c.totals, c.adds))
                + c.totals * (call + visit * reps as f64 + line * fetched)
        };
        let shape = Shape { form: DISTRIBUTED_FORM, place: None };
        let bytes = ROOT_BYTES + reps * REP_BYTES;
        Cost { shape, ns_per_s: callers.iter().map(cost).sum(), bytes }
    };
    // The shared form: at its present home, and at the VP that adds most.
    let busiest = callers.iter().max_by(|a, b| a.adds.total_cmp(&b.adds));
    let busiest = busiest.filter(|c| c.adds > 0.0).map(|c| c.vp);
    let present = if load.shape.form == 0 { load.shape.place } else { busiest };
    let mut costs = vec![shared(present), distributed];
    if let Some(busiest) = busiest.filter(|busiest| present != Some(*busiest)) {
        costs.push(shared(Some(busiest)));
    }
    costs
}
