//! The counted events of this stress.

use crate::skeleton::counts::counts;

counts! {
    Calls = "calls answered",
    Blocking = "blocking calls",
    Upcast = "upcast calls",
    StaleErrors = "stale calls that failed",
    StalePanics = "stale calls that panicked",
    Refusals = "calls refused by roots",
    Additions = "additions counted",
    Audits = "exact comparisons",
    Known = "well-known object calls",
    Creates = "objects created",
    CreatesFailed = "creations that failed",
    Destroys = "objects destroyed",
    DestroysInside = "destroyed in methods",
    EndsAwaited = "destructions awaited",
    Misses = "misses answered by roots",
    Discards = "tables discarded",
    Panics = "panics caught",
    Snapshots = "snapshots taken",
    DropsBusy = "drops with side actions",
    ExitHooks = "calls in exit hooks",
}
