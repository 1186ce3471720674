//! Server and client on systems other than Linux: they compile, and fail when started.
//!
//! A client finds the socket of a process in /proc, and both sides ask the kernel for the other's user. Other
//! systems do this in other ways, which are not written yet.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::server::{Handler, Limits};
use crate::target::{ClientError, Target};

/// Connection of a client. No client is ever connected.
pub(crate) type Stream = std::net::TcpStream;

/// State of a server. No server ever runs.
#[derive(Debug)]
pub(crate) enum Running {}

impl Running {
    /// Returns the error of this system.
    pub(crate) fn start(_: Option<PathBuf>, _: Limits, _: Handler) -> io::Result<Running> {
        Err(unsupported())
    }

    pub(crate) fn path(&self) -> &Path {
        match *self {}
    }
}

/// Returns the error of this system.
pub(crate) fn connect(_: &Target, _: Duration) -> Result<Stream, ClientError> {
    Err(ClientError::System(unsupported()))
}

fn unsupported() -> io::Error {
    let message = format!(
        "inspection over a socket works on Linux only, and this program runs on {}; `squall::snapshot` lists the \
         objects inside the program",
        std::env::consts::OS
    );
    io::Error::new(io::ErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errors_of_other_systems_say_why_and_name_another_way() {
        let handler = Box::new(crate::answers::answer);
        let server = Running::start(None, Limits::DEFAULT, handler).expect_err("unsupported");
        assert_eq!(server.kind(), io::ErrorKind::Unsupported);
        let client = connect(&Target::Process(1), Duration::ZERO).expect_err("unsupported");
        for text in [server.to_string(), client.to_string()] {
            assert!(text.contains("Linux only") && text.contains("squall::snapshot"), "{text}");
        }
    }
}
