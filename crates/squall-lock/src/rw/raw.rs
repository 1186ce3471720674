//! The protocol of the distributed reader-writer lock.
//!
//! Problem: readers that share a lock word share its line, and pay for each other though they do not exclude each other. Idea: a
//! reader leaves a mark on a line of its own thread (`marks`) and looks at a word that only writers write; a writer writes
//! the word and looks at all marks. That is a store-load handshake, of which the writer pays the dear half (`asym`).
//!
//! ```text
//! reader in:   mark; light fence; word == 0: in. Else (FENCED: full fence, look again) WRITER: take the mark away, wait
//! reader out:  take the mark away; light fence; word == 0: done. Else (full fence, look again) WRITER: wake the writer
//! writer in:   (one at a time) wait until nobody is queued; set WRITER; heavy fence; for each mark: wait until it is gone
//! writer out:  clear WRITER; wake the readers
//! ```
//!
//! - I1. No reader is inside together with a writer. *Argument.* Of the reader's fence and the writer's heavy one, the first
//!   in their order decides (`asym/I1`; where `membarrier` is not used, FENCED is set and both are full fences). If the
//!   reader's: its mark, and the record it lies in, is visible to the writer's scan, which waits until it has seen it gone,
//!   with acquire: all that the reader did inside is then before the writer. If the writer's: the reader sees WRITER and does
//!   not go in. It saw the last writer's end with acquire, if it goes in.
//! - I2. So a writer needs to see each slot without its mark *once* after its fence: whatever is marked later is taken away
//!   again without having been inside.
//! - I3. A writer that waits is woken. The handshake once more: either its scan sees that the mark is gone, or the reader that
//!   took it away sees WRITER, and signals. A reader that waits is woken by the end of the writer it saw.
//! - I4. A reader waits for two writers at most: it is queued before it sleeps, and who comes after the writer that it then
//!   waits for begins only when nobody is queued. A writer waits for the readers that are inside when it sets WRITER, and
//!   for those that were queued before.
//! - I5. FENCED is cleared at most once, when `membarrier` is found to work, and set for ever if it is refused later. Readers
//!   that did not see it set then are caught by a visit to each processor.
//!
//! Not promised: recursion. A thread that reads twice with a writer coming between waits for itself.
//! Progress: readers are wait-free while there is no writer. A thread that stalls inside as a reader holds up writers, and
//! behind a writer everybody.
//! Cost: a reader writes one word of its own line twice, and reads the word twice: no locked instruction, no fence. A writer
//! makes a heavy fence (a system call) and reads a line for each thread that ever read any such lock at once with others.
//! Source: PR-10 (Appavoo 2005, §3.1: replicate read locks, the write lock is all of them); Hsieh and Weihl, "Scalable
//! reader-writer locks for parallel systems", 1992; BRAVO (see `marks`); Linux' `percpu-rwsem` (the writer pays).

use super::marks::{RESERVED, Registry};
use super::sites;
use crate::steps::Steps;
use squall_machine::asym;
use squall_machine::park::EventCount;
use squall_sys::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use squall_sys::sync::hint;
use std::marker::PhantomData;
use std::time::Instant;

/// A writer is inside, or waits until readers are gone.
const WRITER: u32 = 1;
/// Readers make full fences.
const FENCED: u32 = 2;
/// Nobody has asked yet whether `membarrier` works; FENCED is set meanwhile.
const UNASKED: u32 = 4;

/// Looks at a mark before the writer sleeps.
const SPINS: u32 = if cfg!(any(loom, miri)) { 0 } else { 100 };

