//! Specification of one key of a map. Its value is a number or absent.

use super::Spec;

/// One key of a map to numbers; the state is its value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Key;

/// Operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyOp {
    /// Reads the value. Returns the value.
    Get,
    /// Inserts this value. Returns the old value.
    Insert(u64),
    /// Inserts this value. Returns whether the key was present.
    Set(u64),
    /// Inserts this value if the key is absent. Returns whether it was inserted.
    TryInsert(u64),
    /// Inserts this value if the key is absent. Returns the value present afterwards.
    GetOrInsert(u64),
    /// Removes the key. Returns the old value.
    Remove,
    /// Removes the key. Returns whether it was present.
    Discard,
    /// Removes the key if its value is odd. Returns whether it was removed.
    RemoveOdd,
    /// Adds this to the value, if present. Returns the old value.
    Update(u64),
    /// Updates by a closure that panics. Returns whether it panicked, as a flag.
    UpdateAndPanic,
    /// Follows the plan. Returns the old value.
    Compute(Plan),
}

/// Action of a closure on the current value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    /// Removes a present key; inserts this value if the key is absent.
    Toggle(u64),
    /// Adds this to a present value; inserts this value if the key is absent.
    Add(u64),
    /// Removes an odd value.
    DropOdd,
}

/// Answer of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyRet {
    /// A value, or its absence.
    Value(Option<u64>),
    /// A yes or no.
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
    /// Value after the action, given the value before.
    pub fn follow(self, old: Option<u64>) -> Option<u64> {
        match (self, old) {
            (Plan::Toggle(_), Some(_)) | (Plan::DropOdd, None) => None,
            (Plan::Toggle(new) | Plan::Add(new), None) => Some(new),
            (Plan::Add(more), Some(old)) => Some(old.wrapping_add(more)),
            (Plan::DropOdd, Some(old)) => Some(old).filter(|old| !is_odd(*old)),
        }
    }
}

/// Whether [`KeyOp::RemoveOdd`] and [`Plan::DropOdd`] remove this value.
pub(crate) fn is_odd(value: u64) -> bool {
    value % 2 == 1
}
