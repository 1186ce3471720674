//! The counted events of this stress.

use crate::skeleton::counts::counts;

counts! {
    Writes = "writes of own keys",
    Looks = "lookups of other keys",
    Adds = "additions",
    Sums = "sums checked",
    Walks = "walks checked",
    Panics = "panics in closures",
    Exact = "exact comparisons",
    Stale = "stale calls that failed",
    Made = "maps made",
    Cached = "cached maps made",
    Destroyed = "maps destroyed",
    Swaps = "swaps",
    SwapsFailed = "swaps that failed",
    Resized = "cluster sizes changed",
    NotResized = "size changes refused",
    Rooms = "capacity changes",
    Discards = "tables discarded",
}
