//! Exporting objects to other processes.

mod client;
mod exported;
mod listener;
mod users;
mod workers;

use squall_core::{Handle, Id};
use squall_sys::peer::Peer;
use squall_sys::sync::{StdArc as Arc, Weak};
use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::remote::Remote;
use crate::socket;
use crate::watch::{self, Token};
use client::Client;
use exported::{Exported, Settings};
use listener::Listener;

/// Exports an object: processes of the same user, and of root, may import it by this name.
///
/// The object stays this process's own. The export ends when the result is dropped. If the object is
/// destroyed first, the export goes on, and callers get
/// [`Transport::Destroyed`](squall_core::Transport::Destroyed).
///
/// A name has 1 to 80 bytes, and no control characters. Each user has names of its own. So a client of
/// another user needs [`ImportOptions::server_user`](crate::ImportOptions::server_user) for its import, and,
/// unless it is root, [`ExportOptions::allow_user`] here.
///
/// # Errors
/// [`ExportError`]: the name is taken or not valid, or the system has no thread or descriptor left.
/// # Cost
/// A listening socket, and two threads for all exports of the process, `squall-calls` and `squall-call-all`.
/// Workers, named `squall-call-` and their processor, start when calls come, and end after a second without
/// work.
/// # Source
/// Gamsa et al. 1999, §6 (TO-15 to TO-18).
/// # Examples
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/stock.rs")); } use ex::*;
/// use squall::call::{export, import};
///
/// # let name = &format!("docs-export-{}", std::process::id());
/// let stock = squall::shared::<dyn Stock, _>(InMemory::default());
/// stock.add("bolt", 2);
/// let exported = export(stock.handle(), name)?;
///
/// // In a client, which may be another process:
/// let remote = import::<dyn Stock>(name)?;
/// assert_eq!(remote.count("bolt"), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn export<I: ?Sized + Remote>(handle: Handle<I>, name: &str) -> Result<Export, ExportError> {
    ExportOptions::new().export(handle, name)
}

/// Options of [`export`].
///
/// # Examples
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/stock.rs")); } use ex::*;
/// use squall::call::{ExportOptions, import_from, socket_pair};
/// use squall::{CallErrorKind, Transport};
///
/// # let stock = squall::shared::<dyn Stock, _>(InMemory::default());
/// # let (here, there) = socket_pair()?;
/// let options = ExportOptions::new().deny("clear").calls_per_client(8);
/// let exported = options.export_on(stock.handle(), here)?;
///
/// let remote = import_from::<dyn Stock>(there)?;
/// let denied = remote.try_clear().unwrap_err();
/// assert_eq!(denied.reason(), CallErrorKind::Transport(Transport::Denied));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ExportOptions {
    settings: Settings,
    denied: Vec<String>,
}

impl Default for ExportOptions {
    fn default() -> ExportOptions {
        ExportOptions::new()
    }
}

impl ExportOptions {
    /// The options of [`export`]: all methods, for processes of this user and of root. Calls are served on
    /// the caller's processor, but those of another user on any one.
    pub fn new() -> ExportOptions {
        ExportOptions {
            settings: Settings {
                rights: u64::MAX,
                users: Some(Vec::new()),
                clients: 1024,
                clients_per_user: 512,
                workers: 64,
                processors: None,
                idle: Duration::from_millis(200),
                spin: crate::sleep::SPIN,
            },
            denied: Vec::new(),
        }
    }

    /// Denies callers this method, until [`Export::allow`] allows it.
    pub fn deny(mut self, method: &str) -> ExportOptions {
        self.denied.push(method.into());
        self
    }

    /// Lets processes of this user connect, too. In a user namespace, all users without a mapping there have
    /// the same number, often 65534: do not allow that one.
    pub fn allow_user(mut self, uid: u32) -> ExportOptions {
        if let Some(users) = &mut self.settings.users {
            users.push(uid);
        }
        self
    }

    /// Lets processes of all users connect.
    pub fn allow_all_users(mut self) -> ExportOptions {
        self.settings.users = None;
        self
    }

    /// Limits the number of connections. By default 1,024. A further client is refused with
    /// [`Refusal::Busy`](crate::Refusal::Busy). A connection that has ended counts while a call of it runs.
    pub fn clients(mut self, limit: usize) -> ExportOptions {
        self.settings.clients = limit;
        self
    }

    /// Limits the number of connections of one user, like [`clients`](Self::clients). By default 512.
    pub fn clients_per_user(mut self, limit: usize) -> ExportOptions {
        self.settings.clients_per_user = limit;
        self
    }

