//! Random calls of several threads on few keys, recorded and checked for linearizability, per key and for all
//! keys together. An unrecorded thread makes the map grow and shrink meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

use super::contract::{ConcurrentMap, Load, Maker, Outcome, Step};
use super::crowd::{Meeting, Over, crowd, pause};
use super::value::{Value, Wide};
use crate::check::Checker;
use crate::history::History;
use crate::record::{Log, logs};
use crate::rng::Rng;
use crate::spec::key::is_odd;
use crate::spec::{At, Key, KeyOp, KeyRet, Keyed, Plan};

/// Log of one thread's calls on a map.
pub type MapLog = Log<At<u64, KeyOp>, KeyRet>;
/// History of several threads' calls on a map.
pub type MapHistory = History<At<u64, KeyOp>, KeyRet>;

/// Threads, calls per thread and round, and keys. A round fits into a window.
const SHAPES: &[(usize, usize, u64)] = &[(4, 7, 2), (3, 8, 3), (6, 5, 1), (2, 12, 2)];
/// First key and number of the unrecorded keys that come and go.
const BALLAST: (u64, u64) = (1_000, if cfg!(miri) { 12 } else { 300 });

/// Applies the operation to the map.
pub fn perform<V: Value>(map: &impl ConcurrentMap<V>, key: u64, op: &KeyOp, rng: &mut Rng) -> KeyRet {
    use KeyRet::{Flag, Value as Told};
    let told = |value: Option<V>| Told(value.map(|value| value.number()));
    match *op {
        KeyOp::Get => told(map.get(key)),
        KeyOp::Insert(value) => told(map.insert(key, V::of(value))),
        KeyOp::Set(value) => Flag(map.set(key, V::of(value))),
        KeyOp::TryInsert(value) => Flag(match map.try_insert(key, V::of(value)) {
            Ok(()) => true,
            // The map returned another value than it was given. No specification allows this answer.
            Err(back) if back.number() != value => return Told(Some(back.number())),
            Err(_) => false,
        }),
        KeyOp::GetOrInsert(value) => told(Some(map.get_or_insert_with(key, &mut || {
            pause(rng);
            V::of(value)
        }))),
        KeyOp::Remove => told(map.remove(key)),
        KeyOp::Discard => Flag(map.discard(key)),
        KeyOp::RemoveOdd => Flag(map.remove_if(key, &mut |value| {
            pause(rng);
            is_odd(value.number())
        })),
        KeyOp::Update(more) => {
            let mut saw = None;
            let done = map.update(key, &mut |value| {
                saw = Some(value.number());
                pause(rng);
                V::of(value.number().wrapping_add(more))
            });
            Told(saw.filter(|_| done))
        }
        KeyOp::UpdateAndPanic => update_and_panic(map, key),
        KeyOp::Compute(plan) => compute(map, key, plan, rng),
    }
}

fn compute<V: Value>(map: &impl ConcurrentMap<V>, key: u64, plan: Plan, rng: &mut Rng) -> KeyRet {
    let mut saw = None;
    map.compute(key, &mut |value| {
        saw = value.map(V::number);
        pause(rng);
        match (plan.follow(saw), saw) {
            (after, before) if after == before => Step::Keep,
            (Some(after), _) => Step::Put(V::of(after)),
            (None, _) => Step::Remove,
        }
    });
    KeyRet::Value(saw)
}

fn update_and_panic<V: Value>(map: &impl ConcurrentMap<V>, key: u64) -> KeyRet {
    let mut called = false;
    let update = || {
        map.update(key, &mut |_| {
            called = true;
            // `resume_unwind` skips the panic hook, which would print.
            resume_unwind(Box::new("planned"))
        })
    };
    match catch_unwind(AssertUnwindSafe(update)) {
        Err(_) => KeyRet::Flag(true),
        Ok(false) if !called => KeyRet::Flag(false),
        // A panic was swallowed, or a value was replaced without a call of the function. No specification
        // allows this answer.
        Ok(_) => KeyRet::Value(None),
    }
}

