//! The protocol of the distributed reader-writer lock.
//!
//! Problem: readers that share a lock word share its cache line. They slow each other down although they do
//! not exclude each other.
//! Idea: a reader leaves a mark on a line of its own thread (`marks`) and reads a word that normally only
//! writers write. A writer sets the word and reads all marks. The two sides form a store-load handshake, and
//! the writer pays its expensive half (`asym`).
//!
//! ```text
//! reader enters: set the mark; light fence; word == 0: inside.
//!                Else (if FENCED: full fence, read again) if WRITER: clear the mark, wait.
//! reader leaves: clear the mark; light fence; word == 0: done.
//!                Else (full fence, read again) if WRITER: wake the writer.
//! writer enters: (one at a time) wait until no reader is queued; set WRITER; heavy fence;
//!                for each mark: wait until it is gone.
//! writer leaves: clear WRITER; wake the readers.
//! ```
//!
//! - I1. A reader is never inside together with a writer. *Argument.* The reader's fence and the writer's
//!   heavy fence are ordered (`asym/I1`; without `membarrier`, FENCED is set and both are full fences). If
//!   the reader's fence is first, the writer's scan sees its mark and the record that contains it. The scan
//!   waits until the mark is gone, with Acquire, so everything the reader did inside happens before the
//!   writer. If the writer's fence is first, the reader sees WRITER and does not go in. A reader that goes in
//!   saw the end of the last writer with Acquire.
//! - I2. So a writer needs to see each slot without its mark only *once* after its fence. A reader that sets
//!   a mark later clears it again without having been inside.
//! - I3. A waiting writer is woken. By the same handshake, its scan sees that the mark is gone, or the reader
//!   that cleared the mark sees WRITER and signals. A waiting reader is woken by the end of the writer it
//!   saw.
//! - I4. A reader waits for at most two writers. It is queued before it sleeps. A writer that comes after the
//!   one it waits for begins only when no reader is queued. A writer waits for the readers that are inside
//!   when it sets WRITER, and for those queued before.
//! - I5. FENCED is cleared at most once, when `membarrier` is found to work. It is set forever if
//!   `membarrier` is refused later. A visit to each processor catches the readers that did not see it set
//!   then.
//!
//! Not promised: recursion. A thread that reads twice waits for itself if a writer comes between.
//! Progress: readers are wait-free while there is no writer. A thread that stalls inside as a reader delays
//! writers, and through a writer all readers.
//! Cost: a reader writes one word of its own line twice, and reads the word twice, without a locked
//! instruction or a hardware fence. A writer makes a heavy fence (a system call). It then reads
//! a line per record (`marks`): as many as reading threads were ever alive at once.
//! Source: PR-10 (Appavoo 2005, §3.1: replicate read locks, the write lock is all of them); Hsieh and Weihl,
//! "Scalable reader-writer locks for parallel systems", 1992; BRAVO (see `marks`); Linux' `percpu-rwsem` (the
//! writer pays).

use super::marks::{RESERVED, Registry};
use super::sites;
use crate::records::{LockType, Wait};
use crate::steps::Steps;
use squall_machine::asym;
use squall_machine::park::{EventCount, is_past, time_left};
use squall_sys::fork::forked;
use squall_sys::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use squall_sys::sync::hint;
use squall_sys::trace::Subject;
use std::marker::PhantomData;
use std::time::Instant;

/// A writer is inside, or waits until readers are gone.
const WRITER: u32 = 1;
/// Readers make full fences.
const FENCED: u32 = 2;
/// No thread has asked yet whether `membarrier` works. FENCED is set meanwhile.
const UNASKED: u32 = 4;

/// The number of times a writer reads a mark before it sleeps.
const SPINS: u32 = if cfg!(any(loom, miri)) { 0 } else { 100 };

/// The lock without its value and without the lock that admits one writer at a time.
pub(crate) struct Raw<S> {
    /// WRITER, FENCED, UNASKED. Written by writers, and once by the first thread that asks about
    /// `membarrier`.
    word: AtomicU32,
    /// The number of readers that wait for a writer.
    queued: AtomicU32,
    /// Readers wait here for the end of a writer.
    turn: EventCount,
    /// The writer waits here for marks to go, or for the queue to be empty.
    gone: EventCount,
    steps: PhantomData<fn() -> S>,
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Entry {
    /// The thread is inside.
    Inside,
    /// The deadline passed first.
    TimedOut,
}

impl<S: Steps> Raw<S> {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Raw<S> {
        Raw {
            word: AtomicU32::new(FENCED | UNASKED),
            queued: AtomicU32::new(0),
            turn: EventCount::new(),
            gone: EventCount::new(),
            steps: PhantomData,
        }
    }

    /// Makes a lock with readers that make full fences (`fenced`) or light ones.
    #[cfg(loom)]
    pub(crate) fn new(fenced: bool) -> Raw<S> {
        Raw {
            word: AtomicU32::new(if fenced { FENCED } else { 0 }),
            queued: AtomicU32::new(0),
            turn: EventCount::new(),
            gone: EventCount::new(),
            steps: PhantomData,
        }
    }

