//! Importing objects of other processes.

mod connection;
mod renewable;

pub(crate) use connection::Connection;
pub use renewable::RenewableImport;

use squall_core::{Handle, Id, InterfaceOf, Owned, Root};
use squall_machine::ClusterSize;
use squall_sys::sync::StdArc as Arc;
use std::fmt;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::differs;
use crate::frames::{Differs, FRAME_BYTES_MAX, Frame, FrameError, Hello, Refusal};
use crate::layout;
use crate::port::{Imported, Port, Way, deadline_in};
use crate::remote::Remote;
use crate::segment::Segment;
use crate::socket;
use connection::Server;

/// Imports the object that a process of the same user, or of root, exports by this name.
///
/// The result is an object like any other. A call of it goes to the other process, waits for the reply, and
/// is `#[blocking]`. Dropping it ends the connection after the calls that wait; [`disconnect`] ends those,
/// too. A server that hangs answers no call, so give calls a limit ([`ImportOptions::limit`],
/// [`with_deadline`](crate::with_deadline)). [`RenewableImport`] imports again when the server has ended.
///
/// Each user has names of its own: see [`export`](crate::export).
///
/// # Errors
/// [`ImportError`]: no process exports that name, the interface differs, or the server refuses.
/// [`ImportError::TimedOut`] if the server does not answer within five seconds, or within
/// [`ImportOptions::limit`] if it is set, or before the end of [`with_deadline`](crate::with_deadline).
/// # Cost
/// A connection: a socket, a mapping with 136 KiB of addresses for each processor (touched when used), and
/// the thread `squall-calls`, one for all connections of the process.
/// # Source
/// Gamsa et al. 1999, §6: an object of another address space is called like one's own.
/// # Examples
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/stock.rs")); } use ex::*;
/// use squall::call::{export, import};
///
/// # let name = &format!("docs-import-{}", std::process::id());
/// # let stock = squall::shared::<dyn Stock, _>(InMemory::default());
/// // In the server:
/// let exported = export(stock.handle(), name)?;
///
/// // In a client, which may be another process:
/// let remote = import::<dyn Stock>(name)?;
/// assert_eq!(remote.add("bolt", 3), 3);
/// // `try_` methods return an error if the server is gone.
/// drop(exported);
/// assert!(remote.try_add("bolt", 1).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn import<I: ?Sized + Remote + InterfaceOf<Port<I>>>(name: &str) -> Result<Owned<I>, ImportError> {
    ImportOptions::new().import(name)
}

/// Imports the object that the process at the other end of this socket exports with
/// [`export_on`](crate::export_on). No other process can connect. For an example see there.
///
/// # Errors
/// As [`import`]. Also if the socket is not one of a [`socket_pair`](crate::socket_pair).
pub fn import_from<I: ?Sized + Remote + InterfaceOf<Port<I>>>(
    socket: OwnedFd,
) -> Result<Owned<I>, ImportError> {
    ImportOptions::new().import_from(socket)
}

/// Options of [`import`].
///
/// # Examples
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/stock.rs")); } use ex::*;
/// use squall::call::{ImportOptions, export_on, socket_pair};
/// use std::time::Duration;
///
/// # let stock = squall::shared::<dyn Stock, _>(InMemory::default());
/// # let (here, there) = socket_pair()?;
/// # let exported = export_on(stock.handle(), here)?;
/// let options = ImportOptions::new().limit(Duration::from_secs(60));
/// let remote = options.import_from::<dyn Stock>(there)?;
/// // An error after a minute at the latest.
/// let count = remote.try_count("bolt");
/// # assert_eq!(count?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ImportOptions {
    limit: Option<Duration>,
    user: Option<u32>,
    process: Option<u32>,
}

/// The time in which an import must end, if no limit is set.
const IMPORT: Duration = Duration::from_secs(5);

impl Default for ImportOptions {
    fn default() -> ImportOptions {
        ImportOptions::new()
    }
}

impl ImportOptions {
    /// Returns the options of [`import`]: calls have no time limit, and the server runs as this process's
    /// user or as root.
    pub fn new() -> ImportOptions {
        ImportOptions { limit: None, user: None, process: None }
    }

