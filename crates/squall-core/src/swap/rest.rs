//! The last phases of a swap for a task, on a thread of their own.
//!
//! Problem: from Block on, callers wait for the swap, and some of them may block the very thread that should
//! poll its task. So a task must not do these phases between its polls. Idea: a thread does them and leaves
//! the result. The task waits for it.
//!
//! - I1. The result is stored before the outcome. So a task that finds the outcome finds the result.
//! - I2. The drop of the future cancels the swap and does not wait. The thread owns the swap and ends it.
//!
//! Cost: a thread for each swap, some tens of µs.

use squall_rcu::__Outcome as Outcome;
use squall_sys::fork::forked;
use squall_sys::sync::thread;
use squall_sys::sync::{Arc, Mutex, MutexGuard};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::protocol::id::Id;
use crate::swap::Cancel;
use crate::swap::report::{SwapError, SwapFailure, SwapReport};
use crate::swap::run::Begun;

type Result = std::result::Result<SwapReport, SwapError>;

/// The threads' name.
const NAME: &str = "squall-swap";

/// The link between the thread and the task.
struct Link {
    /// Empty once the thread has the swap.
    begun: Mutex<Option<Begun>>,
    /// The result, or the payload of a panic (I1).
    result: Mutex<Option<thread::Result<Result>>>,
    ended: Outcome<()>,
}

impl Link {
    fn begun(&self) -> MutexGuard<'_, Option<Begun>> {
        self.begun.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn result(&self) -> MutexGuard<'_, Option<thread::Result<Result>>> {
        self.result.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Ends the swap on the calling thread, and leaves the result.
    fn run(&self) {
        let Some(begun) = self.begun().take() else { return };
        let result = catch_unwind(AssertUnwindSafe(|| begun.end()));
        *self.result() = Some(result);
        self.ended.fill(());
    }
}

/// The rest of a swap. Its drop cancels the swap (I2).
pub(super) struct Rest {
    link: Arc<Link>,
    cancel: Cancel,
    id: Id,
    interface: &'static str,
}

impl Rest {
    /// Begins the rest of this swap. Its calls from before have ended. `cancel` is in its limits.
    pub(super) fn new(begun: Begun, cancel: Cancel) -> Rest {
        let (id, interface) = begun.object();
        let (begun, result) = (Mutex::new(Some(begun)), Mutex::new(None));
        let link = Arc::new(Link { begun, result, ended: Outcome::new() });
        let runs = link.clone();
        if thread::Builder::new().name(NAME.to_owned()).spawn(move || runs.run()).is_err() {
            link.run();
        }
        Rest { link, cancel, id, interface }
    }
}

impl Future for Rest {
    type Output = Result;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result> {
        // The thread does not exist in the child of a fork, and may have held the locks.
        if forked() {
            return Poll::Ready(Err(SwapError::new(self.interface, self.id, SwapFailure::Forked)));
        }
        if self.link.ended.poll(context.waker()).is_none() {
            return Poll::Pending;
        }
        match self.link.result().take() {
            Some(Ok(result)) => Poll::Ready(result),
            Some(Err(payload)) => resume_unwind(payload),
            None => panic!("the future of a swap was polled after it was ready"),
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.cancel.cancel();
        if !forked() {
            self.link.ended.forget_waker();
        }
    }
}
