//! Senders.

use crate::blocking;
use crate::lane::{Refused, Sent};
use crate::post::{ANY_CLUSTER, NoRoute, Post, Route};
use crate::registry;
use crate::{Alias, Capability, SendError};
use squall_machine::park::time_left;
use squall_machine::unpark::{Unpark, park_for};
use squall_machine::{Vp, machine};
use squall_sys::fork;
use squall_sys::sync::{Arc, OnceLock, hint, thread};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Sends messages to a mailbox with one capability.
///
/// Messages of one sender arrive in the order in which they were sent, also if several threads share it. A
/// clone is another sender, without an order between the two, even if one thread uses both. At its first
/// message a sender takes the lane of the cluster that it is on, and keeps it. So give each thread or task
/// one clone for as long as it lives: they then write to lanes of their own. Where the order of several
/// threads matters, share one sender in an `Arc`.
///
/// # Cost
/// A send makes one compare-exchange, and copies the message once. It writes no line that senders of other
/// clusters or with other capabilities write, except the first message after a pause, which tells the
/// receiver to look.
/// # Progress
/// A send is lock-free, but for the first message of a sender, and one that wakes the receiver. A thread that
/// is stopped in the middle of a send holds up the later messages of its lane. The receiver then goes on with
/// the other lanes, but does not sleep for longer than a millisecond.
/// Source: Wentzlaff 2012, §3.2.2 (FO-05). Deviation: the thesis orders all messages of a process.
///
/// # Example
/// ```
/// use squall::fleet::Mailbox;
///
/// let mut mailbox = Mailbox::new();
/// let sender = mailbox.sender(mailbox.add_capability()?)?;
/// std::thread::scope(|threads| {
///     for _ in 0..4 {
///         let sender = sender.clone();
///         threads.spawn(move || sender.send(b"from a thread"));
///     }
/// });
/// assert_eq!(std::iter::from_fn(|| mailbox.receive().map(drop)).count(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Sender {
    post: Arc<Post>,
    capability: Capability,
    route: OnceLock<Route>,
}

impl Clone for Sender {
    /// Makes another sender, which takes a lane of its own at its first message.
    fn clone(&self) -> Sender {
        Sender { post: self.post.clone(), capability: self.capability, route: OnceLock::new() }
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("mailbox", &self.post.alias).finish_non_exhaustive()
    }
}

impl Sender {
    /// Makes a sender to the mailbox of this alias.
    ///
    /// # Errors
    /// [`SendError::InvalidAlias`] if this process has no such mailbox, and [`SendError::Permissions`] if the
    /// mailbox does not have the capability.
    pub fn new(mailbox: Alias, capability: Capability) -> Result<Sender, SendError> {
        Sender::to(registry::find(mailbox).ok_or(SendError::InvalidAlias { mailbox })?, capability)
    }

    pub(crate) fn to(post: Arc<Post>, capability: Capability) -> Result<Sender, SendError> {
        let sender = Sender { post, capability, route: OnceLock::new() };
        if sender.post.has(capability) { Ok(sender) } else { Err(sender.closed()) }
    }

    /// Makes a sender that shares one lane, and so one order, with all others made by this function with the
    /// capability.
    pub(crate) fn in_order(post: Arc<Post>, capability: Capability) -> Result<Sender, SendError> {
        let sender = Sender { post, capability, route: OnceLock::new() };
        sender.take_lane(ANY_CLUSTER)?;
        Ok(sender)
    }

    /// Returns the alias of the mailbox.
    pub fn mailbox(&self) -> Alias {
        self.post.alias
    }

    /// Returns the size in bytes of the largest message that the mailbox takes.
    pub(crate) fn largest(&self) -> usize {
        self.post.largest()
    }

    /// Returns whether a wait for an answer would block the thread or the task that has to give it.
    pub(crate) fn would_block(&self) -> bool {
        blocking::runs_tasks() || self.post.served_on.is_here()
    }

    /// Sends a message, or says why not. Never blocks.
    ///
    /// # Errors
    /// [`SendError`]. [`Retry`](SendError::Retry) means that the mailbox is full for this sender: come back
    /// later, or [wait](Sender::wait_to_send).
    /// # Panics
    /// In the child of a fork: the message would have no receiver.
    #[inline]
    pub fn send(&self, message: &[u8]) -> Result<(), SendError> {
        if fork::forked() {
            in_child();
        }
        let route = match self.route.get() {
            Some(route) => route,
            None => self.find_route()?,
        };
        match route.lane.send(message, route.once) {
            Ok(Sent::Seen) => {}
            Ok(Sent::Rings) => self.post.bell.ring(route.number),
            Err(refused) => return Err(self.refused(refused)),
        }
        Ok(())
    }

