//! One thread's record: the single word by which it says that it is inside an operation.
//!
//! Problem: entry and exit must cost about a nanosecond and tolerate signal handlers at any instruction. The
//! driver must be able to tell, from another thread, whether an operation it saw earlier is still open.
//!
//! Idea: depth, count of ended operations and the slow-entry flag share one word that only the owner writes.
//! So a signal handler never sees half a change. Records belong to the registry and are never freed, and a
//! thread holds a pointer to one. So the driver may read any record at any time, even after its thread has
//! ended.
//!
//! The word, from the low bit. The constants below define the widths, and are the only place that does:
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | `SLOW` | slow | the next entry takes the slow path |
//! | `DEPTH` | depth | nested operations open; wide enough that no stack can overflow it |
//! | `ENDED` | ended | outermost operations ended, modulo its width: the carry falls off the top |
//!
//! - I1. Only the owner writes `word`; from `register` to `unregister` a record has one owner.
//! - I2. While an operation is open (depth not zero), `ended` does not change. The leave of an outermost
//!   operation sets depth to zero and changes `ended` in one store.
//! - I3. A driver that has seen depth not zero with `ended == e` may conclude that this operation is over
//!   once it sees depth zero or `ended != e`. The converse can fail, which only delays: `ended` wraps around
//!   after 2^34 operations. Also, a signal handler that ran between the load and the store of an entry leaves
//!   no trace in `ended`.
//! - I4. `SLOW` is set in the word of a record without owner. It is also set permanently in every registered
//!   record in [`Mode::Fence`](squall_machine::asym::Mode). So every entry in that mode, a signal handler's
//!   too, executes the full fence that `asym/I2` asks for. In the child of a fork, it is set in the record of
//!   the only thread, with `FORKED`, so that each entry can be refused. In `Membarrier` mode no other
//!   registered record has it.
//! - I5. Other threads set `attention` and the owner clears it. A leave that finds it not zero takes the slow
//!   path.
//! - I6. The work requested by `DEFERRED` and `TEMPORARY` takes locks and frees memory, so only the operation
//!   that owes it may do it. A signal handler may run between that operation's last store and its load of
//!   `attention`. The handler opens and leaves operations of its own, sees the request, and must leave it
//!   alone. `owing` tells the operations apart by `ended`.
//! - I7. A [`Note`] about an operation holds the data that its outermost entry noted, or is empty. It never
//!   holds another operation's data, except in the signal-handler case of I3. It exists only in builds with
//!   debug assertions.
//! - I8. Only the owner writes `quiet`. While `quiet` counts a callback-free scope, the owner runs no
//!   deferred users' code and does not wait for its bound. `POSTPONED` says that work fell due in that scope.
//!   A mark made by a signal handler may be lost, which only delays.
//!
//! Source: liburcu's `urcu_memb` reader, which keeps depth and phase in one word for the same reason; K42's
//! count of requests per generation (CO-21), here per thread.

use squall_machine::asym;
use squall_sys::pause;
use squall_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::panic::Location;
#[cfg(all(debug_assertions, not(loom)))]
use std::ptr;

use super::defer::Deferrals;
use super::sites;

/// The slow-entry flag.
const SLOW: u64 = 1;
/// One nested operation.
const DEPTH_ONE: u64 = 1 << 1;
/// The depth field.
const DEPTH: u64 = ENDED_ONE - DEPTH_ONE;
/// One outermost operation ended. Small enough to be an immediate operand of an addition.
const ENDED_ONE: u64 = 1 << 30;
/// The ended field.
const ENDED: u64 = !(ENDED_ONE - 1);

const _: () = assert!(SLOW | DEPTH | ENDED == u64::MAX && ENDED & DEPTH == 0 && DEPTH & SLOW == 0);

/// One callback-free scope, in the word `quiet`.
const QUIET_ONE: u32 = 1 << 1;
/// Flag in `quiet`: deferred work fell due inside the callback-free scopes.
const POSTPONED: u32 = 1;

/// Bits of `attention`.
pub(crate) mod attention {
    /// Always set in fence mode, so that every leave executes its fence (I4).
    pub(crate) const FENCE: u32 = 1;
    /// A driver sleeps until this thread's operation ends.
    pub(crate) const WAITED_FOR: u32 = 2;
    /// The registration lasts for this operation only: the thread is past its exit hook.
    pub(crate) const TEMPORARY: u32 = 4;
    /// Deferred calls wait for their thread to leave its operation.
    pub(crate) const DEFERRED: u32 = 8;
    /// Always set in the child of a fork. The leave of an operation that was open at the fork clears `SLOW`,
    /// and its slow path sets it again (I4).
    pub(crate) const FORKED: u32 = 16;
    /// The thread asked for a call at the end of each of its outermost operations.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) const HOOK: u32 = 32;
}

