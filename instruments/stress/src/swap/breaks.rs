//! Ways to break this torture itself, for `SQUALL_STRESS_BREAK`. A run that is broken so must end with a violation;
//! `tests/stress_swap.rs` sees to it.

/// What the torture does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// A call is sometimes counted twice.
    DoubleCall,
    /// A call is sometimes said to have been made, and was not.
    LoseCall,
    /// Two calls are sometimes made in the other order.
    Disorder,
    /// A swap sometimes loses a part of the state.
    LoseState,
    /// A value is sometimes kept for ever.
    LeakValue,
    /// A drop is sometimes told twice.
    DoubleDrop,
    /// An object is marked as destroyed before its destruction is asked for.
    EarlyMark,
    /// A swap that was to fail is sometimes judged as one that was not.
    WrongFailure,
    /// A swap that has succeeded is sometimes judged as one that had to fail.
    WrongSuccess,
    /// A call sometimes forgets that it met an arbiter.
    MissArbiter,
    /// A call on a live object is sometimes said to have been refused.
    RefuseLive,
}

pub(super) const WAYS: [(&str, Break); 11] = [
    ("double-call", Break::DoubleCall),
    ("lose-call", Break::LoseCall),
    ("disorder", Break::Disorder),
    ("lose-state", Break::LoseState),
    ("leak-value", Break::LeakValue),
    ("double-drop", Break::DoubleDrop),
    ("early-mark", Break::EarlyMark),
    ("wrong-failure", Break::WrongFailure),
    ("wrong-success", Break::WrongSuccess),
    ("miss-arbiter", Break::MissArbiter),
    ("refuse-live", Break::RefuseLive),
];
