//! Client: one connection to a program that serves inspection.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;
use serde::de::DeserializeOwned;

use crate::paths;
use crate::protocol::{
    Answer, AttributeView, CallsView, DecisionView, Detail, Hello, ListQuery, Listing, MemoryView, Refusal,
    RefusalKind, Request, SwapView, VERSION,
};

/// Default time to wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest answer accepted.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Pause between attempts to connect to a server with a full backlog.
const RETRY: Duration = Duration::from_millis(10);

/// Program to connect to.
///
/// ```
/// use squall_browse::Target;
///
/// assert_eq!("4711".parse(), Ok(Target::Process(4711)));
/// assert_eq!("./my.sock".parse(), Ok(Target::Path("./my.sock".into())));
/// assert!("my-server".parse::<Target>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process, by its number. Its socket is expected where [`serve`](crate::serve) creates it.
    Process(u32),
    /// The program that serves at this path.
    Path(PathBuf),
}

impl FromStr for Target {
    type Err = String;

    /// Parses the number of a process, or a path that contains a slash.
    fn from_str(text: &str) -> Result<Target, String> {
        match text.parse::<u32>() {
            Ok(pid) if pid > 0 => Ok(Target::Process(pid)),
            _ if text.contains('/') => Ok(Target::Path(text.into())),
            _ => {
                Err("expected the number of a process, or the path of a socket with a slash in it".to_owned())
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Process(pid) => write!(f, "process {pid}"),
            Target::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Reason why a program could not be reached, or rejected a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// No process has this number, or this user cannot see the process.
    NoProcess(u32),
    /// The program does not serve inspection.
    NotServing {
        /// The program.
        target: Target,
        /// Paths that were tried for its socket.
        tried: Vec<PathBuf>,
    },
    /// The process or the socket belongs to another user.
    NotAllowed(String),
    /// The connection has ended: the program ended or stopped serving.
    Gone,
    /// No answer came within this time. The connection is unusable from now on.
    NoAnswer(Duration),
    /// The program rejected the request.
    Refused(Refusal),
    /// The answer does not follow this protocol, or follows a newer version.
    Misunderstood(String),
    /// An error of the operating system.
    System(io::Error),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::NoProcess(pid) => write!(f, "there is no process {pid} that this user can see"),
            ClientError::NotServing { target, tried } => {
                write!(f, "{target} does not serve inspection: there is no socket")?;
                let tried: Vec<String> = tried.iter().map(|path| path.display().to_string()).collect();
                if *target != Target::Path(tried.first().map(PathBuf::from).unwrap_or_default()) {
                    write!(f, " at {}", tried.join(" or "))?;
                }
                f.write_str(" (a program enables it with squall::browse::serve())")
            }
            ClientError::NotAllowed(why) => f.write_str(why),
            ClientError::Gone => f.write_str("the program has ended, or no longer serves inspection"),
            ClientError::NoAnswer(waited) => write!(f, "the program did not answer within {waited:?}"),
            ClientError::Refused(refusal) => refusal.fmt(f),
            ClientError::Misunderstood(what) => write!(f, "the answer is not understood: {what}"),
            ClientError::System(error) => write!(f, "cannot talk to the program: {error}"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientError::Refused(refusal) => Some(refusal),
            ClientError::System(error) => Some(error),
            _ => None,
        }
    }
}

impl ClientError {
    /// Returns `true` if the connection can be used for another request: the program answered with a refusal.
    pub fn is_refusal(&self) -> bool {
        matches!(self, ClientError::Refused(_))
    }
}

/// A connection to a program. Requests are answered in order; each method waits for its answer.
///
/// ```
/// use squall_browse::{Builder, Client, Target};
///
/// let path = std::env::temp_dir().join(format!("squall-doc-client-{}.sock", std::process::id()));
/// let server = Builder::new().path(&path).serve()?;
/// let mut client = Client::connect(&Target::Path(path))?;
/// assert_eq!(client.hello()?.pid, std::process::id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// Bytes received after the last answer.
    received: Vec<u8>,
    timeout: Duration,
    /// `true` while an answer is missing or incomplete: the next bytes may be the rest of it.
    out_of_step: bool,
}

impl Client {
    /// Connects and checks the protocol version. Waits up to 30 s for each answer.
    ///
    /// # Errors
    /// [`ClientError`]: the process does not exist, does not serve inspection, belongs to another user, or
    /// speaks another version of the protocol.
    pub fn connect(target: &Target) -> Result<Client, ClientError> {
        Client::connect_within(target, TIMEOUT)
    }

