//! Recording: a log per thread, and in each line what the thread knew to be over when it asked.
//!
//! Problem: an order of calls and returns needs a clock, and a clock that all threads write serialises what is tested. A shared
//! counter with `fetch_add` is worse than slow: on x86 it is a full fence before and after each call, and a call that forgot one of its
//! own passes.
//! Idea: no clock. Each thread has a word, on a line of its own, that says how many of its calls have ended. A thread that ends a
//! call stores there; a thread that begins one loads all of them. The loaded numbers are the calls that are before it.
//!
//! - I1. If a call is recorded as before another, its return happened before the other's beginning, in the sense of the memory model:
//!   the beginning loaded, with Acquire, what the end stored with Release, or something later in the same word.
//! - I2. If a call had returned, and the news had come to the thread in any way that the memory model knows, it is recorded as
//!   before the thread's next call: the store into the word is before the news, and a load after the news sees it.
//! - I3. A thread stores into its own word only, and reads and writes of a call's own are never behind a fence or an atomic
//!   read-modify-write of the recorder's.
//!
//! By I1 no right object is accused, on any processor. By I2 nothing that a program could notice is forgiven. What is forgiven is
//! an order that a wall clock would have shown and the program could not: an x86 may still hold the last store of a call that has
//! returned, and the objects that are tested here may rely on that.
//!
//! The order is not that of intervals on one time line: of two pairs of calls, each in order, nothing else may be known. So
//! each key may be right while all of them together are not (two threads that each store and then look for the other's); whoever
//! wants to know checks the whole, by [`Keyed`](crate::Keyed).
//!
//! Cost: beginning a call is one load per thread, of which those that changed meanwhile miss; ending it is one store, to a line that the
//! others read. No thread waits for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_utils::CachePadded;

/// How many calls of each thread have ended.
type Ended = Arc<[CachePadded<AtomicU32>]>;

/// One call, as its thread saw it.
pub(crate) struct Line<O, R> {
    pub(crate) op: O,
    /// None while it has not returned.
    pub(crate) ret: Option<R>,
}

/// What one thread asked and was answered.
pub struct Log<O, R> {
    pub(crate) thread: usize,
    pub(crate) ended: Ended,
    pub(crate) lines: Vec<Line<O, R>>,
    /// For each line, how many calls of each thread had ended.
    pub(crate) seen: Vec<u32>,
}

/// A log for each of so many threads, to be made into one [`History`](crate::History) when all have done.
///
/// `calls` is how many calls are expected of each: room is made before, so that recording does not allocate.
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
    /// The thread's number.
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// Makes a call and records it. If it panics, it stays recorded as one that never returned.
    pub fn call(&mut self, op: O, run: impl FnOnce(&O) -> R) -> R
    where
        R: Clone,
    {
        self.begin(op);
        let ret = run(&self.lines[self.lines.len() - 1].op);
        self.end(ret.clone());
        ret
    }

    /// Records that a call begins now. One that was begun before and has not ended never returns.
    pub fn begin(&mut self, op: O) {
        for (thread, ended) in self.ended.iter().enumerate() {
            let seen = if thread == self.thread {
                self.lines.len() as u32
            } else {
                // Acquire: pairs with the Release in `end`. What the counted calls did is before what this call does.
                ended.load(Ordering::Acquire)
            };
            self.seen.push(seen);
        }
        self.lines.push(Line { op, ret: None });
    }

    /// Records that the call that was begun last has returned this.
    ///
    /// # Panics
    ///
    /// If no call is open.
    pub fn end(&mut self, ret: R) {
        let line = self.lines.last_mut().expect("a call was begun");
        assert!(line.ret.is_none(), "the call has ended before");
        line.ret = Some(ret);
        // Release: pairs with the Acquire in `begin`. Who sees the number sees what the call did.
        self.ended[self.thread].store(self.lines.len() as u32, Ordering::Release);
    }
}
