//! The protocol of the distributed reader-writer lock, and of the read-biased one (`bias`).
//!
//! Problem: readers that share a lock word share its cache line. They slow each other down although they do
//! not exclude each other.
//! Idea: a reader leaves a mark on a line of its own thread (`marks`) and reads a word that normally only
//! writers write. A writer sets the word and reads all marks. The two sides form a store-load handshake, and
//! the writer pays its expensive half (`asym`). A lock that is written often can be *unbiased* for a while:
//! then readers count themselves in the word, and a writer reads no marks.
//!
//! ```text
//! reader enters: set the mark; light fence; no flag in the word: inside.
//!                Else (full fence, read again) if WRITER or UNBIASED: clear the mark, wait or count.
//! reader leaves: clear the mark; light fence; no flag in the word: done.
//!                Else (full fence, read again) if WRITER: wake the writer.
//! reader enters, counted: in one step, if WRITER is clear: add one to the count. Else wait.
//! reader leaves, counted: subtract one; it was the last and WRITER is set: wake the writer.
//! writer enters: (one at a time) wait until no reader is queued; set WRITER;
//!                unless UNBIASED was set: heavy fence; for each mark: wait until it is gone;
//!                wait until the count is zero.
//! writer leaves: clear WRITER and WAITS; if WAITS was set: wake the readers.
//! reader waits:  in one step, if WRITER is set: set WAITS. Sleep until a writer leaves.
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
//!   that cleared the mark sees WRITER and signals. A counted reader and a writer change one word, so one of
//!   them sees the other. A reader that waits sets WAITS while WRITER is set, in one step. So the end of
//!   that writer sees WAITS, and signals.
//! - I4. A queued reader waits for at most two writers. It is queued before it sleeps. A writer that comes
//!   after the one it waits for begins only when no reader is queued. A writer waits for the readers that are
//!   inside when it sets WRITER, and for those queued before.
//! - I5. FENCED is cleared at most once, when `membarrier` is found to work. It is set forever if
//!   `membarrier` is refused later. A visit to each processor catches the readers that did not see it set
//!   then.
//! - I6. A counted reader is never inside together with a writer. *Argument.* The count and WRITER change in
//!   one word. A reader adds itself only while WRITER is clear, with Acquire. The writer sets WRITER, and
//!   goes in after it read the count as zero, with Acquire. All changes of the word are read-modify-writes,
//!   so each release of the word reaches every later Acquire.
//! - I7. While UNBIASED is set, no reader is inside by a mark. *Argument.* Such a reader read the word
//!   without WRITER and UNBIASED. The writer that set UNBIASED was inside, so it had set WRITER before.
//!   If the reader read a value from before that WRITER, the writer's scan waited for its mark (I1). If
//!   it read a later value, the lock had become biased again.
//! - I8. UNBIASED changes from set to clear only while WRITER is clear, in one step. So a writer that found
//!   UNBIASED set when it set WRITER has the lock without a scan.
//!
//! Not promised: recursion. A thread that reads twice waits for itself if a writer comes between.
//! Progress: readers are wait-free while there is no writer. A thread that stalls inside as a reader delays
//! writers, and through a writer all readers.
//! Cost: a reader writes one word of its own line twice, and reads the word twice, without a locked
//! instruction or a hardware fence. A writer makes a heavy fence (a system call). It then reads
//! a line per record (`marks`): as many as reading threads were ever alive at once. Unbiased, a reader makes
//! two read-modify-writes of the word, as a writer does.
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
/// A reader waits for the end of the writer. Set only while WRITER is set.
const WAITS: u32 = 8;
/// Readers are counted in this word. Writers read no marks.
const UNBIASED: u32 = 16;
/// One counted reader. The bits from here on are their count.
const READER: u32 = 32;
/// The bits below the count. A reader goes in by its mark alone if all are clear.
const FLAGS: u32 = READER - 1;
/// A reader adds itself only to a smaller word. Only forgotten guards reach this one.
const WORD_MAX: u32 = 1 << 31;

