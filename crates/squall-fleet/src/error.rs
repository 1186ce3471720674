//! Errors of mailboxes. They bear the names of the thesis.

use crate::Alias;
use std::fmt;

/// The reason why a message was not sent. The message was not accepted, and no part of it arrives.
///
/// Source: Wentzlaff 2012, Listing 3.2 (FO-05).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The capability is not one of the mailbox: it is forged, was removed, or was for one message and is
    /// used up.
    Permissions {
        /// The mailbox.
        mailbox: Alias,
    },
    /// The mailbox has no room for the message now. Send again later, or
    /// [wait](crate::Sender::wait_to_send). Room comes when the owner looks for its next message.
    Retry {
        /// The mailbox.
        mailbox: Alias,
    },
    /// The message is larger than the mailbox can ever take.
    NoSpace {
        /// The mailbox.
        mailbox: Alias,
        /// The size of the largest message in bytes.
        largest: usize,
    },
    /// No mailbox has this alias, or its owner has dropped it.
    InvalidAlias {
        /// The alias.
        mailbox: Alias,
    },
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Permissions { mailbox } => {
                write!(
                    f,
                    "mailbox {mailbox} does not know this capability; it was removed or used up, or is forged"
                )
            }
            SendError::Retry { mailbox } => {
                write!(f, "mailbox {mailbox} is full for this sender; send again later")
            }
            SendError::NoSpace { mailbox, largest } => {
                write!(f, "mailbox {mailbox} takes messages of at most {largest} bytes")
            }
            SendError::InvalidAlias { mailbox } => {
                write!(f, "mailbox {mailbox} does not exist, or its owner has dropped it")
            }
        }
    }
}

impl std::error::Error for SendError {}

/// The reason why a mailbox got no further capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CapabilityError {
    /// The mailbox has as many capabilities and lanes as it can have. The thesis calls it `ALLOCATION_ERROR`.
    TooMany {
        /// The mailbox.
        mailbox: Alias,
        /// The most capabilities and lanes.
        limit: usize,
    },
    /// The owner has dropped the mailbox.
    InvalidAlias {
        /// The mailbox.
        mailbox: Alias,
    },
    /// The mailbox has this capability already.
    Exists {
        /// The mailbox.
        mailbox: Alias,
    },
}

impl fmt::Display for CapabilityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CapabilityError::TooMany { mailbox, limit } => write!(
                f,
                "mailbox {mailbox} has {limit} capabilities and lanes already; remove capabilities, and receive \
                 all that was sent with them"
            ),
            CapabilityError::InvalidAlias { mailbox } => {
                write!(f, "mailbox {mailbox} gets no capability, since its owner has dropped it")
            }
            CapabilityError::Exists { mailbox } => {
                write!(f, "mailbox {mailbox} has this capability already; remove it to change its label")
            }
        }
    }
}

impl std::error::Error for CapabilityError {}
