//! Ids: a slot of the global table, and which of its successive occupants is meant.
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | low 32 | slot | index in the global and every local table |
//! | high 32 | generation | from 1; a slot whose generation would wrap is not used again |

use std::fmt;

const GENERATION_SHIFT: u32 = u32::BITS;

/// The identity of an object, as one of its interfaces: printed as slot and generation, `17.3`.
///
/// Ids are never reused: the next object in a slot has another generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Id(u64);

impl Id {
    pub(crate) const fn new(slot: u32, generation: u32) -> Id {
        Id((generation as u64) << GENERATION_SHIFT | slot as u64)
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// The slot.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        self.0 as u32
    }

    /// The generation.
    pub const fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }

    /// The id of the next object in this slot. There is one: the generation is not the last.
    pub(crate) const fn next(self) -> Id {
        Id(self.0 + (1 << GENERATION_SHIFT))
    }

    /// The id of the interface that lies `index` places after this one.
    pub(crate) const fn offset(self, index: u32) -> Id {
        Id(self.0 + index as u64)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot(), self.generation())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
