//! Senders to the mailboxes of names.
//!
//! Problem: the mailbox of a name may be on another node, and may move or die.
//! Idea: messages to another node are calls. The answers of the mailbox tell the fates of the messages.
//! Messages to a mailbox of the same node go straight into its lane.
//!
//! - I1. The messages of a sender are in one [window](super::window), so they keep their order. The window
//!   lies under one lock. The thread that ends a call begins the next one, after it has released the lock.
//! - I2. A message goes the straight way only if the fates of all messages before it are known.
//! - I3. A message that waits behind a call ends at its own limit. The timer thread of the node has an alarm
//!   for the earliest limit.
//! - I4. The lock of the window is released before wakers run.
//! - I5. After a refusal for want of room, the sender refuses messages until the program has taken the fates
//!   of the refused ones, or dropped them. So it can send these again in their order.
//!
//! Cost: on the same node, the lock of the node and a send. Else a share of a call.
//! Source: Wentzlaff 2012, §3.2.2 and §3.2.3 (FO-05, FO-11).

use super::driver::{Alarm, Caller, Driver};
use super::mailboxes::{DELIVER, NamedSendError, ServedMailbox};
use super::window::{Message, Told, Window};
use super::wire::{Delivered, LARGEST, encode};
use super::{Node, block, route};
use crate::handover::{Giver, Taker, handover};
use crate::protocol::Time;
use crate::{Capability, Fate, Name, SendError, Sender};
use squall_sys::fork::forked;
use squall_sys::sync::{Mutex, MutexGuard, StdArc as Arc, Weak, lock, thread};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The pause before a message is sent again.
const PAUSE: Duration = Duration::from_millis(2);

type Sent = Result<(), NamedSendError>;

/// Where the fate of a message goes.
struct Fated {
    giver: Giver<Sent>,
    /// Ends when the fate is taken, or its receiver dropped.
    receiver: Weak<()>,
}

/// The messages of a sender on their way to the mailbox of a name.
struct Line {
    driver: Arc<Driver>,
    name: Name,
    capability: Capability,
    state: Mutex<State>,
}

struct State {
    window: Window<Fated>,
    /// Refused messages, with marks that their fates are not taken (I5).
    refused: Vec<(Weak<()>, Told)>,
    /// The time of the alarm, if one is set (I3).
    alarm: Option<Time>,
    /// A thread begins calls, and looks again before it ends.
    advances: bool,
    again: bool,
}

impl State {
    /// Notes the messages that are refused for want of room.
    fn note_refused(&mut self, fates: &[(Fated, Told)]) {
        let refuses = |told: &Told| matches!(told, Told::Delivered(delivered) if delivered.refuses_next());
        let refused = fates.iter().filter(|(_, told)| refuses(told));
        self.refused.extend(refused.map(|(fated, told)| (fated.receiver.clone(), *told)));
    }

