//! Threads of policies and invocations: named, and listed while they run.

use std::io;
use std::sync::{Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};

struct List {
    next: u64,
    running: Vec<(u64, String)>,
}

static LIST: Mutex<List> = Mutex::new(List { next: 0, running: Vec::new() });

fn list() -> MutexGuard<'static, List> {
    squall_sys::sync::lock(&LIST, "the list of threads")
}

/// Returns the names of the threads that run now for policies and invocations of this crate.
///
/// The pool's threads are named `squall-invoke`. Each [`Task`](crate::Task) that was called has one thread.
/// Calls of [`ThreadedAdt`](crate::ThreadedAdt)s run on threads named `squall-call`.
///
/// ```
/// assert!(squall::policy::invoke::threads().is_empty());
/// ```
pub fn threads() -> Vec<String> {
    list().running.iter().map(|(_, name)| name.clone()).collect()
}

/// Entry of a thread in the list.
struct Listed(u64);

impl Listed {
    fn new(name: &str) -> Listed {
        let mut list = list();
        let number = list.next;
        list.next += 1;
        list.running.push((number, name.to_owned()));
        Listed(number)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        list().running.retain(|(number, _)| *number != self.0);
    }
}

/// Starts a thread that is listed while it runs. If the system cannot start it, drops `f`.
pub(crate) fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let listed = Listed::new(name);
    Builder::new().name(name.to_owned()).spawn(move || {
        let _listed = listed;
        f();
    })
}
