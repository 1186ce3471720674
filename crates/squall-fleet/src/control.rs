//! The control of a dispatcher by other threads.

use crate::tasks::{Queue, Wish};
use crate::watch::{LongSteps, Running, Watch};
use squall_sys::sync::StdArc;
use std::fmt;

/// The way of other threads to a dispatcher: its end, and its watchdog.
///
/// A clone is the same way. After the end of the dispatcher, its methods have no effect.
///
/// # Cost
/// A question for the running task reads one word, and takes a lock that the dispatcher takes only after a
/// long step. So it does not slow the dispatcher down.
/// Source: Wentzlaff 2012, §3.3.2 (AD-11).
///
/// # Example
/// ```
/// use squall::fleet::Dispatcher;
/// use std::sync::mpsc;
///
/// let (give, given) = mpsc::channel();
/// let (go_on, stuck) = mpsc::channel::<()>();
/// std::thread::scope(|threads| {
///     threads.spawn(move || {
///         let dispatcher = Dispatcher::new();
///         let control = dispatcher.context().control();
///         dispatcher.context().spawn_named("the index", async move {
///             give.send(control).unwrap();
///             // Blocks the thread of the dispatcher.
///             stuck.recv().unwrap();
///         });
///         dispatcher.run();
///     });
///     let control = given.recv().unwrap();
///     assert_eq!(control.running().unwrap().name, "the index");
///     go_on.send(()).unwrap();
///     control.stop();
/// });
/// ```
#[derive(Clone)]
pub struct Control {
    queue: StdArc<Queue>,
    watch: StdArc<Watch>,
}

impl Control {
    pub(crate) fn new(queue: StdArc<Queue>, watch: StdArc<Watch>) -> Control {
        Control { queue, watch }
    }

    /// Ends the dispatcher after its present step: [`Context::stop`](crate::Context::stop).
    pub fn stop(&self) {
        self.queue.ask(Wish::Stop);
    }

    /// Ends the dispatcher when the requests that it has begun are done:
    /// [`Context::drain`](crate::Context::drain).
    pub fn drain(&self) {
        self.queue.ask(Wish::Drain);
    }

    /// Wakes the dispatcher, which runs its idle work once more when it has no other work.
    pub fn wake(&self) {
        self.queue.wake_idle();
    }

    /// Returns the running task, and the time since its step began. No task runs while the dispatcher
    /// receives or sleeps.
    ///
    /// The answer is that of one moment. A task that is stuck is named in each answer, with a growing time.
    pub fn running(&self) -> Option<Running> {
        self.watch.running()
    }

    /// Returns the names of tasks that had steps longer than the limit of
    /// [`watch_steps`](crate::Dispatcher::watch_steps), with the number of such steps.
    pub fn long_steps(&self) -> Vec<LongSteps> {
        self.watch.long_steps()
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("wish", &self.queue.wish())
            .field("running", &self.running())
            .finish_non_exhaustive()
    }
}