const _: () = assert!(FLAGS == WRITER | FENCED | UNASKED | WAITS | UNBIASED);

/// The number of times a writer reads a mark, or a counted reader the word, before it sleeps.
const SPINS: u32 = if cfg!(any(loom, miri)) { 0 } else { 100 };

/// The lock without its value and without the lock that admits one writer at a time.
pub(crate) struct Raw<S> {
    /// The flags and the count. Written by writers, by readers that wait or are counted, and once by the
    /// first thread that asks about `membarrier`.
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
    /// Makes a lock that is always biased.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Raw<S> {
        Raw::with_word(FENCED | UNASKED)
    }

    /// Makes an unbiased lock.
    #[cfg(not(loom))]
    pub(crate) const fn new_unbiased() -> Raw<S> {
        Raw::with_word(FENCED | UNASKED | UNBIASED)
    }

    #[cfg(not(loom))]
    const fn with_word(word: u32) -> Raw<S> {
        Raw {
            word: AtomicU32::new(word),
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
        self.word.load(sites::ENTER_ACQUIRE.order(Ordering::Acquire)) & FLAGS == 0
    }

    /// Continues after [`mark`](Raw::mark) returned false: waits for the writer, if there is one. If the
    /// deadline passes, the slot is free again.
    #[cold]
    #[inline(never)]
    pub(crate) fn enter(&self, slot: &AtomicUsize, deadline: Option<Instant>, subject: Subject) -> Entry {
        if self.stays_marked(slot) {
            return Entry::Inside;
        }
        let entry = self.queue(|| self.mark(slot) || self.stays_marked(slot), deadline, subject);
        if entry == Entry::TimedOut {
            // Release: pairs with the Acquire of the scan in `lock`, and with that of the next owner of this
            // slot.
            slot.store(0, Ordering::Release);
        }
        entry
    }

    /// Waits in the queue of readers until `go_in` succeeds. Calls it when there is no writer.
    fn queue(&self, go_in: impl Fn() -> bool, deadline: Option<Instant>, subject: Subject) -> Entry {
        self.queued.fetch_add(1, Ordering::Relaxed);
        let mut wait = Wait::later(LockType::RwRead, subject);
        let entry = loop {
            let seen = self.turn.prepare();
            S::step();
            if !self.waits_for_writer() {
                if go_in() {
                    break Entry::Inside;
                }
                continue;
            }
            if is_past(deadline) || forked() {
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

    /// Announces a waiting reader to the writer, if there is one (I3). Returns whether there is.
    fn waits_for_writer(&self) -> bool {
        if sites::ANNOUNCE.is_weak() {
            return self.has_writer();
        }
        let announced = |word: u32| (word & WRITER != 0).then_some(word | WAITS);
        self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, announced).is_ok()
    }

    /// Returns true if the marked slot may stay marked; otherwise clears the mark.
    fn stays_marked(&self, slot: &AtomicUsize) -> bool {
        if self.is_open() {
            return true;
        }
        self.clear(slot, RESERVED);
        false
    }

    /// Reads the word again, after a full fence. Returns whether a reader with a mark is inside.
    pub(crate) fn is_open(&self) -> bool {
        #[cfg(not(loom))]
        self.ask();
        S::step();
        if !sites::ENTER_FULL.is_weak() {
            // Full fence: pairs with the heavy fence in `lock` (I1).
            fence(Ordering::SeqCst);
        }
        let closed = if sites::UNBIASED_SEEN.is_weak() { WRITER } else { WRITER | UNBIASED };
        // Acquire: pairs with the Release in `unlock` (I1).
        self.word.load(sites::ENTER_ACQUIRE.order(Ordering::Acquire)) & closed == 0
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
        if self.word.load(Ordering::Relaxed) & FLAGS != 0 {
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

    // --- counted readers ---

    /// Adds a reader to the count, if there is no writer. Then the reader is inside.
    ///
    /// # Panics
    /// If the count is full of forgotten guards.
    #[inline(always)]
    pub(crate) fn count_in(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & WRITER == 0 {
            assert!(word < WORD_MAX, "a reader-writer lock has more readers than it can count");
            S::step();
            // Acquire: pairs with the Release in `unlock` (I6).
            let order = sites::COUNT_ACQUIRE.order(Ordering::Acquire);
            match self.word.compare_exchange_weak(word, word + READER, order, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Adds a reader to the count, and waits for a writer, if there is one.
    #[cold]
    #[inline(never)]
    pub(crate) fn enter_counted(&self, deadline: Option<Instant>, subject: Subject) -> Entry {
        if !is_past(deadline) {
            for _ in 0..SPINS {
                if self.count_in() {
                    return Entry::Inside;
                }
                hint::spin_loop();
            }
        }
        self.queue(|| self.count_in(), deadline, subject)
    }

    /// Removes a reader from the count.
    #[inline(always)]
    pub(crate) fn leave_counted(&self) {
        // Release: pairs with the Acquire of the writer that reads the count (I6).
        let before = self.word.fetch_sub(READER, sites::COUNT_RELEASE.order(Ordering::Release));
        if before & WRITER != 0 && before < 2 * READER {
            self.last_counted();
        }
    }

    #[cold]
    #[inline(never)]
    fn last_counted(&self) {
        S::step();
        if !sites::COUNT_SIGNAL.is_weak() {
            self.gone.signal(1);
        }
    }

    /// Returns whether a counted reader is inside.
    pub(crate) fn has_counted(&self) -> bool {
        self.word.load(Ordering::Relaxed) > FLAGS
    }

    // --- the bias ---

    /// Returns whether readers enter by their marks.
    #[inline(always)]
    pub(crate) fn is_biased(&self) -> bool {
        self.word.load(Ordering::Relaxed) & UNBIASED == 0
    }

    /// Makes the lock biased, unless a writer is inside or waits (I8).
    pub(crate) fn bias(&self) {
        // Relaxed: readers that go in acquire from the Release in `unlock`, of which this read-modify-write
        // continues the release sequence (I6).
        let biased = |word: u32| (word & (WRITER | UNBIASED) == UNBIASED).then_some(word & !UNBIASED);
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, biased);
    }

    /// Ends the bias. The caller is the writer inside (I7).
    pub(crate) fn unbias(&self) {
        self.word.fetch_or(UNBIASED, Ordering::Relaxed);
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
        let before = self.word.fetch_or(WRITER, Ordering::Relaxed);
        S::step();
        let is_biased = before & UNBIASED == 0 && !sites::REVOKE.is_weak();
        if is_biased && self.scan(registry, deadline, wait) == Entry::TimedOut {
            return self.give_up();
        }
        // Acquire: pairs with the Release in `leave_counted` (I6).
        let order = sites::COUNT_SEEN.order(Ordering::Acquire);
        if self.wait(|| self.word.load(order) <= FLAGS, deadline, wait) == Entry::TimedOut {
            return self.give_up();
        }
        Entry::Inside
    }

    /// Waits until each mark is gone.
    fn scan(&self, registry: &Registry, deadline: Option<Instant>, wait: &mut Wait) -> Entry {
        self.heavy();
        for slot in registry.slots() {
            // Acquire: pairs with the Release of `clear` and `mark` (I1).
            let order = sites::SCAN_ACQUIRE.order(Ordering::Acquire);
            if self.wait(|| slot.load(order) != self.key(), deadline, wait) == Entry::TimedOut {
                return Entry::TimedOut;
            }
        }
        Entry::Inside
    }

    fn give_up(&self) -> Entry {
        S::step();
        self.unlock();
        Entry::TimedOut
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
        // Release: pairs with the Acquire of readers that go in (I1, I6).
        let order = sites::UNLOCK_RELEASE.order(Ordering::Release);
        let before = self.word.fetch_and(!(WRITER | WAITS), order);
        S::step();
        if before & WAITS != 0 {
            self.turn.signal(u32::MAX);
        }
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
