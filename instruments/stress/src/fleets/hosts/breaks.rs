//! The planned breaks of the stress `hosts`.

use super::super::breaks::Break as MemberBreak;
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
    /// A cable that was cut is not repaired.
    StayCut = "stay-cut",
    /// A process remains.
    LeakProcess = "leak-process",
    /// A host remains, with its cable.
    LeakHost = "leak-host",
}

impl Break {
    /// Returns the break of members and clients that makes this one.
    pub(super) fn of_group(self) -> Option<MemberBreak> {
        match self {
            Break::RunTwice => Some(MemberBreak::RunTwice),
            Break::RetryLost => Some(MemberBreak::RetryLost),
            Break::ForgetUnsure => Some(MemberBreak::ForgetUnsure),
            Break::EndLate => Some(MemberBreak::EndLate),
            Break::LeakProcess => Some(MemberBreak::LeakProcess),
            Break::StayCut | Break::LeakHost => None,
        }
    }
}
