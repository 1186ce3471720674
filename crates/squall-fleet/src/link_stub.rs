//! Stubs over links: an object that another process serves at a listener of links.
//!
//! Problem: a client holds an object of another process, and many of its threads call it. The process may
//! end, and another one may take its name.
//! Idea: a call has a link for itself, made when it is needed and kept for the next call. So replies need no
//! distribution to threads, a slow call holds up no other one, and a server that restarts is found again.
//!
//! - I1. A link is used by one call at a time. A late reply to a call that was given up has an older token,
//!   so no later call takes it.
//! - I2. Before a call, an idle link is checked for the end of the server. A call that could not be sent on
//!   an idle link goes to a new link: no part of it arrived.
//!
//! Not promised: a call that was sent when the server ended has no result, and may have run.
//! Cost: a pair of messages between processes. Each call that runs at the same time has a link: a socket and
//! two lanes of 64 KiB, of which unused pages take no memory.
//! Source: Wentzlaff 2012, §3.3.1 (FO-20, FO-21): a stub calls a server in another process.

use crate::Fate;
use crate::blocking::runs_tasks;
use crate::call::{NO_METHOD, NO_ROOM, STOPPED};
use crate::envelope::{Destination, Envelope, Key};
use crate::link::{LinkError, LinkOptions, LinkReceiver, LinkSender};
use crate::replies;
use crate::retry::{Ended, Repeats, Times, call_once};
use crate::stations::Stations;
use crate::stub::{
    BROKEN, CONNECT, ConnectError, Server, StubOptions, check_description, description_call, method_of,
    transport_of,
};
use squall_call::__macro::Port;
use squall_call::Remote;
use squall_call::carrier::{Carried, Carrier, deadline_in, import_over};
use squall_core::{InterfaceOf, MessageError, Owned, Transport};
use squall_machine::park::{is_past, time_left};
use squall_sys::sync::{StdArc, thread};
use std::io;
use std::time::{Duration, Instant};

/// The most idle links of a processor.
const IDLE_MAX: usize = 4;
/// Late replies that are skipped before a call.
const LATE_MAX: usize = 64;
/// Links that may end during a call that is sent again.
const LINKS_LOST_MAX: u32 = 8;
/// The pause before a further link of such a call. Each one is longer than the one before.
const PAUSE: Duration = Duration::from_millis(10);

/// Makes an object that calls the object which another process [serves](crate::Dispatcher::serve_object) at a
/// [listener](crate::LinkPort::listen) of links. Linux only.
///
/// The result is an object like any other, as [`connect`](crate::connect) makes one. Each call that runs at
/// the same time has a link of its own. If the process ends, its calls return
/// [`Transport::PeerGone`](squall_core::Transport::PeerGone). So does a call that begins before the end is
/// noticed. Later calls find the next process that listens by the name, and return
/// [`Transport::Disconnected`](squall_core::Transport::Disconnected) while there is no such process. A next
/// process with another version of the interface runs no method.
///
/// A call in a task of a dispatcher does not begin, and returns
/// [`Transport::WouldBlock`](squall_core::Transport::WouldBlock). A thread that calls its own dispatcher,
/// outside of any task, waits until the deadline.
///
/// # Errors
/// [`ConnectError`]: the server does not answer within five seconds, or before the end of
/// [`with_deadline`](squall_call::with_deadline), or serves another interface.
/// # Panics
/// In the child of a fork, if it would wait.
/// # Cost
/// A link and a request now. For each call that runs at the same time, a link, which is kept for the next
/// one: up to 4 for each processor.
/// Source: Wentzlaff 2012, §3.3.1 (FO-20, FO-21).
///
/// # Example
/// See [`LinkPort`](crate::LinkPort).
pub fn connect_link<I: ?Sized + Remote + InterfaceOf<Port<I>>>(
    listener: &str,
) -> Result<Owned<I>, ConnectError> {
    StubOptions::new().connect_link(listener)
}

