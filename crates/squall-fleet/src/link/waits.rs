//! Waits of links: futures, with forms that block the thread.

use super::error::LinkError;
use super::halves::{LinkReceiver, LinkSender, NotSent};
use super::ring::{self, Seen};
use squall_machine::park::time_left;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A wait for a message: see [`LinkReceiver::wait`]. Dropping it cancels it.
#[derive(Debug)]
#[must_use = "a wait does nothing until it is awaited or blocks"]
pub struct LinkWait<'a> {
    receiver: &'a mut LinkReceiver,
    /// A waker of this wait may be left.
    asks: bool,
}

impl<'a> LinkWait<'a> {
    pub(super) fn new(receiver: &'a mut LinkReceiver) -> LinkWait<'a> {
        LinkWait { receiver, asks: false }
    }

    /// Blocks the thread until there is a message.
    ///
    /// # Errors
    /// [`LinkError`], if no message can come any more.
    pub fn block(self) -> Result<(), LinkError> {
        self.block_until(None).map(drop)
    }

    /// Blocks the thread until there is a message, for at most `limit`. Returns whether there is one.
    ///
    /// # Errors
    /// [`LinkError`], if no message can come any more.
    pub fn block_for(self, limit: Duration) -> Result<bool, LinkError> {
        // A limit beyond the clock's end never passes.
        self.block_until(Instant::now().checked_add(limit))
    }

    fn block_until(self, deadline: Option<Instant>) -> Result<bool, LinkError> {
        while !self.receiver.find()? {
            let left = time_left(deadline);
            if left == Some(Duration::ZERO) {
                return Ok(false);
            }
            self.receiver.sleep(left);
        }
        Ok(true)
    }
}

impl Future for LinkWait<'_> {
    type Output = Result<(), LinkError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        let wait = self.get_mut();
        for _ in 0..2 {
            if wait.receiver.find()? {
                return Poll::Ready(Ok(()));
            }
            wait.asks = true;
            if wait.receiver.ask(cx.waker()) {
                return Poll::Pending;
            }
        }
        // A hostile peer can change its word at each look. Other tasks go first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for LinkWait<'_> {
    fn drop(&mut self) {
        if self.asks {
            self.receiver.joint.set_task(None);
        }
    }
}

/// A message that waits for room: see [`LinkSender::wait_to_send`]. Dropping it cancels it: the message is
/// not sent.
#[derive(Debug)]
#[must_use = "a wait does nothing until it is awaited or blocks"]
pub struct LinkWaitToSend<'a> {
    sender: &'a LinkSender,
    message: &'a [u8],
    /// The ticket of a waker that is left.
    ticket: Option<u64>,
    is_sent: bool,
}

impl<'a> LinkWaitToSend<'a> {
    pub(super) fn new(sender: &'a LinkSender, message: &'a [u8]) -> LinkWaitToSend<'a> {
        LinkWaitToSend { sender, message, ticket: None, is_sent: false }
    }

    /// Blocks the thread until the message is sent.
    ///
    /// # Errors
    /// [`LinkError`], but never [`Retry`](LinkError::Retry).
    pub fn block(self) -> Result<(), LinkError> {
        self.block_until(None)
    }

    /// Blocks the thread until the message is sent, for at most `limit`.
    ///
    /// # Errors
    /// [`LinkError`]. [`Retry`](LinkError::Retry) means that there was no room in time.
    pub fn block_for(self, limit: Duration) -> Result<(), LinkError> {
        // A limit beyond the clock's end never passes.
        self.block_until(Instant::now().checked_add(limit))
    }

    fn block_until(self, deadline: Option<Instant>) -> Result<(), LinkError> {
        loop {
            let seen = match self.sender.try_send(self.message) {
                Ok(()) => return Ok(()),
                Err(NotSent::Error(error)) => return Err(error),
                Err(NotSent::Full(seen)) => seen,
            };
            let left = time_left(deadline);
            if left == Some(Duration::ZERO) {
                return Err(LinkError::Retry { link: self.sender.name() });
            }
            self.sender.sleep(seen, left);
        }
    }

    /// Leaves a waker. Returns false if the caller has to try again.
    fn ask(&mut self, seen: Seen, waker: &Waker) -> bool {
        self.leave();
        let joint = &*self.sender.joint;
        let outbound = joint.outbound();
        self.ticket = joint.room.add(waker, || ring::ask_for_room(&outbound, seen));
        // The end of the link takes the wakers after it has changed the state, under the same lock.
        self.ticket.is_some() && !joint.has_ended()
    }

    /// Takes the waker back.
    fn leave(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.sender.joint.room.remove(ticket);
        }
    }
}

impl Future for LinkWaitToSend<'_> {
    type Output = Result<(), LinkError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        let wait = self.get_mut();
        assert!(!wait.is_sent, "a wait to send was polled after its message was sent");
        for _ in 0..2 {
            match wait.sender.try_send(wait.message) {
                Ok(()) => {
                    wait.is_sent = true;
                    return Poll::Ready(Ok(()));
                }
                Err(NotSent::Error(error)) => return Poll::Ready(Err(error)),
                Err(NotSent::Full(seen)) if wait.ask(seen, cx.waker()) => return Poll::Pending,
                // Room has come meanwhile, or the link has ended.
                Err(NotSent::Full(_)) => {}
            }
        }
        // Others took the room. Other tasks go first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for LinkWaitToSend<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
