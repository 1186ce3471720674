//! Exporting objects to other processes.

mod client;
mod exported;
mod listener;
mod workers;

use squall_core::{Handle, Id};
use squall_sys::sync::StdArc as Arc;
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
/// The object stays this process's own. The export ends when the result is dropped, or when the object is
/// destroyed: then callers get the error of a destroyed object.
///
/// # Errors
/// [`ExportError`]: the name is taken, or the system has no thread or descriptor left.
/// # Cost
/// A listening socket; the threads `squall-calls` and `squall-call-all`, one for all exports of the process.
/// Workers, named `squall-call-` and their processor, are made when calls come, and end after a second
/// without work.
/// # Source
/// Gamsa et al. 1999, §6 (TO-15 to TO-18).
pub fn export<I: ?Sized + Remote>(handle: Handle<I>, name: &str) -> Result<Export, ExportError> {
    ExportOptions::new().export(handle, name)
}

/// Options of [`export`].
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
    /// The options of [`export`]: all methods, for processes of this user and of root, served on the caller's
    /// processor.
    pub fn new() -> ExportOptions {
        ExportOptions {
            settings: Settings {
                rights: u64::MAX,
                users: Some(Vec::new()),
                clients: 1024,
                workers: 64,
                processors: None,
                idle: Duration::from_millis(200),
                spin: crate::sleep::SPIN,
            },
            denied: Vec::new(),
        }
    }

    /// Callers may not call this method, until [`Export::allow`].
    pub fn deny(mut self, method: &str) -> ExportOptions {
        self.denied.push(method.into());
        self
    }

    /// Processes of this user may connect, too.
    pub fn allow_user(mut self, uid: u32) -> ExportOptions {
        if let Some(users) = &mut self.settings.users {
            users.push(uid);
        }
        self
    }

    /// Processes of all users may connect.
    pub fn allow_all_users(mut self) -> ExportOptions {
        self.settings.users = None;
        self
    }

    /// At most so many connections at a time. By default 1,024.
    pub fn clients(mut self, limit: usize) -> ExportOptions {
        self.settings.clients = limit;
        self
    }

    /// At most so many calls of one connection run at a time; further ones wait. By default 64.
    pub fn calls_per_client(mut self, limit: usize) -> ExportOptions {
        self.settings.workers = limit.max(1);
        self
    }

    /// Calls are served on these processors, instead of the caller's. A caller elsewhere spins before it
    /// sleeps, and so does its worker.
    pub fn processors(mut self, processors: &[usize]) -> ExportOptions {
        self.settings.processors = (!processors.is_empty()).then(|| processors.to_vec());
        self
    }

    /// The time for which a worker waits for the next call of its slot. By default 200 ms.
    pub fn idle(mut self, time: Duration) -> ExportOptions {
        self.settings.idle = time;
        self
    }

    /// The time for which a worker spins for the next call of a caller on another processor. By default
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

    /// Exports an object to the process at the other end of a socket (`SOCK_SEQPACKET` of a pair), which
    /// imports it with [`import_from`](crate::import_from). The options for users do not apply.
    ///
    /// # Errors
    /// As [`export`].
    pub fn export_on<I: ?Sized + Remote>(&self, handle: Handle<I>, socket: OwnedFd) -> Result<Export, ExportError> {
        let mut options = self.clone();
        options.settings.users = None;
        let exported = options.prepare(handle, "(a socket)")?;
        socket::adopt(&socket)?;
        Client::accept(&exported, socket)?;
        Ok(Export { exported, listener: None })
    }

    fn prepare<I: ?Sized + Remote>(&self, handle: Handle<I>, name: &str) -> Result<Arc<Exported>, ExportError> {
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

/// Exports an object to the process at the other end of a socket. See [`ExportOptions::export_on`].
///
/// # Errors
/// As [`export`].
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

/// An exported object. Dropping it ends the export: connections end, and calls that run are ended when their
/// method returns.
#[derive(Debug)]
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
        self.exported.clients().into_iter().map(Caller).collect()
    }

    /// No caller may call this method from now on. Calls that run go on.
    ///
    /// # Errors
    /// The interface has no such method.
    pub fn deny(&self, method: &str) -> Result<(), ExportError> {
        self.exported.deny(method)
    }

    /// Callers may call this method from now on, except those to whom [`Caller::deny`] denied it.
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