impl StubOptions {
    /// Makes an object as [`connect_link`] does, with these options. Linux only.
    ///
    /// With [`retry_after`](StubOptions::retry_after), a call whose link ends is sent again over a new link.
    ///
    /// # Errors
    /// As [`connect_link`].
    /// # Panics
    /// In the child of a fork, if it would wait.
    pub fn connect_link<I: ?Sized + Remote + InterfaceOf<Port<I>>>(
        &self,
        listener: &str,
    ) -> Result<Owned<I>, ConnectError> {
        let server = || Server::Listener(listener.to_owned());
        if runs_tasks() {
            return Err(ConnectError::WouldBlock { server: server() });
        }
        let (method, argument) = description_call::<I>();
        let mut station = Station::new();
        match station.call(listener, method, &argument, deadline_in(CONNECT)) {
            Ok(described) => check_description::<I>(described, server)?,
            Err(Lost::Failed(NO_METHOD)) => return Err(ConnectError::NoObject { server: server() }),
            Err(lost) => return Err(ConnectError::NotLinked { server: server(), error: lost.into() }),
        }
        let stations = Stations::new(IDLE_MAX);
        stations.give_back(0, station);
        let (name, schema, retry) = (listener.to_owned(), I::SCHEMA, self.retry());
        import_over(StdArc::new(LinkLine { name, schema, retry, stations })).map_err(ConnectError::Create)
    }
}

/// The way of a stub's calls.
struct LinkLine {
    /// The name of the listener.
    name: String,
    schema: u64,
    /// Calls are sent again after this time.
    retry: Option<Duration>,
    stations: Stations<Station>,
}

impl LinkLine {
    /// Makes a station, with the session of one that was dropped.
    fn new_station(&self) -> Station {
        let session = self.retry.and_then(|_| self.stations.take_session());
        Station { session, ..Station::new() }
    }
}

impl Carrier for LinkLine {
    fn carry(&self, call: Carried<'_>, output: &mut Vec<u8>) -> Result<u32, Transport> {
        if runs_tasks() {
            return Err(Transport::WouldBlock);
        }
        if is_past(call.deadline) {
            return Err(Transport::Busy);
        }
        let mut station = self.stations.take(call.region).unwrap_or_else(|| self.new_station());
        let (method, deadline) = (method_of(self.schema, call.method), call.deadline);
        let called = match self.retry {
            None => station.call(&self.name, method, call.input, deadline).map(drop).map_err(transport),
            Some(retry) => {
                let mut way = StationTo { station: &mut station, name: &self.name };
                call_once(&mut way, method, call.input, Times { deadline, retry }).map_err(transport_of)
            }
        };
        let status = called.and_then(|()| {
            let (status, result) = station.result.split_first_chunk().ok_or(Transport::BadResult(BROKEN))?;
            output.extend_from_slice(result);
            Ok(u32::from_le_bytes(*status))
        });
        if let Some(session) = self.stations.give_back(call.region, station).and_then(|it| it.session) {
            self.stations.keep_session(session);
        }
        status
    }
}

/// The reason why a call over a link has no result.
enum Lost {
    /// No link was made.
    NoLink(io::Error),
    /// The request was not sent.
    NotSent(LinkError),
    /// The link ended before the reply.
    NoReply(LinkError),
    /// The server told this reason.
    Failed(u64),
    TimedOut,
}

impl From<Lost> for io::Error {
    fn from(lost: Lost) -> io::Error {
        match lost {
            Lost::NoLink(error) => error,
            Lost::NotSent(error) | Lost::NoReply(error) => io::Error::other(error),
            Lost::TimedOut => io::ErrorKind::TimedOut.into(),
            Lost::Failed(STOPPED) => {
                io::Error::new(io::ErrorKind::ConnectionAborted, "the server has stopped")
            }
            Lost::Failed(_) => io::Error::other("the server dropped the request"),
        }
    }
}

