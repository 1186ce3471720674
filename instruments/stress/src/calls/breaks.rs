//! The planned breaks of the stress `calls`.

use crate::skeleton::breaks::breaks;

breaks! {
    /// A method returns its result, but has not run.
    LoseCall = "lose-call",
    /// A method runs twice.
    RunTwice = "run-twice",
    /// A result is that of other arguments.
    WrongEcho = "wrong-echo",
    /// A revoked right still holds.
    IgnoreRights = "ignore-rights",
    /// A descriptor remains.
    LeakDescriptor = "leak-descriptor",
    /// A mapping remains.
    LeakImport = "leak-import",
    /// A thread remains.
    LeakThread = "leak-thread",
    /// A process remains.
    LeakProcess = "leak-process",
    /// A level of a nested call runs twice.
    NestTwice = "nest-twice",
    /// A call that may have run is taken for one that did not.
    ForgetUnsure = "forget-unsure",
    /// An import is not made again.
    LoseRenewal = "lose-renewal",
    /// A forked child's call returns a result.
    AnswerForked = "answer-forked",
    /// A forked child ends the connections of its parent.
    EndInFork = "end-in-fork",
    /// A forked child keeps its descriptors when it executes a program.
    KeepAtExec = "keep-at-exec",
    /// Users have no shares of their own.
    IgnoreShares = "ignore-shares",
    /// A user that hoards leaves other users no calls.
    StarveUser = "starve-user",
}
