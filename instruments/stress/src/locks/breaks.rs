//! Ways to break this torture itself, for `SQUALL_STRESS_BREAK`. A run that is broken so must end with a violation;
//! `tests/stress_locks.rs` sees to it.

/// What the torture does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// A section is sometimes entered without its lock.
    NoLock,
    /// A section is sometimes left half done.
    HalfSection,
    /// A section is sometimes told that was not.
    TellTwice,
    /// Somebody who says that it has left a section keeps the lock.
    HoldOn,
    /// One of the locks forgets to wake a waiter now and then.
    LoseWakeup,
    /// Likewise, one of which a few threads fight a duel.
    LoseInDuel,
    /// A wait is sometimes said to be cancelled, and is not.
    DeafCancel,
    /// A wait is sometimes said to have a deadline, and has none.
    NoDeadline,
    /// A wait sometimes gives up before its time.
    EarlyTimeout,
    /// A reader is sometimes inside without a lock.
    StrayReader,
    /// A request that was refused is sometimes inside.
    EnterAnyway,
    /// A request that says that it has left has not.
    KeepRequest,
}

pub(super) const WAYS: [(&str, Break); 12] = [
    ("no-lock", Break::NoLock),
    ("half-section", Break::HalfSection),
    ("tell-twice", Break::TellTwice),
    ("hold-on", Break::HoldOn),
    ("lose-wakeup", Break::LoseWakeup),
    ("lose-in-duel", Break::LoseInDuel),
    ("deaf-cancel", Break::DeafCancel),
    ("no-deadline", Break::NoDeadline),
    ("early-timeout", Break::EarlyTimeout),
    ("stray-reader", Break::StrayReader),
    ("enter-anyway", Break::EnterAnyway),
    ("keep-request", Break::KeepRequest),
];
