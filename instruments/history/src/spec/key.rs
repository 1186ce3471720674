//! What a map does with one key. What lies there is a number, or nothing.

use super::Spec;

/// One key of a map from anything to numbers; its state is what lies there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Key;

/// What is asked of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyOp {
    /// What lies there? Answered by a value.
    Get,
    /// Put this. Answered by the value before.
    Insert(u64),
    /// Put this. Answered by whether something was there.
    Set(u64),
    /// Put this if nothing is there. Answered by whether it was put.
    TryInsert(u64),
    /// Put this if nothing is there. Answered by the value that lies there then.
    GetOrInsert(u64),
    /// Take it out. Answered by the value.
    Remove,
    /// Take it out. Answered by whether something was there.
    Discard,
    /// Take it out if it is odd. Answered by whether it was taken out.
    RemoveOdd,
    /// Add this to it. Answered by the value before, if there was one.
    Update(u64),
    /// Add to it, by a closure that panics. Answered by whether it did, as a flag.
    UpdateAndPanic,
    /// What the plan says. Answered by the value before.
    Compute(Plan),
}

/// What a closure does with what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    /// Something is taken out; where nothing is, this is put.
    Toggle(u64),
    /// This is added; where nothing is, it is put.
    Add(u64),
    /// What is odd is taken out; all else stays.
    DropOdd,
}

/// What a key answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyRet {
    /// A value, or that there is none.
    Value(Option<u64>),
    /// Yes or no.
    Flag(bool),
}

impl Spec for Key {
    type State = Option<u64>;
    type Op = KeyOp;
    type Ret = KeyRet;

    fn apply(&self, state: &Option<u64>, op: &KeyOp) -> (Option<u64>, KeyRet) {
        use KeyRet::{Flag, Value};
        let old = *state;
        match *op {
            KeyOp::Get => (old, Value(old)),
            KeyOp::Insert(new) => (Some(new), Value(old)),
            KeyOp::Set(new) => (Some(new), Flag(old.is_some())),
            KeyOp::TryInsert(new) => (old.or(Some(new)), Flag(old.is_none())),
            KeyOp::GetOrInsert(new) => (old.or(Some(new)), Value(old.or(Some(new)))),
            KeyOp::Remove => (None, Value(old)),
            KeyOp::Discard => (None, Flag(old.is_some())),
            KeyOp::RemoveOdd => (old.filter(|old| !is_odd(*old)), Flag(old.is_some_and(is_odd))),
            KeyOp::Update(more) => (old.map(|old| old.wrapping_add(more)), Value(old)),
            KeyOp::UpdateAndPanic => (old, Flag(old.is_some())),
            KeyOp::Compute(plan) => (plan.follow(old), Value(old)),
        }
    }

    fn only_reads(&self, op: &KeyOp) -> bool {
        matches!(op, KeyOp::Get | KeyOp::UpdateAndPanic)
    }
}

impl Plan {
    /// What shall lie there, where this lies now.
    pub fn follow(self, old: Option<u64>) -> Option<u64> {
        match (self, old) {
            (Plan::Toggle(_), Some(_)) | (Plan::DropOdd, None) => None,
            (Plan::Toggle(new) | Plan::Add(new), None) => Some(new),
            (Plan::Add(more), Some(old)) => Some(old.wrapping_add(more)),
            (Plan::DropOdd, Some(old)) => Some(old).filter(|old| !is_odd(*old)),
        }
    }
}

/// What [`KeyOp::RemoveOdd`] and [`Plan::DropOdd`] take out.
pub(crate) fn is_odd(value: u64) -> bool {
    value % 2 == 1
}
