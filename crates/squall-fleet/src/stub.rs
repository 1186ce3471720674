//! Stubs: an object is served at a mailbox, and called through an object that sends its calls there.
//!
//! Problem: a program that calls by messages encodes each call by hand, and looks different from one that
//! calls an object.
//! Idea: `#[squall::interface(remote)]` writes both ends of an interface, for any way of bytes. Here a call
//! is a request to a mailbox, and the result its reply.
//!
//! - I1. A request carries half of the hash of the interface beside the method's number. The server runs no
//!   method of another version, also if another server took over the mailbox after [`connect`].
//! - I2. A station (a mailbox for replies) is used by one call at a time. A late reply to a call that was
//!   given up has an older token, so no later call takes it.
//!
//! Not promised: after its deadline, a call may still run, if its request was sent.
//! Cost: a pair of messages, a copy of the arguments and of the result into and out of each, and two
//! uncontended locks at the caller.
//! Source: Wentzlaff 2012, §3.3.1 (FO-20, FO-21). Deviations: arguments are encoded by serde, and decorations
//! are not needed. A stub is an object with a handle, instead of a function with the mailbox as an argument.

use crate::handover::handover;
use crate::retry::{Failed, Times};
use crate::stations::Stations;
use crate::{Alias, CallFailed, Caller, Class, Dispatcher, Fate, Inlet, Mailbox, Request, SendError, Sender};
use squall_call::__macro::Port;
use squall_call::Remote;
use squall_call::carrier::{
    Carried, Carrier, deadline_in, first_difference, import_over, serve_bytes, unsupported,
};
use squall_core::{CreateError, Handle, InterfaceOf, MessageError, Owned, Transport};
use squall_machine::park::is_past;
use squall_sys::sync::StdArc;
use std::cell::RefCell;
use std::fmt;
use std::future::ready;
use std::io;
use std::time::Duration;

/// The method that tells the interface: its lower half. No interface has as many methods.
const DESCRIBE: u32 = u32::MAX;
/// The bytes of a reply before the result: the status.
const STATUS: usize = 4;
/// The most idle stations of a processor.
const IDLE_MAX: usize = 16;
/// The shortest time after which a stub sends a call again. A shorter one floods the server.
const RETRY_MIN: Duration = Duration::from_millis(1);
/// The time in which [`connect`] must end.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);
/// The lanes for the description of an interface, of up to 24 KiB.
const DESCRIPTION_LANE: usize = 32 << 10;

/// Returns the number that a request carries for a method (I1).
pub(crate) const fn method_of(schema: u64, number: u32) -> u64 {
    schema >> 32 << 32 | number as u64
}

impl Dispatcher {
    /// Serves an object at a mailbox, a link or a [port](crate::LinkPort) of links. Other threads call it
    /// through [`connect`], and other processes through [`connect_link`](crate::connect_link).
    ///
    /// Its methods run on the dispatcher's thread, one at a time, and its other tasks wait meanwhile. So they
    /// should be short, and should not block. A method cannot call a stub: see [`connect`]. For methods that
    /// block, or call other servers, use [`serve_object_on`](Dispatcher::serve_object_on).
    ///
    /// If the object was destroyed, its callers get an error. The object stays alive only as long as its
    /// owner lives.
    ///
    /// # Example
    /// See [`connect`].
    pub fn serve_object<I: ?Sized + Remote>(
        &mut self,
        from: impl Into<Inlet>,
        class: Class,
        object: Handle<I>,
    ) {
        let reply = RefCell::new(Vec::new());
        self.serve(from, class, move |request| {
            answer(object, request, &reply);
            ready(())
        });
    }

