//! Mailboxes under the names of a group.
//!
//! Problem: a mailbox receives from senders of its own process. A client of another node knows a name alone,
//! and the mailbox behind it may move or die. Idea: a message to another node is a call, and its answer tells
//! the fate of the message. Calls run at most once already, and they find a service that has moved. A message
//! to a mailbox of the same node goes straight into its lane.
//!
//! - I1. A [sender](super::sender) has one call on its way at a time. It carries several messages, and the
//!   mailbox takes them in their order. After one that finds no room, it takes no further one.
//! - I2. All messages of a capability that come over a node take one lane of the mailbox. The node gives the
//!   messages of a mailbox to the lane one after the other, in the order of their calls.
//! - I3. The mailbox checks the capability of each message. A forged one changes no state of the mailbox.
//!
//! I1 and I2 give the messages of a sender their order, with those of unknown fate. The network may hold a
//! copy of a frame back. The server drops it once a later call of its sender has arrived
//! (`serving/I7`). Not promised: an order between mailboxes, or for one mailbox that is registered
//! several times under one name. A capability that is removed and added again begins a new order. A copy
//! that the network holds back for five minutes may arrive behind later messages.
//!
//! Cost: a call for the messages that a sender has sent since the last one, and a send for each.
//! Source: Wentzlaff 2012, §3.2.2 and §3.2.3 (FO-05, FO-07, FO-09, FO-11).

use super::driver::{Driver, Kind};
use super::window::Told;
use super::wire::{Delivered, LARGEST, decode};
use super::{NameOptions, Node, RequestError};
use crate::capability::random;
use crate::mailbox::Capabilities;
use crate::post::Post;
use crate::protocol::Time;
use crate::{Capability, Fate, Name, NameAlias, NameCapability, SendError, Sender};
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::{Arc as PostArc, StdArc as Arc};
use std::fmt;

/// The method of a message. Objects use the number above.
pub(super) const DELIVER: u64 = u64::MAX - 1;

/// A mailbox that a node serves under a name.
pub(super) struct ServedMailbox {
    post: PostArc<Post>,
    /// Ends the name.
    name: NameCapability,
    /// The node has given the name up, since the mailbox has ended.
    withdrawn: AtomicBool,
}

impl ServedMailbox {
    /// The lane of the node's workers for this mailbox (I2).
    pub(super) fn lane(&self) -> (u64, u32) {
        let bytes = self.post.alias.to_bytes();
        (bytes.iter().fold(0, |lane: u64, byte| lane.rotate_left(4) ^ u64::from(*byte)), 0)
    }

    /// Takes the messages of a call (I1). Without an answer, the call is not one of a sender.
    pub(super) fn deliver(&self, driver: &Arc<Driver>, method: u64, body: &[u8]) -> Option<Vec<u8>> {
        let (key, messages) = decode(body).filter(|_| method == DELIVER)?;
        let sender = self.sender(Capability::from_bytes(key));
        let send = |message: &[u8]| sender.as_ref().map_err(|error| *error)?.send(message);
        let mut answers: Vec<Delivered> = Vec::with_capacity(messages.len());
        for message in messages {
            let refusal = answers.last().filter(|last| last.refuses_next());
            answers.push(refusal.copied().unwrap_or_else(|| Delivered::new(send(message))));
        }
        if answers.last() == Some(&Delivered::Ended) {
            self.withdraw(driver);
        }
        Some(Delivered::encode(&answers))
    }

    /// Makes a sender by the lane of all messages that come over a node.
    pub(super) fn sender(&self, capability: Capability) -> Result<Sender, SendError> {
        Sender::in_order(self.post.clone(), capability)
    }

    /// Gives the name of an ended mailbox up, so that senders find another one, or none.
    pub(super) fn withdraw(&self, driver: &Arc<Driver>) {
        // Relaxed: the bit alone counts. The request is made under the node's lock.
        if !self.withdrawn.swap(true, Ordering::Relaxed) {
            driver.drive(|state, now| state.core.withdraw(now, self.name.clone()));
        }
    }
}

