//! The timers of a dispatcher: the wakers of tasks that sleep, by the time at which they wake.
//!
//! - I1. `first` is the time of the first timer. So a dispatcher without a due timer reads one word.
//! - I2. No waker is cloned, run or dropped while the table is borrowed: wakers are the program's code.
//!
//! Cost: a timer is an entry of a tree.

use crate::waiters::wake;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Instant;

/// The name of a timer. Timers of one time wake in the order in which they came.
pub(crate) type Key = (Instant, u64);

#[derive(Default)]
pub(crate) struct Timers {
    wakers: RefCell<BTreeMap<Key, Waker>>,
    first: Cell<Option<Instant>>,
    last_number: Cell<u64>,
}

impl Timers {
    /// Adds a timer without a waker.
    pub(crate) fn key(&self, at: Instant) -> Key {
        let number = self.last_number.get() + 1;
        self.last_number.set(number);
        (at, number)
    }

    /// Sets the waker of a timer.
    pub(crate) fn set(&self, key: Key, waker: &Waker) {
        let waker = waker.clone();
        let before = self.change(|wakers| wakers.insert(key, waker));
        drop(before);
    }

    /// Removes a timer.
    pub(crate) fn remove(&self, key: Key) {
        let before = self.change(|wakers| wakers.remove(&key));
        drop(before);
    }

    fn change<R>(&self, change: impl FnOnce(&mut BTreeMap<Key, Waker>) -> R) -> R {
        let mut wakers = self.wakers.borrow_mut();
        let result = change(&mut wakers);
        self.first.set(wakers.first_key_value().map(|((at, _), _)| *at));
        result
    }

    /// Returns the time of the first timer.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.first.get()
    }

    /// Wakes the tasks of the timers that are due, in the order of their times.
    pub(crate) fn wake_due(&self, now: Instant) {
        let later = |wakers: &mut BTreeMap<Key, Waker>| wakers.split_off(&(now, u64::MAX));
        let due = self.change(|wakers| {
            let later = later(wakers);
            std::mem::replace(wakers, later)
        });
        due.into_values().for_each(wake);
    }

    /// Wakes all.
    pub(crate) fn wake_all(&self) {
        let all = self.change(std::mem::take);
        all.into_values().for_each(wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_sys::sync::{Mutex, StdArc};
    use std::task::Wake;
    use std::time::Duration;

    struct Logs(u32, StdArc<Mutex<Vec<u32>>>);

    impl Wake for Logs {
        fn wake(self: StdArc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[test]
    fn due_timers_wake_in_the_order_of_their_times() {
        let (timers, log) = (Timers::default(), StdArc::new(Mutex::new(Vec::new())));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let add = |seconds: u64, name: u32| {
            let key = timers.key(at(seconds));
            timers.set(key, &Waker::from(StdArc::new(Logs(name, log.clone()))));
            key
        };
        let [_third, first, removed, _fourth] = [add(3, 30), add(1, 10), add(2, 20), add(3, 31)];
        assert_eq!(timers.first(), Some(at(1)));
        timers.wake_due(start);
        assert!(log.lock().unwrap().is_empty());
        // A waker is replaced, and a timer removed.
        timers.set(first, &Waker::from(StdArc::new(Logs(11, log.clone()))));
        timers.remove(removed);
        timers.wake_due(at(1));
        assert_eq!(*log.lock().unwrap(), [11]);
        assert_eq!(timers.first(), Some(at(3)));
        timers.wake_due(at(3));
        assert_eq!(*log.lock().unwrap(), [11, 30, 31]);
        assert_eq!(timers.first(), None);
    }
}