    /// At most so many calls of one connection run at a time; further ones wait. By default 64.
    ///
    /// Calls that come out of calls (A calls B, which calls A) have four times as many workers. Such a call
    /// waits only if it has a deadline, since the calls that it would wait for may wait for it. Without a
    /// deadline it returns [`Transport::Busy`](squall_core::Transport::Busy) at once in three cases: beyond
    /// these workers, if this process can start no thread, or if the caller's connection has no free slot. A
    /// connection has 16 slots for each processor of its caller. A call that a method makes on another thread
    /// does not count as such a call; give it a deadline.
    ///
    /// All calls of one user, over all connections and exports of this process, have at most 448 of the 1,024
    /// workers, and fewer if other users have workers. Further ones wait. The last 128 workers serve only
    /// users without workers, one call of each at a time.
    pub fn calls_per_client(mut self, limit: usize) -> ExportOptions {
        self.settings.workers = limit.max(1);
        self
    }

    /// Calls are served on these processors, instead of the caller's. Threads that a method starts may run
    /// where its worker may. A caller elsewhere spins before it sleeps, and so does its worker.
    pub fn processors(mut self, processors: &[usize]) -> ExportOptions {
        self.settings.processors = (!processors.is_empty()).then(|| processors.to_vec());
        self
    }

    /// The time for which a worker waits for the next call of its slot. By default 200 ms; at least a
    /// millisecond, and at most a minute. The worker leaves between one and two such times after its last
    /// call.
    pub fn idle(mut self, time: Duration) -> ExportOptions {
        self.settings.idle = time.clamp(Duration::from_millis(1), Duration::from_secs(60));
        self
    }

    /// Sets the time for which a worker spins for the next call of a caller on another processor. By default
    /// 50 µs.
    pub fn spin(mut self, time: Duration) -> ExportOptions {
        self.settings.spin = time;
        self
    }

    /// Exports an object by name, like [`export`].
    ///
    /// # Errors
    /// As [`export`]; also if the interface has no method with a name given to [`deny`](Self::deny).
    pub fn export<I: ?Sized + Remote>(&self, handle: Handle<I>, name: &str) -> Result<Export, ExportError> {
        let exported = self.prepare(handle, name)?;
        let listener = Listener::bind(name, exported.clone())?;
        let listener = Some(watch::add(Arc::new(listener))?);
        Ok(Export { exported, listener })
    }

    /// Exports an object to the process at the other end of a socket, like [`export_on`]. The options for
    /// users do not apply.
    ///
    /// # Errors
    /// As [`export_on`]; also if the interface has no method with a name given to [`deny`](Self::deny).
    pub fn export_on<I: ?Sized + Remote>(
        &self,
        handle: Handle<I>,
        socket: OwnedFd,
    ) -> Result<Export, ExportError> {
        let mut options = self.clone();
        options.settings.users = None;
        let exported = options.prepare(handle, "(a socket)")?;
        socket::adopt(&socket)?;
        Client::accept(&exported, socket, false)?;
        Ok(Export { exported, listener: None })
    }

    fn prepare<I: ?Sized + Remote>(
        &self,
        handle: Handle<I>,
        name: &str,
    ) -> Result<Arc<Exported>, ExportError> {
        if squall_sys::fork::forked() {
            return Err(ExportError::Forked);
        }
        let mut settings = self.settings.clone();
        for method in &self.denied {
            settings.rights &= !method_bit(I::METHODS, method)?;
        }
        workers::reserve()?;
        Ok(Exported::new(handle, name.into(), settings))
    }
}

/// Exports an object to the process at the other end of a socket, which imports it with
/// [`import_from`](crate::import_from). No other process can connect.
///
/// # Errors
/// [`ExportError`]: the socket is not one of a [`socket_pair`](crate::socket_pair), or the system has no
/// thread or descriptor left.
/// # Examples
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/stock.rs")); } use ex::*;
/// use squall::call::{export_on, import_from, socket_pair};
///
/// let (here, there) = socket_pair()?;
/// let stock = squall::shared::<dyn Stock, _>(InMemory::default());
/// let exported = export_on(stock.handle(), here)?;
///
/// // In the process that has the other end, for example as its standard input:
/// let remote = import_from::<dyn Stock>(there)?;
/// assert_eq!(remote.add("bolt", 3), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn export_on<I: ?Sized + Remote>(handle: Handle<I>, socket: OwnedFd) -> Result<Export, ExportError> {
    ExportOptions::new().export_on(handle, socket)
}

impl Exported {
    fn deny(&self, method: &str) -> Result<(), ExportError> {
        let bit = method_bit(self.methods, method)?;
        self.change_rights(|rights| rights & !bit);
        Ok(())
    }