/// The lock without its value, and without what makes writers come one at a time.
pub(crate) struct Raw<S> {
    /// WRITER, FENCED, UNASKED. Written by writers alone.
    word: AtomicU32,
    /// Readers that wait for a writer.
    queued: AtomicU32,
    /// Readers wait here for the end of a writer.
    turn: EventCount,
    /// The writer waits here for marks to go, or for the queue to be empty.
    gone: EventCount,
    steps: PhantomData<fn() -> S>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Entry {
    /// Inside.
    Inside,
    /// The time was over before.
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

    /// A lock whose readers make full fences, or light ones.
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

    /// What a mark of this lock is. At least 4, so no other value of a slot (`marks/I1`).
    #[inline(always)]
    pub(crate) fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    // --- readers ---

    /// Marks a free slot of the caller. True: inside. False: [`enter`](Raw::enter) goes on.
    #[inline(always)]
    pub(crate) fn mark(&self, slot: &AtomicUsize) -> bool {
        // Release: pairs with the Acquire in `wait_for_marks`. A writer that looks for a mark may see this one in its place,
        // and what was released with that must not be lost.
        slot.store(self.key(), sites::MARK_RELEASE.order(Ordering::Release));
        S::step();
        if !sites::ENTER_LIGHT.is_weak() {
            // Partner: the heavy fence in `lock` (I1).
            asym::light();
        }
        // Acquire: pairs with the Release in `unlock` (I1).
        self.word.load(sites::ENTER_ACQUIRE.order(Ordering::Acquire)) == 0
    }

    /// Goes on where [`mark`](Raw::mark) said no: waits for the writer, if there is one. If the time is over the slot is
    /// free again.
    #[cold]
    #[inline(never)]
    pub(crate) fn enter(&self, slot: &AtomicUsize, deadline: Option<Instant>) -> Entry {
        if self.stays_marked(slot) {
            return Entry::Inside;
        }
        self.queued.fetch_add(1, Ordering::Relaxed);
        let entry = loop {
            let seen = self.turn.prepare();
            S::step();
            if self.word.load(Ordering::Relaxed) & WRITER == 0 {
                if self.mark(slot) || self.stays_marked(slot) {
                    break Entry::Inside;
                }
                continue;
            }
            if is_past(deadline) {
                // Release: as in `mark`, for who looks at this slot next.
                slot.store(0, Ordering::Release);
                break Entry::TimedOut;
            }
            S::step();
            self.turn.wait(seen, left(deadline));
        };
        if self.queued.fetch_sub(1, Ordering::Relaxed) == 1 {
            // A writer may wait for this (I4).
            self.gone.signal(1);
        }
        entry
    }

    /// Looks again, with a full fence, whether a slot that was marked may stay so; else takes the mark away.
    fn stays_marked(&self, slot: &AtomicUsize) -> bool {
        #[cfg(not(loom))]
        self.ask();
        S::step();
        if !sites::ENTER_FULL.is_weak() {
            // Partner: the heavy fence in `lock` (I1).
            fence(Ordering::SeqCst);
        }
        // Acquire: pairs with the Release in `unlock` (I1).
        if self.word.load(sites::ENTER_ACQUIRE.order(Ordering::Acquire)) & WRITER == 0 {
            return true;
        }
        self.clear(slot, RESERVED);
        false
    }

    /// The reader goes: its slot is free.
    #[inline(always)]
    pub(crate) fn leave(&self, slot: &AtomicUsize) {
        self.clear(slot, 0);
    }

    #[inline(always)]
    fn clear(&self, slot: &AtomicUsize, to: usize) {
        // Release: pairs with the Acquire in `wait_for_marks` (I1).
        slot.store(to, sites::LEAVE_RELEASE.order(Ordering::Release));
        S::step();
        if !sites::LEAVE_LIGHT.is_weak() {
            // Partner: the heavy fence in `lock` (I3).
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
            // Partner: the heavy fence in `lock` (I3).
            fence(Ordering::SeqCst);
        }
        S::step();
        if self.word.load(Ordering::Relaxed) & WRITER != 0 {
            self.gone.signal(1);
        }
    }

    /// Whether a writer is inside, or waits for readers.
    pub(crate) fn has_writer(&self) -> bool {
        self.word.load(Ordering::Relaxed) & WRITER != 0
    }

    // --- writers, one at a time ---

    /// Takes the lock to write. If the time is over, nothing has happened.
    pub(crate) fn lock(&self, registry: &Registry, deadline: Option<Instant>) -> Entry {
        let queue_is_empty = || self.queued.load(Ordering::Relaxed) == 0;
        if !sites::READERS_FIRST.is_weak() && self.wait(queue_is_empty, deadline) == Entry::TimedOut {
            return Entry::TimedOut;
        }
        self.word.fetch_or(WRITER, Ordering::Relaxed);
        S::step();
        self.heavy();
        for slot in registry.slots() {
            // Acquire: pairs with the Release of `clear` and `mark` (I1).
            let order = sites::SCAN_ACQUIRE.order(Ordering::Acquire);
            if self.wait(|| slot.load(order) != self.key(), deadline) == Entry::TimedOut {
                S::step();
                self.unlock();
                return Entry::TimedOut;
            }
        }
        Entry::Inside
    }

    /// Whether a reader is inside, or looks whether it may be, as far as the caller can see.
    pub(crate) fn has_marks(&self, registry: &Registry) -> bool {
        registry.slots().any(|slot| slot.load(Ordering::Relaxed) == self.key())
    }

    /// Whether a reader waits.
    #[cfg(all(test, any(loom, squall_model)))]
    pub(crate) fn is_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed) != 0
    }

    /// Gives the lock back.
    pub(crate) fn unlock(&self) {
        // Release: pairs with the Acquire of readers that go in (I1).
        self.word.fetch_and(!WRITER, sites::UNLOCK_RELEASE.order(Ordering::Release));
        S::step();
        self.turn.signal(u32::MAX);
    }

    /// Waits at `gone`.
    fn wait(&self, is_so: impl Fn() -> bool, deadline: Option<Instant>) -> Entry {
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
            if is_past(deadline) {
                return Entry::TimedOut;
            }
            S::step();
            self.gone.wait(seen, left(deadline));
        }
    }

    /// The fence between the word and the marks.
    fn heavy(&self) {
        // Partners: the fences of readers (I1, I3).
        if !sites::HEAVY.is_weak() && asym::heavy().is_err() {
            self.without_membarrier();
        }
    }

    /// `membarrier` worked once and is refused now: a sandbox was entered. From here readers make full fences; those in the
    /// middle, who did not see that, are made to by a visit to their processors (I5).
    #[cold]
    fn without_membarrier(&self) {
        // Nor may anybody who has not asked yet clear it afterwards.
        let fenced = |word: u32| Some((word | FENCED) & !UNASKED);
        // SeqCst: before the visit, for those who begin meanwhile.
        let before = self.word.fetch_update(Ordering::SeqCst, Ordering::Relaxed, fenced);
        if before.is_ok_and(|word| word & FENCED == 0) {
            visit_processors();
        }
        // Partner: the full fences of readers.
        fence(Ordering::SeqCst);
    }

    /// Finds out whether readers need full fences, once.
    #[cfg(not(loom))]
    fn ask(&self) {
        if self.word.load(Ordering::Relaxed) & UNASKED == 0 {
            return;
        }
        let clear = if asym::mode() == asym::Mode::Membarrier { FENCED | UNASKED } else { UNASKED };
        // Once: who comes second finds UNASKED gone, and must not clear a FENCED that was set since (I5).
        let once = |word: u32| (word & UNASKED != 0).then_some(word & !clear);
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, once);
    }
}

