//! The listening socket of an export with a name.

use rustix::fs::{Mode, OFlags};
use squall_sys::sync::{Mutex, StdArc as Arc, lock, thread};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::ExportError;
use super::client::Client;
use super::exported::Exported;
use crate::socket;
use crate::watch::{Next, Source};

pub(super) struct Listener {
    socket: OwnedFd,
    exported: Arc<Exported>,
    /// A spare descriptor, for a process that has no other one left. The listener closes it, to accept and
    /// close the connection that waits. That connection would otherwise keep the thread awake.
    spare: Mutex<Option<OwnedFd>>,
}

fn spare() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

impl Listener {
    pub(super) fn bind(name: &str, exported: Arc<Exported>) -> Result<Listener, ExportError> {
        let socket = socket::listen(name).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => ExportError::Taken { name: name.into() },
            ErrorKind::InvalidInput => ExportError::Name(error),
            _ => ExportError::System(error),
        })?;
        Ok(Listener { socket, exported, spare: Mutex::new(spare()) })
    }
}

impl Source for Listener {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.socket.as_fd()]
    }

    fn ready(self: Arc<Self>) -> Next {
        match socket::accept(self.socket.as_fd()) {
            // If it cannot be watched, the drop of its socket tells the caller.
            Ok(Some(socket)) => _ = Client::accept(&self.exported, socket, true),
            Ok(None) => {}
            // The process has no descriptor left.
            Err(_) => {
                let mut kept = lock(&self.spare, "a listener's spare descriptor");
                if kept.take().is_none() {
                    // An error that lasts must not keep the processor.
                    thread::sleep(Duration::from_millis(10));
                }
                drop(socket::accept(self.socket.as_fd()));
                *kept = spare();
            }
        }
        Next::Watch
    }

    fn drained(&self) -> bool {
        true
    }
}
