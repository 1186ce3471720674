//! Calls of a dispatcher's tasks over links.
//!
//! Problem: a task that calls a server of another process must not block its thread, and its reply must not
//! wait behind requests.
//! Idea: the links to servers share one bell, like those of a port. The dispatcher looks into them where
//! it looks for replies. A link carries the requests of this side alone. So its other direction has replies
//! alone.
//!
//! - I1. The replies of all links are received with those of mailboxes, before all requests.
//! - I2. Each link has a label of its own, which its calls know. So the process at the end of a link ends no
//!   call of another link or mailbox.
//! - I3. A link that ends marks its server and ends its calls, in one step of the dispatcher's thread. So no
//!   call waits for a link that has ended.
//!
//! Cost: that of a call by mailboxes, and a packet on the socket for a reply after a pause (`links.rs`).
//! Source: Wentzlaff 2012, §3.3 and §3.3.1 (FO-17, FO-21).

use crate::LinkRefused;
use crate::call::{ENDED, LINK_ENDED, NO_METHOD, NO_ROOM, STOPPED};
use crate::context::Context;
use crate::envelope::{Destination, Envelope};
use crate::link::{Link, LinkError, LinkName, LinkReceiver, LinkSender};
use crate::links::{Inbound, LINKS_MAX};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

/// Above all labels of mailboxes.
const LABELS: u64 = 1 << 32;

/// The end of a link by which the replies to tasks come.
pub(crate) struct Replies {
    pub(crate) receiver: LinkReceiver,
    pub(crate) label: u64,
    pub(crate) has_ended: Rc<Cell<bool>>,
}

impl Inbound for Replies {
    type Error = LinkError;

    fn look(&mut self) -> Result<bool, LinkError> {
        self.receiver.look()
    }

    fn ask(&self, waker: &Waker) -> bool {
        self.receiver.ask(waker)
    }
}

/// A server at the other end of a link, for the calls of a dispatcher's tasks. Linux only.
///
/// The link ends when this is dropped and no call waits, once the server has noticed it.
///
/// # Example
/// See [`Context::call_link`].
pub struct LinkServer {
    sender: LinkSender,
    has_ended: Rc<Cell<bool>>,
}

impl LinkServer {
    /// Returns the name of the link, as errors print it.
    pub fn name(&self) -> LinkName {
        self.sender.name()
    }

    fn label(&self) -> u64 {
        LABELS + u64::from(self.name().number)
    }
}

impl fmt::Debug for LinkServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkServer").field("link", &format_args!("{}", self.name())).finish_non_exhaustive()
    }
}

/// The reason why a call over a link has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkCallFailed {
    /// The request was not sent. The method did not run.
    NotSent(LinkError),
    /// The server has no such method. The method did not run.
    NoMethod {
        /// The link.
        link: LinkName,
        /// The method.
        method: u64,
    },
    /// The server stopped before it handled the request. The method did not run.
    Stopped {
        /// The link.
        link: LinkName,
    },
    /// The server dropped the request, or the method panicked. It may have run in part.
    NoReply {
        /// The link.
        link: LinkName,
    },
    /// The result is larger than the link's lane. The method ran.
    ResultTooLarge {
        /// The link.
        link: LinkName,
    },
    /// The link ended before the reply. The method may have run.
    LinkEnded {
        /// The link.
        link: LinkName,
    },
    /// The caller's own dispatcher has ended. The method may have run.
    Ended {
        /// The link.
        link: LinkName,
    },
    /// No reply came in time. The method may run later.
    TimedOut {
        /// The link.
        link: LinkName,
    },
}

impl LinkCallFailed {
    /// Returns whether the method may have run.
    pub fn may_have_run(&self) -> bool {
        use LinkCallFailed::{NoMethod, NotSent, Stopped};
        !matches!(self, NotSent(_) | NoMethod { .. } | Stopped { .. })
    }

    fn of(reason: u64, link: LinkName, method: u64) -> LinkCallFailed {
        match reason {
            NO_METHOD => LinkCallFailed::NoMethod { link, method },
            STOPPED => LinkCallFailed::Stopped { link },
            NO_ROOM => LinkCallFailed::ResultTooLarge { link },
            LINK_ENDED => LinkCallFailed::LinkEnded { link },
            ENDED => LinkCallFailed::Ended { link },
            _ => LinkCallFailed::NoReply { link },
        }
    }
}

impl fmt::Display for LinkCallFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkCallFailed::NotSent(error) => write!(f, "the call was not sent: {error}"),
            LinkCallFailed::NoMethod { link, method } => {
                write!(f, "the server of {link} has no method {method}; call one that it has")
            }
            LinkCallFailed::Stopped { link } => {
                write!(f, "the server of {link} stopped before it handled the request; call another one")
            }
            LinkCallFailed::NoReply { link } => {
                write!(f, "the server of {link} dropped the request; the method may have run in part")
            }
            LinkCallFailed::ResultTooLarge { link } => {
                write!(f, "the result is larger than the lane of {link}; make the link with a larger lane")
            }
            LinkCallFailed::LinkEnded { link } => {
                write!(f, "{link} ended before the reply; the method may have run")
            }
            LinkCallFailed::Ended { link } => {
                write!(f, "the dispatcher ended before the reply of {link}; the method may have run")
            }
            LinkCallFailed::TimedOut { link } => {
                write!(f, "the server of {link} did not reply in time; the method may run later")
            }
        }
    }
}

impl std::error::Error for LinkCallFailed {}

