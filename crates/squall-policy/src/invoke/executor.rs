//! Executors of asynchronous invocations: the program's own, or the pool.
//!
//! - I1. The pool has at most `size` threads. One is started when there is work and no thread is idle. An
//!   idle thread sleeps until it is notified.
//! - I2. Queued work is always run: while the queue has work there is a thread, for every size.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;

use super::threads;

/// An invocation that any thread can run once. Dropping it ends its [`PendingCall`](super::PendingCall) with
/// [`InvokeError::Dropped`](super::InvokeError::Dropped).
pub type Work = Box<dyn FnOnce() + Send>;

/// Runs asynchronous invocations. Each closure that takes [`Work`] is an executor.
///
/// ```
/// use squall::policy::invoke::{Work, asynchronous_on};
/// # #[squall::interface]
/// # trait Mail: Send + Sync { fn send(&self, n: u64) -> u64; }
/// # struct Post;
/// # impl Mail for Post { fn send(&self, n: u64) -> u64 { n } }
/// # let mail: squall::Owned<dyn Mail> = squall::shared(Post);
/// let on_a_thread = |work: Work| drop(std::thread::spawn(work));
/// let pending = asynchronous_on(&on_a_thread, mail.handle(), |mail| mail.send(7));
/// assert_eq!(pending.wait()?, 7);
/// # Ok::<(), squall::policy::invoke::InvokeError>(())
/// ```
pub trait Executor: Send + Sync + 'static {
    /// Lets any thread run the work soon. The work may park during a swap, may block in methods marked
    /// `#[blocking]`, and never panics.
    fn execute(&self, work: Work);
}

impl<F: Fn(Work) + Send + Sync + 'static> Executor for F {
    fn execute(&self, work: Work) {
        self(work);
    }
}

static EXECUTOR: RwLock<Option<Arc<dyn Executor>>> = RwLock::new(None);

/// Sets the executor of [`asynchronous`](super::asynchronous) and the other asynchronous modes from now on.
/// `None` selects the pool again.
///
/// ```
/// use squall::policy::invoke;
/// use std::sync::Arc;
///
/// // As a runtime would have it: `|work| drop(runtime.spawn_blocking(work))`.
/// invoke::set_executor(Some(Arc::new(|work: invoke::Work| drop(std::thread::spawn(work)))));
/// invoke::set_executor(None);
/// ```
pub fn set_executor(executor: Option<Arc<dyn Executor>>) {
    let before = std::mem::replace(&mut *EXECUTOR.write().unwrap_or_else(PoisonError::into_inner), executor);
    // Dropped outside the lock, because the executor is user code.
    drop(before);
}

/// Passes work to the program's executor, or to the pool.
pub(super) fn execute(work: Work) {
    // A forked child has no threads. The call itself returns an error.
    if squall_sys::fork::forked() {
        return squall_rcu::__run_served(work);
    }
    let executor = EXECUTOR.read().unwrap_or_else(PoisonError::into_inner).clone();
    match executor {
        Some(executor) => executor.execute(work),
        None => POOL.execute(work),
    }
}

/// Largest number of invocations queued in the pool. Beyond it, the invoking thread runs its call itself.
pub const POOL_QUEUE_MAX: usize = 1 << 16;

struct Pool {
    state: Mutex<State>,
    /// Notified when there is work or the size has changed.
    bell: Condvar,
}

struct State {
    /// Absent until the size is read or set.
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

/// Returns `true` on a thread of the pool.
pub(super) fn in_pool() -> bool {
    IN_POOL.get()
}

/// Returns the largest number of threads that the pool may have. The default is the number of processors
/// available to this process.
///
/// ```
/// use squall::policy::invoke::{pool_size, set_pool_size};
///
/// assert!(pool_size() >= 1);
/// set_pool_size(2);
/// assert_eq!(pool_size(), 2);
/// ```
pub fn pool_size() -> usize {
    POOL.lock().size()
}

/// Sets the largest number of threads that the pool may have. Zero switches the pool off: the invoking thread
/// runs its call at once. Surplus threads end when they are idle; with zero, all end when the queue is empty.
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
        // The code under the lock does not panic between two changes that belong together, so a poisoned lock
        // is usable.
        squall_sys::sync::lock(&self.state, "the pool of invocations")
    }

    fn execute(&self, work: Work) {
        let mut state = self.lock();
        let size = state.size();
        if size == 0 || state.queue.len() >= POOL_QUEUE_MAX {
            drop(state);
            // On another thread the call would not see the state of this one either.
            return squall_rcu::__run_served(work);
        }
        state.queue.push_back(work);
        if state.idle < state.queue.len() && state.threads < size {
            if threads::spawn("squall-invoke", || POOL.work()).is_ok() {
                state.threads += 1;
            } else if state.threads == 0 {
                // No thread would run the work. It is alone in the queue, because without threads the queue
                // was empty (I2).
                let work = state.queue.pop_back();
                drop(state);
                work.into_iter().for_each(squall_rcu::__run_served);
                return;
            }
        }
        drop(state);
        self.bell.notify_one();
    }

    /// Body of a pool thread.
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
                // The work catches panics of the call. A panic can remain in the drop of a result without a
                // receiver.
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
