//! The inbox of a VP: a bounded set of slots with calls.
//!
//! Problem: many senders give calls to any of several servers. The answer to a call goes to its sender. A
//! sender may give up, at any moment. No thread may wait for another one that was preempted, but for the lock
//! of a slot, which a thread holds for a few instructions.
//!
//! Idea: a slot has the call and later its result. Two words of bits say which slots are free, and which have
//! a call that no thread has begun. The thread that clears a bit owns the slot. A third word, in the slot,
//! is between the server and the sender.
//!
//! | phase | meaning |
//! |---|---|
//! | `SENT` | The sender has a ticket. It does not sleep. |
//! | `WATCHED` | The sender has left a waker. |
//! | `DETACHED` | The sender has dropped its ticket. |
//! | `DONE` | The slot has the result, and belongs to the sender. |
//!
//! - I1. A slot whose bit in `free` is set is empty, and no thread uses it. The thread that clears the bit
//!   owns the slot.
//! - I2. A slot whose bit in `queued` is set has a call. The thread that clears the bit owns the call: a
//!   server runs it, the sender cancels it.
//! - I3. The server leaves the result, and then exchanges the phase for `DONE`. If it finds `DETACHED`, it
//!   drops the result and frees the slot. Otherwise the slot is the sender's from then on.
//! - I4. A waker is put into the slot, and taken out of it, under the slot's lock. A sender puts it there
//!   before it exchanges `SENT` for `WATCHED`, so it sees `DONE` or the server sees `WATCHED`. The server
//!   exchanges `WATCHED` for `DONE` under the same lock. So it takes the waker of this call, not of a later
//!   one.
//! - I5. A call that runs again stays in its slot, and its server queues it anew. Its runs are ordered.
//!
//! Not promised: an order of the calls. The search for the next call begins behind the last one, so a call is
//! not passed over for long.
//!
//! Cost: a call makes one atomic change of `free` and one of `queued` on each side, and one of the phase.
//! Source: Unrau et al. 1995, §4.1 (HU-08). Deviation: the inbox is bounded, and unordered.

use super::cargo::{Cargo, Panic};
use super::sites;
use squall_sys::padded::CachePadded;
use squall_sys::panics::end_panic;
use squall_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::{Mutex, MutexGuard, lock};
use std::ops::Deref;
use std::task::Waker;

/// The most slots that an inbox can have: the bits of a word.
pub const SLOTS_MAX: usize = 64;

const SENT: u32 = 0;
const WATCHED: u32 = 1;
const DETACHED: u32 = 2;
const DONE: u32 = 3;

/// A slot. It shares no line, and no pair of lines that is fetched together, with another one.
#[repr(align(128))]
pub(super) struct Slot {
    phase: AtomicU32,
    waker: Mutex<Option<Waker>>,
    /// Used by the owner of the slot (I1, I3) or of the call (I2).
    cargo: UnsafeCell<Cargo>,
}

impl Slot {
    pub(super) fn new() -> Slot {
        Slot { phase: AtomicU32::new(SENT), waker: Mutex::new(None), cargo: UnsafeCell::new(Cargo::EMPTY) }
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        lock(&self.waker, "a slot of an inbox")
    }
}

/// The slots of an inbox.
pub(super) enum Slots {
    /// In memory near the VP, for good.
    #[cfg_attr(loom, allow(dead_code))]
    Near(&'static [Slot]),
    Owned(Box<[Slot]>),
}

impl Deref for Slots {
    type Target = [Slot];

    fn deref(&self) -> &[Slot] {
        match self {
            Slots::Near(slots) => slots,
            Slots::Owned(slots) => slots,
        }
    }
}

/// The inbox of a VP.
pub(super) struct Inbox {
    /// Written by senders.
    free: CachePadded<AtomicU64>,
    queued: CachePadded<Queued>,
    slots: Slots,
}

struct Queued {
    bits: AtomicU64,
    /// The slot at which the next search begins. Written by servers.
    next: AtomicU32,
}

// SAFETY: a cargo is used by one thread at a time (I1 to I3). Calls and results are `Send` (`send`).
unsafe impl Send for Inbox {}
// SAFETY: as for `Send`.
unsafe impl Sync for Inbox {}

/// A sender's claim on a slot. Only this module makes and ends one.
#[derive(Debug)]
#[must_use]
pub(super) struct Ticket(usize);

/// A call that its holder has to run.
#[must_use]
pub(super) struct Taken(usize);

impl Inbox {
    /// Makes an inbox of these slots: at least 1, and at most [`SLOTS_MAX`].
    pub(super) fn new(slots: Slots) -> Inbox {
        let count = slots.len();
        assert!((1..=SLOTS_MAX).contains(&count), "an inbox has 1 to {SLOTS_MAX} slots, not {count}");
        Inbox {
            free: CachePadded::new(AtomicU64::new(u64::MAX >> (SLOTS_MAX - count))),
            queued: CachePadded::new(Queued { bits: AtomicU64::new(0), next: AtomicU32::new(0) }),
            slots,
        }
    }