impl Node {
    /// Serves a mailbox of this process under a name. Every node of the group can send to it with a
    /// [`NamedSender`](crate::NamedSender) and a capability of the mailbox.
    ///
    /// The node gives the name up after the mailbox was dropped, at the next message.
    /// [`end_service`](Node::end_service) does so at once.
    ///
    /// A mailbox moves to another node in four steps. End its service; end the mailbox, which returns the
    /// messages that wait; make a mailbox with [the same capabilities](Capabilities::add_existing) there, and
    /// send it these messages; serve it under the name. Senders find it by themselves. The fate of a message
    /// that is under way at the move may stay unknown to its sender.
    ///
    /// # Errors
    /// [`RequestError`].
    /// # Examples
    #[cfg_attr(all(target_os = "linux", not(miri)), doc = "```")]
    #[cfg_attr(not(all(target_os = "linux", not(miri))), doc = "```ignore")]
    /// use squall::fleet::{GroupKey, LocalNetwork, Mailbox, NameOptions, NodeBuilder};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let network = LocalNetwork::new();
    /// let key = GroupKey::random();
    /// let (node, root) = NodeBuilder::new(key).found(network.bind("a")?, &[])?;
    /// let mut mailbox = Mailbox::new();
    /// let capability = mailbox.add_labelled(7)?;
    /// node.serve_mailbox(&"/log".parse()?, &root, NameOptions::new(), &mailbox.capabilities())?;
    ///
    /// let client = NodeBuilder::new(key).visit(network.bind("b")?, &["local/a"])?;
    /// let mut sender = client.sender(&"/log".parse()?, capability);
    /// sender.try_send(b"hello", Duration::from_secs(60))?;
    /// let message = mailbox.receive().unwrap();
    /// assert_eq!((message.label(), &*message), (7, &b"hello"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn serve_mailbox(
        &self,
        name: &Name,
        parent: &NameCapability,
        options: NameOptions,
        mailbox: &Capabilities,
    ) -> Result<NameCapability, RequestError> {
        let capability = NameCapability { name: name.clone(), key: random() };
        let (post, withdrawn) = (mailbox.post().clone(), AtomicBool::new(false));
        let served = ServedMailbox { post, name: capability.clone(), withdrawn };
        self.register_with(capability, parent, options, 0, Kind::Mailbox(Arc::new(served)))
    }
}

/// The reason why a message to a name was not sent, or may not have been.
///
/// Source: Wentzlaff 2012, Listing 3.2 (FO-05).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NamedSendError {
    /// The capability is not one of the mailbox: it is forged, was removed, or was for one message and is
    /// used up.
    Permissions {
        /// The name of the mailbox.
        name: Name,
    },
    /// The mailbox has no room for the message now, or had none for one before it.
    Retry {
        /// The name of the mailbox.
        name: Name,
    },
    /// The message is larger than the mailbox, or a frame, can ever take.
    NoSpace {
        /// The name of the mailbox.
        name: Name,
        /// The size of the largest message in bytes.
        largest: usize,
    },
    /// As many messages of the sender as can be are on their way: 64, or 1 MiB.
    WindowFull {
        /// The name of the mailbox.
        name: Name,
    },
    /// The mailbox has ended, and its name is about to end, or to get another mailbox.
    Ended {
        /// The name of the mailbox.
        name: Name,
    },
    /// No service had the name until the limit.
    NotFound {
        /// The name.
        name: Name,
    },
    /// The name has a service that is no mailbox.
    NoMailbox {
        /// The name.
        name: Name,
    },
    /// No node took the message until the limit, or this node is closed.
    NotSent {
        /// The name of the mailbox.
        name: Name,
        /// The fate of the call that carried it.
        fate: Fate,
    },
    /// The mailbox may have accepted the message, or may accept it later. No answer came.
    Unknown {
        /// The name of the mailbox.
        name: Name,
        /// The fate of the call that carried it.
        fate: Fate,
    },
}

