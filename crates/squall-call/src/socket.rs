//! Sockets: packets with file descriptors, between a server and its clients. Linux only.
//!
//! Problem: the peer may send anything, or stop at any step. It must not make this process block, keep
//! descriptors, or read half a frame as a whole one.
//!
//! Idea: sockets that keep the bounds of packets (`SOCK_SEQPACKET`), so that a packet arrives whole or is
//! recognised as cut off. Names are abstract: they end with the last socket of the server.
//!
//! - I1. All sockets close on exec and never block. A function waits only until a deadline of its caller.
//! - I2. A packet gives at most [`DESCRIPTORS_MAX`] descriptors. More are an error. Descriptors of a packet
//!   that is refused are closed by a thread of their own ([`close_elsewhere`]).
//!
//! Not promised: that the server of a name belongs to the user in the name. Any process can take a name, so a
//! client asks [`squall_sys::peer::peer`] for the user. Names are seen within a network namespace alone.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::aside::on_thread;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, FdFlags};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType,
};

/// Largest number of descriptors that come with a packet.
pub const DESCRIPTORS_MAX: usize = 2;
/// Largest length in bytes of the name of an export.
pub const NAME_BYTES_MAX: usize = 80;
/// Connections that wait at most for the server to accept them.
const BACKLOG: i32 = 128;
/// Flags of every socket (I1).
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// A packet without its bytes.
#[derive(Debug)]
pub struct Packet {
    /// Number of bytes, at the beginning of the caller's buffer. Never 0.
    pub bytes: usize,
    /// Descriptors, at most [`DESCRIPTORS_MAX`]. They close on exec.
    pub descriptors: Vec<OwnedFd>,
}

/// The service of exports, in the names of sockets.
const EXPORTS: &str = "squall-call";

/// Returns the address of a service of this user.
fn address(service: &str, uid: u32, name: &str) -> io::Result<SocketAddrUnix> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
        let what = if service == EXPORTS { "export" } else { "listener" };
        let why = format!(
            "{name:?} names no {what}: a name has 1 to {NAME_BYTES_MAX} bytes, and no control characters"
        );
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    Ok(SocketAddrUnix::new_abstract_name(format!("{service}/{uid}/{name}").as_bytes())?)
}

/// Returns the effective user of this process.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Opens the socket on which a server of this process's effective user accepts the clients of an export.
///
/// # Errors
/// `AddrInUse` if the name is in use. `InvalidInput` with the reason, if it is no name of an export.
pub fn listen(name: &str) -> io::Result<OwnedFd> {
    listen_as(EXPORTS, name)
}

/// Like [`listen`], for the clients of another service. Each service has names of its own.
///
/// # Errors
/// Those of [`listen`].
pub fn listen_as(service: &str, name: &str) -> io::Result<OwnedFd> {
    let address = address(service, own_user(), name)?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Accepts a client, if one waits.
///
/// # Errors
/// The error of accept4(2), for example if this process has too many open files. The client then still waits,
/// and the listener stays readable.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    loop {
        match rustix::net::accept_with(listener, FLAGS) {
            Ok(socket) => return Ok(Some(socket)),
            Err(Errno::AGAIN) => return Ok(None),
            // The next client may wait already.
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Connects to the export of this name and user. Waits until `deadline` at most for a place in the server's
/// backlog.
///
/// # Errors
/// `ConnectionRefused` if no server has the name. `TimedOut` if the backlog stays full. `InvalidInput` with
/// the reason, if it is no name of an export.
pub fn connect(uid: u32, name: &str, deadline: Instant) -> io::Result<OwnedFd> {
    connect_to(EXPORTS, uid, name, deadline)
}

/// Like [`connect`], to a name of another service.
///
/// # Errors
/// Those of [`connect`].
pub fn connect_to(service: &str, uid: u32, name: &str, deadline: Instant) -> io::Result<OwnedFd> {
    let address = address(service, uid, name)?;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    loop {
        // poll(2) does not tell when a backlog has room. A socket that blocks waits for it, up to its timeout
        // for sending.
        let left = left_until(deadline).ok_or(ErrorKind::TimedOut)?;
        sockopt::set_socket_timeout(&socket, Timeout::Send, Some(left))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    sockopt::set_socket_timeout(&socket, Timeout::Send, None)?;
    adopt(&socket)?;
    Ok(socket)
}

/// Makes a socket that came from elsewhere one of this module: it no longer blocks, and closes on exec.
///
/// # Errors
/// `InvalidInput` if the socket is not a Unix socket of type `SOCK_SEQPACKET`.
pub fn adopt(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    let unix = sockopt::socket_domain(socket)? == AddressFamily::UNIX;
    if !unix || sockopt::socket_type(socket)? != SocketType::SEQPACKET {
        let why = "calls need a Unix socket of type SOCK_SEQPACKET: make the pair with squall::call";
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    rustix::io::fcntl_setfd(socket, FdFlags::CLOEXEC)?;
    Ok(rustix::io::ioctl_fionbio(socket, true)?)
}

/// Returns two connected sockets, of which one can be given to a child process.
///
/// # Errors
/// The error of socketpair(2).
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?)
}

/// Sends one packet with up to [`DESCRIPTORS_MAX`] descriptors, at once.
///
/// # Errors
/// `WouldBlock` if the peer reads too slowly. `BrokenPipe` or `ConnectionReset` if it hung up. `InvalidInput`
/// for a packet without bytes or with too many descriptors.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if bytes.is_empty()
        || descriptors.len() > DESCRIPTORS_MAX
        || (!descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)))
    {
        return Err(ErrorKind::InvalidInput.into());
    }
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            // A packet is sent whole or not at all.
            result => return Ok(result.map(drop)?),
        }
    }
}

