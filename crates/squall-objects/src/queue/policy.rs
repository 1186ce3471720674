//! The policy of adaptive queues: the posts of the sensors, and the cost of a load in each form.
//!
//! In the strict form the lines of the one heap move to each VP that calls, and calls wait for each other. In
//! the relaxed form a client keeps the heaps that it chose for some calls, so their lines move once for that
//! many calls. In the local form lines move when a client balances, or when its heap is empty.
//!
//! The relaxed form changes the order that callers see a little, and an adaptive queue promises no better
//! one. The local form may change it much: a client with worse elements gets those. So the policy considers
//! that form only if the program allows it.

use squall_adapt::costs::{MachineCosts, Work};
use squall_adapt::engine;
use squall_adapt::family::{Cost, Family, Form, Load, Reading, Shape};
use squall_core::swap::Replacement;
use squall_core::{CallError, Handle, info_of};
use squall_machine::{ClusterSize, Vp};
use std::marker::PhantomData;

use super::forms::{Forms, Local};
use super::{ADAPTS, Insertion, LOCAL_FORM, Queue, RELAXED_FORM, STRICT_FORM};
use crate::callers::{Caller, callers};

/// Name of the form in which an adaptive queue starts. Constructor: [`strict`](super::strict).
pub const STRICT: &str = "strict";
/// Name of the form for a queue that several VPs use. Constructor: [`relaxed`](super::relaxed).
pub const RELAXED: &str = "relaxed";
/// Name of the form with a heap for each VP. Constructor: [`local`](super::local).
pub const LOCAL: &str = "local";

/// Initial number of sensor steps until a post.
pub(super) const ALARM: u32 = 1024;

/// Asks the policy to examine the queue. Returns false if the post was dropped.
pub(super) fn post<T: Send + 'static>(handle: Handle<dyn Queue<T>>) -> bool {
    engine::post(Handle::id(handle))
}

/// Returns the family of queues of this type.
pub(super) fn family<T: Send + 'static>() -> &'static Queues<T> {
    &Queues(PhantomData)
}

pub(super) struct Queues<T>(PhantomData<fn() -> T>);

impl<T: Send + 'static> Queues<T> {
    const FORMS: [Form; 3] = [
        Form::of_root::<Forms<T, ADAPTS, STRICT_FORM>>(STRICT).described("one heap for all processors"),
        Form::of_root::<Forms<T, ADAPTS, RELAXED_FORM>>(RELAXED).described("two heaps per processor"),
        Form::of_root::<Forms<T, ADAPTS, LOCAL_FORM>>(LOCAL).described("a heap of its own per processor"),
    ];
}

impl<T: Send + 'static> Family for Queues<T> {
    type Interface = dyn Queue<T>;

    fn name(&self) -> &'static str {
        "queue"
    }

    fn forms(&self) -> &'static [Form] {
        &Self::FORMS
    }

    fn make(&self, shape: Shape, _: Handle<dyn Queue<T>>) -> Replacement<dyn Queue<T>> {
        let home = shape.place.unwrap_or_else(Vp::current);
        match shape.form {
            RELAXED_FORM => Replacement::root(Forms::<T, ADAPTS, RELAXED_FORM>::new(home), ClusterSize::Cpu),
            LOCAL_FORM => Replacement::root(Forms::<T, ADAPTS, LOCAL_FORM>::new(home), ClusterSize::Cpu),
            _ => Replacement::root(Forms::<T, ADAPTS, STRICT_FORM>::new(home), ClusterSize::Machine),
        }
    }

    fn read(&self, handle: Handle<dyn Queue<T>>) -> Result<Reading, CallError> {
        let sensors = handle.try_sensors()?;
        let bytes = info_of(Handle::id(handle)).map_or(0, |info| info.bytes);
        let (contents, _) = handle.try_contents_unarbitrated()?;
        let attributes = contents.attributes();
        let terms = Terms {
            len: contents.queue.len(),
            stickiness: attributes.stickiness(),
            balance_every: attributes.balance_every(),
            puts_balance: attributes.insertion() == Insertion::LoadBalance,
            allows_local: handle.try_allows_local()?,
        };
        Ok(Reading {
            local: sensors.local,
            foreign: sensors.foreign,
            global: sensors.dry,
            place: sensors.home,
            reps: sensors.reps,
            bytes,
            detail: terms.pack(),
        })
    }

    fn arm(&self, handle: Handle<dyn Queue<T>>, after: u32) -> Result<(), CallError> {
        handle.try_arm(after)
    }

    fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost> {
        let callers = callers(load, &PUTS, &GETS);
        let reps = if load.shape.form == STRICT_FORM { callers.len() } else { load.before.reps };
        let local_bytes = size_of::<Local<T, ADAPTS, RELAXED_FORM>>();
        let terms = Terms::unpack(load.before.detail);
        judge(&callers, load.shape, reps.max(1), local_bytes, terms, &load.costs)
    }

    /// Two moves of all elements.
    fn at_stake_ns(&self, _: Shape, reading: &Reading) -> f64 {
        SWAP + Terms::unpack(reading.detail).len as f64 * 2.0 * MOVE
    }
}

