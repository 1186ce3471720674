//! The subjects of `bag` and `bag-asym`: threads put words into an unordered pool, and get words from it.
//!
//! - I1. The sum of the words that were put must equal the sum of those that were got and those left.
//! - I2. In `bag-asym`, a getting thread ends after as many words as a putting thread puts. So each slice
//!   ends with an empty pool.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::case::{Make, Missing, Setting, Subject, Worker};
use crate::rivals::spin_or_yield;

/// A pool without an order.
pub(crate) trait Unordered: Send + Sync {
    fn new(setting: &Setting) -> Self
    where
        Self: Sized;

    /// Makes the access of measured thread `thread`, which has one at a time.
    fn access(&self, thread: usize) -> impl Access + '_
    where
        Self: Sized;

    /// Takes any word that is left after all threads have ended.
    fn take_left(&self) -> Option<u64>;
}

/// The access of one thread to a pool.
pub(crate) trait Access {
    fn put(&mut self, value: u64);

    fn get(&mut self) -> Option<u64>;
}

/// Gets a word that is in the pool. A pool may overlook it while another thread moves it.
#[inline(always)]
fn get_present(access: &mut impl Access) -> u64 {
    let mut tries = 0;
    loop {
        match access.get() {
            Some(value) => return value,
            None => spin_or_yield(&mut tries),
        }
    }
}

/// Sums of the words of all threads.
#[derive(Default)]
struct Sums {
    put: CachePadded<AtomicU64>,
    got: CachePadded<AtomicU64>,
}

impl Sums {
    fn add(&self, put: u64, got: u64) {
        self.put.fetch_add(put, Ordering::Relaxed);
        self.got.fetch_add(got, Ordering::Relaxed);
    }

    /// Compares the sums, after all threads have ended.
    fn check(&self, pool: &impl Unordered) -> Result<(), String> {
        let left = std::iter::from_fn(|| pool.take_left()).fold(0, u64::wrapping_add);
        let (put, got) = (self.put.load(Ordering::Relaxed), self.got.load(Ordering::Relaxed));
        let out = got.wrapping_add(left);
        // The words left are gone now, and the check may be repeated.
        self.add(0, left);
        if put == out { Ok(()) } else { Err(format!("words of sum {put} were put, but {out} came out")) }
    }
}

/// Each thread puts `burst` words and then gets as many.
struct Pairs<P> {
    pool: CachePadded<P>,
    burst: u64,
    sums: Sums,
}

/// The variant with many words in the pool.
pub(crate) const BURST: &str = "burst-64";

/// Makes the subject that puts and gets by turns.
pub(crate) const fn pairs<P: Unordered + 'static>() -> Make {
    fn make<P: Unordered + 'static>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        Ok(Box::new(Pairs::<P> {
            pool: CachePadded::new(P::new(setting)),
            burst: if setting.variant.name == BURST { 64 } else { 1 },
            sums: Sums::default(),
        }))
    }
    make::<P>
}

/// Puts and gets `ops` words by turns, `burst` at once. Returns the two sums.
#[inline(always)]
fn bursts(access: &mut impl Access, mut ops: u64, burst: u64) -> (u64, u64) {
    let (mut put, mut got) = (0u64, 0u64);
    while ops > 0 {
        let count = burst.min(ops);
        for n in 0..count {
            let value = black_box(ops - n);
            access.put(value);
            put = put.wrapping_add(value);
        }
        for _ in 0..count {
            got = got.wrapping_add(get_present(access));
        }
        ops -= count;
    }
    (put, got)
}

impl<P: Unordered> Subject for Pairs<P> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let mut access = self.pool.access(thread);
        let mut run = move |ops, burst| {
            // A constant burst removes the loops around a single word.
            let (put, got) =
                if burst == 1 { bursts(&mut access, ops, 1) } else { bursts(&mut access, ops, burst) };
            self.sums.add(put, got);
        };
        // Makes everything that the thread's first use makes.
        run(2, self.burst);
        Box::new(move |ops| run(ops, self.burst))
    }

    fn check(&self, _: u64) -> Result<(), String> {
        self.sums.check(&*self.pool)
    }
}

/// Number of words by which a putting thread may be ahead of its getting thread.
const LEAD: u64 = 4096;
/// Words of a thread between two notes of its progress.
const NOTE_EVERY: u64 = 256;

/// One half of the threads only put, and the other half only get.
struct Asymmetric<P> {
    pool: CachePadded<P>,
    threads: usize,
    /// Number of words that each thread has put or got.
    done: Box<[CachePadded<AtomicU64>]>,
    sums: Sums,
}

/// The role of a thread.
#[derive(Clone, Copy)]
enum Role {
    /// Puts; the getting thread of its pair has this number.
    Puts {
        getter: usize,
    },
    Gets,
    /// Has no other thread to form a pair with, and puts and gets by turns.
    Both,
}

/// Makes the subject with threads that only put and threads that only get.
pub(crate) const fn asymmetric<P: Unordered + 'static>() -> Make {
    fn make<P: Unordered + 'static>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        Ok(Box::new(Asymmetric::<P> {
            pool: CachePadded::new(P::new(setting)),
            threads: setting.threads,
            done: (0..setting.threads).map(|_| CachePadded::default()).collect(),
            sums: Sums::default(),
        }))
    }
    make::<P>
}

impl<P: Unordered> Asymmetric<P> {
    fn role(&self, thread: usize) -> Role {
        match thread {
            last if last + 1 == self.threads && last.is_multiple_of(2) => Role::Both,
            even if even.is_multiple_of(2) => Role::Puts { getter: even + 1 },
            _ => Role::Gets,
        }
    }

    fn put(&self, access: &mut impl Access, thread: usize, getter: usize, ops: u64) {
        let (mut sum, mut left) = (0u64, ops);
        while left > 0 {
            let count = left.min(NOTE_EVERY);
            for n in 0..count {
                let value = black_box(left - n);
                access.put(value);
                sum = sum.wrapping_add(value);
            }
            left -= count;
            // Relaxed, here and below: the numbers order nothing.
            let put = self.done[thread].load(Ordering::Relaxed) + count;
            self.done[thread].store(put, Ordering::Relaxed);
            let mut tries = 0;
            while put > self.done[getter].load(Ordering::Relaxed) + LEAD {
                spin_or_yield(&mut tries);
            }
        }
        self.sums.add(sum, 0);
    }

    fn get(&self, access: &mut impl Access, thread: usize, ops: u64) {
        let (mut sum, mut left) = (0u64, ops);
        while left > 0 {
            let count = left.min(NOTE_EVERY);
            for _ in 0..count {
                sum = sum.wrapping_add(get_present(access));
            }
            left -= count;
            let got = self.done[thread].load(Ordering::Relaxed) + count;
            self.done[thread].store(got, Ordering::Relaxed);
        }
        self.sums.add(0, sum);
    }
}

impl<P: Unordered> Subject for Asymmetric<P> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let mut access = self.pool.access(thread);
        let role = self.role(thread);
        // Makes everything that the thread's first use makes.
        let (put, got) = bursts(&mut access, 2, 1);
        self.sums.add(put, got);
        Box::new(move |ops| match role {
            Role::Puts { getter } => self.put(&mut access, thread, getter, ops),
            Role::Gets => self.get(&mut access, thread, ops),
            Role::Both => {
                let (put, got) = bursts(&mut access, ops, 64);
                self.sums.add(put, got);
            }
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        self.sums.check(&*self.pool)
    }
}