    /// Returns a refusal, if its fate is not taken.
    fn refusal(&mut self) -> Option<Told> {
        self.refused.retain(|(receiver, _)| receiver.strong_count() > 0);
        self.refused.first().map(|(_, told)| *told)
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state, "the messages of a sender")
    }

    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Adds a message, and begins a call if none is under way.
    fn add(self: &Arc<Line>, message: &[u8], limit: Duration) -> Result<NamedSending, NamedSendError> {
        if message.len() > LARGEST {
            return Err(NamedSendError::NoSpace { name: self.name.clone(), largest: LARGEST });
        }
        let (giver, taker) = handover();
        let receiver = Arc::new(());
        let fate = Fated { giver, receiver: Arc::downgrade(&receiver) };
        let limit = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        let deadline = self.driver.now().saturating_add(limit);
        let message = Message { bytes: message.to_vec(), deadline, fate };
        let pushed = self.state().window.push(message);
        // The returned message is dropped here, after the lock.
        pushed.map_err(|_| NamedSendError::WindowFull { name: self.name.clone() })?;
        self.advance();
        Ok(NamedSending { name: self.name.clone(), state: Sending::OnItsWay(taker, receiver) })
    }

    /// Begins the next call, if messages wait and none is under way. Sets the alarm for those that wait on.
    fn advance(self: &Arc<Line>) {
        let mut state = self.state();
        // A call that ends at once comes back here, on this thread.
        state.again = true;
        if std::mem::replace(&mut state.advances, true) {
            return;
        }
        while std::mem::take(&mut state.again) {
            let messages = state.window.begin();
            self.set_alarm(&mut state);
            drop(state);
            if let Some(messages) = messages {
                self.call(messages);
            }
            state = self.state();
        }
        state.advances = false;
    }

    /// Begins a call with these messages.
    fn call(self: &Arc<Line>, messages: Vec<Message<Fated>>) {
        let bytes = messages.iter().map(|message| &*message.bytes);
        let body = encode(self.capability.to_bytes(), bytes);
        let limit = Duration::from_micros(messages[0].deadline.saturating_sub(self.driver.now()));
        let caller = Carried { line: self.clone(), messages, result: None };
        self.driver.begin(route(&self.name, None, false), DELIVER, body, limit, Box::new(caller));
    }

    /// Sets the alarm for the earliest limit. An earlier alarm stays, and has no effect.
    fn set_alarm(self: &Arc<Line>, state: &mut State) {
        if let Some(at) = state.window.next_limit()
            && state.alarm.is_none_or(|alarm| at < alarm)
        {
            let alarm: Weak<Line> = Arc::downgrade(self);
            self.driver.set_alarm(self.number(), state.alarm.replace(at), at, alarm);
        }
    }

    fn tell(&self, fates: Vec<(Fated, Told)>) {
        for (fated, told) in fates {
            fated.giver.give(NamedSendError::of(told, &self.name));
        }
    }
}

impl Alarm for Line {
    /// Ends the messages that have waited until their limits.
    fn ring(self: Arc<Line>) {
        let mut state = self.state();
        state.alarm = None;
        let fates = state.window.expire(self.driver.now());
        self.set_alarm(&mut state);
        drop(state);
        self.tell(fates);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let alarm = self.state().alarm;
        if let Some(at) = alarm {
            self.driver.remove_alarm(self.number(), at);
        }
    }
}

/// The messages of the call under way. Its drop ends the call.
struct Carried {
    line: Arc<Line>,
    messages: Vec<Message<Fated>>,
    result: Option<Result<Vec<u8>, Fate>>,
}

impl Caller for Carried {
    fn end(mut self: Box<Self>, result: Result<Vec<u8>, Fate>) {
        self.result = Some(result);
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        let Carried { line, messages, result } = self;
        let result = result.take().unwrap_or(Err(Fate::TimedOut));
        let mut state = line.state();
        let fates = state.window.end(line.driver.now(), std::mem::take(messages), result);
        state.note_refused(&fates);
        drop(state);
        line.tell(fates);
        line.advance();
    }
}

impl Node {
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
/// Up to 64 messages and 1 MiB of a sender can be on their way: [`start_send`](NamedSender::start_send). To
/// another node, messages that wait for the end of a call travel in the next one together.
///
/// A message that finds no room refuses those behind it. The sender then refuses further ones, too, until the
/// program has taken the fate of each refused one. So it can send them again in their order.
///
/// The sender finds the mailbox again after a move or a death. The messages that are on their way then may
/// end as [`Unknown`](NamedSendError::Unknown) with [`Fate::ServerLost`]. They are not sent again, since the
/// mailbox may have them.
///
/// Of several mailboxes under a name it prefers the nearest ones. If they are stateless, it spreads its
/// calls over equally near ones. Each message then needs the same capability at each of them.
///
/// # Progress
/// A message to another node waits for that node, at most for its limit. A stopped thread of a node delays
/// the messages to its mailboxes, until their limits.
///
/// Source: Wentzlaff 2012, §3.2.2 and §3.2.3 (FO-05, FO-11). Deviation: in the thesis a send returns at
/// once, and a proxy carries the message to another machine. Here the answer of the other node tells the fate
/// of each message.
pub struct NamedSender {
    line: Arc<Line>,
    /// The mailbox of this node, by the number of its service, and the straight way to it.
    here: Option<(u64, Sender)>,
}

impl Clone for NamedSender {
    /// Makes another sender, without an order between the two.
    fn clone(&self) -> NamedSender {
        NamedSender::new(self.line.driver.clone(), self.line.name.clone(), self.line.capability)
    }
}

impl fmt::Debug for NamedSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedSender").field("name", self.name()).finish_non_exhaustive()
    }
}