/// Has each processor pass a full barrier, as far as that can be done without `membarrier`: see `restart_everywhere` for what
/// remains. In a model a fence does not fail.
#[cold]
pub(crate) fn visit_processors() {
    #[cfg(not(loom))]
    squall_sys::rseq::restart_everywhere(squall_machine::machine().vp_limit());
}

/// Whether the time is over.
pub(crate) fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// What is left of it.
pub(crate) fn left(deadline: Option<Instant>) -> Option<std::time::Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::steps::Undisturbed;

    #[test]
    fn readers_fence_for_ever_once_membarrier_is_refused() {
        let (raw, registry) = (Raw::<Undisturbed>::new(), Registry::new());
        assert_eq!(raw.word.load(Ordering::Relaxed), FENCED | UNASKED, "until somebody asks");
        raw.ask();
        let light = asym::mode() == asym::Mode::Membarrier;
        assert_eq!(raw.word.load(Ordering::Relaxed), if light { 0 } else { FENCED });
        raw.without_membarrier();
        raw.ask();
        assert_eq!(raw.word.load(Ordering::Relaxed), FENCED);
        let slot = registry.take().first();
        assert!(!raw.mark(slot), "it needs a full fence");
        assert_eq!(raw.enter(slot, None), Entry::Inside);
        assert_eq!(raw.lock(&registry, Some(Instant::now())), Entry::TimedOut);
        raw.leave(slot);
        assert_eq!(raw.lock(&registry, Some(Instant::now())), Entry::Inside);
        raw.unlock();
    }

    #[test]
    fn membarrier_refused_before_anybody_asked() {
        let raw = Raw::<Undisturbed>::new();
        raw.without_membarrier();
        raw.ask();
        assert_eq!(raw.word.load(Ordering::Relaxed), FENCED, "who asks later does not clear it");
    }
}
