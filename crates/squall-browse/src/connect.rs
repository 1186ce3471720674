//! Connection of a client to the socket of a program.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;

use crate::paths;
use crate::target::{ClientError, Target};

/// A connection.
pub(crate) type Stream = UnixStream;

/// Pause between attempts to connect to a server with a full backlog.
const RETRY: Duration = Duration::from_millis(10);

/// Connects to a program, and waits at most this long for a place in its backlog.
pub(crate) fn connect(target: &Target, timeout: Duration) -> Result<Stream, ClientError> {
    match target {
        Target::Path(path) => connect_at(path, timeout)?
            .ok_or_else(|| ClientError::NotServing { target: target.clone(), tried: vec![path.clone()] }),
        Target::Process(pid) => connect_to_process(*pid, timeout),
    }
}

/// Connects to the server at this path. Returns the connection if the path is served.
fn connect_at(path: &Path, timeout: Duration) -> Result<Option<UnixStream>, ClientError> {
    let system = |error: Errno| ClientError::System(error.into());
    let address = SocketAddrUnix::new(path).map_err(system)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(system)?;
    let deadline = Instant::now() + timeout;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR) => return Ok(None),
            // The server is busy and its backlog is full.
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(RETRY),
            Err(Errno::AGAIN) => return Err(ClientError::NoAnswer(timeout)),
            Err(Errno::INTR) => {}
            Err(Errno::ACCESS | Errno::PERM) => {
                let why =
                    format!("{} may be used only by the user of the program that created it", path.display());
                return Err(ClientError::NotAllowed(why));
            }
            Err(error) => return Err(system(error)),
        }
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).map_err(ClientError::System)?;
    Ok(Some(stream))
}

/// Connects to this process, and checks that the server is this process.
fn connect_to_process(pid: u32, timeout: Duration) -> Result<UnixStream, ClientError> {
    let Some(uid) = user_of(pid) else { return Err(ClientError::NoProcess(pid)) };
    let own = geteuid();
    if uid != own.as_raw() && !own.is_root() {
        let why = format!("process {pid} belongs to user {uid}; only that user and root may inspect it");
        return Err(ClientError::NotAllowed(why));
    }
    let tried = paths::of_process(pid, uid);
    for path in &tried {
        let folder = path.parent().unwrap_or(Path::new("/"));
        match paths::check_folder(folder, uid) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(ClientError::NotAllowed(error.to_string()));
            }
            Err(_) => continue,
            Ok(()) => {}
        }
        let Some(stream) = connect_at(path, timeout)? else { continue };
        // A child that inherited the socket of an ended process keeps it open, but does not serve.
        match squall_sys::peer::peer(stream.as_fd()) {
            Ok(peer) if peer.pid == Some(pid) && peer.uid == uid => return Ok(stream),
            _ => continue,
        }
    }
    Err(ClientError::NotServing { target: Target::Process(pid), tried })
}

/// Returns the effective user of a process.
fn user_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_a_process_is_found() {
        assert_eq!(user_of(std::process::id()), Some(geteuid().as_raw()));
        assert_eq!(user_of(u32::MAX), None);
    }
}
