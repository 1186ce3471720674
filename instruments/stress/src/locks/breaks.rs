//! The planned breaks of this stress.

use crate::skeleton::breaks::breaks;

breaks! {
    /// A section is sometimes entered without its lock.
    NoLock = "no-lock",
    /// A section is sometimes left half done.
    HalfSection = "half-section",
    /// A section is sometimes told that was not.
    TellTwice = "tell-twice",
    /// Somebody who says that it has left a section keeps the lock.
    HoldOn = "hold-on",
    /// One of the locks forgets to wake a waiter now and then.
    LoseWakeup = "lose-wakeup",
    /// Likewise, one of which a few threads fight a duel.
    LoseInDuel = "lose-in-duel",
    /// A wait is sometimes said to be cancelled, and is not.
    DeafCancel = "deaf-cancel",
    /// A wait is sometimes said to have a deadline, and has none.
    NoDeadline = "no-deadline",
    /// A wait sometimes gives up before its time.
    EarlyTimeout = "early-timeout",
    /// A reader is sometimes inside without a lock.
    StrayReader = "stray-reader",
    /// A request that was refused is sometimes inside.
    EnterAnyway = "enter-anyway",
    /// A request that says that it has left has not.
    KeepRequest = "keep-request",
}
