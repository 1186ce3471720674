//! Tasks: objects with a thread of their own that runs their calls one at a time.
//!
//! - I1. Calls begin in the order in which they entered `waiting`. Each begins after the one before has
//!   ended.
//! - I2. While `running` there is a thread. The caller that enqueues a call while there is no thread starts
//!   one. The thread ends only if it finds the queue empty and the object `ended`. Both decisions are made
//!   under the lock, so each call has a thread.
//! - I3. A queued call has a caller that waits for it, or is one of at most `SENT_MAX` asynchronous calls. So
//!   the queue is bounded.
//!
//! Source: KTK §2.2 (KT-05), after Ada's tasks. The methods are the entries. There are no guards: an entry
//! that cannot serve yet says so by its result, or the object is a monitor.

use squall_core::class_of;
use squall_core::wrap::{Job, in_transfer};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use super::{IN_OPERATION, IN_TRANSFER};
use crate::invoke::{ASYNCHRONOUS, Dispatch, Mode, WAITING_MAX, threads};
use crate::policy::{Block, Policy};

/// Task: an object with one thread of its own, which runs the calls one at a time, in order of arrival. Calls
/// with arguments or results that are not `Send` run on their callers' threads (see below). Callers wait. The
/// methods may use thread-locals of the task's thread.
///
/// The first call starts the thread, named `squall-task` or as given to [`Task::named`] and listed by
/// [`invoke::threads`](crate::invoke::threads()). It ends when the object has ended. The thread and the order
/// survive swaps: earlier calls run on the old implementation, later ones on the new one.
///
/// A method with an argument or a result that is not `Send` runs on its caller's thread, in its turn, while
/// the task's thread waits. A call that a method makes of its own object is refused, because it would wait
/// for itself. A call by an export or an import of a swap is refused too, because earlier calls in the queue
/// may wait for that swap. A panic goes to the caller; the task continues with the next call.
///
/// The caller of an [`ASYNCHRONOUS`] call enqueues it and goes on. A method must not wait for such a call of
/// its own object, because the call is behind it in the queue. Up to 65,536 such calls are queued; later ones
/// end with [`InvokeError::Full`](crate::invoke::InvokeError::Full).
///
/// # Cost
/// Two thread switches and one allocation for each call. An idle task has no wake-ups.
/// # Example
/// ```
/// use squall::policy::{Task, governed};
/// use std::cell::Cell;
/// use std::thread;
///
/// thread_local! {
///     // The task's own: nobody else sees it.
///     static TOTAL: Cell<u64> = const { Cell::new(0) };
/// }
///
/// #[squall::interface]
/// trait Teller: Send + Sync {
///     #[blocking]
///     fn deposit(&self, n: u64) -> u64;
/// }
/// struct Account;
/// impl Teller for Account {
///     fn deposit(&self, n: u64) -> u64 {
///         TOTAL.set(TOTAL.get() + n);
///         TOTAL.get()
///     }
/// }
///
/// let teller: squall::Owned<dyn Teller> = governed(Task::new(), |_| Account);
/// let handle = teller.handle();
/// assert_eq!(teller.deposit(3), 3);
/// assert_eq!(thread::spawn(move || handle.deposit(4)).join().unwrap(), 7);
/// assert_eq!(TOTAL.get(), 0);
/// ```
pub struct Task {
    name: Cow<'static, str>,
    line: Arc<Line>,
}

#[derive(Default)]
struct Line {
    state: Mutex<State>,
    /// Notified when the thread has something to do.
    bell: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Entry>,
    running: bool,
    /// Id of the thread, once it runs.
    thread: Option<ThreadId>,
    ended: bool,
    taken: u64,
    /// Number of asynchronous calls in `waiting`, at most `SENT_MAX`.
    sent: usize,
}

/// Largest number of asynchronous calls in the queue.
const SENT_MAX: usize = WAITING_MAX;

/// A queued call.
enum Entry {
    Job(Job),
    /// Its caller does not wait.
    Sent(Dispatch),
    /// The caller runs the call itself.
    Turn(Arc<Turn>),
}

/// Turn of a call that stays on its caller's thread.
#[derive(Default)]
struct Turn {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Waiting,
    Begun,
    Over,
}

