//! The safeguards of the protocol, each of which a test can remove: [`squall_sys::sync::safeguard`].

squall_sys::__safeguards! {
    /// A safeguard: a condition, without which the protocol breaks a promise.
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
        /// A member under removal gets no lease.
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
        /// A leader that leaves is the last to go: the voters know of its removal before.
        LeaderLast,
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
        /// A session runs no call that has ended for its client.
        EndedCalls,
        /// A late frame opens no call again that has ended.
        EndedStays,
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
}
