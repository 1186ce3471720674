//! Mailboxes, as their owners use them.

use crate::bell::LANES_MAX;
use crate::patience::Patience;
use crate::post::Post;
use crate::receiver::Receiver;
use crate::registry;
use crate::{Alias, Capability, CapabilityError, Sender};
use squall_machine::ClusterSize;
use squall_machine::park::time_left;
use squall_machine::unpark::{Unpark, park_for};
use squall_sys::fork;
use squall_sys::sync::{Arc, thread};
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The receiving end of messages: many senders, one receiver, which owns it.
///
/// A message is a sequence of bytes. A sender needs the mailbox's [alias](Mailbox::alias) and a
/// [capability](Mailbox::add_capability). The mailbox has a *lane* for each capability and each cluster of
/// processors that it is used on: a ring of fixed size, so the memory is bounded. A sender that fills its
/// lane takes no room from senders with another capability.
///
/// Messages of one [`Sender`] arrive in the order in which they were sent. There is no order between senders.
///
/// Dropping the mailbox ends it. Messages that were not received are dropped with it; [`end`](Mailbox::end)
/// returns them.
///
/// # Cost
/// [`receive`](Mailbox::receive) reads the message's cache lines, and clears them. It writes one more line,
/// which a sender reads when its lane seems full: once per quarter of a lane, and when it finds a lane empty.
/// Source: Wentzlaff 2012, §3.2.2 (FO-03 to FO-06).
///
/// # Example
/// ```
/// use squall::fleet::{Mailbox, Sender};
///
/// let mut mailbox = Mailbox::new();
/// let key = mailbox.add_capability()?;
/// let sender = Sender::new(mailbox.alias(), key)?;
/// sender.send(b"hello")?;
/// assert_eq!(&*mailbox.receive().unwrap(), b"hello");
/// assert!(mailbox.receive().is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Mailbox {
    receiver: Receiver,
    /// A wait has found a message, which the next receive returns.
    found: bool,
    patience: Patience,
}

/// How a mailbox is made.
///
/// # Example
/// ```
/// use squall::ClusterSize;
/// use squall::fleet::Mailbox;
///
/// // One lane of 1 MiB for all senders with one capability.
/// let mailbox = Mailbox::builder().lane_bytes(1 << 20).lane_per(ClusterSize::Machine).build();
/// assert!(mailbox.largest_message() > 500_000);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct MailboxBuilder {
    lane_bytes: usize,
    lane_per: ClusterSize,
}

impl MailboxBuilder {
    /// Sets the size of a lane in bytes: 64 at least, and rounded up to a power of two. The default is 16
    /// KiB. A message takes its bytes, rounded up to 8, and 8 bytes more.
    ///
    /// # Panics
    /// In [`build`](MailboxBuilder::build), if the size is above 1 GiB.
    pub fn lane_bytes(mut self, bytes: usize) -> MailboxBuilder {
        self.lane_bytes = bytes;
        self
    }

    /// Sets the clusters that have lanes of their own; the default is one for each processor. Senders of one
    /// cluster write to the same lines. Larger clusters need less memory.
    pub fn lane_per(mut self, size: ClusterSize) -> MailboxBuilder {
        self.lane_per = size;
        self
    }

    /// Makes the mailbox. It has no capability, and no lane.
    ///
    /// # Panics
    /// If the lanes are too large, or the system has no random bytes for the alias.
    pub fn build(self) -> Mailbox {
        const LARGEST: usize = 1 << 30;
        let bytes = self.lane_bytes;
        assert!(bytes <= LARGEST, "a mailbox with lanes of {bytes} bytes; the limit is {LARGEST}");
        fork::arm();
        let words = bytes.max(64).next_power_of_two() / size_of::<u64>();
        let post = Arc::new(Post::new(Alias::random(), words, self.lane_per));
        registry::add(&post);
        Mailbox { receiver: Receiver::new(post), found: false, patience: Patience::new() }
    }
}

/// A received message: its bytes, until it is dropped.
///
/// The mailbox owns the buffer, so there is one message at a time. In the thesis the receiver hands the
/// buffer back by a call.
pub struct Message<'a> {
    bytes: &'a [u8],
    label: u64,
}

impl Message<'_> {
    /// Returns the label of the capability that the message was sent with: the number given to
    /// [`add_labelled`](Mailbox::add_labelled), or 0.
    pub fn label(&self) -> u64 {
        self.label
    }
}

