//! Peer of a Unix socket: process and user at the other end. Linux only.
//!
//! The kernel answers with three plain numbers. A peer in another pid namespace has process id zero, which
//! [`Peer`] leaves out.
#![cfg(all(target_os = "linux", not(miri)))]

use crate::system::opened;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

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

/// Option of getsockopt(2) that opens a descriptor of the peer's process (6.5). Other processors number it
/// differently, and use the fallback.
const SO_PEERPIDFD: Option<libc::c_int> =
    if cfg!(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")) {
        Some(77)
    } else {
        None
    };

/// Opens a pidfd of the process at the other end of a Unix socket, as of its connect or listen, if the kernel
/// can. It becomes readable when that process ends.
///
/// For a pair of sockets, that process is the one that made the pair.
///
/// Kernels before 6.5 find the process by its number. If it ended before this call, its number may already
/// be that of another process. So check afterwards that the socket is not hung up.
///
/// # Errors
/// The error of getsockopt(2) or pidfd_open(2), for example `ESRCH` if the process has ended.
pub fn process(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    if let Some(option) = SO_PEERPIDFD {
        match process_by_socket(socket, option) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {}
            // Kernels before 6.16 say so of a process that has ended.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            result => return result.map(Some),
        }
    }
    process_by_number(socket)
}

/// Opens the pidfd by an option of the socket.
fn process_by_socket(socket: BorrowedFd<'_>, option: libc::c_int) -> io::Result<OwnedFd> {
    let mut descriptor: libc::c_int = -1;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: both pointers are to our own variables, and the second holds the size of the first. After
    // success the first holds a new descriptor, which is ours.
    unsafe {
        opened(|| {
            let result = libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw mut descriptor).cast(),
                &raw mut bytes,
            );
            if result == 0 { descriptor } else { -1 }
        })
    }
}

/// Opens the pidfd by the number of the process, if that is visible from here.
fn process_by_number(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = peer(socket)?.pid else { return Ok(None) };
    // SAFETY: pidfd_open(2) with numbers. It returns a new descriptor or -1, which fit an int.
    let result = unsafe { opened(|| libc::syscall(libc::SYS_pidfd_open, pid, 0) as libc::c_int) };
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(None),
        result => result.map(Some),
    }
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

    /// The line of the pidfd's description that names its process.
    fn pid_of(pidfd: &OwnedFd) -> String {
        let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().find_map(|line| line.strip_prefix("Pid:")).expect("no pidfd").trim().to_owned()
    }

    #[test]
    fn both_ways_open_the_process_of_the_other_end() {
        let (one, _other) = UnixStream::pair().unwrap();
        let own = std::process::id().to_string();
        // Emulators and old kernels may have neither way.
        if let Some(pidfd) = process(one.as_fd()).unwrap() {
            assert_eq!(pid_of(&pidfd), own);
        }
        if let Some(pidfd) = process_by_number(one.as_fd()).unwrap() {
            assert_eq!(pid_of(&pidfd), own);
        }
        let unknown = process_by_socket(one.as_fd(), 9999).unwrap_err();
        assert_eq!(unknown.raw_os_error(), Some(libc::ENOPROTOOPT));
    }

    #[test]
    fn a_file_that_is_no_socket_is_an_error() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(peer(file.as_fd()).is_err());
        assert!(process(file.as_fd()).is_err());
    }
}