fn transport(lost: Lost) -> Transport {
    match lost {
        Lost::NotSent(LinkError::Retry { .. }) => Transport::Busy,
        Lost::NotSent(LinkError::NoSpace { .. }) => Transport::BadArguments(MessageError::TooLarge),
        Lost::NoLink(_) | Lost::NotSent(_) | Lost::Failed(STOPPED) => Transport::Disconnected,
        Lost::Failed(NO_METHOD) => Transport::Unsupported,
        Lost::Failed(NO_ROOM) => Transport::BadResult(MessageError::TooLarge),
        Lost::NoReply(_) | Lost::Failed(_) => Transport::PeerGone,
        Lost::TimedOut => Transport::Deadline,
    }
}

/// The ends of one call at a time (I1).
struct Station {
    link: Option<(LinkSender, LinkReceiver)>,
    token: u64,
    message: Vec<u8>,
    /// The result of the last call.
    result: Vec<u8>,
    /// For calls that may be sent again.
    session: Option<Key>,
}

impl Station {
    fn new() -> Station {
        Station { link: None, token: 0, message: Vec::new(), result: Vec::new(), session: None }
    }

    /// Skips late replies. Drops the link if the server has ended, or sends more than it was asked for (I2).
    fn revive(&mut self) {
        let Some((_, receiver)) = &mut self.link else { return };
        for _ in 0..LATE_MAX {
            match receiver.look() {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => break,
            }
        }
        self.link = None;
    }

    /// Writes a request.
    fn prepare(&mut self, method: u64, key: Option<Key>, body: &[u8]) {
        self.token += 1;
        self.message.clear();
        let (token, reply_to) = (self.token, Some(Destination::Link));
        Envelope::Request { method, token, reply_to, key, body }.write(&mut self.message);
    }

    /// Sends the request, and waits for room until the deadline. Makes the link before, if there is none.
    fn send(&mut self, name: &str, deadline: Option<Instant>) -> Result<(), Lost> {
        let wait = link(&mut self.link, name, deadline)?.wait_to_send(&self.message);
        let sent = match time_left(deadline) {
            None => wait.block(),
            Some(left) => wait.block_for(left),
        };
        self.note_sent(sent)
    }

    /// Sends the request again. Does not wait for room: the reply to a copy that was sent may be there.
    /// Returns whether there was room.
    fn send_again(&mut self, name: &str, deadline: Option<Instant>) -> Result<bool, Lost> {
        match link(&mut self.link, name, deadline)?.send(&self.message) {
            Err(LinkError::Retry { .. }) => Ok(false),
            sent => self.note_sent(sent).map(|()| true),
        }
    }

    /// Drops a link that has ended.
    fn note_sent(&mut self, sent: Result<(), LinkError>) -> Result<(), Lost> {
        sent.map_err(|error| {
            if !matches!(error, LinkError::Retry { .. } | LinkError::NoSpace { .. }) {
                self.link = None;
            }
            Lost::NotSent(error)
        })
    }

    /// Waits for the reply to the request until the deadline, and keeps its result.
    fn receive(&mut self, deadline: Option<Instant>) -> Result<(), Lost> {
        let received = self.try_receive(deadline);
        if matches!(received, Err(Lost::NoReply(_))) {
            self.link = None;
        }
        received
    }

    fn try_receive(&mut self, deadline: Option<Instant>) -> Result<(), Lost> {
        let Some((_, receiver)) = &mut self.link else { return Err(Lost::TimedOut) };
        let mut late = 0;
        loop {
            let wait = receiver.wait();
            match time_left(deadline) {
                None => wait.block().map_err(Lost::NoReply)?,
                // At the deadline, this takes a reply that is there. A flood of others ends then.
                Some(left) if late < LATE_MAX && wait.block_for(left).map_err(Lost::NoReply)? => {
                    late += usize::from(left == Duration::ZERO);
                }
                Some(_) => return Err(Lost::TimedOut),
            }
            let Some(message) = receiver.receive().map_err(Lost::NoReply)? else { continue };
            // Others are late replies to earlier calls (I1).
            match replies::read(message) {
                Some((of, Ok(result))) if of == self.token => {
                    self.result.clear();
                    self.result.extend_from_slice(result);
                    return Ok(());
                }
                Some((of, Err(reason))) if of == self.token => return Err(Lost::Failed(reason)),
                _ => {}
            }
        }
    }

