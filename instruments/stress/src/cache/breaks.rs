//! The planned breaks of the stress.

use crate::skeleton::breaks::breaks;

breaks! {
    /// An insertion is sometimes reported and not made.
    LoseInsert = "lose-insert",
    /// A lookup sometimes finds an older value.
    StaleValue = "stale-value",
    /// A lookup sometimes finds a value of another key.
    WrongKey = "wrong-key",
    /// A removal is sometimes reported and not made.
    IgnoreRemove = "ignore-remove",
    /// An invalidation of all entries is sometimes not made.
    IgnoreClear = "ignore-clear",
    /// An invalidation of some entries is sometimes not made.
    IgnoreSweep = "ignore-sweep",
    /// A walk sometimes omits an entry.
    SkipEntry = "skip-entry",
    /// A walk sometimes has an entry twice.
    WalkTwice = "walk-twice",
    /// An entry serves on after its time.
    KeepExpired = "keep-expired",
    /// The listener sometimes gets an entry twice.
    TellTwice = "tell-twice",
    /// The listener sometimes does not get an entry.
    LoseNotice = "lose-notice",
    /// The listener sometimes gets an entry that stays.
    TellEarly = "tell-early",
    /// The bound sometimes seems to be exceeded.
    ExceedBound = "exceed-bound",
    /// The entries sometimes seem to need more than is counted.
    Undercount = "undercount",
    /// Two loaders of a key sometimes run at one time.
    LoadTwice = "load-twice",
    /// An error of a loader sometimes reaches another caller.
    WrongError = "wrong-error",
    /// A caller sometimes gets another value than its loader made.
    WrongLoad = "wrong-load",
    /// A value is sometimes leaked.
    LeakValue = "leak-value",
}