impl Deref for Message<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("label", &self.label).field("bytes", &self.bytes.len()).finish()
    }
}

impl Mailbox {
    /// Makes a mailbox with the default sizes.
    ///
    /// # Panics
    /// If the system has no random bytes for the alias.
    #[expect(clippy::new_without_default, reason = "each mailbox has a new alias")]
    pub fn new() -> Mailbox {
        Mailbox::builder().build()
    }

    /// Returns a builder, for other sizes.
    pub fn builder() -> MailboxBuilder {
        MailboxBuilder { lane_bytes: 16 << 10, lane_per: ClusterSize::Cpu }
    }

    fn post(&self) -> &Arc<Post> {
        &self.receiver.post
    }

    /// Returns the canonical alias: the random name that the mailbox has from the start.
    pub fn alias(&self) -> Alias {
        self.post().alias
    }

    /// Returns the size in bytes of the largest message that the mailbox takes.
    pub fn largest_message(&self) -> usize {
        self.post().largest()
    }

    /// Returns the way to add and remove capabilities from other threads, also while this one waits.
    ///
    /// # Example
    /// ```
    /// use squall::fleet::Mailbox;
    ///
    /// let mut mailbox = Mailbox::new();
    /// let capabilities = mailbox.capabilities();
    /// let alias = mailbox.alias();
    /// std::thread::scope(|threads| {
    ///     threads.spawn(move || {
    ///         let key = capabilities.add_labelled(3).unwrap();
    ///         squall::fleet::Sender::new(alias, key).unwrap().send(b"now").unwrap();
    ///     });
    ///     mailbox.wait().block();
    /// });
    /// assert_eq!(mailbox.receive().unwrap().label(), 3);
    /// ```
    pub fn capabilities(&self) -> Capabilities {
        Capabilities(self.post().clone())
    }

    /// Adds a capability: [`Capabilities::add`].
    ///
    /// # Errors
    /// [`CapabilityError`]: if there are 4,032 capabilities and lanes already.
    pub fn add_capability(&self) -> Result<Capability, CapabilityError> {
        self.capabilities().add()
    }

    /// Adds a labelled capability: [`Capabilities::add_labelled`].
    ///
    /// # Errors
    /// [`CapabilityError`]: if there are 4,032 capabilities and lanes already.
    pub fn add_labelled(&self, label: u64) -> Result<Capability, CapabilityError> {
        self.capabilities().add_labelled(label)
    }

    /// Adds a capability for one message: [`Capabilities::add_single_use`].
    ///
    /// # Errors
    /// [`CapabilityError`]: if there are 4,032 capabilities and lanes already.
    pub fn add_single_use(&self, label: u64) -> Result<Capability, CapabilityError> {
        self.capabilities().add_single_use(label)
    }

    /// Removes a capability: [`Capabilities::remove`].
    pub fn remove_capability(&self, capability: Capability) -> bool {
        self.capabilities().remove(capability)
    }

    /// Makes a sender with a capability of this mailbox. [`Sender::new`] does the same for those who have
    /// only the alias.
    ///
    /// # Errors
    /// [`SendError::Permissions`](crate::SendError::Permissions), if the mailbox does not have the
    /// capability.
    pub fn sender(&self, capability: Capability) -> Result<Sender, crate::SendError> {
        Sender::to(self.post().clone(), capability)
    }

