//! Specification of a versioned register: a value and the number of its changes.

use super::Spec;

/// A value with a count of its changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Register;

/// State of a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Versioned {
    /// Number of changes.
    pub version: u64,
    /// Current value.
    pub value: u64,
}

/// Operation on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterOp {
    /// Reads the value.
    Read,
    /// Reads the version.
    Version,
    /// Reads both.
    ReadVersioned,
    /// Stores this value.
    Write(u64),
    /// Adds this to the value. Returns the old value.
    Update(u64),
    /// Stores the second number if the version equals the first. Returns the new version, or the unchanged
    /// state.
    CompareAndUpdate(u64, u64),
}

/// Answer of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterRet {
    /// A value.
    Value(u64),
    /// A version.
    Version(u64),
    /// Version and value.
    Both(Versioned),
    /// The version differed from the expected one; this is the current state.
    Conflict(Versioned),
    /// The value was stored.
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
