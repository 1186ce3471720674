//! Unordered pools of words: queues and stacks used as such, each as its documentation advises.

use std::sync::Mutex;

use concurrent_queue::ConcurrentQueue;
use crossbeam_deque::{Steal, Stealer, Worker};
use crossbeam_queue::SegQueue;
use crossbeam_utils::CachePadded;

use crate::case::Setting;
use crate::work::bag::{Access, Unordered};

const NO_PANIC: &str = "a thread panicked under the lock";

/// Access by reference, for pools that all threads use alike.
pub(crate) struct Direct<'a, P>(pub(crate) &'a P);

/// `segqueue`.
impl Unordered for SegQueue<u64> {
    fn new(_: &Setting) -> Self {
        SegQueue::new()
    }

    fn access(&self, _: usize) -> impl Access + '_ {
        Direct(self)
    }

    fn take_left(&self) -> Option<u64> {
        self.pop()
    }
}

impl Access for Direct<'_, SegQueue<u64>> {
    #[inline(always)]
    fn put(&mut self, value: u64) {
        self.0.push(value);
    }

    #[inline(always)]
    fn get(&mut self) -> Option<u64> {
        self.0.pop()
    }
}

/// `concurrent-queue`, without a bound.
impl Unordered for ConcurrentQueue<u64> {
    fn new(_: &Setting) -> Self {
        ConcurrentQueue::unbounded()
    }

    fn access(&self, _: usize) -> impl Access + '_ {
        Direct(self)
    }

    fn take_left(&self) -> Option<u64> {
        self.pop().ok()
    }
}

impl Access for Direct<'_, ConcurrentQueue<u64>> {
    #[inline(always)]
    fn put(&mut self, value: u64) {
        self.0.push(value).expect("the queue is never closed");
    }

    #[inline(always)]
    fn get(&mut self) -> Option<u64> {
        self.0.pop().ok()
    }
}

/// `locked-vec`: a stack under a lock of `parking_lot`.
pub(crate) type LockedVec = parking_lot::Mutex<Vec<u64>>;

impl Unordered for LockedVec {
    fn new(_: &Setting) -> Self {
        parking_lot::Mutex::new(Vec::new())
    }

    fn access(&self, _: usize) -> impl Access + '_ {
        Direct(self)
    }

    fn take_left(&self) -> Option<u64> {
        self.lock().pop()
    }
}

impl Access for Direct<'_, LockedVec> {
    #[inline(always)]
    fn put(&mut self, value: u64) {
        self.0.lock().push(value);
    }

    #[inline(always)]
    fn get(&mut self) -> Option<u64> {
        self.0.lock().pop()
    }
}

/// `crossbeam-deque`: a stack per thread; a thread with an empty one steals a batch of another thread's.
pub(crate) struct Deques {
    /// The owner's end of each thread's deque, while no thread has it.
    idle: Box<[Mutex<Option<Worker<u64>>>]>,
    stealers: Box<[Stealer<u64>]>,
}

struct Deque<'a> {
    deques: &'a Deques,
    thread: usize,
    own: Worker<u64>,
}

impl Unordered for Deques {
    fn new(setting: &Setting) -> Self {
        let workers: Vec<_> = (0..setting.threads).map(|_| Worker::new_lifo()).collect();
        Deques {
            stealers: workers.iter().map(Worker::stealer).collect(),
            idle: workers.into_iter().map(|worker| Mutex::new(Some(worker))).collect(),
        }
    }

    fn access(&self, thread: usize) -> impl Access + '_ {
        let own = self.idle[thread].lock().expect(NO_PANIC).take().expect("a thread has one access");
        Deque { deques: self, thread, own }
    }

    fn take_left(&self) -> Option<u64> {
        self.stealers.iter().find_map(|stealer| stealer.steal().success())
    }
}

impl Access for Deque<'_> {
    #[inline(always)]
    fn put(&mut self, value: u64) {
        self.own.push(value);
    }

    #[inline(always)]
    fn get(&mut self) -> Option<u64> {
        self.own.pop().or_else(|| self.steal())
    }
}

impl Deque<'_> {
    /// Steals until no deque asks for another try, as the crate's documentation shows.
    #[cold]
    fn steal(&self) -> Option<u64> {
        let stealers = &self.deques.stealers;
        let others = || stealers.iter().cycle().skip(self.thread + 1).take(stealers.len() - 1);
        let steals = || others().map(|other| other.steal_batch_and_pop(&self.own)).collect::<Steal<u64>>();
        std::iter::repeat_with(steals).find(|steal| !steal.is_retry()).and_then(Steal::success)
    }
}

impl Drop for Deque<'_> {
    fn drop(&mut self) {
        let own = std::mem::replace(&mut self.own, Worker::new_lifo());
        *self.deques.idle[self.thread].lock().expect(NO_PANIC) = Some(own);
    }
}

/// `vec-per-thread`: a plain vector of each thread, which no other thread can use. The floor.
pub(crate) struct VecPerThread(Box<[CachePadded<Mutex<Vec<u64>>>]>);

struct OwnVec<'a> {
    place: &'a Mutex<Vec<u64>>,
    own: Vec<u64>,
}

impl Unordered for VecPerThread {
    fn new(setting: &Setting) -> Self {
        VecPerThread((0..setting.threads).map(|_| CachePadded::default()).collect())
    }

    fn access(&self, thread: usize) -> impl Access + '_ {
        let place = &*self.0[thread];
        OwnVec { own: std::mem::take(&mut *place.lock().expect(NO_PANIC)), place }
    }

    /// A thread gets as many words as it puts.
    fn take_left(&self) -> Option<u64> {
        None
    }
}

impl Access for OwnVec<'_> {
    #[inline(always)]
    fn put(&mut self, value: u64) {
        self.own.push(value);
    }

    #[inline(always)]
    fn get(&mut self) -> Option<u64> {
        self.own.pop()
    }
}

impl Drop for OwnVec<'_> {
    fn drop(&mut self) {
        *self.place.lock().expect(NO_PANIC) = std::mem::take(&mut self.own);
    }
}
