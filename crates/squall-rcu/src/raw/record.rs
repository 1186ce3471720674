//! One thread's record: the single word by which it says that it is inside an operation.
//!
//! Problem: entering and leaving must cost about a nanosecond, survive signal handlers at any instruction, and let a
//! collector tell, from another thread, whether the operation it once saw is still the same.
//!
//! Idea: depth, operations ended and the slow-entry sign share one word that only the owner writes, so an instruction
//! boundary never shows half a change. Records belong to the registry, are never freed, and a thread holds a pointer to
//! one; so a collector may read any record at any time, whatever happens to the thread.
//!
//! The word, from the low bit (the constants below are the table; nothing else repeats their widths):
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | `SLOW` | slow | the next entry takes the slow path |
//! | `DEPTH` | depth | nested operations open; wide enough that no stack can overflow it |
//! | `ENDED` | ended | outermost operations ended, modulo its width: the carry falls off the top |
//!
//! - I1. Only the owner writes `word`; from `register` to `unregister` a record has one owner.
//! - I2. While an operation is open (depth not zero), `ended` does not change. The leave of an outermost operation sets
//!   depth to zero and changes `ended` in one store.
//! - I3. A collector that has seen depth not zero with `ended == e` may conclude that this operation is over once it
//!   sees depth zero or `ended != e`. The converse can fail, which only delays: `ended` comes round after 2^34
//!   operations, and a signal handler that ran between the load and the store of an entry leaves no trace in `ended`.
//! - I4. `SLOW` is set in the word of nobody's record, and for good in a registered one in
//!   [`Mode::Fence`](squall_machine::asym::Mode), so that every entry there, a signal handler's too, executes the full
//!   fence that `asym/I2` asks for. In `Membarrier` mode a registered record never has it.
//! - I5. `attention` is set by others and cleared by the owner; a leave that sees it not zero takes the slow path.
//! - I6. What `DEFERRED` and `TEMPORARY` ask for takes locks and frees memory, so only the operation that owes it may do
//!   it: a signal handler that runs between that operation's last store and its look at `attention` opens and leaves
//!   operations of its own, sees the request, and must leave it alone. `owing` tells them apart by `ended`.
//! - I7. A [`Note`] says of an operation what its outermost entry noted, or nothing; not what another one noted, but for
//!   the signal handler of I3. It is there in builds with debug assertions only.
//! - I8. Only the owner writes `quiet`. While it counts a scope, the owner runs no users' code that was deferred, and does
//!   not wait for its bound; `PUT_OFF` says that something fell due meanwhile. A mark that a signal handler makes may be
//!   lost, which only delays.
//!
//! Source: liburcu's `urcu_memb` reader, which keeps depth and phase in one word for the same reason; K42's count of
//! requests per generation (CO-21), here per thread.

use squall_machine::asym;
use squall_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::panic::Location;
#[cfg(all(debug_assertions, not(loom)))]
use std::ptr;

use super::defer::Deferrals;
use super::sites;

/// The slow-entry sign.
const SLOW: u64 = 1;
/// One nested operation.
const DEPTH_ONE: u64 = 1 << 1;
/// The depth field.
const DEPTH: u64 = ENDED_ONE - DEPTH_ONE;
/// One outermost operation ended: no more than fits into an instruction that adds it.
const ENDED_ONE: u64 = 1 << 30;
/// The ended field.
const ENDED: u64 = !(ENDED_ONE - 1);

const _: () = assert!(SLOW | DEPTH | ENDED == u64::MAX && ENDED & DEPTH == 0 && DEPTH & SLOW == 0);

/// One quiet scope, in `quiet`.
const QUIET_ONE: u32 = 1 << 1;
/// Something fell due within the scopes.
const PUT_OFF: u32 = 1;

/// Bits of `attention`.
pub(crate) mod attention {
    /// Always set in fence mode, so that every leave executes its fence (I4).
    pub(crate) const FENCE: u32 = 1;
    /// A collector sleeps until this thread's operation ends.
    pub(crate) const WAITED_FOR: u32 = 2;
    /// The registration lasts for this operation only: the thread is past its exit hook.
    pub(crate) const TEMPORARY: u32 = 4;
    /// Deferred calls wait for their thread to leave its operation.
    pub(crate) const DEFERRED: u32 = 8;
}