    /// Sets the time within which the import must end, and then each call.
    /// [`with_deadline`](crate::with_deadline) replaces it for calls, and can only shorten it for imports.
    pub fn limit(mut self, limit: Duration) -> ImportOptions {
        self.limit = Some(limit);
        self
    }

    /// The process at the other end of a socket pair, for [`import_from`](Self::import_from): a child that
    /// was not waited for yet. Its death ends the connection even if a process that it started keeps the
    /// socket.
    pub fn process(mut self, pid: u32) -> ImportOptions {
        self.process = Some(pid);
        self
    }

    /// The server runs as this user, or as root.
    pub fn server_user(mut self, uid: u32) -> ImportOptions {
        self.user = Some(uid);
        self
    }

    /// Imports by name, like [`import`].
    ///
    /// # Errors
    /// As [`import`].
    pub fn import<I: ?Sized + Remote + InterfaceOf<Port<I>>>(
        &self,
        name: &str,
    ) -> Result<Owned<I>, ImportError> {
        if squall_sys::fork::forked() {
            return Err(ImportError::Forked);
        }
        let own = rustix::process::geteuid().as_raw();
        let user = self.user.unwrap_or(own);
        let deadline = self.deadline();
        let socket = socket::connect(user, name, deadline).map_err(|error| match error.kind() {
            ErrorKind::TimedOut => ImportError::TimedOut,
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => ImportError::NoServer { name: name.into() },
            ErrorKind::InvalidInput => ImportError::Name(error),
            _ => ImportError::System(error),
        })?;
        // Any user may take any abstract name. Only the kernel's word counts.
        let server = squall_sys::peer::peer(socket.as_fd())?;
        if server.uid != user && server.uid != 0 {
            return Err(ImportError::OtherUser { expected: user, found: server.uid });
        }
        let process = match socket::process(socket.as_fd()) {
            // The server has hung up. Its reason may be there to read.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            result => result?,
        };
        self.connect(socket, Server { name: name.into(), peer: Some(server), process }, deadline)
    }

    /// Imports from the other end of a socket, like [`import_from`].
    ///
    /// # Errors
    /// As [`import`].
    pub fn import_from<I: ?Sized + Remote + InterfaceOf<Port<I>>>(
        &self,
        socket: OwnedFd,
    ) -> Result<Owned<I>, ImportError> {
        if squall_sys::fork::forked() {
            return Err(ImportError::Forked);
        }
        let deadline = self.deadline();
        socket::adopt(&socket)?;
        let process = self.process.map(socket::process_by_id).transpose()?;
        self.connect(socket, Server { name: "(a socket)".into(), peer: None, process }, deadline)
    }

    /// The time at which an import that begins now must end.
    fn deadline(&self) -> Instant {
        const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
        let limit = self.limit.unwrap_or(IMPORT).min(YEAR);
        deadline_in(limit).expect("a time within a year")
    }

