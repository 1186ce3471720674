//! Threaded abstract data types: each call runs on a new thread.

use squall_core::wrap::{Job, in_transfer};

use super::{IN_OPERATION, IN_TRANSFER};
use crate::invoke::{ASYNCHRONOUS, Dispatch, Mode, threads};
use crate::policy::{Block, Policy};

/// Threaded abstract data type: each call runs on a new thread named `squall-call`, while its caller waits.
/// Calls are not synchronised with each other.
///
/// Use it for methods that must not run on their caller's stack or with its thread-locals, or that change a
/// property of the thread: its affinity, its priority, its namespaces.
///
/// A method with an argument or a result that is not `Send` runs on its caller's thread. A call is refused if
/// the system cannot start a thread. A call by an export or an import of a swap is refused, because the new
/// thread could wait for that swap. During a swap a mediator lets this thread pass wherever it would let the
/// caller pass. A panic goes to the caller. The caller of an [`ASYNCHRONOUS`] call does not wait for the
/// thread.
///
/// # Cost
/// One thread for each call: some tens of microseconds.
/// # Example
/// ```
/// use squall::policy::{ThreadedAdt, governed};
/// use std::thread;
///
/// #[squall::interface]
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
/// let work: squall::Owned<dyn Work> = governed(ThreadedAdt::new(), |_| Worker);
/// let (one, other) = (work.runs_in(), work.runs_in());
/// assert!(one != other && one != thread::current().id());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadedAdt(());

impl ThreadedAdt {
    /// Creates the policy.
    pub fn new() -> ThreadedAdt {
        ThreadedAdt(())
    }
}

impl Policy for ThreadedAdt {
    const WAITS: bool = true;
    const MODES: &'static [&'static Mode] = &[&ASYNCHRONOUS];

    fn invoke_mode(&self, _asynchronous: &'static Mode, call: Dispatch) {
        // If no thread starts, the call is dropped with the closure.
        drop(threads::spawn("squall-call", move || call.run()));
    }

    fn invoke(&self, block: &mut Block<'_>) {
        if squall_rcu::in_operation() {
            return block.refuse(IN_OPERATION);
        }
        if block.is_in(&ASYNCHRONOUS) {
            // This is the call's own thread.
            return block.proceed();
        }
        if block.can_be_sent() && in_transfer() {
            return block.refuse(IN_TRANSFER);
        }
        let in_thread = |job: Job| {
            // If no thread starts, the job is dropped with the closure, so the call did not run.
            if let Ok(thread) = threads::spawn("squall-call", move || job.run()) {
                // Joined, so that the thread-locals of the thread are gone before the caller goes on. The job
                // carries the panic of its method.
                let _ = thread.join();
            }
        };
        if block.proceed_elsewhere(in_thread).is_err() {
            block.refuse("the system could not start a thread to run it");
        }
    }
}
