//! The cooperative tasks of a dispatcher: futures of one thread.
//!
//! - I1. A task is in the queue at most once. A wake-up while it runs queues it again.
//! - I2. The dispatcher leaves its waker under the lock of the queue, and only while the queue is empty. A
//!   wake-up queues its task under the same lock, and takes the waker. So no wake-up is missed.
//! - I3. A slot is used again for another task. A waker of the old one then wakes the new one once too often,
//!   which is harmless: each poll looks anew.

use crate::waiters::wake;
use squall_sys::panics::{drop_payload, end_panic};
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::{Arc, Mutex, MutexGuard, lock};
use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Wake, Waker};

pub(crate) type Work = Pin<Box<dyn Future<Output = ()>>>;

/// The tasks that can run.
pub(crate) struct Queue(Mutex<State>);

struct State {
    runnable: VecDeque<usize>,
    /// The idle work was woken.
    idle: bool,
    sleeper: Option<Waker>,
}

impl Queue {
    pub(crate) fn new() -> Queue {
        Queue(Mutex::new(State { runnable: VecDeque::new(), idle: false, sleeper: None }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0, "the tasks of a dispatcher")
    }

    fn push(&self, slot: usize) {
        let mut state = self.lock();
        state.runnable.push_back(slot);
        let sleeper = state.sleeper.take();
        drop(state);
        sleeper.into_iter().for_each(wake);
    }

    fn pop(&self) -> Option<usize> {
        self.lock().runnable.pop_front()
    }

    /// Wakes the idle work.
    fn wake_idle(&self) {
        let mut state = self.lock();
        state.idle = true;
        let sleeper = state.sleeper.take();
        drop(state);
        sleeper.into_iter().for_each(wake);
    }

    /// Returns whether the idle work was woken since the last call.
    pub(crate) fn take_idle(&self) -> bool {
        std::mem::take(&mut self.lock().idle)
    }

    /// Ends a sleep.
    pub(crate) fn awake(&self) {
        let unused = self.lock().sleeper.take();
        drop(unused);
    }

    /// Leaves the waker of the dispatcher. Returns false if a task or the idle work can run.
    pub(crate) fn sleep(&self, waker: &Waker) -> bool {
        let mut new = Some(waker.clone());
        let mut state = self.lock();
        let sleeps = state.runnable.is_empty() && !state.idle;
        if sleeps {
            std::mem::swap(&mut state.sleeper, &mut new);
        }
        drop(state);
        drop(new);
        sleeps
    }

    /// Wakes the dispatcher, if it sleeps.
    pub(crate) fn wake(&self) {
        let sleeper = self.lock().sleeper.take();
        sleeper.into_iter().for_each(wake);
    }
}

/// The waker of one task.
struct TaskWaker {
    slot: usize,
    is_queued: AtomicBool,
    queue: Arc<Queue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // AcqRel: pairs with the swap in `run_next`. The poll after a wake-up sees all that came before it.
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.queue.push(self.slot);
        }
    }
}

/// The waker of the idle work.
pub(crate) struct IdleWaker(pub(crate) Arc<Queue>);

impl Wake for IdleWaker {
    fn wake(self: Arc<Self>) {
        self.0.wake_idle();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake_idle();
    }
}

struct Task {
    work: Work,
    waker: Arc<TaskWaker>,
}

/// Numbers of a dispatcher.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) tasks: Cell<usize>,
    /// Requests without a reply, by class.
    pub(crate) requests: [Cell<usize>; 4],
    /// Replies that were given up, since their mailboxes stayed full.
    pub(crate) unsent: Cell<u64>,
    /// Tasks that ended by a panic.
    pub(crate) panics: Cell<u64>,
    /// Messages that were not well formed.
    pub(crate) malformed: Cell<u64>,
}

/// All tasks of a dispatcher.
pub(crate) struct Tasks {
    queue: Arc<Queue>,
    slots: Vec<Option<Task>>,
    unused: Vec<usize>,
    counts: Rc<Counts>,
}

impl Tasks {
    pub(crate) fn new(queue: Arc<Queue>, counts: Rc<Counts>) -> Tasks {
        Tasks { queue, slots: Vec::new(), unused: Vec::new(), counts }
    }

    /// Adds a task, which can run.
    pub(crate) fn add(&mut self, work: Work) {
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let (is_queued, queue) = (AtomicBool::new(false), self.queue.clone());
        let waker = Arc::new(TaskWaker { slot, is_queued, queue });
        waker.wake_by_ref();
        self.slots[slot] = Some(Task { work, waker });
        self.counts.tasks.set(self.counts.tasks.get() + 1);
    }

    /// Runs a task up to its next wait. Returns false if no task can run.
    pub(crate) fn run_next(&mut self) -> bool {
        let Some(slot) = self.queue.pop() else { return false };
        // A waker of an ended task may still queue its slot (I3).
        let Some(task) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return true };
        // Before the poll: a wake-up from now on queues it again (I1). Acquire: see `wake_by_ref`.
        task.waker.is_queued.swap(false, Ordering::AcqRel);
        let waker = Waker::from(task.waker.clone());
        let work = &mut task.work;
        // Each request is a future of its own, so a panic leaves no other one half done.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut Context::from_waker(&waker))));
        if matches!(polled, Ok(poll) if poll.is_pending()) {
            return true;
        }
        if let Some(task) = self.slots[slot].take() {
            self.counts.tasks.set(self.counts.tasks.get() - 1);
            self.unused.push(slot);
            // The drop is the program's code, and answers a request that has no reply yet.
            end_panic(move || drop(task.work));
        }
        if let Err(payload) = polled {
            self.panicked(payload);
        }
        true
    }

    /// Notes a panic of the program's code.
    pub(crate) fn panicked(&mut self, payload: Box<dyn Any + Send>) {
        self.counts.panics.set(self.counts.panics.get() + 1);
        drop_payload(payload);
    }

    /// Drops all tasks.
    pub(crate) fn clear(&mut self) {
        for task in std::mem::take(&mut self.slots).into_iter().flatten() {
            end_panic(move || drop(task.work));
        }
        self.unused.clear();
        self.counts.tasks.set(0);
    }
}
