//! A client of process ids.
//!
//! - C1. The client has one call at a time on its way. A call without a reply is finished before the next
//!   one, by a copy with the same number: the server runs it once (`server/S2`).
//! - C2. A lost server may have run a call. A free is not made again at another one, since an id must never
//!   be in the pools twice.

use super::server::random;
use super::wire::{METHOD, Operation, Reply, Request};
use super::{PidError, PidErrorKind, PidNotFreed};
use crate::frames::{decode, encode};
use squall_fleet::{Fate, Name, Node};
use squall_machine::park::time_left;
use squall_sys::sync::{Mutex, StdArc as Arc, lock, thread};
use std::fmt;
use std::time::{Duration, Instant};

/// A client tries again after this time while its server leaves.
const RETRY: Duration = Duration::from_millis(2);

type Kind = PidErrorKind;

/// A process id in use. One that is dropped stays in use.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Pid {
    fleet: u64,
    id: u32,
    round: u64,
}

impl Pid {
    /// Returns the number, from 1 on.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the round in which the id was drawn. Each draw of one id has a later round.
    pub fn round(&self) -> u64 {
        self.round
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

struct Session {
    /// Random, and new with each connect: late copies of calls of earlier connects have no effect.
    key: u64,
    server: u64,
    /// The key of the fleet of that server.
    fleet: u64,
    /// The newest round of the fleet that a reply told (`server/S3`).
    seen: u64,
    /// The number of the last call that has ended.
    number: u64,
    /// A call without a reply.
    lost: Option<Operation>,
    /// The id of an allocation that was given up.
    found: Option<Pid>,
    is_closed: bool,
}

/// A call without a result.
struct Failed {
    kind: Kind,
    may_have_run: bool,
}

/// A client of process ids. Threads share it; it has one call at a time on its way.
///
/// # Examples
#[cfg_attr(all(target_os = "linux", not(miri)), doc = "```")]
#[cfg_attr(not(all(target_os = "linux", not(miri))), doc = "```ignore")]
/// use squall::fleet::pool::pids::{PidClient, PidServer};
/// use squall::fleet::{GroupKey, LocalNetwork, NodeBuilder};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limit = Duration::from_secs(60);
/// let (network, name) = (LocalNetwork::new(), "/pids".parse()?);
/// let (node, root) = NodeBuilder::new(GroupKey::random()).found(network.bind("a")?, &[])?;
/// // Three ids. Other servers join.
/// PidServer::found(&node, &name, &root, 3)?;
///
/// let client = PidClient::connect(Arc::new(node), &name, limit)?;
/// let pid = client.alloc(limit)?.expect("three ids are free");
/// let id = pid.id();
/// client.free(pid, limit)?;
/// // The id comes again after both others.
/// let ids: Vec<u32> = (0..3).map(|_| Ok(client.alloc(limit)?.expect("free").id())).collect::<Result<
///     _,
///     squall::fleet::pool::pids::PidError,
/// >>()?;
/// assert_eq!(ids[2], id);
/// assert!(client.alloc(limit)?.is_none());
/// # Ok(())
/// # }
/// ```
pub struct PidClient {
    node: Arc<Node>,
    fleet: Name,
    session: Mutex<Session>,
}

impl fmt::Debug for PidClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PidClient").field("fleet", &self.fleet).finish_non_exhaustive()
    }
}

impl PidClient {
    /// Makes a client of the fleet of a name.
    ///
    /// # Errors
    /// [`PidErrorKind::NoServer`], [`PidErrorKind::TimedOut`], [`PidErrorKind::Full`],
    /// [`PidErrorKind::OtherService`].
    pub fn connect(node: Arc<Node>, name: &Name, limit: Duration) -> Result<PidClient, PidError> {
        let session = Session {
            key: 0,
            server: 0,
            fleet: 0,
            seen: 0,
            number: 0,
            lost: None,
            found: None,
            is_closed: false,
        };
        let client = PidClient { node, fleet: name.clone(), session: Mutex::new(session) };
        let deadline = Instant::now().checked_add(limit);
        client.connect_session(&mut client.session(), deadline).map_err(|it| client.error(it))?;
        Ok(client)
    }

