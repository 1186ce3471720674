//! The planned breaks of this stress.

use crate::skeleton::breaks::breaks;

breaks! {
    /// A section is sometimes entered without its lock.
    NoLock = "no-lock",
    /// A section is sometimes left half done.
    HalfSection = "half-section",
    /// A section is sometimes reported twice.
    TellTwice = "tell-twice",
    /// A thread that reports leaving a section keeps the lock.
    HoldOn = "hold-on",
    /// A lock sometimes forgets to wake a waiter.
    LoseWakeup = "lose-wakeup",
    /// A lock in a duel sometimes forgets to wake a waiter.
    LoseInDuel = "lose-in-duel",
    /// A wait is sometimes reported as cancelled without being cancelled.
    DeafCancel = "deaf-cancel",
    /// A wait is sometimes reported with a deadline that it does not have.
    NoDeadline = "no-deadline",
    /// A wait sometimes gives up before its deadline.
    EarlyTimeout = "early-timeout",
    /// A reader is sometimes inside without a lock.
    StrayReader = "stray-reader",
    /// A refused request is sometimes inside.
    EnterAnyway = "enter-anyway",
    /// A request reports leaving and stays.
    KeepRequest = "keep-request",
}
