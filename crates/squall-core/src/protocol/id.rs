//! Ids: a slot of the global table, and the generation of its occupant.
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | low 32 | slot | index in the global and every local table |
//! | high 32 | generation | from 1; a slot is retired before its generation would wrap |
//!
//! - I1. The slot of every id that safe code has is below [`SLOTS_MAX`].

use std::fmt;
use std::str::FromStr;

/// The number of slots in a table.
pub(crate) const SLOTS_MAX: u32 = if cfg!(miri) { 1 << 12 } else { 1 << 24 };

const GENERATION_SHIFT: u32 = u32::BITS;

/// The identity of an object through one of its interfaces. Prints as slot and generation, `17.3`.
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

    /// The slot: the index in the translation tables.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        self.0 as u32
    }

    /// The generation: the number of the object among those that used the slot, from 1.
    pub const fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }

    /// An id that no object ever has.
    pub const NULL: Id = Id::new(0, 0);

    /// Returns the id of this slot and generation, if it is valid. An object with this id need not exist.
    pub const fn from_parts(slot: u32, generation: u32) -> Option<Id> {
        // Every id has a slot of the table (I1).
        if slot < SLOTS_MAX && generation != 0 { Some(Id::new(slot, generation)) } else { None }
    }

    /// The id of the next object in this slot. The generation must not be the last one.
    pub(crate) const fn next(self) -> Id {
        Id(self.0 + (1 << GENERATION_SHIFT))
    }

    /// The id of the interface that is `index` places after this one.
    pub(crate) const fn offset(self, index: u32) -> Id {
        Id(self.0 + index as u64)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot(), self.generation())
    }
}

/// The error of parsing text that is not an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseIdError(String);

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an id: an id is a slot and a generation, as in 17.3", self.0)
    }
}

impl std::error::Error for ParseIdError {}

impl FromStr for Id {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Id, ParseIdError> {
        let number = |digits: &str| match digits.as_bytes() {
            // Accept only the output of `Display`.
            [b'+', ..] => None,
            _ => digits.parse().ok(),
        };
        let parts =
            text.split_once('.').and_then(|(slot, generation)| Some((number(slot)?, number(generation)?)));
        parts
            .and_then(|(slot, generation)| Id::from_parts(slot, generation))
            .ok_or_else(|| ParseIdError(text.to_owned()))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
