//! Wrong histories, each named after its error, with a slightly different right one beside each.

use squall_history::Event::{self, Answer, Ask};
use squall_history::spec::{
    At, Key, KeyOp, KeyRet, Keyed, Plan, Register, RegisterOp, RegisterRet, Spec, Versioned,
};
use squall_history::{Checker, History, Refused};

type Of<S> = Event<<S as Spec>::Op, <S as Spec>::Ret>;

/// A call and its return, with no event between.
fn call<O, R>(thread: usize, op: O, ret: R) -> [Event<O, R>; 2] {
    [Ask(thread, op), Answer(thread, ret)]
}

fn check<S: Spec>(spec: S, start: S::State, events: Vec<Of<S>>) -> Result<(), Refused> {
    Checker::new(spec, start).check(&History::from_events(events))
}

#[track_caller]
fn wrong<S: Spec>(spec: S, start: S::State, events: Vec<Of<S>>) {
    let refused = check(spec, start, events);
    assert!(matches!(refused, Err(Refused::Wrong(_))), "{refused:?}");
}

#[track_caller]
fn right<S: Spec>(spec: S, start: S::State, events: Vec<Of<S>>) {
    check(spec, start, events).unwrap_or_else(|refused| panic!("{refused}"));
}

const NONE: KeyRet = KeyRet::Value(None);
const YES: KeyRet = KeyRet::Flag(true);
const NO: KeyRet = KeyRet::Flag(false);

fn some(value: u64) -> KeyRet {
    KeyRet::Value(Some(value))
}

#[test]
fn stale_read() {
    let write = call(0, KeyOp::Insert(2), some(1));
    wrong(Key, Some(1), [write.clone(), call(1, KeyOp::Get, some(1))].concat());
    // During the write, both values are right.
    let [ask, answer] = write;
    right(Key, Some(1), [vec![ask], call(1, KeyOp::Get, some(1)).into(), vec![answer]].concat());
}

#[test]
fn lost_update() {
    let both_at_once = |second| {
        vec![Ask(0, KeyOp::Update(1)), Ask(1, KeyOp::Update(1)), Answer(0, some(0)), Answer(1, some(second))]
    };
    wrong(Key, Some(0), both_at_once(0));
    right(Key, Some(0), both_at_once(1));
    // The two updates returned different values, but the sum is wrong.
    let sum = |value| [both_at_once(1), call(2, KeyOp::Get, some(value)).into()].concat();
    wrong(Key, Some(0), sum(1));
    right(Key, Some(0), sum(2));
}

#[test]
fn lost_insert() {
    wrong(Key, None, [call(0, KeyOp::Insert(1), NONE), call(0, KeyOp::Get, NONE)].concat());
    right(Key, None, [call(0, KeyOp::Insert(1), NONE), call(0, KeyOp::Get, some(1))].concat());
}

#[test]
fn resurrected_key() {
    // An update that began before the removal writes the key back after it.
    let events = |last| {
        let during = call(1, KeyOp::Remove, some(1));
        [
            vec![Ask(0, KeyOp::Update(1))],
            during.into(),
            vec![Answer(0, some(1))],
            call(1, KeyOp::Get, last).into(),
        ]
        .concat()
    };
    wrong(Key, Some(1), events(some(2)));
    wrong(Key, Some(1), events(NONE));
    // An update of an absent key changes nothing.
    let during = call(1, KeyOp::Remove, some(1));
    let none = [
        vec![Ask(0, KeyOp::Update(1))],
        during.into(),
        vec![Answer(0, NONE)],
        call(1, KeyOp::Get, NONE).into(),
    ];
    right(Key, Some(1), none.concat());
    let plain = |last| [call(0, KeyOp::Discard, YES), call(1, KeyOp::Get, last)].concat();
    wrong(Key, Some(1), plain(some(1)));
    right(Key, Some(1), plain(NONE));
}

#[test]
fn two_winners_of_try_insert() {
    let events = |second| {
        vec![Ask(0, KeyOp::TryInsert(1)), Ask(1, KeyOp::TryInsert(2)), Answer(0, YES), Answer(1, second)]
    };
    wrong(Key, None, events(YES));
    right(Key, None, events(NO));
    // A removal between them lets both succeed.
    let removed = [vec![Ask(2, KeyOp::Discard)], events(YES), vec![Answer(2, YES)]];
    right(Key, None, removed.concat());
}

#[test]
fn no_winner_of_try_insert() {
    let nobody = vec![Ask(0, KeyOp::TryInsert(1)), Ask(1, KeyOp::TryInsert(2)), Answer(0, NO), Answer(1, NO)];
    wrong(Key, None, nobody);
}

