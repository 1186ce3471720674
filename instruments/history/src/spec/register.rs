//! What a versioned register does: a value, and how many times it was changed.

use super::Spec;

/// A value whose changes are counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Register;

/// What a register holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Versioned {
    /// How many times it was changed.
    pub version: u64,
    /// What was put last.
    pub value: u64,
}

/// What is asked of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterOp {
    /// Answered by the value.
    Read,
    /// Answered by the version.
    Version,
    /// Answered by both.
    ReadVersioned,
    /// Put this.
    Write(u64),
    /// Add this to the value. Answered by the value before.
    Update(u64),
    /// If the version is this, put that. Answered by the new version, or by both as they are.
    CompareAndUpdate(u64, u64),
}

/// What a register answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterRet {
    /// A value.
    Value(u64),
    /// A version.
    Version(u64),
    /// Both.
    Both(Versioned),
    /// It was not the version that was expected, but this.
    Conflict(Versioned),
    /// It was done.
    Done,
}

impl Spec for Register {
    type State = Versioned;
    type Op = RegisterOp;
    type Ret = RegisterRet;

    fn apply(&self, state: &Versioned, op: &RegisterOp) -> (Versioned, RegisterRet) {
        let next = |value| Versioned { version: state.version + 1, value };
        match *op {
            RegisterOp::Read => (*state, RegisterRet::Value(state.value)),
            RegisterOp::Version => (*state, RegisterRet::Version(state.version)),
            RegisterOp::ReadVersioned => (*state, RegisterRet::Both(*state)),
            RegisterOp::Write(value) => (next(value), RegisterRet::Done),
            RegisterOp::Update(more) => {
                (next(state.value.wrapping_add(more)), RegisterRet::Value(state.value))
            }
            RegisterOp::CompareAndUpdate(version, _) if version != state.version => {
                (*state, RegisterRet::Conflict(*state))
            }
            RegisterOp::CompareAndUpdate(version, value) => (next(value), RegisterRet::Version(version + 1)),
        }
    }

    fn only_reads(&self, op: &RegisterOp) -> bool {
        matches!(op, RegisterOp::Read | RegisterOp::Version | RegisterOp::ReadVersioned)
    }
}
