//! Client: one connection to a program that serves inspection.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

#[cfg(all(target_os = "linux", not(miri)))]
use crate::connect::{Stream, connect};
#[cfg(not(all(target_os = "linux", not(miri))))]
use crate::elsewhere::{Stream, connect};
use crate::protocol::{
    ActionView, Answer, AttributeView, CallsView, Changes, DecisionView, Detail, GroupView, Hello, ListQuery,
    Listing, MachineView, MemoryView, NodeView, PoolView, RecordsView, RefusalKind, Request, SwapView,
    VERSION,
};
use crate::target::{ClientError, Target};

/// Default time to wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest answer accepted.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A connection to a program. Requests are answered in order; each method waits for its answer.
///
/// ```
/// use squall::browse::{Builder, Client, Target};
///
/// let path = std::env::temp_dir().join(format!("squall-doc-client-{}.sock", std::process::id()));
/// let server = Builder::new().path(&path).serve()?;
/// let mut client = Client::connect(&Target::Path(path))?;
/// assert_eq!(client.hello()?.pid, std::process::id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    /// Bytes received after the last answer.
    received: Vec<u8>,
    timeout: Duration,
    /// Author that changes are recorded with.
    author: Option<String>,
    /// `true` if the program accepts authors.
    records_authors: bool,
    /// `true` while an answer is missing or incomplete: the next bytes may be the rest of it.
    out_of_step: bool,
}

impl Client {
    /// Connects and checks the protocol version. Waits up to 30 s for each answer.
    ///
    /// # Errors
    /// [`ClientError`]: the process does not exist, does not serve inspection, belongs to another user, or
    /// speaks another version of the protocol. [`ClientError::System`] on systems other than Linux.
    pub fn connect(target: &Target) -> Result<Client, ClientError> {
        Client::connect_within(target, TIMEOUT)
    }

    /// Connects with a time limit for each answer.
    ///
    /// # Errors
    /// [`ClientError`], as for [`Client::connect`].
    pub fn connect_within(target: &Target, timeout: Duration) -> Result<Client, ClientError> {
        let stream = connect(target, timeout)?;
        let mut client = Client {
            stream,
            received: Vec::new(),
            timeout,
            author: None,
            records_authors: false,
            out_of_step: false,
        };
        let hello = client.hello()?;
        client.records_authors = hello.records_authors;
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

    /// Sets the author that the program records for the further changes of this client. The program cannot
    /// verify it. So it adds the user and the process that the kernel reports, unless the author ends with
    /// `user NAME` of that very user. A program with an older version of Squall does not record it.
    pub fn set_author(&mut self, author: impl Into<String>) {
        self.author = self.records_authors.then(|| author.into());
    }

    /// Returns `true` if the program has closed the connection. Sends no request, so it costs the program no
    /// time. Waits up to a millisecond.
    pub fn has_ended(&mut self) -> bool {
        if !self.out_of_step {
            let waiting = self.stream.set_read_timeout(Some(Duration::from_millis(1)));
            // The program sends answers alone, so bytes are the reason of an end.
            self.out_of_step = match waiting.and_then(|()| self.stream.read(&mut [0])) {
                Ok(_) => true,
                Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            };
        }
        self.out_of_step
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
    /// use squall::browse::{Builder, Client, Target, protocol::{ListQuery, Sort}};
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

    /// Lists the rows that changed since the previous calls of this function: at first all rows. One call
    /// returns a part; [`Changes::complete`] tells the last part.
    ///
    /// # Errors
    /// The errors of [`Client::hello`]. A program with an older version of Squall refuses: see
    /// [`Hello::operations`].
    ///
    /// ```
    /// use squall::browse::{Builder, Client, Target};
    /// # let path = std::env::temp_dir().join(format!("squall-doc-changes-{}.sock", std::process::id()));
    /// # let server = Builder::new().path(&path).serve()?;
    /// # let mut client = Client::connect(&Target::Path(path))?;
    /// let first = client.changes()?;
    /// assert!(first.complete && first.objects.len() == first.total);
    /// let second = client.changes()?;
    /// assert!(second.objects.is_empty() && second.gone.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn changes(&mut self) -> Result<Changes, ClientError> {
        self.ask(&Request::Changes {})
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
        self.ask(&Request::Swaps { id: None })
    }

    /// Lists the latest swaps of one object, oldest first.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    ///
    /// # Cost
    /// A program with an older version of Squall sends the swaps of all objects.
    pub fn swaps_of(&mut self, id: &str) -> Result<Vec<SwapView>, ClientError> {
        match self.ask(&Request::Swaps { id: Some(id.to_owned()) }) {
            Err(error) if error.is_bad_request() => {
                let all = self.swaps()?;
                Ok(all.into_iter().filter(|swap| swap.id == id).collect())
            }
            answer => answer,
        }
    }

    /// Lists the latest changes that clients asked for, oldest first.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn actions(&mut self) -> Result<Vec<ActionView>, ClientError> {
        self.ask(&Request::Actions { id: None })
    }

    /// Lists the latest changes that clients asked for, of one object and of all objects together. The oldest
    /// comes first.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    ///
    /// # Cost
    /// A program with an older version of Squall sends all changes.
    pub fn actions_of(&mut self, id: &str) -> Result<Vec<ActionView>, ClientError> {
        match self.ask(&Request::Actions { id: Some(id.to_owned()) }) {
            Err(error) if error.is_bad_request() => {
                let all = self.actions()?;
                Ok(all.into_iter().filter(|action| action.id.as_ref().is_none_or(|of| of == id)).collect())
            }
            answer => answer,
        }
    }

