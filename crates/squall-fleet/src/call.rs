//! Calls by messages: their errors, and a caller that has no dispatcher.

use crate::envelope::{Envelope, HEAD};
use crate::replies::{self, Keys};
use crate::{Alias, Mailbox, SendError, Sender};
use squall_machine::park::time_left;
use std::fmt;
use std::time::{Duration, Instant};

/// The reasons of failures, as they travel.
pub(crate) const NO_METHOD: u64 = 1;
pub(crate) const NO_REPLY: u64 = 2;
pub(crate) const STOPPED: u64 = 3;
pub(crate) const NO_ROOM: u64 = 4;
/// Never travels: the dispatcher of the caller has ended.
pub(crate) const ENDED: u64 = u64::MAX;

/// The reason why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallFailed {
    /// The request was not sent. The method did not run.
    NotSent(SendError),
    /// The server has no such method. The method did not run.
    NoMethod {
        /// The server's mailbox.
        mailbox: Alias,
        /// The method.
        method: u64,
    },
    /// The server stopped before it handled the request. The method did not run.
    Stopped {
        /// The server's mailbox.
        mailbox: Alias,
    },
    /// The server dropped the request, or the method panicked. It may have run in part.
    NoReply {
        /// The server's mailbox.
        mailbox: Alias,
    },
    /// The result is larger than the mailbox for the reply. The method ran.
    ResultTooLarge {
        /// The server's mailbox.
        mailbox: Alias,
    },
    /// The caller's own dispatcher has ended. The method may have run.
    Ended {
        /// The server's mailbox.
        mailbox: Alias,
    },
    /// No reply came in time. The method may run later.
    TimedOut {
        /// The server's mailbox.
        mailbox: Alias,
    },
}

impl CallFailed {
    /// Returns whether the method may have run.
    pub fn may_have_run(&self) -> bool {
        use CallFailed::{Ended, NoReply, ResultTooLarge, TimedOut};
        matches!(self, NoReply { .. } | ResultTooLarge { .. } | Ended { .. } | TimedOut { .. })
    }

    pub(crate) fn of(reason: u64, mailbox: Alias, method: u64) -> CallFailed {
        match reason {
            NO_METHOD => CallFailed::NoMethod { mailbox, method },
            STOPPED => CallFailed::Stopped { mailbox },
            NO_ROOM => CallFailed::ResultTooLarge { mailbox },
            ENDED => CallFailed::Ended { mailbox },
            _ => CallFailed::NoReply { mailbox },
        }
    }
}

impl fmt::Display for CallFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallFailed::NotSent(error) => write!(f, "the call was not sent: {error}"),
            CallFailed::NoMethod { mailbox, method } => {
                write!(f, "the server of mailbox {mailbox} has no method {method}")
            }
            CallFailed::Stopped { mailbox } => {
                write!(f, "the server of mailbox {mailbox} stopped before it handled the request")
            }
            CallFailed::NoReply { mailbox } => {
                write!(
                    f,
                    "the server of mailbox {mailbox} dropped the request; the method may have run in part"
                )
            }
            CallFailed::ResultTooLarge { mailbox } => {
                write!(
                    f,
                    "the result from the server of mailbox {mailbox} is larger than the mailbox for the reply"
                )
            }
            CallFailed::Ended { mailbox } => {
                write!(f, "the dispatcher ended before mailbox {mailbox} replied; the method may have run")
            }
            CallFailed::TimedOut { mailbox } => {
                write!(f, "the server of mailbox {mailbox} did not reply in time; the method may run later")
            }
        }
    }
}

impl std::error::Error for CallFailed {}

impl From<SendError> for CallFailed {
    fn from(error: SendError) -> CallFailed {
        CallFailed::NotSent(error)
    }
}