/// A thread's record. Aligned so that no two share a line, nor a pair of lines that is fetched together.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Record {
    // Written by the owner at every entry and leave, read by collectors.
    word: AtomicU64,
    // Written by collectors that wait and by the owner.
    attention: AtomicU32,
    // Written by the owner when it registers (I1); zero while the record is free.
    thread: AtomicU32,
    // Written by the owner: `ENDED` of the operation that owes what `DEFERRED` and `TEMPORARY` ask for (I6).
    owing: AtomicU64,
    // Written by the owner: odd while it runs deferred calls (`defer/I2` of the crate).
    runs: AtomicU32,
    // Written by the owner: quiet scopes, and `PUT_OFF` (I8).
    quiet: AtomicU32,
    /// The owner's deferred calls.
    pub(crate) deferrals: Deferrals,
    #[cfg(all(debug_assertions, not(loom)))]
    notes: Notes,
}

/// What the owner notes once its outermost operation is open.
#[cfg(all(debug_assertions, not(loom)))]
#[derive(Debug)]
struct Notes {
    began: squall_sys::sync::atomic::AtomicPtr<Location<'static>>,
    tag: AtomicU64,
    /// `ENDED` of the operation that the two are of, and `NOTED`. Written last.
    of: AtomicU64,
}

/// There are notes.
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

/// What is known of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Note {
    /// Where it began.
    pub(crate) began: Option<&'static Location<'static>>,
    /// What it is inside of, in the words of the floor that opened it; 0 if that did not say.
    pub(crate) tag: u64,
}

/// What closes an operation: the word as it is to be then. Its depth is zero for an outermost one, and one less than within it for
/// others.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct Token(u64);

impl Token {
    /// What closes an outermost operation, entered from this word.
    #[inline(always)]
    fn of_outermost(word: u64) -> Token {
        Token(word.wrapping_add(ENDED_ONE))
    }

    fn is_outermost(self) -> bool {
        self.0 & DEPTH == 0
    }

    /// A number that differs with each operation of a thread, as far as they are not nested: in its upper bits, as it is at hand.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn turn(self) -> u64 {
        self.0
    }

    /// The word as it was before the entry.
    fn before(self) -> u64 {
        if self.is_outermost() { self.0.wrapping_sub(ENDED_ONE) } else { self.0 }
    }
}

/// An operation seen by a collector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    ended: u64,
}

impl Record {
    /// A record that is not registered.
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

    /// A record that is not registered.
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

    /// Opens an operation if no slow path is needed. Returns what closes it again.
    #[inline(always)]
    pub(crate) fn enter_fast(&self) -> Option<Token> {
        let word = self.word.load(Ordering::Relaxed);
        let mut token = Token::of_outermost(word);
        // One test for both.
        if word & (SLOW | DEPTH) != 0 {
            // A branch that is predicted, not a dependency of the next entry.
            std::hint::cold_path();
            if word & SLOW != 0 {
                return None;
            }
            token = Token(word);
        }
        // Relaxed: the light fence orders it before what the operation reads; partner: the heavy fence of
        // `Driver::start`. Either its scan sees this store, or the operation sees all that was unlinked before.
        self.word.store(word + DEPTH_ONE, Ordering::Relaxed);
        if !sites::ENTER_FENCE.is_weak() {
            asym::light();
        }
        Some(token)
    }

    /// Opens an operation of a registered record on the slow path, with the fence of fence mode (I4).
    #[cold]
    pub(crate) fn enter_slow(&self) -> Token {
        let word = self.word.load(Ordering::Relaxed);
        // Relaxed: see `enter_fast`; here the fence is a real one in either mode, partner: the same heavy fence.
        self.word.store(word + DEPTH_ONE, Ordering::Relaxed);
        if !sites::ENTER_FENCE.is_weak() {
            fence(Ordering::SeqCst);
        }
        if word & DEPTH == 0 { Token::of_outermost(word) } else { Token(word) }
    }

