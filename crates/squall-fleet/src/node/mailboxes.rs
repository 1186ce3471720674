//! Mailboxes under the names of a group.
//!
//! Problem: a mailbox receives from senders of its own process. A client of another node knows a name alone,
//! and the mailbox behind it may move or die. Idea: a message to another node is a call, and its answer tells
//! the fate of the message. Calls run at most once already, and they find a service that has moved. A message
//! to a mailbox of the same node goes straight into its lane.
//!
//! - I1. A sender has one message on its way at a time. It waits for the call of a message that was given up
//!   before it sends the next one.
//! - I2. All messages of a capability that come over a node take one lane of the mailbox. The node gives the
//!   messages of a mailbox to the lane one after the other, in the order of their calls.
//! - I3. The mailbox checks the capability of each message. A forged one changes no state of the mailbox.
//! - I4. After a message of unknown fate the next ones are calls, too, until a mailbox has answered one. So
//!   none passes the former message on the straight way.
//!
//! I1 and I2 give the messages of a sender their order, with those of unknown fate. The network may hold a
//! copy of a frame back. The server drops it once a later call of its sender has arrived
//! (`serving/I7`). Not promised: an order between mailboxes, or for one mailbox that is registered
//! several times under one name. A capability that is removed and added again begins a new order. A copy
//! that the network holds back for five minutes may arrive behind later messages.
//!
//! Cost: on the same node, the lock of the node and a send. Else a call, so one message in each round trip.
//! Source: Wentzlaff 2012, §3.2.2 and §3.2.3 (FO-05, FO-07, FO-09, FO-11).

use super::driver::{Driver, Kind};
use super::{NameOptions, Node, RequestError, block, route};
use crate::capability::random;
use crate::handover::Taker;
use crate::mailbox::Capabilities;
use crate::post::Post;
use crate::protocol::{LARGEST_BODY, Time};
use crate::{Capability, Fate, Name, NameAlias, NameCapability, SendError, Sender};
use serde::{Deserialize, Serialize};
use squall_sys::fork::forked;
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::{Arc as PostArc, StdArc as Arc, thread};
use std::fmt;
use std::future::Future;
use std::time::{Duration, Instant};

/// The method of a message. Objects use the number above.
const DELIVER: u64 = u64::MAX - 1;
/// The bytes of a capability before a message.
const KEY: usize = 16;
/// Begins the answers of mailboxes. Those of other services do not begin with it, but by chance.
const MARK: [u8; 8] = *b"\xd1mailbox";
/// The pause before a message is sent again.
const PAUSE: Duration = Duration::from_millis(2);

/// The answer to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Delivered {
    Accepted,
    Permissions,
    Full,
    TooLarge { largest: u64 },
    Ended,
}

impl Delivered {
    fn new(sent: Result<(), SendError>) -> Delivered {
        match sent {
            Ok(()) => Delivered::Accepted,
            Err(SendError::Permissions { .. }) => Delivered::Permissions,
            Err(SendError::Retry { .. }) => Delivered::Full,
            Err(SendError::NoSpace { largest, .. }) => Delivered::TooLarge { largest: largest as u64 },
            Err(SendError::InvalidAlias { .. }) => Delivered::Ended,
        }
    }

    fn encode(self) -> Vec<u8> {
        postcard::to_allocvec(&(MARK, self)).unwrap_or_default()
    }

    fn decode(bytes: &[u8]) -> Option<Delivered> {
        match postcard::take_from_bytes::<([u8; 8], Delivered)>(bytes) {
            Ok(((MARK, delivered), [])) => Some(delivered),
            _ => None,
        }
    }
}

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

    /// Takes the message of a call. Without an answer, the call is not one of a sender.
    pub(super) fn deliver(&self, driver: &Arc<Driver>, method: u64, body: &[u8]) -> Option<Vec<u8>> {
        let (key, message) = body.split_first_chunk::<KEY>().filter(|_| method == DELIVER)?;
        let capability = Capability::from_bytes(*key);
        let sent = Sender::in_order(self.post.clone(), capability).and_then(|sender| sender.send(message));
        let delivered = Delivered::new(sent);
        if delivered == Delivered::Ended {
            self.withdraw(driver);
        }
        Some(delivered.encode())
    }

    /// Gives the name of an ended mailbox up, so that senders find another one, or none.
    fn withdraw(&self, driver: &Arc<Driver>) {
        // Relaxed: the bit alone counts. The request is made under the node's lock.
        if !self.withdrawn.swap(true, Ordering::Relaxed) {
            driver.drive(|state, now| state.core.withdraw(now, self.name.clone()));
        }
    }
}