    /// Connects with a time limit for each answer.
    ///
    /// # Errors
    /// [`ClientError`], as for [`Client::connect`].
    pub fn connect_within(target: &Target, timeout: Duration) -> Result<Client, ClientError> {
        let stream = match target {
            Target::Path(path) => connect_at(path, timeout)?.ok_or_else(|| ClientError::NotServing {
                target: target.clone(),
                tried: vec![path.clone()],
            })?,
            Target::Process(pid) => connect_to_process(*pid, timeout)?,
        };
        let mut client = Client { stream, received: Vec::new(), timeout, out_of_step: false };
        let hello = client.hello()?;
        if hello.protocol != VERSION {
            let what = format!(
                "it speaks version {} of the protocol, but this program speaks version {VERSION}",
                hello.protocol
            );
            return Err(ClientError::Misunderstood(what));
        }
        Ok(client)
    }

    /// Sets the time limit for each further answer.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Asks for the program's name, process and protocol version.
    ///
    /// # Errors
    /// [`ClientError`], as for each method.
    pub fn hello(&mut self) -> Result<Hello, ClientError> {
        self.ask(&Request::Hello {})
    }

    /// Lists objects.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    ///
    /// ```
    /// use squall_browse::{Builder, Client, Target, protocol::{ListQuery, Sort}};
    /// # let path = std::env::temp_dir().join(format!("squall-doc-list-{}.sock", std::process::id()));
    /// # let server = Builder::new().path(&path).serve()?;
    /// # let mut client = Client::connect(&Target::Path(path))?;
    /// let largest = ListQuery { sort: Sort::Bytes, limit: Some(10), ..ListQuery::default() };
    /// for object in client.list(&largest)?.objects {
    ///     println!("{} {} {} bytes", object.id, object.interface, object.bytes);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list(&mut self, query: &ListQuery) -> Result<Listing, ClientError> {
        self.ask(&Request::List(query.clone()))
    }

