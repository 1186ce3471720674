//! Random operations of one thread on a map, compared with std's map after each.

use std::collections::BTreeMap;

use super::contract::{ConcurrentMap, Load, Maker, Outcome, ensure};
use super::crowd::caught;
use super::random::perform;
use super::value::{Value, Wide};
use crate::rng::Rng;
use crate::spec::{Key, KeyOp, Plan, Spec};

/// An operation on a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// An operation on one key.
    On(u64, KeyOp),
    /// Sets this many consecutive keys from the first on, so that the map grows.
    Fill(u64, u64),
    /// Retains the keys with this remainder modulo the second number.
    Retain(u64, u64),
    /// Clears the map.
    Clear,
    /// Compares all entries.
    Visit,
    /// Reserves room for this many entries.
    Reserve(u64),
    /// Shrinks the map.
    Shrink,
}

/// Bytes per operation.
pub const ACT_BYTES: usize = 4;
/// Number of keys for single operations.
const KEYS: u64 = 24;
/// Operations in a random sequence.
const ACTS: usize = if cfg!(miri) { 60 } else { 400 };
/// Maximum number of keys that one operation fills in.
const FILL_MAX: u64 = if cfg!(miri) { 20 } else { 250 };

impl Act {
    /// Decodes an operation. Each group of four bytes is one operation, so shorter byte sequences give
    /// simpler tests.
    pub fn from_bytes(bytes: [u8; ACT_BYTES]) -> Act {
        let [which, key, value, more] = bytes.map(u64::from);
        let value = match value {
            255 => u64::MAX,
            254 => 1 << 63,
            value => value,
        };
        let key = match key {
            255 => u64::MAX,
            key => key % KEYS,
        };
        let op = match which % 32 {
            0..=2 => KeyOp::Get,
            3 | 4 => KeyOp::Insert(value),
            5 | 6 => KeyOp::Set(value),
            7 | 8 => KeyOp::TryInsert(value),
            9 | 10 => KeyOp::GetOrInsert(value),
            11..=13 => KeyOp::Remove,
            14 | 15 => KeyOp::Discard,
            16 | 17 => KeyOp::RemoveOdd,
            18..=20 => KeyOp::Update(value),
            21 => KeyOp::UpdateAndPanic,
            22 | 23 => KeyOp::Compute(Plan::Toggle(value)),
            24 => KeyOp::Compute(Plan::Add(value)),
            25 => KeyOp::Compute(Plan::DropOdd),
            26 => return Act::Fill(key, more % FILL_MAX),
            27 => return Act::Retain(more % 4, 2 + more % 3),
            28 if more < 64 => return Act::Clear,
            29 => return Act::Reserve(more * 4),
            30 => return Act::Shrink,
            _ => return Act::Visit,
        };
        Act::On(key, op)
    }

    /// Decodes all operations; incomplete groups at the end are ignored.
    pub fn all_from_bytes(bytes: &[u8]) -> Vec<Act> {
        bytes.as_chunks().0.iter().copied().map(Act::from_bytes).collect()
    }
}

/// Applies the operations to the map and to std's map.
///
/// # Errors
///
/// The first difference.
pub fn follow<V: Value>(map: &impl ConcurrentMap<V>, acts: &[Act]) -> Outcome {
    let mut model = BTreeMap::new();
    let mut rng = Rng::new(0, 0);
    for (at, act) in acts.iter().enumerate() {
        step(map, &mut model, act, &mut rng).map_err(|what| format!("act {at}, {act:?}: {what}"))?;
        ensure!(map.len() == model.len(), "act {at}, {act:?}: len is {}, of {}", map.len(), model.len());
    }
    visit(map, &model)
}

