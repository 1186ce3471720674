//! The cooperative tasks of a dispatcher: futures of one thread.
//!
//! - I1. A task is in the queue at most once. A wake-up while it runs queues it again.
//! - I2. The dispatcher leaves its waker under the lock of the queue, and only while the queue is empty. A
//!   wake-up queues its task under the same lock, and takes the waker. So no wake-up is missed.
//! - I3. A slot is used again for another task. A waker of the old one then wakes the new one once too often,
//!   which is harmless: each poll looks anew.
//! - I4. Another thread stores its wish before it takes the lock of the queue and the waker. The dispatcher
//!   looks at the wish under the lock before it leaves its waker. So no wish is missed. A wish never shrinks.

use crate::sites;
use crate::stats::{Counts, count};
use crate::waiters::wake;
use squall_sys::panics::{drop_payload, end_panic};
use squall_sys::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use squall_sys::sync::{Mutex, MutexGuard, StdArc, lock};
use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Wake, Waker};

pub(crate) type Work = Pin<Box<dyn Future<Output = ()>>>;

/// The end that a dispatcher is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    /// Serve.
    Serve,
    /// Take no new requests, and end when no request is left.
    Drain,
    /// End now.
    Stop,
}

/// The tasks that can run, and the wish of other threads.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// A [`Wish`].
    wish: AtomicU8,
}

struct State {
    runnable: VecDeque<usize>,
    /// The idle work was woken.
    idle: bool,
    sleeper: Option<Waker>,
}

impl Queue {
    pub(crate) fn new() -> Queue {
        let state = State { runnable: VecDeque::new(), idle: false, sleeper: None };
        Queue { state: Mutex::new(state), wish: AtomicU8::new(Wish::Serve as u8) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state, "the tasks of a dispatcher")
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
    pub(crate) fn wake_idle(&self) {
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

    /// Returns the wish.
    pub(crate) fn wish(&self) -> Wish {
        // Relaxed: the lock orders the look before a sleep (I4). Other looks may come late.
        match self.wish.load(Ordering::Relaxed) {
            wish if wish == Wish::Serve as u8 => Wish::Serve,
            wish if wish == Wish::Drain as u8 => Wish::Drain,
            _ => Wish::Stop,
        }
    }

    /// Asks the dispatcher for its end, and wakes it.
    pub(crate) fn ask(&self, wish: Wish) {
        // Relaxed: the lock in `wake` orders it before the next sleep (I4).
        self.wish.fetch_max(wish as u8, Ordering::Relaxed);
        self.wake();
    }

    /// Leaves the waker of the dispatcher. `seen` is the wish that it has seen. Returns false if the wish is
    /// another one, or a task or the idle work can run.
    pub(crate) fn sleep(&self, waker: &Waker, seen: Wish) -> bool {
        let mut new = Some(waker.clone());
        let mut state = self.lock();
        let is_empty = state.runnable.is_empty() && !state.idle || sites::TASKS_EMPTY.is_weak();
        let sleeps = is_empty && (self.wish() == seen || sites::WISH.is_weak());
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
    queue: StdArc<Queue>,
}

impl Wake for TaskWaker {
    fn wake(self: StdArc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &StdArc<Self>) {
        // Release: pairs with the Acquire of the swap in `run`. The poll after a wake-up sees all that came
        // before it, also if another wake-up had queued the task.
        if !self.is_queued.swap(true, sites::TASK_WOKEN.order(Ordering::Release)) {
            self.queue.push(self.slot);
        }
    }
}

/// The waker of the idle work.
pub(crate) struct IdleWaker(pub(crate) StdArc<Queue>);

impl Wake for IdleWaker {
    fn wake(self: StdArc<Self>) {
        self.0.wake_idle();
    }

    fn wake_by_ref(self: &StdArc<Self>) {
        self.0.wake_idle();
    }
}

/// A task before its first step.
pub(crate) struct New {
    pub(crate) work: Work,
    /// The number of its name.
    pub(crate) label: u16,
    /// The class of its request, as a number.
    pub(crate) class: Option<usize>,
}

struct Task {
    new: New,
    waker: StdArc<TaskWaker>,
}

/// All tasks of a dispatcher.
pub(crate) struct Tasks {
    queue: StdArc<Queue>,
    slots: Vec<Option<Task>>,
    unused: Vec<usize>,
    counts: Rc<Counts>,
}

impl Tasks {
    pub(crate) fn new(queue: StdArc<Queue>, counts: Rc<Counts>) -> Tasks {
        Tasks { queue, slots: Vec::new(), unused: Vec::new(), counts }
    }

    /// Adds a task, which can run.
    pub(crate) fn add(&mut self, new: New) {
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let (is_queued, queue) = (AtomicBool::new(false), self.queue.clone());
        let waker = StdArc::new(TaskWaker { slot, is_queued, queue });
        waker.wake_by_ref();
        self.counts.tasks.set(self.counts.tasks.get() + 1);
        if let Some(class) = new.class {
            let handlers = &self.counts.handlers[class];
            handlers.set(handlers.get() + 1);
        }
        self.slots[slot] = Some(Task { new, waker });
    }

    #[cfg(all(test, any(loom, squall_model)))]
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.tasks.get() == 0
    }

    /// Takes the next task that can run out of the queue: its slot, and the number of its name.
    pub(crate) fn next(&mut self) -> Option<(usize, u16)> {
        loop {
            let slot = self.queue.pop()?;
            // A waker of an ended task may still queue its slot (I3).
            if let Some(Some(task)) = self.slots.get(slot) {
                return Some((slot, task.new.label));
            }
        }
    }

    /// Runs a task of [`next`](Tasks::next) up to its next wait.
    pub(crate) fn run(&mut self, slot: usize) {
        let Some(Some(task)) = self.slots.get_mut(slot) else { return };
        // Before the poll: a wake-up from now on queues it again (I1). Acquire: pairs with the Release of
        // `wake_by_ref`.
        let take_over = |task: &Task| task.waker.is_queued.swap(false, Ordering::Acquire);
        if !sites::TASK_RUNS.is_weak() {
            take_over(task);
        }
        let waker = Waker::from(task.waker.clone());
        let work = &mut task.new.work;
        // Each request is a future of its own, so a panic leaves no other one half done.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut Context::from_waker(&waker))));
        if sites::TASK_RUNS.is_weak() {
            take_over(task);
        }
        if matches!(polled, Ok(poll) if poll.is_pending()) {
            return;
        }
        if let Some(task) = self.slots[slot].take() {
            self.unused.push(slot);
            self.end(task);
        }
        if let Err(payload) = polled {
            self.panicked(payload);
        }
    }

    /// Drops a task. The drop is the program's code, and answers a request that has no reply yet.
    fn end(&self, task: Task) {
        let New { work, class, .. } = task.new;
        end_panic(move || drop(work));
        self.counts.tasks.set(self.counts.tasks.get() - 1);
        if let Some(class) = class {
            let handlers = &self.counts.handlers[class];
            handlers.set(handlers.get() - 1);
        }
    }

    /// Notes a panic of the program's code.
    pub(crate) fn panicked(&mut self, payload: Box<dyn Any + Send>) {
        count(&self.counts.panics);
        drop_payload(payload);
    }

    /// Drops all tasks.
    pub(crate) fn clear(&mut self) {
        for task in std::mem::take(&mut self.slots).into_iter().flatten() {
            self.end(task);
        }
        self.unused.clear();
    }
}