/// A thread's record. Aligned so that two records share neither a cache line nor a pair of lines fetched
/// together.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Record {
    // Written by the owner at every entry and leave; read by drivers.
    word: AtomicU64,
    // Written by drivers that wait, and by the owner.
    attention: AtomicU32,
    // Written by the owner when it registers (I1); zero while the record is free.
    thread: AtomicU32,
    // Written by the owner: `ENDED` of the operation that owes the work of `DEFERRED` and `TEMPORARY` (I6).
    owing: AtomicU64,
    // Written by the owner: odd while it runs deferred calls (`defer/I2` of the crate).
    runs: AtomicU32,
    // Written by the owner: callback-free scopes, and `POSTPONED` (I8).
    quiet: AtomicU32,
    /// The owner's deferred calls.
    pub(crate) deferrals: Deferrals,
    #[cfg(all(debug_assertions, not(loom)))]
    notes: Notes,
}

/// Data that the owner notes after it has opened an outermost operation.
#[cfg(all(debug_assertions, not(loom)))]
#[derive(Debug)]
struct Notes {
    began: squall_sys::sync::atomic::AtomicPtr<Location<'static>>,
    tag: AtomicU64,
    /// `ENDED` of the operation that `began` and `tag` describe, and `NOTED`. Written last.
    of: AtomicU64,
}

/// Marks a record with notes.
#[cfg(all(debug_assertions, not(loom)))]
const NOTED: u64 = 1;
#[cfg(all(debug_assertions, not(loom)))]
const _: () = assert!(NOTED & ENDED == 0);

#[cfg(all(debug_assertions, not(loom)))]
impl Notes {
    const fn new() -> Notes {
        Notes {
            began: squall_sys::sync::atomic::AtomicPtr::new(ptr::null_mut()),
            tag: AtomicU64::new(0),
            of: AtomicU64::new(0),
        }
    }
}

/// Data about one operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Note {
    /// The place where it began.
    pub(crate) began: Option<&'static Location<'static>>,
    /// The tag given by the crate that opened the operation; 0 if it gave no tag.
    pub(crate) tag: u64,
}

/// Closes an operation: holds the word that the leave will store. Its depth is zero for an outermost
/// operation; otherwise it is one less than inside the operation.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct Token(u64);

impl Token {
    /// Returns the token that closes an outermost operation, entered from this word.
    #[inline(always)]
    fn of_outermost(word: u64) -> Token {
        Token(word.wrapping_add(ENDED_ONE))
    }

    pub(crate) fn is_outermost(self) -> bool {
        self.0 & DEPTH == 0
    }

    /// Returns a number that differs between any two outermost operations of a thread. The count is in its
    /// upper bits, since the word is loaded already.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn turn(self) -> u64 {
        self.0
    }

    /// Returns the word as it was before the entry.
    fn before(self) -> u64 {
        if self.is_outermost() { self.0.wrapping_sub(ENDED_ONE) } else { self.0 }
    }
}

/// An open operation as seen by the driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    ended: u64,
}

