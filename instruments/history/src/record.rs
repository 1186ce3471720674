//! Records one log per thread. Each line stores the calls that the thread knew to be over when its call
//! began.
//!
//! Problem: ordering calls and returns needs a clock, and a clock written by all threads serialises the test.
//! A shared counter with `fetch_add` is also a full fence on x86 before and after each call, which hides a
//! missing fence in the object. Idea: use no clock. Each thread has a word on its own cache line with the
//! number of its completed calls. The end of a call stores to it; the beginning of a call loads the words of
//! all threads. The loaded numbers give the calls that are before it.
//!
//! - I1. If a call is recorded as before another, its return happened before the other's beginning, in the
//!   sense of the memory model. The beginning loaded, with Acquire, the value stored by the end with Release,
//!   or a later value of the same word.
//! - I2. If a call had returned, and this fact reached a thread in any way known to the memory model, the
//!   call is recorded as before the thread's next call. The store to the word precedes the notification, and
//!   a load after it sees the store.
//! - I3. A thread stores only to its own word. The recorder puts no fence and no atomic read-modify-write
//!   between the memory accesses of the calls.
//!
//! By I1 a correct object is never accused, on any processor. By I2 every error that a program could notice
//! is found. An order that only a wall clock could show is ignored: an x86 processor may still buffer the
//! last store of a returned call, and tested objects may rely on that.
//!
//! The recorded order need not be that of intervals on a time line: two pairs of calls may be ordered with no
//! order between the pairs. Each key may then be right while all keys together are not, for example if two
//! threads each store and then look for the other's store. To check the whole, use [`Keyed`](crate::Keyed).
//!
//! Cost: the beginning of a call loads one word per thread; words that changed miss the cache. The end stores
//! one word on a line that other threads read. No thread waits for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_utils::CachePadded;

/// Number of completed calls of each thread.
type Ended = Arc<[CachePadded<AtomicU32>]>;

/// One call as recorded by its thread.
pub(crate) struct Line<O, R> {
    pub(crate) op: O,
    /// Answer; `None` while the call is open.
    pub(crate) ret: Option<R>,
}

/// Calls of one thread.
pub struct Log<O, R> {
    pub(crate) thread: usize,
    pub(crate) ended: Ended,
    pub(crate) lines: Vec<Line<O, R>>,
    /// Per line: the number of completed calls of each thread.
    pub(crate) seen: Vec<u32>,
}

/// Creates a log for each thread; [`History::from_logs`](crate::History::from_logs) combines them afterwards.
///
/// `calls` is the expected number of calls per thread. Memory is reserved for them, so that recording does
/// not allocate.
pub fn logs<O, R>(threads: usize, calls: usize) -> Vec<Log<O, R>> {
    let ended: Ended = (0..threads).map(|_| CachePadded::new(AtomicU32::new(0))).collect();
    (0..threads)
        .map(|thread| Log {
            thread,
            ended: Arc::clone(&ended),
            lines: Vec::with_capacity(calls),
            seen: Vec::with_capacity(calls * threads),
        })
        .collect()
}

impl<O, R> Log<O, R> {
    /// Number of the thread.
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// Makes a call and records it. A call that panics is recorded as one that never returned.
    pub fn call(&mut self, op: O, run: impl FnOnce(&O) -> R) -> R
    where
        R: Clone,
    {
        self.begin(op);
        let ret = run(&self.lines[self.lines.len() - 1].op);
        self.end(ret.clone());
        ret
    }

    /// Records the beginning of a call. An open earlier call of this thread never returns.
    pub fn begin(&mut self, op: O) {
        for (thread, ended) in self.ended.iter().enumerate() {
            let seen = if thread == self.thread {
                self.lines.len() as u32
            } else {
                // Acquire: pairs with the Release in `end`. The effects of the counted calls happen before
                // this call.
                ended.load(Ordering::Acquire)
            };
            self.seen.push(seen);
        }
        self.lines.push(Line { op, ret: None });
    }

    /// Records the return of the open call.
    ///
    /// # Panics
    ///
    /// If no call is open.
    pub fn end(&mut self, ret: R) {
        let line = self.lines.last_mut().expect("a call ended that was not begun");
        assert!(line.ret.is_none(), "the call has ended before");
        line.ret = Some(ret);
        // Release: pairs with the Acquire in `begin`. A thread that sees the number also sees the call's
        // effects.
        self.ended[self.thread].store(self.lines.len() as u32, Ordering::Release);
    }
}