/// Calls servers from a program without a dispatcher: a call blocks the thread until its reply is there.
///
/// A call in a task of a dispatcher blocks the dispatcher; use [`Context::call`](crate::Context::call) there.
///
/// Source: Wentzlaff 2012, §3.3.1 (FO-21): without threads on the caller's side, it blocks.
///
/// # Example
/// ```
/// use squall::fleet::{Caller, Class, Dispatcher, Mailbox};
///
/// let mailbox = Mailbox::new();
/// let sender = mailbox.sender(mailbox.add_capability()?)?;
/// std::thread::scope(|threads| {
///     threads.spawn(|| {
///         let mut dispatcher = Dispatcher::new();
///         let context = dispatcher.context();
///         dispatcher.serve(mailbox, Class::External, move |request| {
///             let context = context.clone();
///             async move {
///                 if request.method() == 0 {
///                     context.stop();
///                 }
///                 let mut body = request.body().to_vec();
///                 body.reverse();
///                 request.reply(&body);
///             }
///         });
///         dispatcher.run();
///     });
///     let mut caller = Caller::new();
///     assert_eq!(caller.call(&sender, 1, b"abc").unwrap(), b"cba");
///     caller.call(&sender, 0, b"").unwrap();
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Caller {
    replies: Mailbox,
    keys: Keys,
    token: u64,
    request: Vec<u8>,
}

impl Caller {
    /// Makes a caller, with a mailbox for the replies.
    ///
    /// # Panics
    /// If the system has no random bytes.
    #[expect(clippy::new_without_default, reason = "each caller has a mailbox of its own")]
    pub fn new() -> Caller {
        Caller::with_replies(Mailbox::new())
    }

    /// Makes a caller that gets its replies in a new mailbox.
    pub(crate) fn with_replies(replies: Mailbox) -> Caller {
        Caller { keys: Keys::new(&replies), replies, token: 0, request: Vec::new() }
    }

    /// Returns the alias of the mailbox for the replies.
    #[cfg(test)]
    pub(crate) fn alias(&self) -> Alias {
        self.replies.alias()
    }

    /// Calls a method, and blocks until its result is there.
    ///
    /// # Errors
    /// [`CallFailed`].
    /// # Panics
    /// In the child of a fork.
    pub fn call(&mut self, to: &Sender, method: u64, body: &[u8]) -> Result<&[u8], CallFailed> {
        self.call_until(to, method, body, None)
    }

    /// Calls a method, and blocks until its result is there, for at most `limit`.
    ///
    /// # Errors
    /// [`CallFailed`].
    /// # Panics
    /// In the child of a fork.
    pub fn call_for(
        &mut self,
        to: &Sender,
        method: u64,
        body: &[u8],
        limit: Duration,
    ) -> Result<&[u8], CallFailed> {
        self.call_until(to, method, body, Instant::now().checked_add(limit))
    }

    pub(crate) fn call_until(
        &mut self,
        to: &Sender,
        method: u64,
        body: &[u8],
        deadline: Option<Instant>,
    ) -> Result<&[u8], CallFailed> {
        let left = || time_left(deadline);
        let mailbox = to.mailbox();
        self.token += 1;
        let token = self.token;
        self.request.clear();
        let (label, address) = self.keys.get_or_add(mailbox, &self.replies);
        let reply_to = Some(address);
        Envelope::Request { method, token, reply_to, body }.write(&mut self.request);
        match (to.send(&self.request), left()) {
            (Err(SendError::Retry { .. }), None) => to.wait_to_send(&self.request).block()?,
            (Err(SendError::Retry { .. }), Some(left)) => to.wait_to_send(&self.request).block_for(left)?,
            (sent, _) => sent?,
        }
        loop {
            match left() {
                None => self.replies.wait().block(),
                // Also before each message that is another one.
                Some(Duration::ZERO) => return Err(CallFailed::TimedOut { mailbox }),
                Some(left) if self.replies.wait().block_for(left) => {}
                Some(_) => return Err(CallFailed::TimedOut { mailbox }),
            }
            let Some(message) = self.replies.receive() else { continue };
            // Others are late replies to earlier calls.
            match replies::read(&message) {
                Some((of, result)) if of == token && message.label() == label => match result {
                    Ok(_) => break,
                    Err(reason) => return Err(CallFailed::of(reason, mailbox, method)),
                },
                _ => {}
            }
        }
        Ok(&self.replies.last()[HEAD..])
    }
}
