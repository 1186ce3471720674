//! The planned breaks of this stress.

use crate::skeleton::breaks::breaks;

breaks! {
    /// A write is sometimes reported and not made.
    LoseWrite = "lose-write",
    /// An addition is sometimes made twice.
    DoubleAdd = "double-add",
    /// A lookup sometimes reports an old value.
    StaleLook = "stale-look",
    /// A walk sometimes omits an entry.
    SkipEntry = "skip-entry",
    /// A closure that panics has changed its key before.
    DirtyPanic = "dirty-panic",
    /// A map is marked as destroyed before `destroy` is called.
    EarlyMark = "early-mark",
    /// A value is sometimes leaked.
    LeakValue = "leak-value",
}
