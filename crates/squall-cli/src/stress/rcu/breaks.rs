//! Ways to break the torture itself: a torture that has never failed proves nothing.
//!
//! `SQUALL_STRESS_BREAK=NAME` makes the torture do what a broken library would do to it. Each such run must end with a
//! violation; `tests/stress.rs` sees to it.

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

const NAMES: [(&str, Break); 7] = [
    ("skip-wait", Break::SkipWait),
    ("early-age", Break::EarlyAge),
    ("early-reuse", Break::EarlyReuse),
    ("no-operation", Break::NoOperation),
    ("lose-callback", Break::LoseCallback),
    ("double-callback", Break::DoubleCallback),
    ("lose-block", Break::LoseBlock),
];

/// What the environment asks for.
///
/// # Errors
/// It asks for something unknown; the text lists what is known.
pub(super) fn asked() -> Result<Option<Break>, String> {
    let Some(name) = std::env::var_os("SQUALL_STRESS_BREAK") else { return Ok(None) };
    let known = NAMES.iter().find(|(known, _)| name == *known);
    known.map(|(_, how)| Some(*how)).ok_or_else(|| {
        let known = NAMES.map(|(name, _)| name).join(", ");
        format!("SQUALL_STRESS_BREAK is none of: {known}")
    })
}