#[test]
fn two_values_of_get_or_insert() {
    let events = |second| {
        vec![
            Ask(0, KeyOp::GetOrInsert(1)),
            Ask(1, KeyOp::GetOrInsert(2)),
            Answer(0, some(1)),
            Answer(1, second),
        ]
    };
    wrong(Key, None, events(some(2)));
    right(Key, None, events(some(1)));
}

#[test]
fn read_from_the_future() {
    wrong(Key, None, [call(0, KeyOp::Get, some(7)), call(1, KeyOp::Insert(7), NONE)].concat());
    let [ask, answer] = call(1, KeyOp::Insert(7), NONE);
    right(Key, None, [vec![ask], call(0, KeyOp::Get, some(7)).into(), vec![answer]].concat());
}

#[test]
fn read_out_of_thin_air() {
    wrong(Key, None, [call(0, KeyOp::Insert(7), NONE), call(1, KeyOp::Get, some(8))].concat());
}

#[test]
fn two_reads_reversed() {
    // During one write, one reader sees it, and a later reader does not.
    let events = |first, second| {
        let reads = [call(1, KeyOp::Get, first), call(2, KeyOp::Get, second)].concat();
        [vec![Ask(0, KeyOp::Set(2))], reads, vec![Answer(0, YES)]].concat()
    };
    wrong(Key, Some(1), events(some(2), some(1)));
    right(Key, Some(1), events(some(1), some(2)));
}

#[test]
fn two_writes_seen_in_two_orders() {
    let writes = vec![Ask(0, KeyOp::Set(1)), Ask(1, KeyOp::Set(2))];
    let reads = |third| {
        [call(2, KeyOp::Get, some(1)), call(2, KeyOp::Get, some(2)), call(3, KeyOp::Get, third)].concat()
    };
    let answers = vec![Answer(0, YES), Answer(1, YES)];
    wrong(Key, Some(0), [writes.clone(), reads(some(1)), answers.clone()].concat());
    right(Key, Some(0), [writes, reads(some(2)), answers].concat());
}

#[test]
fn removed_twice() {
    let events =
        |second| vec![Ask(0, KeyOp::Remove), Ask(1, KeyOp::Remove), Answer(0, some(1)), Answer(1, second)];
    wrong(Key, Some(1), events(some(1)));
    right(Key, Some(1), events(NONE));
}

#[test]
fn removed_an_even_value() {
    // The value is odd only before the completed update.
    let events = |removed| [call(0, KeyOp::Update(1), some(1)), call(1, KeyOp::RemoveOdd, removed)].concat();
    wrong(Key, Some(1), events(YES));
    right(Key, Some(1), events(NO));
}

#[test]
fn compute_on_an_old_value() {
    let toggle = |value, saw| call(0, KeyOp::Compute(Plan::Toggle(value)), saw);
    wrong(Key, None, [toggle(1, NONE), toggle(2, NONE)].concat());
    right(Key, None, [toggle(1, NONE), toggle(2, some(1)), toggle(3, NONE)].concat());
}

#[test]
fn a_panicking_closure_changes_state() {
    let panicked = call(0, KeyOp::UpdateAndPanic, YES);
    wrong(Key, Some(1), [panicked.clone(), call(0, KeyOp::Get, NONE)].concat());
    right(Key, Some(1), [panicked, call(0, KeyOp::Get, some(1))].concat());
}

#[test]
fn a_write_that_never_returned_undone() {
    let begun = vec![Ask(0, KeyOp::Insert(2))];
    let seen = call(1, KeyOp::Get, some(2));
    right(Key, Some(1), [begun.clone(), seen.to_vec()].concat());
    right(Key, Some(1), [begun.clone(), call(1, KeyOp::Get, some(1)).to_vec()].concat());
    wrong(Key, Some(1), [begun, seen.to_vec(), call(1, KeyOp::Get, some(1)).to_vec()].concat());
}

