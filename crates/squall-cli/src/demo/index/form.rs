//! The forms of the map of ours.

use squall::ClusterSize;
use squall::objects::map::{self, OwnedMap};

use super::keep::List;
use super::words::Hasher;

/// A form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Locked,
    Central,
    Partitioned,
    Replicated,
    Adaptive,
}

/// The parts of a map of parts: words are put into them by their hash, as there is no order in who looks for which.
const PARTS: usize = 8;

impl Form {
    /// A map that is empty.
    pub(super) fn make(self) -> OwnedMap<Box<str>, List, Hasher> {
        let hasher = Hasher::default();
        match self {
            Form::Locked => map::locked_with(0, hasher),
            Form::Central => map::central_with(0, hasher),
            Form::Partitioned => map::partitioned_with(PARTS, |hash| hash as usize, ClusterSize::Cpu, hasher),
            Form::Replicated => map::replicated_with(0, ClusterSize::Cpu, hasher),
            Form::Adaptive => map::adaptive_with(0, hasher),
        }
    }
}
