//! Waiting for a fill: the waiters of an element, and the error that its filler passes to them.
//!
//! Problem: a reserved element is filled by any thread, at any later time. So no lock can stand for it, since
//! a lock belongs to a thread. Idea: the first waiter adds a [`Watch`] to the element, under the element's
//! lock. The filler takes the watch in the step that ends the fill, and wakes its waiters.
//!
//! - I1. An element ends its fill under its lock, and gives its watch away in the same step. A waiter obtains
//!   the watch under that lock, and only from an element that is being filled. So the thread that ends the
//!   fill wakes all waiters.
//! - I2. A waiter registers at the watch and then checks the element again. The watch orders this against the
//!   end of the fill (replica/watch).
//! - I3. No code of a waker runs under a lock: [`Wakes`] is dropped after the locks are released.
//! - I4. An error is stored before the element is marked gone. A waiter that sees the mark sees the error.
//!
//! Not promised: order among waiters. Progress: waiting blocks, and waking is that of the wakers.
//! Cost: nothing without waiters, except for 8 bytes in each element. A waiter allocates.

use squall_machine::park::EventCount;
use squall_sys::sync::{Arc, OnceLock, StdArc};
use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};

use crate::dhash::platform::refuse_in_operation;
use crate::dhash::raw::{Element, run_in_drop};
use crate::dhash::sites;
use crate::replica::Watch;

/// The error of a fill, passed by [`Reservation::fail`](super::Reservation::fail) to the callers that waited
/// for the key. Clones share one error.
///
/// ```
/// use squall::parts::dhash::FillError;
/// let error = FillError::from(std::io::Error::other("the disk is gone"));
/// assert_eq!(error.to_string(), "the key was not filled: the disk is gone");
/// assert!(error.inner().downcast_ref::<std::io::Error>().is_some());
/// ```
#[derive(Clone, Debug)]
pub struct FillError(StdArc<dyn Error + Send + Sync>);

impl FillError {
    /// Returns the error that the filler passed.
    pub fn inner(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for FillError {
    fn from(error: E) -> FillError {
        FillError(error.into().into())
    }
}

impl fmt::Display for FillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key was not filled: {}", self.0)
    }
}

/// The waiters of an element that is being filled.
#[derive(Default)]
pub(crate) struct Waiting {
    watch: Watch,
    error: OnceLock<FillError>,
}

impl Waiting {
    /// Stores the error for all waiters. At most one call for each fill.
    pub(crate) fn set_error(&self, error: FillError) {
        let set = self.error.set(error);
        assert!(set.is_ok(), "a fill failed twice");
    }

    /// Returns the number of waiters.
    #[cfg(not(loom))]
    pub(crate) fn len(&self) -> usize {
        self.watch.waiters()
    }
}

/// The waiters to wake at the drop of this, which comes after the locks are released (I3).
#[derive(Default)]
pub(crate) struct Wakes(Cell<Option<Arc<Waiting>>>);

impl Wakes {
    pub(crate) fn set(&self, waiting: Option<Arc<Waiting>>) {
        self.0.set(waiting);
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        if let Some(waiting) = self.0.take()
            && !sites::WAKE.is_weak()
        {
            run_in_drop(|| waiting.watch.wake());
        }
    }
}

/// Waits until an element is full or gone. Returns the filler's error if there is one.
pub(crate) struct Filled<'e, K, G> {
    element: &'e Element<K, G>,
    registered: Option<(Arc<Waiting>, u64)>,
}

impl<'e, K, G> Filled<'e, K, G> {
    pub(crate) fn new(element: &'e Element<K, G>) -> Filled<'e, K, G> {
        Filled { element, registered: None }
    }

    /// Lets the thread sleep until the element is full or gone.
    ///
    /// # Panics
    /// In the child of a fork. In builds with debug assertions, inside an operation.
    pub(crate) fn wait(self) -> Option<FillError> {
        let sleeper = StdArc::new(Sleeper::default());
        let waker = Waker::from(sleeper.clone());
        let mut filled = pin!(self);
        loop {
            // Before the poll: a wake-up that comes after the poll ends the sleep.
            let seen = sleeper.0.prepare();
            if let Poll::Ready(error) = filled.as_mut().poll(&mut Context::from_waker(&waker)) {
                return error;
            }
            refuse_in_operation();
            sleeper.0.wait(seen, None);
        }
    }
}

impl<K, G> Future for Filled<'_, K, G> {
    type Output = Option<FillError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FillError>> {
        let this = &mut *self;
        while let Some(waiting) = this.element.waiting() {
            assert!(
                !squall_sys::fork::forked(),
                "squall-parts: the key is being filled, and the process is the child of a fork, where its filler may \
                 not exist; such a child may only exec"
            );
            let earlier = this.registered.take().map(|(_, ticket)| ticket);
            let ticket = waiting.watch.register(earlier, context.waker());
            this.registered = Some((waiting, ticket));
            // I2.
            if this.element.is_filling() || sites::CHECK_AGAIN.is_weak() {
                return Poll::Pending;
            }
        }
        let error = this.registered.take().and_then(|(waiting, ticket)| {
            // The filler has not woken the waiters yet, or this poll came for another reason.
            waiting.watch.unregister(ticket);
            // Only a gone element has one (I4).
            this.element.is_gone_acquire().then(|| waiting.error.get().cloned()).flatten()
        });
        Poll::Ready(error)
    }
}

impl<K, G> Drop for Filled<'_, K, G> {
    fn drop(&mut self) {
        if let Some((waiting, ticket)) = self.registered.take() {
            waiting.watch.unregister(ticket);
        }
    }
}

/// A thread that sleeps until its waker is called.
#[derive(Default)]
struct Sleeper(EventCount);

impl Wake for Sleeper {
    fn wake(self: StdArc<Sleeper>) {
        self.0.signal(1);
    }
}