/// Terms of the queue that decide its costs, besides its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Terms {
    len: usize,
    stickiness: usize,
    balance_every: usize,
    puts_balance: bool,
    allows_local: bool,
}

/// Widths of the numbers in a reading's detail. A larger number is packed as the largest one.
const LEN_BITS: u32 = 32;
const CALLS_BITS: u32 = 15;

impl Terms {
    /// Packs the terms into a reading's detail.
    fn pack(self) -> u64 {
        let field = |value: usize, bits: u32| (value as u64).min((1 << bits) - 1);
        let numbers = [(self.stickiness, CALLS_BITS), (self.balance_every, CALLS_BITS), (self.len, LEN_BITS)];
        let packed = numbers.into_iter().fold(0, |packed, (value, bits)| packed << bits | field(value, bits));
        packed << 2 | u64::from(self.puts_balance) << 1 | u64::from(self.allows_local)
    }

    fn unpack(detail: u64) -> Terms {
        let field = |shift: u32, bits: u32| (detail >> shift & ((1 << bits) - 1)) as usize;
        Terms {
            len: field(2, LEN_BITS),
            balance_every: field(2 + LEN_BITS, CALLS_BITS),
            stickiness: field(2 + LEN_BITS + CALLS_BITS, CALLS_BITS),
            puts_balance: detail & 2 != 0,
            allows_local: detail & 1 != 0,
        }
    }
}

/// Work of a put or get in any form: the operation, a heap's lock, and a path through the heap.
const CALL: Work = Work { multiplies: 20.0, locked: 2.0, operations: 1.0 };
/// Multiplications that count a call away from the home VP, and those that choose heaps in the relaxed form.
const AWAY: f64 = 4.0;
const CHOOSE: f64 = 8.0;
/// Lines of a heap that move to a VP which calls: the lock, the counts, and those of a path through the heap.
const LINES: f64 = 4.0;
/// Work of a get that finds the queue empty, for each heap.
const LOOK: Work = Work { multiplies: 2.0, locked: 0.0, operations: 0.0 };
/// Upper limit for the utilisation of the one heap.
const BUSY_MAX: f64 = 0.99;
/// Nanoseconds of a swap there and back, and of the move of an element.
const SWAP: f64 = 90_000.0;
const MOVE: f64 = 60.0;
/// Approximate size of the object without its representatives, and of a place.
const ROOT_BYTES: usize = 512;
const PLACE_BYTES: usize = 512;

/// Names of the counted methods.
const PUTS: [&str; 2] = ["put_one", "put_batch"];
const GETS: [&str; 3] = ["get_one", "take_one", "get_batch"];

