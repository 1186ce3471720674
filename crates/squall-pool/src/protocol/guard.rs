//! The safeguards of the protocol, each of which a test can remove: [`squall_sys::sync::safeguard`].

squall_sys::__safeguards! {
    /// A safeguard: a condition, without which the protocol breaks a promise.
    pub(crate) enum Guard {
        /// A channel takes the next message alone.
        OnceInOrder,
        /// A shard takes no frames of shards outside its view.
        MembersOnly,
        /// A shard takes no frames of a later view than its own.
        ViewFirst,
        /// A newcomer serves only once the master knows it.
        Welcome,
        /// A receiver keeps offered elements apart until the sender has dropped its copies.
        CommitFirst,
        /// A sender takes back offers that a removed receiver had not accepted.
        TakeBack,
        /// A receiver keeps the accepted offers of a removed sender.
        KeepAccepted,
        /// Elements that were given count until the receiver has them.
        CountGiven,
        /// Elements that are offered count until the receiver has accepted them.
        CountOffered,
        /// Elements that are held count.
        CountHeld,
        /// The proof that the pool is empty needs a second wave.
        SecondWave,
        /// The proof that the pool is empty needs the answer of each member.
        AllAnswer,
        /// The proof that the pool is empty needs equal arrivals in both waves.
        EqualArrivals,
        /// The proof that the pool is empty is for gets that began before the second wave.
        BeganBefore,
        /// A shard leaves only with no element on its way.
        Drained,
        /// An unmarked shard is marked before it holds an element.
        MarkFirst,
        /// A shard that may lose its mark adds no element.
        HoldWhileFinding,
        /// A shard that has elements on their way keeps its mark.
        SureToUnmark,
        /// A new master begins with all marks set.
        AllMarked,
        /// A master that leaves answers no more.
        SilentLeaver,
        /// Frames and results wait for the copy of the inputs before.
        CopyFirst,
        /// A member has an heir once the copy has all that was sent.
        HeirLast,
        /// With copies, a member leaves only if no view has come meanwhile.
        LeaveByEpoch,
        /// An inherited member takes no elements of leavers.
        InheritedGive,
    }
}
