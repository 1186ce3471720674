//! Server of the page: its connection to the program, its port and its threads.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use squall_browse::protocol::{Hello, MachineView};
use squall_browse::{ClientError, Target};

use crate::accept;
use crate::access::Token;
use crate::http::{self, Pages, Shared};
use crate::poll::{Command, News, Poller, Settings};
use crate::rows::Update;

/// Longest time for the pages to read that the program has ended.
const GRACE: Duration = Duration::from_secs(10);
/// Options of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Program to show.
    pub target: Target,
    /// Port on the loopback interface. Zero takes a free one.
    pub port: u16,
    /// `true` if the page cannot change the program.
    pub read_only: bool,
    /// Shortest time between two polls of the program while a page looks.
    pub interval: Duration,
    /// Longest time to wait for an answer of the program, before the server connects again.
    pub timeout: Duration,
    /// Author that the program records for changes from the page.
    pub author: String,
}

/// Server of the page, with its port and its connection, before it serves.
pub struct Site {
    options: Options,
    poller: Poller,
    hello: Hello,
    machine: MachineView,
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
        let Options { target, author, interval, timeout, .. } = options.clone();
        let (poller, hello, machine) = Poller::open(Settings { target, author, interval, timeout })?;
        let port = |error| WebError::Port(options.port, error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).map_err(port)?;
        listener.set_nonblocking(true).map_err(port)?;
        let address = listener.local_addr().map_err(port)?;
        let token = Token::draw().map_err(WebError::System)?;
        Ok(Site { options, poller, hello, machine, listener, address, token })
    }

    /// Returns the address of the page, with its token.
    pub fn address(&self) -> String {
        format!("http://{}/{}/", self.address, self.token.text())
    }

    /// Serves the page until the program ends, or stops its inspection server. Connects again after any other
    /// failure of the connection. With `print`, also prints rows as JSON: all rows first, then those that
    /// change. While there is no connection, `{"lost": REASON}` is printed, and `{"lost": null}` at its end.
    ///
    /// # Errors
    /// [`WebError`]: the system has no threads left, or the port fails.
    pub fn serve(self, print: Option<Print>) -> Result<End, WebError> {
        let Site { options, poller, hello, machine, listener, address, token } = self;
        let ended = format!(
            "{} (process {}) has ended, or has stopped its inspection server",
            hello.program, hello.pid
        );
        let Options { author, interval, read_only, .. } = options;
        let (commands, received) = mpsc::channel();
        let (ends, mut first_end) = tokio::sync::mpsc::channel(2);
        let end = Arc::new(OnceLock::new());
        // Dropped by the poller's thread, which so ends the pause of the printer.
        let (alive, is_alive) = mpsc::channel();
        spawn_poller(poller, received, Arc::clone(&end), ended, ends.clone(), alive)?;
        let printer = match print {
            Some(print) => Some(spawn_printer(print, commands.clone(), interval, is_alive, ends)?),
            None => None,
        };
        let port = address.port();
        let pages = Arc::<Pages>::default();
        let told = Arc::clone(&pages);
        let shared =
            Shared { token, port, read_only, author, hello, machine, interval, commands, end, pages };
        let router = http::router(Arc::new(shared));
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().map_err(WebError::System)?;
        let end = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(WebError::System)?;
            let end = async {
                let end = first_end.recv().await.unwrap_or(Err(WebError::Program(ClientError::Gone)));
                if matches!(end, Ok(End::Program(_))) {
                    // A page that asks no more is left behind.
                    let _ = tokio::time::timeout(GRACE, told.all_told()).await;
                }
                end
            };
            accept::serve(listener, router, end).await
        });
        if let (Ok(End::Program(_)), Some(printer)) = (&end, printer) {
            // The poller has ended, so the thread ends after its present line.
            let _ = printer.join();
        }
        end
    }
}

type Ends = tokio::sync::mpsc::Sender<Result<End, WebError>>;

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<thread::JoinHandle<()>, WebError> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(WebError::System)
}

/// Starts the thread of the poller. It publishes the reason of the end before it drops the commands.
fn spawn_poller(
    mut poller: Poller,
    commands: mpsc::Receiver<Command>,
    end: Arc<OnceLock<String>>,
    ended: String,
    ends: Ends,
    alive: mpsc::Sender<()>,
) -> Result<(), WebError> {
    spawn("squall-web-poll", move || {
        poller.run(&commands);
        let _ = end.set(ended.clone());
        drop((commands, alive));
        // The server has ended if nobody receives it.
        let _ = ends.blocking_send(Ok(End::Program(ended)));
    })
    .map(drop)
}

/// Starts the thread that prints rows, once in each interval.
fn spawn_printer(
    mut print: Print,
    commands: mpsc::Sender<Command>,
    interval: Duration,
    is_alive: mpsc::Receiver<()>,
    ends: Ends,
) -> Result<thread::JoinHandle<()>, WebError> {
    spawn("squall-web-print", move || {
        let (mut number, mut printed, mut lost) = (0, BTreeSet::new(), None);
        loop {
            let (sender, news) = mpsc::channel();
            let ask: Command = Box::new(move |poller| drop(sender.send(poller.news(number))));
            if commands.send(ask).is_err() {
                return;
            }
            // The poller drops the command if the program ends.
            let Ok(news) = news.recv() else { return };
            if let Err(error) = print_news(&news, &mut printed, &mut lost, &mut print) {
                let _ = ends.blocking_send(Ok(End::Output(error)));
                return;
            }
            number = news.update.number;
            if is_alive.recv_timeout(interval) != Err(mpsc::RecvTimeoutError::Timeout) {
                return;
            }
        }
    })
}

/// Prints a change of the connection, and the rows of an update.
fn print_news(
    news: &News,
    printed: &mut BTreeSet<String>,
    lost: &mut Option<String>,
    print: &mut Print,
) -> io::Result<()> {
    if news.lost != *lost {
        lost.clone_from(&news.lost);
        print(&serde_json::json!({ "lost": lost }).to_string())?;
    }
    print_update(&news.update, printed, print)
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
