//! The safeguards of the protocol, each of which a test can remove.
//!
//! Problem: a simulator that finds no fault may be blind. Idea: each safeguard has a name. A test
//! removes one on its thread, and the simulator must then report a violation.
//!
//! - I1. In a build without tests each safeguard stands, at no cost.
//!
//! Source: `squall-fleet`, `protocol/guard.rs`.

/// A safeguard: a condition, without which the protocol breaks a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
}

#[cfg(test)]
thread_local! {
    static REMOVED: std::cell::Cell<Option<Guard>> = const { std::cell::Cell::new(None) };
}

impl Guard {
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
