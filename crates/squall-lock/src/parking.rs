//! The crate's only access to the table in which threads sleep: `parking_lot_core`'s, or a model of it.
//!
//! - I1. `validate` runs under the lock of the key's queue. If it returns false, the thread does not sleep.
//!   If it returns true, the thread joins the end of the queue before any other thread can take that lock.
//! - I2. A wake-up takes the first thread of the queue, or the threads its filter selects, under the same
//!   lock. `timed_out` and `callback` run under that lock too, and learn whether threads remain in the queue.
//! - I3. Keys are addresses. A late wake-up may reach the key of memory that has been reused: a woken thread
//!   must check its condition again.
//!
//! The functions are those of `parking_lot_core`, reduced to the needed parameters. The closures must not
//! park, wake or panic.
//! Version 0.9 reads the clock once for each wake-up, for a fairness that is not used here. Version 0.10
//! needs Rust 1.95.
//! Source: `parking_lot_core`; Gamsa, Krieger, Appavoo and Stumm, "Tornado", 1999, §5.1 (waiters in a shared
//! table).

pub(crate) use parking_lot_core::{FilterOp, ParkResult, ParkToken, UnparkResult, UnparkToken};
#[cfg(not(any(loom, miri)))]
use squall_sys::fork::forked;
#[cfg(not(any(loom, miri)))]
use std::time::Instant;

/// Sleeps in the queue of `key` if `validate` returns true, until a wake-up or the deadline. `before_sleep`
/// runs when the thread is in the queue and has released the queue's lock. `timed_out` runs under that lock;
/// its argument tells whether the queue is empty now.
#[cfg(not(any(loom, miri)))]
pub(crate) fn park(
    key: usize,
    validate: impl FnOnce() -> bool,
    before_sleep: impl FnOnce(),
    timed_out: impl FnOnce(bool),
    token: ParkToken,
    deadline: Option<Instant>,
) -> ParkResult {
    let before_sleep = || {
        squall_sys::waits::count_sleep();
        before_sleep();
    };
    // SAFETY: the key is an address of ours. The closures neither panic nor call back into the table
    // (module).
    unsafe { parking_lot_core::park(key, validate, before_sleep, |_, last| timed_out(last), token, deadline) }
}

/// Wakes the first thread in the queue of `key`. `callback` runs under the queue's lock, and the thread
/// receives its result. No thread sleeps in the child of a fork, where the queue's lock may be held for ever.
#[cfg(not(any(loom, miri)))]
pub(crate) fn unpark_one(key: usize, callback: impl FnOnce(UnparkResult) -> UnparkToken) -> UnparkResult {
    if forked() {
        callback(UnparkResult::default());
        return UnparkResult::default();
    }
    // SAFETY: the key is an address of ours. The closure neither panics nor calls back into the table
    // (module).
    unsafe { parking_lot_core::unpark_one(key, callback) }
}

/// Wakes all threads in the queue of `key`. Returns their number. No thread sleeps in the child of a fork.
#[cfg(not(any(loom, miri)))]
pub(crate) fn unpark_all(key: usize, token: UnparkToken) -> usize {
    if forked() {
        return 0;
    }
    // SAFETY: the key is an address of ours.
    unsafe { parking_lot_core::unpark_all(key, token) }
}

/// Wakes the threads in the queue of `key` that `filter` selects by their tokens, in order. `callback` runs
/// under the queue's lock, and the threads receive its result. No thread sleeps in the child of a fork.
#[cfg(not(any(loom, miri)))]
pub(crate) fn unpark_filter(
    key: usize,
    filter: impl FnMut(ParkToken) -> FilterOp,
    callback: impl FnOnce(UnparkResult) -> UnparkToken,
) -> UnparkResult {
    if forked() {
        callback(UnparkResult::default());
        return UnparkResult::default();
    }
    // SAFETY: the key is an address of ours. The closures neither panic nor call back into the table
    // (module).
    unsafe { parking_lot_core::unpark_filter(key, filter, callback) }
}

#[cfg(any(loom, miri))]
pub(crate) use modelled::{park, unpark_all, unpark_filter, unpark_one};

/// A model of the table for loom: it promises I1 and I2, and no more. Also for Miri, which no longer accepts
/// the system call of `parking_lot_core`.
#[cfg(any(loom, miri))]
mod modelled {
    use super::{FilterOp, ParkResult, ParkToken, UnparkResult, UnparkToken};
    use squall_sys::sync::{Arc, Condvar, Mutex, MutexGuard};
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
        /// The woken threads that have not noticed yet, and the token for each.
        woken: Vec<(u64, UnparkToken)>,
        tickets: u64,
    }

    impl Table {
        fn is_empty(&self, key: usize) -> bool {
            !self.sleepers.iter().any(|sleeper| sleeper.key == key)
        }
    }

    #[cfg(loom)]
    squall_sys::sync::lazy_static! {
        static ref TABLE: Mutex<Table> = Mutex::new(Table::default());
    }
    #[cfg(not(loom))]
    static TABLE: Mutex<Table> = Mutex::new(Table { sleepers: Vec::new(), woken: Vec::new(), tickets: 0 });

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
        #[cfg(not(loom))]
        squall_sys::waits::count_sleep();
        before_sleep();
        // Loom has no clock: the deadline passes as soon as other threads had a turn.
        #[cfg(loom)]
        if deadline.is_some() {
            squall_sys::sync::thread::yield_now();
        }
        let mut table = self::table();
        loop {
            if let Some(at) = table.woken.iter().position(|(woken, _)| *woken == ticket) {
                return ParkResult::Unparked(table.woken.remove(at).1);
            }
            if is_over(deadline) {
                table.sleepers.retain(|sleeper| sleeper.ticket != ticket);
                timed_out(table.is_empty(key));
                return ParkResult::TimedOut;
            }
            table = wait(&bell, table, deadline);
        }
    }

    fn is_over(deadline: Option<Instant>) -> bool {
        deadline.is_some_and(|at| cfg!(loom) || Instant::now() >= at)
    }

    fn wait<'a>(
        bell: &Condvar,
        table: MutexGuard<'a, Table>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, Table> {
        #[cfg(not(loom))]
        if let Some(at) = deadline {
            return bell.wait_timeout(table, at.saturating_duration_since(Instant::now())).unwrap().0;
        }
        let _ = deadline;
        bell.wait(table).unwrap()
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
