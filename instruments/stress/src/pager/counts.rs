//! The counted events of all rounds.

use crate::skeleton::counts::counts;

counts! {
    Reads = "pages pinned",
    Writes = "pages written to sources",
    Changes = "pages pinned for writing",
    Exact = "pages compared with the books",
    Fills = "pages filled",
    Refusals = "calls that sources refused",
    Errors = "errors of sources that faults returned",
    Beyond = "faults beyond an end",
    NoMemory = "faults without memory",
    Frozen = "writes of frozen files refused",
    Closed = "faults on regions that end",
    Ended = "calls of caches that had ended",
    Evicted = "pages evicted",
    Syncs = "syncs",
    Shrinks = "files shortened",
    Grows = "files lengthened",
    Truncations = "regions truncated",
    Copies = "regions copied",
    Unmaps = "regions unmapped",
    CacheSwaps = "swaps of caches",
    RegionSwaps = "swaps of regions",
    ListSwaps = "swaps of lists",
    Late = "frames dropped after their pool",
}
