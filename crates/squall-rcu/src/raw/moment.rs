//! Moments: points in time, counted in grace periods.

/// A point in time, counted in grace periods (`grace/I3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);
