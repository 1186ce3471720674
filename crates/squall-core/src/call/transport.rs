//! Reasons of failures between two processes.

use std::fmt;

/// The reason why a call of an object of another process failed.
///
/// It is apart from the errors that the method itself returns.
///
/// ```
/// use squall::{MessageError, Transport};
///
/// // Calls that can be repeated, even if they are not idempotent.
/// assert!(!Transport::Denied.may_have_run());
/// assert!(!Transport::Disconnected.may_have_run());
/// assert!(!Transport::BadArguments(MessageError::TooLarge).may_have_run());
/// assert!(Transport::BadResult(MessageError::TooLarge).may_have_run());
/// assert!(Transport::PeerGone.may_have_run());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Transport {
    /// The process of the object ended or closed the connection during the call. The method may have run.
    PeerGone,
    /// The connection ended before the process of the object began the call. The method did not run.
    Disconnected,
    /// The deadline of the call passed. The method may have run, or may still run.
    Deadline,
    /// The caller has no right to call this method. The method did not run.
    Denied,
    /// The process of the object no longer exports it. The method did not run.
    NoSuchObject,
    /// The process of the object destroyed it. The method did not run.
    Destroyed,
    /// The arguments could not be sent. The method did not run.
    BadArguments(MessageError),
    /// The result could not be sent. The method ran.
    BadResult(MessageError),
    /// The method panicked in the process of the object.
    Panicked,
    /// The process of the object did not begin the call before its deadline. Or the call came out of a call,
    /// had no deadline, and found no thread or slot free. The method did not run, and never will.
    Busy,
    /// The method, or the object itself, called an object of a third process, and that call failed. The
    /// method may have run in part.
    Nested,
    /// One of the two processes does not support the call. The method did not run.
    Unsupported,
    /// The call would block a dispatcher: it was made in one of its tasks, or on the only thread that can
    /// serve it. The method did not run.
    WouldBlock,
}

/// The reason why arguments or a result could not be sent to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum MessageError {
    /// They exceed the limit of a message: 8,192 bytes, and 256 more for lengths and small values.
    TooLarge,
    /// Their implementation of `Serialize` failed, or does not know its length.
    Unencodable,
    /// The bytes are no values of the receiver's types. Both processes use different types, or attributes of
    /// serde that need a self-describing format.
    Undecodable,
}

impl Transport {
    /// Returns whether the method may have run, in full or in part. If not, the call can be repeated safely.
    ///
    /// A hostile process may say that a method did not run that ran.
    pub const fn may_have_run(self) -> bool {
        match self {
            Transport::Busy
            | Transport::Denied
            | Transport::NoSuchObject
            | Transport::Destroyed
            | Transport::Disconnected
            | Transport::BadArguments(_)
            | Transport::Unsupported
            | Transport::WouldBlock => false,
            Transport::PeerGone
            | Transport::Deadline
            | Transport::BadResult(_)
            | Transport::Panicked
            | Transport::Nested => true,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::PeerGone => {
                "the process of the object ended or closed the connection during the call; import the object again"
            }
            Transport::Disconnected => "the connection had ended before the call; import the object again",
            Transport::Deadline => {
                "the deadline passed before the process of the object answered; allow more time, or call again"
            }
            Transport::Denied => {
                "the process of the object denies this caller the method; grant the right where the object is exported"
            }
            Transport::NoSuchObject => "the process of the object no longer exports it; import it again",
            Transport::Destroyed => {
                "the process of the object destroyed it; import it again once it is exported again"
            }
            Transport::BadArguments(error) => return write!(f, "the arguments {error}"),
            Transport::BadResult(error) => return write!(f, "the result {error}"),
            Transport::Panicked => {
                "the method panicked in the process of the object; the panic's message is in the output of that process"
            }
            Transport::Busy => {
                "the process of the object did not begin the call in time; call again, or allow more time"
            }
            Transport::Nested => {
                "a call that the object made of another process failed; look for the cause there"
            }
            Transport::Unsupported => {
                "one of the two processes does not support the call; run both on Linux, with the same methods"
            }
            Transport::WouldBlock => {
                "the call would block the dispatcher of this thread, and did not begin; make it on another thread"
            }
        })
    }
}

impl std::error::Error for Transport {}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MessageError::TooLarge => "exceed 8,192 bytes, the limit of a message; split them over several calls",
            MessageError::Unencodable => "could not be encoded; see the attributes of serde on their types",
            MessageError::Undecodable => {
                "could not be decoded; build both processes with the same types, without `skip_serializing_if` and \
                 other attributes of serde that need a self-describing format"
            }
        })
    }
}

impl std::error::Error for MessageError {}