impl NamedSendError {
    pub(super) fn of(told: Told, name: &Name) -> Result<(), NamedSendError> {
        let name = name.clone();
        Err(match told {
            Told::Delivered(Delivered::Accepted) => return Ok(()),
            Told::Delivered(Delivered::Permissions) => NamedSendError::Permissions { name },
            Told::Delivered(Delivered::Full) => NamedSendError::Retry { name },
            Told::Delivered(Delivered::TooLarge { largest }) => {
                NamedSendError::NoSpace { name, largest: usize::try_from(largest).unwrap_or(usize::MAX) }
            }
            Told::Delivered(Delivered::Ended) => NamedSendError::Ended { name },
            Told::NoMailbox => NamedSendError::NoMailbox { name },
            Told::Lost(Fate::NoService) => NamedSendError::NotFound { name },
            Told::Lost(Fate::TooLarge) => NamedSendError::NoSpace { name, largest: LARGEST },
            Told::Lost(fate) if fate.may_have_run() => NamedSendError::Unknown { name, fate },
            Told::Lost(fate) => NamedSendError::NotSent { name, fate },
        })
    }

    /// Returns whether the mailbox may have accepted the message.
    pub fn may_have_arrived(&self) -> bool {
        matches!(self, NamedSendError::Unknown { .. })
    }