    /// Takes the next message, if there is one. Never blocks.
    #[inline]
    pub fn receive(&mut self) -> Option<Message<'_>> {
        if !std::mem::take(&mut self.found) && !self.receiver.look() {
            return None;
        }
        let (bytes, label) = self.receiver.message();
        Some(Message { bytes, label })
    }

    /// Returns a wait for the next message: a future, with forms that block the thread. When it ends,
    /// [`receive`](Mailbox::receive) returns a message.
    ///
    /// A wait never ends without a message, even if no capability is left. A task that receives in a loop
    /// should yield from time to time: a wait that finds a message does not.
    ///
    /// # Example
    /// ```
    /// use squall::fleet::Mailbox;
    /// use std::time::Duration;
    ///
    /// let mut mailbox = Mailbox::new();
    /// assert!(!mailbox.wait().block_for(Duration::from_millis(1)));
    /// let sender = mailbox.sender(mailbox.add_capability()?)?;
    /// std::thread::scope(|threads| {
    ///     threads.spawn(|| sender.send(b"good morning"));
    ///     mailbox.wait().block();
    ///     assert_eq!(&*mailbox.receive().unwrap(), b"good morning");
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(&mut self) -> Wait<'_> {
        Wait { mailbox: self, sleeps: false }
    }

    /// Returns the bytes of the message that was received last.
    pub(crate) fn last(&self) -> &[u8] {
        self.receiver.message().0
    }

    /// Notes that a dispatcher of the calling thread serves the mailbox.
    pub(crate) fn set_served_here(&self) {
        self.post().served_on.set_here();
    }

    /// Announces a sleep until `waker` is called. Returns false if there may be a message.
    pub(crate) fn sleep(&mut self, waker: &Waker) -> bool {
        assert!(!fork::forked(), "a wait for a message would never end in the child of a fork");
        !self.found && self.receiver.sleep(waker)
    }

    /// Ends a sleep that no message ended.
    pub(crate) fn awake(&self) {
        self.post().bell.awake();
    }

    /// Ends the mailbox, and returns the messages that it has accepted and nobody has received, with their
    /// labels. Waits for senders that are in the middle of a message.
    ///
    /// # Panics
    /// In the child of a fork, if it would wait.
    pub fn end(mut self) -> Vec<(u64, Vec<u8>)> {
        let mut rest = Vec::new();
        if self.found {
            let (bytes, label) = self.receiver.message();
            rest.push((label, bytes.to_vec()));
        }
        self.receiver.end();
        while self.receiver.look_for_rest() {
            let (bytes, label) = self.receiver.message();
            rest.push((label, bytes.to_vec()));
        }
        rest
    }
}

/// The way to add and remove the capabilities of a mailbox, from any thread. A clone is the same way.
///
/// After the mailbox has ended, none is added.
#[derive(Clone)]
pub struct Capabilities(Arc<Post>);

impl Capabilities {
    /// Adds a capability: whoever has it can send, until it is [removed](Capabilities::remove).
    ///
    /// # Errors
    /// [`CapabilityError`]: if there are 4,032 capabilities and lanes already.
    pub fn add(&self) -> Result<Capability, CapabilityError> {
        self.add_labelled(0)
    }

    /// Adds a capability, and labels the messages that are sent with it. Labels tell clients apart.
    ///
    /// # Errors
    /// [`CapabilityError`]: if there are 4,032 capabilities and lanes already.
    pub fn add_labelled(&self, label: u64) -> Result<Capability, CapabilityError> {
        self.add_as(label, false)
    }

    /// Adds a capability for one message. The message uses it up.
    ///
    /// # Errors
    /// [`CapabilityError`]: if there are 4,032 capabilities and lanes already.
    ///
    /// # Example
    /// ```
    /// use squall::fleet::{Mailbox, SendError, Sender};
    ///
    /// let mailbox = Mailbox::new();
    /// let once = mailbox.add_single_use(7)?;
    /// let sender = Sender::new(mailbox.alias(), once)?;
    /// sender.send(b"an answer")?;
    /// assert!(matches!(sender.send(b"another one"), Err(SendError::Permissions { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_single_use(&self, label: u64) -> Result<Capability, CapabilityError> {
        self.add_as(label, true)
    }

    fn add_as(&self, label: u64, once: bool) -> Result<Capability, CapabilityError> {
        let capability = Capability::random();
        self.grant(capability, label, once)?;
        Ok(capability)
    }

    fn grant(&self, capability: Capability, label: u64, once: bool) -> Result<(), CapabilityError> {
        let mailbox = self.0.alias;
        match self.0.grant(capability, label, once) {
            true => Ok(()),
            false if self.0.has_ended() => Err(CapabilityError::InvalidAlias { mailbox }),
            false if self.0.has(capability) => Err(CapabilityError::Exists { mailbox }),
            false => Err(CapabilityError::TooMany { mailbox, limit: LANES_MAX }),
        }
    }

    pub(crate) fn post(&self) -> &Arc<Post> {
        &self.0
    }

    /// Adds a capability that another mailbox has, or had. Its holders can then send to this one, too.
    ///
    /// A mailbox can also have its own capability again after its removal. A [`Sender`] from before the
    /// removal stays refused: make another one.
    ///
    /// A mailbox that takes over from another one needs its capabilities: see
    /// [`Node::serve_mailbox`](crate::Node::serve_mailbox).
    ///
    /// # Errors
    /// [`CapabilityError`]: if there are 4,032 capabilities and lanes already, or the mailbox has the
    /// capability.
    ///
    /// # Example
    /// ```
    /// use squall::fleet::{CapabilityError, Mailbox};
    ///
    /// let (old, new) = (Mailbox::new(), Mailbox::new());
    /// let key = old.add_capability()?;
    /// new.capabilities().add_existing(key, 0)?;
    /// new.sender(key)?.send(b"as before")?;
    /// let again = new.capabilities().add_existing(key, 0);
    /// assert!(matches!(again, Err(CapabilityError::Exists { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_existing(&self, capability: Capability, label: u64) -> Result<(), CapabilityError> {
        self.grant(capability, label, false)
    }

    /// Removes a capability. No message that is sent with it afterwards is accepted; those that were accepted
    /// before are still received. Returns false if the mailbox has no such capability.
    ///
    /// # Example
    /// ```
    /// use squall::fleet::{Mailbox, SendError, Sender};
    ///
    /// let mut mailbox = Mailbox::new();
    /// let (a, b) = (mailbox.add_labelled(1)?, mailbox.add_labelled(2)?);
    /// let (from_a, from_b) = (Sender::new(mailbox.alias(), a)?, Sender::new(mailbox.alias(), b)?);
    /// from_a.send(b"in time")?;
    /// mailbox.remove_capability(a);
    /// assert!(matches!(from_a.send(b"too late"), Err(SendError::Permissions { .. })));
    /// from_b.send(b"from another one")?;
    /// assert!(mailbox.receive().is_some() && mailbox.receive().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove(&self, capability: Capability) -> bool {
        self.0.revoke(capability)
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capabilities").field("mailbox", &self.0.alias).finish_non_exhaustive()
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        registry::remove(self.alias());
        drop(self.post().end());
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (capabilities, lanes) = self.post().counts();
        let mut mailbox = f.debug_struct("Mailbox");
        mailbox
            .field("alias", &self.alias())
            .field("capabilities", &capabilities)
            .field("lanes", &lanes)
            .finish()
    }
}