    /// Serves an object at an inlet, and runs its methods on other threads. Each request gives `executor`
    /// one closure, which any thread may run once.
    ///
    /// So methods may block, and may call any stub: also one of their caller, to any depth for which the
    /// executor has threads. Requests wait in the inlet while as many methods run as the dispatcher's
    /// [limit](Dispatcher::limit_requests). If a closure is dropped, its request gets no reply, and the
    /// caller an error.
    ///
    /// # Cost
    /// Two wake-ups more than [`serve_object`](Dispatcher::serve_object), and two copies of arguments and
    /// result. Source: Wentzlaff 2012, §3.3.1 (FO-21): with threads on both sides, calls from A to B to A do
    /// not deadlock.
    ///
    /// # Example
    /// ```
    /// use squall::fleet::{Class, Dispatcher, Mailbox, connect};
    ///
    /// #[squall::interface(remote)]
    /// trait Sleeper: Send + Sync {
    ///     fn sleep(&self, ms: u64) -> u64;
    /// }
    ///
    /// struct Thread;
    ///
    /// impl Sleeper for Thread {
    ///     fn sleep(&self, ms: u64) -> u64 {
    ///         std::thread::sleep(std::time::Duration::from_millis(ms));
    ///         ms
    ///     }
    /// }
    ///
    /// let sleeper = squall::shared::<dyn Sleeper, _>(Thread);
    /// let object = sleeper.handle();
    /// let mailbox = Mailbox::new();
    /// let sender = mailbox.sender(mailbox.add_capability()?)?;
    /// std::thread::spawn(move || {
    ///     let mut dispatcher = Dispatcher::new();
    ///     // A program with a pool of threads gives the work to it.
    ///     let executor = |work| drop(std::thread::spawn(work));
    ///     dispatcher.serve_object_on(mailbox, Class::External, object, executor);
    ///     dispatcher.run();
    /// });
    /// assert_eq!(connect::<dyn Sleeper>(&sender)?.sleep(1), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn serve_object_on<I: ?Sized + Remote>(
        &mut self,
        from: impl Into<Inlet>,
        class: Class,
        object: Handle<I>,
        executor: impl Fn(Box<dyn FnOnce() + Send>) + 'static,
    ) {
        self.serve(from, class, move |mut request| {
            let (method, body) = (request.method(), request.take_body());
            let (giver, result) = handover();
            executor(Box::new(move || {
                let mut reply = Vec::new();
                write_answer(object, method, &body, &mut reply);
                giver.give(reply);
            }));
            async move {
                if let Some(reply) = result.await {
                    request.reply(&reply);
                }
            }
        });
    }
}

/// Runs the method of a request, and replies. Keeps the buffer of the reply.
fn answer<I: ?Sized + Remote>(object: Handle<I>, request: Request, buffer: &RefCell<Vec<u8>>) {
    let mut reply = buffer.take();
    reply.clear();
    write_answer(object, request.method(), request.body(), &mut reply);
    request.reply(&reply);
    buffer.replace(reply);
}

/// Runs a method, and writes its reply to an empty buffer.
fn write_answer<I: ?Sized + Remote>(object: Handle<I>, method: u64, body: &[u8], reply: &mut Vec<u8>) {
    let number = method as u32;
    if number == DESCRIBE {
        reply.extend_from_slice(&I::SCHEMA.to_le_bytes());
        if body != I::SCHEMA.to_le_bytes() {
            reply.extend_from_slice(I::SIGNATURE.as_bytes());
        }
        return;
    }
    reply.extend_from_slice(&[0; STATUS]);
    let status = match method == method_of(I::SCHEMA, number) {
        true => serve_bytes(object, number, body, reply),
        false => unsupported(),
    };
    reply[..STATUS].copy_from_slice(&status.to_le_bytes());
}

/// Makes an object that calls the object at a mailbox, which a dispatcher
/// [serves](Dispatcher::serve_object).
///
/// The result is an object like any other. A call sends a request, and blocks the thread until the reply is
/// there. Any number of threads call at the same time. `try_` methods return the
/// [`Transport`](squall_core::Transport) error if the server is gone, does not know the capability, or its
/// method panics. [`squall::call::with_deadline`](squall_call::with_deadline) limits the time of calls.
///
/// A call in a task of a dispatcher does not begin, and returns
/// [`Transport::WouldBlock`](squall_core::Transport::WouldBlock): it would hold up the other tasks. So does a
/// call on the thread that serves the object. A task gives the call to another thread and awaits it, for
/// example by `squall::policy::invoke::asynchronous`, or calls by
/// [`Context::call`](crate::Context::call).
///
/// `to` needs a capability for many messages.
///
/// # Errors
/// [`ConnectError`]: the server does not answer within five seconds, or before the end of `with_deadline`, or
/// serves another interface.
/// # Panics
/// In the child of a fork.
/// # Cost
/// A request now. For each call that runs at the same time, a mailbox for its reply, which is kept for the
/// next one: up to 16 for each processor.
/// Source: Wentzlaff 2012, §3.3.1 (FO-20, FO-21).
///
/// # Example
/// ```
/// use squall::fleet::{Class, Dispatcher, Mailbox, connect};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// // Feature `call` has the remote interfaces.
/// #[squall::interface(remote)]
/// trait Tickets: Send + Sync {
///     fn take(&self, name: &str) -> String;
/// }
///
/// struct Numbered(AtomicU64);
///
/// impl Tickets for Numbered {
///     fn take(&self, name: &str) -> String {
///         format!("{name}: {}", self.0.fetch_add(1, Relaxed))
///     }
/// }
///
/// let tickets = squall::shared::<dyn Tickets, _>(Numbered(AtomicU64::new(7)));
/// let object = tickets.handle();
/// let mailbox = Mailbox::new();
/// let sender = mailbox.sender(mailbox.add_capability()?)?;
/// std::thread::spawn(move || {
///     let mut dispatcher = Dispatcher::new();
///     dispatcher.serve_object(mailbox, Class::External, object);
///     dispatcher.run();
/// });
/// // A client, with a handle like that of any object.
/// let stub = connect::<dyn Tickets>(&sender)?;
/// assert_eq!(stub.take("Ada"), "Ada: 7");
/// assert_eq!(stub.try_take("Grace")?, "Grace: 8");
///
/// // A task awaits its call, and other tasks run meanwhile.
/// use squall::policy::invoke::asynchronous;
///
/// let dispatcher = Dispatcher::new();
/// let (context, handle) = (dispatcher.context(), stub.handle());
/// dispatcher.context().spawn(async move {
///     let ticket = asynchronous(handle, |tickets| tickets.take("Alan")).await;
///     assert_eq!(ticket.unwrap(), "Alan: 9");
///     context.stop();
/// });
/// dispatcher.run();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn connect<I: ?Sized + Remote + InterfaceOf<Port<I>>>(to: &Sender) -> Result<Owned<I>, ConnectError> {
    StubOptions::new().connect(to)
}

