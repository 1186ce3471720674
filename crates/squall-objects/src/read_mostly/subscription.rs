//! Waiting for changes, by threads with or without a time limit, and by tasks of any runtime.
//!
//! There is no queue: a slow subscriber finds the latest version and skips the ones between. All waits use
//! one mechanism: register a waker with the object, then check the version again. The waker of a thread
//! unparks it.

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

/// Subscription to the changes of a read-mostly value. Hot-swaps neither end it nor count as changes.
///
/// A subscription starts at the version that was current when it was created. Each wait ends when the current
/// version differs from the last one reported, and reports it.
///
/// # Cost
/// A change pays a fence and a load if the object has ever had a waiter.
/// # Example
/// ```
/// use squall::objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
/// use std::time::Duration;
///
/// let mode = read_mostly::shared("day");
/// let mut changes = mode.subscribe();
/// assert_eq!(changes.wait_for(Duration::from_millis(1)).unwrap(), None);
/// mode.set("night");
/// mode.set("dawn");
/// assert_eq!(changes.wait().unwrap(), 3); // the latest version; there is no queue
/// drop(mode);
/// assert!(changes.wait().is_err()); // the object is gone
/// ```
pub struct Subscription<T: Send + Sync + 'static> {
    handle: Handle<dyn ReadMostly<T>>,
    watch: Arc<Watch>,
    /// Version reported last.
    seen: u64,
    /// Ticket of the waker left last.
    ticket: Option<u64>,
}

impl<T: Send + Sync + 'static> Subscription<T> {
    pub(super) fn new(handle: Handle<dyn ReadMostly<T>>, watch: Arc<Watch>, seen: u64) -> Subscription<T> {
        Subscription { handle, watch, seen, ticket: None }
    }

    /// Returns the handle of the value's object.
    pub fn handle(&self) -> Handle<dyn ReadMostly<T>> {
        self.handle
    }

    /// Returns the version reported last.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns the new version if there is one, without waiting.
    ///
    /// ```
    /// use squall::objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
    ///
    /// let value = read_mostly::shared(1);
    /// let mut changes = value.subscribe();
    /// value.set(2);
    /// assert_eq!(changes.poll_now(), Ok(Some(2)));
    /// assert_eq!((changes.poll_now(), changes.seen()), (Ok(None), 2));
    /// ```
    ///
    /// # Errors
    /// [`CallError`] if the object was destroyed. There will be no more changes.
    pub fn poll_now(&mut self) -> Result<Option<u64>, CallError> {
        let version = self.handle.try_version()?;
        let is_new = version != self.seen;
        self.seen = version;
        Ok(is_new.then_some(version))
    }

    /// Returns the new version if there is one. Otherwise leaves the task's waker, which a later change
    /// calls.
    ///
    /// # Errors
    /// The errors of [`poll_now`](Subscription::poll_now).
    pub fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<Result<u64, CallError>> {
        self.ticket = Some(self.watch.register(self.ticket, context.waker()));
        // Checked after the waker was left: a change that this check misses sees the waker.
        match self.poll_now().transpose() {
            None => Poll::Pending,
            Some(told) => {
                self.forget_waker();
                Poll::Ready(told)
            }
        }
    }

    /// Returns a future of the next new version, for any runtime. Dropping it loses no change.
    ///
    /// ```
    /// use squall::objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
    /// use std::future::Future;
    /// use std::pin::pin;
    /// use std::task::{Context, Poll, Waker};
    ///
    /// let value = read_mostly::shared(1);
    /// let mut changes = value.subscribe();
    /// value.set(2);
    /// let changed = pin!(changes.changed());
    /// assert_eq!(changed.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(2)));
    /// ```
    pub fn changed(&mut self) -> Changed<'_, T> {
        Changed(self)
    }

    /// Blocks the thread until there is a new version, and returns it. A task uses
    /// [`changed`](Subscription::changed).
    ///
    /// # Errors
    /// The errors of [`poll_now`](Subscription::poll_now).
    /// # Panics
    /// Within an operation, since an operation must not sleep.
    pub fn wait(&mut self) -> Result<u64, CallError> {
        loop {
            if let Some(version) = self.wait_by(None)? {
                return Ok(version);
            }
        }
    }

    /// Like [`wait`](Subscription::wait), but returns `None` after `limit`.
    ///
    /// # Errors
    /// The errors of [`poll_now`](Subscription::poll_now).
    /// # Panics
    /// Within an operation, like [`wait`](Subscription::wait).
    pub fn wait_for(&mut self, limit: Duration) -> Result<Option<u64>, CallError> {
        self.wait_by(Instant::now().checked_add(limit))
    }

    /// Like [`wait`](Subscription::wait), but returns `None` at `deadline`.
    ///
    /// # Errors
    /// The errors of [`poll_now`](Subscription::poll_now).
    /// # Panics
    /// Within an operation, like [`wait`](Subscription::wait).
    pub fn wait_until(&mut self, deadline: Instant) -> Result<Option<u64>, CallError> {
        self.wait_by(Some(deadline))
    }

    fn wait_by(&mut self, deadline: Option<Instant>) -> Result<Option<u64>, CallError> {
        assert!(
            !squall_rcu::in_operation(),
            "cannot wait for a subscription inside an operation: wait after the operation has ended"
        );
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
            self.watch.unregister(ticket);
        }
    }
}

/// Waker of a waiting thread.
struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Unparks>) {
        self.0.unpark();
    }
}

/// Future of the next change. Made by [`Subscription::changed`].
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
        f.debug_struct("Subscription")
            .field("handle", &self.handle)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}
