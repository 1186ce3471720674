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
}
