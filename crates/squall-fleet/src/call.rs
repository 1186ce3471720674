//! Calls by messages: their errors, and a caller that has no dispatcher.

use crate::envelope::{Destination, Envelope, HEAD, Key};
use crate::replies::{self, Keys};
use crate::retry::{self, Ended, Failed, RETRY, Repeats, Times};
use crate::{Alias, Fate, Mailbox, SendError, Sender};
use squall_machine::park::{is_past, time_left};
use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

/// The reasons of failures, as they travel.
pub(crate) const NO_METHOD: u64 = 1;
pub(crate) const NO_REPLY: u64 = 2;
pub(crate) const STOPPED: u64 = 3;
pub(crate) const NO_ROOM: u64 = 4;
/// The server does not know the session of the call.
pub(crate) const NO_SESSION: u64 = 5;
/// The server has as many sessions as it can have.
pub(crate) const NO_FURTHER_SESSION: u64 = 6;
/// The call ran, and its result is gone.
pub(crate) const NO_RESULT: u64 = 7;
/// Never travels: the dispatcher of the caller has ended.
pub(crate) const ENDED: u64 = u64::MAX;
/// Never travels: the link of the call has ended.
pub(crate) const LINK_ENDED: u64 = u64::MAX - 1;

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
            NO_ROOM | NO_RESULT => CallFailed::ResultTooLarge { mailbox },
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
    /// Sessions for calls that may be sent again, by the server's mailbox.
    sessions: HashMap<Alias, Key>,
}

