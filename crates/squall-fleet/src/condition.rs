//! Condition variables of tasks.

use crate::waiters::wake;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A condition variable of the tasks of one dispatcher.
///
/// Source: Wentzlaff 2012, §3.3: condition variables guard state over yields (FO-16).
#[derive(Debug, Default)]
pub struct Condition {
    waiting: RefCell<VecDeque<Rc<RefCell<Option<Waker>>>>>,
}

impl Condition {
    /// Makes a condition without waiting tasks.
    pub fn new() -> Condition {
        Condition::default()
    }

    /// Waits until another task [signals](Condition::signal). The caller then looks at its state again.
    pub async fn wait(&self) {
        let place = Rc::new(RefCell::new(Some(Waker::noop().clone())));
        self.waiting.borrow_mut().push_back(place.clone());
        let mut leaves = Leaves { condition: self, place: place.clone(), is_over: false };
        std::future::poll_fn(|task| {
            // A waker may be the program's code, so it is cloned and dropped outside the borrow.
            let mut waker = Some(task.waker().clone());
            let is_signalled = place.borrow().is_none();
            if is_signalled {
                return Poll::Ready(());
            }
            std::mem::swap(&mut *place.borrow_mut(), &mut waker);
            drop(waker);
            Poll::Pending
        })
        .await;
        leaves.is_over = true;
    }

    /// Wakes the task that has waited longest. Returns false if no task waits.
    pub fn signal(&self) -> bool {
        let Some(place) = self.waiting.borrow_mut().pop_front() else { return false };
        let waker = place.borrow_mut().take();
        waker.into_iter().for_each(wake);
        true
    }

    /// Wakes all tasks that wait.
    pub fn signal_all(&self) {
        let waiting = self.waiting.borrow().len();
        for _ in 0..waiting {
            self.signal();
        }
    }
}

/// Takes a task that gave up its wait out of the condition. If it was signalled already, signals the next
/// one.
struct Leaves<'a> {
    condition: &'a Condition,
    place: Rc<RefCell<Option<Waker>>>,
    is_over: bool,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.condition.waiting.borrow_mut().retain(|place| !Rc::ptr_eq(place, &self.place));
        if self.place.borrow().is_none() {
            self.condition.signal();
        }
    }
}
