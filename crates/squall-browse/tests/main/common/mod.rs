//! A program that serves inspection, and well-behaved and raw clients.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use squall_browse::{Builder, Client, Server, Target, protocol::ListQuery};
use squall_core::{Handle, Owned, shared};

#[squall_macros::interface(crate = squall_core)]
pub(crate) trait Hits: Send + Sync {
    fn add(&self, n: u64) -> u64;
}

#[derive(Default)]
struct Shared(AtomicU64);

impl Hits for Shared {
    fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed) + n
    }
}

/// Serialises the tests that freeze or thaw all objects of the process, or that fill or read its log of
/// changes.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static FREEZING: Mutex<()> = Mutex::new(());
    FREEZING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates an object.
pub(crate) fn hits() -> Owned<dyn Hits> {
    shared(Shared::default())
}

/// A folder that is removed when the value is dropped.
#[derive(Debug)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("squall-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server at a path of its own, and an object that must keep working.
pub(crate) struct Program {
    pub(crate) server: Server,
    pub(crate) object: Owned<dyn Hits>,
    calls: AtomicU64,
    _folder: Folder,
}

impl Program {
    pub(crate) fn new(builder: Builder) -> Program {
        let folder = Folder::new();
        let server = builder.path(folder.0.join("it.sock")).serve().expect("a server");
        Program { server, object: hits(), calls: AtomicU64::new(0), _folder: folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.server.path()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&Target::Path(self.path().to_owned())).expect("a good client is let in")
    }

    pub(crate) fn raw(&self) -> Raw {
        Raw::new(self.path())
    }

    pub(crate) fn id(&self) -> String {
        Handle::id(self.object.handle()).to_string()
    }

    /// Checks that a well-behaved client is answered, and that the object has counted every call.
    pub(crate) fn check(&self) {
        let mut client = self.client();
        let listing = client.list(&ListQuery { limit: Some(1), ..ListQuery::default() }).expect("an answer");
        assert!(listing.total >= 1 && listing.objects.len() == 1, "{listing:?}");
        assert_eq!(client.object(&self.id()).expect("an answer").row.interface, "Hits");
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        assert_eq!(self.object.handle().add(1), calls);
    }
}

/// A client that sends raw bytes.
pub(crate) struct Raw {
    pub(crate) stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Raw {
    pub(crate) fn new(path: &Path) -> Raw {
        let stream = UnixStream::connect(path).expect("a connection");
        let reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        Raw { stream, reader }
    }

    /// Writes as much as the server accepts before it closes.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Reads the next answer; empty once the connection has ended.
    pub(crate) fn answer(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        match self.reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(serde_json::from_slice(&line).unwrap_or_else(|error| {
                panic!("not JSON: {:?} ({error})", String::from_utf8_lossy(&line));
            })),
        }
    }

    /// Reads the next answer, which is an error. Returns its kind and its message.
    pub(crate) fn error(&mut self) -> (String, String) {
        let answer = self.answer().expect("an answer");
        let text = |key: &str| answer["error"][key].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        (text("kind"), text("message"))
    }
}
