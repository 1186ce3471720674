//! A program that serves inspection, the page's server, and a small HTTP client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use squall::browse::{Builder, Server, Target};
use squall_web::{End, Options, Print, Site, WebError};

/// A folder that is removed when the value is dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("squall-web-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("it.sock")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The test's own process as the program, with the page's server.
pub(crate) struct Program {
    pub(crate) page: Page,
    server: Server,
    _folder: Folder,
}

impl Program {
    pub(crate) fn new(read_only: bool) -> Program {
        Program::with(read_only, None)
    }

    pub(crate) fn with(read_only: bool, print: Option<Print>) -> Program {
        let folder = Folder::new();
        let server = Builder::new().path(folder.socket()).serve().expect("a server");
        let page = Page::new(Target::Path(folder.socket()), read_only, print);
        Program { page, server, _folder: folder }
    }

    /// Ends the inspection server. Returns the page's server.
    pub(crate) fn end(self) -> Page {
        drop(self.server);
        self.page
    }
}

/// The page's server, on a thread of its own.
pub(crate) struct Page {
    pub(crate) address: String,
    pub(crate) port: u16,
    pub(crate) token: String,
    thread: JoinHandle<Result<End, WebError>>,
}

/// Author of the page's changes.
pub(crate) static AUTHOR: LazyLock<String> = LazyLock::new(|| {
    let own = std::fs::metadata("/proc/self").expect("this process");
    // The program takes a claim as it is if it ends with the true user.
    format!("ann, squall browse, user {}", own.uid())
});

impl Page {
    pub(crate) fn new(target: Target, read_only: bool, print: Option<Print>) -> Page {
        Page::with(Options { read_only, ..Page::options(target) }, print)
    }

    /// Returns options with a short interval.
    pub(crate) fn options(target: Target) -> Options {
        Options {
            target,
            port: 0,
            read_only: false,
            interval: Duration::from_millis(20),
            timeout: Duration::from_secs(10),
            author: AUTHOR.clone(),
        }
    }

    pub(crate) fn with(options: Options, print: Option<Print>) -> Page {
        Page::serve(Site::open(options).expect("it serves"), print)
    }

    pub(crate) fn serve(site: Site, print: Option<Print>) -> Page {
        let address = site.address();
        let parts: Vec<&str> = address.split(['/', ':']).collect();
        let (port, token) = (parts[4].parse().expect("a port"), parts[5].to_owned());
        Page { address, port, token, thread: std::thread::spawn(move || site.serve(print)) }
    }

    /// Waits for the end of the server.
    pub(crate) fn join(self) -> Result<End, WebError> {
        self.thread.join().expect("no panic")
    }

    /// Sends a request with these headers. Returns the answer without its body.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        // With version 1.0 the server sends the body as it is, and then closes.
        let mut request = format!("{method} {path} HTTP/1.0\r\ncontent-length: {}\r\n", body.len());
        headers.iter().for_each(|(name, value)| request += &format!("{name}: {value}\r\n"));
        stream.write_all(format!("{request}\r\n{body}").as_bytes()).expect("sent");
        let mut reader = BufReader::new(stream);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("text");
            match line.trim_end() {
                "" => break,
                text => lines.push(text.to_owned()),
            }
        }
        let status = lines[0].split(' ').nth(1).expect("a status").parse().expect("a number");
        Answer { status, headers: lines.split_off(1), reader }
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn path(&self, file: &str) -> String {
        format!("/{}/{file}", self.token)
    }

    pub(crate) fn get(&self, file: &str) -> Answer {
        self.send("GET", &self.path(file), &[("host", &self.host())], "")
    }

    /// Sends a change as the page does.
    pub(crate) fn post(&self, file: &str, body: &Value) -> Answer {
        let origin = format!("http://{}", self.host());
        let headers = [("host", &*self.host()), ("origin", &origin), ("x-squall-token", &self.token)];
        self.send("POST", &self.path(file), &headers, &body.to_string())
    }

    /// Returns the changes after the update with this number, or the reason why they are missing.
    pub(crate) fn news(&self, since: u64) -> Value {
        self.get(&format!("rows/7/{since}")).json()
    }

    /// Returns the changes after the update with this number. On a busy machine, the program may be late.
    pub(crate) fn rows(&self, since: u64) -> Value {
        loop {
            let answer = self.news(since);
            if answer["rows"].is_array() || answer["ended"].is_string() {
                return answer;
            }
        }
    }

    /// Follows the rows, as a page does.
    pub(crate) fn follow(&self) -> Follower<'_> {
        Follower { page: self, number: 0 }
    }

    /// Asks for rows until an answer satisfies the condition, and returns it.
    pub(crate) fn wait_for(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let answer = self.news(0);
            if is_it(&answer) {
                return answer;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Pause between two requests for rows.
const PAUSE: Duration = Duration::from_millis(5);

/// Reader of all changes.
pub(crate) struct Follower<'p> {
    page: &'p Page,
    number: u64,
}

impl Follower<'_> {
    /// Returns the next update with a change, or the end.
    pub(crate) fn next(&mut self) -> Value {
        loop {
            let answer = self.page.news(self.number);
            match answer["number"].as_u64() {
                Some(number) if number == self.number => {}
                Some(number) => {
                    self.number = number;
                    return answer;
                }
                None if answer["ended"].is_string() => return answer,
                None => {}
            }
            std::thread::sleep(PAUSE);
        }
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<String>,
    reader: BufReader<TcpStream>,
}

impl Answer {
    pub(crate) fn text(mut self) -> String {
        let mut text = String::new();
        self.reader.read_to_string(&mut text).expect("text");
        text
    }

    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.text()).expect("JSON")
    }

    /// Checks the status, and returns the reason of the refusal.
    pub(crate) fn refused(self, status: u16) -> String {
        assert_eq!(self.status, status);
        self.json()["error"].as_str().expect("a reason").to_owned()
    }
}

/// Returns the row of an object in an update.
pub(crate) fn row<'a>(update: &'a Value, id: &str) -> Option<&'a Value> {
    update["rows"].as_array().expect("rows").iter().find(|row| row["id"] == id)
}

/// Returns the ids of an update's rows.
pub(crate) fn ids(update: &Value) -> Vec<&str> {
    let rows = update["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().map(|row| row["id"].as_str().expect("an id")).collect()
}
