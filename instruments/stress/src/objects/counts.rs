//! The counted events of this stress.

use crate::skeleton::counts::counts;

counts! {
    Calls = "calls answered",
    Blocking = "of these blocking",
    Upcast = "of these upcast",
    StaleErrors = "stale calls that erred",
    StalePanics = "of these by a panic",
    Refusals = "calls refused by roots",
    Additions = "additions counted",
    Audits = "exact comparisons",
    Known = "calls of a known place",
    Creates = "objects created",
    CreatesFailed = "creations that failed",
    Destroys = "objects destroyed",
    DestroysInside = "of these inside methods",
    EndsAwaited = "destructions awaited",
    Misses = "misses met by roots",
    Discards = "tables discarded",
    Panics = "panics caught",
    Snapshots = "snapshots taken",
    DropsBusy = "drops that did something",
    ExitHooks = "calls by dying threads",
}