impl NamedSender {
    pub(super) fn new(driver: Arc<Driver>, name: Name, capability: Capability) -> NamedSender {
        let state = Mutex::new(State {
            window: Window::new(),
            refused: Vec::new(),
            alarm: None,
            advances: false,
            again: false,
        });
        NamedSender { line: Arc::new(Line { driver, name, capability, state }), here: None }
    }

    /// Returns the name.
    pub fn name(&self) -> &Name {
        &self.line.name
    }

    /// Begins to send a message, and does not wait. The result tells its fate.
    ///
    /// The message goes on if the result is dropped. `limit` is that of [`try_send`](NamedSender::try_send).
    /// Messages that travel in one call share its limit, which is that of the first of them. If no answer
    /// comes until then, all of them end as [`Unknown`](NamedSendError::Unknown).
    ///
    /// # Errors
    /// [`WindowFull`](NamedSendError::WindowFull): 64 messages or 1 MiB of this sender are on their way. Each
    /// other [`NamedSendError`] that is known at once.
    /// # Cost
    /// A copy of the message, if it goes to another node. Under load many messages share one call.
    ///
    /// # Example
    #[cfg_attr(all(target_os = "linux", not(miri)), doc = "```")]
    #[cfg_attr(not(all(target_os = "linux", not(miri))), doc = "```ignore")]
    /// use squall::fleet::{GroupKey, LocalNetwork, Mailbox, NameOptions, NodeBuilder};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let network = LocalNetwork::new();
    /// # let key = GroupKey::random();
    /// # let (node, root) = NodeBuilder::new(key).found(network.bind("a")?, &[])?;
    /// # let mut mailbox = Mailbox::new();
    /// # let capability = mailbox.add_capability()?;
    /// # node.serve_mailbox(&"/log".parse()?, &root, NameOptions::new(), &mailbox.capabilities())?;
    /// let client = NodeBuilder::new(key).visit(network.bind("b")?, &["local/a"])?;
    /// let mut sender = client.sender(&"/log".parse()?, capability);
    /// let limit = Duration::from_secs(60);
    /// let sendings = (0..10).map(|n: u8| sender.start_send(&[n], limit)).collect::<Result<Vec<_>, _>>()?;
    /// for sending in sendings {
    ///     sending.wait()?;
    /// }
    /// let received = std::iter::from_fn(|| mailbox.receive().map(|message| message[0]));
    /// assert!(received.eq(0..10));
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_send(&mut self, message: &[u8], limit: Duration) -> Result<NamedSending, NamedSendError> {
        let name = self.name().clone();
        // The child of a fork has no thread that would end the call.
        if forked() {
            return Err(NamedSendError::NotSent { name, fate: Fate::Closed });
        }
        let mut state = self.line.state();
        if let Some(told) = state.refusal() {
            drop(state);
            return NamedSendError::of(told, &name)
                .map(|()| NamedSending { name, state: Sending::Taken(Ok(())) });
        }
        let is_settled = state.window.is_settled();
        drop(state);
        let here = if is_settled { self.line.driver.mailbox_here(name.alias()) } else { None };
        match here {
            Some((service, mailbox)) => {
                self.send_here(service, &mailbox, message)?;
                Ok(NamedSending { name, state: Sending::Taken(Ok(())) })
            }
            None => {
                // Keeps no mailbox alive that has moved.
                self.here = None;
                self.line.add(message, limit)
            }
        }
    }

