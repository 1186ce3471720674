//! Connections that failed for a reason that a person can mend.

use crate::frame::endpoint;
use std::fmt;
use std::net::SocketAddr;

/// A connection that was refused or ended, since its sides do not agree on encryption or on an endpoint.
///
/// [`Tcp::last_fault`](crate::Tcp::last_fault) returns the latest one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionFault {
    /// The endpoint of the transport that noticed it.
    pub local: String,
    /// The endpoint of the other side, or its address if the endpoint is unknown.
    pub remote: String,
    /// The reason.
    pub reason: FaultReason,
}

/// The reason of a [`ConnectionFault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultReason {
    /// Encryption on this side alone.
    NotEncrypted,
    /// Encryption on the other side alone.
    Encrypted,
    /// Different keys, or a greeting that was changed on the way.
    OtherKey,
    /// Encryption with the same key, but the dialled node advertises another endpoint, or another node was
    /// reached.
    OtherEndpoint {
        /// The address in the endpoint of the node that was reached.
        answered: SocketAddr,
    },
    /// A record that was changed, repeated or left out on the way. The connection was ended.
    Changed,
}

impl fmt::Display for ConnectionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConnectionFault { local, remote, reason } = self;
        match reason {
            FaultReason::NotEncrypted => {
                write!(
                    f,
                    "{local} encrypts and {remote} does not; give both the key of the group, or neither"
                )
            }
            FaultReason::Encrypted => {
                write!(
                    f,
                    "{remote} encrypts and {local} does not; give both the key of the group, or neither"
                )
            }
            FaultReason::OtherKey => {
                write!(f, "{local} and {remote} have different keys; give both the key of one group")
            }
            FaultReason::OtherEndpoint { answered } => {
                let answered = endpoint(*answered);
                write!(
                    f,
                    "{local} dialled {remote}, and {answered} answered; name each node by the endpoint that it \
                     advertises"
                )
            }
            FaultReason::Changed => write!(
                f,
                "bytes between {local} and {remote} were changed on the way, and their connection was ended; \
                 look for the change in the network between them"
            ),
        }
    }
}

impl std::error::Error for ConnectionFault {}
