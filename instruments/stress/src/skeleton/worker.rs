//! Workers and the exit hooks of their threads. A worker is a place where one thread after another runs.
//!
//! - I1. A worker names its thread only while that thread is alive. A thread that acts on the named thread
//!   holds the worker's lock. So a reused thread id of another process is never hit.
//! - I2. An exit hook runs while the thread-locals of its thread are destroyed. A thread has two: one runs
//!   before the library's own exit hook and one after it. Destructors run in the opposite order of the first
//!   uses.
//! - I3. A hook is pending from before its thread can end until it has run. A thread that counts as finished
//!   may still run its hooks, and could be stuck there. It must not be joined then.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::process::Pid;
use rustix::thread::gettid;

use crate::run::{Rng, lock};

/// A place where one thread after another runs.
#[derive(Default)]
pub(crate) struct Worker {
    thread: Mutex<Option<Pid>>,
    /// Steps begun by all threads of the worker.
    steps_begun: AtomicU64,
    pub(crate) exit_hooks: ExitHooks,
}

/// The calling thread is attached to the worker until this is dropped.
pub(crate) struct Attached<'a>(&'a Worker);

impl Worker {
    /// Names the calling thread as the worker's thread (I1).
    pub(crate) fn attach(&self) -> Attached<'_> {
        *lock(&self.thread) = Some(gettid());
        Attached(self)
    }

    /// Records that a step begins.
    pub(crate) fn begin_step(&self) {
        self.steps_begun.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn steps_begun(&self) -> u64 {
        self.steps_begun.load(Ordering::Relaxed)
    }

    /// Calls `f` with the worker's thread, if there is one (I1).
    pub(crate) fn with_thread(&self, f: impl FnOnce(Pid)) {
        if let Some(thread) = *lock(&self.thread) {
            f(thread);
        }
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        *lock(&self.0.thread) = None;
    }
}

/// The number of pending exit hooks of some threads (I3).
#[derive(Default)]
pub(crate) struct ExitHooks(AtomicUsize);

impl ExitHooks {
    pub(crate) fn are_pending(&self) -> bool {
        // Acquire: pairs with the release of the last hook: it is over.
        self.0.load(Ordering::Acquire) > 0
    }

    /// Runs `first_use`, the calling thread's first use of the library. At the thread's exit, `hook` runs
    /// twice: before and after the library's own exit hook (I2), each time with a random number.
    pub(crate) fn around_first_use<R>(
        &'static self,
        rng: &mut Rng,
        hook: impl Fn(u64) + Copy + 'static,
        first_use: impl FnOnce(&mut Rng) -> R,
    ) -> R {
        let number = rng.next();
        AFTER.with(|place| self.register(place, move || hook(number)));
        let result = first_use(rng);
        let number = rng.next();
        BEFORE.with(|place| self.register(place, move || hook(number)));
        result
    }

    fn register(&'static self, place: &Place, run: impl FnOnce() + 'static) {
        self.0.fetch_add(1, Ordering::Relaxed);
        let before = place.0.replace(Some(ExitHook { run: Box::new(run), pending: self }));
        assert!(before.is_none(), "a thread registers its hooks once");
    }
}

struct ExitHook {
    run: Box<dyn FnOnce()>,
    pending: &'static ExitHooks,
}

struct Place(Cell<Option<ExitHook>>);

// Two, each with a destructor that is registered at its first use (I2).
thread_local! {
    static AFTER: Place = const { Place(Cell::new(None)) };
    static BEFORE: Place = const { Place(Cell::new(None)) };
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(ExitHook { run, pending }) = self.0.take() {
            run();
            // Release: pairs with the acquire in `are_pending`.
            pending.0.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn exit_hooks_run_before_and_after_the_library() {
        static HOOKS: ExitHooks = ExitHooks(AtomicUsize::new(0));
        static RAN: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        struct Library;
        impl Drop for Library {
            fn drop(&mut self) {
                lock(&RAN).push("library");
            }
        }
        thread_local!(static LIBRARY: Library = const { Library });
        let body = || {
            let mut rng = Rng::new(1, 0);
            HOOKS.around_first_use(&mut rng, |_| lock(&RAN).push("hook"), |_| LIBRARY.with(|_| ()));
            assert!(HOOKS.are_pending() && lock(&RAN).is_empty());
        };
        thread::spawn(body).join().expect("no panic");
        assert!(!HOOKS.are_pending());
        assert_eq!(*lock(&RAN), ["hook", "library", "hook"]);
    }

    #[test]
    fn a_worker_names_its_thread_while_it_is_attached() {
        let worker = Worker::default();
        let named = || {
            let mut named = None;
            worker.with_thread(|thread| named = Some(thread));
            named
        };
        assert_eq!(named(), None);
        let attached = worker.attach();
        assert_eq!(named(), Some(gettid()));
        drop(attached);
        assert_eq!(named(), None);
    }
}
