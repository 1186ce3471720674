//! Compares the checker with a brute-force search on small histories, and tests its limits and the printed
//! explanation.

use proptest::prelude::*;

use super::*;
use crate::history::Event::{Answer, Ask};
use crate::history::Raw;
use crate::spec::{At, Key, KeyOp, KeyRet, Keyed, Plan};

type KeyHistory = History<KeyOp, KeyRet>;

/// Whether an order exists, by trying all of them.
fn brute_force<S: Spec>(spec: &S, start: &S::State, history: &History<S::Op, S::Ret>) -> bool {
    fn extend<S: Spec>(
        spec: &S,
        state: &S::State,
        done: &mut Vec<usize>,
        calls: &[Call<S::Op, S::Ret>],
    ) -> bool {
        let is_left = |call: usize, done: &[usize]| !done.contains(&call);
        if (0..calls.len()).all(|call| calls[call].ret.is_none() || !is_left(call, done)) {
            return true;
        }
        for next in 0..calls.len() {
            let early = (0..calls.len()).any(|a| is_left(a, done) && calls[a].is_before(&calls[next]));
            if !is_left(next, done) || early {
                continue;
            }
            let (state, ret) = spec.apply(state, &calls[next].op);
            if calls[next].ret.as_ref().is_some_and(|told| *told != ret) {
                continue;
            }
            done.push(next);
            if extend(spec, &state, done, calls) {
                return true;
            }
            done.pop();
        }
        false
    }
    extend(spec, start, &mut Vec::new(), history.calls())
}

/// An operation with one of a few values, from one byte.
fn op(byte: u8) -> KeyOp {
    let value = u64::from(byte >> 5) % 4;
    match byte % 11 {
        0 | 1 => KeyOp::Get,
        2 => KeyOp::Insert(value),
        3 => KeyOp::Set(value),
        4 => KeyOp::TryInsert(value),
        5 => KeyOp::GetOrInsert(value),
        6 => KeyOp::Remove,
        7 => KeyOp::Discard,
        8 => KeyOp::RemoveOdd,
        9 => KeyOp::Update(value),
        _ => KeyOp::Compute([Plan::Toggle(value), Plan::Add(value), Plan::DropOdd][byte as usize % 3]),
    }
}

/// State of a thread in a generated history.
#[derive(Clone, Copy)]
enum At1 {
    Idle,
    Asked,
    Done(KeyRet),
}

/// Generates a history of at most `calls_max` calls on three threads. Each byte advances one thread by a
/// step. Some answers are then corrupted, and some seen calls forgotten. About half of the histories are
/// linearizable.
fn generated(moves: &[u8], wrongs: &[u8], forgotten: &[u8], calls_max: usize) -> KeyHistory {
    const THREADS: usize = 3;
    let mut state = None;
    let mut now = [At1::Idle; THREADS];
    let mut raw: Vec<Vec<Raw<KeyOp, KeyRet>>> = vec![Vec::new(); THREADS];
    let mut ended = vec![0; THREADS];
    let mut wrongs = wrongs.iter();
    let mut calls = 0;
    for pair in moves.chunks_exact(2) {
        let thread = pair[0] as usize % THREADS;
        now[thread] = match now[thread] {
            At1::Idle if calls == calls_max => At1::Idle,
            At1::Idle => {
                calls += 1;
                let mut seen: Vec<u32> = ended.clone();
                seen[thread] = raw[thread].len() as u32;
                raw[thread].push((op(pair[1]), None, seen));
                At1::Asked
            }
            At1::Asked => {
                let (after, ret) = Key.apply(&state, &raw[thread][raw[thread].len() - 1].0);
                state = after;
                At1::Done(ret)
            }
            At1::Done(ret) => {
                let ret = match (wrongs.next(), ret) {
                    (Some(0..40), KeyRet::Flag(flag)) => KeyRet::Flag(!flag),
                    (Some(by @ 0..40), KeyRet::Value(_)) => {
                        KeyRet::Value([None, Some(1), Some(2)][*by as usize % 3])
                    }
                    _ => ret,
                };
                let last = raw[thread].len() - 1;
                raw[thread][last].1 = Some(ret);
                ended[thread] = raw[thread].len() as u32;
                At1::Idle
            }
        };
    }
    let others = raw.iter_mut().enumerate().flat_map(|(thread, calls)| {
        let others = move |(other, _): &(usize, _)| *other != thread;
        calls.iter_mut().flat_map(move |(_, _, seen)| seen.iter_mut().enumerate().filter(others))
    });
    for ((_, seen), less) in others.zip(forgotten) {
        *seen = seen.saturating_sub(u32::from(*less / 128));
    }
    History::assemble(raw)
}