    fn allow(&self, method: &str) -> Result<(), ExportError> {
        let bit = method_bit(self.methods, method)?;
        self.change_rights(|rights| rights | bit);
        Ok(())
    }
}

fn method_bit(methods: &[&str], method: &str) -> Result<u64, ExportError> {
    let at = methods.iter().position(|name| *name == method);
    at.map(|at| 1 << at).ok_or_else(|| ExportError::NoSuchMethod { method: method.into() })
}

/// An exported object. Dropping it ends the export and its connections. A running method runs to its end, but
/// its caller gets an error at once.
///
/// # Examples
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/stock.rs")); } use ex::*;
/// use squall::call::{export_on, import_from, socket_pair};
///
/// # let stock = squall::shared::<dyn Stock, _>(InMemory::default());
/// # let (here, there) = socket_pair()?;
/// let exported = export_on(stock.handle(), here)?;
/// let remote = import_from::<dyn Stock>(there)?;
/// let [client] = &exported.clients()[..] else { panic!("one client is connected") };
/// assert!(client.is_connected());
///
/// exported.deny("clear")?;
/// assert!(remote.try_clear().is_err());
/// exported.allow("clear")?;
/// assert!(remote.try_clear().is_ok());
///
/// drop(exported);
/// assert!(remote.try_clear().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the export ends when this is dropped"]
pub struct Export {
    exported: Arc<Exported>,
    listener: Option<Token>,
}

impl Export {
    /// The name by which the object is exported.
    pub fn name(&self) -> &str {
        &self.exported.name
    }

    /// The open connections.
    pub fn clients(&self) -> Vec<Caller> {
        self.exported.clients().into_iter().map(Caller::from).collect()
    }

    /// No caller may call this method from now on. Calls that run go on, and one that was checked before may
    /// still begin.
    ///
    /// # Errors
    /// The interface has no such method.
    pub fn deny(&self, method: &str) -> Result<(), ExportError> {
        self.exported.deny(method)
    }

    /// Allows callers this method again, except those to which [`Caller::deny`] denied it.
    ///
    /// # Errors
    /// The interface has no such method.
    pub fn allow(&self, method: &str) -> Result<(), ExportError> {
        self.exported.allow(method)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        if squall_sys::fork::forked() {
            return;
        }
        if let Some(listener) = self.listener {
            watch::end(listener);
        }
        self.exported.close();
    }
}

/// A connection of a process that calls an exported object. For an example see [`caller`].
#[derive(Clone, Debug)]
pub struct Caller {
    number: u64,
    peer: Option<Peer>,
    /// Weak, so that a kept caller keeps no descriptor and no memory of an ended connection.
    client: Weak<Client>,
}

impl From<Arc<Client>> for Caller {
    fn from(client: Arc<Client>) -> Caller {
        Caller { number: client.number, peer: client.peer, client: Arc::downgrade(&client) }
    }
}

impl Caller {
    /// The number of the connection in this process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The process, as the kernel knows it. `None` if it is not visible in this pid namespace, or came over a
    /// socket pair: there the kernel names the maker of the pair.
    pub fn pid(&self) -> Option<u32> {
        self.peer?.pid
    }

    /// The process's user, as the kernel knows it. Absent for a socket pair.
    pub fn uid(&self) -> Option<u32> {
        Some(self.peer?.uid)
    }

    /// The number of calls served for this connection. It wraps for each slot. 0 after the end.
    pub fn calls(&self) -> u64 {
        self.client.upgrade().map_or(0, |client| client.calls())
    }

    /// Whether the connection is open.
    pub fn is_connected(&self) -> bool {
        self.client.upgrade().is_some_and(|client| client.is_connected())
    }

    /// The value of this type that the server keeps for this connection, made by `make` if there is none.
    /// After the connection's end its values are dropped on a thread `squall-call-end`, and a new one is
    /// not kept.
    ///
    /// # Cost
    /// A lock, and a count on a line that all of the connection's workers share. Keep hot counts per
    /// processor in the value.
    /// # Source
    /// Gamsa et al. 1999, §6 (AD-04): a server keeps state of one client local to it.
    pub fn value<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        match self.client.upgrade() {
            Some(client) => client.value(make),
            None => Arc::new(make()),
        }
    }

    /// Denies this connection a method. Calls that run go on, and one that was checked
    /// before may still begin. The process can connect again: to keep it out, end the export or limit its
    /// users.
    ///
    /// # Errors
    /// The interface has no such method.
    pub fn deny(&self, method: &str) -> Result<(), ExportError> {
        self.change_right(method, |rights, bit| rights & !bit)
    }

    /// Allows this connection a method again.
    ///
    /// # Errors
    /// The interface has no such method.
    pub fn allow(&self, method: &str) -> Result<(), ExportError> {
        self.change_right(method, |rights, bit| rights | bit)
    }

    fn change_right(&self, method: &str, change: impl Fn(u64, u64) -> u64) -> Result<(), ExportError> {
        let Some(client) = self.client.upgrade() else { return Ok(()) };
        let bit = method_bit(client.exported.methods, method)?;
        client.change_rights(|rights| change(rights, bit));
        Ok(())
    }

    /// The methods that this connection may not call.
    pub fn denied(&self) -> Vec<&'static str> {
        let Some(client) = self.client.upgrade() else { return Vec::new() };
        denied(client.exported.methods, client.rights())
    }

    /// Ends the connection. Calls of it return an error, also those that run.
    pub fn disconnect(&self) {
        if let Some(client) = self.client.upgrade() {
            client.end();
        }
    }
}