impl Node {
    /// Serves a mailbox of this process under a name. Every node of the group can send to it with a
    /// [`NamedSender`] and a capability of the mailbox.
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

    /// Makes a sender to the mailbox of a name. The capability is one of the mailbox. Both are checked when a
    /// message is sent, so the mailbox may come later.
    ///
    /// [`serve_mailbox`](Node::serve_mailbox) has an example.
    pub fn sender(&self, name: &Name, capability: Capability) -> NamedSender {
        NamedSender::new(self.0.clone(), name.clone(), capability)
    }
}

/// Sends messages to the mailbox of a name, on this node or another one.
///
/// Messages of one sender arrive in their order. A clone is another sender, without an order between the two.
///
/// The sender finds the mailbox again after a move or a death. The message that is under way then may end as
/// [`Unknown`](NamedSendError::Unknown) with [`Fate::ServerLost`]. It is not sent again, since the mailbox
/// may have it.
///
/// Of several mailboxes under a name it prefers the nearest ones. If they are stateless, it spreads its
/// messages over equally near ones. Each message then needs the same capability at each of them.
///
/// # Progress
/// A message to another node waits for that node, at most for its limit. A stopped thread of a node delays
/// the messages to its mailboxes, until their limits.
///
/// Source: Wentzlaff 2012, §3.2.2 and §3.2.3 (FO-05, FO-11). Deviation: in the thesis a send returns at once,
/// and a proxy carries the message to another machine. Here a send waits for the answer of the other node,
/// and its result is the fate of the message.
pub struct NamedSender {
    driver: Arc<Driver>,
    name: Name,
    capability: Capability,
    /// The mailbox of this node, by the number of its service, and the straight way to it.
    here: Option<(u64, Sender)>,
    /// The call of the last message, if its future was dropped.
    pending: Option<Taker<Result<Vec<u8>, Fate>>>,
    /// The last message may still arrive (I4).
    uncertain: bool,
}

impl Clone for NamedSender {
    /// Makes another sender, without an order between the two.
    fn clone(&self) -> NamedSender {
        NamedSender::new(self.driver.clone(), self.name.clone(), self.capability)
    }
}

impl fmt::Debug for NamedSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedSender").field("name", &self.name).finish_non_exhaustive()
    }
}

impl NamedSender {
    fn new(driver: Arc<Driver>, name: Name, capability: Capability) -> NamedSender {
        NamedSender { driver, name, capability, here: None, pending: None, uncertain: false }
    }

    /// Returns the name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Sends a message, and returns its fate. Waits for another node at most for `limit`, and for room never.
    ///
    /// # Errors
    /// [`NamedSendError`], which tells whether the message may have been accepted, and whether to try again.
    pub fn try_send(&mut self, message: &[u8], limit: Duration) -> Result<(), NamedSendError> {
        block(self.carry(message, limit))
    }