/// How a stub calls.
///
/// # Example
/// ```
/// use squall::fleet::{Class, Dispatcher, Mailbox, StubOptions};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use std::time::Duration;
///
/// #[squall::interface(remote)]
/// trait Tickets: Send + Sync {
///     fn take(&self) -> u64;
/// }
///
/// struct Numbered(AtomicU64);
///
/// impl Tickets for Numbered {
///     fn take(&self) -> u64 {
///         self.0.fetch_add(1, Relaxed)
///     }
/// }
///
/// let tickets = squall::shared::<dyn Tickets, _>(Numbered(AtomicU64::new(7)));
/// let object = tickets.handle();
/// let mailbox = Mailbox::new();
/// let sender = mailbox.sender(mailbox.add_capability()?)?;
/// std::thread::spawn(move || {
///     let mut dispatcher = Dispatcher::new();
///     dispatcher.serve_object(mailbox, Class::External, object);
///     dispatcher.run();
/// });
/// // Each ticket is taken once, however often its call is sent.
/// let stub = StubOptions::new().retry_after(Duration::from_millis(100)).connect::<dyn Tickets>(&sender)?;
/// assert_eq!((stub.take(), stub.take()), (7, 8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until they connect"]
pub struct StubOptions {
    retry: Option<Duration>,
}

impl StubOptions {
    /// Makes options for a stub that sends each call once.
    pub fn new() -> StubOptions {
        StubOptions::default()
    }

    /// Sends a call again if no reply comes in this time, and then in twice the time, up to a second. The
    /// server runs it once, as [`Caller::call_once`](crate::Caller::call_once) says.
    ///
    /// A call without a [deadline](squall_call::with_deadline) is sent again until the server ends. A time
    /// below 1 ms counts as 1 ms.
    pub fn retry_after(mut self, time: Duration) -> StubOptions {
        self.retry = Some(time.max(RETRY_MIN));
        self
    }

    #[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code))]
    pub(crate) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Makes an object as [`connect`] does, with these options.
    ///
    /// # Errors
    /// As [`connect`].
    /// # Panics
    /// In the child of a fork.
    pub fn connect<I: ?Sized + Remote + InterfaceOf<Port<I>>>(
        &self,
        to: &Sender,
    ) -> Result<Owned<I>, ConnectError> {
        check_interface::<I>(to)?;
        let (schema, retry, stations) = (I::SCHEMA, self.retry, Stations::new(IDLE_MAX));
        let line = StdArc::new(Line { to: to.clone(), schema, retry, stations });
        import_over(line).map_err(ConnectError::Create)
    }
}

/// Asks the server for its interface, once before the first call.
fn check_interface<I: ?Sized + Remote>(to: &Sender) -> Result<(), ConnectError> {
    let mailbox = to.mailbox();
    if to.would_block() {
        return Err(ConnectError::WouldBlock { server: Server::Mailbox(mailbox) });
    }
    let replies = Mailbox::builder().lane_bytes(DESCRIPTION_LANE).build();
    let mut caller = Caller::with_replies(replies);
    let (method, schema) = description_call::<I>();
    let described = match caller.call_until(to, method, &schema, deadline_in(CONNECT)) {
        Err(CallFailed::NoMethod { .. }) => {
            return Err(ConnectError::NoObject { server: Server::Mailbox(mailbox) });
        }
        described => described.map_err(ConnectError::Failed)?,
    };
    check_description::<I>(described, || Server::Mailbox(mailbox))
}