impl Context {
    /// Adds a link to a server of another process, for calls of this dispatcher's tasks.
    ///
    /// The link carries requests to the server, and replies back. For calls in the other direction, the two
    /// processes use a second link.
    ///
    /// # Errors
    /// [`LinkRefused`]: the dispatcher has 4,031 such links, or has ended. The link has ended then.
    pub fn add_server(&self, link: Link) -> Result<LinkServer, LinkRefused> {
        let name = link.name();
        let (sender, receiver) = link.split();
        let server = LinkServer { sender, has_ended: Rc::default() };
        let replies = Replies { receiver, label: server.label(), has_ended: server.has_ended.clone() };
        if self.0.has_ended.get() {
            return Err(LinkRefused::Ended { link: name });
        }
        let added = self.0.servers.borrow().shared().add(replies);
        // Another dispatcher's task may have added it while this one sleeps: the bell wakes it.
        match added {
            Ok(()) => Ok(server),
            Err(_) => Err(LinkRefused::TooMany { link: name, limit: LINKS_MAX }),
        }
    }

    /// Calls a method of the server at the other end of a link. The task waits for the result, and other
    /// tasks run meanwhile.
    ///
    /// Replies of links come before requests, as those of mailboxes do. Dropping the future gives the call
    /// up. Its reply is ignored.
    ///
    /// # Errors
    /// [`LinkCallFailed`].
    ///
    /// # Example
    /// ```
    /// use squall::fleet::{Class, Dispatcher, Link, LinkListener, LinkPort};
    ///
    /// let name = format!("docs-call-link-{}", std::process::id());
    /// let port = LinkPort::listen(LinkListener::bind(&name)?)?;
    /// // Usually in another process.
    /// std::thread::spawn(move || {
    ///     let mut dispatcher = Dispatcher::new();
    ///     dispatcher.serve(port, Class::External, |request| async move {
    ///         let body = request.body().to_ascii_uppercase();
    ///         request.reply(&body);
    ///     });
    ///     dispatcher.run();
    /// });
    /// let dispatcher = Dispatcher::new();
    /// let context = dispatcher.context();
    /// let server = context.add_server(Link::connect(&name)?)?;
    /// dispatcher.context().spawn(async move {
    ///     assert_eq!(context.call_link(&server, 1, b"hello").await.unwrap(), b"HELLO");
    ///     context.stop();
    /// });
    /// dispatcher.run();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn call_link(
        &self,
        to: &LinkServer,
        method: u64,
        body: &[u8],
    ) -> Result<Vec<u8>, LinkCallFailed> {
        self.call_link_noting(to, method, body, &Cell::new(false)).await
    }

    /// Calls a method of the server at the other end of a link, like [`call_link`](Context::call_link), for
    /// at most `limit`.
    ///
    /// # Errors
    /// [`LinkCallFailed`]. [`TimedOut`](LinkCallFailed::TimedOut) means that the request was sent, and no
    /// reply came in time. If the link had no room in time, the request was not sent:
    /// [`NotSent`](LinkCallFailed::NotSent) with [`Retry`](LinkError::Retry).
    ///
    /// # Example
    /// ```
    /// use squall::fleet::{Dispatcher, Link, LinkCallFailed, LinkListener, LinkPort};
    /// use std::time::Duration;
    ///
    /// let name = format!("docs-call-link-for-{}", std::process::id());
    /// // A server that does not serve its links.
    /// let _port = LinkPort::listen(LinkListener::bind(&name)?)?;
    /// let dispatcher = Dispatcher::new();
    /// let context = dispatcher.context();
    /// let server = context.add_server(Link::connect(&name)?)?;
    /// dispatcher.context().spawn(async move {
    ///     let result = context.call_link_for(&server, 1, b"hello", Duration::from_millis(1)).await;
    ///     assert_eq!(result, Err(LinkCallFailed::TimedOut { link: server.name() }));
    ///     context.stop();
    /// });
    /// dispatcher.run();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn call_link_for(
        &self,
        to: &LinkServer,
        method: u64,
        body: &[u8],
        limit: Duration,
    ) -> Result<Vec<u8>, LinkCallFailed> {
        let link = to.name();
        let is_sent = Cell::new(false);
        let called = self.within(limit, self.call_link_noting(to, method, body, &is_sent)).await;
        called.unwrap_or_else(|| {
            Err(match is_sent.get() {
                true => LinkCallFailed::TimedOut { link },
                false => LinkCallFailed::NotSent(LinkError::Retry { link }),
            })
        })
    }

    /// Calls a method over a link, and notes when the request is sent.
    async fn call_link_noting(
        &self,
        to: &LinkServer,
        method: u64,
        body: &[u8],
        is_sent: &Cell<bool>,
    ) -> Result<Vec<u8>, LinkCallFailed> {
        let link = to.name();
        if self.0.has_ended.get() || to.has_ended.get() {
            return Err(LinkCallFailed::NotSent(LinkError::Ended { link }));
        }
        let (token, reply) = self.await_reply(to.label());
        let mut message = Vec::with_capacity(24 + body.len());
        let reply_to = Some(Destination::Link);
        Envelope::Request { method, token, reply_to, key: None, body }.write(&mut message);
        to.sender.wait_to_send(&message).await.map_err(LinkCallFailed::NotSent)?;
        is_sent.set(true);
        drop(message);
        reply.await.map_err(|reason| LinkCallFailed::of(reason, link, method))
    }
}
