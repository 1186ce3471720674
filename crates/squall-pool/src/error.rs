//! Errors of a pool's operations.

use crate::protocol::ELEMENT_BYTES_MAX;
use squall_fleet::{Name, RequestError};
use std::fmt;

/// The reason why an operation of a pool has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolErrorKind {
    /// The node did not become a member of the pool: the name has other attributes, the right does not allow
    /// it, or no leader answers.
    NotJoined(RequestError),
    /// The element has more than [`ELEMENT_BYTES_MAX`] bytes. It was not added.
    LargeElement {
        /// Its bytes.
        bytes: usize,
    },
    /// The element that was found has more bytes than the caller allows. It stays in the pool.
    TooLarge {
        /// Its bytes.
        bytes: usize,
    },
    /// The time is over. A get has not taken an element.
    TimedOut {
        /// Whether the operation had begun. Then an element that was to be added may still come into the
        /// pool, and a shutdown goes on.
        begun: bool,
    },
    /// The group took the node for dead while the element was on its way. It may be in the pool.
    Unknown,
    /// The member has left the pool, leaves it, or its node has ended. The operation had no effect.
    Closed,
    /// The system has no thread left for the pool.
    NoThread,
}

/// An operation of a pool without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolError {
    /// The name of the pool.
    pub pool: Name,
    /// The reason.
    pub kind: PoolErrorKind,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool {}: ", self.pool)?;
        match self.kind {
            PoolErrorKind::NotJoined(error) => error.fmt(f),
            PoolErrorKind::LargeElement { bytes } => {
                write!(
                    f,
                    "an element has at most {ELEMENT_BYTES_MAX} bytes, and this one has {bytes}; divide it"
                )
            }
            PoolErrorKind::TooLarge { bytes } => {
                write!(f, "the element that was found has {bytes} bytes, more than allowed; it stays")
            }
            PoolErrorKind::TimedOut { begun: false } => f.write_str(
                "the time is over before the operation began; look whether most voters of the group live",
            ),
            PoolErrorKind::TimedOut { begun: true } => f.write_str(
                "the time is over; an add or a shutdown may still take effect, and a get has taken nothing. \
                     Give it more time, or look whether most voters of the group live",
            ),
            PoolErrorKind::Unknown => f.write_str(
                "the node was taken for dead meanwhile, and the element may be in the pool or not",
            ),
            PoolErrorKind::Closed => {
                f.write_str("this member has left, or its node has ended; join it again")
            }
            PoolErrorKind::NoThread => {
                f.write_str("the system has no thread left for the pool; end others, or raise the limit")
            }
        }
    }
}

impl std::error::Error for PoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            PoolErrorKind::NotJoined(error) => Some(error),
            _ => None,
        }
    }
}
