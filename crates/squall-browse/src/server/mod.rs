//! The server: one thread, one loop.
//!
//! Problem: whoever connects may send anything at any speed, or nothing, and the program must not notice. Idea: one thread
//! of a low number of non-blocking sockets, in which one request at a time is read, answered and written.
//!
//! - I1. While no client is in the middle of something the thread sleeps without a time limit.
//! - I2. A request is answered with no lock of this crate held, and its panic becomes an answer.
//! - I3. The file at the path is removed by the process that made it, while it is the one that it made.
//!
//! Not promised: that a client is answered while another one's swap or sample runs; they run one after the other.
//! After a fork the child has no thread of this kind: it serves nothing, and removes nothing.

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

/// The name of the thread.
pub const THREAD_NAME: &str = "squall-browse";

/// Clients at once, unless told.
const CLIENTS_MAX: usize = 8;
/// How long a client may owe the rest of a request, or leave an answer unread, unless told.
const PATIENCE: Duration = Duration::from_secs(5);
/// See [`Builder::silence`]; unless told.
const SILENCE: Duration = Duration::from_secs(10);
/// Clients that the kernel keeps for the next turn of the loop.
const BACKLOG: i32 = 16;
/// Only the owner may connect.
const SOCKET_MODE: u32 = 0o600;

/// What answers a request, with one line.
pub(crate) type Handler = Box<dyn FnMut(Request) -> Result<String, Refusal> + Send>;

/// How the program is to be looked at. [`serve`](crate::serve) is this with nothing said.
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

/// What clients may do.
#[derive(Clone, Copy, Debug)]
struct Limits {
    clients_max: usize,
    /// How long one may owe the rest of a request, or leave an answer unread.
    patience: Duration,
    /// One that has been silent for so long gives way to a new one, when there are as many as can be.
    silence: Duration,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// At the path by default, for 8 clients, each of which may keep the server waiting for 5 s, and gives way to another
    /// one after 10 s of silence.
    pub const fn new() -> Builder {
        let limits = Limits { clients_max: CLIENTS_MAX, patience: PATIENCE, silence: SILENCE };
        Builder { path: None, limits }
    }

    /// The socket is made at this path, in a folder that is there. Who can write to that folder can take the socket's place.
    pub fn path(mut self, path: impl Into<PathBuf>) -> Builder {
        self.path = Some(path.into());
        self
    }

    /// So many clients at once, at least one. One more is turned away, unless one of them has been silent for long
    /// ([`Builder::silence`]) and gives way.
    pub fn clients_max(mut self, clients: usize) -> Builder {
        self.limits.clients_max = clients.max(1);
        self
    }

    /// How long a client may owe the rest of a request, or leave an answer unread.
    pub fn patience(mut self, patience: Duration) -> Builder {
        self.limits.patience = patience;
        self
    }

    /// A client that has been silent for so long gives way to a new one, when there are as many as can be.
    pub fn silence(mut self, silence: Duration) -> Builder {
        self.limits.silence = silence;
        self
    }

    /// Makes the socket and starts the thread `squall-browse`.
    ///
    /// # Errors
    /// `AddrInUse` if somebody serves at that path already: a process has one server at the path by default.
    /// `PermissionDenied` if the folder by default is not this user's alone. `Unsupported` in the child of a fork. What
    /// the system says about the socket or the thread otherwise.
    pub fn serve(self) -> io::Result<Server> {
        self.serve_with(Box::new(crate::answers::answer))
    }

    pub(crate) fn serve_with(self, handler: Handler) -> io::Result<Server> {
        if squall_sys::fork::forked() {
            let message = "this is the child of a fork, which may only exec";
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
        // From here on the file is taken away again whatever happens.
        let mut server = Server { path, identity, process: std::process::id(), stop: None, thread: None };
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let serving = Serving::new(listener, Arc::clone(&stop), handler, self.limits);
        server.stop = Some(stop);
        server.thread = Some(thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(|| serving.run())?);
        Ok(server)
    }
}

/// A socket to which only the owner can connect: until its mode is right, nobody can.
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

/// A program that lets itself be looked at, for as long as this lives.
///
/// Dropping it removes the socket, ends the connections and joins the thread. A request that runs meanwhile ends first: a
/// swap may take as long as its deadline. So do not drop it inside an operation, for which such a swap would wait.
#[derive(Debug)]
#[must_use = "when it is dropped, nobody can look any more"]
pub struct Server {
    path: PathBuf,
    identity: Option<(u64, u64)>,
    process: u32,
    stop: Option<Arc<OwnedFd>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Where clients connect.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // In a forked child (I3): the thread is the parent's, and so are the file and the count behind `stop`.
        if std::process::id() != self.process {
            // To let go of a thread that is not there is no better than to join it.
            std::mem::forget(self.thread.take());
            return;
        }
        if self.identity.is_some() && paths::identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
        let (Some(stop), Some(thread)) = (self.stop.take(), self.thread.take()) else { return };
        // A count of one that nobody has read: this cannot fail.
        let _ = rustix::io::write(&*stop, &1_u64.to_ne_bytes());
        // Dropped by what a request runs: the loop ends after it.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}

/// The line that answers a line.
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
            let what = text.unwrap_or("with something that is no text");
            let refusal = Refusal::new(
                RefusalKind::Panicked,
                format!("the program panicked over this request: {what}"),
            );
            // What a panic carries may panic when it is dropped; it is kept for ever.
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

/// A refusal, as a line.
fn refused(refusal: Refusal) -> String {
    // Text and a name: there is nothing in it that cannot be written.
    serde_json::to_string(&Answer::<()>::Refused(refusal)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
