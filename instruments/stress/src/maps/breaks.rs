//! Ways to break this torture itself, for `SQUALL_STRESS_BREAK`. A run that is broken so must end with a violation;
//! `tests/stress_maps.rs` sees to it.

/// What the torture does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// A write is sometimes said to have been made, and was not.
    LoseWrite,
    /// An addition is sometimes made twice.
    DoubleAdd,
    /// A look is sometimes said to have found what another found long before.
    StaleLook,
    /// A walk leaves out an entry now and then.
    SkipEntry,
    /// A closure that panics has changed its key before.
    DirtyPanic,
    /// A map is marked as destroyed before its destruction is asked for.
    EarlyMark,
    /// A value is kept for ever.
    LeakValue,
}

pub(super) const WAYS: [(&str, Break); 7] = [
    ("lose-write", Break::LoseWrite),
    ("double-add", Break::DoubleAdd),
    ("stale-look", Break::StaleLook),
    ("skip-entry", Break::SkipEntry),
    ("dirty-panic", Break::DirtyPanic),
    ("early-mark", Break::EarlyMark),
    ("leak-value", Break::LeakValue),
];
