//! The threads that policies and invocations keep: named, and listed while they run.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

struct List {
    next: u64,
    running: Vec<(u64, String)>,
}

static LIST: Mutex<List> = Mutex::new(List { next: 0, running: Vec::new() });

fn list() -> MutexGuard<'static, List> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The names of the threads that run now for this crate's policies and invocations: `squall-invoke` of the pool, one for each
/// [`Task`](crate::policy::Task) that was called, `squall-call` for calls of [`ThreadedAdt`](crate::policy::ThreadedAdt)s.
pub fn threads() -> Vec<String> {
    list().running.iter().map(|(_, name)| name.clone()).collect()
}

/// A thread's place in the list.
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

/// Starts a thread that is listed while it runs. If there is none to be had, `f` is dropped.
pub(crate) fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let listed = Listed::new(name);
    Builder::new().name(name.to_owned()).spawn(move || {
        let _listed = listed;
        f();
    })
}