    /// Like [`try_send`](NamedSender::try_send), but returns a future, which does nothing until it is polled.
    ///
    /// Dropping the future leaves the fate of its message unknown. The next message then waits until the call
    /// has ended.
    ///
    /// # Errors
    /// [`NamedSendError`].
    pub fn try_send_async<'a>(
        &'a mut self,
        message: &'a [u8],
        limit: Duration,
    ) -> impl Future<Output = Result<(), NamedSendError>> + Send + 'a {
        self.carry(message, limit)
    }

    /// Sends a message, and tries again for `limit` while the mailbox is full, or moves, or is not there yet.
    /// Blocks the thread, and sleeps 2 ms between two attempts.
    ///
    /// # Errors
    /// [`NamedSendError`]: the reason of the last attempt. A message of unknown fate is not sent again.
    pub fn send(&mut self, message: &[u8], limit: Duration) -> Result<(), NamedSendError> {
        let deadline = Instant::now().checked_add(limit);
        let left = || squall_machine::park::time_left(deadline).unwrap_or(Duration::MAX);
        loop {
            match self.try_send(message, left()) {
                Err(error) if error.is_passing() && !left().is_zero() => thread::sleep(PAUSE.min(left())),
                outcome => return outcome,
            }
        }
    }

    async fn carry(&mut self, message: &[u8], limit: Duration) -> Result<(), NamedSendError> {
        // The child of a fork has no thread that would end the call.
        if forked() {
            return Err(self.not_sent(Fate::Closed));
        }
        if self.pending.is_some() {
            // The call ends by its own limit (I1).
            let _ = self.called().await;
        }
        let here = if self.uncertain { None } else { self.driver.mailbox_here(self.name.alias()) };
        match here {
            Some((service, mailbox)) => return self.send_here(service, &mailbox, message),
            // Keeps no mailbox alive that has moved.
            None => self.here = None,
        }
        let body = [&self.capability.to_bytes(), message].concat();
        self.pending = Some(self.driver.call(route(&self.name, None, false), DELIVER, body, limit));
        self.called().await
    }

    /// Waits for the end of the call.
    async fn called(&mut self) -> Result<(), NamedSendError> {
        let result = match &mut self.pending {
            Some(taker) => taker.await.unwrap_or(Err(Fate::TimedOut)),
            None => Err(Fate::TimedOut),
        };
        self.pending = None;
        self.uncertain = match result {
            Ok(_) => false,
            Err(fate) => self.uncertain || fate.may_have_run(),
        };
        let name = self.name.clone();
        match result {
            Ok(bytes) => match Delivered::decode(&bytes) {
                Some(delivered) => self.outcome(delivered),
                None => Err(NamedSendError::NoMailbox { name }),
            },
            Err(Fate::NoService) => Err(NamedSendError::NotFound { name }),
            // A mailbox drops no call of a sender, so another service has the name.
            Err(Fate::Dropped) => Err(NamedSendError::NoMailbox { name }),
            Err(Fate::TooLarge) => Err(NamedSendError::NoSpace { name, largest: LARGEST_BODY - KEY }),
            Err(fate) if fate.may_have_run() => Err(NamedSendError::Unknown { name, fate }),
            Err(fate) => Err(self.not_sent(fate)),
        }
    }

    fn send_here(
        &mut self,
        service: u64,
        mailbox: &ServedMailbox,
        message: &[u8],
    ) -> Result<(), NamedSendError> {
        if let Some((number, sender)) = &self.here
            && *number == service
        {
            match sender.send(message) {
                Ok(()) => return Ok(()),
                // The lane is closed. A capability that was added again has another one.
                Err(SendError::Permissions { .. }) => {}
                Err(error) => return self.refused_here(mailbox, error),
            }
        }
        self.here = None;
        let sent = Sender::in_order(mailbox.post.clone(), self.capability)
            .and_then(|sender| sender.send(message).map(|()| sender));
        match sent {
            Ok(sender) => {
                self.here = Some((service, sender));
                Ok(())
            }
            Err(error) => self.refused_here(mailbox, error),
        }
    }

    fn refused_here(&self, mailbox: &ServedMailbox, error: SendError) -> Result<(), NamedSendError> {
        let delivered = Delivered::new(Err(error));
        if delivered == Delivered::Ended {
            mailbox.withdraw(&self.driver);
        }
        self.outcome(delivered)
    }

    fn outcome(&self, delivered: Delivered) -> Result<(), NamedSendError> {
        let name = self.name.clone();
        Err(match delivered {
            Delivered::Accepted => return Ok(()),
            Delivered::Permissions => NamedSendError::Permissions { name },
            Delivered::Full => NamedSendError::Retry { name },
            Delivered::TooLarge { largest } => {
                NamedSendError::NoSpace { name, largest: usize::try_from(largest).unwrap_or(usize::MAX) }
            }
            Delivered::Ended => NamedSendError::Ended { name },
        })
    }

    fn not_sent(&self, fate: Fate) -> NamedSendError {
        NamedSendError::NotSent { name: self.name.clone(), fate }
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
    /// The mailbox has no room for the message now.
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
    /// Returns whether the mailbox may have accepted the message.
    pub fn may_have_arrived(&self) -> bool {
        matches!(self, NamedSendError::Unknown { .. })
    }

    /// Returns whether the message was not accepted now, and may be later: send it again.
    pub fn is_passing(&self) -> bool {
        match self {
            NamedSendError::NotSent { fate, .. } => *fate != Fate::Closed,
            NamedSendError::Retry { .. } | NamedSendError::Ended { .. } | NamedSendError::NotFound { .. } => {
                true
            }
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
    use crate::{GroupKey, LocalNetwork, Mailbox, NodeBuilder};
    use std::pin::pin;
    use std::task::{Context, Waker};

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
        assert!(sender.pending.is_some());
        node.serve_mailbox(&name, &root, NameOptions::new(), &mailbox.capabilities()).unwrap();
        sender.try_send(b"second", LONG).unwrap();
        let received: Vec<_> = std::iter::from_fn(|| mailbox.receive().map(|m| m.to_vec())).collect();
        assert_eq!(received, [&b"first"[..], b"second"]);
    }

    #[test]
    fn after_a_message_of_unknown_fate_the_next_one_is_a_call() {
        let (node, mut mailbox, mut sender) = served();
        sender.uncertain = true;
        sender.try_send(b"a call", LONG).unwrap();
        assert!(node.0.workers.threads() > 0 && !sender.uncertain && sender.here.is_none());
        sender.try_send(b"straight", LONG).unwrap();
        assert!(sender.here.is_some());
        assert_eq!(&*mailbox.receive().unwrap(), b"a call");
        assert_eq!(&*mailbox.receive().unwrap(), b"straight");
    }

    #[test]
    fn a_message_that_was_not_sent_does_not_settle_the_one_before() {
        let (_node, mut mailbox, mut sender) = served();
        sender.uncertain = true;
        let error = sender.try_send(b"no time", Duration::ZERO).unwrap_err();
        assert!(!error.may_have_arrived() && sender.uncertain, "{error}");
        sender.try_send(b"a call", LONG).unwrap();
        assert!(!sender.uncertain && sender.here.is_none());
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
    fn answers_of_other_services_are_no_answers_of_mailboxes() {
        for delivered in [Delivered::Accepted, Delivered::Ended, Delivered::TooLarge { largest: 7 }] {
            assert_eq!(Delivered::decode(&delivered.encode()), Some(delivered));
        }
        let echo = [[7; KEY].to_vec(), Delivered::Accepted.encode()].concat();
        for bytes in [&b""[..], b"\0", &MARK, &echo, &[&Delivered::Full.encode()[..], b"more"].concat()] {
            assert_eq!(Delivered::decode(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_call_that_is_no_message_changes_no_mailbox() {
        let (node, root) = node();
        let name: Name = "/log".parse().unwrap();
        let mut mailbox = Mailbox::new();
        node.serve_mailbox(&name, &root, NameOptions::new(), &mailbox.capabilities()).unwrap();
        for (method, body) in [(DELIVER, &b"short"[..]), (0, &[0; 64]), (u64::MAX, b"")] {
            assert_eq!(node.call(&name, method, body, LONG).unwrap_err().fate, Fate::Dropped);
        }
        assert!(mailbox.receive().is_none());
        let answer = node.call(&name, DELIVER, &[7; 64], LONG).unwrap();
        assert_eq!(Delivered::decode(&answer), Some(Delivered::Permissions));
        assert_eq!(format!("{mailbox:?}").matches("lanes: 0").count(), 1, "{mailbox:?}");
    }
}