    /// Closes the operation that `token` opened. Returns whether the slow path must follow ([`Record::leave_slow`] or
    /// more).
    ///
    /// The word is what it was before the entry, with one more operation ended if that was the outermost one. It is not
    /// loaded again: whatever came in between, nested operations and signal handlers, has restored it, and a loop of
    /// short operations then waits for one store to be forwarded instead of two.
    #[inline(always)]
    #[must_use]
    pub(crate) fn leave(&self, token: Token) -> bool {
        debug_assert!(
            self.word.load(Ordering::Relaxed) == token.before() + DEPTH_ONE,
            "operations are left in the order opposite to their entries"
        );
        // Release: pairs with the acquire in `Record::seen` and `Record::is_over`: whoever sees this operation over
        // also sees every access it made as done.
        self.word.store(token.0, sites::LEAVE_RELEASE.order(Ordering::Release));
        if !sites::LEAVE_FENCE.is_weak() {
            // Partner: the heavy fence of `Driver::sleep_for_first`: either it sees this operation over, or the next
            // load sees its request.
            asym::light();
        }
        self.attention.load(Ordering::Relaxed) != 0
    }

    /// What a leave owes besides its store: the fence of fence mode. Returns the bits to act upon, which are none while
    /// an outer operation is open, and not those that another operation owes (I6).
    pub(crate) fn leave_slow(&self, token: Token) -> u32 {
        if !token.is_outermost() {
            return 0;
        }
        let mut bits = self.attention.load(Ordering::Relaxed);
        if bits & attention::FENCE != 0 {
            if !sites::LEAVE_FENCE.is_weak() {
                // Partner: as of the light fence in `leave`, which fence mode replaces by this one.
                fence(Ordering::SeqCst);
            }
            bits = self.attention.load(Ordering::Relaxed);
        }
        if self.owing.load(Ordering::Relaxed) != token.before() & ENDED {
            bits &= !(attention::DEFERRED | attention::TEMPORARY);
        }
        bits & !attention::FENCE
    }

    /// Asks the operation that is open, or else the next one, for what only it may do (I6). For the owner.
    pub(crate) fn owe(&self, bits: u32) {
        self.owing.store(self.word.load(Ordering::Relaxed) & ENDED, Ordering::Relaxed);
        self.request(bits);
    }

    /// Whether this record's owner must execute full fences (`asym/I2`).
    #[inline(always)]
    pub(crate) fn is_fenced(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & attention::FENCE != 0
    }

    /// Nested operations open. Exact only for the owner.
    pub(crate) fn depth(&self) -> u64 {
        (self.word.load(Ordering::Relaxed) & DEPTH) / DEPTH_ONE
    }

    /// The operation that is open now, if any.
    pub(crate) fn seen(&self) -> Option<Seen> {
        // Acquire: pairs with the release in `leave`, for the operations that ended before.
        let word = self.word.load(sites::SCAN_ACQUIRE.order(Ordering::Acquire));
        (word & DEPTH != 0).then_some(Seen { ended: word & ENDED })
    }

    /// Whether the operation seen is over (I3).
    pub(crate) fn is_over(&self, seen: Seen) -> bool {
        // Acquire: pairs with the release in `leave`.
        let word = self.word.load(sites::SCAN_ACQUIRE.order(Ordering::Acquire));
        word & DEPTH == 0 || word & ENDED != seen.ended
    }

    /// Asks the owner to take the slow path at its next leave.
    pub(crate) fn request(&self, bits: u32) {
        self.attention.fetch_or(bits, Ordering::Relaxed);
    }

    /// Withdraws or acknowledges requests. Returns which of them there were.
    pub(crate) fn clear(&self, bits: u32) -> u32 {
        self.attention.fetch_and(!bits, Ordering::Relaxed) & bits
    }

    /// Takes the record for the calling thread. The caller has it from the registry, which gives it to one (I1).
    pub(crate) fn adopt(&self, thread: u32, fenced: bool) {
        let word = self.word.load(Ordering::Relaxed);
        assert!(word & DEPTH == 0, "a record was given out while an operation was open in it");
        let slow = if fenced { SLOW } else { 0 };
        let bits = if fenced { attention::FENCE } else { 0 };
        self.thread.store(thread, Ordering::Relaxed);
        self.attention.store(bits, Ordering::Relaxed);
        self.quiet.store(0, Ordering::Relaxed);
        self.word.store(word & ENDED | slow, Ordering::Relaxed);
    }

    /// Begins a quiet scope (I8). For the owner, as the next two.
    #[inline(always)]
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn begin_quiet(&self) {
        self.quiet.store(self.quiet.load(Ordering::Relaxed) + QUIET_ONE, Ordering::Relaxed);
    }

