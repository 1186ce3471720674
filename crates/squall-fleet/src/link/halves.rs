//! The two ends of a link.

use super::error::{LinkError, LinkName};
use super::joint::Joint;
use super::ring::{self, Look, Memory, Reader, Refused, Seen, largest, tell};
use super::waits::{LinkWait, LinkWaitToSend};
use squall_call::sleep;
use squall_sys::fork;
use squall_sys::sync::StdArc as Arc;
use std::fmt;
use std::task::Waker;
use std::time::Duration;

/// The end of a link that sends. Several threads may use it.
///
/// Dropping it tells the peer that no further message comes.
pub struct LinkSender {
    pub(super) joint: Arc<Joint>,
}

/// Why a message was not sent, and the head that left too little room.
pub(super) enum NotSent {
    Full(Seen),
    Error(LinkError),
}

impl LinkSender {
    pub(super) fn new(joint: Arc<Joint>) -> LinkSender {
        LinkSender { joint }
    }

    /// Returns the name of the link, as errors print it.
    pub fn name(&self) -> LinkName {
        self.joint.name
    }

    /// Returns the size in bytes of the largest message that the peer's lane takes.
    pub fn largest_message(&self) -> usize {
        largest(self.joint.outbound.bytes())
    }

    /// Sends a message, or says why not. Never waits for the peer.
    ///
    /// A message that is sent while the peer ends may be accepted, and is lost with it.
    ///
    /// # Errors
    /// [`LinkError`]. [`Retry`](LinkError::Retry) means that the lane is full: come back later, or
    /// [wait](LinkSender::wait_to_send).
    ///
    /// # Cost
    /// A lock of this process, a copy of the message, and an exchange of a word in shared memory. If the peer
    /// sleeps, a system call.
    /// # Progress
    /// Threads that send at once take turns, for the time of a copy. A thread that is stopped in a send holds
    /// up the others. The peer holds up none.
    #[inline]
    pub fn send(&self, message: &[u8]) -> Result<(), LinkError> {
        match self.try_send(message) {
            Ok(()) => Ok(()),
            Err(NotSent::Full(_)) => Err(LinkError::Retry { link: self.joint.name }),
            Err(NotSent::Error(error)) => Err(error),
        }
    }

    #[inline]
    pub(super) fn try_send(&self, message: &[u8]) -> Result<(), NotSent> {
        let joint = &*self.joint;
        if fork::forked() || joint.has_ended() {
            return Err(NotSent::Error(self.why()));
        }
        let outbound = joint.outbound();
        joint.outbound.set_sender();
        let mut writer = joint.writer();
        let sent = writer.send(&outbound, message);
        drop(writer);
        match sent {
            Ok(marks) => {
                tell(&outbound, outbound.tail(), marks);
                Ok(())
            }
            Err(refused) => Err(self.not_sent(refused)),
        }
    }

    #[cold]
    fn why(&self) -> LinkError {
        let joint = &*self.joint;
        let link = joint.name;
        if fork::forked() {
            LinkError::Forked { link }
        } else if !joint.is_broken() && ring::has_left(&joint.outbound()) {
            LinkError::Ended { link }
        } else {
            joint.why()
        }
    }

    #[cold]
    fn not_sent(&self, refused: Refused) -> NotSent {
        let link = self.joint.name;
        NotSent::Error(match refused {
            Refused::Full(seen) => return NotSent::Full(seen),
            Refused::TooLarge => LinkError::NoSpace { link, largest: self.largest_message() },
            Refused::Left => LinkError::Ended { link },
            Refused::Broken(broken) => self.joint.break_off(broken),
        })
    }

    /// Returns a wait that sends the message as soon as there is room: a future, with forms that block the
    /// thread.
    ///
    /// Waits are not fair: a large message may wait while small ones of other threads are sent. Polled again
    /// after the message was sent, the future panics.
    ///
    /// # Example
    /// ```
    /// use squall::fleet::{Link, LinkError, LinkOptions};
    ///
    /// # let (here, there) = Link::pair()?;
    /// # let other = std::thread::spawn(move || LinkOptions::new().lane_bytes(4096).over(there));
    /// # let link = Link::over(here)?;
    /// # let mut peer = other.join().unwrap()?;
    /// let (sender, _receiver) = link.split();
    /// // The peer's lane has 4 KiB.
    /// while sender.send(&[1; 1000]).is_ok() {}
    /// std::thread::scope(|threads| {
    ///     threads.spawn(|| sender.wait_to_send(b"the last one").block().unwrap());
    ///     // In the other process:
    ///     let mut received = Vec::new();
    ///     while received != b"the last one" {
    ///         peer.receiver().wait().block()?;
    ///         received = peer.receiver().receive()?.expect("there is one").to_vec();
    ///     }
    ///     Ok::<(), LinkError>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_to_send<'a>(&'a self, message: &'a [u8]) -> LinkWaitToSend<'a> {
        LinkWaitToSend::new(self, message)
    }

    /// Sleeps until there may be room.
    pub(super) fn sleep(&self, seen: Seen, limit: Option<Duration>) {
        let joint = &*self.joint;
        let outbound = joint.outbound();
        let spin = sleep::spin_for(joint.outbound.receiver(), sleep::SPIN);
        let spin = limit.map_or(spin, |limit| spin.min(limit));
        if sleep::spin(spin, || !ring::is_head(&outbound, seen) || joint.has_ended()) {
            return;
        }
        let has_ended = || joint.has_ended();
        joint.senders.sleep(has_ended, |must_go| ring::sleep_for_room(&outbound, seen, limit, must_go));
    }
}