fn verdict(history: &KeyHistory) -> bool {
    match Checker::new(Key, None).check(history) {
        Ok(()) => true,
        Err(Refused::Wrong(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 16 } else { 3_000 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_brute_force(
        moves in prop::collection::vec(any::<u8>(), 20..60),
        wrongs in prop::collection::vec(any::<u8>(), 6),
        forgotten in prop::collection::vec(any::<u8>(), 0..14),
    ) {
        let history = generated(&moves, &wrongs, &forgotten, 7);
        prop_assert_eq!(verdict(&history), brute_force(&Key, &None, &history), "{:?}", history);
    }

    #[test]
    fn two_keys_agree_with_brute_force(
        moves in prop::collection::vec(any::<u8>(), 20..60),
        wrongs in prop::collection::vec(any::<u8>(), 6),
        keys in prop::collection::vec(0..2_u8, 7),
    ) {
        let history = generated(&moves, &wrongs, &[], 7);
        let key = std::cell::Cell::new(0);
        let history = history.map(|op| {
            let at = key.replace(key.get() + 1);
            At { key: keys[at], op: *op }
        });
        let spec = Keyed::new(Key, None);
        let whole = Checker::new(Keyed::new(Key, None), Default::default()).check(&history).is_ok();
        prop_assert_eq!(whole, brute_force(&spec, &Default::default(), &history));
        // Nothing was forgotten, so the order is that of a time line, and keys may be checked separately.
        let by_key = Checker::new(Key, None).check_keys(&history, |at| at.key, |at| at.op).is_ok();
        prop_assert_eq!(whole, by_key);
    }

    #[test]
    fn generated_histories_without_errors_are_right(
        moves in prop::collection::vec(any::<u8>(), 100..400),
        forgotten in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let history = generated(&moves, &[], &forgotten, 60);
        prop_assert_eq!(Checker::new(Key, None).check(&history), Ok(()));
    }
}

/// The generator is useful only if both verdicts are frequent.
#[test]
#[cfg_attr(miri, ignore = "a statistic; other tests run this code")]
fn both_verdicts_are_common() {
    let mut rng = crate::rng::Rng::new(1, 1);
    let mut bytes = |count: usize| -> Vec<u8> { (0..count).map(|_| rng.draw() as u8).collect() };
    let right = (0..1_000).filter(|_| verdict(&generated(&bytes(60), &bytes(6), &bytes(8), 7))).count();
    assert!((200..800).contains(&right), "{right} of 1,000 are right");
}

#[test]
fn a_long_window_is_undecided() {
    let count = WINDOW_CALLS_MAX + 1;
    let asked = (0..count).map(|thread| Ask(thread, KeyOp::Get));
    let answered = (0..count).map(|thread| Answer(thread, KeyRet::Value(None)));
    let history = History::from_events(asked.chain(answered));
    assert_eq!(Checker::new(Key, None).check(&history), Err(Refused::TooLong(count)));
}

#[test]
fn a_long_history_of_short_windows_is_decided() {
    let windows = if cfg!(miri) { 50 } else { 10_000_u64 };
    let events = (0..windows).flat_map(|at| {
        let before = KeyRet::Value(at.checked_sub(1));
        [
            Ask(0, KeyOp::Insert(at)),
            Ask(1, KeyOp::GetOrInsert(at)),
            Answer(0, before),
            Answer(1, KeyRet::Value(Some(at))),
        ]
    });
    assert_eq!(Checker::new(Key, None).check(&History::from_events(events)), Ok(()));
}

#[test]
fn too_few_steps_give_no_verdict() {
    let threads = if cfg!(miri) { 6 } else { 12 };
    let asked = (0..threads).map(|thread| Ask(thread, KeyOp::Update(1 << thread)));
    let answered = (0..threads).map(|thread| Answer(thread, KeyRet::Value(Some(1))));
    let history = History::from_events(asked.chain(answered));
    let refused = Checker::new(Key, Some(0)).steps_max(3).check(&history);
    assert!(matches!(refused, Err(Refused::Wrong(_))), "no call fits first: {refused:?}");
    let answered = (0..threads).map(|thread| Answer(thread, KeyRet::Flag(true)));
    let asked = (0..threads).map(|thread| Ask(thread, KeyOp::Set(thread as u64)));
    let last = [Ask(0, KeyOp::Get), Answer(0, KeyRet::Value(Some(99)))];
    let history = History::from_events(asked.chain(answered).chain(last));
    let checker = Checker::new(Key, Some(0));
    assert_eq!(checker.clone().steps_max(100).check(&history), Err(Refused::TooHard(100)));
    assert!(matches!(checker.check(&history), Err(Refused::Wrong(_))));
}

/// Only a late write of the already present value explains this history. A checker that does such a write
/// early is wrong.
#[test]
fn a_write_of_the_present_value_may_come_late() {
    let events = [
        Ask(0, KeyOp::Set(0)),
        Ask(1, KeyOp::Update(3)),
        Answer(1, KeyRet::Value(Some(0))),
        Answer(0, KeyRet::Flag(true)),
        Ask(1, KeyOp::Get),
        Answer(1, KeyRet::Value(Some(0))),
    ];
    assert_eq!(Checker::new(Key, Some(0)).check(&History::from_events(events)), Ok(()));
}

/// A write that never returned may be seen in a later window, once.
#[test]
fn an_unreturned_call_may_come_late_but_once() {
    let get = |thread, value| [Ask(thread, KeyOp::Get), Answer(thread, KeyRet::Value(value))];
    let remove = [Ask(1, KeyOp::Remove), Answer(1, KeyRet::Value(Some(5)))];
    let begin = [Ask(0, KeyOp::Insert(5))];
    let late: Vec<_> =
        begin.iter().cloned().chain(get(1, None)).chain(get(1, Some(5))).chain(remove).collect();
    assert_eq!(Checker::new(Key, None).check(&History::from_events(late.clone())), Ok(()));
    let twice = late.into_iter().chain(get(2, Some(5)));
    assert!(matches!(Checker::new(Key, None).check(&History::from_events(twice)), Err(Refused::Wrong(_))));
}

/// A write that never returned is not seen before it began.
#[test]
fn an_unreturned_call_is_not_seen_before_its_beginning() {
    let get = |value| [Ask(1, KeyOp::Get), Answer(1, KeyRet::Value(value))];
    let events = get(Some(5)).into_iter().chain([Ask(0, KeyOp::Insert(5))]).chain(get(Some(5)));
    assert!(matches!(Checker::new(Key, None).check(&History::from_events(events)), Err(Refused::Wrong(_))));
}

#[test]
fn the_explanation_is_minimal() {
    let mut events = Vec::new();
    for at in 0..10 {
        let old = at - 1;
        events.extend([Ask(0, KeyOp::Insert(at as u64)), Ask(2, KeyOp::Get)]);
        events.push(Answer(0, KeyRet::Value((old >= 0).then_some(old as u64))));
        events.push(Answer(2, KeyRet::Value(Some(at as u64))));
    }
    events.extend([Ask(0, KeyOp::Set(77)), Ask(2, KeyOp::Get), Ask(3, KeyOp::Get)]);
    events.extend([Answer(0, KeyRet::Flag(true)), Ask(1, KeyOp::Get), Answer(3, KeyRet::Value(Some(77)))]);
    events.extend([Answer(1, KeyRet::Value(Some(9))), Answer(2, KeyRet::Value(Some(9)))]);
    let refused = Checker::new(Key, None).check(&History::from_events(events));
    let expected = "  \
t0 #10  Set(77) -> Flag(true)  []
  t1 #0  Get -> Value(Some(9))    []
  state before: Some(9)
  longest order that fits: t0 #10; state after it: Some(77)
  next, t1 #0 should have returned Value(Some(77))
";
    let Err(Refused::Wrong(text)) = refused else { panic!("{refused:?}") };
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(squeezed(&text), squeezed(expected), "\n{text}");
}