/// Like [`send`], but waits until `deadline` at most for a peer that reads slowly.
///
/// # Errors
/// Those of [`send`], but `TimedOut` for `WouldBlock`.
pub fn send_until(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    deadline: Instant,
) -> io::Result<()> {
    loop {
        match send(socket, bytes, descriptors) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(socket, PollFlags::OUT, deadline)?,
            result => return result,
        }
    }
}

/// Receives one packet into `buffer`, at once. Returns `None` if the peer hung up, or sent a packet without
/// bytes.
///
/// # Errors
/// `WouldBlock` if no packet is there. `InvalidData` with the reason, if the packet did not fit `buffer`, had
/// more descriptors than [`DESCRIPTORS_MAX`], or some were lost. `ConnectionReset` if the peer hung up before
/// it read everything.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<Packet>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        let into = &mut [IoSliceMut::new(buffer)];
        match rustix::net::recvmsg(socket, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            result => break result?,
        }
    };
    // Before any check, so that an error closes them (I2).
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    let refused = |descriptors, why: &str| {
        close_elsewhere(descriptors);
        Err(io::Error::new(ErrorKind::InvalidData, why))
    };
    if message.bytes == 0 && descriptors.is_empty() && !message.flags.contains(ReturnFlags::CTRUNC) {
        return Ok(None);
    }
    if message.flags.contains(ReturnFlags::TRUNC) {
        return refused(descriptors, "the peer sent a packet that is longer than every frame");
    }
    if message.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() > DESCRIPTORS_MAX {
        return refused(
            descriptors,
            "descriptors of the peer's packet were lost: it sent too many, or this process has too many open \
             files",
        );
    }
    if message.bytes == 0 {
        return refused(descriptors, "the peer sent descriptors without a frame");
    }
    Ok(Some(Packet { bytes: message.bytes, descriptors }))
}

/// Closes descriptors of a peer's packet, on a thread of their own. To close a descriptor of a hostile peer
/// can take any time, for example if its file system does not answer. Leaks them if no thread can be
/// started.
pub fn close_elsewhere(descriptors: Vec<OwnedFd>) {
    if !descriptors.is_empty()
        && let Err(left) = on_thread("squall-call-close", descriptors, drop)
    {
        std::mem::forget(left);
    }
}

/// Like [`receive`], but waits until `deadline` at most for a packet.
///
/// # Errors
/// Those of [`receive`], but `TimedOut` for `WouldBlock`.
pub fn receive_until(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    deadline: Instant,
) -> io::Result<Option<Packet>> {
    loop {
        match receive(socket, buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(socket, PollFlags::IN, deadline)?,
            result => return result,
        }
    }
}

