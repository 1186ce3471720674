//! Poller: the thread with the connection to the program.
//!
//! Problem: the connection answers one request at a time, its calls block, and the program may close it or
//! stop answering at any time. But any number of pages look at the program. Idea: one thread owns the
//! connection and the rows. It carries out the commands of the server one after the other, and connects again
//! whenever it must.
//!
//! - I1. The program gets requests only for commands. Some time after the last one, the thread gives its
//!   connection up, if it can see the end of the program's process without it. Until then it only checks
//!   whether the connection has ended.
//! - I2. Any number of requests for rows polls the program at most once in an interval.
//! - I3. Only the end of the program, or of its inspection server, ends the thread. Any other failure is
//!   shown on the pages, and the thread tries again.
//! - I4. A change is sent at most once, and only while somebody waits for its outcome.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use squall_browse::protocol::{Hello, ListQuery, MachineView, OBJECTS_MAX, ObjectView, RefusalKind, Sort};
use squall_browse::{Client, ClientError, Target};

use crate::rows::{Rows, Update};

/// Time between two checks of the connection while there are no commands.
const IDLE: Duration = Duration::from_millis(250);
/// Pause after a failed attempt to connect.
const RETRY: Duration = Duration::from_millis(500);

/// Number of intervals without a command after which the connection is given up.
const REST_AFTER: u32 = 10;

/// A command, carried out by the poller's thread.
pub(crate) type Command = Box<dyn FnOnce(&mut Poller) + Send>;

/// Reason why the program did not carry out a request.
#[derive(Debug)]
pub(crate) enum AskError {
    /// There is no connection now. The request was not sent.
    Lost(String),
    /// The request was sent, and failed.
    Failed(ClientError),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::Lost(why) => {
                write!(f, "there is no connection to the program now: {why}; squall browse tries again")
            }
            AskError::Failed(error) => error.fmt(f),
        }
    }
}

/// How a poller connects.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) target: Target,
    pub(crate) author: String,
    pub(crate) interval: Duration,
    /// Longest time to wait for an answer.
    pub(crate) timeout: Duration,
}

/// The changes after an earlier poll, and the state of the connection.
pub(crate) struct News {
    pub(crate) update: Update,
    /// Reason why the rows are old, if they are.
    pub(crate) lost: Option<String>,
    /// Number of connections so far, without those after a rest.
    pub(crate) connections: u64,
}

pub(crate) struct Poller {
    settings: Settings,
    /// Process of the program, and the random number of its run.
    identity: (u32, Option<u64>),
    client: Option<Client>,
    /// Process of the program, if the target names it.
    process: Option<OwnedFd>,
    /// `true` if the connection was given up because nobody looked.
    is_resting: bool,
    /// Time of the latest command.
    asked: Instant,
    /// Number of connections so far, without those after a rest.
    connections: u64,
    rows: Rows,
    /// Reason of the latest failure, if no request succeeded after it.
    lost: Option<String>,
    /// Earliest time of the next attempt to connect.
    retry_at: Instant,
    has_ended: bool,
}

impl Poller {
    /// Connects, and asks for the program and its topology. The topology is empty if the program's version
    /// does not know that request.
    pub(crate) fn open(settings: Settings) -> Result<(Poller, Hello, MachineView), ClientError> {
        let mut client = Client::connect_within(&settings.target, settings.timeout)?;
        let hello = client.hello()?;
        let machine = or_default(client.machine())?;
        client.set_author(&*settings.author);
        // The connection lives, so the process of this number is still the program.
        let process = process_of(&settings.target).filter(|_| !client.has_ended());
        let rows = Rows::new(settings.interval);
        let poller = Poller {
            settings,
            identity: (hello.pid, hello.instance),
            client: Some(client),
            process,
            is_resting: false,
            asked: Instant::now(),
            connections: 1,
            rows,
            lost: None,
            retry_at: Instant::now(),
            has_ended: false,
        };
        Ok((poller, hello, machine))
    }