impl fmt::Debug for LinkSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkSender").field("link", &format_args!("{}", self.name())).finish_non_exhaustive()
    }
}

impl Drop for LinkSender {
    fn drop(&mut self) {
        // In the child of a fork the link is the parent's.
        if !fork::forked() {
            let outbound = self.joint.outbound();
            let marks = self.joint.writer().end(&outbound);
            tell(&outbound, outbound.tail(), marks);
        }
        self.joint.leave();
    }
}

/// The end of a link that receives.
///
/// Dropping it tells the peer that no further message is received. Messages that were not received are lost.
pub struct LinkReceiver {
    pub(super) joint: Arc<Joint>,
    reader: Reader,
    buffer: Vec<u8>,
    /// A wait has found a message, which the next look takes.
    found: bool,
}

impl LinkReceiver {
    pub(super) fn new(joint: Arc<Joint>) -> LinkReceiver {
        LinkReceiver { joint, reader: Reader::default(), buffer: Vec::new(), found: false }
    }

    /// Returns the name of the link, as errors print it.
    pub fn name(&self) -> LinkName {
        self.joint.name
    }

    /// Returns the size in bytes of the largest message that this end's lane takes.
    pub fn largest_message(&self) -> usize {
        largest(self.joint.inbound.bytes())
    }

    /// Takes the next message, if there is one. Never blocks.
    ///
    /// The message is a private copy of this process, which the peer cannot change.
    ///
    /// # Errors
    /// [`LinkError`]. The messages that the peer had sent before it ended come before the error.
    ///
    /// # Cost
    /// A copy of the message. One exchange of a word in shared memory, for each quarter of the lane and each
    /// time the lane is found empty.
    #[inline]
    pub fn receive(&mut self) -> Result<Option<&[u8]>, LinkError> {
        Ok(self.look()?.then_some(self.buffer.as_slice()))
    }

    /// Returns a wait for the next message: a future, with forms that block the thread. After it ends,
    /// [`receive`](LinkReceiver::receive) returns a message.
    ///
    /// # Example
    /// ```
    /// use squall::fleet::Link;
    /// use std::time::Duration;
    ///
    /// # let (here, there) = Link::pair()?;
    /// # let other = std::thread::spawn(move || Link::over(there));
    /// # let link = Link::over(here)?;
    /// # let peer = other.join().unwrap()?;
    /// let (_sender, mut receiver) = link.split();
    /// assert!(!receiver.wait().block_for(Duration::from_millis(1))?);
    /// peer.sender().send(b"good morning")?;
    /// assert!(receiver.wait().block_for(Duration::from_secs(1))?);
    /// assert_eq!(receiver.receive()?, Some(&b"good morning"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(&mut self) -> LinkWait<'_> {
        LinkWait::new(self)
    }

    /// Takes the next message, if there is one: the one that a wait has found, or a new one. It is in the
    /// buffer.
    #[inline]
    pub(crate) fn look(&mut self) -> Result<bool, LinkError> {
        if std::mem::take(&mut self.found) {
            return Ok(true);
        }
        let joint = &*self.joint;
        if fork::forked() || joint.is_broken() {
            return Err(self.why());
        }
        match self.reader.receive_from(&joint.inbound(), &mut self.buffer, || joint.has_ended()) {
            Look::Message => Ok(true),
            Look::Nothing => Ok(false),
            Look::Gone => Err(self.why()),
            Look::Ended => Err(LinkError::Ended { link: joint.name }),
            Look::Broken(broken) => Err(joint.break_off(broken)),
        }
    }

    #[cold]
    fn why(&self) -> LinkError {
        if fork::forked() { LinkError::Forked { link: self.joint.name } } else { self.joint.why() }
    }

    /// Returns the message of the last look that found one.
    pub(crate) fn last(&self) -> &[u8] {
        &self.buffer
    }

    /// Looks, and keeps a message for the next look.
    pub(super) fn find(&mut self) -> Result<bool, LinkError> {
        self.found = self.found || self.look()?;
        Ok(self.found)
    }

    /// Sleeps until there may be a message.
    pub(super) fn sleep(&self, limit: Option<Duration>) {
        let joint = &*self.joint;
        let inbound = joint.inbound();
        joint.inbound.set_receiver();
        let spin = sleep::spin_for(joint.inbound.sender(), sleep::SPIN);
        let spin = limit.map_or(spin, |limit| spin.min(limit));
        if sleep::spin(spin, || self.reader.has_news(&inbound) || joint.has_ended()) {
            return;
        }
        let has_ended = || joint.has_ended();
        joint.receiver.sleep(has_ended, |must_go| self.reader.sleep(&inbound, limit, must_go));
    }

    /// Leaves a waker for the next message or the end. Returns false if the caller has to look again.
    pub(crate) fn ask(&self, waker: &Waker) -> bool {
        self.joint.set_task(Some(waker.clone()));
        // The end of the link takes the waker after it has changed the state, under the same lock. So it
        // finds this waker, or this thread finds the state.
        !self.found && self.reader.ask(&self.joint.inbound()) && !self.joint.has_ended()
    }
}

impl fmt::Debug for LinkReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkReceiver").field("link", &format_args!("{}", self.name())).finish_non_exhaustive()
    }
}

impl Drop for LinkReceiver {
    fn drop(&mut self) {
        // In the child of a fork the link is the parent's.
        if !fork::forked() {
            self.reader.end(&self.joint.inbound());
        }
        self.joint.leave();
    }
}
