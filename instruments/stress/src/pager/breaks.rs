//! The planned breaks of the stress.

use crate::skeleton::breaks::breaks;

breaks! {
    /// A source sometimes loses a write.
    LoseWrite = "lose-write",
    /// A source sometimes fills half of a page with other contents.
    TearPage = "tear-page",
    /// A source sometimes fills a page with former contents.
    StaleFill = "stale-fill",
    /// A source sometimes fills a page with another one.
    WrongPage = "wrong-page",
    /// A source keeps the bytes that were cut off.
    KeepCut = "keep-cut",
    /// A page that was cut off is written to its source.
    WriteCut = "write-cut",
    /// An error of a source names no page.
    UnnamedError = "unnamed-error",
    /// A sync sometimes returns at once.
    SkipSync = "skip-sync",
    /// A copy of a region has the file of the region itself.
    ShareCopy = "share-copy",
    /// A file that was copied can be written.
    ThawParent = "thaw-parent",
    /// A region that was unmapped serves on.
    IgnoreUnmap = "ignore-unmap",
    /// A page sometimes changes while it is pinned.
    ChangePinned = "change-pinned",
    /// A frame is sometimes forgotten.
    ForgetFrame = "forget-frame",
    /// A cache is sometimes leaked.
    LeakCache = "leak-cache",
}