    fn connect<I: ?Sized + Remote + InterfaceOf<Port<I>>>(
        &self,
        socket: OwnedFd,
        server: Server,
        deadline: Instant,
    ) -> Result<Owned<I>, ImportError> {
        let regions = squall_machine::machine().vp_limit().clamp(1, layout::REGIONS_MAX as usize) as u32;
        let hello = Hello { interface: I::NAME, schema: I::SCHEMA, signature: I::SIGNATURE, regions };
        let hello = Frame::Hello(hello).encode()?;
        // A server that refuses may have hung up already. Its reason is still there to read.
        let _ = socket::send_until(socket.as_fd(), &hello, &[], deadline);
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        let mut received = socket::receive_until(socket.as_fd(), &mut buffer, deadline);
        // The server hung up, and its reason may still be there to read. If it had not read the hello, the
        // kernel tells that first. Linux also tells the end first if reason and end came between two of its
        // own checks.
        for _ in 0..2 {
            let has_ended = match &received {
                Err(error) => error.kind() == ErrorKind::ConnectionReset,
                Ok(packet) => packet.is_none(),
            };
            if !has_ended {
                break;
            }
            // What is still to come is there already.
            received = socket::receive(socket.as_fd(), &mut buffer);
        }
        let packet = received.map_err(|error| match error.kind() {
            ErrorKind::TimedOut => ImportError::TimedOut,
            ErrorKind::InvalidData => ImportError::Unexpected("a packet that is no frame"),
            _ => ImportError::Closed,
        })?;
        let Some(socket::Packet { bytes, mut descriptors }) = packet else { return Err(ImportError::Closed) };
        let file = if descriptors.len() == 1 { descriptors.pop() } else { None };
        let is_bare = file.is_none() && descriptors.is_empty();
        socket::close_elsewhere(descriptors);
        let refused = |file: Option<OwnedFd>, why| {
            socket::close_elsewhere(file.into_iter().collect());
            Err(why)
        };
        let welcome = match Frame::decode(&buffer[..bytes]) {
            Ok(Frame::Welcome(welcome)) if welcome.regions == regions => welcome,
            Err(error) => return refused(file, error.into()),
            Ok(Frame::Differs(Differs { signature })) => {
                let found = signature.to_owned();
                return refused(file, ImportError::OtherSchema { expected: I::SIGNATURE, found });
            }
            // A refusal with descriptors is none that a caller repeats: each of them may take a thread.
            Ok(Frame::Refusal(refusal)) if is_bare => return Err(ImportError::Refused(refusal)),
            Ok(_) => return refused(file, ImportError::Unexpected("another frame than the welcome")),
        };
        let Some(file) = file else {
            return Err(ImportError::Unexpected("a welcome without exactly one segment"));
        };
        let bytes = layout::segment_bytes(regions).expect("a number of regions within the bounds");
        let memory = match squall_sys::shared::SharedMemory::open(file.as_fd(), bytes) {
            Ok(memory) => memory,
            Err(error) => return refused(Some(file), error.into()),
        };
        let segment = Segment::new(memory, regions);
        let connection = Connection::new(segment, welcome.object, socket, server, self.limit)?;
        let imported = Imported::<I>::new(Way::Connection(connection.clone()))
            .try_create(ClusterSize::Cpu)
            .map_err(ImportError::Create)?;
        // It is set once.
        let _ = connection.imported.set(Handle::id(imported.handle()));
        Ok(imported)
    }
}

/// Ends the connection of an imported object. Calls that wait return [`Transport::PeerGone`], later ones
/// [`Transport::Disconnected`]. Returns whether the object is an imported one.
///
/// [`Transport::PeerGone`]: squall_core::Transport::PeerGone
/// [`Transport::Disconnected`]: squall_core::Transport::Disconnected
pub fn disconnect<I: ?Sized + Remote>(handle: Handle<I>) -> bool {
    let id = Handle::id(handle);
    let found = Connection::all().into_iter().find(|connection| connection.imported.get() == Some(&id));
    found.map(|connection| connection.end()).is_some()
}

/// An imported object of this process, for people and programs that look.
#[derive(Clone, Debug)]
pub struct ImportInfo {
    /// The object of this process.
    pub object: Id,
    /// The name by which it was imported.
    pub name: String,
    /// The process that serves it. `None` if it is not visible in this pid namespace, or for a socket pair.
    pub pid: Option<u32>,
    /// The user of that process. `None` for a socket pair.
    pub uid: Option<u32>,
    /// Whether that process still serves it.
    pub is_connected: bool,
    /// The number of calls made. It wraps for each slot at 2^29.
    pub calls: u64,
}

/// Lists the imported objects of this process.
///
/// # Cost
/// A lock, and an allocation for each connection.
/// # Examples
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/stock.rs")); } use ex::*;
/// use squall::call::{export_on, import_from, imports, socket_pair};
///
/// # let stock = squall::shared::<dyn Stock, _>(InMemory::default());
/// # let (here, there) = socket_pair()?;
/// # let exported = export_on(stock.handle(), here)?;
/// let remote = import_from::<dyn Stock>(there)?;
/// let id = squall::Handle::id(remote.handle());
/// let info = imports().into_iter().find(|info| info.object == id).expect("it is imported");
/// assert!(info.is_connected);
/// assert_eq!(info.pid, None, "a socket pair has no peer that the kernel knows");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn imports() -> Vec<ImportInfo> {
    let info = |connection: Arc<Connection>| {
        Some(ImportInfo {
            object: *connection.imported.get()?,
            name: connection.name.to_string(),
            pid: connection.server.and_then(|peer| peer.pid),
            uid: connection.server.map(|peer| peer.uid),
            is_connected: !connection.is_dead(),
            calls: connection.calls(),
        })
    };
    Connection::all().into_iter().filter_map(info).collect()
}