    /// Ends it. Returns whether it was the outermost one, and something fell due.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn end_quiet(&self) -> bool {
        let quiet = self.quiet.load(Ordering::Relaxed).saturating_sub(QUIET_ONE);
        self.quiet.store(quiet, Ordering::Relaxed);
        if quiet == PUT_OFF {
            std::hint::cold_path();
            self.quiet.store(0, Ordering::Relaxed);
        }
        quiet == PUT_OFF
    }

    /// Whether there is a quiet scope.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed) >= QUIET_ONE
    }

    /// Puts what has fallen due off to the end of the quiet scope. Returns whether there is one.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn put_off(&self) -> bool {
        let quiet = self.quiet.load(Ordering::Relaxed);
        if quiet >= QUIET_ONE {
            self.quiet.store(quiet | PUT_OFF, Ordering::Relaxed);
        }
        quiet >= QUIET_ONE
    }

    /// Ends whatever operation is open, because the thread goes away: its frames are gone or will not be continued.
    pub(crate) fn abandon(&self) {
        let word = self.word.load(Ordering::Relaxed);
        if word & DEPTH != 0 {
            let over = (word & !DEPTH).wrapping_add(ENDED_ONE);
            // Release: as in `leave`.
            self.word.store(over, Ordering::Release);
        }
        // Partner: the heavy fence of `Driver::sleep_for_first`, as in `leave`; a cold path can afford a full one.
        fence(Ordering::SeqCst);
    }

    /// The owner begins to run calls that it takes from a list.
    pub(crate) fn begin_run(&self) {
        debug_assert!(self.runs.load(Ordering::Relaxed).is_multiple_of(2));
        // Relaxed: made visible by whatever releases the list that the calls leave.
        self.runs.store(self.runs.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// The owner has run them.
    pub(crate) fn end_run(&self) {
        // Release: pairs with the acquire in `wait_run_end`: what the calls did happens before what follows a barrier.
        self.runs.store(self.runs.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Waits until the calls that the owner is running now, if any, have run.
    pub(crate) fn wait_run_end(&self) {
        // Acquire: pairs with the release in `end_run`.
        let runs = self.runs.load(Ordering::Acquire);
        let mut tries = 0_u32;
        while !runs.is_multiple_of(2) && self.runs.load(Ordering::Acquire) == runs {
            tries += 1;
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

    /// Marks the record as nobody's.
    pub(crate) fn release(&self) {
        // Release: pairs with the acquire in `seen` and `is_over`, as in `leave`, for a collector that reads this store.
        self.word.store(self.word.load(Ordering::Relaxed) | SLOW, Ordering::Release);
        self.thread.store(0, Ordering::Relaxed);
    }

    /// The system's id of the owner; 0 if the record is free (or the platform has no ids).
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Notes where the operation that was just entered began, and its tag, if it is the outermost one.
    #[cfg(all(debug_assertions, not(loom)))]
    pub(crate) fn note(&self, began: &'static Location<'static>, tag: u64) {
        if self.depth() != 1 {
            return;
        }
        let ended = self.word.load(Ordering::Relaxed) & ENDED;
        // Release, all three: pair with the acquires in `note_of`: who reads what an operation noted sees that the ones
        // before are over; who reads whose notes they are sees them, or later ones.
        self.notes.began.store(ptr::from_ref(began).cast_mut(), Ordering::Release);
        self.notes.tag.store(tag, Ordering::Release);
        self.notes.of.store(ended | NOTED, Ordering::Release);
    }

    /// What the operation seen has noted, if it is still open (I7).
    pub(crate) fn note_of(&self, seen: Seen) -> Note {
        #[cfg(all(debug_assertions, not(loom)))]
        {
            // Acquire, all three: pair with the releases in `note`.
            let of = self.notes.of.load(Ordering::Acquire);
            let began = self.notes.began.load(Ordering::Acquire);
            let tag = self.notes.tag.load(Ordering::Acquire);
            // Were one of them a later operation's, this would see the one asked for over.
            if of == seen.ended | NOTED && !self.is_over(seen) {
                // SAFETY: only `note` stores here, from a `&'static`; a null pointer gives `None`.
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
        assert!(!record.leave(token), "nobody asked for attention");
    }

    // I7.
    #[test]
    fn a_note_is_of_the_operation_seen_and_of_no_other() {
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
        // Between its entry and its note, the next one must not get that of the one before.
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
