//! Server: one thread with one loop.
//!
//! Problem: a client may send anything at any speed, and the program must not notice. Idea: one thread serves
//! a small number of non-blocking sockets. It reads, answers and writes one request at a time.
//!
//! - I1. While all clients are silent, the thread sleeps without a time limit.
//! - I2. A request is answered with no lock of this crate held. A panic becomes an answer.
//! - I3. The process that created the file at the path removes it, if it is still the same file.
//!
//! Not promised: an answer while another client's swap or sample runs. They run one after the other. A forked
//! child has no such thread. It does not serve, and does not remove the file.

#[cfg(all(target_os = "linux", not(miri)))]
mod connection;
#[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code))]
mod line;
#[cfg(all(target_os = "linux", not(miri)))]
mod running;
#[cfg(all(target_os = "linux", not(miri)))]
mod serving;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[cfg(not(all(target_os = "linux", not(miri))))]
use crate::elsewhere::Running;
pub(crate) use line::Handler;
#[cfg(all(target_os = "linux", not(miri)))]
use running::Running;

/// Name of the server's thread.
pub const THREAD_NAME: &str = "squall-browse";

/// Default number of clients at once.
const CLIENTS_MAX: usize = 8;
/// Default time that a client may owe the rest of a request, or leave an answer unread.
const PATIENCE: Duration = Duration::from_secs(5);
/// Default of [`Builder::silence`].
const SILENCE: Duration = Duration::from_secs(10);

/// Configures a server. [`serve`](crate::serve) uses the defaults.
///
/// ```
/// let server = squall::browse::Builder::new().clients_max(2).serve()?;
/// println!("look at it with: squall top {}", std::process::id());
/// # drop(server);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    path: Option<PathBuf>,
    limits: Limits,
}

/// Limits for clients.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code))]
pub(crate) struct Limits {
    clients_max: usize,
    /// Time that a client may owe the rest of a request, or leave an answer unread.
    patience: Duration,
    /// Silent time after which a client gives way to a new one, if the server is full.
    silence: Duration,
}

impl Limits {
    pub(crate) const DEFAULT: Limits =
        Limits { clients_max: CLIENTS_MAX, patience: PATIENCE, silence: SILENCE };
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// Creates the default configuration: the default path, and 8 clients. A client may keep the server
    /// waiting for 5 s, and gives way to another one after 10 s of silence.
    pub const fn new() -> Builder {
        Builder { path: None, limits: Limits::DEFAULT }
    }

    /// Sets the path of the socket, in an existing folder. Users with write access to that folder can replace
    /// the socket.
    ///
    /// ```
    /// use squall::browse::{Builder, Client, Target};
    ///
    /// let path = std::env::temp_dir().join(format!("squall-doc-path-{}.sock", std::process::id()));
    /// let server = Builder::new().path(&path).serve()?;
    /// assert_eq!(server.path(), path);
    /// Client::connect(&Target::Path(path))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn path(mut self, path: impl Into<PathBuf>) -> Builder {
        self.path = Some(path.into());
        self
    }

    /// Sets the largest number of clients at once, at least one. A further client is turned away, unless a
    /// connected one has been silent for long enough ([`Builder::silence`]) and gives way.
    pub fn clients_max(mut self, clients: usize) -> Builder {
        self.limits.clients_max = clients.max(1);
        self
    }

    /// Sets the time that a client may owe the rest of a request, or leave an answer unread.
    pub fn patience(mut self, patience: Duration) -> Builder {
        self.limits.patience = patience;
        self
    }

    /// Sets the silent time after which a client gives way to a new one, if the server is full.
    pub fn silence(mut self, silence: Duration) -> Builder {
        self.limits.silence = silence;
        self
    }

    /// Creates the socket and starts the thread `squall-browse`.
    ///
    /// # Errors
    /// `AddrInUse` if the path is served already: a process has one server at the default path.
    /// `PermissionDenied` if other users can access the default folder. `Unsupported` in a forked child, and
    /// on systems other than Linux. Errors of the system for the socket or the thread.
    pub fn serve(self) -> io::Result<Server> {
        self.serve_with(Box::new(crate::answers::answer))
    }

    pub(crate) fn serve_with(self, handler: Handler) -> io::Result<Server> {
        Ok(Server(Running::start(self.path, self.limits, handler)?))
    }
}

/// A running server. Inspection is served as long as it lives.
///
/// Dropping it removes the socket, ends the connections and joins the thread. A request that is running ends
/// first; a swap may take as long as its deadline. Do not drop it inside an operation, for which such a swap
/// would wait.
#[derive(Debug)]
#[must_use = "the server ends when this is dropped"]
pub struct Server(Running);

impl Server {
    /// Returns the path that clients connect to.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests;
