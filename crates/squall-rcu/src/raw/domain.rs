//! A domain: a set of registered threads, and the grace periods among them.
//!
//! - I1. Between `register` and `unregister` of a record, only its thread calls `enter`, `leave` and `defer`
//!   with it.
//! - I2. A thread that takes calls from other threads' lists holds `takers`. It never waits for a reader or
//!   runs a deferred call while it holds `takers`.

use squall_machine::asym::{self, FenceReason, Mode, Unavailable};
use squall_sys::sync::Mutex;

use super::defer::{Batch, Deferred, Kind, Queue, Reentrant};
use super::grace::GracePeriods;
use super::moment::Moment;
use super::record::{Record, Token, attention};
use super::registry::Registry;
use super::sites;

/// The registry, the grace periods and the takers' lock of one set of threads.
pub(crate) struct Domain {
    pub(crate) registry: Registry,
    pub(crate) grace: GracePeriods,
    takers: Mutex<()>,
}

/// The effects of adding a deferred call.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct Added {
    /// The call closed a batch.
    pub(crate) closed: bool,
    /// The call is the only one that its thread has pending.
    pub(crate) first: bool,
}

impl Domain {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Domain {
        Domain { registry: Registry::new(), grace: GracePeriods::new(), takers: Mutex::new(()) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Domain {
        Domain { registry: Registry::new(), grace: GracePeriods::new(), takers: Mutex::new(()) }
    }

    /// Returns whether readers must execute a full fence (`asym/I2`).
    pub(crate) fn fenced() -> bool {
        // Under a checker the light fence is a full one already.
        !matches!(asym::mode(), Mode::Membarrier | Mode::Fence(FenceReason::Checker))
    }

    /// Assigns a record to the calling thread.
    pub(crate) fn register(&self, thread: u32, fenced: bool) -> &Record {
        self.registry.take(thread, fenced)
    }

    /// Takes the record of the calling thread back and ends any operation open in it. The thread's deferred
    /// calls were taken before ([`Domain::take_own`]).
    pub(crate) fn unregister(&self, record: &Record) {
        record.abandon();
        if record.clear(attention::WAITED_FOR) != 0 {
            self.grace.note_left();
        }
        self.registry.give_back(record);
    }

    /// Opens an operation.
    #[inline(always)]
    pub(crate) fn enter(&self, record: &Record) -> Token {
        record.enter_fast().unwrap_or_else(|| record.enter_slow())
    }

    /// Finishes a leave that found `attention` set. Returns the requests that the upper layer must handle.
    pub(crate) fn leave_slow(&self, record: &Record, token: Token) -> u32 {
        let bits = record.leave_slow(token);
        if bits & attention::WAITED_FOR != 0 {
            record.clear(attention::WAITED_FOR);
            self.grace.note_left();
        }
        bits & !attention::WAITED_FOR
    }

    /// Closes an operation. Returns the requests that the upper layer must handle.
    #[cfg(all(test, any(loom, squall_model)))]
    pub(crate) fn leave(&self, record: &Record, token: Token) -> u32 {
        if record.leave(token) { self.leave_slow(record, token) } else { 0 }
    }

    /// Adds a deferred call to the calling thread's list on the fast path. Returns whether it was added.
    ///
    /// The fast path is taken if some calls are pending already, there is room, the batch does not become
    /// full, and no taker has the list.
    #[inline(always)]
    pub(crate) fn defer_fast(&self, record: &Record, kind: Kind, call: Deferred) -> bool {
        let bytes = call.bytes;
        let added = record.deferrals.try_as_owner(record.is_fenced(), |queue| {
            let added = record.deferrals.has_pending() && queue.push_fast(kind, call);
            if added {
                record.deferrals.count_push(bytes);
            }
            added
        });
        added == Some(true)
    }

    /// Adds a deferred call to the list of the calling thread.
    #[inline(always)]
    pub(crate) fn defer(&self, record: &Record, kind: Kind, call: Deferred) -> Result<Added, Reentrant> {
        let bytes = call.bytes;
        record.deferrals.as_owner(record.is_fenced(), |queue| {
            let closed = queue.push(kind, call, || self.grace.mark());
            let first = record.deferrals.count_push(bytes) == 1;
            Added { closed, first }
        })
    }

    /// Returns the moment of the calling thread's oldest closed batch of this kind, and the number of its
    /// closed batches.
    pub(crate) fn oldest(&self, record: &Record, kind: Kind) -> Option<(Moment, usize)> {
        record.deferrals.as_owner(record.is_fenced(), |queue| queue.oldest(kind)).ok().flatten()
    }

    /// Returns the number of calls of this kind that the calling thread has pending.
    pub(crate) fn pending_of(&self, record: &Record, kind: Kind) -> u64 {
        record.deferrals.as_owner(record.is_fenced(), |queue| queue.calls_of(kind)).unwrap_or(0)
    }

    /// Takes the oldest batch of the calling thread if its moment is at most `passed`, a moment that has
    /// passed. Calls `then` while the list is still locked.
    pub(crate) fn pop(
        &self,
        record: &Record,
        kind: Kind,
        passed: Moment,
        then: impl FnOnce(),
    ) -> Option<Batch> {
        let popped = record.deferrals.as_owner(record.is_fenced(), |queue| {
            let batch = queue.pop(kind, passed)?;
            record.deferrals.update_counts(queue);
            record.deferrals.count_taken();
            then();
            Some(batch)
        });
        popped.ok().flatten()
    }

    /// Keeps an emptied list for the calling thread's next batch.
    pub(crate) fn recycle(&self, record: &Record, kind: Kind, list: Vec<Deferred>) {
        // Refused only inside a signal handler; the list is then freed.
        let _ = record.deferrals.as_owner(record.is_fenced(), |queue| {
            queue.recycle(kind, list);
            record.deferrals.update_counts(queue);
        });
    }

    /// Takes all deferred calls of the calling thread. Calls `then` while the list is still locked.
    pub(crate) fn take_own(&self, record: &Record, then: impl FnOnce()) -> Vec<Batch> {
        let taken = record.deferrals.as_owner(record.is_fenced(), |queue| {
            let all = queue.take_all(|| self.grace.mark());
            record.deferrals.update_counts(queue);
            then();
            all
        });
        taken.unwrap_or_default()
    }

    /// Returns the records that `choose` selects.
    pub(crate) fn choose(&self, mut choose: impl FnMut(&Record) -> bool) -> Vec<&Record> {
        let mut chosen = Vec::new();
        self.registry.for_each(|record| {
            if choose(record) {
                chosen.push(record);
            }
        });
        chosen
    }

    /// Calls `visit` with the locked list of each of these records, of any owner. Then calls `then`, while
    /// other takers are still excluded.
    ///
    /// # Errors
    /// The heavy fence cannot be made; no list was visited.
    pub(crate) fn visit(
        &self,
        records: &[&Record],
        mut visit: impl FnMut(&mut Queue),
        then: impl FnOnce(),
    ) -> Result<(), Unavailable> {
        let _taker = self.takers.lock().unwrap_or_else(|poison| poison.into_inner());
        if records.is_empty() {
            then();
            return Ok(());
        }
        records.iter().for_each(|record| record.deferrals.begin_take());
        // Pairs with the fence in `Deferrals::owner_try_enter` (`defer/I1`).
        let fence = if sites::TAKE_FENCE.is_weak() { Ok(()) } else { asym::heavy() };
        for record in records {
            if fence.is_ok() {
                record.deferrals.take(|queue| {
                    visit(queue);
                    record.deferrals.update_counts(queue);
                });
            }
            record.deferrals.end_take();
        }
        then();
        fence
    }

    /// Closes the open lists of these records. Returns the latest moment that a batch in these lists waits
    /// for.
    ///
    /// # Errors
    /// The errors of [`Domain::visit`].
    pub(crate) fn close(&self, records: &[&Record]) -> Result<Option<Moment>, Unavailable> {
        let mut latest = None;
        self.visit(records, |queue| latest = latest.max(queue.close(|| self.grace.mark())), || ())?;
        Ok(latest)
    }

    /// Takes the batches of these records whose moment has passed. Then calls `then`, while other takers are
    /// still excluded.
    ///
    /// # Errors
    /// The errors of [`Domain::visit`].
    pub(crate) fn take_ripe(
        &self,
        records: &[&Record],
        then: impl FnOnce(),
    ) -> Result<Vec<Batch>, Unavailable> {
        let passed = self.grace.passed();
        let mut ripe = Vec::new();
        let take = |queue: &mut Queue| {
            for kind in Kind::ALL {
                ripe.extend(std::iter::from_fn(|| queue.pop(kind, passed)));
            }
            queue.trim();
        };
        self.visit(records, take, then)?;
        Ok(ripe)
    }
}
