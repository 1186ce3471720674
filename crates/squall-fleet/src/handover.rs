//! The result of work that another thread does for a task.
//!
//! - I1. The result and the waker lie under one lock. The end of the work takes the waker where it leaves the
//!   result, so a task that found no result is woken.
//! - I2. The work that is dropped ends too, without a result.
//! - I3. No waker is cloned, run or dropped under the lock: wakers are the program's code.

use crate::sites;
use crate::waiters::wake;
use squall_sys::sync::{Arc, Mutex, MutexGuard, lock};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

struct State<T> {
    result: Option<T>,
    ended: bool,
    waker: Option<Waker>,
}

type Shared<T> = Arc<Mutex<State<T>>>;

fn state<T>(shared: &Shared<T>) -> MutexGuard<'_, State<T>> {
    lock(shared, "the result of work for a task")
}

/// Makes the two ends of a handover.
pub fn handover<T>() -> (Giver<T>, Taker<T>) {
    let shared = Arc::new(Mutex::new(State { result: None, ended: false, waker: None }));
    (Giver(shared.clone()), Taker(shared))
}

/// The end of the thread that works.
pub struct Giver<T>(Shared<T>);

impl<T> Giver<T> {
    /// Hands the result over.
    pub fn give(self, result: T) {
        state(&self.0).result = Some(result);
        // The drop ends the work.
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        let mut state = state(&self.0);
        state.ended = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(wake);
    }
}

/// The end of the task: its output is the result. It is absent if the work was dropped.
pub struct Taker<T>(Shared<T>);

impl<T> Future for Taker<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut waker = Some(cx.waker().clone());
        let mut guard = state(&self.0);
        let ended = guard.ended;
        if sites::LEFT.is_weak() {
            drop(guard);
            guard = state(&self.0);
        }
        let polled = if ended {
            Poll::Ready(guard.result.take())
        } else {
            std::mem::swap(&mut guard.waker, &mut waker);
            Poll::Pending
        };
        drop(guard);
        drop(waker);
        polled
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_handed_over_and_dropped_work_is_none() {
        let mut context = Context::from_waker(Waker::noop());
        let (giver, mut taker) = handover();
        assert_eq!(Pin::new(&mut taker).poll(&mut context), Poll::Pending);
        giver.give(7);
        assert_eq!(Pin::new(&mut taker).poll(&mut context), Poll::Ready(Some(7)));
        let (giver, mut taker) = handover::<u8>();
        drop(giver);
        assert_eq!(Pin::new(&mut taker).poll(&mut context), Poll::Ready(None));
    }
}