    /// Sends a message, and returns its fate. Waits at most for `limit`, and for room never. Messages on
    /// their way to another node go first.
    ///
    /// # Errors
    /// [`NamedSendError`], which tells whether the message may have been accepted, and whether to try again.
    pub fn try_send(&mut self, message: &[u8], limit: Duration) -> Result<(), NamedSendError> {
        self.start_send(message, limit)?.wait()
    }

    /// Like [`try_send`](NamedSender::try_send), but returns a future, which does nothing until it is polled.
    ///
    /// Dropping the future leaves the fate of its message unknown. The next message goes behind it.
    ///
    /// # Errors
    /// [`NamedSendError`].
    pub fn try_send_async<'a>(
        &'a mut self,
        message: &'a [u8],
        limit: Duration,
    ) -> impl Future<Output = Result<(), NamedSendError>> + Send + 'a {
        self.send_once(message, limit)
    }

    async fn send_once(&mut self, message: &[u8], limit: Duration) -> Sent {
        self.start_send(message, limit)?.await
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

    fn send_here(&mut self, service: u64, mailbox: &ServedMailbox, message: &[u8]) -> Sent {
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
        let sent = mailbox.sender(self.line.capability);
        match sent.and_then(|sender| sender.send(message).map(|()| sender)) {
            Ok(sender) => {
                self.here = Some((service, sender));
                Ok(())
            }
            Err(error) => self.refused_here(mailbox, error),
        }
    }

    fn refused_here(&self, mailbox: &ServedMailbox, error: SendError) -> Sent {
        let delivered = Delivered::new(Err(error));
        if delivered == Delivered::Ended {
            mailbox.withdraw(&self.line.driver);
        }
        NamedSendError::of(Told::Delivered(delivered), self.name())
    }
}

enum Sending {
    /// With the mark that the fate is not taken (I5).
    OnItsWay(Taker<Sent>, #[expect(dead_code, reason = "its drop is the mark")] Arc<()>),
    Taken(Sent),
}

/// A message on its way to the mailbox of a name: a future of its fate.
///
/// The message goes on if this is dropped.
///
/// [`NamedSender::start_send`] makes it, and has an example.
#[must_use = "the fate of a message is an error if it was not accepted"]
pub struct NamedSending {
    name: Name,
    state: Sending,
}

impl NamedSending {
    /// Blocks the thread until the fate of the message is known, at most for the limit of the message.
    ///
    /// # Errors
    /// [`NamedSendError`].
    pub fn wait(self) -> Result<(), NamedSendError> {
        block(self)
    }
}

impl Future for NamedSending {
    type Output = Result<(), NamedSendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let NamedSending { name, state } = &mut *self;
        let unknown = || NamedSendError::Unknown { name: name.clone(), fate: Fate::TimedOut };
        let told = match state {
            Sending::Taken(told) => told.clone(),
            // The child of a fork has no thread that would end the call.
            Sending::OnItsWay(..) if forked() => Err(unknown()),
            Sending::OnItsWay(taker, _) => match Pin::new(taker).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(told) => told.unwrap_or_else(|| Err(unknown())),
            },
        };
        *state = Sending::Taken(told.clone());
        Poll::Ready(told)
    }
}

impl fmt::Debug for NamedSending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedSending").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
impl NamedSender {
    /// Returns whether the next message may go the straight way.
    pub(super) fn is_settled(&self) -> bool {
        self.line.state().window.is_settled()
    }

    /// Returns whether the sender has a straight way.
    pub(super) fn is_here(&self) -> bool {
        self.here.is_some()
    }

    /// Pretends that a message of unknown fate may still arrive.
    pub(super) fn make_uncertain(&self) {
        self.line.state().window.make_uncertain();
    }
}
