//! Poller: the thread with the connection to the program.
//!
//! Problem: the connection answers one request at a time, and its calls block, but any number of pages look
//! at the program. Idea: one thread owns the connection. It polls for all pages at once, and carries out
//! their requests between two polls.
//!
//! - I1. While no page and no script looks, the program gets no request. The thread only checks whether the
//!   connection has ended.
//! - I2. A page gets all rows first, then the changes of each poll in order. A page that reads too slowly to
//!   get a change gets all rows again.
//! - I3. The thread never waits for a page.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use squall_browse::protocol::{ListQuery, OBJECTS_MAX, Sort};
use squall_browse::{Client, ClientError, Target};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use crate::rows::{Rows, Update};

/// Longest time to wait for an answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two checks of the connection while no page looks.
const IDLE: Duration = Duration::from_millis(250);

/// One use of the connection.
pub(crate) type Use = Box<dyn FnOnce(&mut Client, &mut Rows) + Send>;

/// A request to the poller.
pub(crate) enum Command {
    /// Sends rows from now on, until the channel is closed.
    Watch(Sender<Arc<Update>>),
    /// Uses the connection once.
    Use(Use),
}

/// A page or script that gets rows.
struct Watcher {
    sender: Sender<Arc<Update>>,
    /// `true` if it must get all rows next.
    behind: bool,
}

pub(crate) struct Poller {
    client: Client,
    target: Target,
    pid: u32,
    author: String,
    interval: Duration,
    rows: Rows,
    watchers: Vec<Watcher>,
}

impl Poller {
    pub(crate) fn new(
        client: Client,
        target: Target,
        pid: u32,
        author: String,
        interval: Duration,
    ) -> Poller {
        Poller { client, target, pid, author, interval, rows: Rows::default(), watchers: Vec::new() }
    }

    /// Serves commands until the program ends, or until all senders are gone. Returns the reason of the end.
    /// The channels of the pages stay open until the poller is dropped.
    pub(crate) fn run(&mut self, commands: &Receiver<Command>) -> ClientError {
        let mut next = Instant::now();
        loop {
            let wait = match self.watchers.is_empty() {
                true => IDLE,
                false => next.saturating_duration_since(Instant::now()),
            };
            match commands.recv_timeout(wait) {
                Ok(Command::Watch(sender)) => {
                    self.watchers.push(Watcher { sender, behind: true });
                    next = Instant::now();
                }
                Ok(Command::Use(request)) => request(&mut self.client, &mut self.rows),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return ClientError::Gone,
            }
            self.watchers.retain(|watcher| !watcher.sender.is_closed());
            if self.client.has_ended()
                && let Err(error) = self.reconnect()
            {
                return error;
            }
            if !self.watchers.is_empty() && Instant::now() >= next {
                match self.poll() {
                    Ok(()) => {}
                    // The next turn connects again, or ends.
                    Err(ClientError::Gone | ClientError::NoAnswer(_)) => continue,
                    Err(error) => return error,
                }
                next = Instant::now() + self.interval;
            }
        }
    }

    /// Polls all objects, and sends the changes.
    fn poll(&mut self) -> Result<(), ClientError> {
        let mut objects = Vec::new();
        let mut query = ListQuery { sort: Sort::Id, limit: Some(OBJECTS_MAX), ..ListQuery::default() };
        let all_frozen = loop {
            let listing = self.client.list(&query)?;
            let is_last = listing.objects.len() < OBJECTS_MAX;
            objects.extend(listing.objects);
            if is_last {
                break listing.all_frozen;
            }
            query.after = objects.last().map(|object| object.id.clone());
        };
        let update = self.rows.compare(&objects, all_frozen, Instant::now()).map(Arc::new);
        let mut full = None;
        for watcher in &mut self.watchers {
            let message = match (&update, watcher.behind) {
                (_, true) => Arc::clone(full.get_or_insert_with(|| Arc::new(self.rows.full()))),
                (Some(update), false) => Arc::clone(update),
                (None, false) => continue,
            };
            watcher.behind = matches!(watcher.sender.try_send(message), Err(TrySendError::Full(_)));
        }
        Ok(())
    }

    /// Connects again. A full server ends the connection of its longest silent client.
    fn reconnect(&mut self) -> Result<(), ClientError> {
        let mut client = Client::connect_within(&self.target, TIMEOUT)?;
        if client.hello()?.pid != self.pid {
            return Err(ClientError::Gone);
        }
        client.set_author(&*self.author);
        self.client = client;
        Ok(())
    }
}
