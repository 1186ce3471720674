//! The times of a group.

use super::Time;

/// The times of a group, in microseconds. Equal on all nodes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// Between two beats of a leader.
    pub(crate) beat: Time,
    /// A member serves so long after its last message that a leader has answered.
    pub(crate) lease: Time,
    /// A voter that has heard its leader within this time elects no other one.
    pub(crate) loyal: Time,
}

impl Timing {
    /// For one machine, and for machines in one place.
    pub(crate) const LOCAL: Timing = Timing { beat: 50_000, lease: 1_000_000, loyal: 400_000 };

    /// The time after which a leader gives a lease up: longer than the lease on any clock.
    pub(super) fn silence(self) -> Time {
        self.lease + self.lease / 4
    }

    /// The time for which a leader counts on the loyalty of a voter: shorter than on any clock.
    pub(super) fn trust(self) -> Time {
        self.loyal - self.loyal / 4
    }
}
