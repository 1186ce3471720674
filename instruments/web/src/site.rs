//! Server of the page: its connection to the program, its port and its threads.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use squall_browse::protocol::Hello;
use squall_browse::{Client, ClientError, Target};
use tokio::sync::oneshot;

use crate::access::Token;
use crate::http::{self, Shared};
use crate::poll::{Command, Poller, TIMEOUT};
use crate::rows::Update;

/// Time for the pages to read that the program has ended.
const GRACE: Duration = Duration::from_secs(10);
/// Updates that the reader of the printed rows may leave unread before it gets all rows again.
const PRINTED_MAX: usize = 16;

/// Options of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Program to show.
    pub target: Target,
    /// Port on the loopback interface. Zero takes a free one.
    pub port: u16,
    /// `true` if the page cannot change the program.
    pub read_only: bool,
    /// Time between two polls of the program while a page looks.
    pub interval: Duration,
    /// Author that the program records for changes from the page.
    pub author: String,
}

/// Server of the page, with its port and its connection, before it serves.
pub struct Site {
    options: Options,
    client: Client,
    hello: Hello,
    listener: TcpListener,
    address: SocketAddr,
    token: Token,
}

/// Reason why the server ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum End {
    /// The program has ended, or has stopped its inspection server. The text names it.
    Program(String),
    /// The reader of the printed rows is gone.
    Output(io::Error),
}

/// Reason why the server failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum WebError {
    /// The program cannot be reached, or its answers are not understood.
    Program(ClientError),
    /// The port cannot be used.
    Port(u16, io::Error),
    /// An error of the operating system.
    System(io::Error),
}

impl fmt::Display for WebError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WebError::Program(error) => error.fmt(f),
            WebError::Port(port, error) => {
                write!(f, "cannot serve on port {port} of 127.0.0.1: {error}; --port 0 takes a free port")
            }
            WebError::System(error) => write!(f, "cannot serve the page: {error}"),
        }
    }
}

impl std::error::Error for WebError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            WebError::Program(error) => Some(error),
            WebError::Port(_, error) | WebError::System(error) => Some(error),
        }
    }
}

impl From<ClientError> for WebError {
    fn from(error: ClientError) -> WebError {
        WebError::Program(error)
    }
}

/// Prints one row. Called for each line.
pub type Print = Box<dyn FnMut(&str) -> io::Result<()> + Send>;

impl Site {
    /// Connects to the program, takes the port and draws the token.
    ///
    /// # Errors
    /// [`WebError`]: the program cannot be reached, or the port is in use.
    pub fn open(options: Options) -> Result<Site, WebError> {
        let mut client = Client::connect_within(&options.target, TIMEOUT)?;
        let hello = client.hello()?;
        client.set_author(&*options.author);
        let port = |error| WebError::Port(options.port, error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).map_err(port)?;
        listener.set_nonblocking(true).map_err(port)?;
        let address = listener.local_addr().map_err(port)?;
        let token = Token::draw().map_err(WebError::System)?;
        Ok(Site { options, client, hello, listener, address, token })
    }

    /// Returns the address of the page, with its token.
    pub fn address(&self) -> String {
        format!("http://{}/{}/", self.address, self.token.text())
    }

    /// Serves the page until the program ends. With `print`, also prints rows as JSON: all rows first, then
    /// those that change.
    ///
    /// # Errors
    /// [`WebError`]: the program answers no longer, or the system has no threads left.
    pub fn serve(self, print: Option<Print>) -> Result<End, WebError> {
        let Site { options, client, hello, listener, address, token } = self;
        let ended = format!(
            "{} (process {}) has ended, or has stopped its inspection server",
            hello.program, hello.pid
        );
        let Options { target, author, interval, read_only, .. } = options;
        let poller = Poller::new(client, target, hello.pid, author.clone(), interval);
        let (commands, received) = mpsc::channel();
        let (ends, mut first_end) = tokio::sync::mpsc::channel(2);
        let end = Arc::new(OnceLock::new());
        spawn_poller(poller, received, Arc::clone(&end), ended, ends.clone())?;
        let printer = match print {
            Some(print) => Some(spawn_printer(print, &commands, ends)?),
            None => None,
        };
        let port = address.port();
        let shared = Shared { token, port, read_only, author, hello, commands, end };
        let router = http::router(Arc::new(shared));
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().map_err(WebError::System)?;
        let end = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(WebError::System)?;
            let (stop, stopped) = oneshot::channel::<()>();
            let server = axum::serve(listener, router).with_graceful_shutdown(async {
                let _ = stopped.await;
            });
            let server = tokio::spawn(server.into_future());
            let end = first_end.recv().await.unwrap_or(Err(WebError::Program(ClientError::Gone)));
            drop(stop);
            if matches!(end, Ok(End::Program(_))) {
                // A page that does not read is left behind.
                let _ = tokio::time::timeout(GRACE, server).await;
            }
            end
        });
        if let (Ok(End::Program(_)), Some(printer)) = (&end, printer) {
            // The channel is closed, so the thread prints the rest and ends.
            let _ = printer.join();
        }
        end
    }
}

type Ends = tokio::sync::mpsc::Sender<Result<End, WebError>>;

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<thread::JoinHandle<()>, WebError> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(WebError::System)
}

/// Starts the thread of the poller. It publishes the reason of the end before it closes the channels.
fn spawn_poller(
    mut poller: Poller,
    commands: mpsc::Receiver<Command>,
    end: Arc<OnceLock<String>>,
    ended: String,
    ends: Ends,
) -> Result<(), WebError> {
    spawn("squall-web-poll", move || {
        let result = match poller.run(&commands) {
            ClientError::Gone | ClientError::NoProcess(_) | ClientError::NotServing { .. } => {
                let _ = end.set(ended.clone());
                Ok(End::Program(ended))
            }
            error => {
                let _ = end.set(error.to_string());
                Err(WebError::Program(error))
            }
        };
        drop(poller);
        // The server has ended if nobody receives it.
        let _ = ends.blocking_send(result);
    })
    .map(drop)
}

/// Starts the thread that prints rows.
fn spawn_printer(
    mut print: Print,
    commands: &mpsc::Sender<Command>,
    ends: Ends,
) -> Result<thread::JoinHandle<()>, WebError> {
    let (sender, mut updates) = tokio::sync::mpsc::channel(PRINTED_MAX);
    let _ = commands.send(Command::Watch(sender));
    spawn("squall-web-print", move || {
        let mut printed = BTreeSet::new();
        while let Some(update) = updates.blocking_recv() {
            if let Err(error) = print_update(&update, &mut printed, &mut print) {
                let _ = ends.blocking_send(Ok(End::Output(error)));
                return;
            }
        }
    })
}

/// Prints the rows of an update, and the objects that were printed and are gone.
fn print_update(update: &Update, printed: &mut BTreeSet<String>, print: &mut Print) -> io::Result<()> {
    let there = || update.rows.iter().map(|row| row.id.clone()).collect::<BTreeSet<_>>();
    let gone = match update.full {
        true => printed.difference(&there()).cloned().collect(),
        false => update.gone.clone(),
    };
    update.rows.iter().try_for_each(|row| print(&row.json))?;
    printed.extend(there());
    gone.iter().try_for_each(|id| {
        printed.remove(id);
        print(&serde_json::json!({ "id": id, "state": "gone" }).to_string())
    })
}