    /// Asks for the topology that the program uses.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn machine(&mut self) -> Result<MachineView, ClientError> {
        self.ask(&Request::Machine {})
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
        let author = self.author.clone();
        self.ask(&Request::Set { id: id.to_owned(), name: name.to_owned(), value: value.to_owned(), author })
    }

    /// Unsets an attribute of an object, so that the value of its class, or the default, applies again.
    /// Returns `true` if the object had a value of its own.
    ///
    /// # Errors
    /// The errors of [`Client::hello`]. A program with an older version of Squall refuses: see
    /// [`Hello::operations`].
    pub fn unset(&mut self, id: &str, name: &str) -> Result<bool, ClientError> {
        let author = self.author.clone();
        self.ask(&Request::Unset { id: id.to_owned(), name: name.to_owned(), author })
    }

    /// Freezes an object, so that its policy does not change it, or thaws it.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn freeze(&mut self, id: &str, frozen: bool) -> Result<(), ClientError> {
        let (id, author) = (id.to_owned(), self.author.clone());
        self.ask(&if frozen { Request::Freeze { id, author } } else { Request::Thaw { id, author } })
    }

    /// Freezes all objects, or thaws those that are not frozen individually.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn freeze_all(&mut self, frozen: bool) -> Result<(), ClientError> {
        let author = self.author.clone();
        self.ask(&if frozen { Request::FreezeAll { author } } else { Request::ThawAll { author } })
    }

    /// Swaps an object for the implementation with this name. Returns the report of the swap.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn swap(&mut self, id: &str, implementation: &str) -> Result<SwapView, ClientError> {
        let (id, implementation) = (id.to_owned(), implementation.to_owned());
        self.ask(&Request::Swap { id, implementation, author: self.author.clone() })
    }

    /// Denies all other processes a method of an exported object, or allows it again. Calls that run go on.
    ///
    /// # Errors
    /// The errors of [`Client::hello`]. The program refuses if the object is not exported or has no such
    /// method. A program with an older version of Squall refuses: see [`Hello::operations`].
    pub fn set_right(&mut self, id: &str, method: &str, is_allowed: bool) -> Result<(), ClientError> {
        let (id, method, author) = (id.to_owned(), method.to_owned(), self.author.clone());
        self.ask(&match is_allowed {
            true => Request::Allow { id, method, author },
            false => Request::Deny { id, method, author },
        })
    }

    /// Ends a connection of another process to an exported object. `caller` is
    /// [`CallerView::number`](crate::protocol::CallerView::number).
    ///
    /// # Errors
    /// The errors of [`Client::set_right`].
    pub fn disconnect(&mut self, id: &str, caller: u64) -> Result<(), ClientError> {
        self.ask(&Request::Disconnect { id: id.to_owned(), caller, author: self.author.clone() })
    }

    /// Lists the nodes of the program: the members and visitors of groups.
    ///
    /// # Errors
    /// The errors of [`Client::hello`]. A program with an older version of Squall refuses: see
    /// [`Hello::operations`].
    pub fn nodes(&mut self) -> Result<Vec<NodeView>, ClientError> {
        self.ask(&Request::Nodes {})
    }

    /// Asks for the group of a node, with the figures of all members that answer. `node` is
    /// [`NodeView::number`].
    ///
    /// # Errors
    /// The errors of [`Client::nodes`]. The program refuses if it has no such node, or if no member answers.
    pub fn group(&mut self, node: u64) -> Result<GroupView, ClientError> {
        self.ask(&Request::Group { node })
    }

    /// Lets a node leave its group in two phases. Returns `true` once it has left, or after a second `false`:
    /// then it goes on leaving. `node` is [`NodeView::number`].
    ///
    /// # Errors
    /// The errors of [`Client::nodes`]. The program refuses if it has no such node, or if the node is no
    /// member.
    pub fn leave(&mut self, node: u64) -> Result<bool, ClientError> {
        self.ask(&Request::Leave { node, author: self.author.clone() })
    }

    /// Lists the members of pools in the program.
    ///
    /// # Errors
    /// The errors of [`Client::nodes`].
    pub fn pools(&mut self) -> Result<Vec<PoolView>, ClientError> {
        self.ask(&Request::Pools {})
    }

    /// Counts an object's calls for a span. Each of its calls costs more during the count.
    ///
    /// # Errors
    /// The errors of [`Client::hello`].
    pub fn sample(&mut self, id: &str, span_ms: u64) -> Result<CallsView, ClientError> {
        self.ask(&Request::Sample { id: id.to_owned(), span_ms })
    }

    /// Takes the sums of the records since the previous call. The first call begins the recording, which ends
    /// if the next call does not come within `within_ms`, or with the connection.
    ///
    /// # Errors
    /// The errors of [`Client::hello`]. [`ClientError::Refused`] if the program was built without the feature
    /// `monitors`, or the time is longer than [`RECORDS_MS_MAX`](crate::protocol::RECORDS_MS_MAX).
    pub fn records(&mut self, within_ms: u64) -> Result<RecordsView, ClientError> {
        self.ask(&Request::Records { within_ms })
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

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

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
