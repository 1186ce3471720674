//! Who is at the other end of a Unix socket. Linux only.
//!
//! The system answers with three plain numbers. A peer of another process namespace has the process number zero, which types
//! that exclude it cannot hold: so the numbers are read here.
#![cfg(all(target_os = "linux", not(miri)))]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The other end of a Unix socket, as it was when it connected or listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process; none where it is of a process namespace that is not seen from here.
    pub pid: Option<u32>,
    /// Its user.
    pub uid: u32,
}

/// Who is at the other end of a Unix socket.
///
/// # Errors
/// It is no connected Unix socket.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to our own variables, the second says how large the first is, and any three numbers are
    // credentials.
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
        return Err(io::Error::new(io::ErrorKind::InvalidData, "credentials of another size"));
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
        assert_eq!((peer.pid, peer.uid), (Some(std::process::id()), rustix::process::geteuid().as_raw()));
    }

    #[test]
    fn what_is_no_socket_has_none() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(peer(file.as_fd()).is_err());
    }
}
