//! The planned breaks of this stress.

use crate::skeleton::breaks::breaks;

breaks! {
    /// A caller that finds an entry sometimes makes another.
    DoubleFill = "double-fill",
    /// A fill is sometimes reported and not made.
    LoseFill = "lose-fill",
    /// A use is sometimes reported and not made.
    LoseUse = "lose-use",
    /// A lookup sometimes reports that a key is absent.
    MissEntry = "miss-entry",
    /// A removal is sometimes reported and not made.
    KeepRemoved = "keep-removed",
    /// A reservation sometimes fails with the error of another key.
    WrongError = "wrong-error",
    /// A directory is marked as destroyed before `destroy` is called.
    EarlyMark = "early-mark",
    /// An entry is sometimes leaked.
    LeakEntry = "leak-entry",
}
