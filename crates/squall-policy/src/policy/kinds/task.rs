//! Tasks: objects with a thread of their own, which takes their calls one at a time.
//!
//! - I1. Calls begin in the order in which they were put into `waiting`, and the next begins when the one before is over.
//! - I2. There is a thread while `running`; it is started by who puts a call in while there is none, and ends only where it
//!   finds no call and that the object has `ended`. Both look and act under the lock: so no call is left without a thread.
//! - I3. What waits is a call whose caller waits for it, so the line is no longer than there are callers.
//!
//! Source: KTK §2.2 (KT-05), Ada's tasks. Its entries are the methods. There are no guards: an entry that cannot serve yet
//! says so by its result, or the object is a monitor.

use squall_core::wrap::{Job, in_transfer};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use super::{IN_OPERATION, IN_TRANSFER};
use crate::invoke::threads;
use crate::policy::{Block, Policy};

/// A task: an object with one thread of its own, which makes all its calls, one at a time, in the order in which they came;
/// their callers wait. The methods are the entries of the task, and may use what is bound to a thread.
///
/// The thread is started by the first call, named `squall-task` or as [`Task::named`] says, listed by
/// [`invoke::threads`](crate::invoke::threads()), and ends when the object has ended. It survives swaps, and so does the order:
/// calls that had come before run on the old implementation, the others afterwards on the new one.
///
/// A method with an argument or a result that is not `Send` runs in its caller's thread, in its turn, while the task's thread
/// waits. A call that a method makes of its own object is refused, since it would wait for itself; so is one that an export or
/// an import of a swap makes, since what is before it in the line may wait for that swap. A panic goes to the caller; the task
/// goes on with the next call.
///
/// # Cost
/// Two thread switches for each call, and an allocation. No wake-ups while nobody calls.
/// # Example
/// ```
/// use squall_policy::{Task, governed};
/// use std::cell::Cell;
/// use std::thread;
///
/// thread_local! {
///     // The task's own: nobody else sees it.
///     static TOTAL: Cell<u64> = const { Cell::new(0) };
/// }
///
/// #[squall_macros::interface(crate = squall_core)]
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
/// let teller: squall_core::Owned<dyn Teller> = governed(Task::new(), |_| Account);
/// let co = teller.co();
/// assert_eq!(teller.deposit(3), 3);
/// assert_eq!(thread::spawn(move || co.deposit(4)).join().unwrap(), 7);
/// assert_eq!(TOTAL.get(), 0);
/// ```
pub struct Task {
    name: Cow<'static, str>,
    line: Arc<Line>,
}

#[derive(Default)]
struct Line {
    state: Mutex<State>,
    /// Rings when there is something for the thread.
    bell: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Entry>,
    running: bool,
    /// Which it is, once it runs.
    thread: Option<ThreadId>,
    ended: bool,
    taken: u64,
}

/// A call that waits.
enum Entry {
    Job(Job),
    /// Its caller makes it.
    Turn(Arc<Turn>),
}

/// A turn of a call that stays in its caller's thread.
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

/// The turn is over, by a panic too.
struct EndTurn(Arc<Turn>);

impl Drop for EndTurn {
    fn drop(&mut self) {
        self.0.set(Stage::Over);
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under it panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task's thread.
    fn run(&self) {
        let mut state = self.lock();
        state.thread = Some(thread::current().id());
        loop {
            if let Some(entry) = state.waiting.pop_front() {
                state.taken += 1;
                drop(state);
                match entry {
                    Entry::Job(job) => job.run(),
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
    /// A task whose thread is named `squall-task`.
    pub fn new() -> Task {
        Task::named("squall-task")
    }

    /// A task whose thread has this name; the system shows its first 15 bytes.
    pub fn named(name: impl Into<Cow<'static, str>>) -> Task {
        Task { name: name.into(), line: Arc::default() }
    }

    /// How many calls wait for their turn.
    pub fn waiting(&self) -> usize {
        self.line.lock().waiting.len()
    }

    /// How many calls it has taken.
    pub fn taken(&self) -> u64 {
        self.line.lock().taken
    }

    /// Puts a call into the line. If there is no thread for it, it is dropped.
    fn put(&self, entry: Entry) -> Result<(), NoThread> {
        let mut state = self.line.lock();
        state.ended = false;
        if !state.running {
            let line = Arc::clone(&self.line);
            // It waits for our lock. Given up with the lock held, so that `running` is true to what is there (I2).
            threads::spawn(&self.name, move || line.run()).map_err(|_| NoThread)?;
            state.running = true;
        }
        state.waiting.push_back(entry);
        self.line.bell.notify_one();
        Ok(())
    }
}

/// The system gave none.
struct NoThread;

const NO_THREAD: &str = "there is no thread for its task";

impl Policy for Task {
    const WAITS: bool = true;

    fn invoke(&self, block: &mut Block<'_>) {
        if squall_rcu::in_operation() {
            return block.refuse(IN_OPERATION);
        }
        if in_transfer() {
            return block.refuse(IN_TRANSFER);
        }
        if self.line.lock().thread == Some(thread::current().id()) {
            return block.refuse("this is the task's own thread, which would wait for itself");
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
            // If there is no thread, the job was dropped.
            let _ = self.put(Entry::Job(job));
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