impl Turn {
    fn set(&self, stage: Stage) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
        self.changed.notify_one();
    }

    fn wait_for(&self, stage: Stage) {
        let mut now = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        while *now != stage {
            now = self.changed.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Guard of a turn. Dropping it, also in a panic, ends the turn.
struct EndTurn(Arc<Turn>);

impl Drop for EndTurn {
    fn drop(&mut self) {
        self.0.set(Stage::Over);
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The code under the lock does not panic between two changes that belong together, so a poisoned lock
        // is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Body of the task's thread.
    fn run(&self) {
        let mut state = self.lock();
        state.thread = Some(thread::current().id());
        loop {
            if let Some(entry) = state.waiting.pop_front() {
                state.taken += 1;
                state.sent -= usize::from(matches!(entry, Entry::Sent(_)));
                drop(state);
                match entry {
                    Entry::Job(job) => job.run(),
                    Entry::Sent(call) => call.run(),
                    Entry::Turn(turn) => {
                        turn.set(Stage::Begun);
                        turn.wait_for(Stage::Over);
                    }
                }
                state = self.lock();
            } else if state.ended {
                (state.running, state.thread) = (false, None);
                return;
            } else {
                state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Task {
    /// Creates a task with a thread named `squall-task`.
    pub fn new() -> Task {
        Task::named("squall-task")
    }

    /// Creates a task with a thread of this name. Linux shows its first 15 bytes.
    ///
    /// ```
    /// use squall::policy::{Binding, Task};
    /// # #[squall::interface]
    /// # trait Work: Send + Sync {
    /// #     #[blocking]
    /// #     fn run(&self);
    /// # }
    /// # struct Worker;
    /// # impl Work for Worker { fn run(&self) {} }
    /// let task = Binding::new(Task::named("my-worker"));
    /// let work: squall::Owned<dyn Work> = task.govern(|_| Worker)?;
    /// work.run();
    /// assert!(squall::policy::invoke::threads().iter().any(|name| name == "my-worker"));
    /// assert_eq!((task.taken(), task.waiting()), (1, 0));
    /// # Ok::<(), squall::policy::GovernError>(())
    /// ```
    pub fn named(name: impl Into<Cow<'static, str>>) -> Task {
        Task { name: name.into(), line: Arc::default() }
    }

    /// Returns the number of calls that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.line.lock().waiting.len()
    }

    /// Returns the number of calls taken so far.
    pub fn taken(&self) -> u64 {
        self.line.lock().taken
    }

    /// Enqueues a call. If no thread can be started, or the queue has too many asynchronous calls, returns
    /// it.
    fn put(&self, entry: Entry) -> Result<(), (NoPlace, Entry)> {
        let mut state = self.line.lock();
        let sent = usize::from(matches!(entry, Entry::Sent(_)));
        if state.sent + sent > SENT_MAX {
            return Err((NoPlace::Full, entry));
        }
        state.ended = false;
        if !state.running {
            let line = Arc::clone(&self.line);
            // The thread first waits for our lock. On failure we return with the lock held, so `running`
            // matches the threads (I2).
            if threads::spawn(&self.name, move || line.run()).is_err() {
                return Err((NoPlace::NoThread, entry));
            }
            state.running = true;
        }
        state.sent += sent;
        state.waiting.push_back(entry);
        self.line.bell.notify_one();
        Ok(())
    }
}

/// Reason why a call was not enqueued.
enum NoPlace {
    /// The system could not start a thread.
    NoThread,
    /// There are too many asynchronous calls.
    Full,
}

const NO_THREAD: &str = "the system could not start a thread for its task";

impl Policy for Task {
    const WAITS: bool = true;
    const MODES: &'static [&'static Mode] = &[&ASYNCHRONOUS];

    fn invoke_mode(&self, _asynchronous: &'static Mode, call: Dispatch) {
        let id = call.id();
        match self.put(Entry::Sent(call)) {
            Err((NoPlace::Full, Entry::Sent(call))) => call.end_full(),
            Err((_, Entry::Sent(call))) => call.refuse(NO_THREAD),
            _ => {}
        }
        // The object may have ended just before the call was enqueued.
        if class_of(id).is_none() {
            self.ended();
        }
    }

    fn invoke(&self, block: &mut Block<'_>) {
        if squall_rcu::in_operation() {
            return block.refuse(IN_OPERATION);
        }
        if in_transfer() {
            return block.refuse(IN_TRANSFER);
        }
        if self.line.lock().thread == Some(thread::current().id()) {
            if block.is_in(&ASYNCHRONOUS) {
                return block.proceed();
            }
            return block.refuse("this is the task's own thread and would wait for itself");
        }
        if !block.can_be_sent() {
            let turn = Arc::new(Turn::default());
            if self.put(Entry::Turn(Arc::clone(&turn))).is_err() {
                return block.refuse(NO_THREAD);
            }
            turn.wait_for(Stage::Begun);
            let _end = EndTurn(turn);
            return block.proceed();
        }
        let in_line = |job| {
            // If there is no thread, the job is dropped here.
            drop(self.put(Entry::Job(job)));
        };
        if block.proceed_elsewhere(in_line).is_err() {
            block.refuse(NO_THREAD);
        }
    }

    fn ended(&self) {
        self.line.lock().ended = true;
        self.line.bell.notify_one();
    }
}

impl Default for Task {
    fn default() -> Task {
        Task::new()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.ended();
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (waiting, taken) = (self.waiting(), self.taken());
        f.debug_struct("Task").field("waiting", &waiting).field("taken", &taken).finish_non_exhaustive()
    }
}
