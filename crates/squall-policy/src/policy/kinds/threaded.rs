//! Threaded abstract data types.

use squall_core::wrap::{Job, in_transfer};

use super::{IN_OPERATION, IN_TRANSFER};
use crate::invoke::threads;
use crate::policy::{Block, Policy};

/// A threaded abstract data type: each call is run by a new thread of its own, named `squall-call`, while its caller waits;
/// calls are not synchronised with each other. For methods that must not run on their caller's stack or with its thread-locals,
/// or that change what belongs to a thread: its affinity, its priority, its namespaces.
///
/// A method with an argument or a result that is not `Send` runs in its caller's thread. One for which no thread can be had is
/// refused, and so is one that an export or an import of a swap makes: the thread could have to wait for that swap. The thread
/// passes where its caller would pass a swap, and a panic goes to the caller.
///
/// # Cost
/// A thread for each call: some tens of microseconds.
/// # Example
/// ```
/// use squall_policy::{ThreadedAdt, governed};
/// use std::thread;
///
/// #[squall_macros::interface(crate = squall_core)]
/// trait Work: Send + Sync {
///     #[blocking]
///     fn runs_in(&self) -> thread::ThreadId;
/// }
/// struct Worker;
/// impl Work for Worker {
///     fn runs_in(&self) -> thread::ThreadId {
///         thread::current().id()
///     }
/// }
///
/// let work: squall_core::Owned<dyn Work> = governed(ThreadedAdt::new(), |_| Worker);
/// let (one, other) = (work.runs_in(), work.runs_in());
/// assert!(one != other && one != thread::current().id());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadedAdt(());

impl ThreadedAdt {
    /// A thread for each call.
    pub fn new() -> ThreadedAdt {
        ThreadedAdt(())
    }
}

impl Policy for ThreadedAdt {
    const WAITS: bool = true;

    fn invoke(&self, block: &mut Block<'_>) {
        if squall_rcu::in_operation() {
            return block.refuse(IN_OPERATION);
        }
        if block.can_be_sent() && in_transfer() {
            return block.refuse(IN_TRANSFER);
        }
        let in_thread = |job: Job| {
            // Dropped with the job, if there is no thread: so the call did not run.
            if let Ok(thread) = threads::spawn("squall-call", move || job.run()) {
                // Its own thread-locals are gone, too, when the caller goes on. The job carries its method's panic.
                let _ = thread.join();
            }
        };
        if block.proceed_elsewhere(in_thread).is_err() {
            block.refuse("there is no thread to run it");
        }
    }
}
