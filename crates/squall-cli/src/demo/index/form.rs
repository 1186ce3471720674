//! The forms of Squall's map in the comparison.

use squall::ClusterSize;
use squall::objects::map::{self, OwnedMap};

use super::keep::List;
use super::words::Hasher;

/// A form of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Locked,
    Shared,
    Partitioned,
    Replicated,
    Adaptive,
}

/// Parts of the partitioned map. The hash chooses the part, because any thread may look up any word.
const PARTS: usize = 8;

impl Form {
    /// Makes an empty map.
    pub(super) fn make(self) -> OwnedMap<Box<str>, List, Hasher> {
        let hasher = Hasher::default();
        match self {
            Form::Locked => map::locked_with(0, hasher),
            Form::Shared => map::shared_with(0, hasher),
            Form::Partitioned => map::partitioned_with(PARTS, |hash| hash as usize, ClusterSize::Cpu, hasher),
            Form::Replicated => map::replicated_with(0, ClusterSize::Cpu, hasher),
            Form::Adaptive => map::adaptive_with(0, hasher),
        }
    }
}
