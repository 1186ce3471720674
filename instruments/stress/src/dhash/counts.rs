//! The counted events of this stress.

use crate::skeleton::counts::counts;

counts! {
    Made = "entries made by closures",
    Filled = "reservations filled",
    Handed = "reservations handed over",
    Failed = "reservations failed",
    Dropped = "reservations dropped",
    Late = "fills that came too late",
    Busy = "keys that were busy",
    Errors = "errors of other holders",
    Left = "waiting tasks dropped",
    Uses = "uses",
    Looks = "lookups",
    Sums = "questions",
    Removals = "removals",
    Revokes = "reservations revoked",
    Walks = "walks",
    Panics = "panics in closures",
    Exact = "exact comparisons",
    Stale = "stale calls that failed",
    Opened = "directories made",
    Destroyed = "directories destroyed",
    Swaps = "swaps",
    SwapsFailed = "swaps that failed",
    Discards = "tables discarded",
}
