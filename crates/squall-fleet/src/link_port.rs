//! Ports: links that a dispatcher serves, and the ways to add some.

use crate::link::{Link, LinkError, LinkListener, LinkReceiver, LinkRequest, LinkSender, Look};
use crate::links::{Inbound, LINKS_MAX, Links, Shared};
use squall_call::socket;
use squall_sys::sync::{StdArc, thread};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The pause of a listener that the system refuses, for example for want of descriptors.
const PAUSE: Duration = Duration::from_millis(50);
/// The most processes that have connected and not said hello.
const SILENT_MAX: usize = 64;
/// The longest wait of a listener. The end of its port ends it.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A link that a dispatcher serves.
pub(crate) struct Linked {
    pub(crate) receiver: LinkReceiver,
    /// Shared with the requests that have no reply yet.
    pub(crate) sender: StdArc<LinkSender>,
    pub(crate) label: u64,
}

impl Linked {
    fn new(link: Link, label: u64) -> Linked {
        let (sender, receiver) = link.split();
        Linked { receiver, sender: StdArc::new(sender), label }
    }
}

impl Inbound for Linked {
    type Error = LinkError;

    #[inline]
    fn look(&mut self) -> Result<bool, LinkError> {
        self.receiver.look()
    }

    fn ask(&self, waker: &Waker) -> bool {
        self.receiver.ask(waker)
    }
}

/// The links of one [`Dispatcher`](crate::Dispatcher), with a class and handlers in common. Linux only.
///
/// Other threads add links by a [`LinkAdder`], also while the dispatcher runs. A link that ends is forgotten,
/// and requests that came before its end are handled. There are at most 4,031 links at a time.
///
/// Each request is answered on its own link. The peer's programs call by
/// [`connect_link`](crate::connect_link). Links take turns of 16 messages. Of several links, each has at most
/// an eighth of the [requests](crate::Dispatcher::limit_requests) of its class, and waits beyond that. So a
/// peer that floods holds up the others by 16 messages, and leaves them room.
///
/// # Cost
/// No thread for a link. While links have messages, the dispatcher's thread looks into them. For a link that
/// stays empty, the thread `squall-calls` of the process waits on its socket.
/// Source: Wentzlaff 2012, §3.3 (FO-16): a dispatcher polls all mailboxes that are registered.
///
/// # Example
/// ```
/// use squall::fleet::{Class, Dispatcher, Link, LinkListener, LinkPort, connect_link};
///
/// #[squall::interface(remote)]
/// trait Upper: Send + Sync {
///     fn upper(&self, text: &str) -> String;
/// }
///
/// struct Ascii;
///
/// impl Upper for Ascii {
///     fn upper(&self, text: &str) -> String {
///         text.to_ascii_uppercase()
///     }
/// }
///
/// let name = format!("docs-port-{}", std::process::id());
/// let object = squall::shared::<dyn Upper, _>(Ascii);
/// let served = object.handle();
/// let port = LinkPort::listen(LinkListener::bind(&name)?)?;
/// std::thread::spawn(move || {
///     let mut dispatcher = Dispatcher::new();
///     dispatcher.serve_object(port, Class::External, served);
///     dispatcher.run();
/// });
/// // Usually in another process.
/// let stub = connect_link::<dyn Upper>(&name)?;
/// assert_eq!(stub.upper("hello"), "HELLO");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LinkPort {
    name: String,
    pub(crate) links: Links<Linked>,
    accepts: Option<Accepts>,
}

impl LinkPort {
    /// Makes a port without links.
    #[expect(clippy::new_without_default, reason = "a port is a resource")]
    pub fn new() -> LinkPort {
        LinkPort::named("links")
    }

    /// Makes a port without links. The watchdog reports its tasks by this name.
    pub fn named(name: &str) -> LinkPort {
        LinkPort { name: name.to_owned(), links: Links::new(), accepts: None }
    }

    /// Makes a port that takes on all processes that connect to a listener.
    ///
    /// The thread `squall-accepts` accepts them, and makes each link once its process has said hello. It
    /// forgets a process that says no hello for 5 seconds, or as set by the listener's
    /// [`LinkOptions`](crate::LinkOptions), and the oldest of more than 64 such processes. A process that
    /// finds the port full is refused, and makes no link. The thread and the name end after the port.
    ///
    /// # Errors
    /// The system has no thread left.
    ///
    /// # Example
    /// See [`LinkPort`].
    pub fn listen(listener: LinkListener) -> io::Result<LinkPort> {
        let mut port = LinkPort::named("accepted links");
        let listener = StdArc::new(listener);
        let (adder, accepted) = (port.adder(), listener.clone());
        thread::Builder::new().name("squall-accepts".into()).spawn(move || accept_all(&accepted, &adder))?;
        port.accepts = Some(Accepts(listener));
        Ok(port)
    }

    /// Returns the way of other threads to add links.
    pub fn adder(&self) -> LinkAdder {
        LinkAdder(self.links.shared().clone())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for LinkPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, links) = (&self.name, self.links.count());
        f.debug_struct("LinkPort").field("name", name).field("links", &links).finish()
    }
}

