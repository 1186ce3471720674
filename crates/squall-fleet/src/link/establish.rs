//! Links, and the ways to make one.

use super::error::LinkName;
use super::halves::{LinkReceiver, LinkSender};
use super::hello;
use super::joint::Joint;
use super::memory::RING_BYTES_MIN;
use super::ring::RING_BYTES_MAX;
use squall_call::socket;
use squall_sys::fork;
use squall_sys::peer::Peer;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The service of links, in the names of sockets.
pub(crate) const SERVICE: &str = "squall-link";
/// The time in which a handshake must end, if no other one is set.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// A connection between two processes that carries messages in both directions, over shared memory.
///
/// A message is a sequence of bytes. It is accepted whole, or an error says why not. Accepted messages arrive
/// once, and in the order in which they were sent. If the peer is killed, the messages that it had sent are
/// still received, and then [`LinkError::PeerGone`](crate::LinkError::PeerGone) says that it has ended.
///
/// The peer need not be trusted: its bytes are copied, then checked, then used. Linux only.
///
/// # Cost
/// Each direction has a lane of 64 KiB, or as set by [`LinkOptions::lane_bytes`]. A message takes its bytes,
/// rounded up to 8, and 8 bytes more. The peer chooses the size of the other lane, up to 16 MiB. Memory of a
/// lane comes into being when it is first written. The link has a socket, and the thread `squall-calls` of
/// this process watches it. That thread sleeps unless a peer ends, or one side waits in a future. Source:
/// Wentzlaff 2012, §3.2.2 (FO-03).
///
/// # Example
/// ```
/// use squall::fleet::{Link, LinkError};
///
/// let (here, there) = Link::pair()?;
/// // In another process, which got `there` as its standard input or by name:
/// let other = std::thread::spawn(move || {
///     let (sender, mut receiver) = Link::over(there)?.split();
///     receiver.wait().block()?;
///     let question = receiver.receive()?.expect("the wait found a message").to_vec();
///     sender.send(&question.to_ascii_uppercase())?;
///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// });
///
/// let (sender, mut receiver) = Link::over(here)?.split();
/// sender.send(b"how are you?")?;
/// receiver.wait().block()?;
/// assert_eq!(receiver.receive()?, Some(&b"HOW ARE YOU?"[..]));
/// other.join().unwrap().unwrap();
/// assert!(matches!(receiver.wait().block(), Err(LinkError::Ended { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Link {
    sender: LinkSender,
    receiver: LinkReceiver,
}

impl Link {
    /// Makes a pair of connected sockets, for [`over`](Link::over) here and in another process. Both close on
    /// exec. To connect a child process, make one of them its standard input.
    ///
    /// # Errors
    /// Those of socketpair(2), for example if this process has too many open files.
    ///
    /// # Example
    /// ```no_run
    /// use squall::fleet::Link;
    /// use std::process::{Command, Stdio};
    ///
    /// let (here, there) = Link::pair()?;
    /// let child = Command::new("decoder").stdin(Stdio::from(there)).spawn()?;
    /// let link = Link::over(here)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    /// In the child:
    /// ```no_run
    /// use squall::fleet::Link;
    /// use std::os::fd::AsFd;
    ///
    /// let link = Link::over(std::io::stdin().as_fd().try_clone_to_owned()?)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        socket::pair()
    }

    /// Makes a link over a socket of a [pair](Link::pair). The other process does so with the other one.
    /// Waits for its handshake, for 5 seconds at most.
    ///
    /// # Errors
    /// `TimedOut`, `UnexpectedEof` and `InvalidData`, with the reason, if the peer does not make the link.
    /// `InvalidInput`, if the socket is not one of a pair. Errors of the system, for example too many open
    /// files.
    pub fn over(socket: OwnedFd) -> io::Result<Link> {
        LinkOptions::new().over(socket)
    }

    /// Connects to the [`LinkListener`](crate::LinkListener) with this name, of a process of the same user.
    ///
    /// # Errors
    /// Like [`over`](Link::over). `ConnectionRefused`, if no process listens by this name.
    /// `PermissionDenied`, if that process runs as another user, and not as root.
    ///
    /// # Example
    /// ```
    /// use squall::fleet::{Link, LinkListener};
    ///
    /// # let name = &format!("docs-link-{}", std::process::id());
    /// let listener = LinkListener::bind(name)?;
    /// std::thread::scope(|threads| {
    ///     // Usually in another process.
    ///     threads.spawn(|| Link::connect(name)?.split().0.send(b"hello").map_err(std::io::Error::other));
    ///     let (_, mut receiver) = listener.accept()?.link()?.split();
    ///     receiver.wait().block()?;
    ///     assert_eq!(receiver.receive()?, Some(&b"hello"[..]));
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })
    /// # ?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connect(name: &str) -> io::Result<Link> {
        LinkOptions::new().connect(name)
    }

    /// Returns the two ends: one that sends, and one that receives. The link ends with both.
    pub fn split(self) -> (LinkSender, LinkReceiver) {
        (self.sender, self.receiver)
    }

    /// Returns the end that sends.
    pub fn sender(&self) -> &LinkSender {
        &self.sender
    }

    /// Returns the end that receives.
    pub fn receiver(&mut self) -> &mut LinkReceiver {
        &mut self.receiver
    }

    /// Returns the name of the link, as errors print it.
    pub fn name(&self) -> LinkName {
        self.sender.name()
    }
}