/// An exported object of this process, as [`exports`] lists it.
#[derive(Clone, Debug)]
pub struct ExportInfo {
    /// The object.
    pub object: Id,
    /// The name by which it is exported.
    pub name: String,
    /// Its interface.
    pub interface: &'static str,
    /// Methods that no caller may call.
    pub denied: Vec<&'static str>,
    /// The open connections.
    pub callers: Vec<Caller>,
    exported: Arc<Exported>,
}

impl ExportInfo {
    /// Denies all callers a method, like [`Export::deny`].
    ///
    /// # Errors
    /// The interface has no such method.
    pub fn deny(&self, method: &str) -> Result<(), ExportError> {
        self.exported.deny(method)
    }

    /// Allows a method again, like [`Export::allow`].
    ///
    /// # Errors
    /// The interface has no such method.
    pub fn allow(&self, method: &str) -> Result<(), ExportError> {
        self.exported.allow(method)
    }
}

/// Lists the exports of this process.
///
/// # Cost
/// A lock, and an allocation for each export and connection.
/// # Examples
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/stock.rs")); } use ex::*;
/// use squall::call::{export, exports};
///
/// # let name = &format!("docs-exports-{}", std::process::id());
/// # let stock = squall::shared::<dyn Stock, _>(InMemory::default());
/// let exported = export(stock.handle(), name)?;
/// let info = exports().into_iter().find(|info| info.name == *name).expect("it is exported");
/// assert_eq!(info.interface, "Stock");
/// assert!(info.denied.is_empty() && info.callers.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn exports() -> Vec<ExportInfo> {
    let info = |exported: Arc<Exported>| ExportInfo {
        object: exported.object,
        name: exported.name.to_string(),
        interface: exported.interface,
        denied: denied(exported.methods, exported.rights()),
        callers: exported.clients().into_iter().map(Caller::from).collect(),
        exported,
    };
    Exported::all().into_iter().map(info).collect()
}

/// Returns the names of the methods without a bit in `rights`.
fn denied(methods: &[&'static str], rights: u64) -> Vec<&'static str> {
    methods.iter().enumerate().filter(|(at, _)| rights >> at & 1 == 0).map(|(_, name)| *name).collect()
}

/// Returns the connection for which this thread serves a call of an exported object, or `None` in any other
/// code. Two imports of one process are two connections.
pub fn caller() -> Option<Caller> {
    workers::caller().map(Caller::from)
}

/// Returns the number of workers of this process, and how many of them are idle: in no slot of a connection.
/// The reserved worker is not counted.
pub fn workers() -> (usize, usize) {
    workers::count()
}

/// Why an object was not exported, or a right not changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExportError {
    /// The name is not valid for an export; the error gives the reason.
    Name(std::io::Error),
    /// Another export of this user has this name.
    Taken {
        /// The name.
        name: String,
    },
    /// The interface has no such method.
    NoSuchMethod {
        /// The method's name.
        method: String,
    },
    /// A forked child, which may only exec, cannot export.
    Forked,
    /// The system refused a descriptor or a thread.
    System(std::io::Error),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportError::Name(error) => error.fmt(f),
            ExportError::Taken { name } => {
                write!(f, "an object named {name:?} is exported already for this user; use another name")
            }
            ExportError::NoSuchMethod { method } => write!(f, "the interface has no method {method:?}"),
            ExportError::Forked => f.write_str("this is the child of a fork, which may only exec"),
            ExportError::System(error) => write!(f, "the object could not be exported: {error}"),
        }
    }
}

impl std::error::Error for ExportError {}

impl From<std::io::Error> for ExportError {
    fn from(error: std::io::Error) -> ExportError {
        ExportError::System(error)
    }
}