    /// Returns whether the message was not accepted now, and may be later: send it again.
    pub fn is_passing(&self) -> bool {
        match self {
            NamedSendError::NotSent { fate, .. } => *fate != Fate::Closed,
            NamedSendError::Retry { .. }
            | NamedSendError::WindowFull { .. }
            | NamedSendError::Ended { .. }
            | NamedSendError::NotFound { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for NamedSendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NamedSendError::Permissions { name } => write!(
                f,
                "the mailbox of {name} does not know this capability; it was removed or used up, or is forged"
            ),
            NamedSendError::Retry { name } => {
                write!(f, "the mailbox of {name} is full for this capability; send again later")
            }
            NamedSendError::WindowFull { name } => {
                write!(
                    f,
                    "64 messages or 1 MiB of the sender to {name} are on their way; wait for one of them"
                )
            }
            NamedSendError::NoSpace { name, largest } => {
                write!(f, "the mailbox of {name} takes messages of at most {largest} bytes")
            }
            NamedSendError::Ended { name } => {
                write!(f, "the mailbox of {name} has ended; send again once the name has another one")
            }
            NamedSendError::NotFound { name } => {
                write!(f, "no mailbox had the name {name} until the limit; look whether it is served")
            }
            NamedSendError::NoMailbox { name } => {
                write!(f, "the service of {name} is no mailbox; call it, or choose another name")
            }
            NamedSendError::NotSent { name, fate } => write!(f, "the message to {name} was not sent: {fate}"),
            NamedSendError::Unknown { name, fate } => {
                write!(f, "the message to {name} may have arrived: {fate}")
            }
        }
    }
}

impl std::error::Error for NamedSendError {}

impl Driver {
    /// Returns the mailbox that this node serves under a name now, if no other service here has the name.
    pub(super) fn mailbox_here(&self, name: NameAlias) -> Option<(u64, Arc<ServedMailbox>)> {
        let now: Time = self.now();
        let state = self.state();
        let service = state.core.service_here(now, name)?;
        match state.service(service) {
            Some(Kind::Mailbox(mailbox)) => Some((service, mailbox.clone())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::sender::{NamedSender, NamedSending};
    use crate::{GroupKey, LocalNetwork, Mailbox, NodeBuilder};
    use squall_sys::sync::thread;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    /// A node that serves a mailbox, and a sender to it.
    fn served() -> (Node, Mailbox, NamedSender) {
        let (node, root) = node();
        let name: Name = "/log".parse().unwrap();
        let mailbox = Mailbox::new();
        let sender = node.sender(&name, mailbox.add_capability().unwrap());
        node.serve_mailbox(&name, &root, NameOptions::new(), &mailbox.capabilities()).unwrap();
        (node, mailbox, sender)
    }

    fn node() -> (Node, NameCapability) {
        NodeBuilder::new(GroupKey::random()).found(LocalNetwork::new().bind("a").unwrap(), &[]).unwrap()
    }

    #[test]
    fn a_message_to_the_same_node_makes_no_call() {
        let (node, mut mailbox, mut sender) = served();
        for n in 0..100_u32 {
            sender.try_send(&n.to_le_bytes(), LONG).unwrap();
            assert_eq!(&*mailbox.receive().unwrap(), n.to_le_bytes());
        }
        // The workers of a node start with its first call.
        assert_eq!(node.0.workers.threads(), 0);
    }

    #[test]
    fn a_message_that_was_given_up_is_passed_by_no_later_one() {
        let (node, root) = node();
        let name: Name = "/log".parse().unwrap();
        let mut mailbox = Mailbox::new();
        let mut sender = node.sender(&name, mailbox.add_capability().unwrap());
        let mut context = Context::from_waker(Waker::noop());
        // The first message waits for the name.
        assert!(pin!(sender.try_send_async(b"first", LONG)).poll(&mut context).is_pending());
        assert!(!sender.is_settled());
        node.serve_mailbox(&name, &root, NameOptions::new(), &mailbox.capabilities()).unwrap();
        sender.try_send(b"second", LONG).unwrap();
        let received: Vec<_> = std::iter::from_fn(|| mailbox.receive().map(|m| m.to_vec())).collect();
        assert_eq!(received, [&b"first"[..], b"second"]);
    }

    #[test]
    fn after_a_message_of_unknown_fate_the_next_one_is_a_call() {
        let (node, mut mailbox, mut sender) = served();
        sender.make_uncertain();
        sender.try_send(b"a call", LONG).unwrap();
        assert!(node.0.workers.threads() > 0 && sender.is_settled());
        sender.try_send(b"straight", LONG).unwrap();
        assert!(sender.is_here());
        assert_eq!(&*mailbox.receive().unwrap(), b"a call");
        assert_eq!(&*mailbox.receive().unwrap(), b"straight");
    }

    #[test]
    fn a_message_that_was_not_sent_does_not_settle_the_one_before() {
        let (_node, mut mailbox, mut sender) = served();
        sender.make_uncertain();
        let error = sender.try_send(b"no time", Duration::ZERO).unwrap_err();
        assert!(!error.may_have_arrived() && !sender.is_settled(), "{error}");
        sender.try_send(b"a call", LONG).unwrap();
        assert!(sender.is_settled() && !sender.is_here());
        assert_eq!(&*mailbox.receive().unwrap(), b"a call");
    }

    #[test]
    fn a_capability_that_is_added_again_opens_the_straight_way_again() {
        let (node, root) = node();
        let name: Name = "/log".parse().unwrap();
        let mut mailbox = Mailbox::new();
        let capabilities = mailbox.capabilities();
        let key = mailbox.add_labelled(1).unwrap();
        let mut sender = node.sender(&name, key);
        node.serve_mailbox(&name, &root, NameOptions::new(), &capabilities).unwrap();
        for label in 1..4 {
            sender.try_send(b"x", LONG).unwrap();
            assert_eq!(mailbox.receive().unwrap().label(), label);
            assert!(capabilities.remove(key));
            let refused = NamedSendError::Permissions { name: name.clone() };
            // The lane is closed, and then there is none.
            for _ in 0..2 {
                assert_eq!(sender.try_send(b"x", LONG), Err(refused.clone()));
            }
            capabilities.add_existing(key, label + 1).unwrap();
            sender.try_send(b"x", LONG).unwrap();
            assert!(mailbox.receive().is_some());
            assert!(capabilities.remove(key));
            // The sender has not tried in between.
            capabilities.add_existing(key, label + 1).unwrap();
        }
        assert_eq!(node.0.workers.threads(), 0);
    }

    #[test]
    fn a_node_forgets_a_mailbox_that_has_lost_its_name() {
        let (node, root) = node();
        let name: Name = "/log".parse().unwrap();
        for is_dropped in [false, true] {
            let mailbox = Mailbox::new();
            let capabilities = mailbox.capabilities();
            let post = PostArc::downgrade(capabilities.post());
            let mut sender = node.sender(&name, mailbox.add_capability().unwrap());
            let served = node.serve_mailbox(&name, &root, NameOptions::new(), &capabilities).unwrap();
            drop(capabilities);
            sender.try_send(b"x", LONG).unwrap();
            assert_eq!(node.0.state().services(), 1);
            drop(mailbox);
            if is_dropped {
                assert_eq!(sender.try_send(b"x", LONG), Err(NamedSendError::Ended { name: name.clone() }));
            } else {
                node.end_service(&served).unwrap();
            }
            while node.0.state().services() > 0 {
                thread::yield_now();
            }
            assert!(sender.try_send(b"x", Duration::ZERO).is_err());
            assert!(post.upgrade().is_none());
        }
    }

    #[test]
    fn a_node_forgets_a_mailbox_whose_name_another_node_has_ended() {
        let (network, key) = (LocalNetwork::new(), GroupKey::random());
        let (node, root) = NodeBuilder::new(key).found(network.bind("a").unwrap(), &[]).unwrap();
        let other = NodeBuilder::new(key).join(network.bind("b").unwrap(), &["local/a"]).unwrap();
        other.wait_joined(LONG).unwrap();
        let mailbox = Mailbox::new();
        let capabilities = mailbox.capabilities();
        let name: Name = "/log".parse().unwrap();
        for _ in 0..2 {
            let served = node.serve_mailbox(&name, &root, NameOptions::new(), &capabilities).unwrap();
            assert_eq!(node.0.state().services(), 1);
            other.end_service(&served).unwrap();
            while node.0.state().services() > 0 {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn a_call_that_is_no_message_changes_no_mailbox() {
        let (node, root) = node();
        let name: Name = "/log".parse().unwrap();
        let mut mailbox = Mailbox::new();
        node.serve_mailbox(&name, &root, NameOptions::new(), &mailbox.capabilities()).unwrap();
        for (method, body) in [(DELIVER, &b"short"[..]), (DELIVER, &[9; 64]), (0, &[0; 64]), (u64::MAX, b"")]
        {
            assert_eq!(node.call(&name, method, body, LONG).unwrap_err().fate, Fate::Dropped);
        }
        assert!(mailbox.receive().is_none());
        // Twelve empty messages with a forged capability.
        let answer = node.call(&name, DELIVER, &[0; 64], LONG).unwrap();
        assert_eq!(Delivered::decode(&answer), Some(vec![Delivered::Permissions; 12]));
        assert_eq!(format!("{mailbox:?}").matches("lanes: 0").count(), 1, "{mailbox:?}");
    }

    #[test]
    fn a_dropped_send_delays_no_later_one_beyond_its_limit() {
        let (node, _root) = node();
        let mailbox = Mailbox::new();
        let mut sender = node.sender(&"/missing".parse().unwrap(), mailbox.add_capability().unwrap());
        // It waits for the name.
        drop(sender.start_send(b"dropped", Duration::MAX).unwrap());
        // The first limit is earlier than the alarm of the second message, which goes on.
        let long = sender.start_send(b"long", LONG).unwrap();
        for limit in [Duration::ZERO, Duration::from_millis(20)] {
            let error = sender.try_send(b"short", limit).unwrap_err();
            assert!(matches!(error, NamedSendError::NotSent { fate: Fate::NotAccepted, .. }), "{error}");
            assert!(error.is_passing() && !error.may_have_arrived());
        }
        assert!(pin!(long).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    #[test]
    fn alarms_end_with_their_sender() {
        let (node, _root) = node();
        let mailbox = Mailbox::new();
        let mut sender = node.sender(&"/missing".parse().unwrap(), mailbox.add_capability().unwrap());
        drop(sender.start_send(b"a", LONG).unwrap());
        let waiting =
            [30, 20, 10].map(|seconds| sender.start_send(b"b", Duration::from_secs(seconds)).unwrap());
        assert_eq!(node.0.state().alarms(), 1);
        drop((waiting, sender));
        // The call holds the line.
        node.0.close();
        assert_eq!(node.0.state().alarms(), 0);
    }

    #[test]
    fn messages_on_their_way_end_when_the_node_is_closed() {
        let (node, _root) = node();
        let mailbox = Mailbox::new();
        let mut sender = node.sender(&"/missing".parse().unwrap(), mailbox.add_capability().unwrap());
        let sendings: Vec<_> = (0..10).map(|_| sender.start_send(b"x", LONG).unwrap()).collect();
        node.0.close();
        for sending in sendings {
            let error = sending.wait().unwrap_err();
            assert!(matches!(error, NamedSendError::NotSent { fate: Fate::Closed, .. }), "{error}");
        }
    }

    #[test]
    fn messages_that_wait_for_a_name_arrive_in_their_order() {
        let (node, root) = node();
        let name: Name = "/log".parse().unwrap();
        let mut mailbox = Mailbox::new();
        let mut sender = node.sender(&name, mailbox.add_capability().unwrap());
        let sendings: Vec<_> = (0..64_u8).map(|n| sender.start_send(&[n], LONG).unwrap()).collect();
        let full = NamedSendError::WindowFull { name: name.clone() };
        assert_eq!(sender.try_send(b"x", LONG), Err(full.clone()));
        assert!(full.is_passing() && !full.may_have_arrived());
        node.serve_mailbox(&name, &root, NameOptions::new(), &mailbox.capabilities()).unwrap();
        sendings.into_iter().for_each(|sending| sending.wait().unwrap());
        assert!(sender.is_settled());
        assert!(std::iter::from_fn(|| mailbox.receive().map(|message| message[0])).eq(0..64));
    }

    #[test]
    fn a_message_without_room_refuses_those_behind_it_and_no_earlier_one() {
        let (node, root) = node();
        let name: Name = "/log".parse().unwrap();
        let mut mailbox = Mailbox::builder().lane_bytes(64).build();
        let mut sender = node.sender(&name, mailbox.add_capability().unwrap());
        let mut left: Vec<u8> = (0..40).collect();
        // The name comes later, so the first messages are calls.
        let mut sendings: Vec<_> = left.iter().map(|n| sender.start_send(&[*n], LONG)).collect();
        node.serve_mailbox(&name, &root, NameOptions::new(), &mailbox.capabilities()).unwrap();
        let mut received = Vec::new();
        while !left.is_empty() {
            let accepted = sendings.into_iter().map(|sending| match sending.and_then(NamedSending::wait) {
                Ok(()) => true,
                Err(NamedSendError::Retry { .. }) => false,
                Err(error) => panic!("{error}"),
            });
            let accepted: Vec<bool> = accepted.collect();
            let count = accepted.iter().take_while(|accepted| **accepted).count();
            assert!(accepted[count..].iter().all(|accepted| !accepted), "{accepted:?}");
            assert!(count < 10 && count > 0, "the lane holds {count} messages");
            received.extend(std::iter::from_fn(|| mailbox.receive().map(|message| message[0])));
            left.drain(..count);
            sender.make_uncertain();
            sendings = left.iter().map(|n| sender.start_send(&[*n], LONG)).collect();
        }
        assert_eq!(received, (0..40).collect::<Vec<u8>>());
    }

    #[test]
    fn a_sender_goes_on_once_the_fates_of_refused_messages_are_taken() {
        let (node, root) = node();
        let name: Name = "/log".parse().unwrap();
        let mut mailbox = Mailbox::builder().lane_bytes(64).build();
        let mut sender = node.sender(&name, mailbox.add_capability().unwrap());
        let mut sendings: Vec<_> = (0..40_u8).map(|n| sender.start_send(&[n], LONG).unwrap()).collect();
        node.serve_mailbox(&name, &root, NameOptions::new(), &mailbox.capabilities()).unwrap();
        let retry = Err(NamedSendError::Retry { name });
        assert_eq!(sendings.pop().unwrap().wait(), retry);
        while mailbox.receive().is_some() {}
        // There is room, but the sender would pass the refused ones.
        assert_eq!(sender.try_send(b"x", LONG), retry);
        let refused = sendings.pop().unwrap();
        drop(sendings);
        assert_eq!(sender.try_send(b"x", LONG), retry);
        assert_eq!(refused.wait(), retry);
        sender.try_send(b"x", LONG).unwrap();
        assert_eq!(&*mailbox.receive().unwrap(), b"x");
    }
}