    /// Asks for one object in detail.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn object(&mut self, id: &str) -> Result<Detail, ClientError> {
        self.ask(&Request::Object { id: id.to_owned() })
    }

    /// Lists the decisions about one object, oldest first.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn history(&mut self, id: &str) -> Result<Vec<DecisionView>, ClientError> {
        self.ask(&Request::History { id: id.to_owned() })
    }

    /// Lists the latest decisions about all objects, oldest first.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn decisions(&mut self) -> Result<Vec<DecisionView>, ClientError> {
        self.ask(&Request::Decisions {})
    }

    /// Lists the latest swaps, oldest first.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn swaps(&mut self) -> Result<Vec<SwapView>, ClientError> {
        self.ask(&Request::Swaps {})
    }

    /// Asks for the statistics of the program's locality allocator.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn memory(&mut self) -> Result<MemoryView, ClientError> {
        self.ask(&Request::Memory {})
    }

    /// Lists the names of the implementations that an object can be swapped to.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn implementations(&mut self, id: &str) -> Result<Vec<String>, ClientError> {
        self.ask(&Request::Implementations { id: id.to_owned() })
    }

    /// Lists the attributes of an object.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn attributes(&mut self, id: &str) -> Result<Vec<AttributeView>, ClientError> {
        self.ask(&Request::Attributes { id: id.to_owned() })
    }

    /// Sets an attribute of an object.
    ///
    /// # Errors
    /// The errors of [`Client::hello`]. The error for an unknown name, a wrong type or a value out of range
    /// lists the allowed values.
    pub fn set(&mut self, id: &str, name: &str, value: &str) -> Result<(), ClientError> {
        self.ask(&Request::Set { id: id.to_owned(), name: name.to_owned(), value: value.to_owned() })
    }

    /// Freezes an object, so that its policy does not change it, or thaws it.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn freeze(&mut self, id: &str, frozen: bool) -> Result<(), ClientError> {
        let id = id.to_owned();
        self.ask(&if frozen { Request::Freeze { id } } else { Request::Thaw { id } })
    }

    /// Freezes all objects, or thaws those that are not frozen individually.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn freeze_all(&mut self, frozen: bool) -> Result<(), ClientError> {
        self.ask(&if frozen { Request::FreezeAll {} } else { Request::ThawAll {} })
    }

    /// Swaps an object for the implementation with this name. Returns the report of the swap.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn swap(&mut self, id: &str, implementation: &str) -> Result<SwapView, ClientError> {
        self.ask(&Request::Swap { id: id.to_owned(), implementation: implementation.to_owned() })
    }

    /// Counts an object's calls for a span. Each of its calls costs more during the count.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn sample(&mut self, id: &str, span_ms: u64) -> Result<CallsView, ClientError> {
        self.ask(&Request::Sample { id: id.to_owned(), span_ms })
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        if self.out_of_step {
            return Err(ClientError::Gone);
        }
        self.out_of_step = true;
        let mut line = serde_json::to_string(request).map_err(|error| ClientError::System(error.into()))?;
        line.push('\n');
        self.stream.set_write_timeout(Some(self.timeout)).map_err(ClientError::System)?;
        let written = self.stream.write_all(line.as_bytes());
        // A server that turns a client away sends the reason first and then closes the connection.
        let line = match (self.receive(), written) {
            (Err(ClientError::Gone), Err(error)) if !is_end(&error) => {
                return Err(ClientError::System(error));
            }
            (line, _) => line?,
        };
        let answer = serde_json::from_slice::<Answer<T>>(&line);
        match answer.map_err(|error| ClientError::Misunderstood(error.to_string()))? {
            Answer::Ok(payload) => {
                self.out_of_step = false;
                Ok(payload)
            }
            Answer::Refused(refusal) => Err(match refusal.kind {
                RefusalKind::NotAllowed => ClientError::NotAllowed(refusal.message),
                RefusalKind::TooLong | RefusalKind::TooSlow | RefusalKind::TooManyClients => {
                    ClientError::Refused(refusal)
                }
                _ => {
                    self.out_of_step = false;
                    ClientError::Refused(refusal)
                }
            }),
        }
    }

    /// Receives one line, without its newline.
    fn receive(&mut self) -> Result<Vec<u8>, ClientError> {
        let deadline = Instant::now() + self.timeout;
        let mut searched = 0;
        let mut portion = vec![0; 64 * 1024];
        loop {
            if let Some(offset) = self.received[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.received.split_off(searched + offset + 1);
                let mut line = std::mem::replace(&mut self.received, rest);
                line.pop();
                return Ok(line);
            }
            searched = self.received.len();
            if searched > ANSWER_BYTES_MAX {
                return Err(ClientError::Misunderstood(format!(
                    "it is longer than {ANSWER_BYTES_MAX} bytes"
                )));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClientError::NoAnswer(self.timeout));
            }
            self.stream.set_read_timeout(Some(left)).map_err(ClientError::System)?;
            match self.stream.read(&mut portion) {
                Ok(0) => return Err(ClientError::Gone),
                Ok(count) => self.received.extend_from_slice(&portion[..count]),
                // The loop checks the deadline.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) if is_end(&error) => return Err(ClientError::Gone),
                Err(error) => return Err(ClientError::System(error)),
            }
        }
    }
}

/// Returns `true` if the other side has closed the connection.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof)
}

/// Connects to the server at this path. Returns `None` if the path is not served.
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
    fn targets_are_numbers_or_paths() {
        assert_eq!("17".parse(), Ok(Target::Process(17)));
        assert_eq!("./17".parse(), Ok(Target::Path("./17".into())));
        for bad in ["", "0", "-1", "4294967296", "name"] {
            assert!(bad.parse::<Target>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_user_of_a_process_is_found() {
        assert_eq!(user_of(std::process::id()), Some(geteuid().as_raw()));
        assert_eq!(user_of(u32::MAX), None);
    }

    #[test]
    fn errors_say_what_to_do() {
        let target = Target::Process(u32::MAX);
        let error = Client::connect(&target).expect_err("nobody").to_string();
        assert_eq!(error, "there is no process 4294967295 that this user can see");
        let path = std::env::temp_dir().join("squall-client-nobody.sock");
        let error = Client::connect(&Target::Path(path)).expect_err("nobody").to_string();
        assert!(error.contains("squall::browse::serve()"), "{error}");
    }
}
