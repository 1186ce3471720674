//! Waiting for changes: by threads, with or without a limit, and by tasks of any runtime.
//!
//! There is no queue: who is slow finds the latest version, and those between are gone. One mechanism serves all: a waker is left
//! with the object, and the version is looked at again; a thread's waker unparks it.

use squall_core::{CallError, Handle};
use squall_parts::replica::Watch;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::ReadMostly;

/// Tells of changes of a read-mostly value. Hot-swaps do not end it, nor do they count as changes.
///
/// It begins with the version that there was when it was made. Each of its waits ends when there is another one than it has
/// told of; which one that is, it tells.
///
/// # Cost
/// An object that nobody waits for pays a fence and a load for this with each change, if ever somebody did.
/// # Example
/// ```
/// use squall_objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
/// use std::time::Duration;
///
/// let mode = read_mostly::shared("day");
/// let mut changes = mode.subscribe();
/// assert_eq!(changes.wait_for(Duration::from_millis(1)).unwrap(), None);
/// mode.set("night");
/// mode.set("dawn");
/// assert_eq!(changes.wait().unwrap(), 3); // the latest; nothing queues up
/// drop(mode);
/// assert!(changes.wait().is_err()); // there will be no more
/// ```
pub struct Subscription<T: Send + Sync + 'static> {
    handle: Handle<dyn ReadMostly<T>>,
    watch: Arc<Watch>,
    /// The version that was told last.
    seen: u64,
    /// Of the waker that was left last.
    ticket: Option<u64>,
}

impl<T: Send + Sync + 'static> Subscription<T> {
    pub(super) fn new(handle: Handle<dyn ReadMostly<T>>, watch: Arc<Watch>, seen: u64) -> Subscription<T> {
        Subscription { handle, watch, seen, ticket: None }
    }

    /// The value's object.
    pub fn handle(&self) -> Handle<dyn ReadMostly<T>> {
        self.handle
    }

    /// The version that was told last.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The new version, if there is one; does not wait.
    ///
    /// # Errors
    /// [`CallError`]: the object is gone, and there will be no more.
    pub fn poll_now(&mut self) -> Result<Option<u64>, CallError> {
        let version = self.handle.try_version()?;
        let is_new = version != self.seen;
        self.seen = version;
        Ok(is_new.then_some(version))
    }

    /// The new version; where there is none, the waker of the task is left to be called when there may be one.
    ///
    /// # Errors
    /// As [`poll_now`](Subscription::poll_now).
    pub fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<Result<u64, CallError>> {
        self.ticket = Some(self.watch.leave(self.ticket, context.waker()));
        // After the waker was left: a change that this does not see sees the waker.
        match self.poll_now().transpose() {
            None => Poll::Pending,
            Some(told) => {
                self.forget_waker();
                Poll::Ready(told)
            }
        }
    }

    /// The new version, as a future for any runtime. It may be dropped and asked for again: no change is lost.
    pub fn changed(&mut self) -> Changed<'_, T> {
        Changed(self)
    }

    /// Sleeps until there is a new version.
    ///
    /// # Errors
    /// As [`poll_now`](Subscription::poll_now).
    /// # Panics
    /// Within an operation, where nothing may sleep.
    pub fn wait(&mut self) -> Result<u64, CallError> {
        loop {
            if let Some(version) = self.wait_by(None)? {
                return Ok(version);
            }
        }
    }

    /// The same; `None` if `limit` is over before.
    ///
    /// # Errors
    /// As [`poll_now`](Subscription::poll_now).
    /// # Panics
    /// As [`wait`](Subscription::wait).
    pub fn wait_for(&mut self, limit: Duration) -> Result<Option<u64>, CallError> {
        self.wait_by(Instant::now().checked_add(limit))
    }

    /// The same; `None` if `deadline` passes before.
    ///
    /// # Errors
    /// As [`poll_now`](Subscription::poll_now).
    /// # Panics
    /// As [`wait`](Subscription::wait).
    pub fn wait_until(&mut self, deadline: Instant) -> Result<Option<u64>, CallError> {
        self.wait_by(Some(deadline))
    }

    fn wait_by(&mut self, deadline: Option<Instant>) -> Result<Option<u64>, CallError> {
        assert!(!squall_rcu::in_operation(), "a subscription was waited for inside an operation");
        let waker = Waker::from(Arc::new(Unparks(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(told) = self.poll_changed(&mut context) {
                return told.map(Some);
            }
            match deadline {
                None => thread::park(),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        self.forget_waker();
                        return Ok(None);
                    }
                    thread::park_timeout(left);
                }
            }
        }
    }

    fn forget_waker(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.watch.take_back(ticket);
        }
    }
}

/// The waker of a thread that waits.
struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Unparks>) {
        self.0.unpark();
    }
}

/// The next change, as a future: see [`Subscription::changed`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Changed<'a, T: Send + Sync + 'static>(&'a mut Subscription<T>);

impl<T: Send + Sync + 'static> Future for Changed<'_, T> {
    type Output = Result<u64, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<u64, CallError>> {
        self.get_mut().0.poll_changed(context)
    }
}

impl<T: Send + Sync + 'static> Drop for Changed<'_, T> {
    fn drop(&mut self) {
        self.0.forget_waker();
    }
}

impl<T: Send + Sync + 'static> Drop for Subscription<T> {
    fn drop(&mut self) {
        self.forget_waker();
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for Changed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Changed").field(&self.0).finish()
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("handle", &self.handle).field("seen", &self.seen).finish_non_exhaustive()
    }
}
