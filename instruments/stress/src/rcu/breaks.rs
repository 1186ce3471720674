//! Ways to break this torture itself, for `SQUALL_STRESS_BREAK`. A run that is broken so must end with a violation;
//! `tests/stress.rs` sees to it.

/// What the torture does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// A grace period is sometimes not waited for.
    SkipWait,
    /// Blocks age when a call is deferred, not when it runs.
    EarlyAge,
    /// A block is sometimes poisoned and reused as soon as it is removed.
    EarlyReuse,
    /// Readers sometimes hold a block outside every operation.
    NoOperation,
    /// A deferred call is sometimes not handed over.
    LoseCallback,
    /// A deferred call sometimes counts twice.
    DoubleCallback,
    /// A removed block is sometimes forgotten.
    LoseBlock,
}

pub(super) const WAYS: [(&str, Break); 7] = [
    ("skip-wait", Break::SkipWait),
    ("early-age", Break::EarlyAge),
    ("early-reuse", Break::EarlyReuse),
    ("no-operation", Break::NoOperation),
    ("lose-callback", Break::LoseCallback),
    ("double-callback", Break::DoubleCallback),
    ("lose-block", Break::LoseBlock),
];