/// Draws an operation. The inserted values are unique.
fn draw(rng: &mut Rng, unique: u64) -> KeyOp {
    let value = unique * 2 + rng.below(2);
    match rng.below(20) {
        0..=4 => KeyOp::Get,
        5 | 6 => KeyOp::Insert(value),
        7 | 8 => KeyOp::Set(value),
        9 | 10 => KeyOp::TryInsert(value),
        11 => KeyOp::GetOrInsert(value),
        12 => KeyOp::Remove,
        13 => KeyOp::Discard,
        14 => KeyOp::RemoveOdd,
        15 | 16 => KeyOp::Update(value),
        17 => KeyOp::UpdateAndPanic,
        18 => KeyOp::Compute(Plan::Toggle(value)),
        _ => KeyOp::Compute([Plan::Add(value), Plan::DropOdd][rng.below(2) as usize]),
    }
}

/// Random calls with plain values.
pub(super) fn histories<M: Maker>(maker: &M, load: &Load) -> Outcome {
    of_values::<M, u64>(maker, load)
}

/// Random calls with values larger than a word.
pub(super) fn histories_of_wide_values<M: Maker>(maker: &M, load: &Load) -> Outcome {
    of_values::<M, Wide>(maker, load)
}

fn of_values<M: Maker, V: Value>(maker: &M, load: &Load) -> Outcome {
    for (stream, shape) in SHAPES.iter().enumerate() {
        let map = maker.make::<V>();
        let history = record(&map, load, *shape, stream as u64)?;
        check(&history, load.one_order)?;
    }
    Ok(())
}

/// Checks a history of a map that was empty at the start, for each key, and for all keys together if
/// `one_order` is promised.
///
/// # Errors
///
/// The reason why the history is refused.
pub fn check(history: &MapHistory, one_order: bool) -> Outcome {
    Checker::new(Key, None)
        .check_keys(history, |at| at.key, |at| at.op)
        .map_err(|refused| refused.to_string())?;
    if !one_order {
        return Ok(());
    }
    let whole = Checker::new(Keyed::new(Key, None), Default::default()).check(history);
    whole.map_err(|refused| format!("each key is right, and all of them together are not: {refused}"))
}

/// Records rounds of random calls. No call is in progress between two rounds, so each round is a window.
///
/// # Errors
///
/// The panic of a call.
fn record<V: Value>(
    map: &impl ConcurrentMap<V>,
    load: &Load,
    (threads, calls, keys): (usize, usize, u64),
    stream: u64,
) -> Result<MapHistory, String> {
    let places: Vec<Mutex<Option<MapLog>>> =
        logs(threads, calls * load.rounds).into_iter().map(|log| Mutex::new(Some(log))).collect();
    let rounds = Meeting::new(threads);
    let over = Over::default();
    crowd(threads + 1, |thread| {
        let mut rng = Rng::new(load.seed, stream << 8 | thread as u64);
        let Some(place) = places.get(thread) else {
            return come_and_go(map, &over);
        };
        let (member, _until) = (rounds.member(), over.until_dropped());
        let mut log = place
            .lock()
            .expect("a thread panicked under the lock")
            .take()
            .expect("the log of a thread was taken twice");
        for round in 0..load.rounds {
            member.wait();
            for call in 0..calls {
                let unique = ((round * calls + call) * threads + thread) as u64;
                let at = At { key: rng.below(keys), op: draw(&mut rng, unique) };
                pause(&mut rng);
                log.call(at, |at| perform(map, at.key, &at.op, &mut rng));
            }
        }
        *place.lock().expect("a thread panicked under the lock") = Some(log);
        Ok(())
    })?;
    let logs = places.into_iter().map(|place| {
        place.into_inner().expect("a thread panicked under the lock").expect("the log of a thread is missing")
    });
    Ok(History::from_logs(logs.collect()))
}

/// Makes the map grow and shrink until the others are done.
fn come_and_go<V: Value>(map: &impl ConcurrentMap<V>, over: &Over) -> Outcome {
    let (from, count) = BALLAST;
    while !over.is_over() {
        for key in from..from + count {
            if map.set(key, V::of(key)) {
                return Err(format!("key {key} was present before it was set"));
            }
            if key % 8 == 0 {
                std::thread::yield_now();
            }
        }
        for key in from..from + count {
            if !map.discard(key) {
                return Err(format!("key {key} was lost"));
            }
        }
        map.shrink();
    }
    Ok(())
}