/// Each key alone is right, but the four calls have no common order.
#[test]
fn each_misses_the_other() {
    let at = |key, op| At { key, op };
    let set = |thread, key| call(thread, at(key, KeyOp::Set(1)), NO);
    let get = |thread, key, ret| call(thread, at(key, KeyOp::Get), ret);
    let map = || Keyed::new(Key, None);
    // On a time line one of the two reads began last, and must see the other thread's write.
    let events = |first, second| {
        let [set_1, done_1] = set(1, 'y');
        let [get_1, got_1] = get(1, 'x', second);
        let [get_0, got_0] = get(0, 'y', first);
        [set(0, 'x').to_vec(), vec![set_1, get_0, done_1, get_1, got_0, got_1]].concat()
    };
    wrong(map(), Default::default(), events(NONE, NONE));
    right(map(), Default::default(), events(NONE, some(1)));
    // As recorded, neither thread knew of the other, so the separate keys show no error.
    let mut logs = squall_history::logs(2, 2);
    let mut second = logs.pop().expect("two logs");
    let mut first = logs.pop().expect("two logs");
    let lines = [(&mut first, 'x', 'y'), (&mut second, 'y', 'x')];
    let mut lines = lines.map(|(log, own, other)| {
        log.begin(at(own, KeyOp::Set(1)));
        (log, other)
    });
    for (log, _) in &mut lines {
        log.end(NO);
    }
    for (log, other) in &mut lines {
        log.call(at(*other, KeyOp::Get), |_| NONE);
    }
    let history = History::from_logs(vec![first, second]);
    assert!(matches!(Checker::new(map(), Default::default()).check(&history), Err(Refused::Wrong(_))));
}

fn both(version: u64, value: u64) -> RegisterRet {
    RegisterRet::Both(Versioned { version, value })
}

fn conflict(version: u64, value: u64) -> RegisterRet {
    RegisterRet::Conflict(Versioned { version, value })
}

const ZERO: Versioned = Versioned { version: 0, value: 0 };

#[test]
fn two_winners_of_compare_and_update() {
    let events = |second| {
        vec![
            Ask(0, RegisterOp::CompareAndUpdate(0, 5)),
            Ask(1, RegisterOp::CompareAndUpdate(0, 6)),
            Answer(0, RegisterRet::Version(1)),
            Answer(1, second),
        ]
    };
    wrong(Register, ZERO, events(RegisterRet::Version(1)));
    right(Register, ZERO, events(conflict(1, 5)));
    wrong(Register, ZERO, events(conflict(0, 0)));
}

#[test]
fn a_version_without_its_value() {
    let write = call(0, RegisterOp::Write(5), RegisterRet::Done).to_vec();
    let read = |ret| call(1, RegisterOp::ReadVersioned, ret).to_vec();
    wrong(Register, ZERO, [write.clone(), read(both(1, 0))].concat());
    wrong(Register, ZERO, [write.clone(), read(both(0, 5))].concat());
    right(Register, ZERO, [write, read(both(1, 5))].concat());
}

#[test]
fn a_version_that_goes_back() {
    let reads = |first, second| {
        let version = |thread, version| call(thread, RegisterOp::Version, RegisterRet::Version(version));
        let reads = [version(1, first), version(2, second)].concat();
        [vec![Ask(0, RegisterOp::Write(5))], reads, vec![Answer(0, RegisterRet::Done)]].concat()
    };
    wrong(Register, ZERO, reads(1, 0));
    right(Register, ZERO, reads(0, 1));
}

#[test]
fn a_lost_update_of_a_register() {
    let update = |thread, before| call(thread, RegisterOp::Update(1), RegisterRet::Value(before));
    let read = call(2, RegisterOp::Read, RegisterRet::Value(1)).to_vec();
    wrong(Register, ZERO, [update(0, 0).to_vec(), update(1, 0).to_vec(), read.clone()].concat());
    right(Register, ZERO, [update(0, 0).to_vec(), read, update(1, 1).to_vec()].concat());
}

/// The printed explanation names the key, shows only the relevant calls, and gives the expected answer.
#[test]
fn the_explanation_shows_only_relevant_calls() {
    let at = |key, op| At { key, op };
    let mut events = Vec::new();
    for round in 0..20 {
        let before = if round == 0 { NONE } else { some(round - 1) };
        events.extend(call(0, at('a', KeyOp::Insert(round)), before));
        events.extend(call(1, at('b', KeyOp::Get), NONE));
        events.extend(call(2, at('a', KeyOp::Get), some(round)));
    }
    events.extend(call(2, at('a', KeyOp::Get), some(3)));
    let checker = Checker::new(Key, None);
    let refused = checker.check_keys(&History::from_events(events), |at| at.key, |at| at.op);
    let Err(Refused::Wrong(text)) = refused else { panic!("{refused:?}") };
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "key 'a'",
            "t2 #20  Get -> Value(Some(3))  []",
            "state before: Some(19)",
            "longest order that fits: empty; state after it: Some(19)",
            "next, t2 #20 should have returned Value(Some(19))",
        ]
    );
}
