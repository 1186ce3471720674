//! The end of the service, in order.
//!
//! Problem: each connection must hear of the drain while it waits for its client, and thousands of waits per
//! second must not write a shared word.
//! Idea: a connection registers once. Then it reads a flag whenever it is woken.
//!
//! - I1. A connection that waits is woken after the flag is set.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// Ends a server: it accepts no more clients, answers the requests that have arrived, and closes all
/// connections. Clones belong to one drain.
#[derive(Clone, Debug, Default)]
pub struct Drain(Arc<State>);

#[derive(Debug, Default)]
struct State {
    has_begun: AtomicBool,
    begin: Arc<Notify>,
}

impl Drain {
    /// Makes a drain that has not begun.
    pub fn new() -> Drain {
        Drain::default()
    }

    /// Begins the drain.
    pub fn begin(&self) {
        // Release: pairs with the acquire in `has_begun`. For I1, the lock of `Notify` orders this store and
        // a registration: either the registered waker is called, or its owner then sees the flag.
        self.0.has_begun.store(true, Ordering::Release);
        self.0.begin.notify_waiters();
    }

    /// Whether the drain has begun.
    pub fn has_begun(&self) -> bool {
        // Acquire: pairs with the release in `begin`.
        self.0.has_begun.load(Ordering::Acquire)
    }
}

/// The wait of one connection for the drain. It may be polled again after it was ready.
#[derive(Debug)]
pub(crate) struct DrainWait<'a> {
    drain: &'a Drain,
    notified: Pin<Box<OwnedNotified>>,
    /// The registered waker.
    waker: Option<Waker>,
}

impl DrainWait<'_> {
    pub(crate) fn new(drain: &Drain) -> DrainWait<'_> {
        let notified = Box::pin(drain.0.begin.clone().notified_owned());
        DrainWait { drain, notified, waker: None }
    }
}

impl Future for DrainWait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let is_registered = self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
        if !self.drain.has_begun() && !is_registered {
            // Its result does not matter: the flag is read behind.
            let _ = self.notified.as_mut().poll(context);
            self.waker = Some(context.waker().clone());
        }
        if self.drain.has_begun() { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn i1_the_last_waker_is_called_and_later_waits_end_at_once() {
        let (first, second) = (Arc::new(Counted::default()), Arc::new(Counted::default()));
        let drain = Drain::new();
        let mut wait = Box::pin(DrainWait::new(&drain));
        for counted in [&first, &first, &second] {
            let waker = Waker::from(counted.clone());
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        drain.begin();
        assert_eq!([first, second].map(|counted| counted.0.load(Ordering::Relaxed)), [0, 1]);
        let mut context = Context::from_waker(Waker::noop());
        assert!(wait.as_mut().poll(&mut context).is_ready() && wait.as_mut().poll(&mut context).is_ready());
        assert!(Box::pin(DrainWait::new(&drain)).as_mut().poll(&mut context).is_ready());
    }
}
