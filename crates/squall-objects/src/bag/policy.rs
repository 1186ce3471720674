//! The policy of adaptive bags: the posts of the sensors, and the cost of a load in each form.
//!
//! In the shared form the lines of the one shard move to each VP that calls. In the distributed form only
//! elements move, to VPs that get more than they put. A get that finds the bag empty looks at all shards,
//! and their lines stay in its cache until a put.

use squall_adapt::costs::{MachineCosts, Work};
use squall_adapt::engine;
use squall_adapt::family::{Cost, Family, Form, Load, Reading, Shape};
use squall_core::swap::Replacement;
use squall_core::{CallError, Handle, info_of};
use squall_machine::{ClusterSize, Vp};
use std::marker::PhantomData;

use super::forms::{Forms, Local};
use super::{ADAPTS, Bag};
use crate::callers::{Caller, callers};

/// Name of the form in which an adaptive bag starts. Constructor: [`shared`](super::shared).
pub const SHARED: &str = "shared";
/// Name of the form for a bag that several VPs use. Constructor: [`distributed`](super::distributed).
pub const DISTRIBUTED: &str = "distributed";

/// Initial number of sensor steps until a post.
pub(super) const ALARM: u32 = 1024;

/// Asks the policy to examine the bag. Returns false if the post was dropped.
pub(super) fn post<T: Send + 'static>(handle: Handle<dyn Bag<T>>) -> bool {
    engine::post(Handle::id(handle))
}

/// Returns the family of bags of this type.
pub(super) fn family<T: Send + 'static>() -> &'static Bags<T> {
    &Bags(PhantomData)
}

pub(super) struct Bags<T>(PhantomData<fn() -> T>);

impl<T: Send + 'static> Bags<T> {
    const FORMS: [Form; 2] = [
        Form::of_root::<Forms<T, ADAPTS, false>>(SHARED).described("one shard for all processors"),
        Form::of_root::<Forms<T, ADAPTS, true>>(DISTRIBUTED).described("one shard per processor"),
    ];
}
const SHARED_FORM: usize = 0;
const DISTRIBUTED_FORM: usize = 1;

impl<T: Send + 'static> Family for Bags<T> {
    type Interface = dyn Bag<T>;

    fn name(&self) -> &'static str {
        "bag"
    }

    fn forms(&self) -> &'static [Form] {
        &Self::FORMS
    }

    fn make(&self, shape: Shape, _: Handle<dyn Bag<T>>) -> Replacement<dyn Bag<T>> {
        let home = shape.place.unwrap_or_else(Vp::current);
        match shape.form {
            DISTRIBUTED_FORM => Replacement::root(Forms::<T, ADAPTS, true>::new(home), ClusterSize::Cpu),
            _ => Replacement::root(Forms::<T, ADAPTS, false>::new(home), ClusterSize::Machine),
        }
    }

    fn read(&self, handle: Handle<dyn Bag<T>>) -> Result<Reading, CallError> {
        let sensors = handle.try_sensors()?;
        let bytes = info_of(Handle::id(handle)).map_or(0, |info| info.bytes);
        Ok(Reading {
            local: sensors.local,
            foreign: sensors.foreign,
            global: sensors.visits,
            place: sensors.home,
            reps: sensors.reps,
            bytes,
            ..Reading::default()
        })
    }

    fn arm(&self, handle: Handle<dyn Bag<T>>, after: u32) -> Result<(), CallError> {
        handle.try_arm(after)
    }

    fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost> {
        let callers = callers(load, &PUTS, &GETS);
        let reps = if load.shape.form == DISTRIBUTED_FORM { load.before.reps } else { callers.len() };
        judge(&callers, load.shape, reps.max(1), size_of::<Local<T, ADAPTS, true>>(), &load.costs)
    }
}

/// Work of a put or get in any form.
const CALL: Work = Work { multiplies: 6.0, locked: 0.0, operations: 1.0 };
/// Locked instructions of a call away from the home VP.
const AWAY_LOCKED: f64 = 2.0;
/// Lines that move to a VP that calls a shared bag: the lock, the counts, and the vector of elements.
const LINES: f64 = 3.0;
/// Elements of a demand transfer, and lines that it moves besides theirs.
const BULK: f64 = 50.0;
const TRANSFER_LINES: f64 = 6.0;
/// Work of a get that finds the bag empty, for each shard.
const LOOK: Work = Work { multiplies: 4.0, locked: 0.0, operations: 0.0 };
/// Upper limit for the utilisation of a cache line.
const BUSY_MAX: f64 = 0.99;
/// Approximate size of the object without its representatives, and of a shard.
const ROOT_BYTES: usize = 512;
const SHARD_BYTES: usize = 512;