    /// Queues a call. If no slot is free, returns it.
    pub(super) fn send<R, F>(&self, call: F) -> Result<Ticket, F>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let Some(at) = self.claim() else { return Err(call) };
        // SAFETY: ours alone (I1).
        self.slots[at].cargo.with_mut(|cargo| unsafe { (*cargo).put(call) });
        Ok(self.queue(at))
    }

    /// Queues a call that runs again for as long as it returns true (I5). Other calls run in between. If no
    /// slot is free, returns it.
    pub(super) fn send_repeated<F: FnMut() -> bool + Send + 'static>(&self, call: F) -> Result<Ticket, F> {
        let Some(at) = self.claim() else { return Err(call) };
        // SAFETY: ours alone (I1).
        self.slots[at].cargo.with_mut(|cargo| unsafe { (*cargo).put_repeated(call) });
        Ok(self.queue(at))
    }

    fn queue(&self, at: usize) -> Ticket {
        // Release: pairs with the Acquire of `clear_queued`: the thread that takes the call sees it.
        self.queued.bits.fetch_or(1 << at, sites::QUEUE.order(Ordering::Release));
        Ticket(at)
    }

    fn claim(&self) -> Option<usize> {
        let mut free = self.free.load(Ordering::Relaxed);
        while free != 0 {
            let bit = free & free.wrapping_neg();
            // Acquire: pairs with the Release of `free`: the last user of the slot is through.
            let before = self.free.fetch_and(!bit, sites::CLAIM.order(Ordering::Acquire));
            if before & bit != 0 {
                return Some(bit.trailing_zeros() as usize);
            }
            free = before & !bit;
        }
        None
    }

    /// Frees an empty slot of the caller.
    fn free(&self, at: usize) {
        // Relaxed: ordered by the next step.
        self.slots[at].phase.store(SENT, Ordering::Relaxed);
        // Release: pairs with the Acquire of `claim`.
        self.free.fetch_or(1 << at, sites::FREE.order(Ordering::Release));
    }

    fn clear_queued(&self, at: usize) -> bool {
        // Acquire: pairs with the Release of `send`: the call is seen whole.
        self.queued.bits.fetch_and(!(1 << at), sites::TAKE.order(Ordering::Acquire)) & (1 << at) != 0
    }

    /// Returns whether a call waits for a server.
    #[inline]
    pub(super) fn has_queued(&self) -> bool {
        // Relaxed: a thread that must not miss a call looks again under the lock of the staff (`staff/I1`).
        self.queued.bits.load(Ordering::Relaxed) != 0
    }

    /// Returns the number of calls that wait for a server.
    #[cfg_attr(loom, allow(dead_code))]
    pub(super) fn queued(&self) -> u32 {
        self.queued.bits.load(Ordering::Relaxed).count_ones()
    }

    /// Takes a call that waits for a server.
    pub(super) fn take(&self) -> Option<Taken> {
        loop {
            let bits = self.queued.bits.load(Ordering::Relaxed);
            if bits == 0 {
                return None;
            }
            // Relaxed: a hint.
            let first = self.queued.next.load(Ordering::Relaxed) % SLOTS_MAX as u32;
            let at = (bits.rotate_right(first).trailing_zeros() + first) % SLOTS_MAX as u32;
            if self.clear_queued(at as usize) {
                self.queued.next.store(at + 1, Ordering::Relaxed);
                return Some(Taken(at as usize));
            }
        }
    }

    /// Runs a call, and gives the result to its sender. Returns true if the call was queued anew instead, to
    /// run again (I5).
    pub(super) fn run(&self, taken: Taken) -> bool {
        let Taken(at) = taken;
        // SAFETY: the call is ours (I2).
        let again = self.slots[at].cargo.with_mut(|cargo| unsafe { (*cargo).run() });
        if again {
            // Release: pairs with the Acquire of `clear_queued`: the next run comes after this one.
            self.queued.bits.fetch_or(1 << at, sites::AGAIN.order(Ordering::Release));
        } else {
            self.finish(at);
        }
        again
    }

    fn finish(&self, at: usize) {
        let slot = &self.slots[at];
        // Release: pairs with the Acquire of `is_done` and `detach`: the sender sees the result.
        let (done, failed) = (sites::DONE.order(Ordering::Release), Ordering::Relaxed);
        match slot.phase.compare_exchange(SENT, DONE, done, failed) {
            Ok(_) => return,
            Err(WATCHED) if sites::WATCHED.is_weak() => return slot.phase.store(DONE, done),
            Err(WATCHED) => {
                let mut kept = slot.waker();
                if slot.phase.compare_exchange(WATCHED, DONE, done, failed).is_ok() {
                    let waker = kept.take();
                    drop(kept);
                    return waker.into_iter().for_each(wake);
                }
            }
            Err(_) => {}
        }
        // The sender has gone (I3), perhaps after it had watched.
        if !sites::DETACHED.is_weak() {
            // SAFETY: the result is ours (I3).
            slot.cargo.with_mut(|cargo| unsafe { (*cargo).drop_result() });
            self.free(at);
        }
    }

    /// Returns whether the call has a result.
    pub(super) fn is_done(&self, ticket: &Ticket) -> bool {
        // Acquire: pairs with the Release of `finish`.
        self.slots[ticket.0].phase.load(sites::RESULT.order(Ordering::Acquire)) == DONE
    }

    /// Takes the result of a call that [is done](Inbox::is_done), and frees the slot.
    ///
    /// # Safety
    /// `R` is the type of the call's result.
    pub(super) unsafe fn take_result<R>(&self, ticket: Ticket) -> Result<R, Panic> {
        // SAFETY: the slot is ours, with a result (I3); the caller promises its type.
        let result = self.slots[ticket.0].cargo.with_mut(|cargo| unsafe { (*cargo).take::<R>() });
        self.free(ticket.0);
        result
    }

    /// Leaves a waker for the end of the call. Returns true if the call is done already.
    pub(super) fn watch(&self, ticket: &Ticket, waker: &Waker) -> bool {
        let slot = &self.slots[ticket.0];
        // Wakers are users' code, so they are cloned and dropped outside the lock.
        let mut other = Some(waker.clone());
        // Acquire: as in `is_done`. Only in a model's twin.
        if sites::WATCH.is_weak() && slot.phase.load(Ordering::Acquire) == DONE {
            return true;
        }
        let mut kept = slot.waker();
        std::mem::swap(&mut *kept, &mut other);
        let done = if sites::WATCH.is_weak() {
            slot.phase.store(WATCHED, Ordering::Relaxed);
            false
        } else {
            // Acquire: as in `is_done`.
            let order = sites::RESULT.order(Ordering::Acquire);
            slot.phase.compare_exchange(SENT, WATCHED, Ordering::Relaxed, order) == Err(DONE)
        };
        let unused = if done { kept.take() } else { None };
        drop(kept);
        drop((unused, other));
        done
    }

    /// Cancels a call that no server has begun: drops it and frees the slot. Otherwise returns the ticket.
    pub(super) fn cancel(&self, ticket: Ticket) -> Result<(), Ticket> {
        let Some(Taken(at)) = self.take_back(&ticket) else { return Err(ticket) };
        let slot = &self.slots[at];
        // SAFETY: the call is ours (I2).
        slot.cargo.with_mut(|cargo| unsafe { (*cargo).drop_call() });
        self.free_unused(at);
        Ok(())
    }

    /// Takes the closure of a call back that no server has begun, and frees the slot. Otherwise returns the
    /// ticket.
    ///
    /// # Safety
    /// The ticket is that of a call of type `F`, with a result of type `R`.
    pub(super) unsafe fn take_call<R, F>(&self, ticket: Ticket) -> Result<F, Ticket> {
        let Some(Taken(at)) = self.take_back(&ticket) else { return Err(ticket) };
        // SAFETY: the call is ours (I2), and the caller promises its type.
        let call = self.slots[at].cargo.with_mut(|cargo| unsafe { (*cargo).take_call::<R, F>() });
        self.free_unused(at);
        Ok(call)
    }

    /// Frees the slot of a call that did not run.
    fn free_unused(&self, at: usize) {
        let waker = self.slots[at].waker().take();
        self.free(at);
        // Last: users' code.
        end_panic(|| drop(waker));
    }

    /// Takes the sender's own call back, to be run by the sender, if no server has begun it.
    pub(super) fn take_back(&self, ticket: &Ticket) -> Option<Taken> {
        self.clear_queued(ticket.0).then_some(Taken(ticket.0))
    }

    /// Gives up the result of a call. A server drops it.
    pub(super) fn detach(&self, ticket: Ticket) {
        let slot = &self.slots[ticket.0];
        let mut kept = slot.waker();
        let waker = kept.take();
        // Acquire: pairs with the Release of `finish`, for the result that is dropped here.
        let found = slot.phase.swap(DETACHED, sites::RESULT.order(Ordering::Acquire));
        drop(kept);
        if found == DONE {
            // SAFETY: the result is ours (I3).
            slot.cargo.with_mut(|cargo| unsafe { (*cargo).drop_result() });
            self.free(ticket.0);
        }
        // Last: users' code.
        end_panic(|| drop(waker));
    }

    /// Returns the number of free slots. It may be out of date.
    #[cfg(test)]
    pub(super) fn free_count(&self) -> u32 {
        self.free.load(Ordering::Relaxed).count_ones()
    }

    /// Returns the number of slots in use: of calls that wait or run, and of results that their senders have
    /// not taken. It may be out of date.
    #[cfg_attr(loom, allow(dead_code))]
    pub(super) fn used(&self) -> u32 {
        self.slots.len() as u32 - self.free.load(Ordering::Relaxed).count_ones()
    }
}

/// Wakes a sender. A panic of its waker ends here, after the panic hook has reported it.
pub(super) fn wake(waker: Waker) {
    end_panic(|| waker.wake());
}