impl Drop for LinkPort {
    fn drop(&mut self) {
        drop(self.links.end());
    }
}

/// Adds links to a [`LinkPort`], from any thread. A clone is the same way.
///
/// # Example
/// ```
/// use squall::fleet::{Link, LinkPort};
///
/// # let (here, there) = Link::pair()?;
/// # let other = std::thread::spawn(move || Link::over(there));
/// # let link = Link::over(here)?;
/// # let _peer = other.join().unwrap()?;
/// let port = LinkPort::new();
/// let adder = port.adder();
/// adder.add(link).expect("the port is new");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LinkAdder(StdArc<Shared<Linked>>);

impl LinkAdder {
    /// Adds a link. Its requests have the label 0.
    ///
    /// # Errors
    /// [`LinkRefused`]: the dispatcher has ended, or has 4,031 links already.
    pub fn add(&self, link: Link) -> Result<(), LinkRefused> {
        self.add_labelled(link, 0)
    }

    /// Adds a link, and gives its requests a [label](crate::Request::label), which tells peers apart.
    ///
    /// # Errors
    /// [`LinkRefused`]: the dispatcher has ended, or has 4,031 links already.
    pub fn add_labelled(&self, link: Link, label: u64) -> Result<(), LinkRefused> {
        let link_name = link.name();
        self.0.add(Linked::new(link, label)).map_err(|linked| {
            let has_ended = self.has_ended();
            // Ends the link, without a lock.
            drop(linked);
            match has_ended {
                true => LinkRefused::Ended { link: link_name },
                false => LinkRefused::TooMany { link: link_name, limit: LINKS_MAX },
            }
        })
    }

    /// Returns whether the dispatcher has ended, or the port was dropped.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended()
    }
}

impl fmt::Debug for LinkAdder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkAdder").field("has_ended", &self.has_ended()).finish()
    }
}

/// The reason why a [`LinkPort`] took no link. The link has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkRefused {
    /// The dispatcher has ended, or the port was dropped.
    Ended {
        /// The link.
        link: crate::LinkName,
    },
    /// The port has as many links as it can have.
    TooMany {
        /// The link.
        link: crate::LinkName,
        /// The most links.
        limit: usize,
    },
}

impl fmt::Display for LinkRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkRefused::Ended { link } => {
                write!(f, "{link} was not taken on, since the dispatcher has ended; connect to another one")
            }
            LinkRefused::TooMany { link, limit } => {
                write!(f, "{link} was not taken on, since the port has {limit} links; end some of them")
            }
        }
    }
}

impl std::error::Error for LinkRefused {}

/// Ends the thread that accepts, when it is dropped.
struct Accepts(StdArc<LinkListener>);

impl Drop for Accepts {
    fn drop(&mut self) {
        // Wakes the thread. Of the child of a fork the listener is the parent's.
        if !squall_sys::fork::forked() {
            let _ = socket::shut_down(self.0.as_fd());
        }
    }
}

/// Accepts processes until the port ends. A handshake never waits: it begins once the process has said hello.
fn accept_all(listener: &LinkListener, adder: &LinkAdder) {
    // Processes without a hello, and the ends of their time. The oldest comes first.
    let mut silent: VecDeque<(LinkRequest, Instant)> = VecDeque::new();
    while !adder.has_ended() {
        match listener.look() {
            Ok(Look::Request(request)) if request.has_hello() => {
                greet(request, adder);
                continue;
            }
            Ok(Look::Request(request)) => {
                if silent.len() == SILENT_MAX
                    && let Some((oldest, _)) = silent.pop_front()
                {
                    greet_if_ready(oldest, adder);
                }
                let deadline = request.deadline();
                silent.push_back((request, deadline));
                continue;
            }
            Ok(Look::Refused) => continue,
            Ok(Look::Nothing) => {}
            // Too many open files, for example. The process still waits.
            Err(_) => thread::sleep(PAUSE),
        }
        let now = Instant::now();
        for (request, deadline) in std::mem::take(&mut silent) {
            if let Some(request) = greet_if_ready(request, adder)
                && now < deadline
            {
                silent.push_back((request, deadline));
            }
        }
        let deadline = silent.iter().map(|(_, deadline)| *deadline).chain([now + DAY]).min();
        let mut descriptors = vec![listener.as_fd()];
        descriptors.extend(silent.iter().map(|(request, _)| request.as_fd()));
        let _ = socket::wait_until_any_readable(&descriptors, deadline.unwrap_or(now));
    }
}

/// Makes the link of a process that has said hello. Returns the request of another one.
fn greet_if_ready(request: LinkRequest, adder: &LinkAdder) -> Option<LinkRequest> {
    if !request.has_hello() {
        return Some(request);
    }
    greet(request, adder);
    None
}

/// Makes the link of a process that has said hello.
fn greet(request: LinkRequest, adder: &LinkAdder) {
    // Refused before the handshake, so the process learns that it has no link.
    if !adder.0.has_room() {
        return;
    }
    // A process that breaks the handshake is forgotten.
    drop(request.link().map(|link| adder.add(link)));
}