    /// Returns a wait that sends the message as soon as there is room: a future, with forms that block the
    /// thread.
    ///
    /// Waits are not fair: a large message may wait while small ones of other threads are sent. Polled again
    /// after the message was sent, the future panics.
    ///
    /// # Example
    /// ```
    /// use squall::fleet::Mailbox;
    ///
    /// let mut mailbox = Mailbox::builder().lane_bytes(64).build();
    /// let sender = mailbox.sender(mailbox.add_capability()?)?;
    /// std::thread::scope(|threads| {
    ///     threads.spawn(|| {
    ///         for n in 0..100_u64 {
    ///             sender.wait_to_send(&n.to_le_bytes()).block().unwrap();
    ///         }
    ///     });
    ///     for n in 0..100_u64 {
    ///         mailbox.wait().block();
    ///         assert_eq!(&*mailbox.receive().unwrap(), n.to_le_bytes());
    ///     }
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_to_send<'a>(&'a self, message: &'a [u8]) -> WaitToSend<'a> {
        WaitToSend { sender: self, message, ticket: None, is_sent: false }
    }

    /// Takes a lane, at the first message.
    #[cold]
    fn find_route(&self) -> Result<&Route, SendError> {
        self.take_lane(machine().clusters(self.post.lane_per).cluster_of(Vp::current()).index())
    }

    fn take_lane(&self, cluster: usize) -> Result<&Route, SendError> {
        let route = self.post.route(self.capability, cluster).map_err(|no_route| match no_route {
            NoRoute::Permissions => SendError::Permissions { mailbox: self.post.alias },
            NoRoute::Ended => SendError::InvalidAlias { mailbox: self.post.alias },
        })?;
        // Another thread may have taken one meanwhile, which both then use.
        Ok(self.route.get_or_init(|| route))
    }

    #[cold]
    fn refused(&self, refused: Refused) -> SendError {
        let mailbox = self.post.alias;
        match refused {
            Refused::Full => SendError::Retry { mailbox },
            Refused::TooLarge => SendError::NoSpace { mailbox, largest: self.post.largest() },
            Refused::Closed => self.closed(),
        }
    }

    /// Why the mailbox takes no message with this capability.
    fn closed(&self) -> SendError {
        let mailbox = self.post.alias;
        match self.post.has_ended() {
            true => SendError::InvalidAlias { mailbox },
            false => SendError::Permissions { mailbox },
        }
    }
}

#[cold]
fn in_child() -> ! {
    panic!("a message was sent in the child of a fork, where nobody receives it; such a child may only exec")
}

/// Attempts of a wait for room before it sleeps. A receiver gives back a quarter of a lane at once, so room
/// comes later than a reply.
const ATTEMPTS: u32 = 200;

/// A message that waits for room: see [`Sender::wait_to_send`]. Dropping it cancels it: the message is not
/// sent.
#[must_use = "a wait does nothing until it is awaited or blocks"]
pub struct WaitToSend<'a> {
    sender: &'a Sender,
    message: &'a [u8],
    /// The ticket of a waker that is left in the lane.
    ticket: Option<u64>,
    is_sent: bool,
}

impl WaitToSend<'_> {
    /// Blocks the thread until the message is sent.
    ///
    /// # Errors
    /// [`SendError`], but never [`Retry`](SendError::Retry).
    /// # Panics
    /// In the child of a fork.
    pub fn block(self) -> Result<(), SendError> {
        self.block_until(None)
    }

    /// Blocks the thread until the message is sent, for at most `limit`.
    ///
    /// # Errors
    /// [`SendError`]. [`Retry`](SendError::Retry) means that there was no room in time.
    /// # Panics
    /// In the child of a fork.
    pub fn block_for(self, limit: Duration) -> Result<(), SendError> {
        // A limit beyond the clock's end never passes.
        self.block_until(Instant::now().checked_add(limit))
    }

    fn block_until(mut self, deadline: Option<Instant>) -> Result<(), SendError> {
        let mut attempts = 0;
        let mut waker = None;
        loop {
            let full = match self.sender.send(self.message) {
                Err(full @ SendError::Retry { .. }) => full,
                other => return other,
            };
            attempts += 1;
            if attempts <= ATTEMPTS {
                hint::spin_loop();
                continue;
            }
            let left = time_left(deadline);
            if left == Some(Duration::ZERO) {
                return Err(full);
            }
            if self.sleep(waker.get_or_insert_with(Unpark::waker)) {
                left.map_or_else(thread::park, park_for);
            }
        }
    }

    /// Leaves a waker. Returns false if the caller has to try again.
    fn sleep(&mut self, waker: &Waker) -> bool {
        self.leave();
        let Some(route) = self.sender.route.get() else { return false };
        self.ticket = route.lane.wait_for_room(self.message.len(), waker);
        self.ticket.is_some()
    }

    /// Takes the waker back.
    fn leave(&mut self) {
        if let (Some(ticket), Some(route)) = (self.ticket.take(), self.sender.route.get()) {
            route.lane.forget(ticket);
        }
    }
}

impl Future for WaitToSend<'_> {
    type Output = Result<(), SendError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let wait = self.get_mut();
        assert!(!wait.is_sent, "a wait to send was polled after its message was sent");
        for _ in 0..2 {
            match wait.sender.send(wait.message) {
                Err(SendError::Retry { .. }) if wait.sleep(cx.waker()) => return Poll::Pending,
                // Room has come meanwhile.
                Err(SendError::Retry { .. }) => {}
                other => {
                    wait.is_sent = other.is_ok();
                    return Poll::Ready(other);
                }
            }
        }
        // Others took the room. Other tasks go first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for WaitToSend<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