fn step<V: Value>(
    map: &impl ConcurrentMap<V>,
    model: &mut BTreeMap<u64, u64>,
    act: &Act,
    rng: &mut Rng,
) -> Outcome {
    match *act {
        Act::On(key, op) => {
            let (after, right) = Key.apply(&model.get(&key).copied(), &op);
            let ret = perform(map, key, &op, rng);
            ensure!(ret == right, "{ret:?}, not {right:?}");
            match after {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
            let now = map.get(key).map(|value| value.number());
            ensure!(now == after, "the key then holds {now:?}, not {after:?}");
        }
        Act::Fill(from, count) => {
            for key in (from..=u64::MAX).take(count as usize) {
                let was = map.set(key, V::of(key));
                ensure!(was == model.insert(key, key).is_some(), "set said {was} of {key}");
            }
        }
        Act::Retain(rest, by) => {
            let mut seen = BTreeMap::new();
            map.retain(&mut |key, value| {
                *seen.entry(key).or_insert(0) += 1;
                (key.wrapping_add(value.number())) % by == rest
            });
            ensure!(seen.values().all(|times| *times == 1), "retain showed an entry twice");
            ensure!(seen.keys().eq(model.keys()), "retain showed other entries than are present");
            model.retain(|key, value| key.wrapping_add(*value) % by == rest);
        }
        Act::Clear => {
            map.clear();
            model.clear();
        }
        Act::Reserve(more) => map.reserve(more as usize),
        Act::Shrink => map.shrink(),
        Act::Visit => {}
    }
    match act {
        Act::On(..) => Ok(()),
        _ => visit(map, model),
    }
}

/// Checks that iteration shows each entry once, and no other entries.
fn visit<V: Value>(map: &impl ConcurrentMap<V>, model: &BTreeMap<u64, u64>) -> Outcome {
    let mut found = Vec::new();
    map.for_each(&mut |key, value| found.push((key, value.number())));
    found.sort_unstable();
    let right: Vec<_> = model.iter().map(|(key, value)| (*key, *value)).collect();
    ensure!(found == right, "the map holds {found:?}, not {right:?}");
    for (key, value) in right {
        let got = map.get(key).map(|value| value.number());
        ensure!(got == Some(value), "key {key} holds {got:?}, not {value}");
    }
    Ok(())
}

/// Compares random operations of one thread with std's map, for plain and wide values. A failing sequence is
/// shortened.
pub(super) fn sequential<M: Maker>(maker: &M, load: &Load) -> Outcome {
    for stream in 0..load.rounds.div_ceil(6) as u64 {
        let mut rng = Rng::new(load.seed, stream);
        let acts: Vec<Act> = (0..ACTS).map(|_| Act::from_bytes((rng.draw() as u32).to_le_bytes())).collect();
        one_sequence(&acts, |acts| follow(&maker.make::<u64>(), acts))?;
        one_sequence(&acts, |acts| follow(&maker.make::<Wide>(), acts))?;
    }
    Ok(())
}

fn one_sequence(acts: &[Act], run: impl Fn(&[Act]) -> Outcome) -> Outcome {
    let run = |acts: &[Act]| caught(|| run(acts));
    let Err(what) = run(acts) else { return Ok(()) };
    let acts = shorter(acts, |acts| run(acts).is_err());
    let what = run(&acts).err().unwrap_or(what);
    Err(format!("{what}\nof {acts:?}"))
}

/// Shortens a failing sequence by omitting ever smaller pieces.
fn shorter(acts: &[Act], fails: impl Fn(&[Act]) -> bool) -> Vec<Act> {
    let mut acts = acts.to_vec();
    let mut piece = acts.len() / 2;
    while piece > 0 {
        let mut from = 0;
        while from < acts.len() {
            let mut less = acts.clone();
            less.drain(from..acts.len().min(from + piece));
            if fails(&less) {
                acts = less;
            } else {
                from += piece;
            }
        }
        piece /= 2;
    }
    acts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "many runs of safe code")]
    fn a_failing_sequence_is_shortened() {
        let mut rng = Rng::new(1, 1);
        let acts = Act::all_from_bytes(&(0..2_000).map(|_| rng.draw() as u8).collect::<Vec<_>>());
        let fails =
            |acts: &[Act]| acts.iter().any(|act| matches!(act, Act::Shrink)) && acts.contains(&Act::Visit);
        assert!(fails(&acts));
        let acts = shorter(&acts, fails);
        assert_eq!(acts.len(), 2, "{acts:?}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "a statistic")]
    fn all_operations_are_drawn() {
        let mut rng = Rng::new(1, 1);
        let mut drawn: Vec<_> = (0..4_000)
            .map(|_| match Act::from_bytes((rng.draw() as u32).to_le_bytes()) {
                Act::On(_, op) => format!("{op:?}").split('(').take(2).collect::<Vec<_>>().concat(),
                act => format!("{act:?}"),
            })
            .map(|text| text.chars().filter(|c| c.is_alphabetic()).collect::<String>())
            .collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 19, "{drawn:?}");
    }
}
