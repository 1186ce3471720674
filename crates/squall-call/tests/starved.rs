//! Calls of a server that can start no thread. A process of its own: the limit holds for all of its threads.
#![cfg(all(target_os = "linux", not(miri), not(loom)))]

use squall_call::{export_on, import_from, socket_pair, with_deadline};
use squall_core::{CallErrorKind, Transport};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

mod facade {
    pub(crate) use squall_core::__macro;
    pub(crate) mod call {
        pub(crate) use squall_call::__macro;
    }
}

#[squall_macros::interface(crate = crate::facade, remote)]
trait Gate: Send + Sync {
    /// Waits until the gate opens.
    fn wait(&self);
    /// Returns how often it was called.
    fn count(&self) -> u32;
}

#[derive(Default)]
struct Counted {
    waiting: AtomicU32,
    count: AtomicU32,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate for Arc<Counted> {
    fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut is_open = self.is_open.lock().unwrap();
        while !*is_open {
            is_open = self.opened.wait(is_open).unwrap();
        }
    }

    fn count(&self) -> u32 {
        self.count.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// Sets the largest size of this process's memory in bytes, so that no stack of a thread fits. Returns the
/// last one.
fn limit_memory(bytes: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both take a struct of this function.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &raw mut limit), 0);
        let last = std::mem::replace(&mut limit.rlim_cur, bytes);
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &raw const limit), 0);
        last
    }
}

/// The size of this process's memory in bytes.
fn memory() -> libc::rlim_t {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').next().unwrap().parse::<libc::rlim_t>().unwrap() * 4096
}

/// Whether all other threads of this process have started, and sleep. A thread that starts needs memory.
fn others_sleep() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let states = tasks.map(|task| {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
        // The state comes after the name, which is in parentheses.
        stat.rsplit(')').next().unwrap().trim_start().starts_with('S')
    });
    states.filter(|sleeps| !sleeps).count() == 1
}

#[test]
fn a_server_without_threads_answers_every_call() {
    let counted = Arc::new(Counted::default());
    let object = squall_core::shared::<dyn Gate, _>(counted.clone());
    let (here, there) = socket_pair().unwrap();
    let _export = export_on(object.handle(), here).unwrap();
    let imported = import_from::<dyn Gate>(there).unwrap();
    let handle = imported.handle();
    std::thread::scope(|scope| {
        // Threads of the test, from before the limit.
        let thread = |call: fn(squall_core::Handle<dyn Gate>) -> u32| {
            let (begin, begins) = mpsc::channel::<()>();
            let thread = scope.spawn(move || {
                begins.recv().unwrap();
                call(handle)
            });
            (begin, thread)
        };
        let (hold, holds) = thread(|gate| {
            gate.wait();
            0
        });
        let (again, tries_again) = thread(|gate| gate.count());
        while !others_sleep() {
            std::thread::yield_now();
        }
        let last = limit_memory(memory() + (1 << 20));
        assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "a thread can be started");

        // The reserved worker serves single calls.
        assert_eq!(handle.count(), 1);
        assert_eq!(handle.count(), 2);
        // It is in use. Other calls are refused, and never run.
        hold.send(()).unwrap();
        while counted.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let refused = with_deadline(Duration::from_millis(20), || handle.try_count());
        assert_eq!(refused.unwrap_err().reason(), CallErrorKind::Transport(Transport::Busy));
        assert_eq!(counted.count.load(Ordering::SeqCst), 2);
        // Without a deadline, a call tries again until there is a thread.
        again.send(()).unwrap();
        limit_memory(last);
        assert_eq!(tries_again.join().unwrap(), 3);
        *counted.is_open.lock().unwrap() = true;
        counted.opened.notify_all();
        holds.join().unwrap();
    });
    assert_eq!(object.count(), 4);
}
