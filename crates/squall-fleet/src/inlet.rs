//! The ways by which requests come to a dispatcher and replies go back: mailboxes and links.
//!
//! - I1. A request of a link is answered on the same link, and one of a mailbox at the mailbox that it names.
//!   A request that asks for the other way is malformed. So a process at the other end of a link reaches no
//!   mailbox of this one.
//! - I2. A link that serves carries requests in one direction and replies in the other. So a reply never
//!   waits behind a request.

use crate::envelope::{Address, Destination};
use crate::{Mailbox, SendError, Sender};
use std::fmt;
use std::rc::Rc;
use std::task::Waker;

#[cfg(all(target_os = "linux", not(miri)))]
use crate::link::{Link, LinkError, LinkSender};
#[cfg(all(target_os = "linux", not(miri)))]
use crate::link_port::{LinkPort, Linked};
#[cfg(all(target_os = "linux", not(miri)))]
use crate::links::{Links, Look};
#[cfg(all(target_os = "linux", not(miri)))]
use squall_sys::sync::StdArc;

/// The most links that end in one look.
#[cfg(all(target_os = "linux", not(miri)))]
const ENDS: usize = 16;
/// Requests of a link that are told of the end of the dispatcher.
#[cfg(all(target_os = "linux", not(miri)))]
const TOLD_MAX: usize = 4096;

/// A source of requests for a [`Dispatcher`](crate::Dispatcher): a [`Mailbox`], and on Linux a
/// [`Link`](crate::Link) or a [`LinkPort`](crate::LinkPort) with any number of them.
///
/// # Example
/// ```
/// use squall::fleet::{Class, Dispatcher, Inlet, Mailbox};
///
/// let mut dispatcher = Dispatcher::new();
/// let inlet = Inlet::from(Mailbox::new());
/// assert!(inlet.to_string().starts_with("mailbox "));
/// dispatcher.serve(inlet, Class::External, |request| async move { request.reply(b"") });
/// ```
#[derive(Debug)]
pub struct Inlet(pub(crate) Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    Mailbox(Mailbox),
    #[cfg(all(target_os = "linux", not(miri)))]
    Links(LinkPort),
}

impl From<Mailbox> for Inlet {
    fn from(mailbox: Mailbox) -> Inlet {
        Inlet(Kind::Mailbox(mailbox))
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
impl From<LinkPort> for Inlet {
    fn from(port: LinkPort) -> Inlet {
        Inlet(Kind::Links(port))
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
impl From<Link> for Inlet {
    fn from(link: Link) -> Inlet {
        let name = link.name().to_string();
        let port = LinkPort::named(&name);
        // A new port has room.
        let added = port.adder().add(link);
        debug_assert!(added.is_ok());
        Inlet(Kind::Links(port))
    }
}

impl fmt::Display for Inlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Mailbox(mailbox) => write!(f, "mailbox {}", mailbox.alias()),
            #[cfg(all(target_os = "linux", not(miri)))]
            Kind::Links(port) => f.write_str(port.name()),
        }
    }
}

/// The link of a request: its place in the port, and its number in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(any(not(target_os = "linux"), miri), allow(dead_code))]
pub(crate) struct Peer {
    pub(crate) place: usize,
    pub(crate) link: u32,
}

/// A message that came by an inlet.
pub(crate) struct Arrived<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) label: u64,
    /// The link by which it came.
    pub(crate) peer: Option<Peer>,
    /// The way back of a link.
    #[cfg(all(target_os = "linux", not(miri)))]
    link: Option<&'a StdArc<LinkSender>>,
}

impl Arrived<'_> {
    /// Returns the way of the reply, if the message came by a way that has it (I1).
    pub(crate) fn reply_to(&self, asked: Option<Destination>) -> Option<Option<ReplyTo>> {
        #[cfg(all(target_os = "linux", not(miri)))]
        if let Some(link) = self.link {
            return match asked {
                None => Some(None),
                Some(Destination::Link) => Some(Some(ReplyTo::Link(link.clone()))),
                Some(Destination::Mailbox(_)) => None,
            };
        }
        match asked {
            None => Some(None),
            Some(Destination::Mailbox(address)) => Some(Some(ReplyTo::Mailbox(address))),
            Some(Destination::Link) => None,
        }
    }
}

impl Inlet {
    /// Notes that a dispatcher of the calling thread serves the inlet.
    pub(crate) fn set_served_here(&self) {
        match &self.0 {
            Kind::Mailbox(mailbox) => mailbox.set_served_here(),
            #[cfg(all(target_os = "linux", not(miri)))]
            Kind::Links(_) => {}
        }
    }

