//! Virtual processors by number. `current.rs` finds the one a thread is on.
//!
//! A `Vp` is a plain index: copying, comparing and printing it needs no machine.

use std::fmt;

/// A virtual processor (VP): the index of a processor as Squall numbers it.
///
/// On the real machine it is the kernel's number of the CPU. In a virtual topology each thread is assigned a
/// VP. Indices may have gaps; all are below [`Machine::vp_limit`](crate::Machine::vp_limit).
///
/// # Example
/// ```
/// use squall::Vp;
///
/// let vp = Vp::new(3);
/// assert_eq!(vp.index(), 3);
/// assert_eq!(vp.to_string(), "VP 3");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Vp(pub(crate) u32);

/// Error: a thread could not be assigned a VP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssignError {
    /// The topology is the real machine's, where the kernel decides on which VP a thread is.
    RealTopology,
    /// The topology has no such VP.
    OutOfRange {
        /// The requested VP.
        vp: Vp,
        /// Upper limit of VP indices in this topology.
        limit: usize,
    },
}

impl fmt::Display for AssignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AssignError::RealTopology => f.write_str(
                "no VP can be assigned on the real machine; set SQUALL_TOPOLOGY to make the machine virtual",
            ),
            AssignError::OutOfRange { vp, limit } => {
                write!(f, "{vp} does not exist; VP indices are below {limit}")
            }
        }
    }
}

impl std::error::Error for AssignError {}

impl fmt::Display for Vp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VP {}", self.0)
    }
}

impl Vp {
    /// Creates the VP with this index. Functions that use the VP check that the machine has it.
    #[inline(always)]
    pub const fn new(index: u32) -> Vp {
        Vp(index)
    }

    /// Returns the index of the VP.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