/// A connected process that calls an exported object.
#[derive(Clone, Debug)]
pub struct Caller(Arc<Client>);

impl Caller {
    /// The number of the connection in this process.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// The process, if it is visible in this pid namespace. The kernel vouches for it.
    pub fn pid(&self) -> Option<u32> {
        self.0.peer.pid
    }

    /// The process's user. The kernel vouches for it.
    pub fn uid(&self) -> u32 {
        self.0.peer.uid
    }

    /// The number of calls served for this connection. It wraps for each slot at 2^30.
    pub fn calls(&self) -> u64 {
        self.0.calls()
    }

    /// Whether the connection is open.
    pub fn is_connected(&self) -> bool {
        self.0.is_connected()
    }

    /// The value of this type that the server keeps for this connection, made by `make` if there is none. It
    /// is dropped after the connection's end.
    ///
    /// # Source
    /// Gamsa et al. 1999, §6 (AD-04): a server keeps state of one client local to it.
    pub fn value<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        self.0.value(make)
    }

    /// This process may not call this method from now on. Calls that run go on.
    ///
    /// # Errors
    /// The interface has no such method.
    pub fn deny(&self, method: &str) -> Result<(), ExportError> {
        let bit = method_bit(self.0.exported.methods, method)?;
        self.0.change_rights(|rights| rights & !bit);
        Ok(())
    }

    /// This process may call this method again.
    ///
    /// # Errors
    /// The interface has no such method.
    pub fn allow(&self, method: &str) -> Result<(), ExportError> {
        let bit = method_bit(self.0.exported.methods, method)?;
        self.0.change_rights(|rights| rights | bit);
        Ok(())
    }

    /// The methods that this process may not call.
    pub fn denied(&self) -> Vec<&'static str> {
        denied(self.0.exported.methods, self.0.rights())
    }

    /// Ends the connection. Calls of it return an error.
    pub fn disconnect(&self) {
        self.0.end();
    }
}

/// An exported object of this process, for people and programs that look.
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

/// The exports of this process.
///
/// # Cost
/// A lock and an allocation for each export and connection.
pub fn exports() -> Vec<ExportInfo> {
    let info = |exported: Arc<Exported>| ExportInfo {
        object: exported.object,
        name: exported.name.to_string(),
        interface: exported.interface,
        denied: denied(exported.methods, exported.rights()),
        callers: exported.clients().into_iter().map(Caller).collect(),
        exported,
    };
    Exported::all().into_iter().map(info).collect()
}

/// The methods without a right.
fn denied(methods: &[&'static str], rights: u64) -> Vec<&'static str> {
    methods.iter().enumerate().filter(|(at, _)| rights >> at & 1 == 0).map(|(_, name)| *name).collect()
}

/// The process for which this thread serves a call of an exported object; `None` in any other code.
pub fn caller() -> Option<Caller> {
    workers::caller().map(Caller)
}

/// The number of workers of this process that serve calls or wait for some, and of those that have no
/// connection.
pub fn workers() -> (usize, usize) {
    workers::count()
}

/// Why an object was not exported, or a right not changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExportError {
    /// The name is no name of an export; the error says why.
    Name(std::io::Error),
    /// A process of this user exports an object by this name.
    Taken {
        /// The name.
        name: String,
    },
    /// The interface has no such method.
    NoSuchMethod {
        /// The method's name.
        method: String,
    },
    /// This process is the child of a fork, which may only exec.
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