    /// Returns the value of a mark of this lock. It is at least 4, so it differs from the other values of a
    /// slot (`marks/I1`).
    #[inline(always)]
    pub(crate) fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    // --- readers ---

    /// Marks a free slot of the caller. Returns true if the reader is inside; otherwise the caller must call
    /// [`enter`](Raw::enter).
    #[inline(always)]
    pub(crate) fn mark(&self, slot: &AtomicUsize) -> bool {
        // Release: pairs with the Acquire of the scan in `lock`. A writer that waits for an earlier mark of
        // this slot may see this one in its place. Writes released with the earlier mark must not be lost.
        slot.store(self.key(), sites::MARK_RELEASE.order(Ordering::Release));
        S::step();
        if !sites::ENTER_LIGHT.is_weak() {
            // Light fence: pairs with the heavy fence in `lock` (I1).
            asym::light();
        }
        // Acquire: pairs with the Release in `unlock` (I1).
        self.word.load(sites::ENTER_ACQUIRE.order(Ordering::Acquire)) == 0
    }

    /// Continues after [`mark`](Raw::mark) returned false: waits for the writer, if there is one. If the
    /// deadline passes, the slot is free again.
    #[cold]
    #[inline(never)]
    pub(crate) fn enter(&self, slot: &AtomicUsize, deadline: Option<Instant>, subject: Subject) -> Entry {
        if self.stays_marked(slot) {
            return Entry::Inside;
        }
        self.queued.fetch_add(1, Ordering::Relaxed);
        let mut wait = Wait::later(LockType::RwRead, subject);
        let entry = loop {
            let seen = self.turn.prepare();
            S::step();
            if self.word.load(Ordering::Relaxed) & WRITER == 0 {
                if self.mark(slot) || self.stays_marked(slot) {
                    break Entry::Inside;
                }
                continue;
            }
            if is_past(deadline) || forked() {
                // Release: pairs with the Acquire of the scan in `lock`, and with that of the next owner of
                // this slot.
                slot.store(0, Ordering::Release);
                break Entry::TimedOut;
            }
            S::step();
            squall_sys::waits::count_sleep();
            wait.slept(|| {
                self.turn.wait(seen, time_left(deadline));
            });
        };
        if self.queued.fetch_sub(1, Ordering::Relaxed) == 1 {
            // A writer may wait for this (I4).
            self.gone.signal(1);
        }
        wait.end(entry == Entry::Inside);
        entry
    }

    /// Reads the word again, after a full fence. Returns true if the marked slot may stay marked; otherwise
    /// clears the mark.
    fn stays_marked(&self, slot: &AtomicUsize) -> bool {
        #[cfg(not(loom))]
        self.ask();
        S::step();
        if !sites::ENTER_FULL.is_weak() {
            // Full fence: pairs with the heavy fence in `lock` (I1).
            fence(Ordering::SeqCst);
        }
        // Acquire: pairs with the Release in `unlock` (I1).
        if self.word.load(sites::ENTER_ACQUIRE.order(Ordering::Acquire)) & WRITER == 0 {
            return true;
        }
        self.clear(slot, RESERVED);
        false
    }

    /// Frees the slot of a reader that leaves.
    #[inline(always)]
    pub(crate) fn leave(&self, slot: &AtomicUsize) {
        self.clear(slot, 0);
    }

    #[inline(always)]
    fn clear(&self, slot: &AtomicUsize, to: usize) {
        // Release: pairs with the Acquire of the scan in `lock` (I1).
        slot.store(to, sites::LEAVE_RELEASE.order(Ordering::Release));
        S::step();
        if !sites::LEAVE_LIGHT.is_weak() {
            // Light fence: pairs with the heavy fence in `lock` (I3).
            asym::light();
        }
        if self.word.load(Ordering::Relaxed) != 0 {
            self.gone_with_a_word();
        }
    }

    #[cold]
    #[inline(never)]
    fn gone_with_a_word(&self) {
        if !sites::LEAVE_FULL.is_weak() {
            // Full fence: pairs with the heavy fence in `lock` (I3).
            fence(Ordering::SeqCst);
        }
        S::step();
        if self.word.load(Ordering::Relaxed) & WRITER != 0 {
            self.gone.signal(1);
        }
    }

    /// Returns whether a writer is inside or waits for readers.
    pub(crate) fn has_writer(&self) -> bool {
        self.word.load(Ordering::Relaxed) & WRITER != 0
    }

    // --- writers, one at a time ---

    /// Takes the lock for a writer. If the deadline passes, the lock is unchanged.
    pub(crate) fn lock(&self, registry: &Registry, deadline: Option<Instant>, subject: Subject) -> Entry {
        let mut wait = Wait::later(LockType::RwWrite, subject);
        let entry = self.lock_in(registry, deadline, &mut wait);
        wait.end(entry == Entry::Inside);
        entry
    }