    /// Takes the next message, if there is one.
    pub(crate) fn receive(&mut self) -> Option<Arrived<'_>> {
        match &mut self.0 {
            Kind::Mailbox(mailbox) => {
                let label = mailbox.receive()?.label();
                Some(Arrived {
                    bytes: mailbox.last(),
                    label,
                    peer: None,
                    #[cfg(all(target_os = "linux", not(miri)))]
                    link: None,
                })
            }
            #[cfg(all(target_os = "linux", not(miri)))]
            Kind::Links(port) => {
                let place = next(&mut port.links)?;
                let Linked { receiver, sender, label } = port.links.get(place)?;
                let peer = Some(Peer { place, link: sender.name().number });
                Some(Arrived { bytes: receiver.last(), label: *label, peer, link: Some(sender) })
            }
        }
    }

    /// Returns whether it has several links, which share the limit of the class.
    pub(crate) fn has_links(&self) -> bool {
        match &self.0 {
            Kind::Mailbox(_) => false,
            #[cfg(all(target_os = "linux", not(miri)))]
            Kind::Links(port) => port.links.count() > 1,
        }
    }

    /// Receives no message of a link until its [release](Inlet::release).
    pub(crate) fn hold(&mut self, _peer: Peer) {
        match &mut self.0 {
            Kind::Mailbox(_) => {}
            #[cfg(all(target_os = "linux", not(miri)))]
            Kind::Links(port) => port.links.hold(_peer.place),
        }
    }

    /// Receives messages of a link again.
    pub(crate) fn release(&mut self, _peer: Peer) {
        match &mut self.0 {
            Kind::Mailbox(_) => {}
            #[cfg(all(target_os = "linux", not(miri)))]
            // Its place may be that of another link now, which is held for itself.
            Kind::Links(port) => {
                let is_there = |link: &Linked| link.sender.name().number == _peer.link;
                if port.links.get(_peer.place).is_some_and(is_there) {
                    port.links.release(_peer.place);
                }
            }
        }
    }

    /// Announces a sleep until `waker` is called. Returns false if there may be a message.
    pub(crate) fn sleep(&mut self, waker: &Waker) -> bool {
        match &mut self.0 {
            Kind::Mailbox(mailbox) => mailbox.sleep(waker),
            #[cfg(all(target_os = "linux", not(miri)))]
            Kind::Links(port) => port.links.sleep(waker),
        }
    }

    /// Ends a sleep that no message ended.
    pub(crate) fn awake(&self) {
        match &self.0 {
            Kind::Mailbox(mailbox) => mailbox.awake(),
            #[cfg(all(target_os = "linux", not(miri)))]
            Kind::Links(port) => port.links.awake(),
        }
    }

    /// Ends the inlet. Calls `tell` with each message that was not received.
    pub(crate) fn end(self, mut tell: impl FnMut(Arrived<'_>)) {
        match self.0 {
            Kind::Mailbox(mailbox) => {
                for (label, bytes) in mailbox.end() {
                    tell(Arrived {
                        bytes: &bytes,
                        label,
                        peer: None,
                        #[cfg(all(target_os = "linux", not(miri)))]
                        link: None,
                    });
                }
            }
            #[cfg(all(target_os = "linux", not(miri)))]
            Kind::Links(mut port) => {
                for Linked { mut receiver, sender, label } in port.links.end() {
                    // A peer that goes on sending must not hold up the end.
                    for _ in 0..TOLD_MAX {
                        let Ok(true) = receiver.look() else { break };
                        tell(Arrived { bytes: receiver.last(), label, peer: None, link: Some(&sender) });
                    }
                }
            }
        }
    }
}

/// Returns the number of a link with a message.
#[cfg(all(target_os = "linux", not(miri)))]
fn next(links: &mut Links<Linked>) -> Option<usize> {
    for _ in 0..ENDS {
        match links.look() {
            Look::Message(number) => return Some(number),
            // The peer has ended, or broke the protocol. Replies to it are lost.
            Look::Ended(link, _) => drop(link),
            Look::Nothing => return None,
        }
    }
    None
}

/// The way of a reply.
#[derive(Clone)]
pub(crate) enum ReplyTo {
    Mailbox(Address),
    #[cfg(all(target_os = "linux", not(miri)))]
    Link(StdArc<LinkSender>),
}

/// A key for the replies of one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    Mailbox(Address),
    #[cfg(all(target_os = "linux", not(miri)))]
    Link(u32),
}

impl ReplyTo {
    pub(crate) fn way(&self) -> Way {
        match self {
            ReplyTo::Mailbox(address) => Way::Mailbox(*address),
            #[cfg(all(target_os = "linux", not(miri)))]
            ReplyTo::Link(sender) => Way::Link(sender.name().number),
        }
    }
}

/// The sender of replies.
#[derive(Clone)]
pub(crate) enum Outlet {
    Mailbox(Rc<Sender>),
    #[cfg(all(target_os = "linux", not(miri)))]
    Link(StdArc<LinkSender>),
}

/// The fate of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Sent,
    /// There is no room now.
    Full,
    /// The caller has gone.
    Gone,
}

impl Outlet {
    /// Returns the size in bytes of the largest message.
    pub(crate) fn largest(&self) -> usize {
        match self {
            Outlet::Mailbox(sender) => sender.largest(),
            #[cfg(all(target_os = "linux", not(miri)))]
            Outlet::Link(sender) => sender.largest_message(),
        }
    }

    pub(crate) fn send(&self, message: &[u8]) -> Told {
        match self {
            Outlet::Mailbox(sender) => match sender.send(message) {
                Ok(()) => Told::Sent,
                Err(SendError::Retry { .. }) => Told::Full,
                Err(_) => Told::Gone,
            },
            #[cfg(all(target_os = "linux", not(miri)))]
            Outlet::Link(sender) => match sender.send(message) {
                Ok(()) => Told::Sent,
                Err(LinkError::Retry { .. }) => Told::Full,
                Err(_) => Told::Gone,
            },
        }
    }

    /// Sends as soon as there is room. A caller that has gone needs no reply.
    pub(crate) async fn send_later(&self, message: &[u8]) {
        match self {
            Outlet::Mailbox(sender) => drop(sender.wait_to_send(message).await),
            #[cfg(all(target_os = "linux", not(miri)))]
            Outlet::Link(sender) => drop(sender.wait_to_send(message).await),
        }
    }
}