impl Record {
    /// Creates an unregistered record.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Record {
        Record {
            word: AtomicU64::new(SLOW),
            attention: AtomicU32::new(0),
            thread: AtomicU32::new(0),
            owing: AtomicU64::new(0),
            runs: AtomicU32::new(0),
            quiet: AtomicU32::new(0),
            deferrals: Deferrals::new(),
            #[cfg(debug_assertions)]
            notes: Notes::new(),
        }
    }

    /// Creates an unregistered record.
    #[cfg(loom)]
    pub(crate) fn new() -> Record {
        Record {
            word: AtomicU64::new(SLOW),
            attention: AtomicU32::new(0),
            thread: AtomicU32::new(0),
            owing: AtomicU64::new(0),
            runs: AtomicU32::new(0),
            quiet: AtomicU32::new(0),
            deferrals: Deferrals::new(),
        }
    }

    /// Opens an operation if the fast path allows it. Returns the token that closes it.
    #[inline(always)]
    pub(crate) fn enter_fast(&self) -> Option<Token> {
        let word = self.word.load(Ordering::Relaxed);
        let mut token = Token::of_outermost(word);
        // One test for both conditions.
        if word & (SLOW | DEPTH) != 0 {
            // A predicted branch, so that the next entry does not depend on the value of this one.
            squall_sys::branch::unlikely();
            if word & SLOW != 0 {
                return None;
            }
            token = Token(word);
        }
        // Release: pairs with the acquire in `is_over`. A driver that sees this operation instead of the one
        // before also sees the accesses of that one as done.
        self.word.store(word + DEPTH_ONE, sites::ENTER_RELEASE.order(Ordering::Release));
        if cfg!(test) {
            pause::point("entered");
        }
        // Pairs with the heavy fence of `Driver::start`. Either the driver's scan sees this store, or the
        // operation sees everything unlinked before.
        if !sites::ENTER_FENCE.is_weak() {
            asym::light();
        }
        Some(token)
    }

    /// Opens an operation of a registered record on the slow path, with the fence of fence mode (I4).
    #[cold]
    pub(crate) fn enter_slow(&self) -> Token {
        let word = self.word.load(Ordering::Relaxed);
        // Release: as in `enter_fast`. Here the fence is a full one in either mode; it pairs with the same
        // heavy fence.
        self.word.store(word + DEPTH_ONE, sites::ENTER_RELEASE.order(Ordering::Release));
        if !sites::ENTER_FENCE.is_weak() {
            fence(Ordering::SeqCst);
        }
        if word & DEPTH == 0 { Token::of_outermost(word) } else { Token(word) }
    }

    /// Closes the operation that `token` opened. Returns whether the slow path must follow
    /// ([`Record::leave_slow`] or more).
    ///
    /// The stored word is the word before the entry, with one more operation ended if this was the outermost
    /// one. The word is not loaded again: nested operations and signal handlers have restored it. A loop of
    /// short operations then waits for one store-to-load forwarding instead of two.
    #[inline(always)]
    #[must_use]
    pub(crate) fn leave(&self, token: Token) -> bool {
        debug_assert!(
            (self.word.load(Ordering::Relaxed) ^ (token.before() + DEPTH_ONE)) & !SLOW == 0,
            "an operation was left while an inner one was still open"
        );
        // Release: pairs with the acquire in `Record::seen` and `Record::is_over`. A driver that sees this
        // operation over also sees all its accesses as done.
        self.word.store(token.0, sites::LEAVE_RELEASE.order(Ordering::Release));
        if cfg!(test) {
            pause::point("left");
        }
        if !sites::LEAVE_FENCE.is_weak() {
            // Pairs with the heavy fence of `Driver::sleep_for_first`: either the driver sees this operation
            // over, or the next load sees the driver's request.
            asym::light();
        }
        self.attention.load(Ordering::Relaxed) != 0
    }

    /// Finishes a leave on the slow path; executes the fence of fence mode. Returns the requests to act on.
    /// They are empty while an outer operation is open, and exclude requests that another operation owes
    /// (I6).
    pub(crate) fn leave_slow(&self, token: Token) -> u32 {
        let mut bits = self.attention.load(Ordering::Relaxed);
        if bits & attention::FORKED != 0 {
            self.word.store(self.word.load(Ordering::Relaxed) | SLOW, Ordering::Relaxed);
        }
        if !token.is_outermost() {
            return 0;
        }
        if bits & attention::FENCE != 0 {
            if !sites::LEAVE_FENCE.is_weak() {
                // Pairs with the heavy fence of `Driver::sleep_for_first`, like the light fence in `leave`,
                // which fence mode replaces with this one.
                fence(Ordering::SeqCst);
            }
            bits = self.attention.load(Ordering::Relaxed);
        }
        if self.owing.load(Ordering::Relaxed) != token.before() & ENDED {
            bits &= !(attention::DEFERRED | attention::TEMPORARY);
        }
        bits & !(attention::FENCE | attention::FORKED)
    }

    /// Sends each later entry to the slow path. Called by the owner in the child of a fork.
    #[cfg(not(loom))]
    pub(crate) fn note_fork(&self) {
        self.word.store(self.word.load(Ordering::Relaxed) | SLOW, Ordering::Relaxed);
        self.request(attention::FORKED);
    }

    /// Asks the open operation, or else the next one, for work that only it may do (I6). For the owner.
    pub(crate) fn owe(&self, bits: u32) {
        self.owing.store(self.word.load(Ordering::Relaxed) & ENDED, Ordering::Relaxed);
        self.request(bits);
    }

    /// Returns whether the registration lasts for one operation only.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn is_temporary(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & attention::TEMPORARY != 0
    }

    /// Returns whether this record's owner must execute full fences (`asym/I2`).
    #[inline(always)]
    pub(crate) fn is_fenced(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & attention::FENCE != 0
    }

    /// Returns the number of nested operations open. Exact only for the owner.
    pub(crate) fn depth(&self) -> u64 {
        (self.word.load(Ordering::Relaxed) & DEPTH) / DEPTH_ONE
    }

    /// Returns the operation that is open now, if any.
    pub(crate) fn seen(&self) -> Option<Seen> {
        // Acquire: pairs with the release in `leave`, for the operations that ended before.
        let word = self.word.load(sites::SCAN_ACQUIRE.order(Ordering::Acquire));
        (word & DEPTH != 0).then_some(Seen { ended: word & ENDED })
    }

    /// Returns whether the operation `seen` is over (I3).
    pub(crate) fn is_over(&self, seen: Seen) -> bool {
        // Acquire: pairs with the release in `leave`.
        let word = self.word.load(sites::SCAN_ACQUIRE.order(Ordering::Acquire));
        word & DEPTH == 0 || word & ENDED != seen.ended
    }

    /// Asks the owner to take the slow path at its next leave.
    pub(crate) fn request(&self, bits: u32) {
        self.attention.fetch_or(bits, Ordering::Relaxed);
    }

    /// Withdraws or acknowledges requests. Returns those of `bits` that were set.
    pub(crate) fn clear(&self, bits: u32) -> u32 {
        self.attention.fetch_and(!bits, Ordering::Relaxed) & bits
    }

    /// Takes the record for the calling thread. The caller got it from the registry, which gives each record
    /// to one thread (I1).
    pub(crate) fn adopt(&self, thread: u32, fenced: bool) {
        let word = self.word.load(Ordering::Relaxed);
        assert!(word & DEPTH == 0, "a record was given out while an operation was open in it");
        let slow = if fenced { SLOW } else { 0 };
        let bits = if fenced { attention::FENCE } else { 0 };
        self.thread.store(thread, Ordering::Relaxed);
        self.attention.store(bits, Ordering::Relaxed);
        self.quiet.store(0, Ordering::Relaxed);
        // Release: pairs with the acquire in `seen` and `is_over`, for a driver that reads this store. The
        // registry's lock has ordered the operations of the last owner before it.
        self.word.store(word & ENDED | slow, sites::ADOPT_RELEASE.order(Ordering::Release));
    }

    /// Begins a callback-free scope (I8). For the owner.
    #[inline(always)]
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn begin_quiet(&self) {
        self.quiet.store(self.quiet.load(Ordering::Relaxed) + QUIET_ONE, Ordering::Relaxed);
    }

    /// Ends a callback-free scope. For the owner. Returns whether it was the outermost one and work fell due
    /// inside.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn end_quiet(&self) -> bool {
        let quiet = self.quiet.load(Ordering::Relaxed).saturating_sub(QUIET_ONE);
        self.quiet.store(quiet, Ordering::Relaxed);
        if quiet == POSTPONED {
            squall_sys::branch::unlikely();
            self.quiet.store(0, Ordering::Relaxed);
        }
        quiet == POSTPONED
    }

    /// Returns whether a callback-free scope is open. For the owner.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed) >= QUIET_ONE
    }

    /// Postpones work that has fallen due to the end of the callback-free scope. Returns whether a scope is
    /// open.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn postpone(&self) -> bool {
        let quiet = self.quiet.load(Ordering::Relaxed);
        if quiet >= QUIET_ONE {
            self.quiet.store(quiet | POSTPONED, Ordering::Relaxed);
        }
        quiet >= QUIET_ONE
    }

    /// Ends any open operation, because the thread ends: its stack frames are gone or will not be continued.
    pub(crate) fn abandon(&self) {
        let word = self.word.load(Ordering::Relaxed);
        if word & DEPTH != 0 {
            let over = (word & !DEPTH).wrapping_add(ENDED_ONE);
            // Release: as in `leave`: pairs with the acquire in `seen` and `is_over`.
            self.word.store(over, Ordering::Release);
        }
        // Pairs with the heavy fence of `Driver::sleep_for_first`, as in `leave`. A cold path can afford a
        // full fence.
        fence(Ordering::SeqCst);
    }

    /// Notes that the owner of this record begins to run calls that it takes: from its own list, or, in the
    /// reclaimer and in a barrier, from the lists of other threads.
    pub(crate) fn begin_run(&self) {
        debug_assert!(self.runs.load(Ordering::Relaxed).is_multiple_of(2));
        // The store becomes visible with the removal of the calls. For the thread's own list, by the release
        // that ends its access to the list; for other lists, by the unlock of `takers` (defer/I2).
        // Release: pairs with the acquire in `wait_run_end`, which may read this store instead of that of
        // the last `end_run`.
        self.runs.store(self.runs.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Notes that the owner of this record has run the deferred calls it took.
    pub(crate) fn end_run(&self) {
        // Release: pairs with the acquire in `wait_run_end`: the effects of the calls happen before the
        // return of a barrier.
        self.runs.store(self.runs.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Waits until the calls that the owner is running now, if any, have run.
    pub(crate) fn wait_run_end(&self) {
        // Acquire: pairs with the release in `end_run`.
        let runs = self.runs.load(Ordering::Acquire);
        let mut tries = 0_u32;
        while !runs.is_multiple_of(2) && self.runs.load(Ordering::Acquire) == runs {
            tries += 1;
            if cfg!(test) && tries == 1 {
                pause::point("wait for a run");
            }
            if tries < 100 {
                squall_sys::sync::thread::yield_now();
            } else {
                #[cfg(not(loom))]
                squall_sys::sync::thread::sleep(std::time::Duration::from_micros(100));
                #[cfg(loom)]
                squall_sys::sync::thread::yield_now();
            }
        }
    }

    /// Marks the record as free.
    pub(crate) fn release(&self) {
        // Release: pairs with the acquire in `seen` and `is_over`, as in `leave`, for a driver that reads
        // this store.
        self.word.store(self.word.load(Ordering::Relaxed) | SLOW, Ordering::Release);
        self.thread.store(0, Ordering::Relaxed);
    }

    /// Returns the system's id of the owner; 0 if the record is free (or the platform has no ids).
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Notes the place where the operation just entered began, and its tag, if it is the outermost one.
    #[cfg(all(debug_assertions, not(loom)))]
    pub(crate) fn note(&self, began: &'static Location<'static>, tag: u64) {
        if self.depth() != 1 {
            return;
        }
        let ended = self.word.load(Ordering::Relaxed) & ENDED;
        // Release, all three: pair with the acquires in `note_of`. A thread that reads a note of an operation
        // sees that the earlier operations are over. A thread that reads `of` sees the notes of that
        // operation, or later ones.
        self.notes.began.store(ptr::from_ref(began).cast_mut(), Ordering::Release);
        self.notes.tag.store(tag, Ordering::Release);
        self.notes.of.store(ended | NOTED, Ordering::Release);
    }

    /// Returns the notes of the operation `seen`, if it is still open (I7).
    pub(crate) fn note_of(&self, seen: Seen) -> Note {
        #[cfg(all(debug_assertions, not(loom)))]
        {
            // Acquire, all three: pair with the releases in `note`.
            let of = self.notes.of.load(Ordering::Acquire);
            let began = self.notes.began.load(Ordering::Acquire);
            let tag = self.notes.tag.load(Ordering::Acquire);
            // If one of the values belonged to a later operation, this check would find `seen` over.
            if of == seen.ended | NOTED && !self.is_over(seen) {
                // SAFETY: only `note` stores here, from a `&'static`; a null pointer means no note.
                return Note { began: unsafe { began.as_ref() }, tag };
            }
        }
        let _ = seen;
        Note::default()
    }
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use super::*;

    fn enter(record: &Record, tag: u64) -> (Token, Seen) {
        let token = record.enter_fast().unwrap();
        record.note(Location::caller(), tag);
        (token, record.seen().unwrap())
    }

    fn leave(record: &Record, token: Token) {
        assert!(!record.leave(token), "attention was not asked for");
    }

    // Tests I7.
    #[test]
    fn a_note_belongs_to_the_operation_seen() {
        let record = Record::new();
        record.adopt(1, false);
        let (outer, seen) = enter(&record, 7);
        let (inner, seen_inside) = enter(&record, 8);
        for seen in [seen, seen_inside] {
            assert_eq!(record.note_of(seen).tag, 7);
            assert_eq!(record.note_of(seen).began.map(Location::file), Some(file!()));
        }
        leave(&record, inner);
        assert_eq!(record.note_of(seen).tag, 7);
        leave(&record, outer);
        let nothing = |seen| record.note_of(seen).tag == 0 && record.note_of(seen).began.is_none();
        assert!(nothing(seen), "it is over");
        // Between its entry and its note, the next operation must not get the note of the previous one.
        let next = record.enter_fast().unwrap();
        let seen_next = record.seen().unwrap();
        assert!(nothing(seen) && nothing(seen_next));
        record.note(Location::caller(), 0);
        assert!(nothing(seen));
        let note = record.note_of(seen_next);
        assert!(note.tag == 0 && note.began.is_some());
        leave(&record, next);
    }
}