    fn session(&self) -> squall_sys::sync::MutexGuard<'_, Session> {
        lock(&self.session, "a client of process ids")
    }

    fn error(&self, kind: Kind) -> PidError {
        PidError { fleet: self.fleet.clone(), kind }
    }

    /// Sends a request once. Without a reply, it may have run.
    fn send(
        &self,
        session: &Session,
        number: u64,
        operation: Operation,
        deadline: Option<Instant>,
    ) -> Result<Option<Reply>, Kind> {
        let left = time_left(deadline).unwrap_or(Duration::from_secs(3600));
        if left.is_zero() {
            return Err(Kind::TimedOut);
        }
        let Session { key: client, server, seen, .. } = *session;
        let request = Request { client, server, number, seen, operation };
        match self.node.call(&self.fleet, METHOD, &encode(&request), left).map_err(|lost| lost.fate) {
            Ok(bytes) => decode(&bytes).map(Some).ok_or(Kind::OtherService),
            Err(Fate::Dropped) => Err(Kind::OtherService),
            Err(fate) if fate.may_have_run() => Ok(None),
            Err(fate) => Err(Kind::NoServer(fate)),
        }
    }

    /// Makes the client known to the nearest server.
    fn connect_session(&self, session: &mut Session, deadline: Option<Instant>) -> Result<(), Kind> {
        loop {
            session.key = random();
            match self.send(session, session.number, Operation::Connect, deadline)? {
                Some(Reply::OtherServer { server, fleet }) => {
                    if fleet != session.fleet {
                        (session.fleet, session.seen) = (fleet, 0);
                    }
                    session.server = server;
                    return Ok(());
                }
                Some(Reply::Full) => return Err(Kind::Full),
                Some(_) => return Err(Kind::OtherService),
                None => {}
            }
        }
    }

    /// Makes a call, and remembers it until it has a reply (C1).
    fn finish(
        &self,
        session: &mut Session,
        operation: Operation,
        deadline: Option<Instant>,
    ) -> Result<Reply, Kind> {
        loop {
            let number = session.number + 1;
            let reply = self.send(session, number, operation, deadline);
            match reply? {
                None => session.lost = Some(operation),
                Some(Reply::OtherServer { .. }) => {
                    let was_lost = session.lost.is_some();
                    self.connect_session(session, deadline)?;
                    session.lost = None;
                    if was_lost && !matches!(operation, Operation::Alloc { .. }) {
                        // C2. The number is used up.
                        session.number = number;
                        return Err(Kind::ServerLost);
                    }
                }
                Some(Reply::Busy) => thread::sleep(RETRY),
                Some(reply) => {
                    (session.number, session.lost) = (number, None);
                    if let Reply::Drawn { round, .. } = reply {
                        session.seen = session.seen.max(round);
                    }
                    return Ok(reply);
                }
            }
        }
    }

    /// Makes a call, after one that was given up.
    fn call(
        &self,
        operation: impl FnOnce(&mut Session) -> Option<Operation>,
        limit: Duration,
    ) -> Result<Reply, Failed> {
        let deadline = Instant::now().checked_add(limit);
        let mut session = self.session();
        let not_begun = |kind| Failed { kind, may_have_run: false };
        if session.is_closed {
            return Err(not_begun(Kind::Closed));
        }
        if let Some(lost) = session.lost {
            match self.finish(&mut session, lost, deadline) {
                Ok(Reply::Drawn { fleet, id, round }) => session.found = Some(Pid { fleet, id, round }),
                Ok(_) | Err(Kind::ServerLost) => {}
                Err(kind) => return Err(not_begun(kind)),
            }
        }
        match operation(&mut session) {
            Some(operation) => self.finish(&mut session, operation, deadline).map_err(|kind| {
                let may_have_run = kind == Kind::ServerLost || session.lost.is_some();
                Failed { kind, may_have_run }
            }),
            None => {
                let found = session.found.take();
                Ok(found.map_or(Reply::AllInUse, |Pid { fleet, id, round }| Reply::Drawn {
                    fleet,
                    id,
                    round,
                }))
            }
        }
    }

    /// Allocates an id. `None` if all are in use or lost with their servers, except those that other calls
    /// were about to take, had just freed, or put back.
    ///
    /// # Errors
    /// [`PidErrorKind::TimedOut`]: an id that was drawn is the result of the next call.
    /// [`PidErrorKind::NoServer`], [`PidErrorKind::Closed`], [`PidErrorKind::Full`],
    /// [`PidErrorKind::OtherService`].
    /// # Cost
    /// A call of the nearest server.
    pub fn alloc(&self, limit: Duration) -> Result<Option<Pid>, PidError> {
        // The server gives up first, so that its reply comes in time.
        let limit_ms = u32::try_from((limit / 2).as_millis()).unwrap_or(u32::MAX);
        let operation =
            |session: &mut Session| session.found.is_none().then_some(Operation::Alloc { limit_ms });
        match self.call(operation, limit) {
            Ok(Reply::Drawn { fleet, id, round }) => Ok(Some(Pid { fleet, id, round })),
            Ok(Reply::AllInUse) => Ok(None),
            Ok(_) => Err(self.error(Kind::OtherService)),
            Err(failed) => Err(self.error(failed.kind)),
        }
    }

    /// Frees an id.
    ///
    /// # Errors
    /// [`PidNotFreed`], with the id if the call had no effect. Otherwise [`PidErrorKind::TimedOut`]: the
    /// client finishes the call before its next one. [`PidErrorKind::ServerLost`]: the id is free, or lost.
    /// # Cost
    /// A call of the nearest server.
    pub fn free(&self, pid: Pid, limit: Duration) -> Result<(), PidNotFreed> {
        let Pid { fleet, id, round } = pid;
        let (kind, may_have_run) = match self.call(|_| Some(Operation::Free { fleet, id, round }), limit) {
            Ok(Reply::Done) => return Ok(()),
            Ok(Reply::OtherFleet) => (Kind::OtherFleet, false),
            Ok(Reply::OutOfRange) => (Kind::OutOfRange, false),
            Ok(_) => (Kind::OtherService, false),
            Err(Failed { kind, may_have_run }) => (kind, may_have_run),
        };
        let pid = (!may_have_run).then_some(Pid { fleet, id, round });
        Err(PidNotFreed { pid, error: self.error(kind) })
    }

    /// Ends the client. Ids that it has stay in use. An id that a call without a reply has drawn becomes
    /// free.
    ///
    /// # Errors
    /// [`PidErrorKind::TimedOut`], [`PidErrorKind::NoServer`], [`PidErrorKind::Full`],
    /// [`PidErrorKind::OtherService`]: call it again.
    pub fn close(&self, limit: Duration) -> Result<(), PidError> {
        let deadline = Instant::now().checked_add(limit);
        let left = || time_left(deadline).unwrap_or(limit);
        match self.call(|_| None, left()) {
            Ok(Reply::Drawn { fleet, id, round }) => match self.free(Pid { fleet, id, round }, left()) {
                Err(PidNotFreed { pid: Some(pid), error }) => {
                    self.session().found = Some(pid);
                    return Err(error);
                }
                Err(PidNotFreed { error, .. }) if error.kind == Kind::TimedOut => return Err(error),
                Ok(()) | Err(_) => {}
            },
            Ok(_) | Err(Failed { kind: Kind::Closed, .. }) => {}
            // The allocation is not finished: a close would lose its id.
            Err(failed) => return Err(self.error(failed.kind)),
        }
        match self.call(|_| Some(Operation::Close), left()) {
            Ok(_) | Err(Failed { kind: Kind::ServerLost | Kind::Closed, .. }) => {
                self.session().is_closed = true;
                Ok(())
            }
            Err(failed) => Err(self.error(failed.kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_fleet::{GroupKey, LocalNetwork, NameOptions, NodeBuilder, ServiceCall};
    use std::sync::mpsc::channel;

    /// The first copy of an allocation has no reply in time. The server drops the second copy.
    #[test]
    fn a_close_ends_with_the_error_of_the_lost_allocation() {
        let limit = Duration::from_secs(60);
        let (node, root) =
            NodeBuilder::new(GroupKey::random()).found(LocalNetwork::new().bind("a").unwrap(), &[]).unwrap();
        let name: Name = "/pids".parse().unwrap();
        let (gate, closed) = channel::<()>();
        let state = Mutex::new((closed, 0, Vec::new()));
        let state = Arc::new(state);
        let of_calls = state.clone();
        let service = move |call: ServiceCall<'_>| {
            let Request { operation, .. } = decode(call.body)?;
            let mut state = of_calls.lock().unwrap();
            state.2.push(operation);
            Some(encode(&match operation {
                Operation::Connect => Reply::OtherServer { server: 1, fleet: 1 },
                Operation::Alloc { .. } => {
                    state.1 += 1;
                    match state.1 {
                        1 => _ = state.0.recv(),
                        2 => return None,
                        _ => {}
                    }
                    Reply::Drawn { fleet: 1, id: 5, round: 0 }
                }
                _ => Reply::Done,
            }))
        };
        node.serve(&name, &root, NameOptions::new(), service).unwrap();
        let client = PidClient::connect(Arc::new(node), &name, limit).unwrap();
        assert_eq!(client.alloc(Duration::from_millis(100)).unwrap_err().kind, Kind::TimedOut);
        drop(gate);
        assert_eq!(client.close(limit).unwrap_err().kind, Kind::OtherService);
        client.close(limit).unwrap();
        let freed = Operation::Free { fleet: 1, id: 5, round: 0 };
        assert!(state.lock().unwrap().2.contains(&freed), "the id of the lost allocation is in use for ever");
    }
}