/// Why an object was not imported.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImportError {
    /// The name is not valid for an export; the error gives the reason.
    Name(std::io::Error),
    /// No process exports an object by this name.
    NoServer {
        /// The name.
        name: String,
    },
    /// The process that holds the name runs as another user.
    OtherUser {
        /// The user that was expected.
        expected: u32,
        /// The user of the process.
        found: u32,
    },
    /// The server exports another interface, or another version of it.
    OtherSchema {
        /// The signatures that this process expects.
        expected: &'static str,
        /// The signatures of the server. A hostile one may send any text.
        found: String,
    },
    /// The server refused the connection.
    Refused(Refusal),
    /// The server closed the connection before it answered. It may have ended; import the object again later.
    Closed,
    /// The server did not answer in time. It hangs, is stopped, or has not begun to export on its socket.
    TimedOut,
    /// The server broke the protocol; the text says how.
    Unexpected(&'static str),
    /// The server sent a frame that cannot be read.
    Frame(FrameError),
    /// A forked child, which may only exec, cannot import.
    Forked,
    /// The object could not be made in this process.
    Create(squall_core::CreateError),
    /// The system refused a descriptor, a thread or memory. Or the server's segment is not sealed, or has a
    /// wrong size.
    System(std::io::Error),
}

impl ImportError {
    /// Returns whether a later import may succeed without any other change: the server ended, is starting,
    /// hangs, or has too many clients.
    ///
    /// # Examples
    /// ```
    /// use squall::call::ImportError;
    ///
    /// let gone = ImportError::NoServer { name: "stock".into() };
    /// assert!(gone.is_transient() && ImportError::Closed.is_transient());
    /// assert!(!ImportError::OtherUser { expected: 1000, found: 1001 }.is_transient());
    /// ```
    pub fn is_transient(&self) -> bool {
        match self {
            ImportError::NoServer { .. } | ImportError::Closed | ImportError::TimedOut => true,
            ImportError::Refused(refusal) => matches!(refusal, Refusal::Busy | Refusal::Ended),
            _ => false,
        }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Name(error) => error.fmt(f),
            ImportError::NoServer { name } => {
                write!(f, "no process exports an object named {name:?} for this user; export it first")
            }
            ImportError::OtherUser { expected, found } => write!(
                f,
                "a process of user {found} holds the name, but user {expected} or root was expected; \
                 if that is intended, say so with `ImportOptions::server_user`"
            ),
            ImportError::OtherSchema { expected, found } => {
                let (expected, found) = differs::first_difference(expected, found);
                write!(
                    f,
                    "the server's interface has {found} and this program's has {expected}; build both programs \
                     from the same definition of the trait"
                )
            }
            ImportError::Refused(refusal) => write!(f, "the server refused the connection: {refusal}"),
            ImportError::TimedOut => f.write_str(
                "the server did not answer in time; it hangs, or is still starting: import again, or allow more \
                 time with `ImportOptions::limit`",
            ),
            ImportError::Closed => f.write_str("the server closed the connection before it answered"),
            ImportError::Unexpected(what) => write!(f, "the server broke the protocol: {what}"),
            ImportError::Frame(error) => write!(f, "the server's answer cannot be read: {error}"),
            ImportError::Forked => f.write_str("this is the child of a fork, which may only exec"),
            ImportError::Create(error) => write!(f, "the imported object could not be made: {error}"),
            ImportError::System(error) => write!(f, "the connection could not be made: {error}"),
        }
    }
}

impl std::error::Error for ImportError {}

impl From<FrameError> for ImportError {
    fn from(error: FrameError) -> ImportError {
        ImportError::Frame(error)
    }
}

impl From<std::io::Error> for ImportError {
    fn from(error: std::io::Error) -> ImportError {
        ImportError::System(error)
    }
}