/// Options of a link.
///
/// # Example
/// ```
/// use squall::fleet::{Link, LinkOptions};
///
/// let (here, there) = Link::pair()?;
/// let small = LinkOptions::new().lane_bytes(4096);
/// let other = std::thread::spawn(move || LinkOptions::new().over(there));
/// let (sender, receiver) = small.over(here)?.split();
/// assert_eq!(receiver.largest_message(), 4088);
/// // The peer has set the size of the lane to it.
/// assert_eq!(sender.largest_message(), 65_528);
/// # let _link = other.join().unwrap()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LinkOptions {
    lane_bytes: usize,
    limit: Duration,
    process: Option<u32>,
}

impl Default for LinkOptions {
    fn default() -> LinkOptions {
        LinkOptions::new()
    }
}

impl LinkOptions {
    /// Returns the default options: a lane of 64 KiB, and 5 seconds for the handshake.
    pub fn new() -> LinkOptions {
        LinkOptions { lane_bytes: 64 << 10, limit: HANDSHAKE, process: None }
    }

    /// Sets the size in bytes of the lane from the peer to this process: at least 4 KiB, at most 16 MiB, and
    /// rounded up to a power of two. The peer sets that of the other lane.
    #[must_use]
    pub fn lane_bytes(mut self, bytes: usize) -> LinkOptions {
        self.lane_bytes = bytes.clamp(RING_BYTES_MIN, RING_BYTES_MAX).next_power_of_two();
        self
    }

    /// Sets the time in which the handshake must end. The default is 5 seconds.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> LinkOptions {
        self.limit = limit;
        self
    }

    /// The process at the other end of a socket pair, for [`over`](LinkOptions::over): a child that was not
    /// waited for yet. Its death ends the link even if a process that it started keeps the socket.
    #[must_use]
    pub fn process(mut self, pid: u32) -> LinkOptions {
        self.process = Some(pid);
        self
    }

    /// Makes a link over a socket of a pair: [`Link::over`].
    ///
    /// # Errors
    /// As [`Link::over`].
    pub fn over(&self, socket: OwnedFd) -> io::Result<Link> {
        refuse_in_child()?;
        socket::adopt(&socket)?;
        let process = self.process.map(socket::process_by_id).transpose()?;
        self.make(socket, self.process, process, self.deadline())
    }

    /// Connects by name: [`Link::connect`].
    ///
    /// # Errors
    /// As [`Link::connect`].
    pub fn connect(&self, name: &str) -> io::Result<Link> {
        refuse_in_child()?;
        let deadline = self.deadline();
        let own = socket::own_user();
        let socket =
            socket::connect_to(SERVICE, own, name, deadline).map_err(|error| match error.kind() {
                ErrorKind::ConnectionRefused => {
                    let why = format!("no process of this user listens for links by the name {name:?}");
                    io::Error::new(ErrorKind::ConnectionRefused, why)
                }
                _ => error,
            })?;
        // Any user may take any abstract name. Only the kernel's word counts.
        let peer = squall_sys::peer::peer(socket.as_fd())?;
        check_user(peer, own)?;
        self.with_peer(socket, peer, deadline)
    }

    /// Makes a link with a peer that the kernel knows.
    pub(super) fn with_peer(&self, socket: OwnedFd, peer: Peer, deadline: Instant) -> io::Result<Link> {
        let process = socket::process(socket.as_fd())?;
        self.make(socket, peer.pid, process, deadline)
    }

    fn make(
        &self,
        socket: OwnedFd,
        pid: Option<u32>,
        process: Option<OwnedFd>,
        deadline: Instant,
    ) -> io::Result<Link> {
        let rings = hello::shake(socket.as_fd(), self.lane_bytes, deadline)?;
        let joint = Joint::new(rings, socket, pid, process)?;
        Ok(Link { sender: LinkSender::new(joint.clone()), receiver: LinkReceiver::new(joint) })
    }

    pub(super) fn deadline(&self) -> Instant {
        const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
        Instant::now() + self.limit.min(YEAR)
    }
}

/// Refuses a peer of another user than this one and root.
pub(super) fn check_user(peer: Peer, own: u32) -> io::Result<()> {
    if peer.uid == own || peer.uid == 0 {
        return Ok(());
    }
    let why = format!(
        "the peer of the link runs as user {}, and not as user {own} or root: run both as one user",
        peer.uid
    );
    Err(io::Error::new(ErrorKind::PermissionDenied, why))
}

pub(super) fn refuse_in_child() -> io::Result<()> {
    if fork::forked() {
        let why = "the child of a fork cannot make a link; it may only exec";
        return Err(io::Error::new(ErrorKind::Unsupported, why));
    }
    Ok(())
}
