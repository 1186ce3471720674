//! An interface with an implementation, and servers in children of this process.

use squall_call::{ExportOptions, ImportOptions};
use squall_core::{Handle, Owned};
use squall_macros::interface;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};

/// The methods that tests call in another process.
#[interface(crate = crate::facade, remote)]
pub(crate) trait Shop: Send + Sync {
    /// Adds to a counter; returns the sum.
    fn add(&self, n: u64) -> u64;
    /// Stores a value under a key.
    fn put(&self, key: &str, value: Vec<u8>) -> Option<Vec<u8>>;
    /// Returns a value.
    fn get(&self, key: &str) -> Option<Vec<u8>>;
    /// Returns the sum of all bytes, or the position of the first zero as an error.
    fn sum(&self, bytes: &[u8]) -> Result<u64, usize>;
    /// Returns that many bytes.
    fn bytes(&self, count: usize) -> Vec<u8>;
    /// Panics.
    fn panic(&self);
    /// Counts the callers that wait, and returns when the gate opens.
    fn wait(&self) -> u32;
    /// Number of callers that wait.
    fn waiting(&self) -> u32;
    /// Opens the gate.
    fn open(&self);
    /// Ends the process at once.
    fn exit(&self);
    /// Returns two arrays as one. The result is longer than serde allows.
    fn join(&self, one: [u8; 48], two: &[u8; 16]) -> [u8; 64];
    /// Process and number of calls that this connection made of this method.
    fn who(&self) -> (u32, u32);
}

#[derive(Default)]
pub(crate) struct Counter {
    sum: Mutex<u64>,
    values: Mutex<HashMap<String, Vec<u8>>>,
    waiting: AtomicU32,
    gate: (Mutex<bool>, Condvar),
}

impl Shop for Counter {
    fn add(&self, n: u64) -> u64 {
        let mut sum = self.sum.lock().unwrap();
        *sum += n;
        *sum
    }

    fn put(&self, key: &str, value: Vec<u8>) -> Option<Vec<u8>> {
        self.values.lock().unwrap().insert(key.into(), value)
    }

    fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.values.lock().unwrap().get(key).cloned()
    }

    fn sum(&self, bytes: &[u8]) -> Result<u64, usize> {
        match bytes.iter().position(|byte| *byte == 0) {
            Some(at) => Err(at),
            None => Ok(bytes.iter().map(|byte| u64::from(*byte)).sum()),
        }
    }

    fn bytes(&self, count: usize) -> Vec<u8> {
        vec![7; count]
    }

    fn panic(&self) {
        panic!("asked for");
    }

    fn wait(&self) -> u32 {
        let at = self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = self.gate.0.lock().unwrap();
        while !*open {
            open = self.gate.1.wait(open).unwrap();
        }
        at
    }

    fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }

    fn open(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }

    fn exit(&self) {
        std::process::exit(0);
    }

    fn join(&self, one: [u8; 48], two: &[u8; 16]) -> [u8; 64] {
        let mut all = [0; 64];
        all[..48].copy_from_slice(&one);
        all[48..].copy_from_slice(two);
        all
    }

    fn who(&self) -> (u32, u32) {
        let caller = squall_call::caller().expect("this runs in a call");
        // Code of others that this thread serves meanwhile has no caller.
        assert!(squall_rcu::__run_served(squall_call::caller).is_none());
        let count = caller.value(|| AtomicU32::new(0));
        (caller.pid().unwrap_or(0), count.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

/// An object of this process.
pub(crate) fn shop() -> Owned<dyn Shop> {
    squall_core::shared::<dyn Shop, _>(Counter::default())
}

/// The ends of a socket pair as calls need it.
pub(crate) fn pair() -> (OwnedFd, OwnedFd) {
    squall_call::socket_pair().unwrap()
}

/// An object, its export on one end of a pair, and its import from the other.
pub(crate) fn exported(options: &ExportOptions) -> (Owned<dyn Shop>, squall_call::Export, Owned<dyn Shop>) {
    let object = shop();
    let (here, there) = pair();
    let export = options.export_on(object.handle(), here).unwrap();
    let imported = ImportOptions::new().import_from::<dyn Shop>(there).unwrap();
    (object, export, imported)
}

/// A name for one test, which no other run of the tests uses.
pub(crate) fn name(of: &str) -> String {
    format!("test-{}-{of}", std::process::id())
}

/// A child of this process that is killed when this value is dropped.
pub(crate) struct Server(pub(crate) Child);

impl Server {
    /// Starts a process that exports a shop by this name.
    pub(crate) fn start(name: &str) -> Server {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new(program)
            .args(["--exact", "processes::the_server", "--nocapture", "--ignored"])
            .env("SQUALL_TEST_EXPORT", name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It says so when it has exported the object.
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        assert!(lines.any(|line| line.unwrap().contains("exported")), "the server did not start");
        Server(child)
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `done` returns true, for any time.
pub(crate) fn until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

/// The kind of error of a call.
pub(crate) fn kind<T: std::fmt::Debug>(
    result: Result<T, squall_core::CallError>,
) -> squall_core::CallErrorKind {
    result.unwrap_err().reason()
}

pub(crate) fn transport(transport: squall_core::Transport) -> squall_core::CallErrorKind {
    squall_core::CallErrorKind::Transport(transport)
}

/// Calls `add` and checks that the object is the expected one.
pub(crate) fn adds(shop: Handle<dyn Shop>, n: u64, sum: u64) {
    assert_eq!(shop.add(n), sum);
}
