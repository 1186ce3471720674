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

mod connection;
mod serving;

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

use crate::paths;
use crate::protocol::{Answer, Refusal, RefusalKind, Request};
use serving::Serving;

/// Name of the server's thread.
pub const THREAD_NAME: &str = "squall-browse";

/// Default number of clients at once.
const CLIENTS_MAX: usize = 8;
/// Default time that a client may owe the rest of a request, or leave an answer unread.
const PATIENCE: Duration = Duration::from_secs(5);
/// Default of [`Builder::silence`].
const SILENCE: Duration = Duration::from_secs(10);
/// Clients that the kernel queues until the loop accepts them.
const BACKLOG: i32 = 16;
/// Only the owner may connect.
const SOCKET_MODE: u32 = 0o600;

/// Answers a request with one line.
pub(crate) type Handler = Box<dyn FnMut(Request) -> Result<String, Refusal> + Send>;

/// Configures a server. [`serve`](crate::serve) uses the defaults.
///
/// ```
/// let server = squall_browse::Builder::new().clients_max(2).serve()?;
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
struct Limits {
    clients_max: usize,
    /// Time that a client may owe the rest of a request, or leave an answer unread.
    patience: Duration,
    /// Silent time after which a client gives way to a new one, if the server is full.
    silence: Duration,
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
        let limits = Limits { clients_max: CLIENTS_MAX, patience: PATIENCE, silence: SILENCE };
        Builder { path: None, limits }
    }

    /// Sets the path of the socket, in an existing folder. Users with write access to that folder can replace
    /// the socket.
    ///
    /// ```
    /// use squall_browse::{Builder, Client, Target};
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
    /// `PermissionDenied` if other users can access the default folder. `Unsupported` in a forked child.
    /// Errors of the system for the socket or the thread.
    pub fn serve(self) -> io::Result<Server> {
        self.serve_with(Box::new(crate::answers::answer))
    }

    pub(crate) fn serve_with(self, handler: Handler) -> io::Result<Server> {
        if squall_sys::fork::forked() {
            let message = "a forked child cannot serve; serve in the parent, or after exec";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let path = match self.path {
            Some(path) => path,
            None => paths::own()?,
        };
        paths::remove_stale(&path)?;
        let listener =
            listen_at(&path).map_err(|error| paths::with_path("cannot serve at", &path, &error))?;
        let identity = paths::identity(&path);
        // From here on the file is removed on every return.
        let mut server = Server { path, identity, process: std::process::id(), stop: None, thread: None };
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let serving = Serving::new(listener, Arc::clone(&stop), handler, self.limits);
        server.stop = Some(stop);
        server.thread = Some(thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(|| serving.run())?);
        Ok(server)
    }
}

/// Creates a socket that only the owner can connect to. It does not listen until its mode is set.
fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let ready = fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))
        .and_then(|()| Ok(listen(&socket, BACKLOG)?));
    match ready {
        Ok(()) => Ok(socket),
        Err(error) => {
            let _ = fs::remove_file(path);
            Err(error)
        }
    }
}

/// A running server. Inspection is served as long as it lives.
///
/// Dropping it removes the socket, ends the connections and joins the thread. A request that is running ends
/// first; a swap may take as long as its deadline. Do not drop it inside an operation, for which such a swap
/// would wait.
#[derive(Debug)]
#[must_use = "the server ends when this is dropped"]
pub struct Server {
    path: PathBuf,
    identity: Option<(u64, u64)>,
    process: u32,
    stop: Option<Arc<OwnedFd>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Returns the path that clients connect to.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // In a forked child (I3) the thread belongs to the parent, and so do the file and the counter behind
        // `stop`.
        if std::process::id() != self.process {
            // The thread does not exist here, so its handle is neither joined nor dropped.
            std::mem::forget(self.thread.take());
            return;
        }
        if self.identity.is_some() && paths::identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
        let (Some(stop), Some(thread)) = (self.stop.take(), self.thread.take()) else { return };
        // Cannot fail: the counter is at most one.
        let _ = rustix::io::write(&*stop, &1_u64.to_ne_bytes());
        // If a request drops the server, it runs on the server's thread. The loop ends after it.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}

/// Answers one line with one line.
fn answer_line(handler: &mut Handler, line: &[u8]) -> String {
    let request = match serde_json::from_slice::<Request>(line) {
        Ok(request) => request,
        Err(error) => return refused(bad_request(line, &error)),
    };
    match catch_unwind(AssertUnwindSafe(|| handler(request))) {
        Ok(Ok(payload)) => format!("{{\"ok\":{payload}}}"),
        Ok(Err(refusal)) => refused(refusal),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let what = text.unwrap_or("with a payload that is not text");
            let refusal = Refusal::new(
                RefusalKind::Panicked,
                format!("the program panicked while it handled this request: {what}"),
            );
            // The drop of a payload may panic, so it is leaked.
            std::mem::forget(panic);
            refused(refusal)
        }
    }
}

fn bad_request(line: &[u8], error: &serde_json::Error) -> Refusal {
    let message = if line.is_empty() {
        "an empty line; a request is a line with a JSON object, such as {\"op\":\"hello\"}".to_owned()
    } else if error.is_data() {
        format!("{error}; a request is a JSON object with the key \"op\" and the fields of that operation")
    } else {
        format!("{error}; a request is a line with a JSON object, such as {{\"op\":\"hello\"}}")
    };
    Refusal::new(RefusalKind::BadRequest, message)
}

/// Encodes a refusal as a line.
fn refused(refusal: Refusal) -> String {
    // Cannot fail: it holds only text and a name.
    serde_json::to_string(&Answer::<()>::Refused(refusal)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