/// Checks the description of an interface that a server has sent.
pub(crate) fn check_description<I: ?Sized + Remote>(
    described: &[u8],
    server: impl Fn() -> Server,
) -> Result<(), ConnectError> {
    let Some((found, signature)) = described.split_first_chunk() else {
        return Err(ConnectError::NoObject { server: server() });
    };
    match *found == I::SCHEMA.to_le_bytes() {
        true => Ok(()),
        false => {
            let found = String::from_utf8_lossy(signature).into_owned();
            Err(ConnectError::OtherInterface { server: server(), expected: I::SIGNATURE, found })
        }
    }
}

/// Returns the method that tells the interface, and its argument.
pub(crate) fn description_call<I: ?Sized + Remote>() -> (u64, [u8; 8]) {
    (method_of(I::SCHEMA, DESCRIBE), I::SCHEMA.to_le_bytes())
}

/// The way of a stub's calls.
struct Line {
    to: Sender,
    schema: u64,
    /// Calls are sent again after this time.
    retry: Option<Duration>,
    stations: Stations<Station>,
}

/// The ends of one call at a time (I2).
struct Station {
    caller: Caller,
    to: Sender,
}

impl Line {
    fn new_station(&self) -> Station {
        let mut caller = Caller::new();
        if self.retry.is_some()
            && let Some(session) = self.stations.take_session()
        {
            caller.set_session(&self.to, session);
        }
        Station { caller, to: self.to.clone() }
    }
}

impl Carrier for Line {
    fn carry(&self, call: Carried<'_>, output: &mut Vec<u8>) -> Result<u32, Transport> {
        if self.to.would_block() {
            return Err(Transport::WouldBlock);
        }
        if is_past(call.deadline) {
            return Err(Transport::Busy);
        }
        let mut station = self.stations.take(call.region).unwrap_or_else(|| self.new_station());
        let method = method_of(self.schema, call.method);
        let Station { caller, to } = &mut station;
        let reply = match self.retry {
            None => caller.call_until(to, method, call.input, call.deadline).map_err(transport),
            Some(retry) => {
                let times = Times { deadline: call.deadline, retry };
                caller.call_once_until(to, method, call.input, times).map_err(transport_of)
            }
        };
        let status = reply.and_then(|reply| {
            let (status, result) = reply.split_first_chunk().ok_or(Transport::BadResult(BROKEN))?;
            output.extend_from_slice(result);
            Ok(u32::from_le_bytes(*status))
        });
        let surplus = self.stations.give_back(call.region, station);
        if let Some(session) = surplus.and_then(|mut station| station.caller.take_session(&self.to)) {
            self.stations.keep_session(session);
        }
        status
    }
}

/// A reply that no server of an object gives.
pub(crate) const BROKEN: MessageError = MessageError::Undecodable;

/// The error of a stub's call for that of its messages.
fn transport(failed: CallFailed) -> Transport {
    match failed {
        CallFailed::NotSent(SendError::Permissions { .. }) => Transport::Denied,
        CallFailed::NotSent(SendError::Retry { .. }) => Transport::Busy,
        CallFailed::NotSent(SendError::NoSpace { .. }) => Transport::BadArguments(MessageError::TooLarge),
        CallFailed::NotSent(SendError::InvalidAlias { .. }) | CallFailed::Stopped { .. } => {
            Transport::Disconnected
        }
        CallFailed::NoMethod { .. } => Transport::Unsupported,
        CallFailed::NoReply { .. } | CallFailed::Ended { .. } => Transport::PeerGone,
        CallFailed::ResultTooLarge { .. } => Transport::BadResult(MessageError::TooLarge),
        CallFailed::TimedOut { .. } => Transport::Deadline,
    }
}

/// The error of a stub's call that runs once.
pub(crate) fn transport_of(failed: Failed) -> Transport {
    let fate = match failed {
        Failed::Denied => return Transport::Denied,
        Failed::NoMethod => return Transport::Unsupported,
        Failed::Fate(fate) => fate,
    };
    match fate {
        Fate::NoService | Fate::Closed => Transport::Disconnected,
        Fate::NotAccepted => Transport::Busy,
        Fate::OwnShard => Transport::WouldBlock,
        Fate::TooLarge => Transport::BadArguments(MessageError::TooLarge),
        Fate::TimedOut => Transport::Deadline,
        Fate::ServerLost | Fate::Dropped => Transport::PeerGone,
        Fate::NoResult => Transport::BadResult(MessageError::TooLarge),
    }
}

