//! The counted events of this stress.

use crate::skeleton::counts::counts;

counts! {
    Writes = "writes of keys of one's own",
    Looks = "looks at others' keys",
    Adds = "additions",
    Sums = "sums judged",
    Walks = "walks judged",
    Panics = "panics in closures",
    Exact = "exact comparisons",
    Stale = "stale calls that erred",
    Made = "maps made",
    Cached = "cached ones of them",
    Destroyed = "maps destroyed",
    Swaps = "swaps",
    SwapsFailed = "swaps that failed",
    Resized = "cluster sizes changed",
    NotResized = "of these refused",
    Rooms = "rooms made or given up",
    Discards = "tables discarded",
}
