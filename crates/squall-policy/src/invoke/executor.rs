//! Who runs asynchronous invocations: the program's executor, or the pool.
//!
//! - I1. The pool has at most `size` threads, made when there is work and none is idle; an idle one sleeps until it is rung.
//! - I2. Work that is in the queue is run: while there is some, there is a thread, whatever the size is set to.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;

use super::threads;

/// An invocation on its way: to be run once, by any thread. If it is dropped, its [`Handle`](super::Handle) says so.
pub type Work = Box<dyn FnOnce() + Send>;

/// What runs asynchronous invocations; any closure that takes [`Work`] is one.
pub trait Executor: Send + Sync + 'static {
    /// Has the work run by some thread, soon. It may park in a swap, and wait in methods marked `#[blocking]`; it never panics.
    fn execute(&self, work: Work);
}

impl<F: Fn(Work) + Send + Sync + 'static> Executor for F {
    fn execute(&self, work: Work) {
        self(work);
    }
}

static EXECUTOR: RwLock<Option<Arc<dyn Executor>>> = RwLock::new(None);

/// Lets `executor` run the invocations of [`asynchronous`](super::asynchronous) and its like from now on, or the pool again.
///
/// ```
/// use squall_policy::invoke;
/// use std::sync::Arc;
///
/// // As a runtime would have it: `|work| drop(runtime.spawn_blocking(work))`.
/// invoke::set_executor(Some(Arc::new(|work: invoke::Work| drop(std::thread::spawn(work)))));
/// invoke::set_executor(None);
/// ```
pub fn set_executor(executor: Option<Arc<dyn Executor>>) {
    let before = std::mem::replace(&mut *EXECUTOR.write().unwrap_or_else(PoisonError::into_inner), executor);
    // Outside the lock: it is the user's.
    drop(before);
}

/// Gives work to the program's executor, or to the pool.
pub(super) fn execute(work: Work) {
    // There are no threads in the child of a fork; the call errs.
    if squall_sys::fork::forked() {
        return work();
    }
    let executor = EXECUTOR.read().unwrap_or_else(PoisonError::into_inner).clone();
    match executor {
        Some(executor) => executor.execute(work),
        None => POOL.execute(work),
    }
}

/// The most work that waits in the pool; beyond it, who invokes runs its call itself.
pub const POOL_QUEUE_MAX: usize = 1 << 16;

struct Pool {
    state: Mutex<State>,
    /// Rings when there is work, or the size has changed.
    bell: Condvar,
}

struct State {
    /// None until it is asked for or set.
    size: Option<usize>,
    queue: VecDeque<Work>,
    threads: usize,
    idle: usize,
}

static POOL: Pool = Pool {
    state: Mutex::new(State { size: None, queue: VecDeque::new(), threads: 0, idle: 0 }),
    bell: Condvar::new(),
};

thread_local! {
    static IN_POOL: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is a thread of the pool.
pub(super) fn in_pool() -> bool {
    IN_POOL.get()
}

/// How many threads the pool may have: as many as there are processors for this process, unless it was set.
pub fn pool_size() -> usize {
    POOL.lock().size()
}

/// Sets how many threads the pool may have. With none it is switched off: who invokes runs the call at once. Threads beyond
/// the size end when they have nothing to do, with none when the queue is empty.
pub fn set_pool_size(threads: usize) {
    POOL.lock().size = Some(threads);
    POOL.bell.notify_all();
}

impl State {
    fn size(&mut self) -> usize {
        *self.size.get_or_insert_with(|| thread::available_parallelism().map_or(1, usize::from))
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under it panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn execute(&self, work: Work) {
        let mut state = self.lock();
        let size = state.size();
        if size == 0 || state.queue.len() >= POOL_QUEUE_MAX {
            drop(state);
            return work();
        }
        state.queue.push_back(work);
        if state.idle < state.queue.len() && state.threads < size {
            if threads::spawn("squall-invoke", || POOL.work()).is_ok() {
                state.threads += 1;
            } else if state.threads == 0 {
                // Nobody would run it. It is the only one: with none running, none was left (I2).
                let work = state.queue.pop_back();
                drop(state);
                work.into_iter().for_each(|work| work());
                return;
            }
        }
        drop(state);
        self.bell.notify_one();
    }

    /// A thread of the pool.
    fn work(&self) {
        IN_POOL.set(true);
        let mut state = self.lock();
        loop {
            let size = state.size();
            if state.threads > size && (size > 0 || state.queue.is_empty()) {
                state.threads -= 1;
                return;
            }
            if let Some(work) = state.queue.pop_front() {
                drop(state);
                // It catches what it calls; what is left is the drop of a result that nobody wants.
                let _ = catch_unwind(AssertUnwindSafe(work));
                state = self.lock();
            } else {
                state.idle += 1;
                state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

impl fmt::Debug for dyn Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Executor")
    }
}
