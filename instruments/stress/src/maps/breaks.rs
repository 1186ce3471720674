//! The planned breaks of this stress.

use crate::skeleton::breaks::breaks;

breaks! {
    /// A write is sometimes said to have been made, and was not.
    LoseWrite = "lose-write",
    /// An addition is sometimes made twice.
    DoubleAdd = "double-add",
    /// A look is sometimes said to have found what another found long before.
    StaleLook = "stale-look",
    /// A walk leaves out an entry now and then.
    SkipEntry = "skip-entry",
    /// A closure that panics has changed its key before.
    DirtyPanic = "dirty-panic",
    /// A map is marked as destroyed before its destruction is asked for.
    EarlyMark = "early-mark",
    /// A value is kept for ever.
    LeakValue = "leak-value",
}