    fn lock_in(&self, registry: &Registry, deadline: Option<Instant>, wait: &mut Wait) -> Entry {
        let queue_is_empty = || self.queued.load(Ordering::Relaxed) == 0;
        if !sites::READERS_FIRST.is_weak() && self.wait(queue_is_empty, deadline, wait) == Entry::TimedOut {
            return Entry::TimedOut;
        }
        self.word.fetch_or(WRITER, Ordering::Relaxed);
        S::step();
        self.heavy();
        for slot in registry.slots() {
            // Acquire: pairs with the Release of `clear` and `mark` (I1).
            let order = sites::SCAN_ACQUIRE.order(Ordering::Acquire);
            if self.wait(|| slot.load(order) != self.key(), deadline, wait) == Entry::TimedOut {
                S::step();
                self.unlock();
                return Entry::TimedOut;
            }
        }
        Entry::Inside
    }

    /// Returns whether a reader has a mark visible to the caller: it is inside, or checks whether it may go
    /// in.
    pub(crate) fn has_marks(&self, registry: &Registry) -> bool {
        registry.slots().any(|slot| slot.load(Ordering::Relaxed) == self.key())
    }

    /// Returns whether a reader waits.
    #[cfg(all(test, any(loom, squall_model)))]
    pub(crate) fn is_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed) != 0
    }

    /// Releases the writer's lock.
    pub(crate) fn unlock(&self) {
        // Release: pairs with the Acquire of readers that go in (I1).
        self.word.fetch_and(!WRITER, sites::UNLOCK_RELEASE.order(Ordering::Release));
        S::step();
        self.turn.signal(u32::MAX);
    }

    /// Waits at `gone` until `is_so` holds.
    fn wait(&self, is_so: impl Fn() -> bool, deadline: Option<Instant>, wait: &mut Wait) -> Entry {
        for _ in 0..SPINS {
            if is_so() {
                return Entry::Inside;
            }
            hint::spin_loop();
        }
        loop {
            let seen = self.gone.prepare();
            if is_so() {
                return Entry::Inside;
            }
            if is_past(deadline) || forked() {
                return Entry::TimedOut;
            }
            S::step();
            squall_sys::waits::count_sleep();
            wait.slept(|| {
                self.gone.wait(seen, time_left(deadline));
            });
        }
    }

    /// Makes the fence between the word and the marks.
    fn heavy(&self) {
        // Heavy fence: pairs with the fences of readers (I1, I3).
        if !sites::HEAVY.is_weak() && asym::heavy().is_err() {
            self.without_membarrier();
        }
    }

    /// Handles a refusal of `membarrier`, which worked before: the process entered a sandbox. From here on
    /// readers make full fences. A visit to each processor makes readers that did not see FENCED yet pass a
    /// barrier (I5).
    #[cold]
    fn without_membarrier(&self) {
        // UNASKED is cleared too, so that a later `ask` cannot clear FENCED.
        let fenced = |word: u32| Some((word | FENCED) & !UNASKED);
        // SeqCst: comes before the visit, for readers that begin meanwhile.
        let before = self.word.fetch_update(Ordering::SeqCst, Ordering::Relaxed, fenced);
        if before.is_ok_and(|word| word & FENCED == 0) {
            asym::visit_processors();
        }
        // Full fence: pairs with the full fences of readers.
        fence(Ordering::SeqCst);
    }

    /// Finds out once whether readers need full fences.
    #[cfg(not(loom))]
    fn ask(&self) {
        if self.word.load(Ordering::Relaxed) & UNASKED == 0 {
            return;
        }
        let clear = if asym::mode() == asym::Mode::Membarrier { FENCED | UNASKED } else { UNASKED };
        // Only once: a second thread finds UNASKED clear, and must not clear a FENCED that was set since
        // (I5).
        let once = |word: u32| (word & UNASKED != 0).then_some(word & !clear);
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, once);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::steps::NoSteps;

    #[test]
    fn readers_make_full_fences_after_membarrier_is_refused() {
        let (raw, registry) = (Raw::<NoSteps>::new(), Registry::new());
        assert_eq!(raw.word.load(Ordering::Relaxed), FENCED | UNASKED, "set until the first question");
        raw.ask();
        let light = asym::mode() == asym::Mode::Membarrier;
        assert_eq!(raw.word.load(Ordering::Relaxed), if light { 0 } else { FENCED });
        raw.without_membarrier();
        raw.ask();
        assert_eq!(raw.word.load(Ordering::Relaxed), FENCED);
        let slot = registry.take().first();
        assert!(!raw.mark(slot), "the reader needs a full fence");
        assert_eq!(raw.enter(slot, None, Subject::NONE), Entry::Inside);
        assert_eq!(raw.lock(&registry, Some(Instant::now()), Subject::NONE), Entry::TimedOut);
        raw.leave(slot);
        assert_eq!(raw.lock(&registry, Some(Instant::now()), Subject::NONE), Entry::Inside);
        raw.unlock();
    }

    #[test]
    fn membarrier_refused_before_the_first_question() {
        let raw = Raw::<NoSteps>::new();
        raw.without_membarrier();
        raw.ask();
        assert_eq!(raw.word.load(Ordering::Relaxed), FENCED, "a later question does not clear it");
    }
}