/// A wait for a message: see [`Mailbox::wait`]. Dropping it cancels it.
#[must_use = "a wait does nothing until it is awaited or blocks"]
pub struct Wait<'a> {
    mailbox: &'a mut Mailbox,
    /// A bell would wake this wait.
    sleeps: bool,
}

/// Attempts to sleep before a wait pauses for a sender that is not through.
const ATTEMPTS: u32 = 64;
/// The longest pause of a wait for a sender that is not through.
const PAUSE: Duration = Duration::from_millis(1);

impl Wait<'_> {
    /// Blocks the thread until there is a message.
    ///
    /// # Panics
    /// In the child of a fork.
    pub fn block(self) {
        self.block_until(None);
    }

    /// Blocks the thread until there is a message, for at most `limit`. Returns whether there is one.
    ///
    /// # Panics
    /// In the child of a fork, if it would wait.
    pub fn block_for(self, limit: Duration) -> bool {
        // A limit beyond the clock's end never passes.
        self.block_until(Instant::now().checked_add(limit))
    }

    fn block_until(mut self, deadline: Option<Instant>) -> bool {
        if self.look() {
            return true;
        }
        let (mut attempts, mut waker) = (0, None);
        self.mailbox.patience.begin();
        while !self.look() {
            if self.mailbox.patience.looks_again() {
                continue;
            }
            let left = time_left(deadline);
            if left == Some(Duration::ZERO) {
                return false;
            }
            if self.sleep(waker.get_or_insert_with(Unpark::waker)) {
                left.map_or_else(thread::park, park_for);
                continue;
            }
            attempts += 1;
            if attempts > ATTEMPTS && !self.mailbox.receiver.has_rung() {
                // A sender was stopped between its claim and its message.
                thread::sleep(left.map_or(PAUSE, |left| left.min(PAUSE)));
            }
        }
        self.mailbox.patience.end();
        true
    }

    fn look(&mut self) -> bool {
        let Mailbox { receiver, found, .. } = &mut *self.mailbox;
        *found = *found || receiver.look();
        *found
    }

    fn sleep(&mut self, waker: &Waker) -> bool {
        let sleeps = self.mailbox.sleep(waker);
        self.sleeps |= sleeps;
        sleeps
    }
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let wait = self.get_mut();
        for _ in 0..2 {
            if wait.look() {
                return Poll::Ready(());
            }
            if wait.sleep(cx.waker()) {
                return Poll::Pending;
            }
        }
        // A sender is not through. Other tasks go first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.sleeps {
            self.mailbox.awake();
        }
    }
}