/// The most other messages that a caller takes after its deadline.
const LATE_MAX: usize = 64;
/// The most sessions of a caller. At one more, it forgets all.
const SESSIONS_MAX: usize = 1024;

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
        Caller { keys: Keys::new(&replies), replies, token: 0, request: Vec::new(), sessions: HashMap::new() }
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
        let mailbox = to.mailbox();
        let label = self.prepare(mailbox, method, None, body);
        self.send_until(to, deadline)?;
        match self.receive_until(label, deadline) {
            None => Err(CallFailed::TimedOut { mailbox }),
            Some(Err(reason)) => Err(CallFailed::of(reason, mailbox, method)),
            Some(Ok(())) => Ok(self.result()),
        }
    }

    /// Calls a method, and sends the call again while no reply comes. The server runs it once. Blocks until
    /// the result is there, for at most `limit`.
    ///
    /// Each copy has the key of the call: a session with the server, and its number in it. The server must be
    /// a [`Dispatcher`](crate::Dispatcher). The first copy is sent again after 100 ms, and further ones after
    /// up to a second.
    ///
    /// # Errors
    /// [`Fate`], which says whether the method may have run.
    /// [`ServerLost`](Fate::ServerLost): the dispatcher has ended, or another one has taken its place, after
    /// the call was sent. [`NoService`](Fate::NoService): the mailbox does not exist, refuses the capability,
    /// or has no such method. [`Closed`](Fate::Closed): the server stopped before it began the call.
    /// # Panics
    /// In the child of a fork.
    /// # Cost
    /// That of a [call](Caller::call), two lookups in tables, and a copy of the result at the server. Before
    /// the first call to a server, one more call. A dispatcher keeps 16 MiB of results, and 4,096 sessions,
    /// each for ten minutes after its last call. Beyond that, a new one takes the place of the oldest one.
    /// Source: Birrell and Nelson 1984.
    ///
    /// # Example
    /// ```
    /// use squall::fleet::{Caller, Class, Dispatcher, Fate, Mailbox};
    /// use std::time::Duration;
    ///
    /// let mailbox = Mailbox::new();
    /// let sender = mailbox.sender(mailbox.add_capability()?)?;
    /// let server = std::thread::spawn(|| {
    ///     let mut dispatcher = Dispatcher::new();
    ///     let context = dispatcher.context();
    ///     dispatcher.serve(mailbox, Class::External, move |request| {
    ///         if request.method() == 0 {
    ///             context.drain();
    ///         }
    ///         async move { request.reply(b"done") }
    ///     });
    ///     dispatcher.run();
    /// });
    /// let (mut caller, limit) = (Caller::new(), Duration::from_secs(60));
    /// assert_eq!(caller.call_once(&sender, 1, b"", limit)?, b"done");
    /// caller.call_once(&sender, 0, b"", limit)?;
    /// server.join().unwrap();
    /// assert_eq!(caller.call_once(&sender, 1, b"", limit), Err(Fate::NoService));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call_once(
        &mut self,
        to: &Sender,
        method: u64,
        body: &[u8],
        limit: Duration,
    ) -> Result<&[u8], Fate> {
        let deadline = Instant::now().checked_add(limit);
        Ok(self.call_once_until(to, method, body, Times { deadline, retry: RETRY })?)
    }

    /// Calls like [`call_once`](Caller::call_once).
    pub(crate) fn call_once_until(
        &mut self,
        to: &Sender,
        method: u64,
        body: &[u8],
        times: Times,
    ) -> Result<&[u8], Failed> {
        retry::call_once(&mut CallerTo { caller: self, to }, method, body, times)?;
        Ok(self.result())
    }

    /// Takes the session with a server out.
    pub(crate) fn take_session(&mut self, of: &Sender) -> Option<Key> {
        self.sessions.remove(&of.mailbox())
    }

    /// Takes over a session with a server, which no other caller uses.
    pub(crate) fn set_session(&mut self, of: &Sender, session: Key) {
        self.sessions.insert(of.mailbox(), session);
    }

    /// Writes a request. Returns the label of its reply.
    fn prepare(&mut self, mailbox: Alias, method: u64, key: Option<Key>, body: &[u8]) -> u64 {
        self.token += 1;
        self.request.clear();
        let (label, address) = self.keys.get_or_add(mailbox, &self.replies);
        let (token, reply_to) = (self.token, Some(Destination::Mailbox(address)));
        Envelope::Request { method, token, reply_to, key, body }.write(&mut self.request);
        label
    }

    /// Sends the request, and waits for room until the deadline.
    fn send_until(&self, to: &Sender, deadline: Option<Instant>) -> Result<(), SendError> {
        match (to.send(&self.request), time_left(deadline)) {
            (Err(SendError::Retry { .. }), None) => to.wait_to_send(&self.request).block(),
            (Err(SendError::Retry { .. }), Some(left)) => to.wait_to_send(&self.request).block_for(left),
            (sent, _) => sent,
        }
    }

    /// Waits for the reply to the last request. Returns whether it is a result, or the reason of a failure.
    /// Returns `None` at the deadline.
    fn receive_until(&mut self, label: u64, deadline: Option<Instant>) -> Option<Result<(), u64>> {
        let mut late = 0;
        loop {
            let left = time_left(deadline);
            match left {
                None => self.replies.wait().block(),
                // At the deadline, this takes a reply that is there.
                Some(left) if self.replies.wait().block_for(left) => {}
                Some(_) => return None,
            }
            let Some(message) = self.replies.receive() else { continue };
            // Others are late replies to earlier calls.
            match replies::read(&message) {
                Some((of, result)) if of == self.token && message.label() == label => {
                    return Some(result.map(drop));
                }
                // A flood of them ends with the deadline.
                _ if left == Some(Duration::ZERO) => {
                    late += 1;
                    if late == LATE_MAX {
                        return None;
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the result of the last call.
    fn result(&self) -> &[u8] {
        &self.replies.last()[HEAD..]
    }
}

/// A caller, and the server of a call.
struct CallerTo<'a> {
    caller: &'a mut Caller,
    to: &'a Sender,
}

impl Repeats for CallerTo<'_> {
    fn repeat(&mut self, method: u64, key: Key, body: &[u8], mut times: Times) -> Result<(), Ended> {
        let CallerTo { caller, to } = self;
        let label = caller.prepare(to.mailbox(), method, Some(key), body);
        let mut copies = 0;
        loop {
            let sent = match copies {
                0 => caller.send_until(to, times.deadline),
                // Does not wait for room: the reply to a copy that was sent may be there.
                _ => to.send(&caller.request),
            };
            let (again, failed) = match sent {
                Ok(()) => {
                    copies += 1;
                    (times.again(), None)
                }
                Err(SendError::Retry { .. }) if copies > 0 => (times.again(), None),
                Err(error) if copies == 0 => return Err(not_sent(error, 0)),
                // The server has ended, perhaps after its reply.
                Err(error) => (Some(Instant::now()), Some(error)),
            };
            match (caller.receive_until(label, again), failed) {
                (Some(Ok(())), _) => return Ok(()),
                (Some(Err(reason)), _) => return Err(Ended::Told { reason, copies }),
                (None, Some(error)) => return Err(not_sent(error, copies)),
                (None, None) if is_past(times.deadline) => return Err(Ended::Fate(Fate::TimedOut)),
                (None, None) => times.back_off(),
            }
        }
    }

    fn result(&self) -> &[u8] {
        self.caller.result()
    }

    fn session(&self) -> Option<Key> {
        self.caller.sessions.get(&self.to.mailbox()).copied()
    }

    fn set_session(&mut self, session: Option<Key>) {
        let (sessions, mailbox) = (&mut self.caller.sessions, self.to.mailbox());
        match session {
            Some(key) => {
                if sessions.len() >= SESSIONS_MAX && !sessions.contains_key(&mailbox) {
                    sessions.clear();
                }
                sessions.insert(mailbox, key);
            }
            None => _ = sessions.remove(&mailbox),
        }
    }
}

/// Returns the end of a call of which a copy was not sent, after so many were.
fn not_sent(error: SendError, copies: u32) -> Ended {
    Ended::Fate(match (error, copies) {
        (SendError::Permissions { .. }, 0) => return Ended::Denied,
        (SendError::Retry { .. }, 0) => Fate::NotAccepted,
        (SendError::Retry { .. }, _) => Fate::TimedOut,
        (SendError::NoSpace { .. }, _) => Fate::TooLarge,
        (_, 0) => Fate::NoService,
        _ => Fate::ServerLost,
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use squall_machine::ClusterSize;

    /// Returns the sender of replies from a server to a caller.
    fn replies_from(server: &Mailbox, caller: &mut Caller) -> Sender {
        let (_, (alias, capability)) = caller.keys.get_or_add(server.alias(), &caller.replies);
        Sender::new(alias, capability).unwrap()
    }

    fn reply(token: u64, body: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        Envelope::Reply { token, body }.write(&mut message);
        message
    }

    #[test]
    fn a_reply_that_is_there_at_the_deadline_counts() {
        let (server, mut caller) = (Mailbox::new(), Caller::new());
        let label = caller.prepare(server.alias(), 1, None, b"");
        let (to, past) = (replies_from(&server, &mut caller), Some(Instant::now()));
        // A late reply to an earlier call comes before.
        to.send(&reply(0, b"late")).unwrap();
        to.send(&reply(1, b"right")).unwrap();
        assert_eq!(caller.receive_until(label, past), Some(Ok(())));
        assert_eq!(caller.result(), b"right");
        assert_eq!(caller.receive_until(label, past), None);
    }

    #[test]
    fn a_copy_that_finds_no_room_does_not_hold_up_the_reply_to_the_first_one() {
        let mut server = Mailbox::builder().lane_bytes(4096).lane_per(ClusterSize::Machine).build();
        let to = server.sender(server.add_capability().unwrap()).unwrap();
        let mut caller = Caller::new();
        caller.set_session(&to, Key { session: 7, number: 0 });
        let (replies, filler) = (replies_from(&server, &mut caller), to.clone());
        std::thread::scope(|threads| {
            threads.spawn(move || {
                server.wait().block();
                while filler.send(&[0; 100]).is_ok() {}
                // Copies are sent meanwhile. None finds room.
                std::thread::sleep(Duration::from_millis(20));
                replies.send(&reply(1, b"done")).unwrap();
                // A copy that finds the server gone does not lose the reply.
                drop(server);
            });
            let times = Times { deadline: None, retry: Duration::from_millis(1) };
            assert_eq!(caller.call_once_until(&to, 1, &[0; 1000], times).unwrap(), b"done");
        });
    }
}
