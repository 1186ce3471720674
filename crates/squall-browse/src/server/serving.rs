//! Loop of the server's thread.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, accept_with, send};
use rustix::process::geteuid;

use super::Limits;
use super::connection::{Connection, Input, Life};
use super::line::{Handler, answer_line, refused};
use crate::protocol::{REQUEST_BYTES_MAX, Refusal, RefusalKind};
use crate::session::{Peer, Session};

/// Pause in accepting clients after the system had no descriptor or memory for one.
const REST: Duration = Duration::from_millis(200);

/// State of the server's thread.
pub(super) struct Serving {
    listener: OwnedFd,
    stop: Arc<OwnedFd>,
    handler: Handler,
    clients: Vec<Connection>,
    limits: Limits,
    /// Time until which no client is accepted.
    resting_until: Option<Instant>,
}

/// Result of one wait.
struct Ready {
    stop: bool,
    listener: bool,
    clients: Vec<bool>,
}

impl Serving {
    pub(super) fn new(listener: OwnedFd, stop: Arc<OwnedFd>, handler: Handler, limits: Limits) -> Serving {
        Serving { listener, stop, handler, clients: Vec::new(), limits, resting_until: None }
    }

    pub(super) fn run(mut self) {
        loop {
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(Errno::INTR) => continue,
                // The kernel had no memory for the wait. It is tried again later.
                Err(_) => {
                    std::thread::sleep(REST);
                    continue;
                }
            };
            if ready.stop {
                return;
            }
            let now = Instant::now();
            let mut was_ready = ready.clients.into_iter();
            let (handler, patience) = (&mut self.handler, self.limits.patience);
            self.clients.retain_mut(|client| {
                let is_ready = was_ready.next().unwrap_or(false);
                turn(client, handler, is_ready, patience, now) == Life::Stays
            });
            if self.clients.is_empty() {
                // The memory is for clients alone.
                self.clients = Vec::new();
            }
            if self.resting_until.is_some_and(|until| until <= now) {
                self.resting_until = None;
            }
            if ready.listener {
                self.let_in(now);
            }
        }
    }

    /// Sleeps until there is work.
    fn wait(&self) -> Result<Ready, Errno> {
        let now = Instant::now();
        let mut waits: Vec<PollFd<'_>> = Vec::with_capacity(self.clients.len() + 2);
        waits.push(PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN));
        // While accepting pauses, only errors are polled, which a listener does not have.
        let listen = if self.resting_until.is_some() { PollFlags::empty() } else { PollFlags::IN };
        waits.push(PollFd::from_borrowed_fd(self.listener.as_fd(), listen));
        for client in &self.clients {
            let what = if client.is_writing() { PollFlags::OUT } else { PollFlags::IN };
            waits.push(PollFd::from_borrowed_fd(client.socket(), what));
        }
        let deadlines = self.clients.iter().filter_map(|client| client.deadline(self.limits.patience));
        let first = deadlines.chain(self.resting_until).min();
        let timeout = if self.clients.iter().any(Connection::has_input) {
            Some(Duration::ZERO)
        } else {
            first.map(|first| first.saturating_duration_since(now))
        };
        // A time that does not fit counts as no limit.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        poll(&mut waits, timeout.as_ref())?;
        let is_ready = |wait: &PollFd<'_>| !wait.revents().is_empty();
        Ok(Ready {
            stop: is_ready(&waits[0]),
            listener: waits[1].revents().contains(PollFlags::IN),
            clients: waits[2..].iter().map(is_ready).collect(),
        })
    }

    /// Accepts one waiting client.
    fn let_in(&mut self, now: Instant) {
        let socket = match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                self.resting_until = Some(now + REST);
                return;
            }
            // The client has gone, or the error concerns it alone.
            Err(_) => return,
        };
        let peer = match check_user(&socket) {
            Ok(peer) => peer,
            Err(refusal) => return turn_away(&socket, refusal),
        };
        if self.clients.len() >= self.limits.clients_max {
            let silent = |client: &Connection| {
                client.is_idle() && now.duration_since(client.heard) >= self.limits.silence
            };
            let clients = self.clients.iter().enumerate().filter(|(_, client)| silent(client));
            let Some((index, _)) = clients.min_by_key(|(_, client)| client.heard) else {
                let message =
                    format!("{} clients are connected already; try again later", self.clients.len());
                return turn_away(&socket, Refusal::new(RefusalKind::TooManyClients, message));
            };
            self.clients.swap_remove(index);
        }
        self.clients.push(Connection::new(socket, Session::new(peer), now));
    }
}

const ROOT: u32 = 0;

/// Checks that the client is the same user, or root. Returns its user and process.
///
/// The mode of the socket already ensures this. The check is for a socket with a changed mode, and for a
/// custom path.
fn check_user(socket: &OwnedFd) -> Result<Peer, Refusal> {
    let own = geteuid();
    match squall_sys::peer::peer(socket.as_fd()) {
        Ok(peer) if peer.uid == own.as_raw() || peer.uid == ROOT => Ok(Peer { uid: peer.uid, pid: peer.pid }),
        Ok(peer) => {
            let message = format!(
                "user {} may not inspect this program; only user {} and root may",
                peer.uid,
                own.as_raw()
            );
            Err(Refusal::new(RefusalKind::NotAllowed, message))
        }
        Err(error) => {
            let message = format!("the system did not report the client's user: {error}");
            Err(Refusal::new(RefusalKind::NotAllowed, message))
        }
    }
}

/// Sends the reason, as far as the socket accepts it at once.
fn turn_away(socket: &OwnedFd, refusal: Refusal) {
    let mut line = refused(refusal);
    line.push('\n');
    let _ = send(socket, line.as_bytes(), SendFlags::NOSIGNAL);
}

/// Runs one step for one client: at most one request.
fn turn(
    client: &mut Connection,
    handler: &mut Handler,
    ready: bool,
    patience: Duration,
    now: Instant,
) -> Life {
    if client.is_writing() {
        if ready && client.write(now) == Life::Ends {
            return Life::Ends;
        }
    } else if ready && !client.has_input() && client.read(now) == Life::Ends {
        return Life::Ends;
    }
    if client.has_input() {
        match client.next(now) {
            Input::Request(line) => {
                let answer = answer_line(handler, &mut client.session, &line);
                return client.answer(answer, Instant::now());
            }
            Input::Broken(kind) => return client.end_with(broken(kind), now),
            Input::End => return Life::Ends,
            Input::Nothing => {}
        }
    }
    match client.deadline(patience) {
        Some(deadline) if deadline <= now && client.is_writing() => Life::Ends,
        Some(deadline) if deadline <= now => {
            let message = format!("the rest of a request did not come within {} ms", patience.as_millis());
            client.end_with(Refusal::new(RefusalKind::TooSlow, message), now)
        }
        _ => Life::Stays,
    }
}

fn broken(kind: RefusalKind) -> Refusal {
    let message = match kind {
        RefusalKind::TooLong => {
            format!("a request has at most {REQUEST_BYTES_MAX} bytes, and ends with a newline")
        }
        _ => "the connection ended in the middle of a request, which ends with a newline".to_owned(),
    };
    Refusal::new(kind, message)
}
