//! Requests, in the tasks that handle them.

use crate::Sender;
use crate::call::NO_METHOD;
use crate::context::Core;
use crate::envelope::{Envelope, Key};
use crate::inlet::{Outlet, ReplyTo};
use crate::replies;
use crate::share::Share;
use crate::stats::Counts;
use std::fmt;
use std::rc::{Rc, Weak};
use std::time::Instant;

/// The class of a mailbox: the order in which a dispatcher receives. A lower class waits for the higher ones.
///
/// Replies to the calls of its own tasks come before all classes.
/// Source: Wentzlaff 2012, §3.3 (FO-17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Requests of clients.
    External,
    /// Requests of other members of the fleet.
    Fleet,
    /// Calls of other members of the fleet, which wait for the reply.
    FleetCall,
    /// Answers of other members of the fleet. They come before the tasks that can run.
    FleetReply,
}

/// A request, in the task that handles it.
///
/// Dropping it without a reply tells the caller [`CallFailed::NoReply`](crate::CallFailed::NoReply).
pub struct Request {
    pub(crate) core: Weak<Core>,
    pub(crate) method: u64,
    pub(crate) token: u64,
    pub(crate) reply_to: Option<ReplyTo>,
    /// The key of a call that may be sent again.
    pub(crate) key: Option<Key>,
    pub(crate) label: u64,
    pub(crate) body: Vec<u8>,
    pub(crate) class: Class,
    pub(crate) counts: Rc<Counts>,
    /// The part of the link's share, for a request of a link.
    pub(crate) share: Option<Share>,
}

impl Request {
    /// Returns the number of the method.
    pub fn method(&self) -> u64 {
        self.method
    }

    /// Returns the label of the capability that the request was sent with.
    pub fn label(&self) -> u64 {
        self.label
    }

    /// Returns the arguments.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Takes the arguments out.
    pub(crate) fn take_body(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.body)
    }

    /// Returns whether the sender waits for a reply.
    pub fn wants_reply(&self) -> bool {
        self.reply_to.is_some()
    }

    /// Sends the result to the caller. Does not wait: while the caller's mailbox or link is full, the reply
    /// is kept. At most 1,024 replies with 16 MiB are kept. Beyond that, the caller with most replies or
    /// bytes loses its oldest one.
    pub fn reply(mut self, body: &[u8]) {
        let token = self.token;
        self.answer(&Envelope::Reply { token, body });
    }

    /// Tells the caller that there is no such method.
    pub fn refuse(mut self) {
        let token = self.token;
        self.answer(&Envelope::Failure { token, reason: NO_METHOD });
    }

    fn answer(&mut self, answer: &Envelope<'_>) {
        let Some(to) = self.reply_to.take() else { return };
        // Without a core, the request has outlived its dispatcher.
        let Some(core) = self.core.upgrade() else { return send_once(&to, answer) };
        let to = match self.key {
            None => Some(to),
            Some(key) => {
                let mut message = Vec::new();
                answer.write(&mut message);
                // The way of the last copy (once/I3).
                core.once.borrow_mut().end(Instant::now(), key, &message)
            }
        };
        if let Some(to) = to {
            core.send_reply(&to, answer);
        }
    }
}

/// Sends a reply without a dispatcher. It is lost if there is no room.
pub(crate) fn send_once(to: &ReplyTo, envelope: &Envelope<'_>) {
    let outlet = match to {
        ReplyTo::Mailbox((alias, capability)) => match Sender::new(*alias, *capability) {
            Ok(sender) => Outlet::Mailbox(Rc::new(sender)),
            Err(_) => return,
        },
        #[cfg(all(target_os = "linux", not(miri)))]
        ReplyTo::Link(sender) => Outlet::Link(sender.clone()),
    };
    let mut message = Vec::new();
    envelope.write(&mut message);
    outlet.send(&message);
}

impl Drop for Request {
    fn drop(&mut self) {
        self.answer(&replies::dropped(self.token));
        let requests = &self.counts.requests[self.class as usize];
        requests.set(requests.get() - 1);
        self.share = None;
        // A task of another dispatcher of this thread may have it. The dispatcher that sleeps may receive
        // again now, or end.
        if let Some(core) = self.core.upgrade()
            && core.sleeps.get()
        {
            core.queue.wake();
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut request = f.debug_struct("Request");
        request
            .field("method", &self.method)
            .field("label", &self.label)
            .field("bytes", &self.body.len())
            .finish()
    }
}