/// Names of the counted methods.
const PUTS: [&str; 2] = ["put_one", "put_batch"];
const GETS: [&str; 2] = ["get_one", "get_batch"];

/// Returns the cost of this load in each shape. An element that one VP puts and another one gets moves in
/// both forms, so its own lines are left out.
fn judge(
    callers: &[Caller],
    present: Shape,
    reps: usize,
    local_bytes: usize,
    costs: &MachineCosts,
) -> Vec<Cost> {
    let (line, call) = (costs.transfer_ns, CALL.ns(costs));
    let all: f64 = callers.iter().map(Caller::all).sum();
    // Calls of a VP before which another VP called.
    let fetches = |c: &Caller| (all - c.all()).min(c.all());
    let busy = (callers.iter().map(fetches).sum::<f64>() * LINES * line / 1e9).min(BUSY_MAX);
    let wait = (1.0 / (1.0 - busy)).min(callers.len().max(1) as f64);
    let shared = |place: Option<Vp>| {
        let cost = |c: &Caller| {
            let away = if Some(c.vp) == place { 0.0 } else { AWAY_LOCKED * costs.locked_ns };
            c.all() * (call + away) + fetches(c) * LINES * line * wait
        };
        let shape = Shape { form: SHARED_FORM, place };
        let bytes = ROOT_BYTES + local_bytes + SHARD_BYTES;
        Cost { shape, ns_per_s: callers.iter().map(cost).sum(), bytes }
    };
    let distributed = {
        let lacking: f64 = callers.iter().map(|c| (c.gets - c.puts).max(0.0)).sum();
        let surplus: f64 = callers.iter().map(|c| (c.puts - c.gets).max(0.0)).sum();
        let moved = lacking.min(surplus);
        let element = line * TRANSFER_LINES / BULK;
        let found_empty = (lacking - surplus).max(0.0) * LOOK.ns(costs) * (reps - 1) as f64;
        // Those that lack elements fetch the line of each put.
        let lookers = callers.iter().filter(|c| c.gets > c.puts).count().saturating_sub(1);
        let puts: f64 = callers.iter().map(|c| c.puts).sum();
        let fetched = if found_empty > 0.0 { puts * lookers as f64 * line } else { 0.0 };
        let shape = Shape { form: DISTRIBUTED_FORM, place: None };
        let bytes = ROOT_BYTES + reps * (local_bytes + SHARD_BYTES);
        Cost { shape, ns_per_s: all * call + moved * element + found_empty + fetched, bytes }
    };
    // The shared form: at its present home, and at the VP that calls most.
    let busiest = callers.iter().max_by(|a, b| a.all().total_cmp(&b.all())).map(|c| c.vp);
    let home = if present.form == SHARED_FORM { present.place } else { busiest };
    let mut result = vec![shared(home), distributed];
    if busiest.is_some() && busiest != home {
        result.push(shared(busiest));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_adapt::costs::REFERENCE;

    /// Returns the cheapest form for the puts and gets per second of each VP.
    fn best(rates: &[(f64, f64)]) -> usize {
        let callers: Vec<Caller> = rates
            .iter()
            .enumerate()
            .map(|(vp, (puts, gets))| Caller { vp: Vp::new(vp as u32), puts: *puts, gets: *gets })
            .collect();
        let present = Shape { form: SHARED_FORM, place: Some(Vp::new(0)) };
        let costs = judge(&callers, present, callers.len().max(1), 256, &REFERENCE);
        costs.iter().min_by(|a, b| a.ns_per_s.total_cmp(&b.ns_per_s)).unwrap().shape.form
    }

    #[test]
    fn dp_12_a_bag_that_several_vps_use_alike_is_distributed() {
        assert_eq!(best(&[(1e6, 1e6); 2]), DISTRIBUTED_FORM);
        assert_eq!(best(&[(1e6, 1e6); 16]), DISTRIBUTED_FORM);
    }

    #[test]
    fn dp_12_a_bag_that_one_vp_uses_stays_shared() {
        assert_eq!(best(&[(1e6, 1e6)]), SHARED_FORM);
        assert_eq!(best(&[]), SHARED_FORM);
    }

    #[test]
    fn dp_13_a_bag_that_many_vps_find_empty_is_distributed() {
        let mut rates = [(0.0, 1e6); 16];
        rates[0] = (1e4, 0.0);
        assert_eq!(best(&rates), DISTRIBUTED_FORM);
    }

    #[test]
    fn dp_14_a_bag_whose_elements_all_move_is_distributed() {
        assert_eq!(best(&[(1e6, 0.0), (0.0, 1e6)]), DISTRIBUTED_FORM);
        assert_eq!(best(&[(1e6, 0.0), (3e5, 3e5), (0.0, 1e6)]), DISTRIBUTED_FORM);
    }
}