/// The server of an object, in errors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Server {
    /// The server of this mailbox.
    Mailbox(Alias),
    /// The process that listens for links by this name.
    Listener(String),
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Mailbox(alias) => write!(f, "mailbox {alias}"),
            Server::Listener(name) => write!(f, "the link listener {name:?}"),
        }
    }
}

/// The reason why [`connect`] or [`connect_link`](crate::connect_link) made no object.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The server did not say which interface it serves.
    Failed(CallFailed),
    /// No link to the server was made, or it ended before the server said which interface it serves.
    NotLinked {
        /// The server.
        server: Server,
        /// The reason.
        error: io::Error,
    },
    /// The server serves another interface, or another version of it.
    OtherInterface {
        /// The server.
        server: Server,
        /// The signatures that this program expects.
        expected: &'static str,
        /// The signatures of the server. A hostile one may send any text.
        found: String,
    },
    /// The server serves no object there.
    NoObject {
        /// The server.
        server: Server,
    },
    /// The process has no default server of the interface.
    NoDefault {
        /// The interface.
        interface: &'static str,
    },
    /// The thread serves the mailbox itself, or runs a task of a dispatcher, which must not block.
    WouldBlock {
        /// The server.
        server: Server,
    },
    /// The object could not be made in this process.
    Create(CreateError),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Failed(failed) => write!(f, "the server did not tell its interface: {failed}"),
            ConnectError::NotLinked { server, error } => {
                write!(f, "no call went to {server}; check that its process runs: {error}")
            }
            ConnectError::OtherInterface { server, expected, found } => {
                let (expected, found) = first_difference(expected, found);
                write!(
                    f,
                    "the interface at {server} has {found} and this program's has {expected}; build both \
                     programs from the same definition of the trait"
                )
            }
            ConnectError::NoObject { server } => {
                write!(f, "{server} serves no object; serve one there with `Dispatcher::serve_object`")
            }
            ConnectError::NoDefault { interface } => {
                write!(f, "this process has no default server of {interface}; set one with `set_default`")
            }
            ConnectError::WouldBlock { server } => write!(
                f,
                "to connect to {server} would block a dispatcher; connect on a thread that runs none of its tasks \
                 and does not serve it"
            ),
            ConnectError::Create(error) => write!(f, "the stub could not be made: {error}"),
        }
    }
}

impl std::error::Error for ConnectError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_retry_is_at_least_a_millisecond() {
        let retry = |time| StubOptions::new().retry_after(time).retry();
        assert_eq!(retry(Duration::ZERO), Some(RETRY_MIN));
        assert_eq!(retry(Duration::from_millis(3)), Some(Duration::from_millis(3)));
    }

    /// Each station is a surplus one.
    #[test]
    fn a_station_takes_over_the_session_of_one_that_was_dropped() {
        let mailbox = Mailbox::new();
        let to = mailbox.sender(mailbox.add_capability().unwrap()).unwrap();
        let server = std::thread::spawn(move || {
            let mut dispatcher = Dispatcher::new();
            let (context, calls) = (dispatcher.context(), std::cell::Cell::new(0));
            dispatcher.serve(mailbox, Class::External, move |request| {
                calls.set(calls.get() + 1);
                if calls.get() == 3 {
                    context.drain();
                }
                request.reply(&[0; STATUS]);
                ready(())
            });
            dispatcher.run();
        });
        let stations = Stations::with_clusters(1, 0);
        let line = Line { to, schema: 7, retry: Some(Duration::from_secs(3600)), stations };
        let mut sessions = Vec::new();
        for number in 1..=3 {
            let call = Carried { region: 0, method: 1, input: b"", deadline: None };
            assert_eq!(line.carry(call, &mut Vec::new()), Ok(0));
            let session = line.stations.take_session().expect("the station was dropped");
            assert_eq!(session.number, number);
            line.stations.keep_session(session);
            sessions.push(session.session);
        }
        assert_eq!(sessions, [sessions[0]; 3]);
        server.join().unwrap();
    }

    #[test]
    fn methods_of_different_versions_have_different_numbers() {
        let (one, two) = (0x1111_2222_3333_4444, 0x1111_2223_3333_4444);
        assert_eq!(method_of(one, 7), 0x1111_2222_0000_0007);
        assert_ne!(method_of(one, 7), method_of(two, 7));
    }
}
