//! The counted events of all rounds.

use crate::skeleton::counts::counts;

counts! {
    Lookups = "lookups",
    Found = "values found",
    Inserts = "values inserted",
    Loads = "values loaded",
    Shared = "values of other loaders",
    Failed = "loads that failed",
    Changes = "changes by closures",
    Removals = "removals",
    Clears = "invalidations of all entries",
    Sweeps = "invalidations of some entries",
    Walks = "walks",
    Swaps = "swaps of policies",
    Busy = "swaps refused",
    Evicted = "entries evicted or refused",
    Expired = "entries expired",
    Replaced = "values replaced",
    Removed = "entries removed",
    Nested = "calls of listeners and loaders",
    Panics = "panics that reached callers",
    Lost = "values lost by a panic",
    Bounds = "bounds checked",
    Exact = "values accounted for",
}