/// Returns the cost of this load in each shape. An element that one VP puts and another one gets moves in
/// each form, so its own lines are left out.
fn judge(
    callers: &[Caller],
    present: Shape,
    reps: usize,
    local_bytes: usize,
    terms: Terms,
    costs: &MachineCosts,
) -> Vec<Cost> {
    let (heap, call) = (LINES * costs.transfer_ns, CALL.ns(costs));
    let sum = |of: fn(&Caller) -> f64| callers.iter().map(of).sum::<f64>();
    let (all, puts, gets) = (sum(Caller::all), sum(|c| c.puts), sum(|c| c.gets));
    // Calls of a VP before which another VP called.
    let fetches = |c: &Caller| (all - c.all()).min(c.all());
    let busy = (callers.iter().map(fetches).sum::<f64>() * heap / 1e9).min(BUSY_MAX);
    let wait = (1.0 / (1.0 - busy)).min(callers.len().max(1) as f64);
    let strict = |place: Option<Vp>| {
        let cost = |c: &Caller| {
            let away = if Some(c.vp) == place { 0.0 } else { AWAY * costs.multiply_ns };
            c.all() * (call + away) + fetches(c) * heap * wait
        };
        let bytes = ROOT_BYTES + local_bytes + PLACE_BYTES;
        let shape = Shape { form: STRICT_FORM, place };
        Cost { shape, ns_per_s: callers.iter().map(cost).sum(), bytes }
    };
    // Gets that find the queue empty look at the heaps of each place.
    let found_empty = (gets - puts).max(0.0) * LOOK.ns(costs) * 2.0 * (reps + 1) as f64;
    let wide = |form: usize, ns_per_s: f64| {
        let bytes = ROOT_BYTES + reps * (local_bytes + PLACE_BYTES);
        Cost { shape: Shape { form, place: None }, ns_per_s: all * call + found_empty + ns_per_s, bytes }
    };
    let is_alone = callers.len() < 2;
    let relaxed = {
        let moved = if is_alone { 0.0 } else { heap / terms.stickiness.max(1) as f64 };
        wide(RELAXED_FORM, all * (CHOOSE * costs.multiply_ns + moved))
    };
    let local = || {
        let balancing = if terms.puts_balance { puts } else { gets };
        let moves =
            if is_alone || terms.balance_every == 0 { 0.0 } else { balancing / terms.balance_every as f64 };
        // Clients that get more than they put find the rest elsewhere, as far as there is a rest.
        let lacking: f64 = callers.iter().map(|c| (c.gets - c.puts).max(0.0)).sum();
        let surplus: f64 = callers.iter().map(|c| (c.puts - c.gets).max(0.0)).sum();
        let search = LOOK.ns(costs) * 2.0 * (reps + 1) as f64 + heap;
        wide(LOCAL_FORM, moves * heap + lacking.min(surplus) * search)
    };
    // The strict form: at its present home, and at the VP that calls most.
    let busiest = callers.iter().max_by(|a, b| a.all().total_cmp(&b.all())).map(|c| c.vp);
    let home = if present.form == STRICT_FORM { present.place } else { busiest };
    let mut result = vec![strict(home), relaxed];
    if terms.allows_local || present.form == LOCAL_FORM {
        result.push(local());
    }
    if busiest.is_some() && busiest != home {
        result.push(strict(busiest));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_adapt::costs::REFERENCE;

    const TERMS: Terms =
        Terms { len: 100, stickiness: 8, balance_every: 2, puts_balance: false, allows_local: false };

    /// Returns the cheapest form for the puts and gets per second of each VP.
    fn best_with(rates: &[(f64, f64)], terms: Terms) -> usize {
        let callers: Vec<Caller> = rates
            .iter()
            .enumerate()
            .map(|(vp, (puts, gets))| Caller { vp: Vp::new(vp as u32), puts: *puts, gets: *gets })
            .collect();
        let present = Shape { form: STRICT_FORM, place: Some(Vp::new(0)) };
        let costs = judge(&callers, present, callers.len().max(1), 256, terms, &REFERENCE);
        costs.iter().min_by(|a, b| a.ns_per_s.total_cmp(&b.ns_per_s)).unwrap().shape.form
    }

    fn best(rates: &[(f64, f64)]) -> usize {
        best_with(rates, TERMS)
    }

    #[test]
    fn kt_12_a_queue_that_several_vps_use_alike_is_relaxed() {
        assert_eq!(best(&[(1e6, 1e6); 2]), RELAXED_FORM);
        assert_eq!(best(&[(1e6, 1e6); 16]), RELAXED_FORM);
        assert_eq!(best(&[(1e6, 0.0), (0.0, 1e6)]), RELAXED_FORM);
    }

    #[test]
    fn kt_12_a_queue_that_one_vp_uses_stays_strict() {
        assert_eq!(best(&[(1e6, 1e6)]), STRICT_FORM);
        assert_eq!(best(&[]), STRICT_FORM);
        assert_eq!(best_with(&[(1e6, 1e6)], Terms { allows_local: true, ..TERMS }), STRICT_FORM);
        // The calls of a second VP are few.
        assert_eq!(best(&[(1e6, 1e6), (1e3, 1e3)]), STRICT_FORM);
    }

    #[test]
    fn kt_12_a_queue_becomes_local_only_if_that_is_allowed_and_balancing_is_rare() {
        let rates = [(1e6, 1e6); 8];
        let rare = Terms { balance_every: 64, ..TERMS };
        assert_eq!(best_with(&rates, rare), RELAXED_FORM);
        assert_eq!(best_with(&rates, Terms { allows_local: true, ..rare }), LOCAL_FORM);
        assert_eq!(best_with(&rates, Terms { allows_local: true, ..TERMS }), RELAXED_FORM);
        let by_puts = Terms { puts_balance: true, balance_every: 0, allows_local: true, ..TERMS };
        assert_eq!(best_with(&rates, by_puts), LOCAL_FORM);
        // Elements that all move are found by searching.
        let mut split = [(0.0, 1e6); 8];
        split[..4].fill((1e6, 0.0));
        assert_eq!(best_with(&split, Terms { allows_local: true, ..rare }), RELAXED_FORM);
    }

    #[test]
    fn a_reading_keeps_the_terms() {
        let terms = Terms { puts_balance: true, allows_local: true, ..TERMS };
        assert_eq!((Terms::unpack(TERMS.pack()), Terms::unpack(terms.pack())), (TERMS, terms));
        let large = Terms { len: usize::MAX, stickiness: usize::MAX, balance_every: 0, ..terms };
        let (len, stickiness) = (u32::MAX as usize, (1 << CALLS_BITS) - 1);
        assert_eq!(Terms::unpack(large.pack()), Terms { len, stickiness, ..large });
    }
}