/// Waits until the socket can be used in one of these ways, its peer hung up, or `deadline`, which is an
/// error.
fn wait(socket: BorrowedFd<'_>, events: PollFlags, deadline: Instant) -> io::Result<()> {
    loop {
        let left = left_until(deadline).ok_or(ErrorKind::TimedOut)?;
        let left = Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
        match rustix::event::poll(&mut [PollFd::new(&socket, events)], Some(&left)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives the bytes of one packet into `buffer`, at once, and none of its descriptors. Returns `None` if
/// the peer hung up, or sent a packet without bytes.
///
/// A descriptor of a hostile peer can block the thread that closes it. The kernel does not even install
/// these.
///
/// # Errors
/// `WouldBlock` if no packet is there. `InvalidData` if the packet did not fit `buffer`.
pub fn receive_bytes(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::net::recv(socket, &mut *buffer, RecvFlags::TRUNC) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok((_, 0)) => return Ok(None),
            Ok((_, bytes)) if bytes > buffer.len() => return Err(ErrorKind::InvalidData.into()),
            Ok((_, bytes)) => return Ok(Some(bytes)),
        }
    }
}

/// Opens a pidfd of a process: a child that was not waited for yet.
///
/// # Errors
/// The error of pidfd_open(2).
pub fn process_by_id(pid: u32) -> io::Result<OwnedFd> {
    let pid =
        i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).ok_or(ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}

/// Waits until a descriptor is readable or hung up, until `deadline` at most. Returns whether it is.
///
/// # Errors
/// The error of poll(2).
pub fn wait_until_readable(descriptor: BorrowedFd<'_>, deadline: Instant) -> io::Result<bool> {
    match wait(descriptor, PollFlags::IN, deadline) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(false),
        Err(error) => Err(error),
    }
}

/// Waits until any of the descriptors is readable, or hung up, or `deadline`. Returns whether one is.
///
/// # Errors
/// The error of poll(2).
pub fn wait_until_any_readable(descriptors: &[BorrowedFd<'_>], deadline: Instant) -> io::Result<bool> {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|descriptor| PollFd::new(descriptor, PollFlags::IN)).collect();
    loop {
        let Some(left) = left_until(deadline) else { return Ok(false) };
        let left = Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
        match rustix::event::poll(&mut polled, Some(&left)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Shuts both directions of a connection down, so that its peer learns of the end.
///
/// # Errors
/// The error of shutdown(2), for example if the peer has hung up.
pub fn shut_down(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, rustix::net::Shutdown::Both)?)
}

/// Returns whether a descriptor is readable, or hung up, now.
pub fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&now)) == Ok(1)
}

/// Returns the time until `deadline`, at most a day, if it is still to come.
fn left_until(deadline: Instant) -> Option<Duration> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let left = deadline.saturating_duration_since(Instant::now()).min(DAY);
    // The kernel takes microseconds, and zero as no limit at all.
    (left >= Duration::from_micros(1)).then_some(left)
}

/// Opens a pidfd of the process at the other end, if the kernel can tell it. It becomes readable when that
/// process ends.
///
/// The kernel cannot tell it for a [`pair`]: it knows the maker of the pair alone, and that process may have
/// given both ends away. There, only the end of the connection shows the end of the peer.
///
/// # Errors
/// `ConnectionReset` if the peer has ended.
pub fn process(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let process = if is_pair(socket)? {
        None
    } else {
        match squall_sys::peer::process(socket) {
            // The process ended, and its parent read its status.
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {
                return Err(ErrorKind::ConnectionReset.into());
            }
            result => result?,
        }
    };
    // On kernels that find the process by its number, the number may belong to another one by now. The socket
    // of the right one is then hung up.
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    rustix::event::poll(&mut polled, Some(&now))?;
    if polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
        return Err(ErrorKind::ConnectionReset.into());
    }
    Ok(process)
}

/// Tells whether a connected socket came from socketpair(2). Of two sockets connected by a name, one has it.
fn is_pair(socket: BorrowedFd<'_>) -> io::Result<bool> {
    // An address without a name is its family alone, of two bytes.
    let has_name = |address: SocketAddrAny| address.addr_len() > 2;
    let other = match rustix::net::getpeername(socket) {
        Err(Errno::NOTCONN) => return Err(ErrorKind::ConnectionReset.into()),
        result => result?,
    };
    Ok(!has_name(rustix::net::getsockname(socket)?) && !other.is_some_and(has_name))
}
