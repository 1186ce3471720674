//! The planned breaks of the stress `fleets`.

use crate::skeleton::breaks::breaks;

breaks! {
    /// The service runs a call twice.
    RunTwice = "run-twice",
    /// A client calls again under the old number, although the call may have run.
    RetryLost = "retry-lost",
    /// A call that may have run is taken for one that did not.
    ForgetUnsure = "forget-unsure",
    /// A client takes a call for one that ended after its deadline.
    EndLate = "end-late",
    /// A shard forgets a call when it moves.
    LoseInMove = "lose-in-move",
    /// A shard begins anew when it moves.
    BeginAnew = "begin-anew",
    /// A process remains.
    LeakProcess = "leak-process",
    /// A descriptor remains.
    LeakDescriptor = "leak-descriptor",
    /// A transport remains, with its name.
    LeakTransport = "leak-transport",
}
