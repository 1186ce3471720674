//! The safeguards of the protocol, each of which a test can remove.
//!
//! Problem: a simulator that finds no fault may look for none. Idea: each safeguard has a name. A test
//! removes one on its thread, and the simulator must then report a violation.
//!
//! - I1. In a build without tests each safeguard stands, at no cost.
//!
//! Source: the twins of the models in `squall_sys::sync::weaken`.

/// A safeguard: a condition, without which the protocol breaks a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Guard {
    /// A shard runs calls only under a lease.
    LeaseToRun,
    /// A result of a shard leaves only under a lease.
    LeaseToAnswer,
    /// A leader serves only while it is certain to lead.
    Authority,
    /// A lease counts from the member's own message, not from the receipt of the beat.
    LeaseFromMessage,
    /// A leader removes a silent member only after its lease.
    SilenceBeforeRemoval,
    /// A new leader counts leases from its election.
    SilenceFromElection,
    /// A member whose removal is under way gets no lease.
    NoLeaseInRemoval,
    /// A leader gives leases only while a majority has answered.
    LeaseByMajority,
    /// A voter elects no candidate that lacks changes it holds itself.
    VoteByLog,
    /// A voter has one vote per term.
    OneVote,
    /// A change of voters needs a majority of the old ones too.
    BothMajorities,
    /// The living decide alone only if they are enough of all voters, also of those under removal.
    DeadCount,
    /// Voters change once all changes before are committed.
    OneChange,
    /// A leader commits changes of its own term only, and the older ones with them.
    OwnTerm,
    /// A member accepts changes only after one that it holds.
    KnownBefore,
    /// Sessions travel with their shard.
    SessionsTravel,
    /// A session remembers the calls that ran.
    Remembered,
    /// A session refuses numbers below those that the client has results of.
    LowNumbers,
    /// A session refuses calls that the client has given up.
    EndedCalls,
    /// A refusal is certain only for the first attempt.
    FirstAttempt,
    /// A shard moves only in the epoch of its handover.
    EpochOfMove,
    /// A state is newer than the loss of the one before.
    EpochOfBirth,
    /// A handover waits for the calls that run.
    IdleBeforeExport,
    /// A shard runs no calls once its handover has begun.
    NoRunInHandover,
    /// An owner that abandons a shard serves it no more.
    NoRunOnceAbandoned,
    /// A copy of a request is not applied again.
    RequestNumbers,
    /// A member that was removed begins again under another number.
    NewNumber,
}

#[cfg(test)]
thread_local! {
    static REMOVED: std::cell::Cell<Option<Guard>> = const { std::cell::Cell::new(None) };
}

impl Guard {
    /// All safeguards.
    #[cfg(test)]
    pub(crate) const ALL: &[Guard] = &[
        Guard::LeaseToRun,
        Guard::LeaseToAnswer,
        Guard::Authority,
        Guard::LeaseFromMessage,
        Guard::SilenceBeforeRemoval,
        Guard::SilenceFromElection,
        Guard::NoLeaseInRemoval,
        Guard::LeaseByMajority,
        Guard::VoteByLog,
        Guard::OneVote,
        Guard::BothMajorities,
        Guard::DeadCount,
        Guard::OneChange,
        Guard::OwnTerm,
        Guard::KnownBefore,
        Guard::SessionsTravel,
        Guard::Remembered,
        Guard::LowNumbers,
        Guard::EndedCalls,
        Guard::FirstAttempt,
        Guard::EpochOfMove,
        Guard::EpochOfBirth,
        Guard::IdleBeforeExport,
        Guard::NoRunInHandover,
        Guard::NoRunOnceAbandoned,
        Guard::RequestNumbers,
        Guard::NewNumber,
    ];

    /// Returns whether the safeguard is removed. Always false outside tests.
    #[inline(always)]
    pub(crate) fn is_removed(self) -> bool {
        #[cfg(test)]
        return REMOVED.get() == Some(self);
        #[cfg(not(test))]
        false
    }

    /// Returns whether the safeguard stands and `condition` holds.
    #[inline(always)]
    pub(crate) fn and(self, condition: bool) -> bool {
        !self.is_removed() && condition
    }

    /// Returns whether `condition` holds or the safeguard is removed.
    #[inline(always)]
    pub(crate) fn or(self, condition: bool) -> bool {
        self.is_removed() || condition
    }

    /// Removes a safeguard on this thread while `run` runs.
    #[cfg(test)]
    pub(crate) fn without<R>(removed: Option<Guard>, run: impl FnOnce() -> R) -> R {
        struct Restore;
        impl Drop for Restore {
            fn drop(&mut self) {
                REMOVED.set(None);
            }
        }
        let _restore = Restore;
        REMOVED.set(removed);
        run()
    }
}