    /// Calls a method, and blocks until its result is there.
    fn call(
        &mut self,
        name: &str,
        method: u64,
        body: &[u8],
        deadline: Option<Instant>,
    ) -> Result<&[u8], Lost> {
        self.revive();
        let had_link = self.link.is_some();
        self.prepare(method, None, body);
        match self.send(name, deadline) {
            // The server has ended meanwhile. The next one may be there already (I2).
            Err(Lost::NotSent(LinkError::Ended { .. } | LinkError::PeerGone { .. })) if had_link => {
                self.send(name, deadline)?;
            }
            sent => sent?,
        }
        self.receive(deadline)?;
        Ok(&self.result)
    }
}

/// Returns the sender of a station's link. Makes the link before, if there is none.
fn link<'a>(
    link: &'a mut Option<(LinkSender, LinkReceiver)>,
    name: &str,
    deadline: Option<Instant>,
) -> Result<&'a LinkSender, Lost> {
    let (sender, _) = match link {
        Some(link) => link,
        None => link.insert(connect(name, deadline).map_err(Lost::NoLink)?),
    };
    Ok(sender)
}

/// Makes a link to the server.
fn connect(name: &str, deadline: Option<Instant>) -> io::Result<(LinkSender, LinkReceiver)> {
    let limit = time_left(deadline).map_or(CONNECT, |left| left.min(CONNECT));
    // A limit of 0 would refuse a server that is there.
    let options = LinkOptions::new().limit(limit.max(Duration::from_millis(1)));
    Ok(options.connect(name)?.split())
}

/// A station, and the server of a call that may be sent again.
struct StationTo<'a> {
    station: &'a mut Station,
    name: &'a str,
}

impl Repeats for StationTo<'_> {
    fn repeat(&mut self, method: u64, key: Key, body: &[u8], mut times: Times) -> Result<(), Ended> {
        let StationTo { station, name } = self;
        station.revive();
        station.prepare(method, Some(key), body);
        let (mut copies, mut links_lost) = (0, 0);
        loop {
            let sent = match copies {
                0 => station.send(name, times.deadline).map(|()| true),
                _ => station.send_again(name, times.deadline),
            };
            let received = sent.and_then(|sent| {
                copies += u32::from(sent);
                station.receive(times.again())
            });
            match received {
                Ok(()) => return Ok(()),
                Err(Lost::Failed(reason)) => return Err(Ended::Told { reason, copies }),
                Err(Lost::NotSent(LinkError::NoSpace { .. })) => return Err(Ended::Fate(Fate::TooLarge)),
                Err(Lost::NotSent(LinkError::Retry { .. })) if copies == 0 => {
                    return Err(Ended::Fate(Fate::NotAccepted));
                }
                Err(Lost::NoLink(_)) if copies == 0 => return Err(Ended::Fate(Fate::NoService)),
                Err(Lost::TimedOut | Lost::NotSent(LinkError::Retry { .. })) if is_past(times.deadline) => {
                    return Err(Ended::Fate(Fate::TimedOut));
                }
                Err(Lost::TimedOut) => times.back_off(),
                // The link has ended. The server may live, or the next one may come.
                Err(_) if links_lost == LINKS_LOST_MAX || is_past(times.deadline) => {
                    return Err(Ended::Fate(if copies == 0 { Fate::NoService } else { Fate::ServerLost }));
                }
                Err(_) => {
                    thread::sleep(PAUSE * links_lost);
                    links_lost += 1;
                }
            }
        }
    }

    fn result(&self) -> &[u8] {
        &self.station.result
    }

    fn session(&self) -> Option<Key> {
        self.station.session
    }

    fn set_session(&mut self, session: Option<Key>) {
        self.station.session = session;
    }
}
