//! Links by name.

use super::establish::{Link, LinkOptions, SERVICE, check_user, refuse_in_child};
use squall_call::socket;
use squall_sys::peer::{self, Peer};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Takes links on by a name.
///
/// Each user has names of its own. A name has 1 to 80 bytes, and ends with its listener. Only processes of
/// the same user and of root can connect.
///
/// A listener has no thread: processes that connect wait until [`accept`](LinkListener::accept). For use in
/// an event loop, its descriptor is readable while one waits.
///
/// For an example see [`Link::connect`].
#[derive(Debug)]
pub struct LinkListener {
    socket: OwnedFd,
    options: LinkOptions,
}

impl LinkListener {
    /// Listens by this name, for links with the default options.
    ///
    /// # Errors
    /// `AddrInUse`, if another listener of this user has the name. `InvalidInput` with the reason, if the
    /// name is empty, too long, or has control characters.
    pub fn bind(name: &str) -> io::Result<LinkListener> {
        LinkListener::bind_with(name, LinkOptions::new())
    }

    /// Listens by this name, for links with these options.
    ///
    /// # Errors
    /// As [`bind`](LinkListener::bind).
    pub fn bind_with(name: &str, options: LinkOptions) -> io::Result<LinkListener> {
        refuse_in_child()?;
        Ok(LinkListener { socket: socket::listen_as(SERVICE, name)?, options })
    }

    /// Waits until a process connects.
    ///
    /// # Errors
    /// Errors of the system, for example too many open files. The process still waits then.
    pub fn accept(&self) -> io::Result<LinkRequest> {
        loop {
            // A year: the wait has no limit.
            if let Some(request) = self.accept_for(Duration::from_secs(365 * 24 * 60 * 60))? {
                return Ok(request);
            }
        }
    }

    /// Waits until a process connects, for at most `limit`. Returns its request, if one does.
    ///
    /// # Errors
    /// As [`accept`](LinkListener::accept).
    ///
    /// # Example
    /// ```
    /// use squall::fleet::LinkListener;
    /// use std::time::Duration;
    ///
    /// let listener = LinkListener::bind(&format!("docs-accept-{}", std::process::id()))?;
    /// assert!(listener.accept_for(Duration::from_millis(1))?.is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn accept_for(&self, limit: Duration) -> io::Result<Option<LinkRequest>> {
        refuse_in_child()?;
        let deadline = Instant::now() + limit.min(Duration::from_secs(365 * 24 * 60 * 60));
        loop {
            match self.look()? {
                Look::Request(request) => return Ok(Some(request)),
                Look::Nothing if socket::wait_until_readable(self.socket.as_fd(), deadline)? => {}
                Look::Nothing => return Ok(None),
                // Many processes of other users must not outlast the limit.
                Look::Refused if Instant::now() >= deadline => return Ok(None),
                Look::Refused => {}
            }
        }
    }

    /// Looks for a process that has connected. Never blocks.
    pub(crate) fn look(&self) -> io::Result<Look> {
        let Some(socket) = socket::accept(self.socket.as_fd())? else { return Ok(Look::Nothing) };
        let peer = peer::peer(socket.as_fd())?;
        if check_user(peer, socket::own_user()).is_err() {
            // The process finds its connection closed.
            return Ok(Look::Refused);
        }
        Ok(Look::Request(LinkRequest { socket, peer, options: self.options.clone() }))
    }
}

/// The result of a look for a process that has connected.
#[derive(Debug)]
pub(crate) enum Look {
    Request(LinkRequest),
    /// The process runs as another user.
    Refused,
    Nothing,
}

impl AsFd for LinkListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for LinkRequest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A process that has connected. Dropping the request refuses it.
#[derive(Debug)]
#[must_use = "a request that is dropped refuses the process"]
pub struct LinkRequest {
    socket: OwnedFd,
    peer: Peer,
    options: LinkOptions,
}

impl LinkRequest {
    /// Returns the id of the process, if it is visible in this pid namespace.
    pub fn pid(&self) -> Option<u32> {
        self.peer.pid
    }

    /// Returns the user of the process.
    pub fn uid(&self) -> u32 {
        self.peer.uid
    }

    /// Returns whether the process has said hello, or has hung up. The handshake does not wait then.
    pub(crate) fn has_hello(&self) -> bool {
        socket::is_readable(self.socket.as_fd())
    }

    /// Returns the end of a handshake that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        self.options.deadline()
    }

    /// Makes the link. Waits for the handshake of the process, which may hang: for 5 seconds at most, or as
    /// set by [`LinkOptions::limit`].
    ///
    /// # Errors
    /// As [`Link::over`].
    pub fn link(self) -> io::Result<Link> {
        let LinkRequest { socket, peer, options } = self;
        options.with_peer(socket, peer, options.deadline())
    }
}
