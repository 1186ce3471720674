//! Peer of a Unix socket: process and user at the other end. Linux only.
//!
//! The kernel answers with three plain numbers. A peer in another pid namespace has process id zero, which
//! [`Peer`] leaves out.
#![cfg(all(target_os = "linux", not(miri)))]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Process and user at the other end of a Unix socket, as of its connect or listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id, or `None` if the peer's pid namespace is not visible from here.
    pub pid: Option<u32>,
    /// User id.
    pub uid: u32,
}

/// Returns the process and user at the other end of a Unix socket.
///
/// # Errors
/// The error of getsockopt(2), for example if `socket` is not a connected Unix socket.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to our own variables, the second holds the size of the first, and any three
    // numbers are valid credentials.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if bytes as usize != size_of::<libc::ucred>() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "SO_PEERCRED returned credentials of an unexpected size",
        ));
    }
    let pid = u32::try_from(credentials.pid).ok().filter(|pid| *pid != 0);
    Ok(Peer { pid, uid: credentials.uid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_other_end_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = peer(one.as_fd()).unwrap();
        // SAFETY: geteuid(2) has no arguments, and always succeeds.
        let uid = unsafe { libc::geteuid() };
        assert_eq!((peer.pid, peer.uid), (Some(std::process::id()), uid));
    }

    #[test]
    fn a_file_that_is_no_socket_is_an_error() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(peer(file.as_fd()).is_err());
    }
}