    /// Carries out commands until the program ends, or until all senders are gone.
    pub(crate) fn run(&mut self, commands: &Receiver<Command>) {
        while !self.has_ended {
            match commands.recv_timeout(IDLE) {
                Ok(command) => {
                    command(self);
                    self.asked = Instant::now();
                }
                Err(RecvTimeoutError::Timeout) => self.rest(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Looks whether the program has ended. Gives the connection up after a long time without commands.
    fn rest(&mut self) {
        let is_long = self.asked.elapsed() >= self.settings.interval * REST_AFTER;
        match &self.process {
            Some(process) if has_exited(process) => self.has_ended = true,
            Some(_) if is_long => (self.client, self.is_resting) = (None, true),
            // A command connects again.
            Some(_) if self.client.is_none() => {}
            _ => drop(self.client()),
        }
    }

    /// Returns the changes after the poll with this number. Polls the program first if the latest poll is
    /// older than the interval.
    pub(crate) fn news(&mut self, since: u64) -> News {
        if self.rows.are_older(self.settings.interval, Instant::now()) {
            match self.read(list_all) {
                Ok((objects, all_frozen)) => self.rows.compare(&objects, all_frozen, Instant::now()),
                Err(error) => {
                    self.lost.get_or_insert_with(|| error.to_string());
                }
            }
        }
        let (lost, connections) = (self.lost.clone(), self.connections);
        News { update: self.rows.since(since), lost, connections }
    }

    /// Notes the calls per second of an object, as they were counted.
    pub(crate) fn counted(&mut self, id: &str, calls_per_s: f64) {
        self.rows.counted(id, calls_per_s, Instant::now());
    }

    /// Sends requests that change nothing. Sends them again if the program has closed the connection.
    pub(crate) fn read<T>(
        &mut self,
        requests: impl Fn(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, AskError> {
        match self.act(&requests) {
            Err(AskError::Failed(ClientError::Gone)) => self.act(requests),
            answer => answer,
        }
    }

    /// Sends a request once.
    pub(crate) fn act<T>(
        &mut self,
        request: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, AskError> {
        let answer = request(self.client()?);
        self.lost = match &answer {
            Err(error) if !error.is_refusal() => Some(error.to_string()),
            _ => None,
        };
        answer.map_err(AskError::Failed)
    }

    /// Returns the connection. Connects again if it has ended.
    fn client(&mut self) -> Result<&mut Client, AskError> {
        if self.client.as_mut().is_some_and(Client::has_ended) {
            self.client = None;
        }
        if self.client.is_none() {
            self.connect()?;
        }
        self.client.as_mut().ok_or_else(|| AskError::Lost(String::new()))
    }

    fn connect(&mut self) -> Result<(), AskError> {
        let now = Instant::now();
        if let Some(why) = self.lost.as_ref().filter(|_| now < self.retry_at) {
            return Err(AskError::Lost(why.clone()));
        }
        match self.reconnect() {
            Ok(client) => {
                self.client = Some(client);
                self.connections += u64::from(!std::mem::take(&mut self.is_resting));
                self.lost = None;
                Ok(())
            }
            Err(error) => {
                self.has_ended = matches!(error, ClientError::NoProcess(_) | ClientError::NotServing { .. });
                self.retry_at = Instant::now() + RETRY;
                self.lost = Some(error.to_string());
                Err(AskError::Lost(error.to_string()))
            }
        }
    }

    /// Connects to the same program again.
    fn reconnect(&self) -> Result<Client, ClientError> {
        let Settings { target, author, timeout, .. } = &self.settings;
        let mut client = Client::connect_within(target, *timeout)?;
        let hello = client.hello()?;
        if (hello.pid, hello.instance) != self.identity {
            // Another program serves at the path or in the process. Its ids mean other objects.
            return Err(ClientError::NoProcess(self.identity.0));
        }
        client.set_author(&**author);
        Ok(client)
    }
}

/// Returns the process that a target names. Empty on a kernel without descriptors of processes.
fn process_of(target: &Target) -> Option<OwnedFd> {
    let Target::Process(pid) = target else { return None };
    pidfd_open(Pid::from_raw(i32::try_from(*pid).ok()?)?, PidfdFlags::empty()).ok()
}

/// Returns `true` if the process has ended.
fn has_exited(process: &OwnedFd) -> bool {
    let mut wait = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    poll(&mut wait, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// Lists all objects. Returns `true` with them if all objects are frozen.
fn list_all(client: &mut Client) -> Result<(Vec<ObjectView>, bool), ClientError> {
    let mut objects = Vec::new();
    let mut query = ListQuery { sort: Sort::Id, limit: Some(OBJECTS_MAX), ..ListQuery::default() };
    loop {
        let listing = client.list(&query)?;
        let is_last = listing.objects.len() < OBJECTS_MAX;
        objects.extend(listing.objects);
        if is_last {
            return Ok((objects, listing.all_frozen));
        }
        query.after = objects.last().map(|object| object.id.clone());
    }
}

/// Turns the refusal of an older program into an empty answer.
pub(crate) fn or_default<T: Default>(answer: Result<T, ClientError>) -> Result<T, ClientError> {
    match answer {
        Err(ClientError::Refused(refusal)) if refusal.kind == RefusalKind::BadRequest => Ok(T::default()),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_process_is_seen() {
        let own = process_of(&Target::Process(std::process::id())).expect("a descriptor");
        assert!(!has_exited(&own));
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        let other = process_of(&Target::Process(child.id())).expect("it was not waited for");
        child.wait().expect("it ends");
        assert!(has_exited(&other));
        assert!(process_of(&Target::Path("/".into())).is_none());
    }
}
