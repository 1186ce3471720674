//! The one door to the table in which threads sleep: `parking_lot_core`'s, or a model of what it promises.
//!
//! - I1. `validate` is called under the lock of the key's queue. If it says no, the thread does not sleep; else nothing comes
//!   between it and the thread's place at the end of the queue.
//! - I2. A wake-up takes the first of the queue, or those its filter names, under the same lock; so do `timed_out` and
//!   `callback`, which tell whether others remain.
//! - I3. Keys are addresses. Memory that has another use by now may be woken at: whoever sleeps must look again.
//!
//! The functions are those of `parking_lot_core`, with what is not needed here left out. None of the closures may park, wake
//! or panic.
//! Source: `parking_lot_core`; Gamsa, Krieger, Appavoo and Stumm, "Tornado", 1999, §5.1 (waiters in a shared table).

pub(crate) use parking_lot_core::{FilterOp, ParkResult, ParkToken, UnparkResult, UnparkToken};
use std::time::Instant;

/// Sleeps in the queue of `key` if `validate` says so, until it is woken or the time is over. `before_sleep` runs when the
/// thread is in the queue and its lock is free; `timed_out` runs under that lock, with whether the queue is empty now.
#[cfg(not(loom))]
pub(crate) fn park(
    key: usize,
    validate: impl FnOnce() -> bool,
    before_sleep: impl FnOnce(),
    timed_out: impl FnOnce(bool),
    token: ParkToken,
    deadline: Option<Instant>,
) -> ParkResult {
    // SAFETY: the key is an address of ours, the closures neither panic nor come back to the table (module).
    unsafe { parking_lot_core::park(key, validate, before_sleep, |_, last| timed_out(last), token, deadline) }
}

/// Wakes the first of the queue of `key`; `callback` runs under its lock, and what it returns is told to the thread.
#[cfg(not(loom))]
pub(crate) fn unpark_one(key: usize, callback: impl FnOnce(UnparkResult) -> UnparkToken) -> UnparkResult {
    // SAFETY: as in `park`.
    unsafe { parking_lot_core::unpark_one(key, callback) }
}

/// Wakes all of the queue of `key`. Returns how many.
#[cfg(not(loom))]
pub(crate) fn unpark_all(key: usize, token: UnparkToken) -> usize {
    // SAFETY: as in `park`.
    unsafe { parking_lot_core::unpark_all(key, token) }
}

/// Wakes those of the queue of `key` that `filter` names by their tokens, in order; `callback` as in [`unpark_one`].
#[cfg(not(loom))]
pub(crate) fn unpark_filter(
    key: usize,
    filter: impl FnMut(ParkToken) -> FilterOp,
    callback: impl FnOnce(UnparkResult) -> UnparkToken,
) -> UnparkResult {
    // SAFETY: as in `park`.
    unsafe { parking_lot_core::unpark_filter(key, filter, callback) }
}

#[cfg(loom)]
pub(crate) use modelled::{park, unpark_all, unpark_filter, unpark_one};

/// What the table promises, and no more, for a model checker.
#[cfg(loom)]
mod modelled {
    use super::{FilterOp, ParkResult, ParkToken, UnparkResult, UnparkToken};
    use squall_sync::sync::{Arc, Condvar, Mutex, MutexGuard};
    use std::time::Instant;

    struct Sleeper {
        ticket: u64,
        key: usize,
        token: ParkToken,
        bell: Arc<Condvar>,
    }

    #[derive(Default)]
    struct Table {
        sleepers: Vec<Sleeper>,
        /// Those who were woken and have not noticed yet, and what the waker said.
        woken: Vec<(u64, UnparkToken)>,
        tickets: u64,
    }

    impl Table {
        fn is_empty(&self, key: usize) -> bool {
            !self.sleepers.iter().any(|sleeper| sleeper.key == key)
        }
    }

    squall_sync::lazy_static! {
        static ref TABLE: Mutex<Table> = Mutex::new(Table::default());
    }

    fn table() -> MutexGuard<'static, Table> {
        TABLE.lock().unwrap()
    }

    pub(crate) fn park(
        key: usize,
        validate: impl FnOnce() -> bool,
        before_sleep: impl FnOnce(),
        timed_out: impl FnOnce(bool),
        token: ParkToken,
        deadline: Option<Instant>,
    ) -> ParkResult {
        let mut table = table();
        if !validate() {
            return ParkResult::Invalid;
        }
        let (bell, ticket) = (Arc::new(Condvar::new()), table.tickets);
        table.tickets += 1;
        table.sleepers.push(Sleeper { ticket, key, token, bell: bell.clone() });
        drop(table);
        before_sleep();
        // A model has no clock: the time is over as soon as others had a turn.
        if deadline.is_some() {
            squall_sync::thread::yield_now();
        }
        let mut table = self::table();
        loop {
            if let Some(at) = table.woken.iter().position(|(woken, _)| *woken == ticket) {
                return ParkResult::Unparked(table.woken.remove(at).1);
            }
            if deadline.is_some() {
                table.sleepers.retain(|sleeper| sleeper.ticket != ticket);
                timed_out(table.is_empty(key));
                return ParkResult::TimedOut;
            }
            table = bell.wait(table).unwrap();
        }
    }

    pub(crate) fn unpark_one(key: usize, callback: impl FnOnce(UnparkResult) -> UnparkToken) -> UnparkResult {
        let mut first = true;
        let only_first = |_| if std::mem::take(&mut first) { FilterOp::Unpark } else { FilterOp::Stop };
        unpark_filter(key, only_first, callback)
    }

    pub(crate) fn unpark_all(key: usize, token: UnparkToken) -> usize {
        unpark_filter(key, |_| FilterOp::Unpark, |_| token).unparked_threads
    }

    pub(crate) fn unpark_filter(
        key: usize,
        mut filter: impl FnMut(ParkToken) -> FilterOp,
        callback: impl FnOnce(UnparkResult) -> UnparkToken,
    ) -> UnparkResult {
        let mut table = table();
        let (mut woken, mut at, mut stopped) = (Vec::new(), 0, false);
        while at < table.sleepers.len() && !stopped {
            if table.sleepers[at].key != key {
                at += 1;
                continue;
            }
            match filter(table.sleepers[at].token) {
                FilterOp::Unpark => woken.push(table.sleepers.remove(at)),
                FilterOp::Skip => at += 1,
                FilterOp::Stop => stopped = true,
            }
        }
        let mut result = UnparkResult::default();
        result.unparked_threads = woken.len();
        result.have_more_threads = !table.is_empty(key);
        let token = callback(result);
        for sleeper in woken {
            table.woken.push((sleeper.ticket, token));
            sleeper.bell.notify_one();
        }
        result
    }
}
