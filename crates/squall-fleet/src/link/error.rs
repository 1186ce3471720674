//! Errors of links.

use std::fmt;

/// The name of a link, for people: its number in this process, and the process at its other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkName {
    pub(crate) number: u32,
    pub(crate) pid: Option<u32>,
}

impl LinkName {
    /// Returns the id of the process at the other end, if the kernel knows it. It does not for a pair of
    /// sockets without [`LinkOptions::process`](crate::LinkOptions::process), or in another pid namespace.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "link {} to process {pid}", self.number),
            None => write!(f, "link {}", self.number),
        }
    }
}

/// The rule that the peer of a link has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The peer published more bytes than the lane has room for.
    Tail,
    /// The length of a message exceeds the bytes that the peer published.
    Length,
    /// The peer gave back more room than was in use.
    Head,
    /// The peer sent an unknown packet on the socket.
    Packet,
}

impl Fault {
    pub(crate) const ALL: [Fault; 4] = [Fault::Tail, Fault::Length, Fault::Head, Fault::Packet];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Tail => "it published more bytes than the lane has room for",
            Fault::Length => "the length of a message exceeds the bytes that it published",
            Fault::Head => "it gave back more room than was in use",
            Fault::Packet => "it sent an unknown packet on the socket",
        })
    }
}

/// The reason why a link sent or received no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// The lane has no room for the message now. Send again later, or
    /// [wait](crate::LinkSender::wait_to_send).
    Retry {
        /// The link.
        link: LinkName,
    },
    /// The message is larger than the lane can ever take.
    NoSpace {
        /// The link.
        link: LinkName,
        /// The size of the largest message in bytes.
        largest: usize,
    },
    /// The peer has dropped the other end of this direction: it sends no more, or receives no more.
    Ended {
        /// The link.
        link: LinkName,
    },
    /// The process at the other end has ended or hung up. All messages that it sent were received.
    PeerGone {
        /// The link.
        link: LinkName,
    },
    /// The process at the other end broke the protocol, which ended the link.
    Broken {
        /// The link.
        link: LinkName,
        /// The rule that it broke.
        fault: Fault,
    },
    /// The process is the child of a fork. The link is the parent's; such a child may only exec.
    Forked {
        /// The link.
        link: LinkName,
    },
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::Retry { link } => write!(f, "{link} is full; send again later"),
            LinkError::NoSpace { link, largest } => {
                write!(
                    f,
                    "{link} takes messages of at most {largest} bytes; the peer sets the size of its lane"
                )
            }
            LinkError::Ended { link } => {
                write!(f, "the peer has closed this direction of {link}; make a new link to go on")
            }
            LinkError::PeerGone { link } => {
                write!(f, "the peer of {link} has ended or hung up; connect again once it runs")
            }
            LinkError::Broken { link, fault } => {
                write!(f, "{link} was ended since the peer broke the protocol: {fault}")
            }
            LinkError::Forked { link } => {
                write!(f, "{link} cannot be used in the child of a fork; such a child may only exec")
            }
        }
    }
}

impl std::error::Error for LinkError {}
