//! Running server: its socket, its thread and its end.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

use super::serving::Serving;
use super::{Handler, Limits, THREAD_NAME};
use crate::paths;

/// Clients that the kernel queues until the loop accepts them.
const BACKLOG: i32 = 16;
/// Only the owner may connect.
const SOCKET_MODE: u32 = 0o600;

/// State of a [`Server`](super::Server).
#[derive(Debug)]
pub(crate) struct Running {
    path: PathBuf,
    identity: Option<(u64, u64)>,
    process: u32,
    stop: Option<Arc<OwnedFd>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Creates the socket, by default at the path of this process, and starts the thread.
    pub(crate) fn start(path: Option<PathBuf>, limits: Limits, handler: Handler) -> io::Result<Running> {
        if squall_sys::fork::forked() {
            let message = "a forked child cannot serve; serve in the parent, or after exec";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let path = match path {
            Some(path) => path,
            None => paths::own()?,
        };
        paths::remove_stale(&path)?;
        let listener =
            listen_at(&path).map_err(|error| paths::with_path("cannot serve at", &path, &error))?;
        let identity = paths::identity(&path);
        // From here on the file is removed on every return.
        let mut running = Running { path, identity, process: std::process::id(), stop: None, thread: None };
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let serving = Serving::new(listener, Arc::clone(&stop), handler, limits);
        running.stop = Some(stop);
        running.thread = Some(thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(|| serving.run())?);
        Ok(running)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // In a forked child (`server/I3`) the thread belongs to the parent, and so do the file and the
        // counter behind `stop`.
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
