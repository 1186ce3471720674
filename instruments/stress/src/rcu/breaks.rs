//! The planned breaks of this stress.

use crate::skeleton::breaks::breaks;

breaks! {
    /// A grace period is sometimes skipped.
    SkipWait = "skip-wait",
    /// Blocks age when a call is deferred, instead of when it runs.
    EarlyAge = "early-age",
    /// A block is sometimes poisoned and reused as soon as it is removed.
    EarlyReuse = "early-reuse",
    /// Readers sometimes hold a block outside every operation.
    NoOperation = "no-operation",
    /// A deferred call is sometimes lost.
    LoseCallback = "lose-callback",
    /// A deferred call sometimes counts twice.
    DoubleCallback = "double-callback",
    /// A removed block is sometimes lost.
    LoseBlock = "lose-block",
}
