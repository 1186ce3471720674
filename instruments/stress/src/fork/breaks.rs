//! The planned breaks of the stress of forks.

use crate::skeleton::breaks::breaks;

breaks! {
    /// A child waits for ever in a call.
    Hang = "hang",
    /// A child waits for ever in an exit hook.
    HangAtExit = "hang-at-exit",
    /// A call in a child returns a wrong result.
    WrongResult = "wrong-result",
    /// A child aborts.
    Abort = "abort",
    /// The parent loses a write.
    LoseWrite = "lose-write",
}
