//! Compares the verdicts with those of another checker, `stateright`'s tester.

use squall_history::Event::{Answer, Ask};
use squall_history::rng::Rng;
use squall_history::spec::{Key, KeyOp, KeyRet, Plan, Register, RegisterOp, RegisterRet, Spec, Versioned};
use squall_history::{Checker, Event, History, Refused};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

const HISTORIES: u64 = if cfg!(miri) { 20 } else { 4_000 };
const THREADS: u64 = 4;

/// Adapts a specification to `stateright`.
struct Theirs<S: Spec>(S, S::State);

impl<S: Spec + Clone> Clone for Theirs<S> {
    fn clone(&self) -> Self {
        Theirs(self.0.clone(), self.1.clone())
    }
}

impl<S: Spec> SequentialSpec for Theirs<S> {
    type Op = S::Op;
    type Ret = S::Ret;

    fn invoke(&mut self, op: &S::Op) -> S::Ret {
        let (after, ret) = self.0.apply(&self.1, op);
        self.1 = after;
        ret
    }
}

fn by_theirs<S: Spec + Clone>(spec: S, start: S::State, events: &[Event<S::Op, S::Ret>]) -> bool {
    let mut tester = LinearizabilityTester::new(Theirs(spec, start));
    for event in events.iter().cloned() {
        match event {
            Ask(thread, op) => tester.on_invoke(thread, op),
            Answer(thread, ret) => tester.on_return(thread, ret),
        }
        .expect("the events are in order");
    }
    tester.is_consistent()
}

fn by_ours<S: Spec>(spec: S, start: S::State, events: &[Event<S::Op, S::Ret>]) -> bool {
    match Checker::new(spec, start).check(&History::from_events(events.iter().cloned())) {
        Ok(()) => true,
        Err(Refused::Wrong(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

/// The open call of a thread: its operation, and its answer once it took effect.
type Open<S> = Option<(<S as Spec>::Op, Option<<S as Spec>::Ret>)>;

/// Events of threads with random calls. Each call takes effect between its beginning and its return. Some
/// answers are corrupted, and some calls never return.
fn events<S: Spec>(
    rng: &mut Rng,
    spec: &S,
    mut state: S::State,
    op: impl Fn(&mut Rng) -> S::Op,
    other: impl Fn(&mut Rng, S::Ret) -> S::Ret,
) -> Vec<Event<S::Op, S::Ret>> {
    let mut open: Vec<Open<S>> = (0..THREADS).map(|_| None).collect();
    let mut events = Vec::new();
    for _ in 0..rng.below(36) {
        let thread = rng.below(THREADS) as usize;
        open[thread] = match open[thread].take() {
            None => {
                let op = op(rng);
                events.push(Ask(thread, op.clone()));
                Some((op, None))
            }
            Some((op, None)) => {
                let (after, ret) = spec.apply(&state, &op);
                state = after;
                let ret = if rng.one_in(12) { other(rng, ret) } else { ret };
                Some((op, Some(ret)))
            }
            Some((_, Some(ret))) => {
                events.push(Answer(thread, ret));
                None
            }
        };
    }
    events
}

fn compare<S: Spec + Clone>(
    spec: S,
    start: S::State,
    op: impl Fn(&mut Rng) -> S::Op,
    other: impl Fn(&mut Rng, S::Ret) -> S::Ret,
) {
    let mut right = 0;
    for seed in 0..HISTORIES {
        let mut rng = Rng::new(seed, 1);
        let events = events(&mut rng, &spec, start.clone(), &op, &other);
        let ours = by_ours(spec.clone(), start.clone(), &events);
        assert_eq!(ours, by_theirs(spec.clone(), start.clone(), &events), "seed {seed}: {events:#?}");
        right += u64::from(ours);
    }
    assert!((HISTORIES / 10..HISTORIES * 9 / 10).contains(&right), "{right} of {HISTORIES} are right");
}

#[test]
fn the_same_verdicts_on_a_key() {
    let op = |rng: &mut Rng| {
        let value = rng.below(3);
        match rng.below(10) {
            0 | 1 => KeyOp::Get,
            2 => KeyOp::Insert(value),
            3 => KeyOp::Set(value),
            4 => KeyOp::TryInsert(value),
            5 => KeyOp::GetOrInsert(value),
            6 => KeyOp::Remove,
            7 => KeyOp::RemoveOdd,
            8 => KeyOp::Update(value),
            _ => {
                KeyOp::Compute([Plan::Toggle(value), Plan::Add(value), Plan::DropOdd][rng.below(3) as usize])
            }
        }
    };
    let other = |rng: &mut Rng, ret| match ret {
        KeyRet::Flag(flag) => KeyRet::Flag(!flag),
        KeyRet::Value(_) => KeyRet::Value(Some(rng.below(4)).filter(|value| *value < 3)),
    };
    compare(Key, None, op, other);
}

#[test]
fn the_same_verdicts_on_a_register() {
    let op = |rng: &mut Rng| match rng.below(6) {
        0 => RegisterOp::Read,
        1 => RegisterOp::Version,
        2 => RegisterOp::ReadVersioned,
        3 => RegisterOp::Write(rng.below(3)),
        4 => RegisterOp::Update(rng.below(3)),
        _ => RegisterOp::CompareAndUpdate(rng.below(4), rng.below(3)),
    };
    let other = |rng: &mut Rng, ret| match ret {
        RegisterRet::Value(_) => RegisterRet::Value(rng.below(4)),
        RegisterRet::Version(version) => RegisterRet::Version(version + rng.below(2)),
        RegisterRet::Both(both) => {
            RegisterRet::Both(Versioned { version: both.version + rng.below(2), ..both })
        }
        RegisterRet::Conflict(both) => RegisterRet::Conflict(Versioned { value: rng.below(3), ..both }),
        RegisterRet::Done => RegisterRet::Done,
    };
    compare(Register, Versioned::default(), op, other);
}
