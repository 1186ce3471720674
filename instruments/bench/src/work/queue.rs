//! The subjects of `queue`: threads get elements from a priority queue of a constant size, and put them back
//! with random priorities.
//!
//! - I1. The queue has the numbers below its size, each once, whenever no thread holds one.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::case::{Make, Missing, Setting, Subject, Worker};
use crate::rivals::spin_or_yield;

/// A queue of numbers, each with a priority. The lowest priority comes first.
pub(crate) trait Prioritized: Send + Sync {
    /// Makes an empty queue.
    ///
    /// # Errors
    /// The queue takes no part in the variant.
    fn new(setting: &Setting) -> Result<Self, Missing>
    where
        Self: Sized;

    /// Makes the access of measured thread `thread`, which has one at a time.
    fn access(&self, thread: usize) -> impl QueueAccess + '_
    where
        Self: Sized;

    /// Takes any number that is left after all threads have ended.
    fn take_left(&self) -> Option<u64>;
}

/// The access of one thread to a queue.
pub(crate) trait QueueAccess {
    fn put(&mut self, priority: u64, number: u64);

    fn get(&mut self) -> Option<u64>;
}

/// Returns the order that a variant is about: the first word of its name.
pub(crate) fn order(setting: &Setting) -> &'static str {
    setting.variant.name.split('-').next().unwrap_or_default()
}

/// Returns the number of elements: the last word of the name of a variant.
fn elements(setting: &Setting) -> Option<u64> {
    match setting.variant.name.rsplit('-').next() {
        Some("10k") => Some(10_000),
        // Counted runs are emulated: the elements alone would take minutes.
        Some("1m") if !setting.counted => Some(1_000_000),
        _ => None,
    }
}

/// Returns the next random number, and keeps the state of the generator: SplitMix64.
#[inline(always)]
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Each thread gets a number and puts it back with a random priority.
struct Steady<Q> {
    queue: CachePadded<Q>,
    elements: u64,
    /// State of each thread's random numbers; 0 before the thread has put its share of the elements.
    random: Box<[CachePadded<AtomicU64>]>,
}

/// Makes the subject.
pub(crate) const fn steady<Q: Prioritized + 'static>() -> Make {
    fn make<Q: Prioritized + 'static>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        Ok(Box::new(Steady::<Q> {
            elements: elements(setting).ok_or_else(Missing::no_part)?,
            queue: CachePadded::new(Q::new(setting)?),
            random: (0..setting.threads).map(|_| CachePadded::default()).collect(),
        }))
    }
    make::<Q>
}

impl<Q: Prioritized> Subject for Steady<Q> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let mut access = self.queue.access(thread);
        // Relaxed, here and below: only this thread uses the state.
        let mut state = self.random[thread].load(Ordering::Relaxed);
        if state == 0 {
            state = thread as u64 + 1;
            (thread as u64..self.elements)
                .step_by(self.random.len())
                .for_each(|number| access.put(random(&mut state), number));
            self.random[thread].store(state, Ordering::Relaxed);
        }
        Box::new(move |ops| {
            for _ in 0..ops {
                let mut tries = 0;
                let number = loop {
                    match access.get() {
                        Some(number) => break number,
                        // Some rivals may overlook elements, or another thread has not put its share yet.
                        None => spin_or_yield(&mut tries),
                    }
                };
                access.put(random(&mut state), black_box(number));
            }
            self.random[thread].store(state, Ordering::Relaxed);
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        let mut there = vec![false; self.elements as usize];
        while let Some(number) = self.queue.take_left() {
            if std::mem::replace(&mut there[number as usize], true) {
                return Err(format!("the element {number} came out twice"));
            }
        }
        match there.iter().position(|there| !there) {
            Some(lost) => Err(format!("the element {lost} is lost")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::queues::StdHeap;

    #[test]
    fn a_lost_or_doubled_element_is_found() {
        let subject = |elements| Steady::<StdHeap> {
            queue: CachePadded::new(StdHeap::default()),
            elements,
            random: (0..2).map(|_| CachePadded::default()).collect(),
        };
        let whole = subject(100);
        (0..2).for_each(|thread| whole.worker(thread)(50));
        assert_eq!(whole.check(100), Ok(()));
        let lossy = subject(3);
        lossy.queue.access(0).put(7, 1);
        assert_eq!(lossy.check(0).expect_err("two are missing"), "the element 0 is lost");
        (0..2).for_each(|_| lossy.queue.access(0).put(7, 1));
        assert_eq!(lossy.check(0).expect_err("one is doubled"), "the element 1 came out twice");
    }
}
